"""Readers of files that logparse writes itself, and of output of libraries that has no format of its own."""
