"""The interface of a backend: a way of running problems on a device.

A backend offers solutions for each problem.  It lives in a worker process of its own device (``worker.py``).  Only
objects of ``logparse.model`` cross between processes.  A backend's first solution is always the library's own pick,
which a user gets without any change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, Protocol

from logparse.model import Problem, Solution

CacheState = Literal["cold", "hot"]


class UnsupportedError(Exception):
    """Error for a problem that this backend or solution does not run.

    The text gives the reason.  The error is an answer, not a failure.
    """


class HostBoundError(Exception):
    """Error if the device waited for the host in every try.  Then a time would be the host's, not the solution's."""


class OutOfMemoryError(Exception):
    """Error if the device's memory cannot hold the problem.  The text states how much memory the problem needs."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions under which a solution runs.

    * ``seed``: seed of the random normal operands.  All solutions of one seed get the same operands.
    * ``sets``: number of operand sets, used in turn, so that together they are larger than the last-level cache.  One
      set means hot operands.
    * ``evict``: evict the cache before each sample.  It is True if all sets together still fit into the cache.  Then no
      set is used twice in a sample.
    * ``workspace_bytes``: workspace that the solution may use.  None: the default of the library's backend.
    * ``tf32``: single precision may run in TF32, and the check of results must allow this.
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
        """Workspace that this solution really uses, in bytes.  None if it is not known."""

    @property
    def host_us(self) -> float | None:
        """Time that the host took to enqueue one execution in the last sample, µs.

        None if the host itself executes.
        """

    def error(self) -> float:
        """Run once into outputs full of NaN and return the error ‖out − ref‖ / ‖ref‖ of the result.

        The reference ``ref`` is computed in higher precision.  The error is NaN if an element of the output is not
        finite.  Because the outputs begin as NaN, this includes every element that the solution did not write.
        """

    def fault(self) -> str:
        """Return how the result differs from the reference by more than rounding explains.

        Return an empty text if it does not.  With random data each element is checked.  With integers, whose sums are
        exact, the whole result is checked.
        """

    def sample_us(self, count: int) -> float:
        """Return the mean time of ``count`` executions back to back, in µs on the device's clock.

        Each execution uses the next operand set.  Raises HostBoundError if the host cannot enqueue as fast as the
        device executes.
        """


class Backend(Protocol):
    """Backend that is open.

    Any method may raise an error.  ``UnsupportedError`` and ``OutOfMemoryError`` are expected answers.
    """

    @property
    def cache_bytes(self) -> int:
        """Size of the device's last-level cache, bytes."""

    def environment(self) -> Mapping[str, str]:
        """Return the facts (``logparse.model.FACTS``) of device, driver and libraries.

        Times of equal facts are comparable.
        """

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """Return at most ``limit`` solutions that fit the workspace, the library's own pick first.

        Raises UnsupportedError.
        """

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Runnable:
        """Make a solution ready to run.  Raises UnsupportedError, OutOfMemoryError, or an error of the library."""

    def refresh(self, seed: int) -> None:
        """Overwrite the operands of everything prepared with the random data of another seed."""

    def release(self) -> None:
        """Free everything that was prepared."""

    def healthy(self) -> bool:
        """Return True if the device still answers after a failure.

        A faulting kernel makes its whole process unusable.
        """


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how to open a backend.

    * ``device``: torch's name of the device (``cuda:0``, also on ROCm; ``cpu``).
    * ``store``: the store of the measurements.
    * ``exhaustive``: enumerate solutions beyond the heuristic's list.
    * ``conv_tf32``: let single-precision convolutions run in TF32, as PyTorch does by default.
    * ``tf32``: let PyTorch's single-precision matrix products run in TF32, as a setting of the job may.
    """

    device: str = "cpu"
    store: str | None = None
    exhaustive: bool = False
    conv_tf32: bool = True
    tf32: bool = False


@dataclass(frozen=True)
class BackendType:
    """A member of ``BACKENDS``.  It is opened in the worker, so that nothing heavy is imported before.

    * ``imports``: modules that open no device when imported.  Workers are forked from a process that has imported them.
    * ``default``: ``replay`` uses this backend if the user names none.
    * ``needs``: modules that must be installed, each with the package that has it.
    """

    name: str
    about: str
    open: Callable[[Place], Backend]
    imports: tuple[str, ...] = ()
    default: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """Return the packages that are not installed.  Nothing heavy is imported."""
        return [package for module, package in self.needs.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # The package around the module is missing.
        return False
