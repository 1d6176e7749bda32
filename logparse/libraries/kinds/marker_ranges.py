"""Find the operator or marker that was running on a thread when the thread launched a kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64] | npt.NDArray[np.int64]


def innermost(
    starts: Times, ends: Times, threads: npt.NDArray[np.int64], at: Times, at_threads: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Find the innermost operator or marker (range) that was running at certain moments on certain threads.

    Returns for each moment the index of the range, or -1 if none was open.  ``starts``, ``ends`` and ``threads`` have
    one element per range.  ``at`` and ``at_threads`` have one element per moment.

    * Usually the ranges of a thread are nested (operators, pushed markers).
    * If ranges overlap (markers that are started and stopped by id), the range that began last is taken.
    * If ranges are equal, the last one is taken.
    """
    found = np.full(len(at), -1, dtype=np.int64)
    for thread in np.unique(at_threads):
        mine = np.flatnonzero(threads == thread)
        mine = mine[np.lexsort((mine, -ends[mine], starts[mine]))]
        moments = np.flatnonzero(at_threads == thread)
        moments = moments[np.argsort(at[moments], kind="stable")]
        waiting = iter(mine.tolist())
        following = next(waiting, None)
        stack: list[int] = []
        for moment in moments.tolist():
            while following is not None and starts[following] <= at[moment]:
                while stack and ends[stack[-1]] <= starts[following]:
                    stack.pop()
                stack.append(following)
                following = next(waiting, None)
            found[moment] = next((i for i in reversed(stack) if ends[i] >= at[moment]), -1)
    return found


class Ranges:
    """All named ranges (operators or markers) of a trace, stored as columns."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._rows: list[tuple[int, int, int]] = []

    def add(self, name: str, start: int, end: int, thread: int) -> None:
        self.names.append(name)
        self._rows.append((start, end, thread))

    def at(self, launches: list[tuple[int | None, int | None]]) -> list[str]:
        """Return for each kernel launch the name of the operator or marker in which it happened, on the same thread.

        A launch is given as its time and thread.  The name is an empty text if nothing was running.
        """
        out = [""] * len(launches)
        asked = [(i, at, thread) for i, (at, thread) in enumerate(launches) if at is not None and thread is not None]
        if not asked or not self.names:
            return out
        columns: npt.NDArray[np.int64] = np.array(self._rows, dtype=np.int64)
        moments: npt.NDArray[np.int64] = np.array([(at, thread) for _, at, thread in asked], dtype=np.int64)
        found = innermost(columns[:, 0], columns[:, 1], columns[:, 2], moments[:, 0], moments[:, 1])
        for (i, _, _), index in zip(asked, found.tolist(), strict=True):
            out[i] = self.names[index] if index >= 0 else ""
        return out
