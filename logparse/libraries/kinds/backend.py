"""The interface of a backend, which runs problems (for example matrix products) on a device and times them.

For each problem a backend offers solutions: the kernels that a library can use for it.  The first solution is always
the library's own choice, which a user gets without any change.  A backend lives in a worker process that has a device
of its own (``worker.py``).  Only objects of ``logparse.model`` are sent between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, Protocol

from logparse.model import Problem, Solution

CacheState = Literal["cold", "hot"]


class UnsupportedError(Exception):
    """Error that is raised if a backend or solution cannot run a problem.  The text gives the reason.

    Callers expect this error: it is an answer, not a failure.
    """


class HostBoundError(Exception):
    """Error that is raised if the device had to wait for the host (the CPU) in every try.

    Then the measured time would be the host's time, not the time of the solution.
    """


class OutOfMemoryError(Exception):
    """Error that is raised if the problem does not fit into the device's memory.

    The text states how much memory it needs.
    """


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions under which a solution is timed.

    * ``seed``: the seed of the random inputs.  All solutions that run with one seed get the same inputs.
    * ``sets``: the number of copies of the inputs and outputs, which are used in turn.  Together they are larger than
      the last-level cache.  With one copy the data are already in the cache.
    * ``evict``: True if the cache is emptied before each sample.  This is needed if all copies together still fit into
      the cache.  Then no copy is used twice in a sample.
    * ``workspace_bytes``: the size of the workspace that the solution may use.  None means the default of the library's
      backend.
    * ``tf32``: True if single precision may be computed in TF32.  The check of the results then allows larger errors.
    """

    seed: int = 0
    sets: int = 1
    evict: bool = False
    workspace_bytes: int | None = None
    tf32: bool = False


class Runnable(Protocol):
    """A solution that is ready to run.

    Its inputs are on the device, its plan is built and its workspace is allocated.
    """

    @property
    def workspace_bytes(self) -> int | None:
        """The size of the workspace that this solution really uses, in bytes.  None if it is not known."""

    @property
    def host_us(self) -> float | None:
        """The time that the host took to launch one execution in the last sample, in µs.

        None if the host itself executes the solution.
        """

    def error(self) -> float:
        """Run the solution once and return the relative error of its result, ‖out − ref‖ / ‖ref‖.

        The reference ``ref`` is computed in higher precision.  Before the run the outputs are filled with NaN.  So the
        result is NaN if the solution left an element unwritten, and also if an element is not finite.
        """

    def fault(self) -> str:
        """Describe how the result is wrong by more than rounding can explain.  Returns an empty text if it is right.

        With random data each element is checked.  With small integers, whose sums are exact, the whole result must be
        equal.
        """

    def sample_us(self, count: int) -> float:
        """Run the solution ``count`` times back to back and return the mean time of one execution.

        The time is in µs on the device's clock.  Each execution uses the next copy of the inputs.  Raises
        HostBoundError if the host cannot launch as fast as the device executes.
        """


class Backend(Protocol):
    """A backend that is open and can run problems.

    Any method may raise an error.  Callers expect ``UnsupportedError`` and ``OutOfMemoryError`` as answers.
    """

    @property
    def cache_bytes(self) -> int:
        """The size of the device's last-level cache, in bytes."""

    def environment(self) -> Mapping[str, str]:
        """Return the facts about the device, the driver and the libraries, by name (``logparse.model.FACTS``).

        Two times may be compared if they were measured under the same facts.
        """

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """Return the solutions that the library offers for a problem, its own choice first.

        There are at most ``limit`` solutions, and each fits into a workspace of ``workspace_bytes``.  Raises
        UnsupportedError if the backend cannot run the problem.
        """

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Runnable:
        """Make a solution ready to run.  Raises UnsupportedError, OutOfMemoryError, or an error of the library."""

    def refresh(self, seed: int) -> None:
        """Overwrite the inputs of all prepared solutions with the random data of another seed."""

    def release(self) -> None:
        """Free everything that was prepared."""

    def healthy(self) -> bool:
        """Return True if the device still answers after a failure.

        A kernel that crashes makes the device unusable for the whole process.
        """


@dataclass(frozen=True, kw_only=True)
class Place:
    """The device on which a backend runs, and the settings with which it is opened.

    * ``device``: torch's name of the device: ``cuda:0`` (also on ROCm) or ``cpu``.
    * ``store``: the path of the store with the measurements.
    * ``exhaustive``: True if the backend also offers solutions that the library's heuristic does not list.
    * ``conv_tf32``: True if single-precision convolutions may run in TF32, as PyTorch allows by default.
    * ``tf32``: True if PyTorch's single-precision matrix products may run in TF32, which a setting of the job can
      allow.
    """

    device: str = "cpu"
    store: str | None = None
    exhaustive: bool = False
    conv_tf32: bool = True
    tf32: bool = False


@dataclass(frozen=True)
class BackendType:
    """A backend that users can choose, as an entry of ``BACKENDS``.

    It is opened only in the worker process, so that nothing heavy is imported before.

    * ``imports``: the modules that may be imported in advance, because their import opens no device.  Workers are
      forked from a process that has imported them.
    * ``default``: True if ``replay`` uses this backend when the user names none.
    * ``needs``: the modules that must be installed, each with the name of its package.
    """

    name: str
    about: str
    open: Callable[[Place], Backend]
    imports: tuple[str, ...] = ()
    default: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """Return the names of the packages that this backend needs and that are not installed.

        Imports nothing heavy.
        """
        return [package for module, package in self.needs.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # The package around the module is missing.
        return False
