"""Count calls of models and steps of optimizers at least cost, once all traces of the job are written.

Between two of its steps a job fills the processor's caches with its own data. Every function, object and dictionary of
ours that is used then costs about a microsecond. So once tracing is over, a usual call of a model runs few functions of
logparse (``begin`` and ``over``), and a usual step of an optimizer one (``step_ended``).

A call is counted when it is over. A job that waits for the GPU in every step then loses only the time of ``begin``:
when ``over`` runs, the GPU still works on the kernels of the call.

The functions count exactly what the observer's full functions (``Observer.begin``, ``Observer.end_step``) would count:

* They make the same checks. If a check or a look-up fails, they have changed nothing, and call the full function.
* They read a call's inputs after the call, if an earlier call of a model of that class has left its inputs unchanged.
  If a model changes the shapes of its inputs only in some calls, such a call may get another name.
* They name nothing. A full function names a call and remembers its counter under a key. The key holds everything that
  the name depends on. For an equal key, the functions here raise the same counter.
* Each thread has counters of its own, so no lock is needed. ``fold`` adds them to the observer's series, and the
  observer calls it before it reads a series.

``tests/capture/in_job/test_lean.py`` compares the results with those of the full functions alone.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import torch
from torch.optim.optimizer import Optimizer

from . import dynamo, ordinary
from .sizes import function_modes, sizes
from .under_way import Calls, Leaders
from .units import Kind, Series
from .unpatched import Python

if TYPE_CHECKING:
    from .observer import Observer

_MOST_KEYS = 1000
_hooked = getattr(getattr(Optimizer, "profile_hook_step", None), "__code__", None)
_STEP = next((x for x in getattr(_hooked, "co_consts", ()) if getattr(x, "co_name", "") == "wrapper"), None)
"""Code of the function in which PyTorch calls every optimizer's ``step``, and the hooks after it.

If it is not found, every step is counted by the full function.
"""


class Counter:
    """Counts the calls or steps with one name in one thread. ``folded`` of them are counted in ``series``, too."""

    __slots__ = ("count", "folded", "kind", "series")

    def __init__(self, series: Series, kind: Kind) -> None:
        self.count = self.folded = 0
        self.series, self.kind = series, kind

    def fold(self) -> None:
        count = self.count
        self.series.count += count - self.folded
        self.kind.count += count - self.folded
        self.folded = count


class Inputs:
    """The inputs of a call: their text, and the counter of calls with them without gradients."""

    __slots__ = ("alone", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.alone: Optional[Counter] = None


class Known(NamedTuple):
    """Knowledge of the functions in this module about a call, when they leave it to a full function.

    * ``key``: what the name of the call's inputs depends on. The call's counter is remembered under it.
    * ``text``: the text of the inputs. None if it is unknown.
    * ``late``: True if the call is already over, and is only counted.
    """

    key: Any = None
    text: Optional[str] = None
    late: bool = False


UNKNOWN = Known()


class Counts:
    """The counters of one thread, by what the name of a call or step depends on.

    * ``inputs``: by the types, shapes and layouts of a call's inputs.
    * ``forwards`` and ``steps``: by the inputs of the first call in a step, the number of calls, and the phase of the
      job. They hold calls with gradients, and steps of the optimizer.
    * ``keeping``: the classes of models (``id``) whose calls leave their inputs as they are. Only then the inputs are
      read after the call. A class of ``torch.fx`` is never one of them.
    """

    __slots__ = ("__weakref__", "_counters", "forward", "forwards", "inputs", "keeping", "optimizer", "steps")

    def __init__(self, leaders: Leaders) -> None:
        self.forward, self.optimizer = leaders["forward"], leaders["optimizer"]
        self.inputs: Dict[Any, Inputs] = {}
        self.forwards: Dict[Any, Counter] = {}
        self.steps: Dict[Any, Counter] = {}
        self.keeping: Set[int] = set()
        self._counters: Dict[int, Counter] = {}

    def counter(self, series: Series, kind: Kind) -> Counter:
        """Return the counter of a kind. A kind has one counter in each thread."""
        return self._counters.get(id(kind)) or self._counters.setdefault(id(kind), Counter(series, kind))

    def remember_inputs(self, key: Any, calls: Calls) -> Optional[Inputs]:
        """Remember the text of a call's inputs, if it is the first call in its step and ``begin`` has made a key."""
        return _remember(self.inputs, key, Inputs(calls.shapes)) if key is not None and calls.count == 1 else None

    def compare(self, module: Any, before: Any, after: Any) -> None:
        """Remember whether a call has changed its inputs. ``before`` and ``after`` are what ``read`` returned."""
        if before == after and type(before) is tuple:
            if len(self.keeping) >= _MOST_KEYS:
                self.keeping.clear()
            self.keeping.add(id(type(module)))

    def remember_period(self, sort: str, calls: Calls, series: Series, kind: Kind) -> None:
        """Remember which counter a step gets that ends after these calls."""
        leader, found = (self.optimizer, self.steps) if sort == "optimizer" else (self.forward, self.forwards)
        _remember(found, (calls.shapes, calls.count, leader.phase), self.counter(series, kind))


def _remember(found: Dict[Any, Any], key: Any, value: Any) -> Any:
    if len(found) >= _MOST_KEYS:
        found.clear()
    found[key] = value
    return value


class Lean:
    """State that the functions of this module share with the observer.

    * ``on``: True while calls are counted here. It is False until tracing is over, while the job captures a CUDA graph,
      and after an error.
    * ``due_s``: the moment from which the counts must be written again (``time.monotonic``).
    * ``latest``: the calls of the thread that has called a model last.
    * ``profiled``: True if a model was called while a Python profiler (such as cProfile) was on.
    """

    __slots__ = ("_threads", "due_s", "latest", "on", "profiled")

    def __init__(self, latest: Calls) -> None:
        self.begin_anew(latest)

    def begin_anew(self, latest: Calls) -> None:
        self.on, self.due_s, self.latest, self.profiled = False, 0.0, latest, False
        self._threads: List[Tuple[Callable[[], Optional[Counts]], Dict[int, Counter]]] = []

    def new_thread(self, leaders: Leaders) -> Counts:
        counts = Counts(leaders)
        self._threads.append((weakref.ref(counts), counts._counters))
        return counts

    def fold(self) -> None:
        """Add the counters of all threads to the series. The caller holds the observer's lock."""
        for thread in list(self._threads):
            is_over = thread[0]() is None  # Asked first, because a thread may count until it is over
            for counter in list(thread[1].values()):
                if counter.count != counter.folded:
                    counter.fold()
            if is_over:
                self._threads.remove(thread)


def functions(observer: Observer) -> Tuple[Callable[..., bool], Callable[..., None], Callable[..., None]]:
    """Return ``begin``, ``over`` and ``step_ended``, to be called in place of the observer's full functions."""
    # Variables of this function are found faster than attributes and globals.
    here, lean, guard = observer.here, observer.lean, observer.guard
    full_begin, full_end, full_step = observer.begin, observer.ended, observer.end_step
    profiler, getframe, monotonic, modes = sys.getprofile, sys._getframe, Python.monotonic, function_modes
    callback, grad_enabled, backward_task = dynamo.callback, torch.is_grad_enabled, ordinary.backward_task
    flags, compiling, is_tracing = ordinary.flags, ordinary.COMPILING, ordinary.is_tracing
    dispatch_modes, transforms = ordinary.dispatch_modes, ordinary.transforms
    graph_module, tensor, parameter = torch.fx.GraphModule, torch.Tensor, torch.nn.Parameter
    containers = frozenset((tuple, list, dict))

    def read(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """Return what the name of a call's inputs depends on. It is a text if the inputs must be read at the begin.

        Returns None if the inputs must not be read: something records, transforms or compiles the operators of the
        call.
        """
        if (
            flags[compiling]
            or is_tracing()
            or dispatch_modes()
            or transforms() is not None
            or backward_task() != -1
            or modes()
        ):
            return None
        key: Any = ()
        try:
            for value in (*args, *kwargs.values()) if kwargs else args:
                kind = type(value)
                if kind is tensor or kind is parameter:
                    key += (value.dtype, value.shape, value.layout)
                    if len(key) == 6:  # Two tensors name a call
                        break
                elif kind in containers:
                    return sizes(args, kwargs)
        except RuntimeError:  # A nested tensor has no shape
            return sizes(args, kwargs)
        return key

    def begin(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
        """Note that the job calls a model. Return True if logparse notes the end of this call, too."""
        if profiler() is not None:
            lean.profiled = True
            return False
        mine: Dict[str, Any] = here.__dict__
        counts: Optional[Counts] = mine["lean"]
        key: Any = None
        if counts is not None and lean.on and not mine["within"]:
            mine["inside"] = True  # A signal handler or finalizer that runs now and calls a model is not counted
            if id(type(module)) in counts.keeping:
                mine["later"] = mine["whole"] = True
                return True
            try:
                if not issubclass(type(module), graph_module):
                    key = read(args, kwargs)
                    if key in counts.inputs:
                        mine["key"] = key
                        mine["later"] = mine["whole"] = True
                        return True
            except RecursionError:
                mine["inside"] = False
                return False
            except BaseException as error:
                mine["inside"] = False
                if guard.must_raise(error):
                    raise
                return False
            mine["inside"] = False
        try:
            return full_begin(module, args, kwargs, Known(key))
        except RecursionError:  # Python's stack has no room for it
            return False

    def over(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        """Note that a call has ended for which ``begin`` has returned True. Count it, unless ``begin`` has done so."""
        mine: Dict[str, Any] = here.__dict__
        if not mine["later"]:
            mine["inside"] = False
            return
        mine["later"] = False
        key: Any = None
        known, mine["key"] = mine["key"], None
        found: Optional[Inputs] = None
        try:
            counts: Optional[Counts] = mine["lean"]
            if counts is not None and lean.on and (key := read(args, kwargs)) is not None:
                calls: Calls = mine["calls"]
                number, shapes = calls.count, calls.shapes
                if mine["open"]:
                    calls.count, lean.latest = number + 1, calls
                    return
                if known is not None:
                    counts.compare(module, known, key)
                    key = known
                elif type(key) is str:
                    counts.keeping.discard(id(type(module)))
                grad = grad_enabled()
                if not (number and grad):
                    found = counts.inputs.get(key)
                    shapes = "" if found is None else found.text
                if grad:
                    forward = counts.forward
                    if forward.leader == id(module) and forward.alone and (number or found is not None):
                        counter = counts.forwards.get((shapes, number + 1, forward.phase))
                        if counter is not None:
                            calls.count, calls.shapes, lean.latest = number + 1, shapes, calls
                            if mine["whole"]:
                                counter.count += 1
                            return
                elif found is not None and found.alone is not None and monotonic() < lean.due_s:
                    found.alone.count += 1
                    lean.latest = calls
                    return
        except RecursionError:
            return
        except BaseException as error:
            if guard.must_raise(error):
                raise
            return
        finally:
            mine["inside"] = False
        try:
            if full_begin(module, args, kwargs, Known(key, None if found is None else found.text, late=True)):
                full_end(module, None, mine["whole"])
        except RecursionError:
            return

    def step_ended(optimizer: Any, args: Any, kwargs: Any) -> None:
        """Note that an optimizer has made a step. Steps beneath ``torch.compile`` are not counted.

        If a window ended there, PyTorch's profiler would print a warning about the compiled region that is still open.
        """
        if callback() is not None:
            return
        mine: Dict[str, Any] = here.__dict__
        counts: Optional[Counts] = mine["lean"]
        if counts is None or not lean.on or mine["within"]:
            full_step(optimizer, args, kwargs)
            return
        mine["within"] = True
        try:
            leader, calls = counts.optimizer, mine["calls"]
            frame = getframe(1)
            if (
                calls.count
                and leader.leader == id(optimizer)
                and leader.alone
                and not mine["inside"]
                and not mine["open"]
                and not flags[compiling]
                and not is_tracing()
                and not dispatch_modes()
                and transforms() is None
                and frame.f_code is _STEP
                and monotonic() < lean.due_s
            ):
                counter = counts.steps.get((calls.shapes, calls.count, leader.phase))
                if counter is not None:
                    outer = frame.f_back
                    while outer is not None:
                        if outer.f_code is _STEP:  # Another optimizer's ``step`` has called this one
                            return
                        outer = outer.f_back
                    counter.count += 1
                    calls.count, calls.shapes = 0, ""
                    return
        except BaseException as error:
            if guard.must_raise(error):
                raise
            return
        finally:
            mine["within"] = False
        full_step(optimizer, args, kwargs)
        return

    return begin, over, step_ended
