"""Reader of traces of PyTorch's profiler (Kineto)."""
