"""Replay backend of PyTorch."""
