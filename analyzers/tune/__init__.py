"""The command ``logparse tune -- COMMAND…``: find changes that make a job faster, make them, and measure the gain."""
