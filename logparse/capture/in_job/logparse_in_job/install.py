"""Start observing a job, in a process of the job that has just imported torch.

PyTorch's functions for modules, optimizers and CUDA graphs are wrapped, so that logparse can count the job's steps.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
from multiprocessing import util as multiprocessing_util
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from . import dynamo, ordinary
from .by_time import ByTime
from .guard import Guard
from .importlib_bootstrap_frames import around, following_method, module_call
from .module_frame import in_the_same_frame
from .observer import Observer
from .profiler import when_job_profiles
from .when_defined import is_script, when_defined
from .when_executed import when_executed

_REQUESTS = (
    "transformers.generation.utils:GenerationMixin.generate",
    "vllm.v1.engine.core:EngineCore.step",
    "vllm.v1.worker.gpu_worker:Worker.execute_model",
    "sglang.srt.managers.scheduler:Scheduler.run_batch",
)
"""Functions whose calls are the steps of a serving process.

vLLM's engine core may run in another process than its workers.
"""

_AFTER_THE_JOB = -1000
"""Priority with which ``multiprocessing`` calls our function when a process ends, after the functions of the job."""

observer: Optional[Observer] = None


def install() -> None:
    """Start counting and timing the job's steps (training steps or requests) in this process.

    A second call does nothing. Nothing is done in a process that compiles for ``torch.compile``.
    """
    global observer  # noqa: PLW0603
    if observer is None and not ordinary.is_compile_worker():
        observer = Observer()
        observer.guard(_install)(observer)


def _install(found: Observer) -> None:
    _wrap_modules(found)
    dynamo.hide(found.step_ended, _no_hook)
    register_optimizer_step_post_hook(found.step_ended)
    when_job_profiles(found.make_way)
    _wrap_graphs(found)
    _wrap_functions(found)
    if found.trial is not None:
        _wrap_saving(found)
    os.register_at_fork(before=found.give_up_window, after_in_child=found.reset)
    atexit.register(_at_end, found, found.at_end)
    multiprocessing_util.register_after_fork(found, _when_started_by_multiprocessing)
    if found.traced:
        guard = found.guard
        ByTime(
            found.seconds or 2.0,
            bool(found.seconds),
            found.wants_time,
            guard(found.begin_time),
            guard(found.end_time),
        ).start()


def _no_hook(optimizer: Any, args: Any, kwargs: Any) -> None: ...


def _wrap_modules(found: Observer) -> None:
    original = torch.nn.Module.__call__
    found.with_a_frame = module_call(original, found.here, found)
    found.compiles = dynamo.callback
    wrapper = _in_the_same_frame(original, found) or found.with_a_frame
    for function in (wrapper, found.with_a_frame):
        dynamo.hide(function, original)
    for function in (found.usual_begin, found.over, found.begin, found.ended, found.failed):
        dynamo.hide(function)
    dynamo.take_for_original(original, wrapper)
    names = [name for name, value in vars(torch.nn.Module).items() if value is original]
    for name in names:  # PyTorch's ``__call__`` and ``_wrapped_call_impl`` are one function, and must stay one
        setattr(torch.nn.Module, name, wrapper)


def _in_the_same_frame(original: Any, found: Observer) -> Any:
    try:
        return in_the_same_frame(original, found.here, found)
    except Exception:  # Python cannot read the source
        return None


def _wrap_graphs(found: Observer) -> None:
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is None:
        return
    guard = found.guard

    def begin_capture(args: Any, kwargs: Any) -> Any:
        found.tracing.graphs.capture_begins(args[0])
        found.lean.on = False
        return args[0]

    def capture_begun(graph: Any, whole: bool) -> None:
        if not whole and graph is not None:
            found.tracing.graphs.capture_ended(graph, None)

    def end_capture(graph: Any, whole: bool) -> None:
        if graph is not None:
            number = found.tracing.graphs.number(graph)
            found.tracing.graphs.capture_ended(graph, found.record.capture_path(number) if whole else None)
            found.host.disturbed = True

    graph.capture_begin = _around(found, graph.capture_begin, guard(begin_capture), guard(capture_begun))
    graph.capture_end = _around(found, graph.capture_end, lambda args, kwargs: args[0], guard(end_capture))
    begin = guard(lambda args, kwargs: found.begin_replay(args[0]))
    graph.replay = _around(found, graph.replay, begin, guard(found.end_replay))


def _around(found: Observer, function: Any, begin: Callable[..., Any], end: Callable[..., None]) -> Callable[..., Any]:
    wrapper = around(function, ordinary.is_compiling, dynamo.uncompiled(begin), dynamo.uncompiled(end))
    dynamo.hide(wrapper)
    return wrapper


def _wrap_saving(found: Observer) -> None:
    """Arrange that a tested change is taken back before the job saves, loads or copies its models, or forks.

    A saved model must not contain a change such as TF32, which is switched on only to measure its effect.
    """

    def begins(args: Any, kwargs: Any) -> None:
        if found.trial is not None:
            found.trial.saved(args[0] if args else None)

    begin = found.guard(begins)
    os.register_at_fork(before=lambda: begin((), {}))
    if "__reduce_ex__" not in vars(torch.nn.Module):
        torch.nn.Module.__reduce_ex__ = following_method(torch.nn.Module, "__reduce_ex__")
    # These functions save, load or copy models. ``copy`` and ``pickle`` call ``__reduce_ex__``.
    for holder, names in (
        (torch.nn.Module, ("state_dict", "load_state_dict", "__reduce_ex__")),
        (Optimizer, ("state_dict", "load_state_dict")),
        (torch, ("save",)),
    ):
        for name in names:
            setattr(holder, name, _around(found, getattr(holder, name), begin, lambda token, whole: None))


def _wrap_functions(found: Observer) -> None:
    """Arrange that the user's function (``--unit``) and the request handlers of known servers are wrapped.

    So their calls can be counted and timed. Each function is wrapped as soon as the program has imported its module.
    """
    names: Dict[str, List[Tuple[str, str]]] = {}
    for sort, text in (("named", found.named), *(("request", text) for text in _REQUESTS)):
        module, _, name = text.partition(":")
        if module:
            names.setdefault(module, []).append((sort, name))

    def wrap(module: Any) -> None:
        for sort, name in names[module.__name__]:
            _wrap_function(found, module, sort, name)

    def wrap_in_script() -> None:
        _wrap_function(found, sys.modules["__main__"], "named", found.named.partition(":")[2])

    module, _, name = found.named.partition(":")
    if module and is_script(module):
        why = when_defined(name.partition(".")[0], _once_guarded(found, wrap_in_script))
        if why:
            found.record.note(f"--unit {found.named}: {why}")
    # The file of the script may be imported as a module as well.
    when_executed({name: _once_guarded(found, wrap) for name in names if name != "__main__"})


def _once_guarded(found: Observer, function: Callable[..., None]) -> Callable[..., None]:
    """Guard a function that is called now, within a guarded function, or later.

    A guarded function does nothing within another one, so the function itself is called there.
    """
    guarded = found.guard(function)

    def call(*args: Any) -> None:
        if found.guard.thread.within:
            function(*args)
        else:
            guarded(*args)

    return call


def _wrap_function(found: Observer, module: Any, sort: str, name: str) -> None:
    """Wrap a function of a module, so that each call of the function counts as a step of the job.

    ``name`` is ``function`` or ``Class.method``. Static methods and class methods stay what they are. Coroutines are
    not wrapped.
    """
    *path, last = name.split(".")
    holder = module
    for part in path:
        holder = getattr(holder, part, None)
    held = inspect.getattr_static(holder, last, None)
    function = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
    if not inspect.isroutine(function) or inspect.iscoroutinefunction(function):
        if sort == "named":
            what = "a coroutine" if inspect.iscoroutinefunction(function) else "not a function"
            found.record.note(f"--unit {found.named}: {name} of {module.__name__} is {what}")
        return
    wrapper = _around(
        found,
        function,
        found.guard(lambda args, kwargs: found.begin_function(sort, args, kwargs)),
        found.guard(lambda token, whole: found.end_function(sort, token, whole)),
    )
    if inspect.isfunction(function):
        # Dynamo meets the wrapper if the job compiles a function that calls it, and then compiles the job's own one.
        dynamo.hide(wrapper, function)
    same = type(held) if isinstance(held, (staticmethod, classmethod)) else lambda made: made
    setattr(holder, last, same(wrapper))


def _when_started_by_multiprocessing(found: Observer) -> None:
    """Arrange that a process that ``multiprocessing`` has just forked writes its counts when it ends.

    Such a process calls no ``atexit`` function that was registered before the fork. It writes no remark on a missing
    trace, because it may be a helper of the process that does the job's steps.
    """

    def at_end() -> None:
        if found.has_steps:
            _at_end(found, found.finish)

    if found.is_forked:
        multiprocessing_util.Finalize(None, at_end, exitpriority=_AFTER_THE_JOB)


def _at_end(found: Observer, finish: Callable[[], None]) -> None:
    """Stop the profiler when the interpreter exits, even after an error in logparse's code.

    A profiler that is still on at this time would crash the process.
    """
    found.guard.on = False  # first, so that no window begins any more, also not from another thread
    Guard(lambda why: None)(finish)()
