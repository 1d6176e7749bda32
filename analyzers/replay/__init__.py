"""Replay: run the GEMMs and convolutions of a job by themselves, and measure the time of every solution.

A solution is a kernel or algorithm that a library has for a problem. ``docs/measurement.md`` explains how and why.
"""
