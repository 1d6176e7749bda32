"""Replay: measure problems on a device and return the time of every solution.

``docs/measurement.md`` explains how and why.
"""
