"""Replay backend of cuDNN."""
