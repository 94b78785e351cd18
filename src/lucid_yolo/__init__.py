"""NMS-free real-time detectors: train, evaluate, predict."""

__version__ = "0.1.0.dev0"
