"""Simulate a step of a job, to predict how long it takes if some kernels become faster or slower.

The traces are converted to a graph. Its nodes are moments, for example the end of a kernel, and each moment waits for
earlier ones. The modules are ``traces``, ``graph``, ``build`` and ``answer``. Each uses only modules before it.
"""
