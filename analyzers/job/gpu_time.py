"""GPU time of a run by kind of work, and idle time of the GPU, from the run's traces.

``recommend``, ``explore``, ``report`` and the analyzers all take these numbers from this module. A kernel's kind of
work is found from its problem (GEMM or convolution), else from the operator's name, else from the kernel's own name.

Computation and communication are never added up. Collectives count only while nothing computes. While they only wait
for another rank, they are idle time (``ranks``). Times are (time of an average step) · (number of traced steps)
(``analyzers/evidence/units.py``).
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
from analyzers.evidence.units import communicates, units, unmarked_ranks, word_of
from analyzers.job.ranks import exposed, ranks
from analyzers.job.searches import in_words, searches
from logparse.libraries.torch_profiler.busy import BEFORE
from logparse.libraries.torch_profiler.busy import COMMUNICATION as COLLECTIVES
from logparse.libraries.torch_profiler.gradients import BACKWARD_DATA, BACKWARD_WEIGHTS, is_main
from logparse.libraries.torch_profiler.searches import SEARCH
from logparse.model import kind_of, layer_of

STEPS, STEPS_US = "profiler_steps", "profiler_steps_us"
"""Names under which two numbers about a trace are stored: how many steps its profiler marked, and their wall time (µs).
"""
UNTRACED_STEP_US = "untraced_step_us"
"""Name under which the wall time of a step without the profiler (µs) is stored for a trace.

``logparse capture --trace`` and ``tune`` measure it.
"""

BUSY = 0.8
"""If the GPU is busy for less than this fraction of the time (0 to 1), it is assumed to wait for the host."""
GEMM, COPIES, SOFTMAX, OTHER = "GEMM", "transposes and copies", "softmax", "other"
COMMUNICATION = "communication"
CONVOLUTION = "convolution {}"
TRANSPOSE = re.compile(r"transpose|nchwToNhwc|nhwcToNchw|NCHW2CNHW|CNHW2NCHW|tensorTransform", re.IGNORECASE)
"""Pattern for the names of kernels with which MIOpen, CK and cuDNN change the layout of a convolution's tensors."""
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
        (SOFTMAX, r"^(?!.*log_?softmax).*softmax"),
        ("normalisation", r"norm|log_?softmax|bn_fw|bn_bw|welford|GammaBeta"),
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
"""Kinds of work, each with a pattern for the names of operators and kernels. The first pattern that fits decides."""
_NO_CONVOLUTION = frozenset({"attention", "optimizer", SOFTMAX, "normalisation", "embedding and indexing"})
"""Kinds of work whose gradients have names like those for convolutions, for example ``_softmax_backward_data``."""


@dataclass(frozen=True)
class Part:
    """All work of one kind: time (µs) and launches of its kernels over all traces of the run."""

    name: str
    us: float
    kernels: int


@dataclass(frozen=True)
class Gap:
    """One period in which the GPU was idle: its time (µs) and its reason.

    ``operator``, ``call`` and ``annotation`` are what the host did in this time, if known.
    ``logparse/libraries/torch_profiler/gaps.py`` lists the reasons.
    """

    us: float
    why: str
    operator: str = ""
    call: str = ""
    annotation: str = ""

    @property
    def place(self) -> str:
        """The host's activity in the gap, as text for a sentence.

        For example: `` under aten::copy_ (hipMemcpyWithStream) in step[DECODE bs=32]``.
        """
        call = f" ({self.call})" if self.call and self.operator else f" under {self.call}" if self.call else ""
        within = f" in {self.annotation}" if self.annotation else ""
        return f"{f' under {self.operator}' if self.operator else ''}{call}{within}"


@dataclass(frozen=True)
class Gaps:
    """The GPU's idle time in all traces by reason (µs), and the longest idle periods, the longest first."""

    us: Mapping[str, float]
    longest: tuple[Gap, ...]

    @property
    def single(self) -> Gap | None:
        """The one idle period that is most of the idle time, or None.

        There is no such period if none is half of the idle time, or if the second longest is at least half as long as
        the longest. A single period may never come again, so its time does not show what can be saved.
        """
        total = math.fsum(self.us.values())
        if not self.longest or self.longest[0].us < _MOST * total:
            return None
        second = self.longest[1].us if len(self.longest) > 1 else 0.0
        return self.longest[0] if second < _MOST * self.longest[0].us else None

    @property
    def main(self) -> str:
        """The reason with the most idle time."""
        return max(self.us, key=lambda x: (self.us[x], x), default="")


_MOST = 0.5


@dataclass(frozen=True)
class GpuTime:
    """GPU time of a run, from its traces. Times in µs over all traces of the run. None means unknown.

    * ``parts``: work by kind, the longest first.
    * ``window_us``: the time in which the traces were recorded. The profiler slows the host, so the time of the same
      steps without the profiler is used if it is known. ``profiled`` is then False.
    * ``busy_us``: the part of ``window_us`` in which a kernel computed or a collective transferred data.
    * ``alone_us``: the part of ``window_us`` in which only collectives ran (``ranks.exposed``).
    * ``waiting_us``: the part of ``alone_us`` in which collectives waited for another rank. It is idle time, too. None
      if only one rank has traces, because its traces cannot show such waits.
    * ``before_us``: kernels launched before the traces began. They are in no kind of work.
    * ``unexplained_us``: kernels of graph launches whose capture no trace shows. Their kind is found by their own
      names.
    * ``untraced_share``: the part of the job's time (0 to 1) in steps whose kind is in no trace.
    * ``word``: the user's word for a step.
    * ``left_out``: texts about traced work that is in no sum.
    * ``gaps``: why the GPU was idle under the profiler.
    * ``unknown_idle``: a sentence that explains why the idle time is unknown.
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

    @property
    def busy_share(self) -> float | None:
        """The part of the time (0 to 1) in which a kernel ran. None if it is unknown."""
        known = self.busy_us is not None and self.window_us and not self.unknown_idle
        return self.busy_us / self.window_us if known and self.busy_us is not None and self.window_us else None

    @property
    def exposed_us(self) -> float | None:
        """Time in which only communication ran, without its waits for other ranks, µs.

        The waits are known only if the traces of several ranks can be compared.
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


@cached_per_run
def gpu_time(tables: Tables) -> GpuTime | None:
    """Return the GPU time of the run by kind of work, and its idle time, from its traces.

    Returns None if the run has no kernels, or if its kernels take no time.
    """
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
        alone, waits = exposed(alone, known or 0.0, math.inf if untraced is None else untraced - compute)
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
    )


def _gaps(facts: pd.DataFrame) -> Gaps | None:
    """Return the idle time of all traces with its reasons, or None if no trace states it."""
    given, listed = (facts.loc[facts["name"] == name, "value"].dropna() for name in ("gpu_idle_us", "gpu_gaps"))
    each = [(why, us) for value in given for why, us in json.loads(value).items()]
    us = {why: math.fsum(us for other, us in each if other == why) for why in sorted({why for why, _ in each})}
    longest = [Gap(**x) for value in listed for x in json.loads(value)]
    return Gaps(us, tuple(sorted(longest, key=lambda x: (-x.us, x.place)))) if us else None


def gpu_us(tables: Tables) -> float | None:
    """Return the GPU time of the run's traces (µs), but only if its calls are counted in the same traces.

    If a log counts the calls, None is returned, because the two numbers do not fit together: a log counts the calls of
    the whole job, but a trace's time covers only the traced steps. So their quotient would mean nothing.
    """
    return traced_us(tables) if tables.workload["calls_from"].eq("profiler").all() else None


def traced_us(tables: Tables) -> float | None:
    """Return the GPU time of the run's traces (µs), even if a log counts the calls. Return None without a trace."""
    total = float(kernels_of_run(tables)["total_us"].sum())
    return total if total > 0 else None


def kernels_of_run(tables: Tables) -> pd.DataFrame:
    """Return the kernels in the run's traces, without communication.

    Kernels that were launched before the trace, or by a search for solvers, are left out.
    """
    return _launched(tables, collectives=False)


def collectives_of_run(tables: Tables) -> pd.DataFrame:
    """Return the communication kernels in the run's traces.

    Kernels that were launched before the trace, or by a search for solvers, are left out.
    """
    return _launched(tables, collectives=True)


def _launched(tables: Tables, collectives: bool) -> pd.DataFrame:
    rows = tables.kernels[(tables.kernels["run"] == tables.run) & ~tables.kernels["op"].isin([BEFORE, SEARCH])]
    return rows[communicates(rows) == collectives]


def steps(tables: Tables, settings: Settings) -> tuple[float | None, float | None]:
    """Return the number of steps of the run and their wall time (µs).

    The number is the user's (``settings.steps``), else the number that the traces marked. The wall time is the time
    without the profiler if that is known.
    """
    rows = tables.facts[tables.facts["run"] == tables.run]
    return settings.steps or _steps(rows), _untraced_us(tables, rows) or _sum(rows, STEPS_US) or None


def _steps(facts: pd.DataFrame) -> float | None:
    """Return the number of marked steps in all traces.

    If no step is marked, the number of ranks with traces is returned, or None if there is only one.
    """
    return _sum(facts, STEPS) or float(unmarked_ranks(facts)) or None


def _untraced_us(tables: Tables, facts: pd.DataFrame) -> float | None:
    """Return the wall time of all marked steps as it would be without the profiler, µs.

    Returns None if this is unknown for a trace with steps.
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


def traced_calls(kernels: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Return the time of the calls of each GEMM and convolution in each trace. ``calls`` are the calls of the run.

    Columns ``source_id, problem, total_us, calls, now_us, kernel``. ``now_us`` is the mean time of a call. ``kernel``
    is the kernel that takes the most time. Helper kernels (transpose, conversion, fill) are named only if there is no
    other.
    """
    keys = ["source_id", "problem"]
    own = calls[~is_true(calls["by_tool"])]
    count = own.assign(calls=own["count"].astype("Float64")).groupby(keys)["calls"].sum(min_count=1).reset_index()
    rows = _in_order(kernels[kernels["problem"].notna()])
    total = rows.groupby(keys)["total_us"].sum().reset_index()
    each = rows.groupby([*keys, "kernel"])["total_us"].sum().reset_index()
    each = each.assign(main=[is_main(str(x)) for x in each["kernel"]])
    main = each.sort_values(["main", "total_us", "kernel"]).drop_duplicates(keys, keep="last")[[*keys, "kernel"]]
    out = main.merge(total, on=keys).merge(count, on=keys)
    out = out[is_true((out["total_us"] > 0) & (out["calls"] > 0))]
    counts = out["calls"].astype("float64")
    return out.assign(calls=counts, now_us=out["total_us"].astype("float64") / counts).reset_index(drop=True)


def _in_order(kernels: pd.DataFrame) -> pd.DataFrame:
    """Sort kernels, so that sums do not depend on the order of stored rows."""
    return kernels.sort_values(["source_id", "op", "kernel", "problem", "total_us"], ignore_index=True)


def _sum(facts: pd.DataFrame, name: str) -> float | None:
    """Return the sum of a named number over all files that state it, or None if no file does."""
    values = pd.to_numeric(facts.loc[facts["name"] == name, "value"], errors="coerce").dropna()
    return float(values.sum()) if len(values) else None


@lru_cache(maxsize=65_536)
def part_of(op: str, kernel: str, problem: str) -> str:
    """Return the kind of work of a kernel, for example ``GEMM``, ``attention`` or ``communication``.

    It is found from the text of its GEMM or convolution if there is one, else from the operator, else from the kernel's
    name.
    """
    if COLLECTIVES.search(op) or COLLECTIVES.search(kernel):
        return COMMUNICATION
    if problem:
        layer = layer_of(problem)
        if layer is None:
            return GEMM if kind_of(problem) in ("gemm", "grouped", "family") else OTHER
        return COPIES if TRANSPOSE.search(kernel) else CONVOLUTION.format(layer[0])
    for text in filter(None, (op, kernel)):
        named = next((name for name, words in _PARTS if words.search(text)), None)
        if named not in _NO_CONVOLUTION and (text == kernel or "conv" in op):
            for direction, words in _PASSES.items():
                if words.search(kernel):
                    return CONVOLUTION.format(direction)
        if named:
            return named
    return OTHER
