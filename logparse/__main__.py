"""Runs the program as ``python -m logparse``."""

from logparse.cli import main

main()
