"""Measure the CPU seconds of tests: of this process, of its ended children, and of children that still run.

CPU time depends on the processor, so the time of a fixed calculation is shown beside it.
"""

# Wall-clock time says little on a machine that others use.

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
    """Return the CPU time of one ``sum(range(10000))`` in µs, the fastest of ten rounds.

    Printed beside the CPU times of tests, it shows how fast this processor is now.
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
    """Return the CPU seconds of a process and of its ended children, or 0 if the process has ended.

    They are in fields 14 to 17 of ``/proc/PID/stat`` (see proc(5)).
    """
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:  # the process has ended since
        return 0.0
    return sum(map(int, rest.split()[11:15])) / os.sysconf("SC_CLK_TCK")
