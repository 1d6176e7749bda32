"""Compute facts about a job from its logs and traces: GPU time, steps, and calls that may be counted twice."""
