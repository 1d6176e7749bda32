"""Find the places in the program that call the matrix products and convolutions of a trace.

``torch.profiler.profile(with_stack=True)`` records each call of a Python function as an event::

    {"ph": "X", "cat": "python_function", "name": "model.py(9): attention", "pid": 394, "tid": 394,
     "ts": 4381042530804.283, "dur": 255.273, "args": {"Python id": 37, "Python parent id": 26, …}}

The number in the name is the line in which the function begins. Source of the name: ``PyCallKey`` in pytorch/pytorch
``torch/csrc/autograd/profiler_python.cpp``. PyTorch removes the folders of ``sys.path`` from the file's name, also the
folder of installed packages.

* The place of an operator is the innermost function of the program that was open on the operator's thread.
* Functions of PyTorch, of Python's library and of installed packages whose folder the trace names are not the program.
* Most operators of the backward pass run in a thread of autograd, which runs no function of the program. So the place
  of the forward operator with the same ``Sequence number`` is taken.
* If neither is known, the operator has no place.

Operators come before functions in the file. So the reader keeps the beginning and the end of the program's functions
(24 bytes each), and nothing of other functions.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.places import fact
from logparse.model import Fact, Problem

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CATEGORY = "python_function"
BACKWARD = "autograd::engine::evaluate_function: "
"""Beginning of the name of the operator that autograd runs for each step of the backward pass."""
_NAME = regex(r"([^<].*)\((\d+)\): (.+)", re.DOTALL)
_LONGEST = 1000
"""The maximum length of the name of a function that is kept, in characters."""
_LIBRARIES = ("torch/", "torchgen/", "functorch/", "logparse_in_job/")
_FOLDERS = ("site-packages/", "dist-packages/", "/torch/", "torchinductor_", "/logparse_in_job/")
_STANDARD = regex(r"(?:.*/)?lib/python3[^/]*/")
_MODULES = frozenset(
    ("_bootstrap", "abc", "ast", "asyncio", "collections", "concurrent", "contextlib", "contextvars", "copy", "ctypes",
     "dataclasses", "enum", "functools", "importlib", "inspect", "logging", "multiprocessing", "pickle", "random",
     "re", "runpy", "subprocess", "threading", "traceback", "typing", "unittest", "warnings", "weakref")
)  # fmt: skip
"""Modules of Python's library that call functions of others, or that PyTorch calls.

The list is short, because the program may have a file with the name of another module, such as ``profile.py``.
"""


def place(name: str) -> tuple[str, str] | None:
    """Return the file with its line, and the function, from the name of an event of a Python function.

    Returns None if the function does not belong to the program.
    """
    if name.startswith(("<", "nn.Module: ", *_LIBRARIES)) or len(name) > _LONGEST:
        return None
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    file, line, function = found[1].replace("\\", "/"), found[2], found[3]
    module = file.partition("/")[0].removesuffix(".py")
    if module in _MODULES or any(folder in file for folder in _FOLDERS) or _STANDARD.match(file):
        return None
    return f"{found[1]}:{line}", function


class Frames:
    """The functions of the program that a trace recorded, as columns. Times are in µs."""

    def __init__(self) -> None:
        self.places: list[tuple[str, str]] = []
        self.place, self.thread = array("i"), array("i")
        self.start, self.end = array("d"), array("d")
        self.sequence = array("q")
        """The ``Sequence number`` of each operator, or -1. Empty if the header does not say that functions are traced.
        """
        self._known: dict[str, int] = {}
        self._index: dict[tuple[str, str], int] = {}

    def index(self, name: str) -> int:
        """Return the number of the place that an event's name states. It is -1 if the function is not the program's."""
        if name.startswith("<"):  # such a name may hold the address of an object, so that there are very many of them
            return -1
        known = self._known.get(name)
        if known is None:
            found = place(name)
            known = -1
            if found is not None and (known := self._index.setdefault(found, len(self.places))) == len(self.places):
                self.places.append(found)
            self._known[name] = known
        return known

    def add(self, place: int, thread: int, start: float, us: float) -> None:
        """Keep one call of a function of the program. ``place`` is a result of ``index``."""
        self.place.append(place)
        self.thread.append(thread)
        self.start.append(start)
        self.end.append(start + us)


def innermost(start: Floats, end: Floats, times: Floats) -> Ints:
    """Return for each time the index of the innermost period that contains it, or -1.

    The periods must be nested, as the calls of functions on one thread are.
    """
    if not len(start):
        return np.full(len(times), -1, dtype=np.int64)
    order = np.lexsort((-end, start))
    begins, ends = start[order], end[order].tolist()
    around, opened = array("q"), list[int]()
    for i, begin in enumerate(begins.tolist()):
        while opened and ends[opened[-1]] <= begin:
            opened.pop()
        around.append(opened[-1] if opened else -1)
        opened.append(i)
    found = (np.searchsorted(begins, times, side="right") - 1).tolist()
    for i, time in enumerate(times.tolist()):
        at = found[i]
        while at >= 0 and not ends[at] > time:  # also if the time is NaN, that is, not stated
            at = around[at]
        found[i] = at
    return np.append(order, -1)[np.array(found, dtype=np.int64)]


@dataclass(frozen=True)
class Operators:
    """The operators of a trace, as columns. Times are in µs.

    ``backward`` is True for the operators whose name begins with ``BACKWARD``.
    """

    thread: Ints
    start: Floats
    us: Floats
    backward: npt.NDArray[np.bool_]


def called_from(
    frames: Frames, ops: Operators, op: Ints, problem: Ints, us: Floats, problems: Sequence[Problem]
) -> Iterator[Fact]:
    """State for each matrix product and convolution from where the program calls it.

    ``op``, ``problem`` and ``us`` hold each kernel's operator, its problem (-1: none) and its time in µs.
    """
    if not len(frames.place):
        return
    asked = np.flatnonzero((problem >= 0) & (op >= 0) & (op < len(ops.start)))
    distinct, of = np.unique(op[asked], return_inverse=True)
    found = _places(frames, ops, distinct)[of]
    total: dict[int, dict[tuple[str, str], float]] = defaultdict(dict)
    for which, at, time in zip(problem[asked].tolist(), found.tolist(), us[asked].tolist(), strict=True):
        if at >= 0:
            mine = total[which]
            mine[frames.places[at]] = mine.get(frames.places[at], 0.0) + time
    for which, mine in total.items():
        yield fact(problems[which].text, mine)


def _places(frames: Frames, ops: Operators, asked: Ints) -> Ints:
    """Return the number of the place of each operator in ``asked``, or -1."""
    sequence = np.full(len(ops.start), -1, dtype=np.int64)
    known = np.array(frames.sequence, dtype=np.int64)[: len(sequence)]
    sequence[: len(known)] = known
    found, backward = _find_innermost(frames, ops, sequence, asked)
    wanted = np.unique(backward[backward >= 0])
    if not len(wanted):
        return found
    forward = np.flatnonzero(np.isin(sequence, wanted) & ~ops.backward)
    at, of_backward = _find_innermost(frames, ops, sequence, forward)
    forward, at = forward[of_backward < 0], at[of_backward < 0]
    # Operators that need no gradient have the number of the next operator that needs one. So the last one is it.
    last: dict[int, dict[int, tuple[float, int]]] = defaultdict(dict)
    for number, thread, start, where in zip(
        sequence[forward].tolist(), ops.thread[forward].tolist(), ops.start[forward].tolist(), at.tolist(), strict=True
    ):
        last[number][thread] = max((start, where), last[number].get(thread, (-np.inf, -1)))
    # Each thread counts for itself. A number that stands for several places leads to no place.
    places = {number: {where for _, where in each.values()} for number, each in last.items()}
    one = {number: next(iter(each)) for number, each in places.items() if len(each) == 1}
    return np.where(backward >= 0, [one.get(number, -1) for number in backward.tolist()], found).astype(np.int64)


def _find_innermost(frames: Frames, ops: Operators, sequence: Ints, asked: Ints) -> tuple[Ints, Ints]:
    """Return what is innermost around each operator: the number of a place, and the sequence of a backward operator.

    Each is -1 if it is not the innermost. A backward operator without a sequence number leaves both at -1.
    """
    found, backward = np.full(len(asked), -1, dtype=np.int64), np.full(len(asked), -1, dtype=np.int64)
    place, of = (np.frombuffer(x, dtype=np.int32).astype(np.int64) for x in (frames.place, frames.thread))
    start, end = np.frombuffer(frames.start), np.frombuffer(frames.end)
    timed = ops.backward & np.isfinite(ops.start) & np.isfinite(ops.us)
    for thread in np.unique(ops.thread[asked]).tolist():
        mine = np.flatnonzero(ops.thread[asked] == thread)
        functions, steps = np.flatnonzero(of == thread), np.flatnonzero(timed & (ops.thread == thread))
        starts = np.concatenate((start[functions], ops.start[steps]))
        ends = np.concatenate((end[functions], ops.start[steps] + ops.us[steps]))
        inner = innermost(starts, ends, ops.start[asked[mine]])
        found[mine] = np.concatenate((place[functions], np.full(len(steps) + 1, -1, dtype=np.int64)))[inner]
        no_steps = np.full(len(functions), -1, dtype=np.int64)
        backward[mine] = np.concatenate((no_steps, sequence[steps], [-1]))[inner]
    return found, backward
