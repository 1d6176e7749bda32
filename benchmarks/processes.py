"""Measure memory and CPU time of a program and of every process that it starts, from ``/proc`` (Linux)."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The time and memory that one run of a program took.

    * ``peak_mb``: the largest proportional set size of all its processes at one moment, in 10^6 bytes.
    * ``resident_mb``: the largest resident set of one process.
    """

    # A page that several processes share is divided among them in the proportional set size, so it is counted once. The
    # resident set does not depend on other programs that share the same pages.

    wall_s: float
    cpu_s: float
    peak_mb: float
    code: int
    output: str
    resident_mb: float = 0.0


class Watch:
    """Measures a process and all processes that it starts: their largest memory so far, and their CPU seconds."""

    def __init__(self, pid: int, every_s: float = 0.1) -> None:
        self.pid = pid
        self.peak_mb = self.resident_mb = 0.0
        self._every_s = every_s
        self._seconds: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def cpu_s(self) -> float:
        self._look()
        return sum(self._seconds.values())

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        total, left = 0.0, [self.pid]
        while left:
            pid = left.pop()
            try:
                shared, resident = memory_mb(pid)
                total += shared
                self.resident_mb = max(self.resident_mb, resident)
                self._seconds[pid] = cpu_s(pid)
                left += children(pid)
            except OSError:  # the process has ended
                continue
        self.peak_mb = max(self.peak_mb, total)


def cost(command: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Run a program to its end, and return its time and memory.

    CPU seconds include all processes that the program waited for.
    """
    begun = time.perf_counter()
    # The output is read all the time, because a full pipe would stop the program.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as started:
        assert started.stdout
        watch = Watch(started.pid, 0.02)
        output = started.stdout.read()  # The loop ends when every process has closed the pipe.
        wall_s = time.perf_counter() - begun
        watch.stop()
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
    used_s = used.ru_utime + used.ru_stime
    text = output.decode("utf-8", "replace")
    return Cost(wall_s, used_s, watch.peak_mb, started.returncode, text, watch.resident_mb)


def memory_mb(pid: int) -> tuple[float, float]:
    """Return the proportional and the resident set size of a process in MB (10^6 bytes)."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        sizes = {line.split()[0]: int(line.split()[1]) * 1024 / 1e6 for line in rollup if line.endswith("kB\n")}
    return sizes.get("Pss:", 0.0), sizes.get("Rss:", 0.0)


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started. Any of its threads may have started them."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as listed:
                found += [int(x) for x in listed.read().split()]
        except OSError:  # the thread has ended
            continue
    return found
