"""Compute how much of the time the GPU was busy during the marked steps.

The GPU is busy while at least one kernel runs.  The part of the trace that is examined is called the window.  The
window begins at the earlier of two moments:

* The first kernel that was launched within the trace begins.
* The first step is marked, even if its first kernel runs later.  If kernels that were launched before the trace
  (``BEFORE``) end after the mark, the window begins at their end.

The second moment is not used if no step is marked.  It is also not used if the device was still busy with work that the
trace does not show, so that the first launch waited (``backlog``).

The window ends with the last kernel or the last marked step, whichever is later.  If a call searched for a solver
(``searches``) or captured a graph, its idle time is not part of the window.  For several devices the mean is taken.
The facts::

    gpu_window_us                  length of that window
    gpu_busy_us                    a kernel runs (kernels of several streams overlap, so it is less than their sum)
    gpu_compute_us                 a kernel runs that is not a collective
    gpu_communication_alone_us     only collectives run
    gpu_copies_us                  copies and fills of memory, which are no kernels, without those of the work before
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
"""The operator name that is given to kernels that ran in the trace but were launched before it."""
COMMUNICATION = regex(
    r"nccl|rccl|all_?reduce|cross_device_reduce|all_?gather|reduce_?scatter|all_?to_?all|c10d|param_comms",
    re.IGNORECASE,
)
"""A regular expression for the kernels and operators of collectives: NCCL, RCCL and inference engines.

Example: ``cross_device_reduce`` is the custom all-reduce of vLLM and SGLang.
"""


@dataclass(frozen=True)
class Timeline:
    """The kernels of a trace on a time axis, as columns with one element per kernel.

    * ``start``, ``us``: the kernel's start and duration, in µs.
    * ``launched``: True if the trace is known to contain the kernel's launch.
    * ``asked``: the time at which the call that launched the kernel ended.  For a kernel of a graph it is the time at
      which the call began.  NaN if it is unknown.
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
    """Says in which part of a trace the idle times of the GPU are examined.

    Only limits are stated that do not follow from the kernels. Times are in µs on the clock of the kernels.

    * ``begin``: the beginning of the marked steps.  None if no step is marked, or if the device was still busy with
      earlier work.
    * ``end``: the end of the marked steps.
    * ``left_out``: spans whose idle time is left out.
    """

    begin: float | None = None
    end: float | None = None
    left_out: Sequence[tuple[float, float]] = field(default=())


@dataclass(frozen=True)
class Gaps:
    """The idle times (gaps) of one GPU, as columns with one element per gap.

    * ``begin`` and ``end`` are its limits in µs.
    * ``us`` is its length in µs, without the spans that are left out.
    * ``asked`` is the time at which the next kernel had been launched, or NaN if it is unknown.
    * ``first`` is True if no kernel of the examined time runs before the gap.
    """

    begin: Floats
    end: Floats
    us: Floats
    asked: Floats
    first: Bools


def mark_launched_before(kernels: Timeline) -> Bools:
    """Tell for each kernel if it was launched before the trace began.

    The trace lacks the launch of such a kernel, and the kernel runs before the first one whose launch is in the trace.
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
    """Yield figures about how busy the GPU was during the profiled steps, for example ``gpu_busy_us``.

    ``why`` gets the idle times of each GPU, and yields figures about their causes.
    """
    early = mark_launched_before(kernels)
    inside = ~early if kernels.searched is None else ~early & ~kernels.searched
    if inside.any():
        begin, end = kernels.start[inside].min(), (kernels.start + kernels.us)[inside].max()
        if marked.begin is not None:
            ended = (kernels.start + kernels.us)[early]
            begin = min(begin, max(marked.begin, ended.max())) if len(ended) else min(begin, marked.begin)
        end = max(end, end if marked.end is None else marked.end)
        # Time stamps that are so far apart cannot all be right, so only an error is yielded.
        if end - begin > MOST_US:
            yield Reject(
                f"the first and the last kernel are {end - begin:.3g} µs apart by their time stamps, so a time stamp "
                "is wrong"
            )
            return
        talks = np.array([bool(COMMUNICATION.search(name)) for name in names], dtype=bool)[kernels.name]
        of = [inside & (kernels.device == device) for device in np.unique(kernels.device[inside])]
        total = sum(_sum_busy_us(kernels, mine) for mine in of) / len(of)
        compute = sum(_sum_busy_us(kernels, mine & ~talks) for mine in of) / len(of)
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
    """Return the times between kernels in which one GPU was idle."""
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
    """Yield a record for each communication kernel (such as an all-reduce), in the order in which the kernels began.

    ``groups`` maps the index of a kernel to the ranks that take part.
    """
    talks = np.array([bool(COMMUNICATION.search(name)) for name in names], dtype=bool)[kernels.name]
    for device in np.unique(kernels.device[talks]).tolist():
        mine = kernels.device == device
        computes = _coverage(kernels, mine & ~talks)
        found = np.flatnonzero(mine & talks)
        for i in found[np.argsort(kernels.start[found], kind="stable")].tolist():
            ends = np.array([kernels.start[i], kernels.start[i] + kernels.us[i]])
            # The time in which no other kernel ran on the GPU is recorded too.
            begun, ended = computes.until(ends)
            yield Collective(
                kernel=names[int(kernels.name[i])],
                ranks=groups.get(i, ""),
                start_us=float(kernels.start[i]),
                us=float(kernels.us[i]),
                alone_us=max(float(kernels.us[i]) - float(ended - begun), 0.0),
                device=None if device < 0 else device,
            )


def _sum_busy_us(kernels: Timeline, mine: Bools) -> float:
    """Return for how many µs at least one of the selected kernels was running.

    ``mine`` is True for the selected kernels.
    """
    return _coverage(kernels, mine).total


def _coverage(kernels: Timeline, mine: Bools) -> Coverage:
    return Coverage(kernels.start[mine], (kernels.start + kernels.us)[mine])
