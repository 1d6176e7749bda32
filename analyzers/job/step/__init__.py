"""Simulate a step of a job, to predict how long it takes if some kernels become faster or slower.

The traces become a graph of moments, for example the end of a kernel. Each moment waits for earlier ones. The modules
``traces``, ``graph``, ``build`` and ``answer`` use only modules before them.
"""
