"""Try changes, such as TF32, in the running job: switch each on and off between steps, and time the steps.

A change is here called an action, and a step of the job (such as a training step) a unit. ``logparse try`` or ``tune``
has started this process for the trial. ``LOGPARSE_TRY`` names the file in which it wrote the request::

    {"actions": ["channels_last", "tf32"], "seconds": 60.0, "expected": 0, "floor": 0.01, "rows": []}

Each action is tried in turn. First its result is compared (``same_result.py``). Then blocks of units with and without
the action alternate (``pairs.py``) until its effect is known. If one of the following events ends a trial, the job goes
on without any further switching:

===================================  ==========================================================================
event                                consequence
===================================  ==========================================================================
an action cannot be switched         it is refused with the reason, and the next action is tried
its result differs                   it ends as *differs*, and the next action is tried
an exception leaves a module's call  the action is off before the job sees its own exception; the action is
while it is on (also Ctrl-C)         *broken*, and nothing else is tried in this process
the job forks, or saves, loads or    the action goes off first, and the block begins anew, so that a checkpoint, a copy
copies state of its models           of a model and a process never hold a change of a trial
it does so in another thread         the action is refused after the unit, because the job may be within a call then
several threads call the models      the trial ends, or does not begin, because one may be within a call
the job sets it itself               the action is refused; the job's own setting stays
the job's steps change their sort    the trial begins anew, once: for example, a job first made calls without gradients
the job compiles, captures a graph   the trial ends with that reason, because such code keeps what was there
a rank is late, or ends              the trial ends in all ranks with a sentence (``ranks.py``)
an error of ours                     the trial ends with the error
===================================  ==========================================================================

``try_PID.json`` in ``LOGPARSE_TRACE_DIR`` holds the results so far. It is written again after each block, because a job
may be killed at any time. ``analyzers/evidence/trials.py`` reads it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set

import torch

from . import dynamo
from .graphs import Graphs
from .pairs import NO_TIME, Comparison
from .ranks import Alone, LateError, Ranks, Strangers
from .record import rank_of_job, write_whole
from .same_result import ROUNDINGS, Call, IncomparableError, NotRestoredError, Same, call_of
from .same_result import Comparison as Results
from .sharding import UnknownShardingError, is_sharded
from .switches import fits, made
from .switches.base import Job, RefusedError, Switch
from .tracing import MAIN_THREAD
from .units import Series
from .unpatched import Python

_MOST_CALLS, _MOST_WAITS = 4, 5
"""Largest number of models whose result is checked, and largest number of steps to wait until they are called."""
_MOST_AGAIN = 8
"""How often in a row a measurement may be interrupted because the job saves or copies its models."""
_AHEAD, _AHEAD_S, _MOST_AHEAD = 3, 0.5, 50
"""How many steps in advance rank 0 announces the step at which all ranks begin to try changes.

The number is ``_AHEAD``, plus the number of steps that take ``_AHEAD_S`` seconds, but at most ``_MOST_AHEAD`` more. The
values are the same in ``windows.py``.
"""
_SHARE_BEFORE = 5
"""Changes are first tried after a fifth of the job's steps at the latest, but not before ``_LEAST_BEFORE`` steps."""
_LEAST_BEFORE = 3


class Tried:
    """How far the trial of one change has come, and its results.

    ``ended`` is empty while the change is being tried. Then it is one word:

    * *decided*: its effect is known.
    * *budget*: no time was left.
    * *units*: the process ended.
    * *refused*: it could not be tried. ``why`` is the reason.
    * *differs*: it changes the job's results.
    * *broken*: the job failed while it was on, or it could not be switched off.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = self.why = self.detail = ""
        self.same: Optional[Same] = None
        self.comparison: Optional[Comparison] = None
        self.began_s = Python.monotonic()
        self.seconds = 0.0

    def end(self, how: str, why: str = "") -> None:
        self.ended, self.why, self.seconds = how, why, Python.monotonic() - self.began_s

    def record(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {"name": self.name, "ended": self.ended, "why": self.why, "detail": self.detail}
        found["seconds"] = round(self.seconds or Python.monotonic() - self.began_s, 3)
        if self.same is not None:
            found["same"] = self.same._asdict()
        if self.comparison is not None:
            found["pairs"] = [list(x) for x in self.comparison.pairs]
            found["control"] = [list(x) for x in self.comparison.control]
            found["unlike"] = self.comparison.unlike
        return found


class Trial:
    """Tries the requested changes, such as TF32, in the running job, one after the other.

    Each change is switched on and off between steps of the job, and the steps are timed. The observer, which counts the
    steps, calls these methods:

    * ``called`` and ``stepped`` when the job uses a model or an optimizer.
    * ``unit_ended`` after each step of the job.
    * ``between`` if ``unit_ended`` has returned True and the GPU is idle. It gets the times of the steps since its last
      call.
    """

    def __init__(self, folder: str, process: str, graphs: Graphs) -> None:
        self._graphs = graphs
        with Python.open(os.environ["LOGPARSE_TRY"], encoding="utf-8") as file:
            plan = Python.loads(file.read())
        self._path = os.path.join(folder, f"try_{process}.json")
        self._left: List[str] = list(plan["actions"])
        self._seconds, self._expected = float(plan["seconds"]), int(plan.get("expected", 0))
        self._floor, self._rows = float(plan["floor"]), list(plan.get("rows", []))
        self._models: Dict[int, Any] = {}
        self._optimizers: Dict[int, Any] = {}
        self._job = Job([], [])
        self._calls: Dict[int, Call] = {}
        self._wants_calls = False
        self._units_left = 0
        self._waits = 0
        self._callers: List[int] = []
        self._uncopied = ""
        self._usual_errors: Set[type] = set()
        self._began_s = 0.0
        self._sort = ""
        self._series: Optional[Series] = None
        self._switch: Optional[Switch] = None
        self._on = ""
        self._again = False
        self._agains = 0
        self._anew = False
        self._problem: List[str] = []
        self._ranks: Optional[Alone] = None
        self._usual_us = 0.0
        self._tried: List[Tried] = []
        self._now: Optional[Tried] = None
        self.over = False
        self.why = ""

    # ------------------------------------------------------------------------------------------- what the job uses

    def called(self, module: Any, args: Any, kwargs: Any) -> None:
        """Note that the job calls a model. Copy the model's input if the call is to be repeated later."""
        if self.over or not any(True for _ in module.parameters()):
            return
        if (thread := threading.get_ident()) not in self._callers:
            self._callers.append(thread)
        _remember(self._models, module)
        if self._wants_calls and id(module) not in self._calls and len(self._calls) < _MOST_CALLS:
            inner = module.module if type(module).__name__ == "DistributedDataParallel" else module
            try:
                call = call_of(inner, args, kwargs)
            except Exception as error:  # The copies are made by code of the job's own classes
                self._uncopied = (
                    f"the input of its calls cannot be copied, so no result can be compared: {_describe_error(error)}"
                )
                return
            self._calls[id(module)] = call._replace(grad=False) if is_sharded(inner) else call

    def stepped(self, optimizer: Any) -> None:
        """Note that an optimizer of the job has made a step."""
        if not self.over and _remember(self._optimizers, optimizer) and self._on:
            self._job.optimizers.append(optimizer)

    def failed(self, error: Optional[BaseException]) -> None:
        """Switch the change off after a call of the model raised an exception, because the change may be the cause.

        This is done before the job handles the exception.
        """
        now = self._now
        if not self._on and isinstance(error, Exception):
            self._usual_errors.add(type(error))
        # Nothing is done if an exception of the same type also occurred without the change, or if it is the exception
        # by which PyTorch's checkpoints end a call.
        if type(error) in self._usual_errors or type(error).__name__ == "_StopRecomputationError":
            return
        if now is not None and self._on and self._off():
            now.end("broken", _describe_error(error))
            self._end(f"{now.name} was on when the job raised {_describe_error(error)}")

    def saved(self, of: Any = None) -> None:
        """Switch the change off before the job saves, copies or loads a model's state.

        So a saved state is the one that the job would have without logparse. ``of`` is the model, the optimizer or the
        object to be saved. None means the whole process (a fork). Nothing is done in two cases:

        * ``of`` is a module that shares no parameters with the job's models.
        * ``of`` is a tensor's storage, because ``pickle`` saves it as a part of another object.
        """
        if not self._on or self._switch is None or isinstance(of, (torch.UntypedStorage, torch.TypedStorage)):
            return
        if isinstance(of, torch.nn.Module) and not self._concerns(of):
            return
        if self._is_shared:
            if isinstance(of, (torch.nn.Module, torch.optim.Optimizer)):
                self._problem = ["refused", "the job reads the state of its model in another thread while it trains"]
            return
        why = self._switch.hinders()
        if self._off():
            self._again = True
            if why:
                self._problem = ["refused", f"the job read its state while the action was on: {why}"]

    @property
    def _is_shared(self) -> bool:
        """True if another thread that still runs has called the job's models, because it may be within a call."""
        running = set(sys._current_frames())
        return any(x in running for x in self._callers if x != threading.get_ident())

    def _concerns(self, module: Any) -> bool:
        """Return True if a module is part of one of the job's models, or shares a parameter with one."""
        if any(module is x for model in self._job.models for x in model.modules()):
            return True
        own = {id(x) for model in self._job.models for x in model.parameters()}
        return any(id(x) in own for x in module.parameters())

    # ---------------------------------------------------------------------------------------------- between two units

    def unit_ended(self, sort: str, series: Series) -> bool:
        """Count one more step of the job, such as a training step. Return True if the caller must now call ``between``.

        After every few steps, ``between`` switches the change that is tried (such as TF32) on or off.
        """
        self._series = series
        if self.over:
            return False
        if self._began_s:
            self._units_left -= 1
            return self._units_left <= 0
        if self._ranks is None:
            self._ranks = _ranks()
        early = self._expected > 0 and series.count >= max(self._expected // _SHARE_BEFORE, _LEAST_BEFORE)
        ready = self._ranks.rank == 0 and (early or bool(series.ready()))
        ahead = _AHEAD + min(int(1e6 * _AHEAD_S / max(series.usual_us or 1e6, 1.0)), _MOST_AHEAD)
        return self._ranks.begins_at(series.count, ready, ahead)

    def between(self, sort: str, series: Series, times: Mapping[str, Sequence[float]]) -> None:
        """Go on with the trial between two steps of the job: for example, switch the present change on or off.

        * ``times`` holds the times of the steps since the last call (µs), by the steps' names.
        * The GPU is idle now.
        * All ranks (processes of the job) call this method after the same step. They exchange messages and decide by
          the times of rank 0, so all of them do the same.
        """
        assert self._ranks is not None
        if self._began_s and sort != self._sort and self._ranks.count == 1 and not self._anew:
            self._begin_anew()
            return
        if not self._began_s:
            self._began_s, self._sort = Python.monotonic(), sort
            # A server's main thread may call its models before another thread serves requests.
            self._callers = [x for x in self._callers if x != MAIN_THREAD] or self._callers
            self._usual_us = series.usual_us or 1e4
        try:
            said = self._ranks.exchange(
                {
                    "hindrance": self._hindrance(sort),
                    "problem": self._problem or self._disturbed(),
                    "seconds": Python.monotonic() - self._began_s,
                    "again": self._again,
                    "calls": len(self._calls),
                    "usual_us": self._usual_us,
                    "times": {kind: list(us) for kind, us in times.items()},
                }
            )
            self._problem, self._again = [], False
            self._go_on(said)
        except LateError as why:
            self._give_up("refused", str(why))
            self._end(str(why))
        self._write()

    def _begin_anew(self) -> None:
        """Forget all results, because they belong to another sort of step, and wait until the new steps are steady.

        For example, reinforcement learning first calls its model without gradients, and later also makes optimizer
        steps.
        """
        if self._off():
            self._left = [*(x.name for x in self._tried), *self._left]
            self._tried.clear()
            self._calls.clear()
            self._now = self._switch = None
            self._anew, self._wants_calls, self._again = True, False, False
            self._began_s, self._waits, self._agains, self._problem = 0.0, 0, 0, []
        self._write()

    def _disturbed(self) -> List[str]:
        """Return the reason if the job itself has altered the setting that is tried, so that nothing can be measured.

        The result is ``["refused", reason]``, or an empty list if the job has not altered the setting.
        """
        why = self._switch.disturbed() if self._switch is not None and self._on else ""
        return ["refused", why] if why else []

    def _go_on(self, said: Sequence[Mapping[str, Any]]) -> None:
        """Decide how the trial of changes goes on: time the present change further, begin the next one, or end.

        ``said`` holds what each process (rank) of the job reports about its times and errors, beginning with rank 0.
        """
        late = said[0]["seconds"] > self._seconds
        hindrance = _first(said, "hindrance")
        problem = _first(said, "problem")
        now = self._now
        if hindrance:
            self._give_up("refused", hindrance)
            self._end(hindrance)
        elif problem:
            self._give_up(*problem)
        elif not self._wants_calls and not self._calls:
            self._wants_calls, self._units_left = True, 1
        elif not all(x["calls"] for x in said):
            self._wait_for_a_call()
        elif len({x["calls"] for x in said}) > 1:
            counts = ", ".join(str(x["calls"]) for x in said)
            self._end(
                "to compare the model's results, all ranks must repeat the same calls together, but they call "
                f"different numbers of modules ({counts})"
            )
        elif now is None:
            self._wants_calls = False
            self._start(late, said[0]["usual_us"])
        elif now.comparison is not None:
            if any(x["again"] for x in said):
                self._agains += 1
            else:
                self._agains = 0
                now.comparison.add(said[0]["times"])
            if self._agains > _MOST_AGAIN:
                self._give_up(
                    "refused",
                    (
                        "too few steps could be compared: the change is switched off each time that the job reads "
                        "a state_dict, saves or copies something, or forks a process, and the job does so every "
                        "few steps"
                    ),
                )
            elif now.comparison.done or late:
                if self._off():
                    now.end("decided" if now.comparison.done else "budget")
                    self._following()
            else:
                self._next_block(now.comparison)

    def _wait_for_a_call(self) -> None:
        self._waits += 1
        self._units_left = 1
        if self._waits > _MOST_WAITS:
            self._end(
                "logparse found no call of the whole model, whose results it could compare with and without a change. "
                "It looks for a module with parameters that no other module calls"
            )

    def _hindrance(self, sort: str) -> str:
        """Return the reason why changes such as TF32 cannot be tried while this job runs, or an empty text.

        For example, the job may have compiled its model, and compiled code keeps the settings with which it was
        compiled.
        """
        if sort != self._sort:
            return (
                "the job now repeats another kind of step (unit of work) than before, so the times of steps cannot "
                "be compared"
            )
        if self._is_shared:
            return "the job runs its steps in several threads"
        if dynamo.compiled_graphs():
            return (
                "the job compiled its model with torch.compile, and compiled code keeps the settings with which it "
                "was compiled"
            )
        if self._graphs.any:
            return "the job captured a CUDA graph, which replays the captured kernels"
        if self._uncopied:
            return self._uncopied
        return self._ranks.hindrance if self._ranks is not None else ""

    def _start(self, late: bool, usual_us: float) -> None:
        """Begin with the next change: check that it does not alter the model's results, and then prepare to time it."""
        earlier = [x.name for x in self._tried if x.same is not None]
        name = next((x for x in self._left if fits(x, earlier)), None)
        if name is None or late:  # An action that does not fit is tried in another process.
            self._end(NO_TIME if self._left and late else "")
            return
        self._left.remove(name)
        now = self._now = Tried(name)
        self._tried.append(now)
        switch = self._switch = made(now.name, self._rows)
        now.comparison = Comparison(usual_us, self._expected, self._floor)
        with self._problems():
            now.same = self._compared(switch)
            now.detail = switch.detail
            if not now.same.tells:
                raise RefusedError(
                    f"rounding alone changes the model's results by {now.same.allowed / ROUNDINGS:.0%}, so a "
                    "comparison of results cannot show that the change computes the same"
                )
            if not now.same.is_same:
                raise _DiffersError(
                    f"it computes something else: {now.same.how} differ by {now.same.deviation:.1e}, but rounding "
                    f"explains only {now.same.allowed:.1e}"
                )
        self._next_block(now.comparison)

    @contextlib.contextmanager
    def _problems(self) -> Iterator[None]:
        """Context for code that switches a change of the running job, such as TF32, on or off. Errors are kept.

        LateError is not caught.
        """
        try:
            yield
        except LateError:
            raise
        except RefusedError as why:
            # After the next step this process reports the error to all processes (ranks) of the job, and all give up
            # this change.
            self._problem = ["differs" if isinstance(why, _DiffersError) else "refused", str(why)]
        except Exception as error:  # Memory may be too short for a layer's second layout
            self._problem = ["refused", f"it could not be switched on: {_describe_error(error)}"]

    def _compared(self, switch: Switch) -> Same:
        """Check that the change does not alter the result of any recorded call. Return the worst result of the check.

        The worst one is a result that is not the same, or otherwise the one with the largest difference.
        """
        found: List[Same] = []
        for call in self._calls.values():
            results = Results(call, switch.roundoff, self._in_all)
            found.append(results.compare(self._switch_on, self._off_again))
        return max(found, key=lambda x: (not x.is_same, x.deviation))

    def _in_all(self, part: Callable[[], Any]) -> List[Any]:
        """Run ``part`` in all ranks (processes of the job), and return a list with the result of each rank.

        Raises RefusedError in every rank if ``part`` fails in one rank. Raises LateError if a rank takes too long.
        """
        assert self._ranks is not None
        found, why, over, failed = None, "", "", False
        try:
            found = part()
        except RefusedError as error:
            why = str(error)
        except (IncomparableError, UnknownShardingError) as error:
            why, failed = f"the action's result could not be compared: {error}", isinstance(error, IncomparableError)
        except NotRestoredError as error:
            why, over = str(error), f"{self._tried[-1].name} could not be undone: {error}"
        except Exception as error:
            why, failed = (
                f"the action's result could not be compared: {_describe_error(error)}",
                isinstance(error, RuntimeError),
            )
        heard = self._ranks.exchange({"found": found, "why": why, "over": over, "failed": failed})
        if any(x["over"] for x in heard):
            self._end(_first(heard, "over"))
        if not any(x["why"] for x in heard):
            return [x["found"] for x in heard]
        first = next(x for x in heard if x["why"])
        raise (_FailedError if first["failed"] else RefusedError)(first["why"])

    def _next_block(self, comparison: Comparison) -> None:
        if self._problem:
            self._units_left = 1
            return
        block = comparison.next
        self._units_left = block.units
        with self._problems():
            if block.on and block.control:
                self._off_again()
                self._switch_on()
                self._off_again()
            elif block.on and not self._on:
                self._switch_on()
            elif not block.on:
                self._off_again()

    def _following(self) -> None:
        self._now = self._switch = None
        self._agains = 0
        self._units_left = 0
        if not self._left:
            self._end("")

    def _give_up(self, how: str, why: str) -> None:
        """Stop trying the present change, and go on with the next one.

        ``how`` says how the trial of this change ended, for example ``refused``. ``why`` is the reason.
        """
        if self._now is not None and self._off():
            self._now.end(how, why)
            self._following()

    # -------------------------------------------------------------------------------------------------------- switching

    def _switch_on(self) -> None:
        assert self._switch is not None
        assert self._now is not None
        self._on = self._now.name
        self._write()
        models, optimizers = (
            [x for y in list(of.values()) if (x := y()) is not None] for of in (self._models, self._optimizers)
        )
        self._job = Job(models, optimizers)
        try:
            with torch.inference_mode(False):  # A tensor made in this mode could not be used outside of it
                self._switch.on(self._job)
        except BaseException:
            self._off()
            raise

    def _off_again(self) -> None:
        if not self._off():
            raise RefusedError(self.why)

    def _off(self) -> bool:
        """Switch off the change that is being tried. Return True if no change is on any more.

        If switching off fails, no other change is tried.
        """
        if not self._on or self._switch is None:
            return True
        name = self._on
        try:
            with torch.inference_mode(False):
                self._switch.off()
            self._on, self._job = "", Job([], [])
        except Exception as error:
            if self._now is not None:
                self._now.end("broken", f"the change could not be switched off: {_describe_error(error)}")
            self._end(f"{name} could not be switched off, so the job continues with it: {_describe_error(error)}")
            return False
        return True

    # ---------------------------------------------------------------------------------------------------------- the end

    def give_up(self, why: str) -> None:
        """Stop trying changes after an error in logparse's code. ``why`` is the error's text."""
        self._off()
        if self._now is not None and not self._now.ended:
            self._now.end("refused", why)
        self._end(why)

    def at_end(self) -> None:
        """Stop trying changes, because the process ends.

        If the program ends with an exception while a change is on, the change may be the cause, and is reported as
        *broken*. (``sys.last_value`` holds the exception.)
        """
        error = getattr(sys, "last_value", None)
        now = self._now
        if now is not None and not now.ended:
            if error is not None and self._on:
                now.end("broken", _describe_error(error))
            elif self._problem:
                now.end(*self._problem)
            else:
                now.end("units")
        if not self.over:
            self._off()
            self._end("" if error is None else f"the job ended with {_describe_error(error)}")

    def _end(self, why: str) -> None:
        self.over, self.why = True, self.why or why
        self._calls.clear()
        self._wants_calls = False
        self._write()

    def _rank_of_job(self) -> Dict[str, int]:
        """Return the rank of this process and the number of ranks, for example ``{"rank": 0, "ranks": 2}``.

        The rank and the number of ranks are still known if the job has already ended its process group.
        """
        ranks = self._ranks
        return rank_of_job() if ranks is None or ranks.count == 1 else {"rank": ranks.rank, "ranks": ranks.count}

    def _write(self) -> None:
        series = self._series
        write_whole(
            self._path,
            {
                "logparse_try": 1,
                "pid": Python.getpid(),
                **self._rank_of_job(),
                "over": self.over,
                "why": self.why,
                "on": self._on,
                "unit": self._sort,
                "units": series.count if series is not None else 0,
                "kinds": len(series.kinds) if series is not None else 0,
                "left": self._left,
                "actions": [x.record() for x in self._tried],
            },
        )


def _remember(known: Dict[int, Any], x: Any) -> bool:
    """Return True if the object ``x`` is seen for the first time, and remember it in ``known``.

    Only a weak reference is kept, so the job can still delete the object.
    """
    key = id(x)
    if key in known:
        return False
    known[key] = weakref.ref(x, lambda _: known.pop(key, None))
    return True


class _DiffersError(RefusedError):
    """Raised if the model's result with the change differs too much from its result without it."""


class _FailedError(RefusedError, RuntimeError):
    """Raised if the model raised a RuntimeError when logparse repeated a call, in this rank or in another one."""


def _first(said: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Search the messages of the ranks, beginning with rank 0, for a non-empty value with this name. Return the value.

    Returns an empty text if no message has such a value.
    """
    return next((x[name] for x in said if x[name]), "")


def _ranks() -> Alone:
    """Return the object by which the processes (ranks) of the job agree when to switch a change on or off."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return Alone()
    try:
        # The ranks use the key-value store of the job's process group. Without such a store they cannot agree, so no
        # change is tried.
        store = distributed.distributed_c10d._get_default_store()
    except Exception as error:
        return Strangers(
            f"the job has {distributed.get_world_size()} ranks, but torch.distributed has no key-value store, in which "
            f"they could agree when to switch: {_describe_error(error)}"
        )
    return Ranks(store, distributed.get_rank(), distributed.get_world_size())


def _describe_error(error: Optional[BaseException]) -> str:
    """Return the type of an exception and the first line of its message, for example ``ValueError: bad size``."""
    if error is None:
        return "an exception"
    text = str(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
