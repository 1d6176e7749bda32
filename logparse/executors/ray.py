"""Tasks on a Ray cluster: https://docs.ray.io.

    logparse ingest … --engine ray                  the cluster of $RAY_ADDRESS or of this machine, else a new one
    logparse ingest … --engine ray://head:10001     a remote cluster, through Ray's client port

Every node needs logparse in the driver's version (checked), and the same names for files and store: URLs, or a file
system that all nodes share.  Credentials are the nodes' own.  A cluster that is started here uses all cores of this
machine and ends with the command; Ray opens ports on all interfaces of the machine, behind a token.  For a remote
cluster with a token, set ``RAY_AUTH_MODE=token`` and ``RAY_AUTH_TOKEN`` (or have ``~/.ray/auth_token``).
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from logparse import __version__
from logparse.errors import InputError
from logparse.executors.executor import TRIES, LostError, Progress, Resources, TaskError, attempted, reporting

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.2
_QUEUED = 64  # minimum queued tasks, so that no core idles
_MOST = 10_000  # maximum tasks at Ray: the driver's memory and the time of `ray.wait` grow with them
_OBJECT_STORE_BYTES = 128 << 20  # of a cluster started here: the objects are small


class RayExecutor:
    """Runs tasks on at most ``jobs`` cores of a cluster (0: all cores, those added later included)."""

    def __init__(self, address: str | None = None, jobs: int = 0) -> None:
        self._ray, self._ours = connect(address)
        self._jobs = jobs

    def close(self) -> None:
        """Disconnect from the cluster, and end it if it was started here."""
        if self._ours:
            self._ray.shutdown()

    @property
    def cpus(self) -> int:
        """Cores of the largest node."""
        largest = max((node["Resources"].get("CPU", 1) for node in self._ray.nodes() if node["Alive"]), default=1)
        return max(1, min(int(largest), self._jobs or int(largest)))

    @property
    def together(self) -> int:
        """Cores of all nodes, as far as ``jobs`` allows."""
        cores = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return min(cores, self._jobs) if self._jobs else cores

    def map_unordered(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        resources: Callable[[T], Resources],
        progress: Progress | None = None,
    ) -> Iterator[tuple[T, R | TaskError]]:
        """See ``Executor``."""
        rest = iter(items)
        first = list(islice(rest, 1))
        if not first:
            return  # before an actor is started for it, which takes half a second
        tasks = _Tasks(self._ray, function, resources, progress)
        try:
            yield from tasks.run(chain(first, rest), lambda: self._jobs or min(_MOST, max(_QUEUED, 4 * self.together)))
        finally:
            tasks.end()


def connect(address: str | None = None) -> tuple[Any, bool]:
    """The module ``ray``, connected, and whether ``close`` must disconnect it.  Raises InputError.

    A program that is connected already (a notebook) stays connected.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError("the engine ray needs Ray on this machine: pip install 'logparse[ray]'") from error
    if ray.is_initialized():
        return ray, False
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        with contextlib.suppress(ConnectionError) if address is None else contextlib.nullcontext():
            ray.init(address or "auto", **quiet)
        if not ray.is_initialized():
            ray.init(include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES, **quiet)
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        token = "; does it ask for a token? set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" if address else ""
        raise InputError(f"no Ray cluster at {address or 'this machine'}: {error}{token}") from error
    return ray, True


@dataclass(frozen=True)
class _Try(Generic[T]):
    """A task at Ray, for the ``number``-th time."""

    item: T
    number: int = 1


class _Tasks(Generic[T, R]):
    """The tasks of one call."""

    def __init__(
        self, ray: Any, function: Callable[[T], R], resources: Callable[[T], Resources], progress: Progress | None
    ) -> None:
        self._ray, self._resources, self._progress = ray, resources, progress
        self._function = ray.put(function)
        self._run = ray.remote(_run)
        self._running: dict[Any, _Try[T]] = {}

    def run(self, items: Iterator[T], window: Callable[[], int]) -> Iterator[tuple[T, R | TaskError]]:
        """Results as they end, with at most ``window`` tasks at Ray."""
        again: deque[_Try[T]] = deque()
        waiting = (_Try(item) for item in items)
        while True:
            room = window()  # nodes come and go
            while len(self._running) < room:
                task = again.popleft() if again else next(waiting, None)
                if task is None:
                    break
                self._start(task)
            if not self._running:
                return
            most = min(len(self._running), 64)
            ended, _ = self._ray.wait(list(self._running), num_returns=most, timeout=_POLL_SECONDS)
            for reference in ended:
                task = self._running.pop(reference)
                result = self._result(reference, task)
                if isinstance(result, LostError) and task.number < TRIES:
                    again.append(_Try(task.item, task.number + 1))
                else:
                    yield task.item, result

    def _start(self, task: _Try[T]) -> None:
        wanted = self._resources(task.item)
        run = self._run.options(num_cpus=wanted.cpus, max_retries=0, scheduling_strategy="SPREAD")
        self._running[run.remote(self._function, task.item, __version__)] = task

    def _result(self, reference: Any, task: _Try[T]) -> R | TaskError:
        errors = self._ray.exceptions
        try:
            result, counts = self._ray.get(reference)
        except errors.RayTaskError as error:  # raised outside the function: the node lacks logparse, memory …
            return TaskError(f"{type(error.cause).__name__}: {error.cause}")
        except errors.RayError as error:
            return LostError(f"its worker or its node died ({type(error).__name__}), the last of {task.number} tries")
        for name, count in counts.items():
            if self._progress:
                self._progress(name, count)
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        """Cancel the tasks that still run."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            for reference in self._running:
                self._ray.cancel(reference, force=True)


def _run(function: Callable[[T], R], item: T, version: str) -> tuple[R | TaskError, dict[str, int]]:
    """Run one task on its node; returns its result and its progress."""
    counts: dict[str, int] = {}

    def count_up(name: str, count: int) -> None:
        counts[name] = counts.get(name, 0) + count

    if version != __version__:
        return TaskError(f"a node has logparse {__version__}, the driver {version}: install the same there"), counts
    with reporting(count_up):
        return attempted(function, item), counts
