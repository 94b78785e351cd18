"""Examines, mends and converts data sets; never changes one."""
