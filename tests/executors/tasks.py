"""Functions that tests run in other processes. Most of them write a file, so that the test knows that they ran."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from logparse.executors.executor import Resources, report


def plenty(item: object) -> Resources:
    """Claim that a task is very large, so that the executor starts several processes even for a few tasks."""
    return Resources(weight=1e9)


def double(number: int) -> tuple[int, int]:
    report("doubled", number)
    return 2 * number, os.getpid()


def fail_odd(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def die_once(path: str) -> str:
    """Kill this process the first time that the task runs, as the system does if memory runs out."""
    mark = Path(path)
    if mark.name.startswith("mortal") and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return mark.name


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def stay(path: str) -> None:
    """Run until killed. The process id is written to the file ``path``."""
    Path(path + ".part").write_text(str(os.getpid()))
    os.replace(path + ".part", path)
    while True:
        report("here", 1)
        time.sleep(0.1)
