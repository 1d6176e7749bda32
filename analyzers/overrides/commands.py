"""How a library's own tool runs one problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logparse.errors import EmissionError
from logparse.formats.hipblaslt import bench
from logparse.formats.miopen import driver
from logparse.model import ConvProblem, GemmProblem, Problem


def _bench_command(problem: Problem) -> str:
    if not isinstance(problem, GemmProblem):
        raise EmissionError(f"hipblaslt-bench runs no {problem.kind}")
    return bench.command(problem)


def _driver_command(problem: Problem) -> str:
    if not isinstance(problem, ConvProblem):
        raise EmissionError(f"MIOpenDriver runs no {problem.kind}")
    # Without a folder, which differs by ROCm version: PATH finds it.  The environment switches tuning on.
    return driver.command(problem).replace("./bin/MIOpenDriver", "MIOpenDriver", 1)


COMMANDS: Mapping[str, Callable[[Problem], str]] = {"miopen": _driver_command, "hipblaslt": _bench_command}
"""How a library's own tool runs one problem; raises EmissionError where a field that it needs is unknown."""
