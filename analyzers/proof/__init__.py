"""Proof: that an override file will be read and hit, covers the workload, took effect, and was worth it."""
