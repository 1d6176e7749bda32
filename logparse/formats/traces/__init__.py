"""Traces of profilers: which GPU kernels ran, for how long, and who launched them."""
