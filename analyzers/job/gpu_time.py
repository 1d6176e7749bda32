"""Add up the GPU time of a job by kind of work, and the idle time of the GPU, from the job's traces.

``recommend``, ``explore``, ``report`` and the analyzers all take these numbers from this module. The kind of work of a
kernel is, for example, ``GEMM`` or ``attention``. It is found from the kernel's GEMM or convolution, else from the
operator's name, else from the kernel's own name.

Computation and communication are never added up. Communication (a collective) is counted only while nothing computes.
While it only waits for another rank, its time is idle time (``ranks``). Times are (time of an average step) · (number
of traced steps) (``analyzers/evidence/units.py``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import pandas as pd

from analyzers.evidence.cells import is_true
from analyzers.evidence.tables import Settings, Tables, cached_per_run
from analyzers.evidence.traces import unknown_idle
from analyzers.evidence.units import is_communication, units, unmarked_ranks, word_of
from analyzers.job.ranks import correct_exposed_time, ranks
from analyzers.job.searches import in_words, searches
from logparse.libraries.torch_profiler.busy import BEFORE
from logparse.libraries.torch_profiler.busy import COMMUNICATION as COLLECTIVES
from logparse.libraries.torch_profiler.gradients import BACKWARD_DATA, BACKWARD_WEIGHTS, is_main
from logparse.libraries.torch_profiler.searches import SEARCH
from logparse.model import kind_of, layer_of

STEPS, STEPS_US, OPTIMIZER_STEPS = "profiler_steps", "profiler_steps_us", "optimizer_steps"
"""Names of facts that are stored about a trace.

They are the number of steps that the profiler marked, the wall time of these steps (µs), and the number of steps of
optimizers in a trace without marked steps.
"""
UNTRACED_STEP_US = "untraced_step_us"
"""Name of a fact that is stored about a trace: the wall time of a step without the profiler (µs).

``logparse capture --trace`` and ``tune`` measure it.
"""

BUSY = 0.8
"""If kernels run for less than this fraction of the time (0 to 1), the GPU is assumed to wait for the host."""
GEMM, COPIES, SOFTMAX, OTHER = "GEMM", "transposes and copies", "softmax", "other"
COMMUNICATION = "communication"
CONVOLUTION = "convolution {}"
TRANSPOSE = re.compile(r"transpose|nchwToNhwc|nhwcToNchw|NCHW2CNHW|CNHW2NCHW|tensorTransform", re.IGNORECASE)
"""Pattern for names of kernels that only change the layout of a convolution's tensors (in MIOpen, CK and cuDNN)."""
_PASSES: Mapping[str, re.Pattern[str]] = {
    "B": BACKWARD_DATA,
    "W": BACKWARD_WEIGHTS,
    "F": re.compile(r"fprop|conv\w*_?fwd|igemm_fwd_|implicit_convolve|conv2d|conv3d|winograd|Sp3Asm", re.IGNORECASE),
}
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(words, re.IGNORECASE))
    for name, words in (
        ("attention", r"flash|fmha|attention|attn|sdpa|paged|mla_"),
        (COPIES, r"_foreach_(?:copy|zero)|multi_tensor_apply\w*<.*Copy"),
        ("optimizer", r"_foreach_|multi_tensor|_fused_(?:adam|sgd|lamb|adagrad)|fused_?adam|lamb_"),
        ("expert routing", r"moe_?(?:sort|align|sum|reduc)|quant_moe|topk_?(?:gating|softmax)|grouped_topk"),
        ("loss", r"log_?softmax|nll_?loss|cross_?entropy"),
        (SOFTMAX, r"softmax"),
        ("normalisation", r"norm|bn_fw|bn_bw|welford|GammaBeta"),
        ("embedding and indexing", r"embedding|compute_grad_weight"),
        (
            GEMM,
            r"Cijk_|nvjet|gemm|gemv|wvSplitK|matmul|::(?:mm|addmm|bmm|baddbmm|linear|_scaled_mm|_?grouped_mm)$|triton_tem"
            r"|fused_moe|fmoe|moe_?(?:mm|stage|ck|mlp|fc)|moe_?[12]_|bmm_(?:E\d|Bf|Fp)|marlin|_scaled_grouped_mm",
        ),
        (COPIES, r"copy|transpose|contiguous|clone|CatArray|::cat$|nchwToNhwc|nhwcToNchw|(?<!pre)fill|::zero_|::pad$"),
        (
            "reduction",
            r"reduce|::(?:sum|mean|max|min|argmax|topk|sort|cumsum|norm)$|triton_red|triton_per|cub::|rocprim",
        ),
        ("pooling", r"pool"),
        ("element-wise", r"elementwise|triton_poi|relu|gelu|silu|sigmoid|dropout|threshold|::(?:add|mul|sub|div)_?$"),
        ("embedding and indexing", r"index|gather|scatter|where"),
    )
)
"""Kinds of work (such as attention), each with a pattern for operator and kernel names. The first match decides."""
_CONVOLVES = re.compile(r"^aten::\w*conv(?:olution|_depthwise|_transpose|_tbc|[123]d)")
"""Pattern for names of PyTorch's convolution operators. It does not match ``aten::_convert_weight_to_int4pack``."""
_NO_CONVOLUTION = frozenset({"attention", "optimizer", "loss", SOFTMAX, "normalisation", "embedding and indexing"})
"""Kinds of work that are never taken for a convolution's gradient, although their names look like one.

An example is ``_softmax_backward_data``.
"""


@dataclass(frozen=True)
class Part:
    """The GPU time (µs) and the number of launches of all kernels that do one kind of work, over all traces."""

    name: str
    us: float
    kernels: int


@dataclass(frozen=True)
class Gap:
    """One period in which the GPU was idle.

    * ``us``: its length, µs. ``why``: the reason. All reasons are in ``logparse/libraries/torch_profiler/gaps.py``.
    * ``operator``, ``call``, ``annotation``: the host's activity in this time, if it is known.
    """

    us: float
    why: str
    operator: str = ""
    call: str = ""
    annotation: str = ""

    @property
    def place(self) -> str:
        """The host's activity while the GPU was idle, as the end of a sentence.

        For example: `` under aten::copy_ (hipMemcpyWithStream) in step[DECODE bs=32]``.
        """
        call = f" ({self.call})" if self.call and self.operator else f" under {self.call}" if self.call else ""
        within = f" in {self.annotation}" if self.annotation else ""
        return f"{f' under {self.operator}' if self.operator else ''}{call}{within}"


@dataclass(frozen=True)
class Gaps:
    """How long the GPU was idle in all traces for each reason (µs), and its longest idle periods, the longest first."""

    us: Mapping[str, float]
    longest: tuple[Gap, ...]

    @property
    def single(self) -> Gap | None:
        """The one idle period that makes up most of the GPU's idle time, or None if there is no such period."""
        total = math.fsum(self.us.values())
        if not self.longest or self.longest[0].us < _MOST * total:
            return None
        # The period must be at least half of the idle time and at least twice as long as the next one. It is treated
        # separately, because it may never come again.
        second = self.longest[1].us if len(self.longest) > 1 else 0.0
        return self.longest[0] if second < _MOST * self.longest[0].us else None

    @property
    def main(self) -> str:
        """The reason for most of the GPU's idle time. Empty if there is no idle time."""
        return max(self.us, key=lambda x: (self.us[x], x), default="")

    @property
    def rest(self) -> Mapping[str, float]:
        """The idle time for each reason (µs), without the single long period (``single``) if there is one."""
        single = self.single
        if single is None:
            return self.us
        return {why: us - (single.us if why == single.why else 0.0) for why, us in self.us.items()}


_MOST = 0.5


@dataclass(frozen=True)
class GpuTime:
    """How the GPU spent its time in a job's traces. Times in µs over all traces of the job. None means unknown.

    * ``parts``: the time of each kind of work, the longest first.
    * ``window_us``: the time in which the traces were recorded. The profiler slows the host, so the time of the same
      steps without the profiler is used if it is known. ``profiled`` is then False.
    * ``busy_us``: the part of ``window_us`` in which a kernel computed or a collective transferred data.
    * ``alone_us``: the part of ``window_us`` in which only collectives ran (``ranks.correct_exposed_time``).
    * ``waiting_us``: the part of ``alone_us`` in which collectives waited for another rank. It is idle time, too. None
      if only one rank has traces, because its traces cannot show such waits.
    * ``before_us``: time of kernels that were launched before the traces began. ``parts`` does not contain it.
    * ``unexplained_us``: time of kernels in graph launches for which no trace shows the capture of the graph. Their
      kind of work is found by their own names.
    * ``untraced_share``: the part of the job's time (0 to 1) in kinds of steps that no trace contains.
    * ``word``: the user's word for a step.
    * ``left_out``: texts about traced work that is in no sum.
    * ``gaps``: why the GPU was idle under the profiler.
    * ``unknown_idle``: a sentence that explains why the idle time is unknown.
    * ``optimizer_steps``: how often an optimizer stepped, in traces without marked steps.
    """

    parts: tuple[Part, ...]
    kernels_us: float
    traces: int
    steps: float | None = None
    window_us: float | None = None
    busy_us: float | None = None
    alone_us: float | None = None
    waiting_us: float | None = None
    before_us: float = 0.0
    unexplained_us: float = 0.0
    untraced_share: float = 0.0
    profiled: bool = True
    word: str = "step"
    left_out: tuple[str, ...] = ()
    gaps: Gaps | None = None
    unknown_idle: str = ""
    optimizer_steps: int = 0

    @property
    def busy_share(self) -> float | None:
        """The part of the time (0 to 1) in which a kernel ran. None if it is unknown."""
        known = self.busy_us is not None and self.window_us and not self.unknown_idle
        return self.busy_us / self.window_us if known and self.busy_us is not None and self.window_us else None

    @property
    def exposed_us(self) -> float | None:
        """Time in which only communication ran, without the time in which it waited for other ranks, µs.

        The waits are known only if there are comparable traces of several ranks.
        """
        return self.alone_us - (self.waiting_us or 0.0) if self.alone_us is not None else None

    @property
    def waits(self) -> bool:
        """True if the GPU is idle so often that it must be waiting for the host."""
        return self.busy_share is not None and self.busy_share < BUSY

    @property
    def idle_us(self) -> float | None:
        """Time in which no kernel ran, µs. None if it is unknown."""
        known = self.busy_us is not None and self.window_us and not self.unknown_idle
        return (
            max(self.window_us - self.busy_us, 0.0) if known and self.window_us and self.busy_us is not None else None
        )


def gpu_time(tables: Tables, stated: float | None = None) -> GpuTime | None:
    """Return how the GPU spent its time in the job's traces: the time of each kind of work, and the idle time.

    * ``stated``: the user's number of steps.

    None if kernels take no time.
    """
    found, steps = _gpu_time(tables), trace_steps(tables, stated)
    if found is None or not stated or found.steps == steps:
        return found
    return replace(found, steps=steps, word="step" if found.word == "rank" else found.word)


@cached_per_run
def _gpu_time(tables: Tables) -> GpuTime | None:
    rows = _in_order(tables.kernels[tables.kernels["run"] == tables.run])
    before = float(rows.loc[rows["op"].eq(BEFORE), "total_us"].sum())
    rows = rows[~rows["op"].isin([BEFORE, SEARCH])]
    if not rows["total_us"].sum() > 0:
        return None
    texts = (rows[name].astype(object).where(rows[name].notna(), "") for name in ("op", "kernel", "problem"))
    part = [part_of(*map(str, x)) for x in zip(*texts, strict=True)]
    sums = rows.assign(part=part).groupby("part")[["total_us", "calls"]].sum()
    parts = [Part(str(name), float(us), round(n)) for name, us, n in sums.itertuples()]
    sources = set(rows["source_id"])
    facts = tables.facts[(tables.facts["run"] == tables.run) & tables.facts["source_id"].isin(sources)]
    busy, window, untraced = _sum(facts, "gpu_busy_us"), _sum(facts, "gpu_window_us"), _untraced_us(tables, facts)
    counted = units(tables)
    alone, waiting, steps = _sum(facts, "gpu_communication_alone_us"), None, _steps(facts)
    devices = max(int(rows.groupby("source_id")["device"].nunique().max()), 1)
    compute = sum(x.us for x in parts if x.name != COMMUNICATION) / devices
    if alone is not None:
        found = ranks(tables)
        known = found.waiting_us * steps if found and found.matched and steps else None
        alone, waits = correct_exposed_time(alone, known or 0.0, math.inf if untraced is None else untraced - compute)
        waiting = waits if known is not None else None
        parts = [replace(x, us=alone - waits) if x.name == COMMUNICATION else x for x in parts]
    if busy is not None and _sum(facts, "gpu_compute_us") is not None:
        busy = compute + (alone or 0.0) - (waiting or 0.0)
    if untraced is not None and busy is not None:
        window = max(untraced, busy)
    return GpuTime(
        parts=tuple(sorted(parts, key=lambda x: (-x.us, x.name))),
        kernels_us=sum(x.us for x in parts),
        traces=len(sources),
        steps=steps,
        window_us=window,
        busy_us=busy,
        alone_us=alone,
        waiting_us=waiting,
        before_us=before,
        unexplained_us=_sum(facts, "graph_unexplained_us") or 0.0,
        untraced_share=counted.untraced_share if counted else 0.0,
        profiled=untraced is None,
        word=word_of(tables),
        left_out=(*(x.text for x in tables.left_out if x.kernels), *filter(None, [in_words(searches(tables))])),
        gaps=_gaps(facts),
        unknown_idle=unknown_idle(tables),
        optimizer_steps=round(_sum(facts, OPTIMIZER_STEPS) or 0),
    )


def _gaps(facts: pd.DataFrame) -> Gaps | None:
    """Return the GPU's idle time in all traces with its reasons, or None if no trace states it."""
    given, listed = (facts.loc[facts["name"] == name, "value"].dropna() for name in ("gpu_idle_us", "gpu_gaps"))
    each = [(why, us) for value in given for why, us in json.loads(value).items()]
    us = {why: math.fsum(us for other, us in each if other == why) for why in sorted({why for why, _ in each})}
    longest = [Gap(**x) for value in listed for x in json.loads(value)]
    return Gaps(us, tuple(sorted(longest, key=lambda x: (-x.us, x.place)))) if us else None


def gpu_us(tables: Tables) -> float | None:
    """Return the job's GPU time (µs) in its traces, or None if it cannot be used to compute the time of one call."""
    # A log counts the calls of the whole job, but the traces contain only a few steps. So nothing is returned if the
    # numbers of calls come from a log.
    return traced_us(tables) if tables.workload["calls_from"].eq("profiler").all() else None


def traced_us(tables: Tables) -> float | None:
    """Return the job's GPU time (µs) in its traces, or None without a trace.

    Do not divide it by numbers of calls from a log: a log counts the whole job, and traces contain only a few steps.
    """
    # Where the numbers of calls come from is not checked here. gpu_us checks it.
    total = float(kernels_of_run(tables)["total_us"].sum())
    return total if total > 0 else None


def kernels_of_run(tables: Tables) -> pd.DataFrame:
    """Return the kernels in the job's traces that compute or copy. Kernels that communicate are left out.

    Two more kinds are left out: kernels that were launched before the trace began, and kernels of a search for the
    fastest one.
    """
    return _select_kernels(tables, collectives=False)


def collectives_of_run(tables: Tables) -> pd.DataFrame:
    """Return the kernels in the job's traces that communicate.

    Two kinds are left out: kernels that were launched before the trace began, and kernels of a search for the fastest
    one.
    """
    return _select_kernels(tables, collectives=True)


def _select_kernels(tables: Tables, collectives: bool) -> pd.DataFrame:
    rows = tables.kernels[(tables.kernels["run"] == tables.run) & ~tables.kernels["op"].isin([BEFORE, SEARCH])]
    return rows[is_communication(rows) == collectives]


def steps(tables: Tables, settings: Settings) -> tuple[float | None, float | None]:
    """Return the number of the job's steps and their wall time (µs).

    The number is the user's (``settings.steps``), otherwise the number that the traces mark. The wall time is the time
    without the profiler if that is known.
    """
    rows = tables.facts[tables.facts["run"] == tables.run]
    return trace_steps(tables, settings.steps), _untraced_us(tables, rows) or _sum(rows, STEPS_US) or None


def trace_steps(tables: Tables, stated: float | None = None) -> float | None:
    """Return the number of steps in the job's traces, over all traces. None if it is unknown.

    * ``stated``: the user's number, which replaces the number that the traces mark.
    """
    facts = tables.facts[tables.facts["run"] == tables.run]
    # If a log counts the calls, the stated number is of the steps in the log, so it says nothing about the traces.
    if not stated or gpu_us(tables) is None:
        return _steps(facts)
    return float(stated * (unmarked_ranks(facts) or 1))


def _steps(facts: pd.DataFrame) -> float | None:
    """Return the number of steps in all traces. None if it is unknown.

    If no trace marks steps, each rank's trace is treated as one step. With a single rank, the number is then unknown.
    """
    return _sum(facts, STEPS) or float(unmarked_ranks(facts)) or None


def _untraced_us(tables: Tables, facts: pd.DataFrame) -> float | None:
    """Estimate how long all steps in the traces would have taken without the profiler, µs of wall time.

    Returns None if one of the traces does not have the time of a step without the profiler.
    """
    found, count = units(tables), _sum(facts, STEPS)
    if found is not None and found.mean_us is not None and count:
        return found.mean_us * count
    each, marked = (
        pd.to_numeric(facts[facts["name"] == name].set_index("source_id")["value"], errors="coerce")
        for name in (UNTRACED_STEP_US, STEPS)
    )
    if not len(marked) or set(each.index) != set(marked.index):
        return None
    return float((each * marked).sum())


@cached_per_run
def traced_calls_of_run(tables: Tables) -> pd.DataFrame:
    """Return the result of ``traced_calls`` for the kernels and calls of a run."""
    return traced_calls(tables.kernels, tables.calls)


def traced_calls(kernels: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Return the mean time of a call for each trace and each GEMM or convolution.

    * ``calls``: the job's numbers of calls.

    Columns: ``source_id, problem, total_us, calls, now_us`` (the mean) and ``kernel`` (the one with the most time).
    """
    keys = ["source_id", "problem"]
    own = calls[~is_true(calls["by_tool"])]
    count = own.assign(calls=own["count"].astype("Float64")).groupby(keys)["calls"].sum(min_count=1).reset_index()
    rows = _in_order(kernels[kernels["problem"].notna()])
    total = rows.groupby(keys)["total_us"].sum().reset_index()
    each = rows.groupby([*keys, "kernel"])["total_us"].sum().reset_index()
    # Helper kernels (transpose, conversion, fill) are named only if there is no other.
    each = each.assign(main=[is_main(str(x)) for x in each["kernel"]])
    main = each.sort_values(["main", "total_us", "kernel"]).drop_duplicates(keys, keep="last")[[*keys, "kernel"]]
    out = main.merge(total, on=keys).merge(count, on=keys)
    out = out[is_true((out["total_us"] > 0) & (out["calls"] > 0))]
    counts = out["calls"].astype("float64")
    return out.assign(calls=counts, now_us=out["total_us"].astype("float64") / counts).reset_index(drop=True)


def _in_order(kernels: pd.DataFrame) -> pd.DataFrame:
    """Sort kernels, so that their times are always added in the same order.

    The last digits of a sum of floats depend on the order.
    """
    return kernels.sort_values(["source_id", "op", "kernel", "problem", "total_us"], ignore_index=True)


def _sum(facts: pd.DataFrame, name: str) -> float | None:
    """Add up a number that several files state, for example their counts of steps. None if no file states it."""
    values = pd.to_numeric(facts.loc[facts["name"] == name, "value"], errors="coerce").dropna()
    return float(values.sum()) if len(values) else None


@lru_cache(maxsize=65_536)
def part_of(op: str, kernel: str, problem: str) -> str:
    """Return the kind of work that a kernel does, for example ``GEMM``, ``attention`` or ``communication``.

    If the kernel belongs to a GEMM or convolution (``problem``), this decides. Otherwise the name of the operator
    decides, or else the name of the kernel. A trace without sizes has no problems, but the same operators, so the
    kernels of a convolution operator are counted in the same way.
    """
    if COLLECTIVES.search(op) or COLLECTIVES.search(kernel):
        return COMMUNICATION
    if problem:
        layer = layer_of(problem)
        if layer is None:
            return GEMM if kind_of(problem) in ("gemm", "grouped", "family") else OTHER
        return COPIES if TRANSPOSE.search(kernel) else CONVOLUTION.format(layer[0])
    if _CONVOLVES.search(op):  # cuDNN's and MIOpen's kernels may be named like GEMMs, such as volta_sgemm_128x64_nn.
        return COPIES if TRANSPOSE.search(kernel) else CONVOLUTION.format(_direction_of(op, kernel))
    for text in filter(None, (op, kernel)):
        named = next((name for name, words in _PARTS if words.search(text)), None)
        if named not in _NO_CONVOLUTION and (text == kernel or "conv" in op):
            for direction, words in _PASSES.items():
                if words.search(kernel):
                    return CONVOLUTION.format(direction)
        if named:
            return named
    return OTHER


def _direction_of(op: str, kernel: str) -> str:
    """Return the direction of a convolution whose sizes are unknown: ``F``, ``B``, ``W`` or ``B+W``.

    The operator decides. A backward operator computes both gradients. If the kernel's name does not show which of them,
    the direction is ``B+W``.
    """
    if "backward" not in op:
        return "B" if "transpose" in op else "F"
    return next((direction for direction in "BW" if _PASSES[direction].search(kernel)), "B+W")
