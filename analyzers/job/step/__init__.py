"""Simulation of a step. Its graph is made from a job's traces, and its times are computed again for other kernel times.

The nodes of the graph are moments of host threads, device streams and collectives. The modules, in the order in which
they use each other: ``traces`` → ``build`` → ``graph`` → ``answer``.
"""
