"""Simulate a step of a job, to predict how long it takes if some kernels become faster or slower.

The traces become a graph of moments, such as the end of a kernel. The modules ``traces``, ``graph``, ``build`` and
``answer`` use only modules before them.
"""
