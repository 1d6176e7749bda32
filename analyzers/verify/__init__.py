"""Whether overrides and actions took effect, and whether the job got faster."""
