"""Intervals, tests and distributions for measured times."""
