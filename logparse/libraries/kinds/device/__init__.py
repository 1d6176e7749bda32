"""A device as replay sees it: buffers, clocks, operands."""
