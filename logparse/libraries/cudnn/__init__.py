"""cuDNN."""
