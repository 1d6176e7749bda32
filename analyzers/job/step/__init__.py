"""The step simulated: from a job's traces a graph of host threads, device streams and collectives, re-run with other
times of its kernels (``traces`` → ``build`` → ``graph`` → ``answer``).
"""
