"""How a library's own tool runs one problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logparse.formats.hipblaslt import bench
from logparse.formats.miopen import driver
from logparse.model import Problem

COMMANDS: Mapping[str, Callable[[Problem], str]] = {"miopen": driver.command, "hipblaslt": bench.command}
"""How a library's own tool runs one problem; raises EmissionError where a field that it needs is unknown."""
