"""Joins the parts: what the job does becomes units, units become times and windows.

Installed by ``install`` once the job has executed torch.  The environment states what is asked for:

=========================  ===================================================================================
LOGPARSE_TRACE_DIR         the folder for traces and counts
LOGPARSE_TRACE_UNITS       units that one window traces; 0: units are only counted and timed
LOGPARSE_TRACE_SECONDS     windows of time instead, of so many seconds
LOGPARSE_TRACE_UNIT        the callable whose calls are units, ``package.module:Class.method``
LOGPARSE_TRACE_EXPECTED    how many units the job made in an earlier run
LOGPARSE_TURNS             units are done by turns with another process (``turns.py``)
=========================  ===================================================================================
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.optim.optimizer import Optimizer

from . import clock, dynamo, ordinary
from .graphs import Graphs
from .guard import Guard
from .host_time import HostTime
from .profiler import Profile, is_busy
from .record import Record
from .sizes import sizes
from .units import PERIODS, Leader, Series, unit_of
from .windows import BY_TIME, Ranks, Window, Windows

_MAIN_THREAD = threading.main_thread().ident
_LONGEST_S = 8.0
"""Seconds after which a window ends before it holds all of its units."""
_OPTIMIZERS = Optimizer.__init__.__code__.co_filename
_WORDS = {
    "named": "calls of the named unit",
    "optimizer": "optimizer steps",
    "request": "requests",
    "module": "module calls",
    "graph": "graph replays",
    "forward": "module calls with gradients",
}


class _Calls:
    """The outermost calls since the last unit: how many, and the sizes that the first one got."""

    def __init__(self) -> None:
        self.count, self.shapes = 0, ""

    @property
    def name(self) -> str:
        """The name of the kind of the unit that makes these calls."""
        return self.shapes + (f" x{self.count}" if self.count > 1 else "") or "?"

    def begin_anew(self) -> None:
        self.count, self.shapes = 0, ""


class _Thread(threading.local):
    """What is under way in one thread: a call of an outermost module (``inside``), and one of a wrapped function."""

    def __init__(self) -> None:
        self.leaving: Any = None
        self.begin_anew()

    def begin_anew(self) -> None:
        self.inside = False
        self.open = ""
        self.calls = _Calls()
        self.last_ends: Dict[str, Any] = {}
        self.leaders = {"optimizer": Leader(), "forward": Leader()}


class _Token(NamedTuple):
    """An outermost call that is observed: when it began, and the window that traces it alone."""

    start: Any
    grad: bool
    window: Optional[_Window]


class _Window:
    """A window that is on: its thread, and the units that it holds."""

    def __init__(self, plan: Window, sort: str, first_unit: int, one_call: bool) -> None:
        self.plan, self.sort, self.one_call = plan, sort, one_call
        self.first_unit = first_unit
        self.thread = threading.get_ident()
        self.began_s = time.monotonic()
        self.kinds: Dict[int, str] = {}
        self.seen = 0
        self.beside = 0
        self.profile = Profile()

    def begin(self) -> None:
        if self.plan.warm_up:
            self.profile.prepare()
        else:
            self.profile.start()
            self.profile.step(1)

    def unit_ended(self, name: str) -> bool:
        """Count a unit of this kind; whether it was traced."""
        self.seen += 1
        if self.seen < self.plan.warm_up:
            return False
        if self.seen == self.plan.warm_up:
            self.profile.start()
            self.profile.step(1)
            return False
        self.kinds[self.seen - self.plan.warm_up] = name
        if not self.whole:
            self.profile.step(self.seen - self.plan.warm_up + 1)
        return True

    @property
    def whole(self) -> bool:
        return len(self.kinds) >= self.plan.units or bool(self.kinds and time.monotonic() - self.began_s > _LONGEST_S)

    def header(self, graphs: Graphs) -> Dict[str, Any]:
        out: Dict[str, Any] = {
            "logparse_unit_kinds": {str(number): name for number, name in self.kinds.items()},
            "logparse_first_unit": self.first_unit,
            "logparse_graphs": graphs.replays,
        }
        return {**out, "logparse_units_beside": self.beside} if self.beside else out


class _Leaving:
    """Ends the window of a thread that ends: PyTorch's profiler must end where it began."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __del__(self) -> None:
        self._observer.give_up_window()


class Observer:
    """Observes the job that this process runs."""

    def __init__(self) -> None:
        environ = os.environ
        self.folder = environ["LOGPARSE_TRACE_DIR"]
        self.traced = int(environ.get("LOGPARSE_TRACE_UNITS", "0"))
        self.named = environ.get("LOGPARSE_TRACE_UNIT", "")
        self.seconds = float(environ.get("LOGPARSE_TRACE_SECONDS", "0"))
        self.expected = int(environ.get("LOGPARSE_TRACE_EXPECTED", "0"))
        self.guard = Guard(self._ended)
        self.here = _Thread()
        self.begin_module = self.guard(self._begin_module)
        self.end_module = self.guard(self._end_module)
        self.end_step = self.guard(self._end_step)
        self.give_up_window = self.guard(self._give_up_window)
        self.reset()

    def reset(self) -> None:
        """Begin to count anew: at the start, and in a process that was forked."""
        self.window: Optional[_Window] = None
        self.lock = threading.Lock()
        self.here.begin_anew()
        self.series: Dict[str, Series] = {}
        self.timer = clock.Timer()
        self.windows = self._new_windows()
        self.graphs = Graphs(bool(self.traced))
        self.host = HostTime()
        self.record = Record(self.folder, alone=not self.traced)
        self.alive: Dict[Tuple[str, int], Any] = {}
        self.several_threads = False
        self.latest = self.here.calls
        self.written: List[int] = []
        self.by_time_windows = 0
        self.pending: Optional[Tuple[str, str]] = None
        self.unplain = 0
        self.stepped_in_backward = False
        self.turns: Any = None
        if not self.traced and "LOGPARSE_TURNS" in os.environ:
            from .turns import Turns

            self.turns = Turns()

    # ---------------------------------------------------------------------------------------------- what the job does

    def unobserved(self) -> bool:
        """Whether an outermost call of a module goes straight on.

        So it does while Dynamo compiles, under a Python profiler, which would count our functions, and once we are off.
        """
        if ordinary.is_compiling():
            return True
        return not self.guard.on or self.guard.is_within or sys.getprofile() is not None

    def _begin_module(self, module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[_Token]:
        here = self.here
        here.inside = True
        if self._is_capturing or ordinary.in_backward() or dynamo.is_part_of_graph(module):
            return None
        if not ordinary.is_plain():
            self.unplain += 1
            return None
        if self.pending is not None:
            pending, self.pending = self.pending, None
            self._move(*pending)
        calls = self.latest = here.calls
        calls.count += 1
        if calls.count == 1 and not here.open:
            calls.shapes = sizes(args, kwargs)
        if here.open:
            return None
        grad = torch.is_grad_enabled()
        window = None if grad else self._begin_call("module")
        return _Token(None if grad else self._now(), grad, window)

    def module_ended(self, module: Any, token: Optional[_Token], whole: bool) -> None:
        """Not guarded: however our functions end, the next call of the job is an outermost one again."""
        if token is not None:
            self.end_module(module, token, whole)
        self.here.inside = False

    def _end_module(self, module: Any, token: _Token, whole: bool) -> None:
        if not token.grad:
            self._unit("module", token.start, whole, token.window)
        elif whole:
            self._period("forward", module)

    def _end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        here = self.here
        if here.inside or here.open or self._is_capturing or not ordinary.is_plain() or _is_nested_step():
            return
        self._period("optimizer", optimizer)

    def _period(self, sort: str, leader: Any) -> None:
        """A unit that reaches from the last coming of this thread's leader to this one."""
        here, end = self.here, self._now()
        leaders = here.leaders[sort]
        if (sort, id(leader)) not in self.alive:
            self._watch(sort, leader, leaders)
        changes = leaders.changes
        made = leaders.comes(id(leader))
        if not made:
            return
        changed = leaders.changes != changes
        if changed and sort in self.series:
            self.windows.go_on()
        start = None if changed else here.last_ends.get(sort)
        here.last_ends[sort] = end
        self._unit(sort, start, True, None, end, made)

    def _watch(self, sort: str, leader: Any, leaders: Leader) -> None:
        """Have ``leaders`` forget an object once the job has dropped it."""
        key = (sort, id(leader))

        def dropped(_: Any) -> None:
            self.alive.pop(key, None)
            leaders.gone(key[1])

        self.alive[key] = weakref.ref(leader, dropped)

    # --------------------------------------------------------------------------------------------- calls of functions

    def begin_function(self, sort: str, args: Any, kwargs: Any) -> Optional[_Token]:
        """A call of a named callable or of a request begins."""
        here = self.here
        if here.open or not ordinary.is_plain():
            return None
        here.open, here.calls = sort, _Calls()
        here.calls.shapes = sizes(args, kwargs)
        window = self._begin_call(sort)
        return _Token(self._now(), False, window)

    def end_function(self, sort: str, token: Optional[_Token], whole: bool) -> None:
        if token is not None:
            self.here.open = ""
            self._unit(sort, token.start, whole, token.window)

    def begin_replay(self, graph: Any) -> Optional[Tuple[str, _Token]]:
        number, window = self.graphs.number(graph), self.window
        if window is not None and window.profile.is_on:
            self.graphs.note_replay(number)
        if self.here.open or self.here.inside:
            return None
        return number, _Token(self._now(), False, self._begin_call("graph"))

    def end_replay(self, token: Optional[Tuple[str, _Token]], whole: bool) -> None:
        if token is not None:
            self.here.calls.shapes = f"graph {token[0]}"
            self._unit("graph", token[1].start, whole, token[1].window)

    def _begin_call(self, sort: str) -> Optional[_Window]:
        """The window of this call alone, if one is due: several threads make units, or another one than the main."""
        if not self.several_threads or not self.traced or self.window is not None or self.windows.over:
            return None
        series = self.series.get(sort)
        if series is None or unit_of(self.series) != sort or self.graphs.is_tracing or is_busy():
            return None
        with self.lock:
            plan = self.windows.next(series, Ranks(), one_call=True) if self.window is None else None
            if plan is None:
                return None
            self.window = window = self._new_window(plan, sort, one_call=True)
        window.begin()
        return window

    # -------------------------------------------------------------------------------------------------- units, windows

    def _unit(
        self, sort: str, start: Any, whole: bool, window: Optional[_Window], end: Any = None, made: int = 1
    ) -> None:
        """A unit ended.  One that an exception left is counted and not timed."""
        at = time.perf_counter()
        end = self._now() if end is None else end
        with self.lock:
            series = self.series.get(sort) or self.series.setdefault(sort, Series())
            name, calls = self._name(sort)
            kind = series.add(name, made)
            is_unit = unit_of(self.series) == sort
            if is_unit or sort != "forward":  # calls with gradients that are no units belong to the step that follows
                calls.begin_anew()
            self.several_threads = self.several_threads or threading.get_ident() != _MAIN_THREAD
            if whole and self._is_timing and not self.host.disturbed and not is_busy():
                self.timer.add(series, kind, start, end)
            self.timer.read()
            self.host.disturbed = self.host.disturbed and not is_unit
        if window is not None:
            window.unit_ended(name)
            kind.traced += 1
            self._finish_window(write=True)
        elif is_unit:
            if self.turns is not None:
                self._take_turn(series)
            elif not self.traced:
                self.host.unit_ended(kind, series.count, at)
            self._move(sort, name)
        if is_unit and self.record.is_due and self.window is None:
            self.write()

    @property
    def _is_timing(self) -> bool:
        """Whether units are timed: not in a window, nor after a settled one or one of time, which slow what follows."""
        return self.window is None and not (self.by_time_windows or (self.traced and self.windows.done))

    @property
    def _is_capturing(self) -> bool:
        """Whether a graph is captured; the GPU is not asked once we have nothing to do with it any more."""
        idle = self.traced and self.window is None and self.windows.over
        return self.graphs.capturing > 0 or (not idle and ordinary.is_capturing())

    def _now(self) -> Any:
        return clock.now() if self._is_timing else None

    def _name(self, sort: str) -> Tuple[str, _Calls]:
        """The kind of the unit that ends, and the calls that it made: the sizes of the first one, and their number."""
        calls = self.here.calls
        if not calls.count and not calls.shapes and sort in PERIODS:
            calls = self.latest  # a thread of autograd makes the step; another one has called the module
        leaders = self.here.leaders.get(sort)
        changes = leaders.changes if leaders is not None else 0
        return calls.name + (f" (phase {changes + 1})" if changes else ""), calls

    def _move(self, sort: str, name: str) -> None:
        """Between two units: go on with the window that is on, or begin the next one."""
        window = self.window
        if not self.traced or (window is None and self.windows.over):
            return
        if ordinary.in_backward():
            self.pending = (sort, name)
            return
        if window is not None and window.sort not in (sort, BY_TIME):
            if window.thread != threading.get_ident():
                return
            self.drop_windows()
            window = None
        if window is not None:
            self._go_on(window, sort, name)
        elif not self.several_threads or sort in PERIODS:
            self._begin_window(sort)

    def _go_on(self, window: _Window, sort: str, name: str) -> None:
        if window.sort == BY_TIME:
            if not self.seconds and window.thread == threading.get_ident():
                self.drop_windows()  # the job had only not begun
            return
        if window.thread != threading.get_ident() or window.one_call:
            window.beside += 1
            return
        if window.unit_ended(name):
            self.series[sort].kind(name).traced += 1
        if window.whole:
            self._finish_window(write=True)

    def _begin_window(self, sort: str) -> None:
        if self.graphs.is_tracing or self.graphs.capturing or is_busy():
            return
        if self.written and self.traced_sort != sort:
            self.drop_windows()
        series = self.series[sort]
        with self.lock:
            plan = self.windows.next(series, _ranks()) if self.window is None else None
            if plan is None:
                return
            self.window = self._new_window(plan, sort, one_call=False)
        if threading.current_thread() is not threading.main_thread() and self.here.leaving is None:
            self.here.leaving = _Leaving(self)
        self.window.begin()

    def _new_window(self, plan: Window, sort: str, one_call: bool) -> _Window:
        self.graphs.replays = []
        self.traced_sort = sort
        first = sum(series.count for series in self.series.values())
        return _Window(plan, sort, first, one_call)

    def _finish_window(self, write: bool) -> None:
        """End the window that is on."""
        window, self.window = self.window, None
        if window is None:
            return
        number = window.plan.number
        path = self.record.trace_path(number) if write else None
        window.profile.stop(window.header(self.graphs), path)
        self.here.last_ends.clear()
        self.host.disturbed = True
        series = self.series.get(window.sort)
        if series is None:
            return
        if path is None:
            self.windows.given_up(number, series)
            return
        self.written.append(number)
        if number and self.written[0] == 0:
            self._remove(0)
        if number:
            self.windows.written(series)
        self.write()

    def _give_up_window(self) -> None:
        """End the window without a trace, in the thread that began it."""
        window = self.window
        if window is not None and window.thread == threading.get_ident():
            if window.sort == BY_TIME:
                self.window = None
                window.profile.stop({}, None)
            else:
                self._finish_window(write=False)
        self.graphs.give_up()

    def drop_windows(self) -> None:
        """Forget windows of what turned out not to be the job's unit."""
        window, self.window = self.window, None
        if window is not None:
            window.profile.stop({}, None)
        for number in list(self.written):
            self._remove(number)
        for series in self.series.values():
            for kind in series.kinds.values():
                kind.traced = 0
        self.windows, self.by_time_windows = self._new_windows(), 0

    def _new_windows(self) -> Windows:
        return Windows(0 if self.seconds else self.traced, self.expected)

    def _remove(self, number: int) -> None:
        self.written.remove(number)
        path = self.record.trace_path(number)
        if os.path.exists(path):
            os.remove(path)

    def _take_turn(self, series: Series) -> None:
        """At the end of a turn report the times of its units, and wait; the next unit begins with an idle GPU."""
        if not self.turns.over() or ordinary.is_capturing():
            return
        if ordinary.on_gpu():
            torch.cuda.synchronize()
        self.timer.read(wait=True)
        times = {name: list(kind.us) for name, kind in series.kinds.items() if kind.us}
        for kind in series.kinds.values():
            kind.us.clear()
        self.turns.wait(times)
        self.here.last_ends.clear()
        self.host.disturbed = True

    # ------------------------------------------------------------------------------------------------ windows of time

    def wants_time(self) -> bool:
        return self.guard.on and (bool(self.seconds) or not self.series)

    def begin_time(self) -> bool:
        """Begin a window of time in the main thread; whether this is a moment to do so.

        Within the first call of a module it waits: that call will be a unit.
        """
        if (
            (self.here.inside and not self.seconds)
            or not self._may_move()
            or self.window is not None
            or self.graphs.is_tracing
            or is_busy()
        ):
            return False
        if self.wants_time():
            self.by_time_windows += 1
            self.windows.ready = BY_TIME
            self.window = self._new_window(Window(self.by_time_windows, 0, 1 << 30), BY_TIME, one_call=False)
            self.window.begin()
        return True

    def end_time(self) -> bool:
        window = self.window
        if window is None or window.sort != BY_TIME:
            return True
        if not self._may_move():
            return False
        self.window = None
        window.profile.stop(window.header(self.graphs), self.record.trace_path(window.plan.number))
        self.written.append(window.plan.number)
        self.write()
        return True

    def _may_move(self) -> bool:
        captures = self.graphs.capturing or ordinary.is_capturing()
        busy = ordinary.in_backward() or ordinary.is_compiling_now() or ordinary.is_importing()
        return not captures and not busy and ordinary.is_plain()

    # --------------------------------------------------------------------------------------------------------- the end

    def write(self) -> None:
        sort = unit_of(self.series)
        none = "time" if self.by_time_windows else "none"
        tracing = self.windows.ready if self.written else ""
        self.record.write(sort or none, self.series.get(sort or ""), tracing, len(self.written))

    def at_end(self) -> None:
        """When the interpreter ends: end the window that is on, and write what is known."""
        self.graphs.give_up()
        window = self.window
        if window is not None and window.thread == threading.get_ident():
            if window.sort == BY_TIME:
                self.end_time()
            else:
                self._finish_window(write=bool(window.kinds))
        if not ordinary.is_capturing():
            self.timer.read(wait=not ordinary.on_gpu())
        for note in self._why_no_trace():
            self.record.note(note)
        self.write()

    def _why_no_trace(self) -> List[str]:
        if not self.traced or self.written:
            return []
        sort = unit_of(self.series)
        if sort is not None:
            made = self.series[sort].count
            why = "a trace needs 2" if made < 2 else "the job's own profiler was on" if is_busy() else "no window ended"
            return [f"no trace: the job made {made} {_WORDS[sort]}; {why}"]
        if self.unplain:
            return [f"no trace: {self.unplain} calls of modules ran under a tracer, a transform or a dispatch mode"]
        return []

    def _ended(self, why: str) -> None:
        """An error of ours ended the observation."""
        window = self.window
        if window is not None and window.thread == threading.get_ident():
            self.window = None
            window.profile.stop({}, None)
        self.graphs.give_up()
        self.record.note(f"observation ended, the job went on: {why}")
        self.write()


def _is_nested_step() -> bool:
    """Whether the step that ends was called by another step: ``super().step()`` of a subclass, or a wrapper.

    PyTorch calls the hooks in a function that stands around every ``step``; a nested one stands on the stack twice.
    """
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != _OPTIMIZERS:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return False
    code, outer = frame.f_code, frame.f_back
    while outer is not None:
        if outer.f_code is code:
            return True
        outer = outer.f_back
    return False


def _ranks() -> Ranks:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return Ranks()
    try:
        return Ranks(distributed.distributed_c10d._get_default_store(), distributed.get_rank())
    except Exception:  # the job has a group without a store
        return Ranks()
