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
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from logparse import __version__
from logparse.errors import InputError
from logparse.executors.executor import TRIES, LostError, Progress, Resources, TaskError, attempted, reporting

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.2
_REPORT_SECONDS = 0.5
_QUEUED = 64  # minimum queued tasks, so that no core idles
_MOST = 10_000  # maximum tasks at Ray: the driver's memory and the time of `ray.wait` grow with them
_OBJECT_STORE_BYTES = 128 << 20  # of a cluster started here: the objects are small
_STRAGGLES = 3.0  # a task that runs so many times longer than expected goes to another worker: the node may be faulty
_PATIENCE_SECONDS = 60.0  # minimum time before that
_ENOUGH = 5  # minimum finished tasks for an expectation


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
        flights = _Flights(self._ray, function, resources, progress)
        try:
            yield from flights.run(
                chain(first, rest), lambda: self._jobs or min(_MOST, max(_QUEUED, 4 * self.together))
            )
        finally:
            flights.end()


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


@dataclass
class _Flight(Generic[T]):
    """A task at Ray.  ``began`` is the time when a worker took it, ``shown`` the progress that its tries reported."""

    number: int
    item: T
    weight: float
    tries: int
    shown: dict[str, int] = field(default_factory=dict)
    began: float | None = None
    late: bool = False


class _Flights(Generic[T, R]):
    """The tasks of one call."""

    def __init__(
        self, ray: Any, function: Callable[[T], R], resources: Callable[[T], Resources], progress: Progress | None
    ) -> None:
        self._ray, self._resources, self._progress = ray, resources, progress
        self._function = ray.put(function)
        self._run = ray.remote(_run)
        self._meter = ray.remote(_Meter).options(num_cpus=0, max_restarts=-1).remote()
        self._flying: dict[Any, _Flight[T]] = {}
        self._seconds: deque[float] = deque(maxlen=1000)  # durations of finished tasks
        self._paces: deque[float] = deque(maxlen=1000)  # these durations per weight
        self._numbers = 0
        self._heard = time.monotonic()
        self._asked: Any = None  # the meter's answer that has not come yet

    def run(self, items: Iterator[T], window: Callable[[], int]) -> Iterator[tuple[T, R | TaskError]]:
        again: deque[_Flight[T]] = deque()
        more, room = True, window()
        while True:
            while again and len(self._flying) < room:
                self._start(again.popleft())
            while more and len(self._flying) < room:
                item = next(items, again)  # `again` marks the end: it is no item
                if item is again:
                    more = False
                else:
                    self._start(_Flight(0, item, self._resources(item).weight, 1))  # type: ignore[arg-type]
            if not self._flying:
                return
            ended, _ = self._ray.wait(list(self._flying), num_returns=min(len(self._flying), 64), timeout=_POLL_SECONDS)
            for reference in ended:
                flight = self._flying.pop(reference)
                result = self._result(reference, flight)
                if isinstance(result, LostError) and flight.tries < TRIES:
                    again.append(flight)
                else:
                    yield flight.item, result
            if time.monotonic() - self._heard > _REPORT_SECONDS:
                self._hear()
                if not more:
                    self._cancel_stragglers()
                elif ended:
                    room = window()  # nodes come and go

    def _start(self, flight: _Flight[T]) -> None:
        wanted = self._resources(flight.item)
        self._numbers += 1
        flight = _Flight(self._numbers, flight.item, flight.weight, flight.tries + (flight.number > 0), flight.shown)
        task = self._run.options(
            num_cpus=wanted.cpus, num_gpus=wanted.gpus, max_retries=0, scheduling_strategy="SPREAD"
        )
        reference = task.remote(self._function, flight.item, flight.number, self._meter, __version__)
        self._flying[reference] = flight

    def _result(self, reference: Any, flight: _Flight[T]) -> R | TaskError:
        errors = self._ray.exceptions
        try:
            seconds, result, counts = self._ray.get(reference)
        except errors.RayTaskError as error:  # raised outside the function: the node lacks logparse, memory …
            return TaskError(f"{type(error.cause).__name__}: {error.cause}")
        except errors.RayError as error:
            why = "took far too long" if flight.late else f"or its node died ({type(error).__name__})"
            return LostError(f"its worker {why}, the last of {flight.tries} tries")
        self._show(flight, counts)
        self._seconds.append(seconds)
        if flight.weight:
            self._paces.append(seconds / flight.weight)
        return result  # type: ignore[no-any-return]

    def _hear(self) -> None:
        """Ask the meter which tasks have begun, and what they reported so far."""
        self._heard = time.monotonic()
        if self._asked is None:
            self._asked = self._meter.take.remote()
        if not self._ray.wait([self._asked], timeout=0)[0]:
            return  # a busy node: the answer is looked for again
        answer, self._asked = self._asked, None
        try:
            news = self._ray.get(answer)
        except self._ray.exceptions.RayError:
            return  # the meter's node died, and Ray restarts it elsewhere: the tasks' results hold all counts
        for flight in self._flying.values():
            if flight.number in news:
                flight.began = flight.began or self._heard
                self._show(flight, news[flight.number])

    def _show(self, flight: _Flight[T], counts: dict[str, int]) -> None:
        """Show what a task reported since; one that is tried again reports some of it again."""
        for name, count in counts.items():
            more = count - flight.shown.get(name, 0)
            if more > 0 and self._progress:
                self._progress(name, more)
            flight.shown[name] = max(count, flight.shown.get(name, 0))

    def _cancel_stragglers(self) -> None:
        """When all tasks have started, move those that run far longer than all others to another worker."""
        if len(self._seconds) < _ENOUGH:
            return
        longest, pace = max(self._seconds), statistics.median(self._paces or [0.0])
        now = time.monotonic()
        for reference, flight in self._flying.items():
            expected = max(longest, flight.weight * pace)
            patience = max(_PATIENCE_SECONDS, _STRAGGLES * expected)
            if flight.began and not flight.late and flight.tries < TRIES and now - flight.began > patience:
                flight.late = True
                self._ray.cancel(reference, force=True)

    def end(self) -> None:
        """Cancel the tasks that still run."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            for reference in self._flying:
                self._ray.cancel(reference, force=True)
            self._ray.kill(self._meter)


class _Meter:
    """An actor that tasks report to: what each of them counted so far, by its number."""

    def __init__(self) -> None:
        self._news: dict[int, dict[str, int]] = {}

    def add(self, number: int, counts: dict[str, int]) -> None:
        self._news[number] = counts

    def take(self) -> dict[int, dict[str, int]]:
        out, self._news = self._news, {}
        return out


def _run(
    function: Callable[[T], R], item: T, number: int, meter: Any, version: str
) -> tuple[float, R | TaskError, dict[str, int]]:
    """Run one task on its node; returns seconds, result, and all of its progress."""
    if version != __version__:
        return 0.0, TaskError(f"a node has logparse {__version__}, the driver {version}: install the same there"), {}
    counts: dict[str, int] = {}
    started = sent = time.monotonic()
    meter.add.remote(number, {})

    def count_up(name: str, count: int) -> None:
        nonlocal sent
        counts[name] = counts.get(name, 0) + count
        if time.monotonic() - sent > _REPORT_SECONDS:
            sent = time.monotonic()
            meter.add.remote(number, dict(counts))

    with reporting(count_up):
        result = attempted(function, item)
    return time.monotonic() - started, result, counts
