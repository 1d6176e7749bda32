"""Compute the total time that several intervals cover together.  Times that overlap are counted once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]


class Coverage:
    """The time that is covered by at least one of several intervals.

    It is stored as a curve that says, for each moment, how much time was covered until then.
    """

    def __init__(self, start: Floats, end: Floats) -> None:
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        ended = np.maximum.accumulate(end) if len(end) else end
        begin = np.maximum(start, np.r_[-np.inf, ended[:-1]])
        covered = np.cumsum(np.maximum(ended - begin, 0.0))
        self._at = np.stack([begin, np.maximum(ended, begin)], axis=1).ravel()
        self._covered = np.stack([np.r_[0.0, covered[:-1]], covered], axis=1).ravel() if len(end) else covered

    @property
    def total(self) -> float:
        """The total time that is covered by at least one of the intervals, in µs."""
        return float(self._covered[-1]) if len(self._covered) else 0.0

    def until(self, at: Floats) -> Floats:
        """Return for each moment how many µs before it are covered by the intervals."""
        if not len(self._at):
            return np.zeros(len(at))
        found: Floats = np.interp(at, self._at, self._covered)
        return found

    def within(self, begin: Floats, end: Floats) -> Floats:
        """Return how much of each span from ``begin`` to ``end`` is covered by the intervals, in µs."""
        return self.until(end) - self.until(begin)

    def gaps(self, begin: float, end: float) -> tuple[Floats, Floats]:
        """Return the times between ``begin`` and ``end`` that no interval covers: their beginnings, and their ends."""
        starts, ends = np.clip(self._at[::2], begin, end), np.clip(self._at[1::2], begin, end)
        left, right = np.r_[begin, ends], np.r_[starts, end]
        kept = right > left
        return left[kept], right[kept]
