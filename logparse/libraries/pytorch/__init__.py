"""PyTorch's own kernels and settings."""
