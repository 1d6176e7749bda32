"""Run tasks on this machine: one after the other in this process, or in parallel in several processes.

The modules for several processes are imported only if needed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from logparse.executors.executor import Progress, Resources, TaskError, call_or_error, pass_progress_to

T = TypeVar("T")
R = TypeVar("R")

_WORTH = 32 << 20
"""Amount of work (bytes to read) below which no worker processes are started.

Starting them takes about half a second.
"""


class LocalExecutor:
    """Runs tasks in parallel, in at most ``jobs`` processes of this machine (0: one for each core).

    A single task, or little work, is done in this process.
    """

    def __init__(self, jobs: int = 0) -> None:
        self.cpus = self.together = jobs or usable_cores()

    def map_unordered(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        resources: Callable[[T], Resources],
        progress: Progress | None = None,
    ) -> Iterator[tuple[T, R | TaskError]]:
        """Call a function for each item in parallel. Yield each item with its result or error as soon as it is done.

        Small work, by the weights (bytes to read) that ``resources`` returns, is done in this process.
        """
        ahead, rest, weight = deque[T](), iter(items), 0.0
        while weight <= _WORTH or len(ahead) < 2:
            try:
                ahead.append(next(rest))
            except StopIteration:
                break
            # The number of cores that ``resources`` returns is not used, because the operating system assigns the
            # cores.
            weight += resources(ahead[-1]).weight
        if self.together > 1 and len(ahead) > 1 and weight > _WORTH:
            from logparse.executors.pool import Pool

            yield from Pool(function, self.together, progress).run(chain(ahead, rest))
            return
        with pass_progress_to(progress):
            for item in chain(ahead, rest):
                yield item, call_or_error(function, item)


def usable_cores(quota: str = "/sys/fs/cgroup/cpu.max") -> int:
    """Return the number of cores that this process may use.

    ``quota`` is the Linux file (cgroup v2) with a container's limit of computing time.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError), open(quota, encoding="ascii") as told:
        # The content is for example ``200000 100000``: 200 ms of computing time in each 100 ms, so two cores. ``max
        # 100000`` means no limit. Batch systems limit a process to some of the cores instead.
        given, period = map(int, told.read().split())
        cores = min(cores, max(1, given // period))
    return cores
