"""The GPU on which ``logparse replay`` times kernels: its memory, its clock, and the kernels' inputs and outputs."""
