"""Compute how long the GPU was busy in the window of the marked steps: the time in which at least one kernel ran.

The window begins at the earlier of two moments:

* The first kernel that was launched within the trace begins.
* The first step is marked, even if its first kernel runs later.  If kernels that were launched before the trace
  (``BEFORE``) end after the mark, their end counts instead of the mark.

The second moment is not used in two cases: no step is marked, or the device was still busy with work that the trace
does not show, so that the first launch waited (``backlog``).

The window ends with the last kernel or the last marked step, whichever is later.  The idle time of a call that searched
for a solver (``searches``) or in which a graph was captured is not part of it.  Of several devices the mean is taken.
The facts::

    gpu_window_us                  length of that window
    gpu_busy_us                    a kernel runs (kernels of several streams overlap, so it is less than their sum)
    gpu_compute_us                 a kernel runs that is not a collective
    gpu_communication_alone_us     only collectives run
    gpu_copies_us                  copies and fills of memory, which are no kernels
    gpu_left_out_us                what was taken out of the window
    gpu_idle_us, gpu_gaps          why the GPU was idle (``gaps``)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.coverage import Coverage, Floats
from logparse.model import MOST_US, Collective, Fact, Reject

Bools: TypeAlias = npt.NDArray[np.bool_]

BEFORE = "(launched before the trace)"
"""Operator name for kernels that ran in the trace but were launched before it."""
COMMUNICATION = regex(
    r"nccl|rccl|all_?reduce|cross_device_reduce|all_?gather|reduce_?scatter|all_?to_?all|c10d|param_comms",
    re.IGNORECASE,
)
"""Names of kernels and operators of collectives: NCCL, RCCL and inference engines.

Example: ``cross_device_reduce`` is the custom all-reduce of vLLM and SGLang.
"""


@dataclass(frozen=True)
class Timeline:
    """Kernels of a trace as columns.

    * ``start``, ``us``: start and duration, µs.
    * ``launched``: True if the trace is known to contain the kernel's launch.
    * ``asked``: end of the call that launched the kernel (for a graph, beginning of the call).  NaN if it is unknown.
    * ``searched``: True if the kernel ran because a library searched for a solver (``searches``).
    """

    start: Floats
    us: Floats
    device: npt.NDArray[np.int64]
    launched: Bools
    name: npt.NDArray[np.int64]
    asked: Floats | None = None
    searched: Bools | None = None


@dataclass(frozen=True)
class Marked:
    """Limits of the window that do not come from the kernels, in µs on the clock of the kernels.

    * ``begin``: beginning of the marked steps.  None if no step is marked, or if the device was still busy with earlier
      work.
    * ``end``: end of the marked steps.
    * ``left_out``: spans whose idle time is left out.
    """

    begin: float | None = None
    end: float | None = None
    left_out: Sequence[tuple[float, float]] = field(default=())


@dataclass(frozen=True)
class Gaps:
    """Gaps of one device.

    * ``us``: length of each gap without the spans that are left out, µs.
    * ``asked``: time at which the kernel behind the gap had been launched (NaN: unknown).
    * ``first``: True if no kernel of the window runs before the gap.
    """

    begin: Floats
    end: Floats
    us: Floats
    asked: Floats
    first: Bools


def before(kernels: Timeline) -> Bools:
    """Tell for each kernel whether it was launched before the trace.

    These kernels have no launch in the trace, and they come before the first kernel that has a launch.
    """
    if not kernels.launched.any():
        return np.zeros(len(kernels.launched), dtype=bool)
    out: Bools = ~kernels.launched & (kernels.start < kernels.start[kernels.launched].min())
    return out


def busy(
    kernels: Timeline,
    names: Sequence[str],
    copies_us: float,
    marked: Marked,
    why: Callable[[Sequence[Gaps]], Iterator[Fact]] | None = None,
) -> Iterator[Fact | Reject]:
    """Yield the facts about how busy the GPU was.

    Yield nothing if the trace launched no kernel.  Yield a reject if a time stamp must be wrong.  ``why`` is a function
    that makes the facts about the gaps of each device.
    """
    early = before(kernels)
    inside = ~early if kernels.searched is None else ~early & ~kernels.searched
    if inside.any():
        begin, end = kernels.start[inside].min(), (kernels.start + kernels.us)[inside].max()
        if marked.begin is not None:
            ended = (kernels.start + kernels.us)[early]
            begin = min(begin, max(marked.begin, ended.max())) if len(ended) else min(begin, marked.begin)
        end = max(end, end if marked.end is None else marked.end)
        if end - begin > MOST_US:
            yield Reject(f"the kernels' time stamps are up to {end - begin:.3g} µs apart, so one of them is wrong")
            return
        talks = np.array([bool(COMMUNICATION.search(name)) for name in names], dtype=bool)[kernels.name]
        of = [inside & (kernels.device == device) for device in np.unique(kernels.device[inside])]
        total = sum(_ran(kernels, mine) for mine in of) / len(of)
        compute = sum(_ran(kernels, mine & ~talks) for mine in of) / len(of)
        gaps = [_gaps(kernels, mine, float(begin), float(end), marked.left_out) for mine in of]
        left_out = sum(float((x.end - x.begin - x.us).sum()) for x in gaps) / len(of)
        yield Fact("gpu_window_us", f"{end - begin - left_out:.3f}")
        yield Fact("gpu_busy_us", f"{total:.3f}")
        yield Fact("gpu_compute_us", f"{compute:.3f}")
        if talks[inside].any():
            yield Fact("gpu_communication_alone_us", f"{total - compute:.3f}")
        if left_out > 0:
            yield Fact("gpu_left_out_us", f"{left_out:.3f}")
        if why is not None:
            yield from why(gaps)
    if copies_us:
        yield Fact("gpu_copies_us", f"{copies_us:.3f}")


def _gaps(
    kernels: Timeline,
    mine: Bools,
    begin: float,
    end: float,
    left_out: Sequence[tuple[float, float]],
) -> Gaps:
    """Return the gaps between the kernels of one device."""
    start = kernels.start[mine]
    begins, ends = _coverage(kernels, mine).gaps(begin, end)
    cuts = Coverage(*(np.array([x[i] for x in left_out], dtype=np.float64) for i in (0, 1)))
    asked = np.full(len(begins), np.nan)
    if kernels.asked is not None:
        order = np.argsort(start, kind="stable")
        place = np.searchsorted(start[order], ends)
        known = place < len(order)
        asked[known] = kernels.asked[mine][order[place[known]]]
    first = (begins <= begin) & (ends <= (start.min() if len(start) else begin))
    return Gaps(begins, ends, ends - begins - cuts.within(begins, ends), asked, first)


def collectives(kernels: Timeline, names: Sequence[str], groups: Mapping[int, str]) -> Iterator[Collective]:
    """Yield each kernel of a collective, in the order of starts.

    ``groups`` maps a kernel's index to its collective's ranks.
    """
    talks = np.array([bool(COMMUNICATION.search(name)) for name in names], dtype=bool)[kernels.name]
    for device in np.unique(kernels.device[talks]).tolist():
        mine = kernels.device == device
        computes = _coverage(kernels, mine & ~talks)
        found = np.flatnonzero(mine & talks)
        for i in found[np.argsort(kernels.start[found], kind="stable")].tolist():
            ends = np.array([kernels.start[i], kernels.start[i] + kernels.us[i]])
            begun, ended = computes.until(ends)
            yield Collective(
                kernel=names[int(kernels.name[i])],
                ranks=groups.get(i, ""),
                start_us=float(kernels.start[i]),
                us=float(kernels.us[i]),
                alone_us=max(float(kernels.us[i]) - float(ended - begun), 0.0),
                device=None if device < 0 else device,
            )


def _ran(kernels: Timeline, mine: Bools) -> float:
    """Return the time in which at least one of the kernels ``mine`` ran, µs."""
    return _coverage(kernels, mine).total


def _coverage(kernels: Timeline, mine: Bools) -> Coverage:
    return Coverage(kernels.start[mine], (kernels.start + kernels.us)[mine])
