"""Compare two runs, or two files."""
