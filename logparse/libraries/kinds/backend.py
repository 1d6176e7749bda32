"""What a backend is: one way of running problems on a device, with the solutions that it offers for each.

A backend lives in a worker process of its own device (``worker.py``); nothing of it crosses a process but nouns.
The library's own pick is always its first solution: what a user gets who changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from logparse.model import Problem, Solution

CacheState = Literal["cold", "hot"]


class UnsupportedError(Exception):
    """A problem that this backend or solution does not run; the text gives the reason.  It is no error."""


class HostBoundError(Exception):
    """The device waited for the host in every try: the time is the host's, not the solution's."""


class OutOfMemoryError(Exception):
    """The device's memory does not hold the problem; the text states how much it needs."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Under which a solution runs.

    ``sets`` operand sets are run through in turn, so that together they are larger than the last-level cache (one set:
    hot operands).  ``evict``: so many sets still fit the cache, so it is evicted before each sample, in which no set is
    used twice.  ``tf32``: single precision may run in that format, which the check of results must allow.

    Every seed gives other random normal operands; all solutions of one seed see the same ones.
    """

    seed: int = 0
    sets: int = 1
    evict: bool = False
    workspace_bytes: int | None = None
    tf32: bool = False


class Runnable(Protocol):
    """A solution that is ready to run: operands on the device, plan built, workspace allocated."""

    @property
    def workspace_bytes(self) -> int | None:
        """Workspace that this solution really uses, where it is known."""

    @property
    def host_us(self) -> float | None:
        """What the host took per execution to enqueue the last sample, µs; None where the host executes it."""

    def error(self) -> float:
        """Run once into outputs full of NaN and return ‖out − ref‖ / ‖ref‖ against a higher-precision reference.

        NaN where the output is not finite, which includes every element that was not written.
        """

    def fault(self) -> str:
        """How the result differs from what rounding explains, in each element and on integers; empty: it does not."""

    def sample_us(self, count: int) -> float:
        """Mean time of ``count`` executions back to back, each on the next operand set, in µs on the device's clock.

        Raises HostBoundError where the host cannot enqueue as fast as the device executes.
        """


class Backend(Protocol):
    """An opened backend.  Any method may raise; ``UnsupportedError`` and ``OutOfMemoryError`` are expected answers."""

    @property
    def cache_bytes(self) -> int:
        """Last-level cache of the device."""

    def environment(self) -> Mapping[str, str]:
        """Facts (``logparse.model.FACTS``) of device, driver and libraries: equal facts mean comparable times."""

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """At most ``limit`` that fit the workspace, the library's own pick first.  Raises UnsupportedError."""

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Runnable:
        """Make a solution ready.  Raises UnsupportedError, OutOfMemoryError, or whatever the library does."""

    def refresh(self, seed: int) -> None:
        """Overwrite the operands of everything prepared with the random data of another seed."""

    def release(self) -> None:
        """Free everything that was prepared."""

    def healthy(self) -> bool:
        """Whether the device still answers after a failure (a faulting kernel poisons its whole process)."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how to open a backend.

    ``device`` is torch's word (``cuda:0``, also on ROCm; ``cpu``); ``store`` the measurements' store; ``exhaustive``
    asks for enumeration beyond the heuristic list; ``conv_tf32`` lets single-precision convolutions run in the matrix
    units' short format, as PyTorch's default does, ``tf32`` PyTorch's matrix products, as a setting of the job may.
    """

    device: str = "cpu"
    store: str | None = None
    exhaustive: bool = False
    conv_tf32: bool = True
    tf32: bool = False


@dataclass(frozen=True)
class BackendType:
    """A member of ``BACKENDS``: opened in the worker, so nothing heavy is imported before.

    ``imports``: modules that open no device when imported; workers are forked from a process that has them.
    """

    name: str
    about: str
    open: Callable[[Place], Backend]
    imports: tuple[str, ...] = ()
