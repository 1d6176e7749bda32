"""Let units of work alternate with another process.

After some units this process waits, its device idle, until it may go on.

``LOGPARSE_TURNS`` names a folder of one side.  ``LOGPARSE_TURNS_BY`` is the number of the process that leads
(``analyzers/tune/side_by_side.py``).  Each process of a side writes ``N_PID.json`` when its turn N is over.  Then it
waits for ``N+1.go``, which holds the number of units of the next turn.  All ranks do as many, so none waits for another
in a collective meanwhile.  Turn 0 is the first ``FIRST`` units, which warm up.  A file ``free`` ends the turns, and so
does the end of the leader.  Then the job goes on as it does alone.

Both sides begin a turn on the same core, and on another core each turn.  The reason: another user of the core's other
half makes a host slower by up to 1.8 times for seconds, and a process that wakes returns to the core where it ran
before (``docs/results.md``).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import threading
import time
from typing import Any

import torch

FIRST = 6
_POLL_S, _LEADER_S = 0.002, 1.0


def _rank() -> tuple[int, int]:
    """Return the rank of this process, and the number of ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def on_one_core(turn: int) -> dict[int, set[int]]:
    """Move this thread to one core of its process, and confine the threads of autograd, which sleep now, to that core.

    Each turn takes another core, and cores of ranks lie far apart.  This thread gets all of its cores back at once,
    because what it starts would inherit the single core.  Return the cores of each confined thread, for
    ``on_all_cores``.
    """
    held: dict[int, set[int]] = {}
    with contextlib.suppress(AttributeError, OSError):  # not on Linux
        me, (rank, ranks) = threading.get_native_id(), _rank()
        cores = os.sched_getaffinity(me)
        core = sorted(cores)[(turn + rank * max(len(cores) // ranks, 1)) % len(cores)]
        os.sched_setaffinity(me, {core})
        os.sched_setaffinity(me, cores)
        for thread in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(OSError):  # the thread has ended
                with open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as name:
                    runs_backward = name.read().startswith("pt_autograd")
                if runs_backward and core in (all_of := os.sched_getaffinity(thread)):
                    os.sched_setaffinity(thread, {core})
                    held[thread] = all_of
    return held


def on_all_cores(held: dict[int, set[int]]) -> None:
    """Let the threads use all of their cores again, unless the job has chosen other cores meanwhile."""
    while held:
        thread, cores = held.popitem()
        with contextlib.suppress(OSError):
            if len(os.sched_getaffinity(thread)) == 1:
                os.sched_setaffinity(thread, cores)


class Turns:
    """Turns of this process.  ``left`` is the number of units of its turn that are still to come."""

    def __init__(self) -> None:
        self._folder, self._leader = os.environ["LOGPARSE_TURNS"], int(os.environ["LOGPARSE_TURNS_BY"])
        self._number, self.left, self.free = 0, FIRST, False
        self._held: dict[int, set[int]] = {}

    def over(self) -> bool:
        """Count a unit.  Return True if it was the last unit of the turn.  The first unit is not timed."""
        on_all_cores(self._held)
        self.left -= 1
        return not self.free and self.left <= 0

    def wait(self, kinds: dict[str, list[float]]) -> None:
        """Write the times (µs) of the turn's units by kind, and wait for the next turn."""
        found: dict[str, Any] = {"kinds": kinds, "ranks": _rank()[1]}
        if not self._number:
            found["workers"] = len(multiprocessing.active_children())
            if torch.cuda.is_initialized():
                free, total = torch.cuda.mem_get_info()
                found["memory"] = 1 - free / total
        path = os.path.join(self._folder, f"{self._number}_{os.getpid()}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(path + ".part", path)
        self._number += 1
        self._await(os.path.join(self._folder, f"{self._number}.go"))
        if not self.free:
            self._held = on_one_core(self._number)

    def _await(self, go: str) -> None:
        looked = time.monotonic()
        while True:
            if os.path.exists(go):
                with open(go, encoding="utf-8") as file:
                    self.left = int(file.read())
                return
            if time.monotonic() - looked > _LEADER_S:
                looked = time.monotonic()
                self.free = not _lives(self._leader)
            if self.free or os.path.exists(os.path.join(self._folder, "free")):
                self.free = True
                return
            time.sleep(_POLL_S)


def _lives(process: int) -> bool:
    """Tell whether a process runs.  A killed process is a zombie until it is waited for, and counts as ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
