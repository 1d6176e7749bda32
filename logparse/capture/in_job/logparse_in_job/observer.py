"""Count the job's steps, name them by their input sizes, time them, and decide when the profiler traces them.

A step, also called a unit of work, is for example a training step or a request. ``install`` starts the observer once
the job has imported torch. These environment variables tell what to observe:

=========================  ===================================================================================
LOGPARSE_TRACE_DIR         the folder for traces and counts
LOGPARSE_TRACE_UNITS       number of units that one window traces; 0: units are only counted and timed
LOGPARSE_TRACE_SECONDS     length of a window, s; windows are then windows of time
LOGPARSE_TRACE_UNIT        the callable whose calls are units, ``package.module:Class.method``
LOGPARSE_TRACE_EXPECTED    number of units that the job made in an earlier run
LOGPARSE_TURNS             units alternate with another process's units (``turns.py``)
LOGPARSE_TRY               a file that states which actions are switched on and off (``trial.py``)
=========================  ===================================================================================

A window is a period in which the profiler runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.optim.optimizer import Optimizer

from . import clock, dynamo, ordinary
from .by_time import QUIET_S, has_gpu
from .guard import Guard
from .host_time import HostTime
from .lean import UNKNOWN, Inputs, Known, Lean, functions
from .profiler import is_busy
from .record import Record
from .sizes import sizes
from .tracing import MAIN_THREAD, OpenWindow, Tracing
from .under_way import Calls, UnderWay
from .units import LEAST, ORDER, PERIODS, Leader, Series, unit_of
from .unpatched import Python

_OPTIMIZERS = Optimizer.__init__.__code__.co_filename
_WORDS = {
    "named": "call{s} of the named unit",
    "optimizer": "optimizer step{s}",
    "request": "request{s}",
    "module": "module call{s}",
    "graph": "graph replay{s}",
    "forward": "module call{s} with gradients",
}
_UNPLAIN = "ran under a tracer, a transform (such as vmap) or a dispatch mode (such as FlopCounterMode)"
_MANY = 0.05
"""Least (number of uncounted steps) ÷ (number of counted steps), 0 to 1, of a job whose user gets a note about them."""
_LEADERS = {"optimizer": "another optimizer", "forward": "another model"}

_Token = Tuple[Any, bool, Optional[OpenWindow]]
"""Data about an observed call, kept until the call ends.

The data are the moment at which the call began, whether gradients are on, and the open trace if the profiler traces
this call alone.
"""


class _Leaving:
    """An object that stops the profiler when its thread of the job ends.

    PyTorch's profiler must end in the thread where it began.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    # Each thread that runs the profiler holds one such object. Python deletes it when the thread ends.
    def __del__(self) -> None:
        self._observer.give_up_window()


class Observer:
    """Counts, times and traces the steps (training steps or requests) of the job that runs in this process.

    The functions that logparse has wrapped around the job's models and optimizers call its methods.
    """

    def __init__(self) -> None:
        environ = os.environ
        self.folder = environ["LOGPARSE_TRACE_DIR"]
        self.traced = int(environ.get("LOGPARSE_TRACE_UNITS", "0"))
        self.named = environ.get("LOGPARSE_TRACE_UNIT", "")
        self.seconds = float(environ.get("LOGPARSE_TRACE_SECONDS", "0"))
        self._expected = int(environ.get("LOGPARSE_TRACE_EXPECTED", "0"))
        self.here = UnderWay()
        self.guard = Guard(self._observation_ended, self.here)
        self.compiles: Callable[[], Any] = dynamo.callback
        self.with_a_frame: Any = None
        self.begin_module = self.guard(self._begin_module)
        self.end_module = self.guard(self._end_module)
        self.end_step = self.guard(self._end_step)
        self.give_up_window = self.guard(self._give_up_window)
        self.make_way = self.guard(self._make_way)
        self.give_up_trial = self.guard(self._give_up_trial)
        self.lean = Lean(self.here.calls)
        self.usual_begin, self.over, self.step_ended = functions(self)
        self._first_process = Python.getpid()
        self.reset()

    def reset(self) -> None:
        """Begin to observe this process from the start: no step has been counted or traced yet.

        This is called when the job starts, and in each process that the job forks.
        """
        self._lock = threading.Lock()
        self.here.begin_anew()
        self.lean.begin_anew(self.here.calls)
        self._series: Dict[str, Series] = {}
        self._timer = clock.Timer()
        self.host = HostTime()
        self.record = Record(self.folder, alone=not self.traced)
        self.tracing = Tracing(self.record, self._series, self.traced, self.seconds, self._expected, self._window_ended)
        self._alive: Dict[Tuple[str, int], Any] = {}
        self._pending: Optional[Callable[[], None]] = None
        self._unplain: Dict[str, int] = {}
        self._turns: Any = None
        if not self.traced and "LOGPARSE_TURNS" in os.environ:
            from .turns import Turns

            self._turns = Turns()
        self.trial: Any = None
        if not self.traced and "LOGPARSE_TRY" in os.environ:
            from .trial import Trial

            with contextlib.suppress(OSError):  # A process outlives the trial, and the file of its request is gone
                self.trial = Trial(self.folder, self.record.process, self.tracing.graphs)

    # ---------------------------------------------------------------------------------------------- calls of modules

    def begin(self, module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], known: Known = UNKNOWN) -> bool:
        """Note that the job calls a model. Return True if logparse counts or times this call.

        If it does, ``ended`` or ``failed`` is called afterwards. The wrapper calls this method only for the outermost
        module, not for the modules that the model calls. A call is neither counted nor timed in these cases:

        * ``torch.compile`` (Dynamo) is compiling.
        * A Python profiler is on, which would count our functions.
        * logparse has stopped after an error of its own.
        * Python's stack has no room for our functions.

        ``known`` comes from ``lean.py``.
        """
        if sys.getprofile() is not None:
            self.lean.profiled = True
            return False
        prior = dynamo.set_callback(None)
        try:
            if ordinary.is_compiling() or not self.guard.on or self.guard.thread.within:
                return False
            here = self.here
            here.inside, here.token = True, None
            here.token = self.begin_module(module, args, kwargs, known)
            return True
        except RecursionError:
            self.here.inside = False
            return False
        except BaseException:  # from a signal handler of the job
            self.here.inside = False
            raise
        finally:
            if prior is not None:
                dynamo.set_callback(prior)

    def ended(self, module: Any, result: Any, whole: bool = True) -> Any:
        """Note that a call of the job's model has ended. Return the call's result unchanged."""
        here, prior = self.here, dynamo.set_callback(None)
        try:
            token, here.token = here.token, None
            if token is not None:
                self.end_module(module, token, whole)
        except RecursionError:  # Python's stack has no room for our functions
            return result
        finally:
            # Even if a function of logparse fails, it is noted that the call is over. Otherwise the job's next call
            # would look like a part of this one.
            here.inside = False
            if prior is not None:
                dynamo.set_callback(prior)
        return result

    def failed(self, module: Any) -> None:
        """Note that a call of the job's model has ended with an exception."""
        if self.here.later:  # ``over`` counts it
            self.here.whole = False
            return
        if self.trial is not None:
            self.give_up_trial()
        self.ended(module, None, whole=False)

    def _begin_module(
        self, module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], known: Known
    ) -> Optional[_Token]:
        here, tracing = self.here, self.tracing
        over = known.late or (self.traced and tracing.is_over_for("module"))
        if tracing.graphs.capturing or (not over and ordinary.is_capturing()):
            return None
        if ordinary.backward_task() != -1 or dynamo.is_part_of_graph(module):
            return None
        if ordinary.is_data_worker():
            self.guard.on = False
            return None
        if self._leave_out("module"):  # ``begin`` has seen that nothing is being compiled
            return None
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending()
        calls = self.lean.latest = here.calls
        calls.count += 1
        if self.trial is not None:
            self.trial.called(module, args, kwargs)
        if calls.count == 1 and not here.open:
            calls.shapes = sizes(args, kwargs) if known.text is None else known.text
        if here.open:
            return None
        grad = torch.is_grad_enabled()
        if not grad and calls.count > 1:
            calls.set_aside(sizes(args, kwargs) if known.text is None else known.text)
        inputs = here.lean.remember_inputs(known.key, calls) if here.lean is not None else None
        if grad:
            return None, True, None
        if over:
            self._count(calls, inputs)
            return None
        window = tracing.begin_call("module") if tracing.several_threads else None
        return clock.now() if tracing.leaves_times_alone else None, False, window

    def _end_module(self, module: Any, token: _Token, whole: bool) -> None:
        start, grad, window = token
        if not grad:
            self._unit("module", start, whole, window)
        elif whole:
            self._period("forward", module)

    # ------------------------------------------------------------------------------------------------------- periods

    def _end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        here = self.here
        if here.inside or here.open or self._is_capturing or ordinary.is_compiling() or _is_nested_step():
            return
        if self._leave_out("optimizer"):
            return
        if self.trial is not None:
            self.trial.stepped(optimizer)
        self._period("optimizer", optimizer)

    def _period(self, sort: str, leader: Any) -> None:
        """Note that a step of the job has ended, because an optimizer has made a step or a model was called.

        ``leader`` is this optimizer or model. If a job has several, only one of them ends the job's steps (see
        ``Leader``).
        """
        here, end = self.here, self._now()
        leaders = here.leaders[sort]
        if (sort, id(leader)) not in self._alive:
            self._watch(sort, leader, leaders)
        changes, phases = leaders.changes, leaders.phases
        if leaders.leader is None:
            leaders.follow(id(leader), _work_of(sort, leader))
        made = leaders.comes(id(leader))
        if not made:
            return
        changed = leaders.changes != changes
        if changed:
            leaders.work = _work_of(sort, leader)
        if leaders.phases != phases:
            self._begin_phase(sort, made)
        # A step of the job lasts from one such event to the next.
        start = None if changed else here.last_ends.get(sort)
        here.last_ends[sort] = end
        self._unit(sort, start, True, None, end, made)

    def _begin_phase(self, sort: str, made: int) -> None:
        """Trace some more steps, because another optimizer or model leads. It has made ``made`` steps or calls."""
        unit = unit_of(self._series)
        if unit is not None:
            steps = made if unit == sort else 0
            self.tracing.second_phase(self._series[unit].count + steps, steps)
            self.lean.on = False

    def _watch(self, sort: str, leader: Any, leaders: Leader) -> None:
        """Arrange that an optimizer or a model is forgotten here when the job deletes it.

        The ends of the job's steps are recognised by one optimizer or model. ``leaders`` chooses it, and must not keep
        a deleted one.
        """
        key = (sort, id(leader))

        def dropped(_: Any) -> None:
            self._alive.pop(key, None)
            leaders.gone(key[1])

        self._alive[key] = weakref.ref(leader, dropped)

    # --------------------------------------------------------------------------------------------- calls of functions

    def begin_function(self, sort: str, args: Any, kwargs: Any) -> Optional[_Token]:
        """Note that the job calls a function that serves a request, or the one that the user named (``--unit``)."""
        here = self.here
        if here.open or ordinary.is_compiling() or self._leave_out(sort):
            return None
        here.open, here.calls = sort, Calls()
        here.calls.shapes = sizes(args, kwargs)
        window = self.tracing.begin_call(sort)
        return self._now(), False, window

    def end_function(self, sort: str, token: Optional[_Token], whole: bool) -> None:
        if token is not None:
            self.here.open = ""
            self._unit(sort, token[0], whole, token[2])

    def begin_replay(self, graph: Any) -> Optional[Tuple[str, _Token]]:
        graphs, window = self.tracing.graphs, self.tracing.window
        number = graphs.number(graph)
        if window is not None and window.profile.is_on:
            graphs.note_replay(number)
        if self.here.open or self.here.inside:
            return None
        return number, (self._now(), False, self.tracing.begin_call("graph"))

    def end_replay(self, token: Optional[Tuple[str, _Token]], whole: bool) -> None:
        if token is not None:
            number, (start, _, window) = token
            self.here.calls.shapes = f"graph {number}"
            self._unit("graph", start, whole, window)

    # --------------------------------------------------------------------------------------------------------- units

    def _leave_out(self, sort: str) -> bool:
        """Return True if this step is not counted, because a dispatch mode, a transform or a tracer could see our work.

        The job's user is told at the end how many such steps there were.
        """
        is_seen = not ordinary.only_computes()
        if is_seen:
            self._unplain[sort] = self._unplain.get(sort, 0) + 1
        return is_seen

    def _unit(
        self, sort: str, start: Any, whole: bool, window: Optional[OpenWindow], end: Any = None, made: int = 1
    ) -> None:
        """Count and time a step of the job that has just ended. Start or stop the profiler if it is time to.

        A step that ended with an exception is counted but not timed.
        """
        # Usually this method calls few functions, because each call costs 1 to 2 µs: since the last step the job has
        # filled the processor's caches with its own data.
        tracing, timer = self.tracing, self._timer
        at = 0.0 if self.traced else Python.perf_counter()
        timed = whole and tracing.leaves_times_alone
        if timed and end is None:
            end = clock.now()
        with self._lock:
            self.lean.fold()
            series = self._series.get(sort) or self._series.setdefault(sort, Series())
            if sort in PERIODS:
                name, calls = self._name_of_period(sort, made)
            else:
                calls = self.here.calls
                name = calls.name
            if sort == "graph":
                others = sum(x.count for x in self._series.values()) - series.count
                steps = self._series.get("optimizer")
                series.repeated_alone(name, others, steps.count if steps is not None else 0)
            kind = series.add(name, made)
            is_unit = unit_of(self._series) == sort
            usual = sort in PERIODS and made == 1 and calls is self.here.calls
            if usual and self._is_steady and self._has_trained:
                self.here.lean.remember_period(sort, calls, series, kind)
            if sort == "module":
                calls.take_back()
            elif is_unit or sort != "forward":  # Calls with gradients that are no units belong to the step that follows
                calls.begin_anew()
            if threading.get_ident() != MAIN_THREAD:
                tracing.several_threads = True
            if timed and not self.host.disturbed and not is_busy():
                timer.add(series, kind, start, end)
            if timer.pending:
                timer.read()
            self.host.disturbed = self.host.disturbed and not is_unit
        if window is not None:
            tracing.end_call(window, name)
        elif is_unit:
            if self.traced:
                if not tracing.is_over_for(sort):
                    self._move(sort, name)
            elif self._turns is not None:
                self._take_turn(series)
            elif self.trial is not None:
                self._try(sort, series)
            else:
                self.host.unit_ended(kind, series.count, at)
        if is_unit and self.record.is_due and tracing.window is None:
            self.write()

    def _count(self, calls: Calls, inputs: Optional[Inputs]) -> None:
        """Count a call of the model without gradients, such as a request to a server.

        This is used after the last trace has been written. Then only the number of calls is still wanted, and no call
        is traced or timed. The counter is remembered in ``inputs``.
        """
        with self._lock:
            self.lean.fold()
            series = self._series.get("module") or self._series.setdefault("module", Series())
            kind = series.add(calls.name)
            if self._is_steady and inputs is not None:
                inputs.alone = self.here.lean.counter(series, kind)
            calls.take_back()
            if threading.get_ident() != MAIN_THREAD:
                self.tracing.several_threads = True
        if self.record.is_due and unit_of(self._series) == "module":
            self.write()

    @property
    def _is_steady(self) -> bool:
        """True if ``lean.py`` may count the next calls of this thread."""
        if not self.traced or not self.tracing.is_over or self._pending is not None:
            return False
        sort = unit_of(self._series)
        if sort is None or not self.tracing.is_over_for(sort):
            return False
        if self.here.lean is None:
            self.here.lean = self.lean.new_thread(self.here.leaders)
        self.lean.due_s, self.lean.on = self.record.due_s, not self.tracing.graphs.capturing
        if not self.guard.on:  # Asked last, because another thread may have ended the observation meanwhile
            self.lean.on = False
        return True

    @property
    def _has_trained(self) -> bool:
        """True if a call with gradients is not the job's unit, and never will be."""
        steps = self._series.get("optimizer")
        return steps is not None and steps.count >= LEAST

    @property
    def _is_capturing(self) -> bool:
        """True if the job is capturing a CUDA graph now.

        When all tracing is over, PyTorch is not asked any more, which saves time.
        """
        idle = self.traced and self.tracing.is_over
        return self.tracing.graphs.capturing > 0 or (not idle and ordinary.is_capturing())

    def _now(self) -> Any:
        return clock.now() if self.tracing.leaves_times_alone else None

    def _name_of_period(self, sort: str, made: int) -> Tuple[str, Calls]:
        """Return a name for the step (or the ``made`` steps) that ended now, and the model calls since the step before.

        The name consists of the input sizes of the first call and the number of calls, for example ``float32[16, 3,
        224, 224] x2``.
        """
        calls = self.here.calls
        if not calls.count and not calls.shapes:
            # Autograd makes the step in its own thread, but another thread has called the module
            calls = self.lean.latest
        return calls.name_of_each(made) + _of_phase(self.here.leaders[sort].phase), calls

    def _move(self, sort: str, name: str) -> None:
        """Start the profiler between two steps of the job, let it go on, or stop it, as the plan of traces says."""
        if self.tracing.is_over_for(sort):
            return
        self.lean.on = False
        if ordinary.in_backward():
            # This is done before the next call of the model.
            self._pending = lambda: self._move(sort, name)
            return
        if threading.get_ident() != MAIN_THREAD and self.here.leaving is None:
            self.here.leaving = _Leaving(self)
        self.tracing.unit_ended(sort, name)

    def _take_turn(self, series: Series) -> None:
        """Two jobs that are compared run in turns. End this job's turn if it has done its number of steps.

        Then the other job runs, and this one waits (see ``turns.py``).
        """
        if not self._turns.over() or ordinary.is_capturing():
            return
        # The times of the steps are reported before the wait. After it, the next step begins with an idle GPU.
        self._turns.wait(self._times_until_now(series))
        self._times_are_disturbed()

    def _try(self, sort: str, series: Series) -> None:
        """Switch the change that is being tested on or off, if enough steps were timed since it was last switched.

        The GPU is idle when the next step begins (see ``trial.py``).
        """
        if not self.trial.unit_ended(sort, series) or ordinary.is_capturing():
            return
        if ordinary.in_backward():
            # The change is switched before the next call of the model.
            self._pending = lambda: self._go_on_trying(sort, series)
        else:
            self._go_on_trying(sort, series)

    def _go_on_trying(self, sort: str, series: Series) -> None:
        self.trial.between(sort, series, self._times_until_now(series))
        self._times_are_disturbed()

    def _times_until_now(self, series: Series) -> Dict[str, List[float]]:
        """Wait until the GPU is idle, and return the times of all steps since the last call of this method.

        The times are in µs, by the steps' names.
        """
        if ordinary.on_gpu():
            torch.cuda.synchronize()
        self._timer.read(wait=True)
        times = {name: list(kind.us) for name, kind in series.kinds.items() if kind.us}
        for kind in series.kinds.values():
            kind.us.clear()
        return times

    def _give_up_trial(self) -> None:
        self.trial.failed(sys.exc_info()[1])

    def _times_are_disturbed(self) -> None:
        """Exclude the present step of the job from the measured times, because logparse itself makes this step slower.

        For example, logparse has just written a trace.
        """
        self.here.last_ends.clear()
        self.host.disturbed = True

    def _give_up_window(self) -> None:
        self.tracing.give_up()

    def _make_way(self) -> None:
        self.tracing.give_up(for_profile=True)

    def _window_ended(self) -> None:
        self._times_are_disturbed()
        self.write()

    # ------------------------------------------------------------------------------------------------ windows of time

    def wants_time(self) -> bool:
        return self.guard.on and self.tracing.wants_time()

    def begin_time(self) -> bool:
        return self.tracing.begin_time(self.here.inside)

    def end_time(self) -> bool:
        return self.tracing.end_time()

    # --------------------------------------------------------------------------------------------------------- the end

    def write(self) -> None:
        """Write the number of steps, their times, and the remarks for the user to the file of this process.

        Raises OSError if it fails.
        """
        with self._lock:  # Several threads of a server may write at once, while others count
            self.lean.fold()
            sort = self.tracing.sort
            none = "time" if self.tracing.has_windows_of_time else "none"
            series = self._series.get(sort) if sort is not None else None
            self.record.write(sort or none, series, self.tracing.state, len(self.tracing.written))
            self.lean.due_s = self.record.due_s

    @property
    def has_steps(self) -> bool:
        return bool(self._series or self._unplain)

    @property
    def is_forked(self) -> bool:
        return Python.getpid() != self._first_process

    def at_end(self) -> None:
        """Finish the present trace and write the counts and remarks to a file, because the Python process ends."""
        self._finish_traces()
        for note in self._why_no_trace() + self._untraced_unit() + self._untraced_phases() + self._left_out_steps():
            self.record.note(note)
        self.write()

    def finish(self) -> None:
        """Finish the present trace and write the counts to a file, but no remark on a missing trace."""
        self._finish_traces()
        self.write()

    def _finish_traces(self) -> None:
        self.lean.on = False
        with self._lock:
            self.lean.fold()
        self.tracing.at_end()
        if self.trial is not None:
            self.trial.at_end()
        if not ordinary.is_capturing():
            self._timer.read(wait=not ordinary.on_gpu())

    def _why_no_trace(self) -> List[str]:
        if not self.traced or self.tracing.written:
            return []
        sort = unit_of(self._series)
        if self.seconds and not is_busy():
            if has_gpu() and not ordinary.on_gpu():
                return ["no trace: this process did not use the GPU"] if self.has_steps else []
            return [
                (
                    f"no trace: the job ended before a traced period of {self.seconds:g} s did. The first one begins "
                    f"{QUIET_S:g} s after the job has begun to use the GPU (on a machine without a GPU: has imported "
                    "torch); for a short job, trace steps, for example with --trace 2"
                )
            ]
        if sort is not None:
            made = self._series[sort].count
            why = (
                "a trace needs 2"
                if made < 2
                else "the job's own profiler was switched on"
                if is_busy()
                else "no traced window ended"
            )
            return [f"no trace: the job did {_count(made, sort)}; {why}"]
        for sort in _WORDS:
            if self._unplain.get(sort, 0) >= LEAST and not self.seconds:
                return [f"no trace: {_count(self._unplain[sort], sort)} {_UNPLAIN}; trace by time, such as --trace 2s"]
        if "forward" in self._series:
            made = self._series["forward"].count
            return [
                (
                    f"no trace: the job did {_count(made, 'forward')} and no optimizer step; without optimizer "
                    f"steps, a trace needs at least {_count(LEAST, 'forward')}"
                )
            ]
        if self.lean.profiled:
            return [
                (
                    "no trace: a Python profiler such as cProfile was on while the job called its models, so their "
                    "calls were neither counted nor traced; run the job without that profiler"
                )
            ]
        if not self.seconds and dynamo.compiled_graphs():
            return [
                (
                    "no trace: only functions that torch.compile compiled ran, and logparse does not know which of "
                    "their calls are steps of the job; name the function whose calls are the steps with --unit, or "
                    "trace for a fixed time, for example with --trace 2s"
                )
            ]
        return []

    def _left_out_steps(self) -> List[str]:
        """Return a note for the user if the job's steps have traces, but many steps were not counted."""
        sort = unit_of(self._series)
        left_out = self._unplain.get(sort or "", 0)
        if (
            sort is None
            or self.seconds
            or not self.tracing.written
            or left_out < max(LEAST, _MANY * self._series[sort].count)
        ):
            return []
        return [f"{_count(left_out, sort)} were neither counted nor traced: they {_UNPLAIN}"]

    def _untraced_unit(self) -> List[str]:
        """Return a note for the user if only calls of another sort than the job's steps have a trace."""
        traced = self.tracing.sort
        if not self.tracing.written or traced is None or self.tracing.has_windows_of_time:
            return []
        if traced == "graph" and unit_of(self._series) == "graph":  # Steps before it only warmed up
            return []
        sort = next(x for x in ORDER if x == traced or (x in self._series and self._series[x].count > 1))
        if sort == traced:
            return []
        count, other = self._series[sort].count, self._series[traced].count
        why = "they are too few" if count < LEAST else "no traced window ended"
        return [f"no trace of the {_count(count, sort)}: {why}; the traces hold some of the {_count(other, traced)}"]

    def _untraced_phases(self) -> List[str]:
        """Return a note for the user if the job ended so soon after a phase began that no window traced it."""
        sort = unit_of(self._series)
        if not self.traced or not self.tracing.written or sort not in PERIODS:
            return []
        leaders, other = self.here.leaders[sort], _LEADERS[sort]
        counts = {}
        for phase in range(1, leaders.phases + 1):
            kinds = [x for name, x in self._series[sort].kinds.items() if name.endswith(_of_phase(phase))]
            if kinds and not any(x.traced for x in kinds):
                counts[phase + 1] = sum(x.count for x in kinds)
        notes = []
        if counts:
            phases = ", ".join(f"phase {phase} ({_count(count, sort)})" for phase, count in counts.items())
            notes.append(f"no trace of {phases}: the job used {other} there, and no traced window ended")
        if leaders.begun:
            notes.append(
                f"no trace of the last {_count(leaders.begun, sort)}: the job used {other} for them, and they are too "
                "few to be a phase of the job"
            )
        return notes

    def _observation_ended(self, why: str) -> None:
        """Stop counting and tracing after an error in logparse's code, and note the reason for the user."""
        self.lean.on = False
        self.record.note(f"logparse stopped observing the job after an error of its own, and the job went on: {why}")
        try:
            if self.trial is not None:
                self.trial.give_up(why)
            self.tracing.give_up()
        finally:
            self.write()


def _count(number: int, sort: str) -> str:
    """Return a number of units as words, such as ``1 module call with gradients``."""
    return f"{number} {_WORDS[sort].format(s='s' * (number != 1))}"


def _of_phase(phase: int) -> str:
    """Return the end of a step's name in this phase of the job, which is empty for the first one, number 0."""
    return f" (phase {phase + 1})" if phase else ""


def _work_of(sort: str, leader: Any) -> Any:
    """Describe which work an optimizer does, by its class and its numbers of parameters. Return None for a model."""
    if sort != "optimizer":
        return None
    groups = object.__getattribute__(leader, "__dict__").get("param_groups", ())  # This runs no code of the job
    with torch._C.DisableTorchFunction():
        found = [x.requires_grad for group in groups for x in group["params"]]
    return type(leader).__name__, len(found), sum(found)


def _is_nested_step() -> bool:
    """Return True if the ``step`` of an optimizer that ends now was called by the ``step`` of another optimizer.

    Only the outer ``step`` is counted.
    """
    # Steps are nested if ``step`` of a subclass calls ``super().step()``, or if an optimizer wraps another one.
    # PyTorch calls the hooks in a function that wraps every ``step``. In a nested step that function is on the stack
    # twice.
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
