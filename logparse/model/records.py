"""The things that files state (facts, calls, times) and the findings that analyzers make of them, as classes.

The names of fields with a time contain its unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from logparse.model.gains import Gain
from logparse.model.problems import OperatorProblem, Problem, of_fields
from logparse.model.remedies import Advise, Remedy, Sureness, UseRows

Status = Literal["ok", "failed", "skipped", "unsupported", "wrong", "timeout", "out_of_memory", "no_time"]
TRIED: frozenset[Status] = frozenset({"ok", "failed", "unsupported", "wrong", "timeout", "out_of_memory"})
"""Statuses of a measurement that prove that a kernel was tried.

``skipped`` and ``no_time`` do not prove it.
"""


@dataclass(frozen=True)
class Solution:
    """A kernel or algorithm of a library that computes a product or convolution, for example ``hipblaslt:477479``.

    ``raw`` is its spelling in the file, and ``algorithm`` MIOpen's name of the algorithm.
    """

    # PyTorch's normal call is ``Solution("torch", "Default")``, whose text is ``Default``.
    library: str
    id: str
    raw: str = field(default="", compare=False)
    algorithm: str | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        return "Default" if self.id == "Default" else f"{self.library}:{self.id}"


DEFAULT = Solution("torch", "Default", "Default")


def solution_from_text(text: str) -> Solution:
    """Parse the text that names a library's kernel, for example ``hipblaslt:477479``."""
    library, colon, id = text.partition(":")
    return Solution(library, id) if colon else Solution("torch", text)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One or more calls of the same matrix product, convolution or operator that a log records.

    * ``category`` is the kind of log line: hipBLASLt's mask category (``trace``, ``bench``, ``profile`` …) or another
      library's word for it.
    * ``count`` is the number of calls, or None if the format does not count.
    * ``by_tool`` is True if a benchmark made the call.  Then it is not a call of the job and is not counted.
    * ``pid`` is the process, if the lines themselves state it.  For other lines the process is added when the file is
      read.  The clock is also added then.
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
    """The measured time of one kernel for one matrix product or convolution, or the reason why there is no time.

    ``origin`` is the tool that measured, for example ``find-db`` (see ``libraries.kinds.format.Origin``).
    """

    problem: Problem
    solution: Solution
    # An answer that compares times of different tools names the tools.
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
    """A property of the machine on which a file or measurement was made, for example ``arch`` or ``cu_count``.

    ``FACTS`` lists the usual names.
    """

    name: str
    value: str


FACTS: Mapping[str, str] = {
    "arch": "the GPU's architecture: gcnArchName as the file states it, or gfxNNN",
    "cu_count": "the number of compute units as HIP counts them: on RDNA the WGPs, which have two CUs each; on NVIDIA "
    "the SMs",
    "wgp_mode": (
        "0 if the job sets GPU_ENABLE_WGP_MODE=0, so that HIP counts single CUs on RDNA; 1 if HIP counts WGPs, "
        "which have two CUs each"
    ),
    "device": "the marketing name of the device",
    "gpus": "the number of devices that one process sees",
    "kernels_of": (
        "the folder and the process of a rocprof file. Files of the same folder and process contain the same "
        "kernels, which must be counted once"
    ),
    "driver": "driver version",
    "hipblaslt_version": "the hipBLASLt version: major·100000 + minor·100 + patch, or M.m.p before ROCm 6.2",
    "hipblaslt_revision": "git revision of hipBLASLt",
    "transformer_engine_columns": "the number of columns in the cache of hipBLASLt kernels that this build of "
    "TransformerEngine reads",
    "triton_version": "Triton version, M.m.p",
    "rocblas_version": "rocBLAS version text",
    "miopen_version": "M.m.p",
    "miopen_tweak": "the part of the MIOpen version that is a git hash",
    "rocm_version": "ROCm version",
    "hip_version": "HIP version",
    "cuda_version": "the CUDA version for which PyTorch was built",
    "pytorch_version": "x.y.z",
    "cublaslt_version": "cuBLASLt version",
    "cudnn_version": "cuDNN version as one number",
    "backend": "HIP, OpenCL or CUDA",
    "pid": "the number of the process that wrote the file, if the file's name contains the number",
}
"""Names of the facts that more than one format states, with their meaning.

A validator of TunableOp is also kept under its own name, as ``validator:KEY``.
"""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A line that a library wrote and that contains no call.  Memory addresses in the line are replaced."""

    category: str
    text: str
    function: str = ""
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class SolutionName:
    """The names that one build of a library has for a kernel that is known by its number.

    ``name`` is the library's name of the solution, and ``kernel_name`` is the name of its GPU kernel.
    """

    # The names come from the output of a benchmark or from an extended profile.
    solution: Solution
    name: str | None = None
    kernel_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """The total time of all GPU kernels with one name that one operator launched in a trace.

    * ``problem`` is the matrix product or convolution that the kernels compute, if they compute one.
    * ``operator`` is any other operator, with its recorded inputs.
    * ``min_us`` and ``max_us`` are unknown in statistics of rocprof v1.
    * ``unit`` names the kind of step in which the kernels ran, if the trace distinguishes kinds.
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
    """One communication kernel (such as an all-reduce) on one rank, from a trace.

    * ``ranks`` are the ranks that take part, as PyTorch records them.
    * ``us`` is the kernel's time, which contains the wait for the last rank.
    * ``alone_us`` is the part of this time during which no computing kernel ran on the device.
    * ``start_us`` is the start on the trace's clock.  The calls of a group have the same order on each of its ranks.
    """

    kernel: str
    ranks: str
    start_us: float
    us: float
    alone_us: float
    device: int | None = None


@dataclass(frozen=True)
class Reject:
    """A line, or part of a line, that is of a known format but cannot be read, with the reason.

    ``offset`` and ``length`` are bytes from the start of the line. A ``length`` of 0 means the whole line.
    """

    reason: str
    # The line's place in the file is added later.
    offset: int = 0
    length: int = 0


Record: TypeAlias = Call | Measurement | Fact | Message | SolutionName | Kernel | Collective | Reject


@dataclass(frozen=True, kw_only=True)
class Override:
    """The instruction that a library on a certain machine use a certain kernel for a matrix product or convolution.

    * ``target`` holds facts of this machine.
    * ``time_us`` and ``workspace_bytes`` come from the measurement that is the reason for the instruction.
    * ``key_text`` is the text by which the library looks up the problem, if a file stated it.
    * ``parameters`` are the solver's tuned parameters (MIOpen's perf-db).  Without them a tunable solver is not the
      solver that was measured.
    * ``fallback`` is the next best measured kernel, for a library that accepts a second one in case it cannot use the
      first one.
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
    """The numbers that support a finding, such as measured times.

    The rank and the confidence of the finding are computed from its fields.  ``details`` are only shown to the user.
    Raises ValueError if a detail has the name of a field.
    """

    sureness: Sureness = "estimated"
    """How surely the saving is known (see ``Sureness``).

    ``measured alone`` means that the time now and the time of the proposed kernel were both measured.
    """
    now_us: float | None = None
    """Time in µs that one call takes now.

    It is needed only if the time after the change is unknown.  Otherwise the finding's ``per_call`` has both times.
    """
    pick: str | None = None
    """The solution (kernel) that the library uses now, as text."""
    best: str | None = None
    """The solution (kernel) that the library should use instead, as text."""
    best_us: float | None = None
    """Time in µs of the kernel that is proposed.

    If no kernel is proposed, this is the time of the fastest known kernel.  The finding is then that even this kernel
    is too slow.
    """
    at_most_us: float | None = None
    """Time in µs that the job loses according to its traces.

    A value is given if it is unknown how much of this time can be saved.
    """
    waits_for: Literal["host", "communication"] | None = None
    """The reason why the GPU waits during the time ``at_most_us``: the host or communication.

    A simulation of the step tells how much of that time can be saved at most.
    """
    noise_us: float | None = None
    """Difference in µs between two times of the present kernel in the same file."""
    measured: str | None = None
    """The matrix product or convolution that was measured, as text, if it is not exactly the finding's one."""
    source_id: str | None = None
    """Id of the file that the finding is about.  The file contains the times of ``pick`` and ``best``."""
    origin: str | None = None
    level: str | None = None
    """How surely the measured call is the finding's call: ``exact``, ``layout`` or ``shape``."""
    arch: str | None = None
    cu_count: str | None = None
    file: str | None = None
    versions: Mapping[str, str] | None = None
    """Facts of the machine on which the file with the times was written.

    ``file`` is the path of this file.
    """
    assumes: str | None = None
    """The condition under which the saving is real, if no file of the job settles it.

    For example: ``the job does not read its user find-db yet``.
    """
    details: Mapping[str, object] = field(default_factory=dict)
    """Other values to show.  Nothing is computed from them."""

    def __post_init__(self) -> None:
        if not self.details.keys().isdisjoint(self.__dataclass_fields__.keys()):
            doubled = self.details.keys() & self.__dataclass_fields__.keys()
            raise ValueError(
                f"other values of evidence must not have the names of its fields: {', '.join(sorted(doubled))}"
            )

    @cached_property
    def shown(self) -> Mapping[str, object]:
        """The data that support a finding, as a dictionary for the user.  Fields that are unknown are left out.

        ``sureness`` and ``now_us`` are also left out, because tables show them in columns of their own.
        """
        own = vars(self).items()
        return {name: x for name, x in own if x is not None and name not in _NOT_SHOWN} | dict(self.details)


_NOT_SHOWN = frozenset({"sureness", "now_us", "details"})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result of the analysis: what costs time in one matrix product or convolution, or in the whole job.

    For the whole job, ``problem`` is empty.

    * ``per_call`` has the times of one call now and with the faster solution.
    * ``in_run`` has the times of all calls of the run.  ``saving_share`` is its saving as a fraction of the run's GPU
      time (0 to 1).
    * ``interval_from`` names the data from which the intervals were computed.
    * ``p`` is the p-value of a confirmation (``docs/findings.md``).
    * ``remedy`` is what the user should do, and ``advice`` explains it.
    * ``reasons`` are messages of other findings about the same product or convolution, whose savings this finding
      includes.

    None means unknown, never zero.
    """

    analyzer: str
    message: str
    problem: Problem | None = None
    per_call: Gain | None = None
    in_run: Gain | None = None
    saving_share: float | None = None
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
    def now_us(self) -> float | None:
        """Time in µs that one call takes now, before the proposed change."""
        return self.evidence.now_us if self.per_call is None else self.per_call.now_us

    @property
    def then_us(self) -> float | None:
        """Time in µs that one call would take after the proposed change."""
        if self.per_call is not None:
            return self.per_call.then_us
        return self.evidence.best_us if self.evidence.now_us is None else None

    @property
    def per_call_us(self) -> float | None:
        """Time in µs that one call would save."""
        return None if self.per_call is None else self.per_call.saving_us

    @property
    def saving_us(self) -> float | None:
        """Time in µs that the proposed change would save in one execution of the job."""
        return None if self.in_run is None else self.in_run.saving_us

    @property
    def override(self) -> Override | None:
        """The kernel that the library should use instead of its own choice, if the finding proposes one (``UseRows``).

        None if the finding proposes anything else.
        """
        return self.remedy.override if isinstance(self.remedy, UseRows) else None

    @property
    def confirmed(self) -> bool:
        """True if the saving was measured again in fresh processes and passed a statistical test (``p``)."""
        return self.p is not None

    @property
    def sureness(self) -> Sureness:
        """How surely the possible saving is known, for example ``estimated`` or ``measured in the job``.

        If the saving was measured again in fresh processes and confirmed, the value is ``measured alone``.  Otherwise
        it is the one in ``evidence``.
        """
        return "measured alone" if self.confirmed else self.evidence.sureness


R = TypeVar("R", Evidence, Finding)


def fast_replace(record: R, **changes: object) -> R:
    """Return a copy of a finding, or of the evidence for it, with some values changed.

    ``dataclasses.replace`` does the same but takes ten times as long.
    """
    # The speed matters, because this function sets the rank and the reasons of every finding of a large store.
    values = vars(record) | changes
    values.pop("shown", None)  # this cached value belongs to the old values
    return of_fields(type(record), values)
