"""Run tasks on a Ray cluster: https://docs.ray.io.

    logparse ingest … --engine ray                  the cluster of $RAY_ADDRESS or of this machine, else a new one
    logparse ingest … --engine ray://head:10001     a remote cluster, through Ray's client port

* Every machine (node) of the cluster needs the same version of logparse as this machine. This is checked.
* Files and the store must have the same names on all nodes: URLs, or paths in a file system that all nodes share. Each
  node uses its own credentials.
* A cluster that is started here uses all cores of this machine and ends with the command. Ray opens ports on all
  interfaces of the machine, which are protected by a token.
* For a remote cluster with a token, set ``RAY_AUTH_MODE=token`` and ``RAY_AUTH_TOKEN`` (or have ``~/.ray/auth_token``).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from logparse import __version__
from logparse.errors import InputError
from logparse.executors.executor import (
    TRIES,
    LostError,
    Progress,
    Resources,
    TaskError,
    call_or_error,
    pass_progress_to,
    run_with_retries,
)

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.2
_NODE_SECONDS = 120.0
"""Seconds for which a task waits for a new machine if all machines with enough cores have died.

The cluster may be about to start one.
"""
_QUEUED = 64  # minimum number of tasks that wait at Ray, so that no core is idle
_MOST = 10_000  # maximum number of tasks at Ray: the driver's memory and the time of `ray.wait` grow with them
_OBJECT_STORE_BYTES = 128 << 20  # bytes for a cluster started here, whose objects are small


class RayExecutor:
    """Runs tasks in parallel on a Ray cluster.

    It uses at most ``jobs`` cores. 0 means all cores, also cores that are added later.
    """

    def __init__(self, address: str | None = None, jobs: int = 0) -> None:
        self._ray, self._ours = connect(address)
        self._jobs = jobs

    def close(self) -> None:
        if self._ours:
            self._ray.shutdown()

    @property
    def cpus(self) -> int:
        """How many cores one task can use: the cores of the largest node, but at most ``jobs``."""
        largest = max((node["Resources"].get("CPU", 1) for node in self._ray.nodes() if node["Alive"]), default=1)
        return max(1, min(int(largest), self._jobs or int(largest)))

    @property
    def together(self) -> int:
        """How many cores all tasks at the same time can use: the cores of all nodes, but at most ``jobs``."""
        cores = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return min(cores, self._jobs) if self._jobs else cores

    def map_unordered(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        resources: Callable[[T], Resources],
        progress: Progress | None = None,
    ) -> Iterator[tuple[T, R | TaskError]]:
        ray, there = self._ray, self._ray.put(function)
        run = ray.remote(_run)
        running: dict[Any, tuple[T, int]] = {}
        nodes = _Nodes(ray)

        def room() -> int:  # nodes come and go
            return self._jobs or min(_MOST, max(_QUEUED, 4 * self.together))

        def start(item: T) -> Any:
            how = run.options(num_cpus=resources(item).cpus, max_retries=0, scheduling_strategy="SPREAD")
            return how.remote(there, item, __version__)

        def ended() -> Iterator[tuple[Any, R | TaskError]]:
            most = min(len(running), 64)
            ready = ray.wait(list(running), num_returns=most, timeout=_POLL_SECONDS)[0]
            for reference in ready:
                yield reference, self._result(reference, progress)
            if not ready and (cpus := nodes.stranded()) is not None:
                for reference in [x for x, (item, _) in running.items() if resources(item).cpus > cpus]:
                    ray.cancel(reference, force=True)
                    yield (
                        reference,
                        TaskError(
                            "the cluster's node that read this file died, and no other node was free within "
                            f"{_NODE_SECONDS:g} s"
                        ),
                    )

        try:
            yield from run_with_retries(items, room, start, ended, running)
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                for reference in running:
                    ray.cancel(reference, force=True)

    def _result(self, reference: Any, progress: Progress | None) -> Any:
        errors = self._ray.exceptions
        try:
            result, counts = self._ray.get(reference)
        # Ray raised this outside of the function, because the node lacks logparse, memory or something else.
        except errors.RayTaskError as error:
            return TaskError(f"{type(error.cause).__name__}: {error.cause}")
        except errors.RayError as error:
            return LostError(f"its worker or its node died ({type(error).__name__}), {TRIES} times")
        if progress:
            for name, count in counts.items():
                progress(name, count)
        return result


class _Nodes:
    """Watches the machines (nodes) of a cluster. Notices if all machines are gone that are large enough for a task.

    Without this check the task would wait for ever.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._most = self._largest()
        self._since: float | None = None

    def stranded(self) -> int | None:
        """Return how many cores the largest remaining node has, if a larger node of the cluster has died.

        Returns None if no larger node is missing, or if it has been missing for at most ``_NODE_SECONDS``.
        """
        largest = self._largest()
        self._most = max(self._most, largest)
        if largest == self._most:
            self._since = None
            return None
        self._since = self._since or time.monotonic()
        return largest if time.monotonic() - self._since > _NODE_SECONDS else None

    def _largest(self) -> int:
        return max((int(x["Resources"].get("CPU", 0)) for x in self._ray.nodes() if x["Alive"]), default=0)


def connect(address: str | None = None) -> tuple[Any, bool]:
    """Connect to a Ray cluster. Return the module ``ray``, and True if the caller must disconnect at the end.

    A program that is already connected (a notebook) stays connected. Raises InputError if Ray is not installed or no
    cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError("--engine ray needs Ray on this machine: pip install 'logparse[ray]'") from error
    if ray.is_initialized():
        return ray, False
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        with contextlib.suppress(ConnectionError) if address is None else contextlib.nullcontext():
            ray.init(address or "auto", **quiet)
        if not ray.is_initialized():
            ray.init(include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES, **quiet)
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        token = "; if the cluster asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" if address else ""
        raise InputError(f"no Ray cluster at {address or 'this machine'}: {error}{token}") from error
    return ray, True


def _run(function: Callable[[T], R], item: T, version: str) -> tuple[R | TaskError, dict[str, int]]:
    counts = Counter[str]()
    if version != __version__:
        return TaskError(
            f"a node has logparse {__version__}, but this machine has {version}; install the same version on both"
        ), counts
    with pass_progress_to(lambda name, count: counts.update({name: count})):
        return call_or_error(function, item), counts
