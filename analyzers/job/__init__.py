"""Facts about a job that its logs and traces show: its GPU time, its steps, and calls that are counted twice."""
