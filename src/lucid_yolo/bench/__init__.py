"""Measuring speed and proving equality."""
