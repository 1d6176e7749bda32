"""Compare two executions of a job, and check whether a change or an override file made the second one faster.

An override file lists kernels that a library should use instead of its own choice.
"""
