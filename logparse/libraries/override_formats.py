"""List of override formats: files that tell a library which kernels to use instead of its own choice.

Each format is imported at its first use, because ``logparse recommend`` writes files for few libraries and needs only
their rules.
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
    """Return True if a tuning table of aiter can hold the override (the user's choice of a kernel).

    It can in two cases:

    * aiter itself measured the product.  Then the override has the key of a table row, with commas.
    * The kernel belongs to a library that only aiter can call.
    """
    own = "," in (override.key_text or "")
    return own or override.solution.library not in ("hipblaslt", "rocblas", "cublaslt", "torch", "miopen")


class _Member(NamedTuple):
    """Where to import one format of override files, and which overrides it can hold.

    * ``module`` is the module below ``logparse.libraries``.
    * ``attribute`` is the format's name in the module.
    * ``writer`` is the name of the format's writer.
    * ``takes`` is a function of an override.  It returns False if the format can never hold the override, and True if
      it may.
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
    _Member(  # this is for a target that states which header its TransformerEngine reads
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
"""Every format of override files that logparse knows.

rocBLAS comes last, because its files are made from the whole output of a tool.
"""


def writers_for(overrides: Iterable[Override]) -> Iterator[Writer]:
    """Yield the file writers that may be able to write some of the overrides (choices of a kernel) for their library.

    One of them writes TunableOp's list of matrix products to tune.
    """
    given = list(overrides)
    for member in _MEMBERS:
        if any(map(member.takes, given)) and (writer := member.format.writer) is not None:
            yield writer
    if any(map(_gemm, given)):
        yield _untuned()


def format_of(writer: Writer) -> OverrideFormat | None:
    """Return the file format of a writer. Returns None if a tuning program reads the file, and not the library."""
    return next((member.format for member in _MEMBERS if member.writer == writer.name), None)


def _untuned() -> Writer:
    from logparse.libraries.tunableop import untuned

    return untuned.WRITER


def __getattr__(name: str) -> object:
    """Build ``OVERRIDE_FORMATS`` (all override formats) and ``WRITERS`` (their writers) when they are first used."""
    if name not in ("OVERRIDE_FORMATS", "WRITERS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    formats = tuple(member.format for member in _MEMBERS)
    globals()["OVERRIDE_FORMATS"] = formats
    globals()["WRITERS"] = (*(x.writer for x in formats if x.writer is not None), _untuned())
    return globals()[name]
