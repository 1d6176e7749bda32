"""Fake libraries for tests of measuring kernels. Their kernels crash, hang or give wrong results on request.

A measuring process opens them by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from logparse.libraries.kinds.backend import (
    BackendType,
    Conditions,
    OutOfMemoryError,
    Place,
    UnsupportedError,
)
from logparse.model import GemmProblem, Problem, Solution
from tests.waiting import wait_until

TIMES = {"pick": 100.0, "fast": 50.0, "alike": 99.5, "slow": 900.0}


def fake(*names: str) -> list[Solution]:
    return [Solution("fake", name) for name in names]


class Fake:
    """A fake GPU library for tests. A test names its kernels in the activation of a matrix product.

    For example, ``pick+fast`` stands for the two kernels "pick" and "fast".
    """

    # When a kernel is prepared, the line "m kernel process-id" is appended to the file that FAKE_LOG names.

    cache_bytes = 0

    def __init__(self, place: Place) -> None:
        self._log = os.environ.get("FAKE_LOG")
        self._sick = False

    def environment(self) -> Mapping[str, str]:
        return {"device": "fake", "arch": "none"}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        assert isinstance(problem, GemmProblem)
        if problem.activation in (None, "none"):
            raise UnsupportedError("no names")
        return fake(*str(problem.activation).split("+"))[:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Run:
        if self._log:
            with open(self._log, "a", encoding="utf-8") as log:
                log.write(f"{problem.m} {solution.id} {os.getpid()}\n")
        if solution.id == "unsupported":
            raise UnsupportedError("not here")
        if solution.id in ("needs_memory", "too_large"):
            raise OutOfMemoryError("needs 1000.00 GiB")
        return Run(self, solution.id)

    def refresh(self, seed: int) -> None:
        pass

    def release(self) -> None:
        pass

    def healthy(self) -> bool:
        return not self._sick


class Run:
    workspace_bytes = 0

    def __init__(self, backend: Fake, name: str, times: Mapping[str, float] = TIMES) -> None:
        self._backend, self._name, self._times, self._count = backend, name, times, 0

    def error(self) -> float:
        return {"wrong": 0.5, "unwritten": float("nan")}.get(self._name, 1e-7)

    def fault(self) -> str:
        return ""

    host_us = None

    def sample_us(self, count: int) -> float:
        if self._name == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._name == "hang":
            time.sleep(3600)
        if self._name == "raises":
            raise RuntimeError("launch failed")
        if self._name == "poisons":
            self._backend._sick = True
            raise RuntimeError("illegal memory access")
        if self._name == "patient":
            time.sleep(0.02)
        self._count += 1
        return self._times.get(self._name, 60.0) * (1 + 0.002 * ((self._count * 7) % 5 - 2))


class Unlike(Fake):
    """A fake library for tests with two different GPUs.

    The kernel ``fast`` is the fastest on one GPU and slow on the other. No measurement begins before both GPUs have
    opened the library.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        assert place.store is not None
        self._folder = Path(place.store).parent / "devices"
        self._folder.mkdir(exist_ok=True)
        device = f"{place.device} {os.getppid()}"  # on a cluster each device has an actor, here all have one parent
        mine = self._folder / f"{os.getpid()}.part"
        mine.write_text(device)
        for number in UNLIKE:
            with contextlib.suppress(FileExistsError):
                os.link(mine, self._folder / number)
            if (self._folder / number).read_text() == device:
                break
        self._arch, self._times = UNLIKE[number]

    def environment(self) -> Mapping[str, str]:
        return {"device": f"made-up {self._arch}", "arch": self._arch}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        wait_until(lambda: all((self._folder / number).exists() for number in UNLIKE))
        return super().solutions(problem, limit, workspace_bytes)

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Run:
        return Run(self, solution.id, self._times)


UNLIKE = {"1": ("gfx942", {"pick": 100.0, "fast": 50.0}), "2": ("gfx90a", {"pick": 300.0, "fast": 450.0})}
FAKE = BackendType("fake", "for tests", Fake)
UNLIKES = BackendType("fake", "for tests", Unlike)
NAME = "tests.analyzers.replay.fakes:FAKE"
