"""Intervals, tests and distributions of measured times."""
