"""MIOpen, AMD's library for convolutions: read its logs, databases and benchmark commands, and time its kernels."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("miopen", facts=("miopen_version",), by_name=True)
