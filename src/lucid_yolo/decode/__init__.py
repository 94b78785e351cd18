"""Raw predictions to ranked detections."""
