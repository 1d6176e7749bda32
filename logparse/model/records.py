"""Records: what files state about problems, and what analyzers conclude.  Names of times contain their unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from logparse.model.problems import OperatorProblem, Problem, of_fields
from logparse.model.remedies import Advise, Remedy, Sureness, UseRows

Status = Literal["ok", "failed", "skipped", "unsupported", "wrong", "timeout", "out_of_memory", "no_time"]
TRIED: frozenset[Status] = frozenset({"ok", "failed", "unsupported", "wrong", "timeout", "out_of_memory"})
"""Statuses that prove that a solution was tried.  ``skipped`` and ``no_time`` prove nothing."""


@dataclass(frozen=True)
class Solution:
    """Kernel or algorithm of a library that computes a problem: ``hipblaslt:477479``, ``miopen:GemmWrwUniversal`` …

    ``raw`` is the file's own spelling.  ``algorithm`` is MIOpen's algorithm string.  PyTorch's normal call is
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
    """Return the solution with this canonical ``text``."""
    library, colon, id = text.partition(":")
    return Solution(library, id) if colon else Solution("torch", text)


@dataclass(frozen=True, kw_only=True)
class Call:
    """Call of a problem that a log records.

    * ``category``: the mask category (``trace``, ``bench``, ``profile`` …) or another library's word for it.
    * ``count``: the number of calls; None if the format does not count.
    * ``by_tool``: True for a line that a benchmark wrote.  Such a call is not a call of the job, so it is not counted.
    * ``pid``: the process, if a block of lines states it.  Ingest adds the clock, and the process of other lines.
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
    """Time of one solution for one problem, from a file or a replay, or the reason why there is no time.

    ``origin`` names the tool that measured, as its format declares (``libraries.kinds.format.Origin``: ``find-db``,
    ``tunableop``, ``trace`` …).  If an answer compares times of different origins, a label tells so.
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
    """Property of the machine on which a file or measurement was made: ``arch``, ``cu_count`` … (see ``FACTS``)."""

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
"""Names of facts that more than one format gives.  A TunableOp validator is also kept raw, as ``validator:KEY``."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """Line that a library wrote and that records no call.  Addresses in the line are replaced."""

    category: str
    text: str
    function: str = ""
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class SolutionName:
    """Names that a library build gives to a solution, in bench output or an extended profile."""

    solution: Solution
    name: str | None = None
    kernel_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """GPU kernels of one name that one operator launched, from a trace.

    * ``problem``: None if the operator is no problem of a math library.
    * ``operator``: an operator that no math library computes, with its recorded inputs.
    * ``min_us``, ``max_us``: None for statistics of rocprof v1, which states no extremes.
    * ``unit``: the kind of the units of work in which the kernels ran, if the trace tells kinds apart.
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
    """One kernel of a collective on one rank, from a trace.

    * ``ranks``: the ranks that take part, as PyTorch records them.
    * ``us``: the kernel's time.  It contains the wait for the last rank.
    * ``alone_us``: the exposed communication: the time within ``us`` during which no computing kernel ran on the
      device.
    * ``start_us``: on the trace's clock.  The calls of a group have the same order on each of its ranks.
    """

    kernel: str
    ranks: str
    start_us: float
    us: float
    alone_us: float
    device: int | None = None


@dataclass(frozen=True)
class Reject:
    """Line, or piece of a line, that has a format's marker but cannot be read.

    ``offset`` is in bytes from the start of the line that the reader got.  Ingest adds the line's place in the file.  A
    ``length`` of 0 means the whole line.
    """

    reason: str
    offset: int = 0
    length: int = 0


Record: TypeAlias = Call | Measurement | Fact | Message | SolutionName | Kernel | Collective | Reject


@dataclass(frozen=True, kw_only=True)
class Override:
    """Instruction to use a solution for a problem on a target.

    * ``target``: facts of the machine that will read the override.
    * ``time_us``, ``workspace_bytes``: from the measurement that supports the override.
    * ``key_text``: the library's own key, if a file gave it.
    * ``parameters``: the solver's tuned parameters, verbatim (MIOpen's perf-db).  Without them a tunable solver is not
      the solver that was measured.
    * ``fallback``: the next best measured solution.  It is for a library that accepts a second solution for the case
      that the first one does not apply.
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
    """Evidence of a finding: the fields that ranking and confidence read, and details that are only shown.

    Raises ValueError if a detail has the name of a field.
    """

    sureness: Sureness = "estimated"
    """How the saving is known (see ``Sureness``).

    ``measured alone`` means that ``now_us`` and the proposed time are both times of measured solutions.
    """
    now_us: float | None = None
    """Time that one call takes now, µs."""
    pick: str | None = None
    """Text of the solution that runs now."""
    best: str | None = None
    """Text of the solution that is proposed."""
    best_us: float | None = None
    """Time of ``best``, µs.

    If no solution is proposed, it is the time of the fastest known solution, because even that solution is too slow.
    """
    at_most_us: float | None = None
    """Loss in the run's traces, µs.  It is set if the part of the loss that can be saved is unknown."""
    waits_for: Literal["host", "communication"] | None = None
    """Reason why the GPU waits during ``at_most_us``.

    The simulated step bounds how much of that time can be saved.
    """
    noise_us: float | None = None
    """Difference between two times of the pick in the same file, µs."""
    measured: str | None = None
    """Text of the measured problem if the measured problem differs from the finding's own problem."""
    source_id: str | None = None
    """Id of the source that the finding is about.  It holds the times of ``pick`` and ``best``."""
    origin: str | None = None
    level: str | None = None
    """Level of the link between the finding's problem and the measured problem."""
    arch: str | None = None
    cu_count: str | None = None
    file: str | None = None
    versions: Mapping[str, str] | None = None
    """Facts of the machine on which the file with the times was written.  ``file`` is the path of that source."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Other values that the analyzer shows.  Nothing is computed from them."""

    def __post_init__(self) -> None:
        if not self.details.keys().isdisjoint(self.__dataclass_fields__.keys()):
            doubled = self.details.keys() & self.__dataclass_fields__.keys()
            raise ValueError(f"evidence has fields of these names: {', '.join(sorted(doubled))}")

    @cached_property
    def shown(self) -> Mapping[str, object]:
        """The known fields and all ``details``.

        ``sureness`` and ``now_us`` are left out, because they are columns of their own.
        """
        own = vars(self).items()
        return {name: x for name, x in own if x is not None and name not in _NOT_SHOWN} | dict(self.details)


_NOT_SHOWN = frozenset({"sureness", "now_us", "details"})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of an analyzer about one problem, or about the run (then ``problem`` has no value).

    * ``saving_us``: per run of the workload, µs.  ``saving_low_us`` and ``saving_high_us`` are set if an interval is
      known.
    * ``per_call_us``: the loss of one call, µs, with its own interval.
    * ``interval_from``: the name of the data from which the interval was computed.
    * ``p``: the p-value of a confirmation (``docs/findings.md``).
    * ``remedy``: what a person does.  ``advice`` explains it in sentences.
    * ``reasons``: the messages of findings about the same problem whose savings are contained in this finding's saving.

    None means unknown, never zero.
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
        """The override of ``UseRows``.  None for any other remedy."""
        return self.remedy.override if isinstance(self.remedy, UseRows) else None

    @property
    def confirmed(self) -> bool:
        """True if paired samples in fresh processes showed the saving.  ``p`` is the p-value of that test."""
        return self.p is not None

    @property
    def sureness(self) -> Sureness:
        """How the saving is known.

        A finding with a confirmed saving is ``measured alone``.  For any other finding, the analyzer states it.
        """
        return "measured alone" if self.confirmed else self.evidence.sureness


R = TypeVar("R", Evidence, Finding)


def fast_replace(record: R, **changes: object) -> R:
    """Return a finding, or its evidence, with other values.

    ``dataclasses.replace`` does the same in ten times the time.  The speed matters because every finding of a large
    store gets its rank and its reasons through this function.
    """
    values = vars(record) | changes
    values.pop("shown", None)  # this cached value belongs to the old values
    return of_fields(type(record), values)
