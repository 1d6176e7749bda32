"""Add up kernel times: one total for each operator (or named range), kernel and device.

rocprof writes several files about one process, which hold the same kernels.  This module also finds out which files
belong together.
"""

from __future__ import annotations

from collections.abc import Iterator

from logparse.libraries.kinds.format import Outcome
from logparse.model import Fact, Kernel

_SAME = (
    *("_results.db", "_kernel_trace.csv", "_kernel_stats.csv", "_counter_collection.csv"),
    *("_kernels_summary.csv", "_kernels_summary_by_rank.csv"),
)
"""The endings of the files that rocprofv3 and rocpd write about one process.  Each file holds all of its kernels.

The file with the most detail comes first.  Counters come late, because counting makes kernels run one after the other.
"""


def of_one_process(name: str) -> Iterator[Outcome]:
    """Yield a fact that links the files that a profiler wrote about one process, so that nothing is counted twice.

    All these files hold the same kernels.  With this fact the view ``kernels`` counts them only once, even if several
    of the files were ingested.  The fact has two parts: the index of the file name's ending in ``_SAME``, and the rest
    of the name.  Example: ``12_kernel_trace.csv`` gives ``1 12``.  Yields nothing for other files.
    """
    for place, end in enumerate(_SAME):
        if name.endswith(end):
            yield Outcome("fact", [Fact("kernels_of", f"{place} {name.removesuffix(end)}")], lines=0)


class KernelTotals:
    """Adds up the times of kernels with the same name, operator and device.

    So memory grows with the number of different kernels, not with the number of launches.
    """

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str, int | None], list[float]] = {}

    def add(self, op: str, kernel: str, device: int | None, us: float, calls: int, least: float, most: float) -> None:
        """Add executions of one kernel to the totals.

        There were ``calls`` executions. They took ``us`` µs in total, each between ``least`` and ``most`` µs.
        """
        entry = self._totals.get((op, kernel, device))
        if entry is None:
            entry = self._totals[op, kernel, device] = [0, 0.0, least, most]
        entry[0] += calls
        entry[1] += us
        entry[2] = min(entry[2], least)
        entry[3] = max(entry[3], most)

    def records(self) -> Iterator[Kernel]:
        """Yield the total time of each operator, kernel and device, in the order in which they were first added."""
        for (op, kernel, device), (calls, us, least, most) in self._totals.items():
            yield Kernel(op=op, kernel=kernel, calls=int(calls), total_us=us, min_us=least, max_us=most, device=device)
