"""Functions that workers run in the tests; most leave a trace in a folder."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from logparse.executors import Resources, report
from logparse.executors.ray import _Meter


def plenty(item: object) -> Resources:
    """So much work that it pays to start processes."""
    return Resources(weight=1e9)


def double(number: int) -> tuple[int, int]:
    report("doubled", number)
    return 2 * number, os.getpid()


def count_slowly(number: int) -> int:
    """Reports before and after a wait, of which the first is sent to the driver while it runs."""
    report("counted", number)
    time.sleep(0.6)
    report("counted", number)
    return number


class DeafMeter(_Meter):
    """As of a node that died: what it was sent is lost."""

    def take(self) -> dict[int, dict[str, int]]:
        super().take()
        return {}


def fail_odd(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def die_once(path: str) -> str:
    """Killed at the first try, as by the system for lack of memory."""
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
    """Run until killed; the file holds its process id."""
    Path(path + ".part").write_text(str(os.getpid()))
    os.replace(path + ".part", path)
    while True:
        report("here", 1)
        time.sleep(0.1)


def slow_at_first(path: str) -> str:
    """A sick node: the first try at one of the tasks takes for ever."""
    mark = Path(path)
    if mark.name == "slow" and not mark.exists():
        mark.touch()
        time.sleep(3600)
    return mark.name
