"""What files state about problems, and what analyzers conclude.  Names of times contain their unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from logparse.model.problems import OperatorProblem, Problem, of_fields
from logparse.model.remedies import Advise, Remedy, Sureness, UseRows

Status = Literal["ok", "failed", "skipped", "unsupported", "wrong", "timeout", "out_of_memory", "no_time"]
TRIED: frozenset[Status] = frozenset({"ok", "failed", "unsupported", "wrong", "timeout", "out_of_memory"})
"""Statuses of solutions that were tried: those that are left out and those without a time show nothing."""


@dataclass(frozen=True)
class Solution:
    """A kernel or algorithm of a library that computes a problem: ``hipblaslt:477479``, ``miopen:GemmWrwUniversal`` …

    ``raw`` is the file's own spelling, ``algorithm`` MIOpen's algorithm string.  PyTorch's normal call is
    ``Solution("torch", "Default")``, whose text is ``Default``.
    """

    library: str
    id: str
    raw: str = field(default="", compare=False)
    algorithm: str | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        return "Default" if self.id == "Default" else f"{self.library}:{self.id}"


DEFAULT = Solution("torch", "Default", "Default")


def solution_from_text(text: str) -> Solution:
    """The solution with this canonical ``text``."""
    library, colon, id = text.partition(":")
    return Solution(library, id) if colon else Solution("torch", text)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a problem that a log records.

    ``category`` is the mask category (``trace``, ``bench``, ``profile`` …) or another library's word for it; ``count``
    is None where the format does not count; ``by_tool`` marks lines that a benchmark wrote, which count for nothing.
    Ingest adds clock and process; ``pid`` is the process where a block of lines states it.
    """

    problem: Problem
    category: str
    count: int | None = 1
    solution: Solution | None = None
    workspace_bytes: int | None = None
    by_tool: bool = False
    device: int | None = None
    pid: int | None = None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A time of one solution for one problem, from a file or a replay, or the reason why there is no time.

    ``origin`` names the tool that measured, as its format declares (``formats.format.Origin``: ``find-db``,
    ``tunableop``, ``trace`` …); a comparison of times of different origins is always labelled as one.
    """

    problem: Problem
    solution: Solution
    origin: str
    status: Status = "ok"
    time_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    std_us: float | None = None
    samples_us: tuple[float, ...] = ()
    workspace_bytes: int | None = None
    error: str | None = None
    key_text: str | None = None


@dataclass(frozen=True)
class Fact:
    """Where a file or measurement was made: ``arch``, ``cu_count``, ``hipblaslt_revision`` … (see ``FACTS``)."""

    name: str
    value: str


FACTS: Mapping[str, str] = {
    "arch": "gcnArchName as the file gives it, or gfxNNN",
    "cu_count": "compute units as HIP counts them: WGPs, of two CUs each, on RDNA (SMs on NVIDIA)",
    "wgp_mode": "0 where GPU_ENABLE_WGP_MODE=0 makes HIP count CUs on RDNA",
    "device": "marketing name of the device",
    "gpus": "devices that one process sees",
    "kernels_of": "place and process of a file of rocprof, of which several hold the same kernels",
    "driver": "driver version",
    "hipblaslt_version": "major·100000 + minor·100 + patch, or M.m.p before ROCm 6.2",
    "hipblaslt_revision": "git revision of hipBLASLt",
    "transformer_engine_columns": "columns of the hipBLASLt cache that this build of TransformerEngine reads",
    "triton_version": "Triton version, M.m.p",
    "rocblas_version": "rocBLAS version text",
    "miopen_version": "M.m.p",
    "miopen_tweak": "git hash part of the MIOpen build",
    "rocm_version": "ROCm version",
    "hip_version": "HIP version",
    "cuda_version": "CUDA version that PyTorch was built for",
    "pytorch_version": "x.y.z",
    "cublaslt_version": "cuBLASLt version",
    "backend": "HIP, OpenCL or CUDA",
    "pid": "process that wrote the file, where the file's name contains it",
}
"""Names of facts that more than one format gives.  A TunableOp validator is also kept raw as ``validator:KEY``."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A line that a library wrote and that is no call, its addresses normalised."""

    category: str
    text: str
    function: str = ""
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class SolutionName:
    """Names that a library build gives to a solution (bench output, extended profile)."""

    solution: Solution
    name: str | None = None
    kernel_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """GPU kernels of one name that an operator launched (traces).  ``problem`` None: the operator is no problem.

    ``operator`` is one that no math library computes, with its recorded inputs.  Statistics of the
    first rocprof have no extremes.  ``unit`` is the kind of the units of work in which they ran, where the trace tells
    kinds apart.
    """

    op: str
    kernel: str
    calls: int
    total_us: float
    min_us: float | None
    max_us: float | None
    device: int | None = None
    problem: Problem | None = None
    operator: OperatorProblem | None = None
    unit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One kernel of a collective on one rank (traces).

    ``ranks`` names those that take part, as PyTorch records them.  ``us`` is the kernel's time, which contains the
    wait for the last rank; ``alone_us`` the part of it in which no kernel that computes ran on the device.
    ``start_us`` is on the trace's clock; the calls of a group have the same order on each of its ranks.
    """

    kernel: str
    ranks: str
    start_us: float
    us: float
    alone_us: float
    device: int | None = None


@dataclass(frozen=True)
class Reject:
    """A stretch of a line that has a format's marker and cannot be read.

    ``offset`` is in bytes from the start of the line that the reader got (ingest adds the line's place in the file);
    length 0 means the whole line.
    """

    reason: str
    offset: int = 0
    length: int = 0


Record: TypeAlias = Call | Measurement | Fact | Message | SolutionName | Kernel | Collective | Reject


@dataclass(frozen=True, kw_only=True)
class Override:
    """The instruction to use a solution for a problem on a target.

    ``target`` holds facts of the machine that will read it.  ``time_us`` and ``workspace_bytes`` are those of the
    measurement that supports it, ``key_text`` the library's own key where a file gave it.  ``parameters`` are the
    solver's tuned ones, verbatim (MIOpen's perf-db): without them a tunable solver is not the one that was measured.
    ``fallback`` is the next best measured solution, for a library that accepts a second where the first does not apply.
    """

    problem: Problem
    solution: Solution
    target: Mapping[str, str]
    time_us: float | None = None
    default_us: float | None = None
    workspace_bytes: int | None = None
    key_text: str | None = None
    parameters: str | None = None
    fallback: Override | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence of a finding: the fields that ranking and confidence read, and details that are only shown.

    Raises ValueError where a detail has the name of a field.
    """

    sureness: Sureness = "estimated"
    """``measured alone``: both ``now_us`` and the proposed time of a call are times of measured solutions."""
    now_us: float | None = None
    """Time of one call now, µs."""
    pick: str | None = None
    """Text of the solution that runs now."""
    best: str | None = None
    """Text of the solution that is proposed."""
    best_us: float | None = None
    """Time of ``best``, µs; where none is proposed, time of the fastest known solution, which is too slow."""
    at_most_us: float | None = None
    """What the run's traces lose, µs, if nothing tells how much of it can be saved."""
    waits_for: Literal["host", "communication"] | None = None
    """What the GPU waits for during ``at_most_us``; the simulated step bounds what can be saved of it."""
    noise_us: float | None = None
    """Difference between two times of the pick in one file, µs."""
    measured: str | None = None
    """Text of the measured problem, where it is not the finding's own."""
    source_id: str | None = None
    """Id of the source that the finding is about, and that holds the times of ``pick`` and ``best``."""
    origin: str | None = None
    level: str | None = None
    """Level of the link over which the measurement was taken."""
    arch: str | None = None
    cu_count: str | None = None
    file: str | None = None
    versions: Mapping[str, str] | None = None
    """Path of the source of the times, and the facts of the machine that wrote it."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Other values that the analyzer shows; nothing is computed from them."""

    def __post_init__(self) -> None:
        if not self.details.keys().isdisjoint(self.__dataclass_fields__.keys()):
            doubled = self.details.keys() & self.__dataclass_fields__.keys()
            raise ValueError(f"evidence has fields of these names: {', '.join(sorted(doubled))}")

    @cached_property
    def shown(self) -> Mapping[str, object]:
        """All ``details`` and the known fields, except ``sureness`` and ``now_us``, which are columns of their own."""
        own = vars(self).items()
        return {name: x for name, x in own if x is not None and name not in _NOT_SHOWN} | dict(self.details)


_NOT_SHOWN = frozenset({"sureness", "now_us", "details"})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What an analyzer found about one problem (or, with ``problem`` None, about the run).

    ``saving_us`` is per run of the workload, with ``saving_low_us``/``saving_high_us`` where an interval is known;
    ``per_call_us`` is the loss of one call, with its own interval.  ``interval_from`` names what the interval is of,
    ``p`` is the p-value of a confirmation (``docs/findings.md``).  None means unknown, never zero.  ``remedy``
    is what a person does; ``advice`` explains it in sentences.  ``reasons`` are the messages of findings about the same
    problem whose savings are contained in this one's.
    """

    analyzer: str
    message: str
    problem: Problem | None = None
    saving_us: float | None = None
    saving_low_us: float | None = None
    saving_high_us: float | None = None
    saving_share: float | None = None
    per_call_us: float | None = None
    per_call_low_us: float | None = None
    per_call_high_us: float | None = None
    interval_from: str | None = None
    p: float | None = None
    calls: int | None = None
    evidence: Evidence = field(default_factory=Evidence)
    remedy: Remedy = field(default_factory=Advise)
    advice: str | None = None
    reasons: tuple[str, ...] = ()

    @property
    def kind(self) -> str | None:
        return self.problem.kind if self.problem else None

    @property
    def override(self) -> Override | None:
        """The override of ``UseRows``; None for any other remedy."""
        return self.remedy.override if isinstance(self.remedy, UseRows) else None

    @property
    def confirmed(self) -> bool:
        """Whether paired samples in fresh processes showed the saving (``p`` is that test's)."""
        return self.p is not None

    @property
    def sureness(self) -> Sureness:
        """How the saving is known: as the finder states, unless a confirmation measured it."""
        return "measured alone" if self.confirmed else self.evidence.sureness


R = TypeVar("R", Evidence, Finding)


def fast_replace(record: R, **changes: object) -> R:
    """A finding, or its evidence, with other values, as ``dataclasses.replace`` makes it in ten times the time: every
    finding of a large store gets its place and its reasons.
    """
    values = vars(record) | changes
    values.pop("shown", None)  # made of the old values
    return of_fields(type(record), values)
