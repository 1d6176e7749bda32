"""Two runs, or two files, side by side."""
