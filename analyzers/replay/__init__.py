"""Replay: run the GEMMs and convolutions of a job by themselves, and measure the time of every kernel for them.

``docs/measurement.md`` explains how. A solution is a kernel or algorithm that a library has for a GEMM or convolution.
"""
