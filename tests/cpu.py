"""Measure the CPU time of tests: seconds of this process, of ended children, and of children that still run.

Wall time says little on a machine that others use. CPU time depends on the processor, so the time of a fixed
calculation is shown beside it.
"""

from __future__ import annotations

import os
import time
import timeit
from pathlib import Path


def spent() -> float:
    """Return the user and system seconds of this process and of its children so far, including living ones (Linux)."""
    times = os.times()
    return sum(times[:4]) + sum(map(_seconds, _descendants(os.getpid())))


def ended() -> float:
    """Return the CPU seconds of this process and of its ended children.

    This is cheap enough to call before and after every test.
    """
    return sum(os.times()[:4])


def yardstick_us() -> float:
    """Return the CPU time of ``sum(range(10000))`` in µs, the best of some rounds.

    It shows how fast this processor is now.
    """
    count = 200
    rounds = timeit.repeat("sum(range(10000))", timer=time.process_time, number=count, repeat=10)
    return min(rounds) / count * 1e6


def _descendants(pid: int) -> list[int]:
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in listed.read_text().split()]
        except OSError:  # the thread has ended since
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of its ended children: fields 14 to 17 of proc(5)'s ``stat``."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:  # the process has ended since
        return 0.0
    return sum(map(int, rest.split()[11:15])) / os.sysconf("SC_CLK_TCK")
