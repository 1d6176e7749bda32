"""Executors, which work on many files or problems: processes of this machine, or a Ray cluster.

``local`` needs nothing; ``ray`` is the extra ``logparse[ray]``.  Only this package knows which of them runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from logparse.errors import UsageError
from logparse.executors.executor import Executor, LostError, Progress, Resources, TaskError, report

ENGINES = ("local", "ray", "ray://HOST:PORT")
"""The values of ``--engine``."""


@contextmanager
def open_executor(engine: str = "local", jobs: int = 0) -> Iterator[Executor]:
    """The executor that ``engine`` names, with ``jobs`` tasks at once (0: one per core).

    Raises UsageError for an unknown engine, InputError where Ray is not installed or no cluster answers.
    """
    executor = _executor(engine, jobs)
    try:
        yield executor
    finally:
        executor.close()


def _executor(engine: str, jobs: int) -> Executor:
    if engine == "local":
        from logparse.executors.local import LocalExecutor

        return LocalExecutor(jobs)
    from logparse.executors.ray import RayExecutor

    return RayExecutor(ray_address(engine), jobs)


def ray_address(engine: str) -> str | None:
    """The address in an engine's name; None where Ray finds the cluster itself.  Raises UsageError."""
    if engine == "ray":
        return None
    if engine.startswith("ray://") and engine != "ray://":
        return engine
    raise UsageError(f"--engine {engine}: one of {', '.join(ENGINES)}")


def import_numpy() -> None:
    """Import NumPy, which nearly every verb needs, so that the threads of its OpenBLAS sleep until they have work.

    There is one per core, and each waits busily for a tenth of a second once it is made: that costs a short command on
    two cores a fifth of its time.  OpenBLAS reads the setting when it is loaded; jobs that this process starts do not
    inherit it.
    """
    setting = "OPENBLAS_THREAD_TIMEOUT"  # 2 to its power in cycles, at least 4
    if "numpy" in sys.modules or setting in os.environ:
        return
    os.environ[setting] = "4"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[setting]


__all__ = [
    "ENGINES",
    "Executor",
    "LostError",
    "Progress",
    "Resources",
    "TaskError",
    "import_numpy",
    "open_executor",
    "ray_address",
    "report",
]
