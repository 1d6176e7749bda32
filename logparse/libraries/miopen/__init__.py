"""MIOpen (AMD's library for convolutions): its logs, its driver, its databases and timing its kernels."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("miopen", facts=("miopen_version",), by_name=True)
