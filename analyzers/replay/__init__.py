"""Replay: run the GEMMs and convolutions of a job by themselves, and measure the time of every kernel for them.

A solution is a kernel or algorithm that a library has for a GEMM or convolution. ``docs/measurement.md`` explains how
the times are measured, and why in this way.
"""
