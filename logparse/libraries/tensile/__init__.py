"""Tensile, the kernel library of rocBLAS and hipBLASLt."""
