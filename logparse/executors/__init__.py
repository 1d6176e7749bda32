"""Executors, which work on many files or problems: processes of this machine, or a Ray cluster.

``local`` needs nothing.  ``ray`` needs the extra ``logparse[ray]``.  Code outside of this package does not depend on
which executor runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from logparse.errors import UsageError
from logparse.executors.executor import Executor


@contextmanager
def open_executor(engine: str = "local", jobs: int = 0) -> Iterator[Executor]:
    """Open the executor that ``engine`` names, with ``jobs`` tasks at once (0: one per core).

    Raises UsageError for an unknown engine.  Raises InputError if Ray is not installed or no cluster answers.
    """
    if engine == "local":
        from logparse.executors.local import LocalExecutor

        yield LocalExecutor(jobs)
        return
    from logparse.executors.ray import RayExecutor

    executor = RayExecutor(ray_address(engine), jobs)
    try:
        yield executor
    finally:
        executor.close()


def ray_address(engine: str) -> str | None:
    """Return the address in an engine's name.

    Return None if Ray finds the cluster itself.  Raises UsageError for other names.
    """
    if engine == "ray":
        return None
    if engine.startswith("ray://") and engine != "ray://":
        return engine
    raise UsageError(f"--engine {engine}: must be local, ray or ray://HOST:PORT")
