"""A device as replay uses it: buffers, clocks, operands."""
