"""Let two jobs take turns, so that both are timed under the same conditions.

Each job does some steps while the other waits. After its steps, this process waits with an idle GPU until it may go on.

``LOGPARSE_TURNS`` names the folder of this job (the job before the changes or after them). ``LOGPARSE_TURNS_BY`` is the
number of the process that controls both jobs (``analyzers/tune/side_by_side.py``). When its turn N is over, each
process of a job writes ``N_PID.json``. Then it waits for the file ``N+1.go``, which contains the number of steps of the
next turn. All ranks make the same number of steps, so no rank waits for another in a collective between turns. Turn 0
is the first ``FIRST`` steps, which warm up the job. The turns end when a file ``free`` appears, or when the controlling
process ends. Then the job goes on without waiting.

Both jobs use the same core in a turn, and another core in the next turn. There are two reasons: another program on the
second half of the core makes a host slower by up to 1.8 times for seconds, and a process that wakes returns to the core
where it ran before (``docs/results.md``).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from typing import Any

import torch

from .unpatched import Python

FIRST = 6
_POLL_S, _LEADER_S = 0.002, 1.0


def _rank() -> tuple[int, int]:
    """Return the rank of this process, and the number of ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def on_one_core(turn: int) -> dict[int, set[int]]:
    """Move this thread, and the threads that run backward passes, to one CPU core.

    Two jobs are compared that run in turns. Each turn uses another core, and different ranks use cores that are far
    apart. Returns the previous cores of each backward thread. The backward threads stay on the core until
    ``on_all_cores`` is called with this result. This thread is only moved and may leave the core again, because threads
    that it starts would inherit the limit.
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
                with Python.open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as name:
                    runs_backward = name.read().startswith("pt_autograd")
                if runs_backward and core in (all_of := os.sched_getaffinity(thread)):
                    os.sched_setaffinity(thread, {core})
                    held[thread] = all_of
    return held


def on_all_cores(held: dict[int, set[int]]) -> None:
    """Let the threads use all of their previous cores again, unless the job has chosen other cores since then.

    ``held`` is the result of ``on_one_core``.
    """
    while held:
        thread, cores = held.popitem()
        with contextlib.suppress(OSError):
            if len(os.sched_getaffinity(thread)) == 1:
                os.sched_setaffinity(thread, cores)


class Turns:
    """Two jobs that are compared run in turns. This object counts the steps of this job's turn, and then lets it wait.

    ``left`` is the number of steps that remain in this job's turn.
    """

    def __init__(self) -> None:
        self._folder, self._leader = os.environ["LOGPARSE_TURNS"], int(os.environ["LOGPARSE_TURNS_BY"])
        self._number, self.left, self.free = 0, FIRST, False
        self._held: dict[int, set[int]] = {}

    def over(self) -> bool:
        """Count one more step of this job. Return True if it is now the other job's turn.

        Two jobs, with and without a change, run alternately, a few steps each.
        """
        on_all_cores(self._held)
        self.left -= 1
        # The jobs run alternately, so that their times are measured under the same conditions.
        return not self.free and self.left <= 0

    def wait(self, kinds: dict[str, list[float]]) -> None:
        """Write down how long this job's last steps took, and wait until the other job has done its steps.

        ``kinds`` holds the times of the steps (µs), by the steps' names.
        """
        found: dict[str, Any] = {"kinds": kinds, "ranks": _rank()[1]}
        if not self._number:
            found["workers"] = len(multiprocessing.active_children())
            if torch.cuda.is_initialized():
                free, total = torch.cuda.mem_get_info()
                found["memory"] = 1 - free / total
        path = os.path.join(self._folder, f"{self._number}_{Python.getpid()}.json")
        with Python.open(path + ".part", "w", encoding="utf-8") as file:
            file.write(Python.dumps(found))
        Python.replace(path + ".part", path)
        self._number += 1
        self._await(os.path.join(self._folder, f"{self._number}.go"))
        if not self.free:
            self._held = on_one_core(self._number)

    def _await(self, go: str) -> None:
        looked = Python.monotonic()
        while True:
            if Python.exists(go):
                with Python.open(go, encoding="utf-8") as file:
                    self.left = int(file.read())
                return
            if Python.monotonic() - looked > _LEADER_S:
                looked = Python.monotonic()
                self.free = not _is_running(self._leader)
            if self.free or Python.exists(os.path.join(self._folder, "free")):
                self.free = True
                return
            Python.sleep(_POLL_S)


def _is_running(process: int) -> bool:
    """Return True if a process is running. A process that has ended but was not yet waited for (a zombie) is not."""
    try:
        with Python.open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
