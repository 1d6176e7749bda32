"""Joins of measured times with the problems of a run: origins, picks, neighbours and confirmations."""
