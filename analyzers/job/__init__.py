"""Facts about a job from its logs and traces: its GPU time, its steps, and calls that are counted twice."""
