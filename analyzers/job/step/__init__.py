"""Simulation of a step. Its graph is made from a job's traces and run again with other kernel times.

The nodes of the graph are moments of host threads, device streams and collectives. The modules in order: ``traces`` →
``build`` → ``graph`` → ``answer``.
"""
