"""Reader of the output of Tensile, the kernel library of rocBLAS and hipBLASLt."""
