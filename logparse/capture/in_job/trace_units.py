"""Times the units of work of the job that runs this file, and traces a few of them into ``LOGPARSE_TRACE_DIR``.

A unit is what the job repeats, found by the first of these that occurs:

=============  ========================================================================================
named          a call of ``LOGPARSE_TRACE_UNIT`` (``package.module:Class.method``)
optimizer      a step of the first optimizer that is used, from the end of one to the end of the next
request        a call of transformers' ``generate``, or of a scheduler's ``step`` (``_REQUESTS``)
module         a call of the outermost module without gradients
graph          a replay of a captured graph
time           none of these: ``_WINDOW_S`` seconds
=============  ========================================================================================

What happens within a unit is no unit of its own.  Units are told apart by their *kind*: the sizes of the tensors that
the outermost module got first, and how often it was called.  Every unit is counted, and timed until the first window,
on the device's clock where there is one (events around it, without waiting for the device).

Tracing begins once the times have settled: where the marginal standard error rule (White, "An effective truncation
heuristic for bias reduction in simulation output", Simulation 69, 1997) cuts off at most the first half of them, each
over the median of its kind, at the latest after ``_MOST_UNITS`` units or ``_MOST_S`` seconds.  Several short windows
are traced, further and further apart, until every kind of at least ``_RARE`` of the units was seen.  The ranks of a job
begin together: rank 0 announces the unit in the store of ``torch.distributed``, so early that no host is beyond it.

Where windows are traced, so is the capture of each graph (``capture_traces/trace_PID_gN.json.gz``), as far as no other
profiler is on and within ``_CAPTURES`` and ``_CAPTURES_S``: a replay launches kernels without operators, and the reader
joins them to those of the capture.  The header of a window's trace tells which graphs it replays, in order: an
annotation around a replay would take its kernels from the profiler's step.

Where nothing is traced (``LOGPARSE_TRACE_UNITS`` 0), the host is timed by itself, too: before some units the device
becomes idle, and what the host takes until the unit's end is its own time, however long the device goes on.  With
``LOGPARSE_TURNS`` it takes turns with another process instead (``logparse_turns.py``).

Each window is a trace (``trace_PID_WINDOW.json.gz``); ``units_PID.json`` holds kinds, counts and untraced times.  It is
written again every few seconds, since workers are often killed.  What fails here is reported and never stops the job.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import itertools
import json
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from sitecustomize import Finder  # type: ignore[import-not-found]  # the one beside this file, on the job's path
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

_FOLDER = os.environ["LOGPARSE_TRACE_DIR"]
_TRACED = int(os.environ.get("LOGPARSE_TRACE_UNITS", "0"))
"""Units that one window traces; 0: units are only timed."""
_WINDOW_S = float(os.environ.get("LOGPARSE_TRACE_SECONDS", "0")) or 2.0
_BY_TIME = "LOGPARSE_TRACE_SECONDS" in os.environ
_NAMED = os.environ.get("LOGPARSE_TRACE_UNIT", "")

_REST = 3
"""Values from which a standard error is estimated at least."""
_LEAST_UNITS, _ENOUGH_UNITS, _LEAST_S = 6, 50, 2.0
"""Before tracing at least: so many units, and the larger number or seconds since the first one."""
_MOST_UNITS, _MOST_S = 200, 30.0
"""... and at most, where their times do not settle: so many units, or seconds."""
_WINDOWS, _FEW_WINDOWS, _GAPS = 8, 3, (5, 11, 23, 47, 97, 193, 389, 0)
"""Windows at most; those of a job whose kinds are all seen; units between two, primes: a job has periods of its own."""
_AHEAD, _AHEAD_S, _MOST_AHEAD = 3, 0.5, 50
"""Ranks begin to trace ``_AHEAD`` units after the announcement, and as many more as take ``_AHEAD_S`` seconds, at most
``_MOST_AHEAD``.
"""
_RARE = 0.05
_ALIKE = 5
"""Units whose outermost modules were all known, after which no other module is watched."""
_KINDS, _TIMES, _PENDING = 64, 2000, 256
"""Limits: kinds with their own count, times kept of each, and units whose device events are still to be read."""
_HOST_EVERY = 5
"""Every so many units the host is timed by itself."""
_WRITE_S, _QUIET_S = 5.0, 4.0
_CAPTURES, _CAPTURES_S, _REPLAYS = 16, 8.0, 20_000
"""Captures of graphs that are traced at most, seconds after which no other one is, and replays that are noted."""
_TIME = "by time"
_ORDER = ("named", "optimizer", "request", "module", "graph")
_REQUESTS = (
    "transformers.generation.utils:GenerationMixin.generate",
    "vllm.v1.engine.core:EngineCore.step",
    "vllm.v1.worker.gpu_worker:Worker.execute_model",
    "sglang.srt.managers.scheduler:Scheduler.run_batch",
)
"""A serving stack's process counts what it has: vLLM's engine core may run in another process than its workers."""


def settled(times: list[float]) -> bool:
    """Whether at most the first half of the times is warm-up, by the marginal standard error rule (MSER).

    The rule cuts off the d first of n values such that the squared standard error of the mean of the rest,
    sum((x - mean)^2) / (n - d)^2, is least.
    """
    count = len(times)
    if count < 2 * _REST:
        return False
    best, cut, total, squares = float("inf"), 0, 0.0, 0.0
    for d in range(count - 1, -1, -1):  # from the end: the rest grows by one value at a time
        total, squares = total + times[d], squares + times[d] ** 2
        rest = count - d
        error = max(squares - total * total / rest, 0.0) / rest**2
        if rest >= _REST and error <= best:
            best, cut = error, d
    return cut <= count // 2


class _Clock:
    """The time between two moments of a unit, on the device where it computes, else on the host."""

    @staticmethod
    def now() -> Any:
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event
        return time.perf_counter()

    @staticmethod
    def passed(event: Any) -> bool:
        return isinstance(event, float) or bool(event.query())

    @staticmethod
    def us(start: Any, end: Any) -> float | None:
        if isinstance(start, float) or isinstance(end, float):
            return 1e6 * (end - start) if type(start) is type(end) else None
        return 1e3 * float(start.elapsed_time(end))


class _Kind:
    """Units of one kind: how many ran, how many were traced, the times (us) of those without a profiler, and what the
    host took by itself.
    """

    def __init__(self) -> None:
        self.count = self.traced = 0
        self.us: collections.deque[float] = collections.deque(maxlen=_TIMES)
        self.host_us: collections.deque[float] = collections.deque(maxlen=_TIMES)


class _Series:
    """The units of one sort, in the order in which they ended."""

    def __init__(self) -> None:
        self.kinds: dict[str, _Kind] = {}
        self.times: list[tuple[_Kind, float]] = []
        self.count = 0
        self.since_s = time.monotonic()
        self._pending: collections.deque[tuple[_Kind, Any, Any]] = collections.deque()

    def kind(self, name: str) -> _Kind:
        if name not in self.kinds and len(self.kinds) >= _KINDS:
            name = "other"
        return self.kinds.setdefault(name, _Kind())

    def add(self, name: str, start: Any, end: Any, timed: bool) -> None:
        kind = self.kind(name)
        kind.count += 1
        self.count += 1
        if timed and start is not None:
            self._pending.append((kind, start, end))
        self.read()

    def read(self, wait: bool = False) -> None:
        while self._pending and (wait or len(self._pending) > _PENDING or _Clock.passed(self._pending[0][2])):
            kind, start, end = self._pending.popleft()
            if not _Clock.passed(end):
                end.synchronize()
            us = _Clock.us(start, end)
            if us is not None:
                kind.us.append(us)
                if len(self.times) < _TIMES:
                    self.times.append((kind, us))

    @property
    def ready(self) -> str | None:
        """``settled``, or why tracing begins nevertheless; None: not yet."""
        seconds = time.monotonic() - self.since_s
        if self.count < _LEAST_UNITS or (self.count < _ENOUGH_UNITS and seconds < _LEAST_S):
            return None
        usual = {id(kind): statistics.median(kind.us) or 1.0 for kind in self.kinds.values() if kind.us}
        if settled([us / usual[id(kind)] for kind, us in self.times]):
            return "settled"
        if self.count >= _MOST_UNITS or seconds > _MOST_S:
            return f"not settled after {self.count} units, {round(seconds, 1):g} s"
        return None

    @property
    def all_seen(self) -> bool:
        return all(kind.traced for kind in self.kinds.values() if kind.count >= _RARE * self.count)


class _Job:
    """Finds the units, and turns the profiler on and off."""

    def __init__(self) -> None:
        self.series: dict[str, _Series] = {}
        self.ready = ""
        self.depth = 0
        self.optimizer = 0
        self.open: list[str] = []
        self.touched = False
        self.traced_sort = ""
        self.outermost: set[int] = set()
        self.every_module: list[Any] = []
        self.alike = 0
        self.graphs: dict[int, str] = {}
        self.replays: list[str] = []
        self.numbers = itertools.count(1)
        self.capture: Any = None
        self.captures, self.captures_s, self.capture_s = 0, 0.0, 0.0
        self.shapes = ""
        self.calls = 0
        self.started: Any = None
        self.last_end: Any = None
        self.host_from: float | None = None
        self.profiler: Any = None
        self.window_kinds: dict[int, str] = {}
        self.window_s = 0.0
        self.windows = self.begin_at = self.first_unit = 0
        self.written_s = time.monotonic()
        self.disturbed = False
        self.thread = threading.get_ident()
        self.turns = _turns()

    # ------------------------------------------------------------------------------------------------ what ends a unit

    def optimized(self, optimizer: Any, *rest: Any) -> None:
        self.optimizer = self.optimizer or id(optimizer)
        if id(optimizer) == self.optimizer and not self.open:
            end = _Clock.now()
            self.ended("optimizer", self.last_end, end)
            self.last_end = end

    def entered(self, module: Any, inputs: Any) -> None:
        if threading.get_ident() != self.thread or _capturing():
            return
        self.touched = True
        if self.depth == 0:
            self.calls += 1
            if id(module) not in self.outermost:
                self._found(module)
            if self.calls == 1 and not self.open:
                self.shapes = _sizes(inputs)
            if not self.open:
                self.started = _Clock.now()
        self.depth += 1

    def _found(self, module: Any) -> None:
        """Give an outermost module hooks of its own: only these get named arguments, and those of every module would
        slow each of a job's hundreds of modules by microseconds.
        """
        self.outermost.add(id(module))
        self.alike = 0
        module.register_forward_pre_hook(self.entered_outermost, with_kwargs=True)
        module.register_forward_hook(self.left_outermost, always_call=True)

    def entered_outermost(self, module: Any, inputs: Any, named: Any) -> None:
        if not self.every_module:
            self.entered(module, inputs)
        if self.depth == 1 and self.calls == 1 and not self.open and not self.shapes:
            self.shapes = _sizes(tuple(named.values()))

    def left_outermost(self, module: Any, *rest: Any) -> None:
        if not self.every_module:
            self.left(module)

    def left(self, module: Any, *rest: Any) -> None:
        if threading.get_ident() != self.thread or self.depth == 0:
            return
        self.depth -= 1
        if self.depth == 0 and not self.open and not torch.is_grad_enabled() and not _capturing():
            self.ended("module", self.started, _Clock.now())

    def wrapped(self, sort: str, function: Any) -> Any:
        """A callable whose calls are units."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.open or threading.get_ident() != self.thread:
                return function(*args, **kwargs)
            self.open.append(sort)
            self.calls, self.shapes, start = 0, _sizes((*args, *kwargs.values())), _Clock.now()
            try:
                return function(*args, **kwargs)
            finally:
                self.open.pop()
                self.ended(sort, start, _Clock.now())

        call.__wrapped__ = function  # type: ignore[attr-defined]
        call.__name__, call.__doc__ = getattr(function, "__name__", "call"), function.__doc__
        return call

    def replayed(self, function: Any) -> Any:
        def replay(graph: Any) -> Any:
            number = self.graphs.get(id(graph)) or self.numbered(graph)
            if self.profiler is not None and self.profiler.step_num >= 1 and len(self.replays) <= _REPLAYS:
                self.replays.append(f"{os.getpid()}.{number}")
            if self.open or self.depth or threading.get_ident() != self.thread:
                return function(graph)
            start = _Clock.now()
            out = function(graph)
            self.shapes = f"graph {number}"
            self.ended("graph", start, _Clock.now())
            return out

        return replay

    # ------------------------------------------------------------------------------------------- captures of graphs

    def numbered(self, graph: Any) -> str:
        self.graphs[id(graph)] = number = str(next(self.numbers))
        return number

    def capture_begins(self, function: Any) -> Any:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self.numbered(graph)  # another graph may have had its place in memory
            self.start_capture()
            try:
                return function(graph, *args, **kwargs)
            except BaseException:
                self.end_capture(None)
                raise

        return capture_begin

    def capture_ends(self, function: Any) -> Any:
        def capture_end(graph: Any) -> Any:
            try:
                out = function(graph)
            except BaseException:
                self.end_capture(None)
                raise
            self.end_capture(graph)
            return out

        return capture_end

    def start_capture(self) -> None:
        busy = self.profiler is not None or self.capture is not None or torch._C._autograd._profiler_enabled()
        if busy or not _TRACED or self.captures >= _CAPTURES or self.captures_s >= _CAPTURES_S:
            return
        self.capture_s = time.monotonic()
        try:
            profiler = torch.profiler.profile(activities=_activities(), record_shapes=True)
            profiler.start()
            self.capture = profiler
        except Exception as error:
            _report(f"tracing a graph's capture failed: {type(error).__name__}: {error}")
            self.captures = _CAPTURES

    def end_capture(self, graph: Any) -> None:
        """Writes the trace of a capture; of one that failed (None) there is none."""
        profiler, self.capture = self.capture, None
        if profiler is None:
            return
        try:
            number = self.graphs.get(id(graph), "")
            profiler.add_metadata_json("logparse_graph", json.dumps(f"{os.getpid()}.{number}"))
            profiler.stop()
            if graph is not None:
                folder = os.path.join(_FOLDER, "capture_traces")
                os.makedirs(folder, exist_ok=True)
                profiler.export_chrome_trace(os.path.join(folder, f"trace_{os.getpid()}_g{number}.json.gz"))
        except Exception as error:
            _report(f"tracing a graph's capture failed: {type(error).__name__}: {error}")
        self.captures += 1
        self.captures_s += time.monotonic() - self.capture_s
        self.disturbed = True

    # ---------------------------------------------------------------------------------------------- counting, tracing

    def ended(self, sort: str, start: Any, end: Any) -> None:
        at = time.perf_counter()
        self.touched = True
        self.alike += 1
        if self.alike == _ALIKE:  # no other module was called from outside for so many units: watch these alone
            for hook in self.every_module:
                hook.remove()
            self.every_module = []
        series = self.series.setdefault(sort, _Series())
        name = self.shapes + (f" x{self.calls}" if self.calls > 1 else "") or "?"
        self.calls, self.shapes = 0, ""
        profiled = self.profiler is not None
        try:
            if self.ready == _TIME and not _BY_TIME:
                self.drop()  # the job had only not begun
            series.add(name, start, end, timed=not (profiled or self.windows or self.disturbed))
            self.disturbed = False
            if self.sort != sort or self.ready == _TIME:
                return
            if self.turns is not None:
                self._take_turn(series)
            elif not _TRACED:
                self._time_host(series, name, at)
            if self.traced_sort not in ("", sort):
                self.drop()
            self._go_on(series, name)
        except Exception as error:  # the job is worth more than its trace
            _report(f"tracing failed: {type(error).__name__}: {error}")
            self.windows, self.profiler = _WINDOWS, None
            return
        if time.monotonic() - self.written_s > _WRITE_S and self.profiler is None:
            self.write()

    def _time_host(self, series: _Series, name: str, at: float) -> None:
        """Note what the host took since the device was idle, and let it become idle again before some units."""
        begun, self.host_from = self.host_from, None
        if begun is not None:
            series.kind(name).host_us.append(1e6 * (at - begun))
        if series.count % _HOST_EVERY == 0 and torch.cuda.is_initialized() and not _capturing():
            torch.cuda.synchronize()
            self.disturbed, self.host_from = True, time.perf_counter()

    def _take_turn(self, series: _Series) -> None:
        """At the end of a turn report its units' times, and wait; the next unit begins with an idle device."""
        if not self.turns.over() or _capturing():
            return
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        series.read(wait=True)
        times = {name: list(kind.us) for name, kind in series.kinds.items() if kind.us}
        for kind in series.kinds.values():
            kind.us.clear()
        self.turns.wait(times)
        self.disturbed, self.last_end = True, None

    @property
    def sort(self) -> str | None:
        """The first sort of which the job made several units (a few calls may warm up a graph), else the first."""
        there = [sort for sort in _ORDER if sort in self.series]
        return next((x for x in there if self.series[x].count >= _LEAST_UNITS), there[0] if there else None)

    def stop_quietly(self) -> None:
        """End a window that is not wanted; one that has not really begun refuses to end."""
        profiler, self.profiler = self.profiler, None
        if profiler is not None:
            profiler.on_trace_ready = None
            with contextlib.suppress(Exception):
                profiler.stop()

    def drop(self) -> None:
        """Forget windows of what turned out not to be the job's unit."""
        self.stop_quietly()
        for window in range(1, self.windows + 1):
            with contextlib.suppress(OSError):
                os.remove(_trace_path(window))
        self.ready = self.traced_sort = ""
        self.profiler, self.windows, self.begin_at = None, 0, 0

    def _go_on(self, series: _Series, name: str) -> None:
        if self.capture is not None:
            return
        if self.profiler is not None:
            number = self.profiler.step_num
            if number >= 1:  # the first is the profiler's own warm-up
                series.kind(name).traced += 1
                self.window_kinds[number] = name
            if time.monotonic() - self.window_s > 4 * _WINDOW_S and self.window_kinds:
                self.finish()  # a few seconds hold enough; the profiler's own schedule would go on
            else:
                self.describe()
                self.profiler.step()
        elif _TRACED and not _BY_TIME and self.windows < _WINDOWS and self._is_time(series):
            self.start()

    def _is_time(self, series: _Series) -> bool:
        if self.windows >= _FEW_WINDOWS and series.all_seen:
            self.windows = _WINDOWS
            return False
        if self.begin_at:
            return series.count >= self.begin_at
        store, rank = _distributed()
        if store is None:
            self.ready = series.ready or ""
            return bool(self.ready)
        if rank == 0:
            self.ready = series.ready or ""
            if self.ready:
                usual = statistics.median(us for _, us in series.times) if series.times else math.inf
                self.begin_at = series.count + _AHEAD + min(int(1e6 * _AHEAD_S / max(usual, 1.0)), _MOST_AHEAD)
                store.set("logparse_trace_at", f"{self.begin_at} {self.ready}")
        elif series.count >= _LEAST_UNITS and store.check(["logparse_trace_at"]):
            at, _, self.ready = store.get("logparse_trace_at").decode().partition(" ")
            self.begin_at = int(at)
            if series.count > self.begin_at:  # windows of ranks that hold other units cannot be compared
                self.windows, self.begin_at = 1, self.begin_at + 1 + _TRACED + 1 + _GAPS[0]
        return bool(self.begin_at) and series.count >= self.begin_at

    def start(self, active: int = 0) -> Any:
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=active or _TRACED, repeat=1)
        self.window_kinds, self.replays, self.window_s = {}, [], time.monotonic()
        self.first_unit = sum(series.count for series in self.series.values())
        self.windows += 1
        self.traced_sort = "" if self.ready == _TIME else self.sort or ""
        self.profiler = torch.profiler.profile(
            activities=_activities(),
            record_shapes=True,
            schedule=schedule,
            on_trace_ready=self.exported,
            experimental_config=_with_waits(),
        )
        self.profiler.start()
        return self.profiler

    def finish(self) -> None:
        """Ends a window before its schedule does."""
        self.describe()
        self.profiler.stop()

    def describe(self) -> None:
        """What the window holds, for its trace's header; only while it records."""
        self.profiler.add_metadata_json("logparse_unit_kinds", json.dumps(self.window_kinds))
        self.profiler.add_metadata_json("logparse_first_unit", str(self.first_unit))
        self.profiler.add_metadata_json("logparse_graphs", json.dumps(self.replays))

    def exported(self, profiler: Any) -> None:
        profiler.export_chrome_trace(_trace_path(self.windows))
        series = self.series.get(self.sort or "")
        if series is not None:
            self.begin_at = series.count + 1 + _GAPS[self.windows - 1]
        self.profiler, self.last_end = None, None
        self.write()

    # -------------------------------------------------------------------------------------------------- without units

    def by_time(self) -> None:
        """In a thread: where the job has no units, windows of time are traced by its main thread."""
        begun: float | None = None
        windows = 0
        while windows < _FEW_WINDOWS:
            time.sleep(0.1)
            if self.touched and not _BY_TIME:
                return
            if not torch.cuda.is_initialized() and not (_BY_TIME and not torch.cuda.is_available()):
                continue  # a launcher imports torch, too
            begun = begun or time.monotonic()
            if time.monotonic() - begun < _QUIET_S * 4**windows or _importing():
                continue
            started = threading.Event()
            _in_main_thread(functools.partial(self._start_by_time, started))
            started.wait()  # the profiler's first start on a GPU takes seconds, which are no part of the window
            time.sleep(_WINDOW_S)
            _in_main_thread(self._finish_by_time)
            windows, begun = windows + 1, time.monotonic()
            if self.touched and not _BY_TIME:
                return

    def _start_by_time(self, started: threading.Event) -> None:
        try:
            free = self.profiler is None and self.capture is None and not _capturing() and not _importing()
            if free and (_BY_TIME or not self.touched):
                self.ready = _TIME
                self.start(active=1 << 30).step()  # past the warm-up, which no unit ends
        finally:
            started.set()

    def _finish_by_time(self) -> None:
        if self.profiler is not None and self.ready == _TIME:
            self.finish()

    # --------------------------------------------------------------------------------------------------------- results

    def write(self, at_end: bool = False) -> None:
        self.written_s = time.monotonic()
        sort = self.sort or "time"
        series = self.series.get(sort, _Series())
        series.read(wait=at_end and not torch.cuda.is_initialized())
        kinds = {
            name: {
                "count": kind.count,
                "traced": kind.traced,
                "us": [round(us, 3) for us in kind.us],
                **({"host_us": [round(us, 3) for us in kind.host_us]} if kind.host_us else {}),
            }
            for name, kind in series.kinds.items()
        }
        found = {"logparse_units": sort, "tracing": self.ready, "windows": self.windows, "kinds": kinds}
        found |= {"alone": not _TRACED, "settings": list(_settings())}
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            found["rank"], found["ranks"] = torch.distributed.get_rank(), torch.distributed.get_world_size()
        elif os.environ.get("RANK", "").isdigit():
            found["rank"] = int(os.environ["RANK"])
        path = os.path.join(_FOLDER, f"units_{os.getpid()}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(path + ".part", path)

    def at_end(self) -> None:
        self.end_capture(None)
        if self.profiler is not None:  # one that runs when the interpreter ends crashes the job
            self.stop_quietly()
            self.windows -= 1
        series = self.series.get(self.sort or "")
        if series is None and not self.windows:
            return
        self.write(at_end=True)
        if _TRACED and not self.windows and series is not None:
            needed = f"{_LEAST_UNITS} in {_LEAST_S} s, or {_ENOUGH_UNITS}, and {1 + _TRACED} more"
            _report(f"no trace: the job made {series.count} units of work ({self.sort}); a trace needs {needed}")

    def forked(self) -> None:
        """A forked worker counts anew."""
        self.__init__()  # type: ignore[misc]


def _turns() -> Any:
    if _TRACED or "LOGPARSE_TURNS" not in os.environ:
        return None
    from logparse_turns import Turns  # type: ignore[import-not-found]  # the one beside this file, on the job's path

    return Turns()


def _with_waits() -> Any:
    """Settings by which CUDA's trace states which event each stream waited for (PyTorch 2.1 and later)."""
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError):
        return None


def _trace_path(window: int) -> str:
    return os.path.join(_FOLDER, f"trace_{os.getpid()}_{window}.json.gz")


def _activities() -> list[Any]:
    kinds = torch.profiler.ProfilerActivity
    return [kinds.CPU, kinds.CUDA] if torch.cuda.is_available() else [kinds.CPU]


def _capturing() -> bool:
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _settings() -> Iterator[str]:
    """The settings of PyTorch that the job uses, named as in ``analyzers/actions/job.py``."""
    with contextlib.suppress(AttributeError, RuntimeError):
        if torch.backends.cudnn.enabled and torch.backends.cudnn.benchmark:
            yield "cudnn_benchmark"
        matmul = torch.backends.cuda.matmul  # once a job has used the newer interface, the older one raises an error
        newer = getattr(matmul, "fp32_precision", None)
        if newer == "tf32" or (newer is None and matmul.allow_tf32):
            yield "tf32"
        if torch.cuda.is_initialized():
            yield "blas=" + str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2].lower()


def _importing() -> bool:
    """Whether a module of torch is being imported: the profiler, which imports others, would meet half of it."""
    own = [module for name, module in list(sys.modules.items()) if name.startswith("torch.")]
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in own)


def _sizes(inputs: Any) -> str:
    """Types and sizes of the first tensors of a module's arguments."""
    if not isinstance(inputs, (tuple, list)):
        return ""
    found = [x for x in inputs if isinstance(x, torch.Tensor)][:2]
    return " ".join(f"{str(x.dtype)[6:]}{list(x.shape)}" for x in found)


def _distributed() -> tuple[Any, int]:
    """The store of the job's ranks and this one's number; None where it has none."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return None, 0
    try:
        return distributed.distributed_c10d._get_default_store(), distributed.get_rank()
    except Exception:
        return None, 0


def _in_main_thread(function: Any) -> None:
    """Have the main thread call it at its next bytecode; the profiler records the thread that starts it."""
    import ctypes

    def call(_: Any) -> int:
        try:
            function()
        except Exception as error:
            _report(f"tracing failed: {type(error).__name__}: {error}")
        return 0

    made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
    _kept.append(made)
    ctypes.pythonapi.Py_AddPendingCall(made, None)


_kept: list[Any] = []


def _report(text: str) -> None:
    print("logparse: " + text, file=sys.stderr)


def _wrap(module: Any, sort: str, name: str) -> None:
    """Wrap ``Class.method`` or ``function`` of a module, where it is there."""
    *path, last = name.split(".")
    holder = module
    for part in path:
        holder = getattr(holder, part, None)
    function = getattr(holder, last, None)
    if callable(function):
        setattr(holder, last, _job.wrapped(sort, function))
    elif sort == "named":
        _report(f"--unit {_NAMED}: there is no {name} in {module.__name__}")


def _watch_imports() -> None:
    names: dict[str, list[tuple[str, str]]] = {}
    for sort, text in (("named", _NAMED), *(("request", text) for text in _REQUESTS)):
        module, _, name = text.partition(":")
        names.setdefault(module, []).append((sort, name))

    def wrap(module: Any) -> None:
        for sort, name in names[module.__name__]:
            _wrap(module, sort, name)

    for loaded in filter(None, map(sys.modules.get, names)):
        wrap(loaded)
    sys.meta_path.insert(0, Finder({name: wrap for name in names if name and name not in sys.modules}))


_job = _Job()
register_optimizer_step_post_hook(_job.optimized)
_job.every_module = [
    register_module_forward_pre_hook(_job.entered),
    register_module_forward_hook(_job.left, always_call=True),
]
if hasattr(torch.cuda, "CUDAGraph"):
    torch.cuda.CUDAGraph.replay = _job.replayed(torch.cuda.CUDAGraph.replay)  # type: ignore[method-assign]
    torch.cuda.CUDAGraph.capture_begin = _job.capture_begins(torch.cuda.CUDAGraph.capture_begin)  # type: ignore[method-assign]
    torch.cuda.CUDAGraph.capture_end = _job.capture_ends(torch.cuda.CUDAGraph.capture_end)  # type: ignore[method-assign]
_watch_imports()
os.register_at_fork(after_in_child=_job.forked)
atexit.register(_job.at_end)
if _TRACED:
    threading.Thread(target=_job.by_time, name="logparse", daemon=True).start()
