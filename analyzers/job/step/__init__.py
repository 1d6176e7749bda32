"""Simulate a step of a job, to predict how long it takes if some kernels become faster or slower.

The traces become a graph of moments, such as the end of a kernel. The modules are ``traces``, ``graph``, ``build`` and
``answer``. Each uses only modules before it.
"""
