"""Which range was open when something was launched: ranges and launches of one thread, by time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64] | npt.NDArray[np.int64]


def innermost(
    starts: Times, ends: Times, threads: npt.NDArray[np.int64], at: Times, at_threads: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For each moment the index of the innermost range of its thread that holds it, or -1.

    Ranges of a thread nest (operators, pushed markers).  Where they overlap instead (started and stopped by id), the
    one that began last is taken.  Of equal ranges the last one is the inner one.
    """
    found = np.full(len(at), -1, dtype=np.int64)
    for thread in np.unique(at_threads):
        mine = np.flatnonzero(threads == thread)
        mine = mine[np.lexsort((mine, -ends[mine], starts[mine]))]
        moments = np.flatnonzero(at_threads == thread)
        moments = moments[np.argsort(at[moments], kind="stable")]
        _sweep(zip(starts[mine], ends[mine], mine, strict=True), moments, at, ends, found)
    return found


def _sweep(
    ranges: Iterable[tuple[float, float, int]],
    moments: npt.NDArray[np.int64],
    at: Times,
    ends: Times,
    found: npt.NDArray[np.int64],
) -> None:
    waiting = iter(ranges)
    following = next(waiting, None)
    stack: list[int] = []
    for moment in moments:
        while following is not None and following[0] <= at[moment]:
            while stack and ends[stack[-1]] <= following[0]:
                stack.pop()
            stack.append(following[2])
            following = next(waiting, None)
        open_now = next((i for i in range(len(stack) - 1, -1, -1) if ends[stack[i]] >= at[moment]), None)
        if open_now is not None:
            found[moment] = stack[open_now]
