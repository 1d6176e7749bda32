"""Start and stop the profiler between two steps of the job, and keep a list of the traces.

A window is a period in which the profiler runs. A unit is a step of the job, for example a training step or a request.

A window begins and ends in one thread. If several threads do steps, each window holds one call, and begins and ends
with that call, because a thread that serves one request may never make another call.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

import torch

from . import ordinary
from .graphs import Graphs
from .profiler import Profile, is_busy
from .record import Record
from .units import PERIODS, Series, unit_of
from .unpatched import Python
from .windows import BY_TIME, MOST, Ranks, Window, Windows

MAIN_THREAD = threading.main_thread().ident
_LONGEST_S = 8.0
"""Seconds after which the profiler is stopped even if fewer steps than planned were traced."""


class OpenWindow:
    """One run of the profiler, from its start until its trace is written.

    * ``kinds`` holds the names of the traced steps by their number in the trace.
    * ``beside`` is the number of steps that other threads did meanwhile.
    """

    def __init__(self, plan: Window, sort: str, first_unit: int, one_call: bool) -> None:
        self.plan, self.sort, self.one_call = plan, sort, one_call
        self._first_unit = first_unit
        self._thread = threading.get_ident()
        self._began_s = Python.monotonic()
        self._seen = 0
        self.kinds: Dict[int, str] = {}
        self.beside = 0
        self.profile = Profile()

    @property
    def is_mine(self) -> bool:
        """True if this thread started the profiler. Only this thread can then stop it."""
        return self._thread == threading.get_ident()

    def begin(self) -> None:
        if self.plan.warm_up:
            self.profile.prepare()
        else:
            self.profile.start()
            self.profile.step(1)

    def unit_ended(self, name: str) -> bool:
        """Note that a step with this name has ended. Return True if the profiler has recorded the step.

        The first ``warm_up`` steps are not recorded.
        """
        self._seen += 1
        if self._seen < self.plan.warm_up:
            return False
        if self._seen == self.plan.warm_up:
            self.profile.start()
            self.profile.step(1)
            return False
        self.kinds[self._seen - self.plan.warm_up] = name
        if not self.whole:
            self.profile.step(self._seen - self.plan.warm_up + 1)
        return True

    @property
    def whole(self) -> bool:
        return len(self.kinds) >= self.plan.units or bool(
            self.kinds and Python.monotonic() - self._began_s > _LONGEST_S
        )

    def end(self, graphs: Graphs, path: Optional[str]) -> None:
        """Stop the profiler and write its trace to ``path``. Without a path (None), throw the trace away.

        Raises OSError if the trace cannot be written.
        """
        header: Dict[str, Any] = {
            "logparse_unit_kinds": {str(number): name for number, name in self.kinds.items()},
            "logparse_first_unit": self._first_unit,
            "logparse_graphs": graphs.replays,
        }
        if self.beside:
            header["logparse_units_beside"] = self.beside
        self.profile.stop(header, path)


class _Earlier(NamedTuple):
    """Traces of steps that turned out not to be the job's real steps. They are kept until a real step has a trace.

    ``sort`` says how those steps were recognised. ``numbers`` are the numbers of the traces, and ``state`` tells
    whether the times were steady. ``provisional`` is the number of the provisional trace, if there is one.
    """

    sort: str
    numbers: List[int]
    state: str
    provisional: Optional[int]


class Tracing:
    """Starts and stops the profiler in this process, several times for a few steps of the job each.

    * ``written`` holds the numbers of the traces that were written, and that are not deleted.
    * ``series`` holds the steps that were counted, by how they were recognised (``optimizer``, ``request`` …).
    * ``traced`` is the number of steps in each trace (0: nothing is traced).
    * ``seconds`` is the length of a trace, if the user wants a fixed time.
    * ``ended`` is a function that is called after each trace, because the profiler has disturbed the times of the
      steps.
    """

    def __init__(
        self,
        record: Record,
        series: Mapping[str, Series],
        traced: int,
        seconds: float,
        expected: int,
        ended: Callable[[], None],
    ) -> None:
        self._record, self._series, self._ended = record, series, ended
        self._traced, self._seconds = traced, seconds
        self._lock = threading.Lock()
        self._sort = ""
        self._windows = Windows(0 if seconds else traced, expected)
        self._earlier: Optional[_Earlier] = None
        self._by_time = 0
        self._provisional: Optional[int] = None
        self.window: Optional[OpenWindow] = None
        self.graphs = Graphs(record.process, bool(traced))
        self.written: List[int] = []
        self.several_threads = False

    @property
    def leaves_times_alone(self) -> bool:
        """True if the steps can be timed now, because the profiler does not slow the job down.

        It is False while the profiler runs, and after the first regular trace of the present plan, because the job
        may stay slower from then on. After a new plan (``_begin_anew``) steps are timed again, because else the job's
        real steps would have no times.
        """
        return self.window is None and not (self._by_time or (self._traced and self._windows.done))

    @property
    def is_over(self) -> bool:
        """True if the profiler is off and will not be started again."""
        return self.window is None and self._windows.done >= MOST and not self._seconds

    def is_over_for(self, sort: str) -> bool:
        """Return True if no step of this sort will be traced any more.

        If steps of another sort have a trace, but this sort is now regarded as the job's steps, it will be traced, too.
        """
        return self.is_over and (self._sort in ("", sort) or unit_of(self._series) != sort)

    @property
    def sort(self) -> Optional[str]:
        """How the steps are recognised that have a trace, or will have one. None: nothing was counted."""
        if self._earlier is not None:
            return self._earlier.sort
        is_traced = self.written and self._sort not in ("", BY_TIME)
        return self._sort if is_traced else unit_of(self._series)

    @property
    def state(self) -> str:
        """Tell whether the times of the job's steps were steady when it was traced: ``settled``, or a reason why not.

        Returns an empty text if no trace was written.
        """
        if self._earlier is not None:
            return self._earlier.state
        return self._windows.ready if self.written else ""

    @property
    def has_windows_of_time(self) -> bool:
        return self._by_time > 0

    def second_phase(self, count: int, made: int) -> None:
        """Trace some more steps, because the job's work has changed: now it uses another optimizer or model.

        The job has done ``count`` steps so far, ``made`` of them with the other optimizer or model. An open window
        ends, because its next step would be of both phases.
        """
        window = self.window
        if window is not None and window.is_mine and not window.one_call and window.sort != BY_TIME:
            self._finish(write=bool(window.kinds))
        self._provisional = None  # The last phase keeps it, if it has no other window
        self._windows.go_on(count, made)

    # ------------------------------------------------------------------------------------------------------ one call

    def begin_call(self, sort: str) -> Optional[OpenWindow]:
        """Start the profiler for one call that begins now, if it is time for another trace. Otherwise return None.

        ``sort`` says what kind of call it is, for example ``request``.
        """
        # Calls are traced one by one if several threads of the job do steps.
        if not self.several_threads or not self._traced or self._seconds:
            return None
        if self.window is not None or self.is_over_for(sort):
            return None
        series = self._series.get(sort)
        if series is None or unit_of(self._series) != sort or self.graphs.is_tracing or is_busy():
            return None
        with self._lock:
            if self._sort not in ("", sort) and self.window is None:
                self._begin_anew()
            plan = self._windows.next(series, Ranks(), one_call=True) if self.window is None else None
            if plan is None:
                return None
            self.window = window = self._new_window(plan, sort, one_call=True)
        window.begin()
        return window

    def end_call(self, window: OpenWindow, name: str) -> None:
        """Stop the profiler after the one call that was traced. ``name`` is the name of the step that this call was."""
        window.unit_ended(name)
        self._series[window.sort].kind(name).traced += 1
        self._finish(write=True)

    # ------------------------------------------------------------------------------------------------- between units

    def unit_ended(self, sort: str, name: str) -> None:
        """After a step of the job, start the profiler, let it go on, or stop it, as the plan for the traces says.

        ``sort`` says how the step was recognised (for example ``optimizer``), and ``name`` states its input sizes.
        """
        window = self.window
        if window is not None and window.sort not in (sort, BY_TIME):
            if not window.is_mine:
                return
            self._begin_anew()
            window = None
        if window is not None:
            self._go_on(window, sort, name)
        elif not self.several_threads or sort in PERIODS:
            self._begin(sort)

    def _go_on(self, window: OpenWindow, sort: str, name: str) -> None:
        if window.sort == BY_TIME:
            if not self._seconds and window.is_mine:
                self._begin_anew()  # The windows of time had begun before the job's first unit
            return
        if not window.is_mine or window.one_call:
            window.beside += 1
            return
        if window.unit_ended(name):
            self._series[sort].kind(name).traced += 1
        if window.whole:
            self._finish(write=True)

    def _begin(self, sort: str) -> None:
        if self.graphs.is_tracing or self.graphs.capturing or is_busy():
            return
        with self._lock:
            if self._sort not in ("", sort) and self.window is None and not self._seconds:
                self._begin_anew()
            plan = self._windows.next(self._series[sort], _ranks(sort)) if self.window is None else None
            if plan is None:
                return
            self.window = self._new_window(plan, sort, one_call=False)
        self.window.begin()

    def _new_window(self, plan: Window, sort: str, one_call: bool) -> OpenWindow:
        self.graphs.replays = []
        self._sort = sort
        return OpenWindow(plan, sort, sum(series.count for series in self._series.values()), one_call)

    def _finish(self, write: bool) -> None:
        """End the present trace: stop the profiler, and write the trace if ``write`` is True.

        ``self.window`` stays set until the profiler has ended. Otherwise another thread could start the profiler again
        too early, and PyTorch would crash.
        """
        window = self.window
        if window is None:
            return
        plan = window.plan
        try:
            window.end(self.graphs, self._record.trace_path(plan.number) if write else None)
        finally:
            self.window = None
        if not write:
            if window.sort in self._series:
                self._windows.given_up(plan, self._series[window.sort])
        else:
            self.written.append(plan.number)
            self._delete_earlier(window.sort)
            if plan.provisional:
                self._provisional = plan.number
            else:
                self._windows.written(self._series[window.sort])
                if self._provisional is not None:
                    self._remove(self._provisional)
                    self._provisional = None
        self._ended()

    def give_up(self, for_profile: bool = False) -> None:
        """Stop the profiler without writing a trace, if this thread started it.

        ``for_profile`` is True if another profile begins at once.
        """
        window = self.window
        if window is not None and window.is_mine:
            window.profile.detaches = not for_profile
            if window.sort == BY_TIME:
                try:
                    window.end(self.graphs, None)
                finally:
                    self.window = None
            else:
                self._finish(write=False)
        self.graphs.give_up()

    def _begin_anew(self) -> None:
        """Plan all traces anew, because the steps in the traces so far turned out not to be the job's real steps.

        For example, model calls were traced first, and then the job made its first optimizer step. The traces so far
        are deleted once a real step has a trace. Traces of a fixed time are deleted at once, because the new ones may
        get their numbers.
        """
        window = self.window
        if window is not None:
            for name in window.kinds.values():
                self._series[window.sort].kind(name).traced -= 1
            window.profile.detaches = False  # The first window of the other steps may begin at once
            try:
                window.end(self.graphs, None)
            finally:
                self.window = None
        if self._sort == BY_TIME:
            self._delete(self.written)
        elif self.written and self._earlier is None:
            self._earlier = _Earlier(self._sort, list(self.written), self._windows.ready, self._provisional)
        self._windows.begin_anew()
        self._sort, self._by_time, self._provisional = "", 0, None

    def _delete_earlier(self, sort: str) -> None:
        """Delete the traces of steps that were not the job's real steps, because a step of this sort has a trace."""
        earlier, self._earlier = self._earlier, None
        if earlier is None:
            return
        if earlier.sort == sort:  # It is regarded as the job's steps again
            if earlier.provisional is not None:
                self._remove(earlier.provisional)
            return
        self._delete(earlier.numbers)
        for kind in self._series[earlier.sort].kinds.values():
            kind.traced = 0

    def _delete(self, numbers: List[int]) -> None:
        for number in list(numbers):
            self._remove(number)

    def _remove(self, number: int) -> None:
        if number in self.written:
            self.written.remove(number)
            with contextlib.suppress(FileNotFoundError):
                Python.remove(self._record.trace_path(number))

    # ------------------------------------------------------------------------------------------------ windows of time

    def wants_time(self) -> bool:
        """Return True if fixed periods of time must be traced instead of steps.

        The reason is that the user has asked for them, or that logparse has found no step in the job.
        """
        return bool(self._seconds) or not self._series

    def begin_time(self, inside: bool) -> bool:
        """Start the profiler in the main thread, to trace the job for a fixed number of seconds.

        Returns False if the profiler cannot be started at this moment. ``inside`` is True while the job's model is
        running. Then the profiler is started only if the user has asked for a trace of some seconds. Otherwise the
        running call may be a step of the job, and steps are traced in another way.
        """
        waits = (inside and not self._seconds) or self.window is not None or self.graphs.is_tracing or is_busy()
        if waits or not self._is_moment():
            return False
        if self.wants_time():
            self._by_time += 1
            self._windows.ready = BY_TIME
            self.window = self._new_window(Window(self._by_time, 0, 1 << 30), BY_TIME, one_call=False)
            self.window.begin()
        return True

    def end_time(self) -> bool:
        """Stop the profiler after a fixed period of time. Returns False if it cannot be stopped at this moment."""
        window = self.window
        if window is None or window.sort != BY_TIME:
            return True
        if not self._is_moment():
            return False
        try:
            window.end(self.graphs, self._record.trace_path(window.plan.number))
        finally:
            self.window = None
        self.written.append(window.plan.number)
        self._ended()
        return True

    def _is_moment(self) -> bool:
        captures = self.graphs.capturing or ordinary.is_capturing()
        busy = ordinary.in_backward() or ordinary.is_compiling_now() or ordinary.is_importing()
        return not captures and not busy and ordinary.is_plain()

    def at_end(self) -> None:
        """Stop the profiler because the interpreter exits. Write the trace if it contains at least one step."""
        self.graphs.give_up()
        window = self.window
        if window is not None and window.is_mine:
            if window.sort == BY_TIME:
                self.end_time()
            else:
                self._finish(write=bool(window.kinds))


def _ranks(sort: str) -> Ranks:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return Ranks()
    try:
        return Ranks(distributed.distributed_c10d._get_default_store(), distributed.get_rank(), sort)
    except Exception:  # The job's group of ranks has no store
        return Ranks()
