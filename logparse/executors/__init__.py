"""Run a function for many items in parallel: in processes of this machine, or on a Ray cluster.

``local`` needs nothing. ``ray`` needs the extra ``logparse[ray]``. Code outside of this package does not depend on
which of them is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from logparse.errors import UsageError
from logparse.executors.executor import Executor


@contextmanager
def open_executor(engine: str = "local", jobs: int = 0) -> Iterator[Executor]:
    """Context that runs at most ``jobs`` tasks in parallel (0: one for each core).

    ``engine`` is ``local``, ``ray`` or ``ray://HOST:PORT``. Raises UsageError for another engine, and InputError if Ray
    or its cluster is not available.
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
    """Return the address of the Ray cluster in ``--engine``, for example ``ray://HOST:PORT``.

    Returns None for ``ray``, because Ray then finds the cluster itself. Raises UsageError for any other text.
    """
    if engine == "ray":
        return None
    if engine.startswith("ray://") and engine != "ray://":
        return engine
    raise UsageError(f"--engine {engine}: must be local, ray or ray://HOST:PORT")
