"""``python -m logparse`` is the program."""

from logparse.cli import main

main()
