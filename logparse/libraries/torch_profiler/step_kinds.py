"""Find out whether the marked steps of a trace are of several kinds, for example training and evaluation.

The profiler numbers all steps alike (``ProfilerStep#3``). A step's kind is the longest annotation of the program
(``record_function``) that begins in the step and covers at least half of it. The steps are of several kinds only if
each kind's annotation is in no step of another kind. A serving engine's step is of the kind that its mark names.

The fact lists the kinds, with the number of steps and their mean wall time in µs::

    step_kinds    {"eval": [2, 25013.4], "train": [3, 130250.1]}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from logparse.libraries.torch_profiler.inputs import STEP_KINDS
from logparse.libraries.torch_profiler.timeline import MARK, serving_steps
from logparse.model import Fact

if TYPE_CHECKING:
    from logparse.libraries.torch_profiler.records import Columns

_HALF = 0.5
_NUMBER = re.compile(r"\d+")


def step_kinds(columns: Columns) -> Iterator[Fact]:
    """State the kinds of a trace's steps, if there are at least two."""
    steps = [(start, us) for name, start, us, _ in columns.marks if (x := MARK.match(name)) and x[1] and us > 0]
    kinds = _annotated(columns, steps) if steps else _served(columns)
    if len(kinds) > 1 and all(math.isfinite(x) for us in kinds.values() for x in us):
        found = {name: [len(us), round(float(np.mean(us)), 3)] for name, us in sorted(kinds.items())}
        yield Fact(STEP_KINDS, json.dumps(found, ensure_ascii=False))


def _annotated(columns: Columns, steps: list[tuple[float, float]]) -> dict[str, list[float]]:
    """Return the wall times of the steps (µs) of each kind. Empty if it is unknown for a step what kind it is."""
    ids, name = np.unique(np.array(columns.annotation_name, dtype=np.int64), return_inverse=True)
    texts = [columns.names[x] for x in ids.tolist()]
    kinds = [_NUMBER.sub("#", x) for x in texts]
    marks = np.array([MARK.match(x) is not None for x in texts], dtype=bool)
    order = np.argsort(np.array(columns.annotation_start), kind="stable")
    order = order[~marks[name[order]]] if len(order) else order
    start, us, name = (x[order] for x in (np.array(columns.annotation_start), np.array(columns.annotation_us), name))
    out: dict[str, list[float]] = {}
    within: dict[str, set[str]] = {}
    for begin, lasts in steps:
        first, last = np.searchsorted(start, (begin, begin + lasts)).tolist()
        if first == last:
            return {}
        shared = np.minimum(start[first:last] + us[first:last], begin + lasts) - start[first:last]
        most = int(np.argmax(shared))
        if shared[most] < _HALF * lasts:
            return {}
        kind = kinds[name[first + most]]
        out.setdefault(kind, []).append(lasts)
        within.setdefault(kind, set()).update(kinds[x] for x in np.unique(name[first:last]).tolist())
    # An annotation that is in steps of two kinds is a part of a step, such as its backward pass.
    apart = all(kind not in names for kind in out for of, names in within.items() if of != kind)
    return out if apart else {}


def _served(columns: Columns) -> dict[str, list[float]]:
    """Return the wall times of a serving engine's steps (µs) of each kind, such as ``step[DECODE bs=#]``."""
    marks = sorted((x for x in columns.marks if (found := MARK.match(x[0])) and found[3]), key=lambda x: x[2])
    names = {(start, thread): name for name, start, _, thread in marks}  # the longest mark of a moment is the last
    out: dict[str, list[float]] = {}
    for start, end, thread in serving_steps(columns):
        out.setdefault(_NUMBER.sub("#", names.get((start, thread), "")), []).append(end - start)
    return out
