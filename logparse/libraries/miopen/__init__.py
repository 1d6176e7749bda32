"""MIOpen: its logs, its driver, its databases, its replay backend."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("miopen", facts=("miopen_version",), by_name=True)
