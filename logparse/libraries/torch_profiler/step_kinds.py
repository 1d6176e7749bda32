"""Find out whether the marked steps of a trace are of several kinds, for example training and evaluation.

The profiler numbers all steps alike (``ProfilerStep#3``). A step's kind is the longest annotation of the program
(``record_function``) that begins in the step and covers at least half of it. The steps are of several kinds only if
each kind's annotation is in no step of another kind. A serving engine's step is of the kind that its mark names.

If no annotation tells the kinds, steps are put into groups by what they do: by their number of operators, or else by
their wall time. They are of several kinds only if the groups are clearly apart:

====================  ========================================  =================================
groups by             least step from a group to the next       largest spread within a group
====================  ========================================  =================================
number of operators   a quarter more, and 20 operators more     less than that from step to step
wall time             half as much again                        15 %
====================  ========================================  =================================

A group by time has at least two steps. The first marked step alone is no group, because it often warms something up.

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
    import numpy.typing as npt

    from logparse.libraries.torch_profiler.records import Columns

_HALF = 0.5
_MORE, _MORE_OPERATORS = 1.25, 20
_LONGER, _ALIKE = 1.5, 1.15
_LEAST_STEPS = 3
_NUMBER = re.compile(r"\d+")


def step_kinds(columns: Columns) -> Iterator[Fact]:
    """State the kinds of a trace's steps, if there are at least two."""
    steps = [(start, us) for name, start, us, _ in columns.marks if (x := MARK.match(name)) and x[1] and us > 0]
    kinds = _annotated(columns, steps) if steps else _served(columns)
    if steps and len(kinds) <= 1:
        kinds = _grouped(columns)
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


def _grouped(columns: Columns) -> dict[str, list[float]]:
    """Return the wall times of the steps (µs) of each group that no annotation names. Empty without clear groups."""
    marks = [x for x in columns.marks if (found := MARK.match(x[0])) and found[1] and x[2] > 0]
    marks.sort(key=lambda x: x[1])
    begin, us = (np.array([x[at] for x in marks]) for at in (1, 2))
    # Steps of several processes or threads overlap, and their operators cannot be told apart by time.
    if len(marks) < _LEAST_STEPS or not np.isfinite(us).all() or (begin[:-1] + us[:-1] > begin[1:] + 1.0).any():
        return {}
    # Rounded times may let a step begin a little before the end of the step before it.
    edges = np.maximum.accumulate(np.stack([begin, begin + us], axis=1).ravel())
    within = np.searchsorted(edges, np.array(columns.op_start), side="right")
    count = np.bincount(within, minlength=len(edges) + 1)[1 : len(edges) : 2].astype(np.float64)
    groups = _apart(count, _MORE, _MORE_OPERATORS)
    if len(groups) > 1:
        mean = [count[group].mean() for group in groups]
        return {f"≈ {n:,.0f} operators": us[group].tolist() for n, group in zip(mean, groups, strict=True)}
    groups = _apart(us, _LONGER, 0.0)
    names = _BY_TIME.get(len(groups), ())
    if any(len(group) == 1 or us[group].max() > _ALIKE * us[group].min() for group in groups):
        return {}
    return {name: us[group].tolist() for name, group in zip(names, groups, strict=bool(names))}


_BY_TIME = {2: ("short", "long"), 3: ("short", "medium", "long")}
"""The names of groups by wall time, by their number. More groups are steps of many lengths, not kinds of steps."""


def _apart(value: npt.NDArray[np.float64], ratio: float, more: float) -> list[npt.NDArray[np.int64]]:
    """Split steps where their sorted values jump by a ratio and a difference. Leave out a group of the first step.

    Returns the numbers of the steps of each group, the smallest values first.
    """
    order = np.argsort(value, kind="stable")
    ordered = value[order]
    jumps = (ordered[1:] >= ratio * ordered[:-1]) & (ordered[1:] >= ordered[:-1] + more)
    return [group for group in np.split(order, np.flatnonzero(jumps) + 1) if group.tolist() != [0]]


def _served(columns: Columns) -> dict[str, list[float]]:
    """Return the wall times of a serving engine's steps (µs) of each kind, such as ``step[DECODE bs=#]``."""
    marks = sorted((x for x in columns.marks if (found := MARK.match(x[0])) and found[3]), key=lambda x: x[2])
    names = {(start, thread): name for name, start, _, thread in marks}  # the longest mark of a moment is the last
    out: dict[str, list[float]] = {}
    for start, end, thread in serving_steps(columns):
        out.setdefault(_NUMBER.sub("#", names.get((start, thread), "")), []).append(end - start)
    return out
