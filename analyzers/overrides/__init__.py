"""Check, merge, convert and write override files: lists of kernels that a library must use instead of its choice."""
