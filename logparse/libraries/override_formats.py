"""The list of override formats: files by which a library takes solutions from outside.

Each is imported when it is first asked for: a recommendation writes files of a few libraries, and needs no other's
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from logparse.model import GemmProblem, Override

if TYPE_CHECKING:
    from logparse.libraries.kinds.format import Writer
    from logparse.libraries.kinds.override_format import OverrideFormat

    OVERRIDE_FORMATS: tuple[OverrideFormat, ...]
    WRITERS: tuple[Writer, ...]


def _of(*libraries: str) -> Callable[[Override], bool]:
    return lambda override: override.solution.library in libraries


def _gemm(override: Override) -> bool:
    return isinstance(override.problem, GemmProblem)


def _aiter(override: Override) -> bool:
    """What aiter measured has a key of aiter's columns; else its own kernels alone are its."""
    own = "," in (override.key_text or "")
    return own or override.solution.library not in ("hipblaslt", "rocblas", "cublaslt", "torch", "miopen")


class _Member(NamedTuple):
    """Where a format is: its ``module`` below ``logparse.libraries`` and its name there.  ``writer`` names its writer;
    ``takes`` is False only for overrides that the writer does not accept.
    """

    module: str
    writer: str = ""
    takes: Callable[[Override], bool] = lambda override: False
    attribute: str = "OVERRIDE_FORMAT"

    @property
    def format(self) -> OverrideFormat:
        found: OverrideFormat = getattr(import_module(f"logparse.libraries.{self.module}"), self.attribute)
        return found


_MEMBERS = (
    _Member("hipblaslt.tuning_rules", "hipblaslt-tuning-file", _of("hipblaslt")),
    _Member(  # for a target that states which header its TransformerEngine reads
        "transformer_engine.cache_rules",
        "transformer-engine-cache",
        lambda x: x.solution.library == "hipblaslt" and "transformer_engine_columns" in x.target,
    ),
    _Member("miopen.find_db_rules", "miopen-find-db", _of("miopen")),
    _Member("miopen.perf_db_rules", "miopen-perf-db", _of("miopen")),
    _Member("tunableop.results_rules", "tunableop", _gemm),
    _Member("aiter.rules", "aiter", _aiter),
    _Member("aiter.rules", attribute="KERNEL_TABLES"),
    _Member("moe.rules"),
    _Member("rocblas.rules", "rocblas", _of("rocblas")),
)
"""Every override format whose library's reader is known; rocBLAS last: it is converted from a tool's whole output."""


def writers_for(overrides: Iterable[Override]) -> Iterator[Writer]:
    """The writers that may accept some of the overrides: of files, and of the list that TunableOp tunes from."""
    given = list(overrides)
    for member in _MEMBERS:
        if any(map(member.takes, given)) and (writer := member.format.writer) is not None:
            yield writer
    if any(map(_gemm, given)):
        yield _untuned()


def format_of(writer: Writer) -> OverrideFormat | None:
    """The format of the files that a writer makes; None for the list that a tuner reads."""
    return next((member.format for member in _MEMBERS if member.writer == writer.name), None)


def _untuned() -> Writer:
    from logparse.libraries.tunableop import untuned

    return untuned.WRITER


def __getattr__(name: str) -> object:
    """``OVERRIDE_FORMATS``, all of them, and ``WRITERS``: what ``recommend`` writes."""
    if name not in ("OVERRIDE_FORMATS", "WRITERS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    formats = tuple(member.format for member in _MEMBERS)
    globals()["OVERRIDE_FORMATS"] = formats
    globals()["WRITERS"] = (*(x.writer for x in formats if x.writer is not None), _untuned())
    return globals()[name]
