"""How busy the GPU was while the profiler recorded: the union of its kernels, in the window of the marked steps.

The window begins with the first kernel that was launched within the trace: a GPU that lags behind still runs
kernels of the step before, which are kept as ``BEFORE``.  It ends with the last kernel or the last marked step,
whichever is later.  Of several devices the mean is taken.  The facts::

    gpu_window_us                  length of that window
    gpu_busy_us                    any kernel runs (streams overlap: less than the sum of the kernels)
    gpu_compute_us                 any kernel runs that is no collective
    gpu_communication_alone_us     only collectives run
    gpu_copies_us                  copies and fills of memory, which are no kernels
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from logparse.libraries.kinds.patterns import regex
from logparse.model import MOST_US, Collective, Fact, Reject

Floats: TypeAlias = npt.NDArray[np.float64]

BEFORE = "(launched before the trace)"
"""The operator of kernels that ran in the trace and were launched before it."""
COMMUNICATION = regex(
    r"nccl|rccl|all_?reduce|cross_device_reduce|all_?gather|reduce_?scatter|all_?to_?all|c10d|param_comms",
    re.IGNORECASE,
)
"""Names of kernels and operators of collectives: NCCL, RCCL, and those of inference engines (``cross_device_reduce``
is vLLM's and SGLang's custom all-reduce).
"""


@dataclass(frozen=True)
class Timeline:
    """Kernels of a trace as columns: start and duration (µs), whether their launch is known to be in the trace."""

    start: npt.NDArray[np.float64]
    us: npt.NDArray[np.float64]
    device: npt.NDArray[np.int64]
    launched: npt.NDArray[np.bool_]
    name: npt.NDArray[np.int64]


def before(kernels: Timeline) -> npt.NDArray[np.bool_]:
    """Which kernels were launched before the trace: those without a launch, up to the first kernel that has one."""
    if not kernels.launched.any():
        return np.zeros(len(kernels.launched), dtype=bool)
    out: npt.NDArray[np.bool_] = ~kernels.launched & (kernels.start < kernels.start[kernels.launched].min())
    return out


def busy(kernels: Timeline, names: Sequence[str], copies_us: float, steps_end: float | None) -> Iterator[Fact | Reject]:
    """The facts; none without kernels that the trace launched.  A reject where a time stamp must be wrong."""
    inside = ~before(kernels)
    if inside.any():
        begin, end = kernels.start[inside].min(), (kernels.start + kernels.us)[inside].max()
        window = max(end, steps_end or end) - begin
        if window > MOST_US:
            yield Reject(f"the kernels' time stamps are up to {window:.3g} µs apart: one of them is wrong")
            return
        talks = np.array([bool(COMMUNICATION.search(name)) for name in names], dtype=bool)[kernels.name]
        of = [inside & (kernels.device == device) for device in np.unique(kernels.device[inside])]
        total = sum(_ran(kernels, mine) for mine in of) / len(of)
        compute = sum(_ran(kernels, mine & ~talks) for mine in of) / len(of)
        yield Fact("gpu_window_us", f"{window:.3f}")
        yield Fact("gpu_busy_us", f"{total:.3f}")
        yield Fact("gpu_compute_us", f"{compute:.3f}")
        if talks[inside].any():
            yield Fact("gpu_communication_alone_us", f"{total - compute:.3f}")
    if copies_us:
        yield Fact("gpu_copies_us", f"{copies_us:.3f}")


def collectives(kernels: Timeline, names: Sequence[str], groups: Mapping[int, str]) -> Iterator[Collective]:
    """Every kernel of a collective, in the order of their starts; ``groups`` are the ranks of each, by its place."""
    talks = np.array([bool(COMMUNICATION.search(name)) for name in names], dtype=bool)[kernels.name]
    for device in np.unique(kernels.device[talks]).tolist():
        mine = kernels.device == device
        starts, covered = _coverage(kernels, mine & ~talks)
        found = np.flatnonzero(mine & talks)
        for i in found[np.argsort(kernels.start[found], kind="stable")].tolist():
            ends = np.array([kernels.start[i], kernels.start[i] + kernels.us[i]])
            begun, ended = np.interp(ends, starts, covered) if len(starts) else (0.0, 0.0)
            yield Collective(
                kernel=names[int(kernels.name[i])],
                ranks=groups.get(i, ""),
                start_us=float(kernels.start[i]),
                us=float(kernels.us[i]),
                alone_us=max(float(kernels.us[i]) - float(ended - begun), 0.0),
                device=None if device < 0 else device,
            )


def _coverage(kernels: Timeline, mine: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """For how long any of these kernels has run until each moment: corners of a line that rises only while one runs."""
    if not mine.any():
        return np.empty(0), np.empty(0)
    order = np.flatnonzero(mine)[np.argsort(kernels.start[mine], kind="stable")]
    start = kernels.start[order]
    ended = np.maximum.accumulate(start + kernels.us[order])
    begin = np.maximum(start, np.r_[-np.inf, ended[:-1]])  # what runs already covers the beginning
    covered = np.cumsum(np.maximum(ended - begin, 0.0))
    corners = np.stack([begin, np.maximum(ended, begin)], axis=1).ravel()
    return corners, np.stack([np.r_[0.0, covered[:-1]], covered], axis=1).ravel()


def _ran(kernels: Timeline, mine: npt.NDArray[np.bool_]) -> float:
    """How long at least one of these kernels ran, µs."""
    covered = _coverage(kernels, mine)[1]
    return float(covered[-1]) if len(covered) else 0.0
