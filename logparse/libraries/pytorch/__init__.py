"""Time matrix products, convolutions and other operators in PyTorch, with its default and with other settings."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("torch", facts=("pytorch_version",), by_name=True)
