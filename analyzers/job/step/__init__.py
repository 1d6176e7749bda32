"""Simulate a step of a job, to find out how long it would take if some kernels took other times.

Traces of the job are converted to a graph. Its nodes are moments of host threads, device streams and collectives. The
modules, in the order in which they use each other: ``traces`` → ``build`` → ``graph`` → ``answer``.
"""
