"""The interface of a backend, which runs the kernels of one library on a GPU and times them.

A backend runs problems: a problem is for example a matrix product of given sizes and types.  For each problem it offers
solutions: the kernels that the library can use for it.  The first solution is always the library's own choice, which a
user gets without any change.  A backend lives in a worker process that has a device of its own (``worker.py``).  Only
objects of ``logparse.model`` are sent between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, Protocol

from logparse.model import Problem, Solution

CacheState = Literal["cold", "hot"]


class UnsupportedError(Exception):
    """Raised if a backend (or one of its kernels) cannot run a matrix product or convolution.

    The text gives the reason. Callers expect this error, because many kernels do not support every product.
    """


class HostBoundError(Exception):
    """Raised if the GPU had to wait for the host (the CPU) each time a kernel was timed.

    Then the measured time would be the host's time, not the time of the kernel.
    """


class OutOfMemoryError(Exception):
    """Raised if the inputs and outputs do not fit into the GPU's memory.

    The text states how much memory they need.
    """


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How a kernel is timed: its inputs, its workspace, and the state of the cache.

    * ``seed``: the seed of the random inputs.  All kernels that run with one seed get the same inputs.
    * ``sets``: the number of copies of the inputs and outputs, which are used in turn.  Together they are larger than
      the last-level cache.  With one copy the data would already be in the cache.
    * ``evict``: True if the cache is emptied before each sample.  This is needed if all copies together still fit into
      the cache.  Then no copy is used twice in a sample.
    * ``workspace_bytes``: the size of the workspace that the kernel may use.  None means the default of the library's
      backend.
    * ``tf32``: True if single precision may be computed in TF32.  The check of the results then allows larger errors.
    """

    seed: int = 0
    sets: int = 1
    evict: bool = False
    workspace_bytes: int | None = None
    tf32: bool = False


class Runnable(Protocol):
    """A kernel that is ready to run: its inputs are on the device, and its workspace is allocated.

    If the library needs a plan for the call, the plan is built too.
    """

    @property
    def workspace_bytes(self) -> int | None:
        """The size of the workspace that this kernel really uses, in bytes.  None if it is not known."""

    @property
    def host_us(self) -> float | None:
        """The time that the host (CPU) needed to launch one execution, in µs, measured in the last sample.

        None if the host itself executes the kernel.
        """

    def error(self) -> float:
        """Run the kernel once and return the relative error of its result, ‖out − ref‖ / ‖ref‖.

        The reference ``ref`` has higher precision.  The error is NaN if an element is not finite or was not written.
        """

    def fault(self) -> str:
        """Run the kernel and describe what is wrong with its result. Return an empty text if the result is right.

        Results from small integers must be exact.  Results from random data may differ by rounding.
        """

    def sample_us(self, count: int) -> float:
        """Run the kernel ``count`` times back to back and return the mean time of one execution, in µs.

        The clock is the device's.  Each execution uses the next copy of the inputs.  Raises HostBoundError if the host
        cannot launch fast enough.
        """


class Backend(Protocol):
    """A library that is opened on a GPU, so that its kernels can be run and timed.

    Any method may raise an error.  ``UnsupportedError`` and ``OutOfMemoryError`` are usual: callers go on with the next
    kernel.
    """

    @property
    def cache_bytes(self) -> int:
        """The size of the last-level cache of the GPU (or CPU), in bytes."""

    def environment(self) -> Mapping[str, str]:
        """Return the facts that influence a measured time: device, driver and library versions.

        The result maps names (``logparse.model.FACTS``) to values. Two times may be compared if they were measured
        under the same facts.
        """

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """List the kernels that the library offers for a matrix product or convolution, its own choice first.

        * ``limit`` is the largest number of kernels in the list.
        * ``workspace_bytes`` is the largest workspace that a kernel may need.
        * Raises UnsupportedError if the library or device cannot run ``problem``.
        """

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Runnable:
        """Return a kernel that is ready to run.

        Raises UnsupportedError, OutOfMemoryError, or an error of the library.
        """

    def refresh(self, seed: int) -> None:
        """Give all prepared kernels new random inputs, drawn with another seed."""

    def release(self) -> None:
        """Free the memory that ``prepare`` allocated."""

    def healthy(self) -> bool:
        """Return True if the device can still be used after a kernel has failed.

        A kernel that crashes makes the device unusable for the whole process.
        """


@dataclass(frozen=True, kw_only=True)
class Place:
    """The GPU (or CPU) on which a backend runs, and the settings with which the backend is opened.

    * ``device``: torch's name of the device: ``cuda:0`` (also on ROCm) or ``cpu``.
    * ``store``: the path of the folder with the measurements.
    * ``exhaustive``: True if the backend also offers kernels that the library's heuristic does not list.
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
    """A library that a user can choose for ``logparse replay``.  It says what must be installed to open the library.

    The library is opened only in the worker process, so that nothing heavy is imported before.

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
        """Return the names of the packages that must still be installed before this backend can be used.

        The packages are only looked up, not imported.
        """
        return [package for module, package in self.needs.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # The package around the module is missing.
        return False
