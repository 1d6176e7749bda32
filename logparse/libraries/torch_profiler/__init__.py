"""The reader of traces that PyTorch's profiler (Kineto) writes."""
