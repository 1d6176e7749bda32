"""Simulate a step of a job, to find out how long it would take if some kernels were faster or slower.

The traces are converted to a graph of dependencies. Its nodes are moments, for example the end of a kernel. Each node
waits for other nodes. The modules, in the order in which they use each other: ``traces`` → ``build`` → ``graph`` →
``answer``.
"""
