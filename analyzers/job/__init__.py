"""What logs and traces say of a job: its GPU time, its steps, what is counted twice."""
