"""The kind of a library's settings for ``logparse capture``: environment variables with which it writes its log.

A module of a room offers its settings as ``CAPTURE``.  By custom the module is ``capture.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Platform: TypeAlias = Literal["rocm", "cuda"]

CATEGORIES: Mapping[str, tuple[int, str]] = {
    "error": (1, "errors of arguments, handles and solutions"),
    "trace": (2, "one line per matmul call"),
    "hints": (4, "advice (hipBLASLt never writes any, cuBLASLt does)"),
    "info": (8, "why a solution was chosen, and which files were read"),
    "api": (16, "every call of the API: very many lines"),
    "bench": (32, "one hipblaslt-bench command per GEMM launch, flushed line by line (ROCm 6.1 and later)"),
    "profile": (64, "each distinct GEMM with its count, written when a process ends (ROCm 6.4 and later)"),
    "extended_profile": (128, "like profile, with the solution's name (ROCm 6.4 and later)"),
}
"""Categories of log lines that ``--masks`` chooses: bit and meaning.

The bits are those of HIPBLASLT_LOG_MASK.  cuBLASLt has the first five categories as well.  The mask 5 means error +
hints, not "level 5".
"""


def names_of(mask: int) -> str:
    """Return the names of a mask's categories, joined by `` + ``."""
    return " + ".join(category for category, (bit, _) in CATEGORIES.items() if mask & bit)


@dataclass(frozen=True)
class Setting:
    """One variable for the job.  A ``value`` of None removes it from the environment."""

    name: str
    value: str | None
    why: str


@dataclass(frozen=True)
class Asked:
    """Wishes of the user for a capture.

    * ``folder``: absolute path of the folder that gets the logs.  It contains no ``%``.
    * ``mask``: sum of the bits of ``CATEGORIES``.
    * ``environ``: environment of the job before any setting.
    * ``markers``: libraries should mark their calls for a profiler.
    """

    folder: Path
    mask: int
    environ: Mapping[str, str] = field(default_factory=dict)
    markers: bool = False


def _none(asked: Asked) -> Iterable[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Capture:
    """How one library's log is switched on.

    * ``library``: the name by which a user leaves the log out.
    * ``platforms``: platforms on which the library runs.
    * ``settings``: the variables, in the order in which they are printed.  Raises InputError if the environment and the
      settings exclude each other.
    * ``cancels``: variables that a command may set itself (``env NAME=…``, ``mpirun -x NAME=…``).  Each has a test for
      values that cancel the settings, and the reason.
    * ``doubts``: warnings of what may be lost.
    * ``on_stderr``: the library writes to standard error alone, which is copied into the folder.
    """

    library: str
    platforms: tuple[Platform, ...]
    settings: Callable[[Asked], Iterable[Setting]]
    cancels: Mapping[str, tuple[Callable[[str], bool], str]] = field(default_factory=dict)
    doubts: Callable[[Asked], Iterable[str]] = _none
    on_stderr: bool = False
