"""Boxes, points, distances and ordering: exact small functions on tensors."""
