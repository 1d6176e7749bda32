"""Analyse the stored logs and traces of a job: collect times, find losses, write override files, check gains.

An override file lists kernels that a library should use instead of its own choice.
"""
