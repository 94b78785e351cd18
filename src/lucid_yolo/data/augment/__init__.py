"""Applying a plan to pixels and boxes."""
