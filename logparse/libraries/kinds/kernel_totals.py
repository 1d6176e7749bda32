"""Kernel times added up per operator or range, kernel and device; which files of rocprof hold the same kernels."""

from __future__ import annotations

from collections.abc import Iterator

from logparse.libraries.kinds.format import Outcome
from logparse.model import Fact, Kernel

_SAME = (
    *("_results.db", "_kernel_trace.csv", "_kernel_stats.csv", "_counter_collection.csv"),
    *("_kernels_summary.csv", "_kernels_summary_by_rank.csv"),
)
"""Ends of the names of rocprofv3's and rocpd's files of one process that all hold its kernels, the fullest first
(counters make kernels run one after the other).
"""


def of_one_process(name: str) -> Iterator[Outcome]:
    """The fact by which the view ``kernels`` counts kernels once where several of these files were ingested.

    Its value is the file's place among them, a blank, and what their names begin with.
    """
    for place, end in enumerate(_SAME):
        if name.endswith(end):
            yield Outcome("fact", [Fact("kernels_of", f"{place} {name.removesuffix(end)}")], lines=0)


class KernelTotals:
    """Totals of kernels; memory is that of the distinct names."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str, int | None], list[float]] = {}

    def add(self, op: str, kernel: str, device: int | None, us: float, calls: int, least: float, most: float) -> None:
        """``calls`` kernels that took ``us`` in all, each between ``least`` and ``most`` µs."""
        entry = self._totals.get((op, kernel, device))
        if entry is None:
            entry = self._totals[op, kernel, device] = [0, 0.0, least, most]
        entry[0] += calls
        entry[1] += us
        entry[2] = min(entry[2], least)
        entry[3] = max(entry[3], most)

    def records(self) -> Iterator[Kernel]:
        """One record per operator, kernel and device, in the order in which they came."""
        for (op, kernel, device), (calls, us, least, most) in self._totals.items():
            yield Kernel(op=op, kernel=kernel, calls=int(calls), total_us=us, min_us=least, max_us=most, device=device)
