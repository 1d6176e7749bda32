"""The environment variables with which ``logparse capture`` makes a library write its log.

Each library's folder defines its settings as ``CAPTURE``, usually in a module named ``capture.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Platform: TypeAlias = Literal["rocm", "cuda"]

CATEGORIES: Mapping[str, tuple[int, str]] = {
    "error": (1, "log of errors about arguments, handles and solutions"),
    "trace": (2, "log of one line per matrix product that the job calls"),
    "hints": (4, "log of the library's advice on faster calls (cuBLASLt writes such lines, hipBLASLt does not)"),
    "info": (8, "log of the reasons why the library chose a solution, and of the files that it read"),
    "api": (16, "log of every call of the library's API, which is very many lines"),
    "bench": (
        32,
        "log of one hipblaslt-bench command per launch of a GEMM, written at the launch (ROCm 6.1 and later)",
    ),
    "profile": (
        64,
        "log of each distinct GEMM with its number of calls, written when a process ends (ROCm 6.4 and later)",
    ),
    "extended_profile": (
        128,
        (
            "log of each distinct GEMM with its number of calls and the name of its solution, written when a process "
            "ends (ROCm 6.4 and later)"
        ),
    ),
}
"""The categories of log lines that ``--masks`` can choose, each with its bit and its meaning.

HIPBLASLT_LOG_MASK has the same bits. cuBLASLt has the first five categories as well.  The mask 5 means error + hints,
not "level 5".
"""


def names_of(mask: int) -> str:
    """Return which categories of log lines a bit mask switches on, as names joined by `` + ``.

    Example: 5 gives ``error + hints``.
    """
    return " + ".join(category for category, (bit, _) in CATEGORIES.items() if mask & bit)


@dataclass(frozen=True)
class Setting:
    """An environment variable to set for the job.  A ``value`` of None means that the variable is removed."""

    name: str
    value: str | None
    why: str


@dataclass(frozen=True)
class Asked:
    """The wishes of a user of ``logparse capture``: what to record, and where.

    * ``folder``: the absolute path for the logs. It contains no ``%``.
    * ``mask``: the sum of the bits of the wanted ``CATEGORIES``.
    * ``markers``: True if libraries should mark their calls for a profiler.
    """

    folder: Path
    mask: int
    # This is the environment of the job before logparse changes it.
    environ: Mapping[str, str] = field(default_factory=dict)
    markers: bool = False


def _none(asked: Asked) -> Iterable[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Capture:
    """Describes how to switch on the log of one library.

    * ``library``: the library's name, with which a user can leave this log out.
    * ``platforms``: the platforms on which the library runs.
    * ``settings``: a function that returns the environment variables, in the order in which they are printed.  It
      raises InputError if the job's environment contradicts them.
    * ``cancels``: the variables that a command line may set itself (``env NAME=…``, ``mpirun -x NAME=…``).  Each
      variable has a test for values that would switch the log off again, and the reason.
    * ``doubts``: a function that returns warnings about what the log may lack.
    * ``on_stderr``: True if the library can only write to standard error.  Then standard error is copied into the
      folder.
    """

    library: str
    platforms: tuple[Platform, ...]
    settings: Callable[[Asked], Iterable[Setting]]
    cancels: Mapping[str, tuple[Callable[[str], bool], str]] = field(default_factory=dict)
    doubts: Callable[[Asked], Iterable[str]] = _none
    on_stderr: bool = False
