"""The device on which replay times problems: its memory, its clock, and the problems' inputs and outputs."""
