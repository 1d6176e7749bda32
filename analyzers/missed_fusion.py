"""Products whose bias or activation runs as a kernel of its own, although the library has an epilogue for it.

What is seen: in a torch.profiler trace the kernel right after a product adds a vector, or is ReLU or GELU, on as many
elements as the product wrote (``formats/traces/torch_epilogues.py``); or ``aten::addmm`` launches an elementwise copy
of its addend before the product.  Why it costs time: the result goes through memory once more in each direction, while
cuBLASLt and hipBLASLt do the same in registers (epilogues BIAS, RELU_BIAS, GELU_BIAS …).

What fusing saves is measured, never estimated.  A replay times the pair as it ran and its other forms for the actions
of ``actions/fused_epilogue.py``, which state the saving; where none of them is faster there is no finding.  A race of
the problem with that epilogue times ``torch:fused`` (``_addmm_activation``) against ``Default`` (``addmm``, then the
activation); a confirmed pair gives default − fused per call.  Without either the finding has no saving, only a bound:
the time of those kernels themselves, since the product is not made faster.

Evidence needed: a trace with ``record_shapes=True``.  The trace contains the order, not the data flow: two unrelated
kernels of equal size that follow one another would be taken for a tail.  GELU in the epilogue is the tanh
approximation; where the model's is the exact one the numbers change, and the finding states so.  The gradient of GELU
needs the product's result, which PyTorch's epilogue does not write (the libraries' GELU_AUX does): where the trace
shows training, the finding states that it cannot be fused so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.job.tails import Tail, tails, trains
from analyzers.statistics.intervals import median
from analyzers.times.action_times import Samples, samples_of
from analyzers.times.alternatives import WhatIf, evidence, what_ifs
from analyzers.times.joins import calls_by_problem, facts_of
from analyzers.times.program_changes import FUSION
from logparse.links import linked
from logparse.model import Evidence, Finding, GemmProblem, problem_from_text

NAME = "missed-fusion"
FUSED = r"torch:fused"
COPY = "elementwise_kernel"
"""In the name of PyTorch's kernels that copy or fill element by element (``ATen/native/cuda/CUDALoops.cuh``)."""


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per product and tail, and one per product whose ``addmm`` copies its addend."""
    found = tails(tables)
    measured = what_ifs(tables, settings, FUSED) if found else {}
    samples = samples_of(tables, settings) if found else {}
    facts, counts, in_training = facts_of(tables), _counts(tables), bool(found) and trains(tables)
    out = []
    for tail in found:
        timed = _timed(tail, samples)
        if timed is not None and not timed.pays(settings.floor_share):
            continue
        way = _measured(tail, measured) if tail.asked.activation != "none" else None
        if way is not None and way.confirmed and not way.faster(settings.floor_share):
            continue  # measured, and not worth it
        shown = evidence(way, facts) if way is not None and way.confirmed else _UNMEASURED
        known = way if way is not None and way.confirmed else None
        refused = tail.asked.activation == "gelu" and in_training
        out.append(
            _refused(tail, counts) if refused else _finding(tail, known, timed, counts, shown, in_training=in_training)
        )
    return [*out, *_copies(tables, counts)]


def _measured(tail: Tail, measured: Mapping[str, list[WhatIf]]) -> WhatIf | None:
    """The replay of the product with that epilogue; of several that it may mean the one that saves least."""
    ways = []
    for text, known in measured.items():
        problem = problem_from_text(text)
        if isinstance(problem, GemmProblem) and problem.activation == tail.asked.activation:
            ways += known if linked(tail.asked, problem) else []
    return min(ways, key=lambda x: (not x.confirmed, x.saving_us, x.problem, x.source_id)) if ways else None


@dataclass(frozen=True)
class _Timed:
    """The fastest fused form that a replay timed beside the pair as it ran, µs per call."""

    solution: str
    now_us: float
    then_us: float
    most_us: float

    def pays(self, floor: float) -> bool:
        """Whether each of its samples is faster than the pair as it ran by more than ``floor`` of that."""
        return self.now_us - self.most_us > floor * self.now_us


def _timed(tail: Tail, samples: Samples) -> _Timed | None:
    """What a replay timed for the actions that fuse this tail; None without both times."""
    before = samples.get((tail.fused.text, tail.as_run))
    forms = {x: held for x in tail.fused_forms if (held := samples.get((tail.fused.text, x))) is not None}
    if before is None or not forms:
        return None
    best = min(sorted(forms), key=lambda x: median(forms[x][1]))
    times = forms[best][1]
    return _Timed(best, median(before[1]), median(times), max(times))


@dataclass(frozen=True)
class _Counts:
    """Calls of the run, and of its traces, by problem."""

    run: Mapping[str, int]
    traced: Mapping[str, int]

    def of(self, problem: str, calls: int) -> int | None:
        """How many of the run's calls are like these ``calls`` of its traces."""
        count, traced = self.run.get(problem), self.traced.get(problem)
        return None if count is None or not traced else round(count * min(1.0, calls / traced))


def _counts(tables: Tables) -> _Counts:
    run = calls_by_problem(tables.workload).dropna()
    traced = tables.calls[tables.calls["category"] == "profiler"].groupby("problem")["count"].sum()
    return _Counts(*({str(k): int(v) for k, v in x.items()} for x in (run, traced)))


def _finding(
    tail: Tail, way: WhatIf | None, timed: _Timed | None, counts: _Counts, shown: Evidence, *, in_training: bool
) -> Finding:
    calls = counts.of(tail.problem.text, tail.calls)
    each = tail.us / tail.calls
    message = f"{_steps(tail)}, {each:.4g} µs per call"
    if way is None and timed is not None:
        message += f"; timed: {timed.then_us:.4g} µs by {timed.solution}, {timed.now_us:.4g} µs as it runs"
    elif way is None:
        message += "; in the epilogue it would save at most that, which is not measured"
    if way is not None:
        message += f"; measured: {way.solution} takes {way.time_us:.4g} µs, the default {way.default_us:.4g} µs"
    if tail.exact:
        message += "; the epilogue's GELU is the tanh approximation, the model's is exact"
    return Finding(
        analyzer=NAME,
        problem=tail.problem,
        message=message,
        per_call_us=way.saving_us if way is not None else None,
        calls=calls,
        saving_us=way.saving_us * calls if way is not None and calls is not None else None,
        evidence=_with_steps(shown, tail.steps, tail.us, tail.calls),
        advice=(_GRADIENT if in_training else FUSION) + (_UNTIMED if timed is None else _STATED),
    )


def _refused(tail: Tail, counts: _Counts) -> Finding:
    """A GELU of a job that trains: what takes time, and why no epilogue may do it."""
    return Finding(
        analyzer=NAME,
        problem=tail.problem,
        message=(
            f"{_steps(tail)}, {tail.us / tail.calls:.4g} µs per call; PyTorch's epilogue cannot do it in training: the "
            "gradient of GELU needs the product's result, which it does not write (the pair compiled alone writes it, "
            "and is not timed)"
        ),
        calls=counts.of(tail.problem.text, tail.calls),
        evidence=_with_steps(_COMPILABLE, tail.steps, tail.us, tail.calls),
        advice=_WRITTEN if tail.form == "written" else _IN_TRAINING,
    )


def _steps(tail: Tail) -> str:
    steps = " and ".join(tail.steps) if len(tail.steps) < 3 else "a GELU that is written out"
    kernels = "a kernel" if len(tail.steps) == 1 else f"{len(tail.steps)} kernels"
    return f"{steps} after it: {kernels} more"


def _with_steps(shown: Evidence, steps: tuple[str, ...], us: float, calls: int) -> Evidence:
    return replace(shown, details={**shown.details, "steps": steps, "at_most_us": us, "traced_calls": calls})


_UNMEASURED = Evidence(best="torch:fused", details={"confidence": 0.4})
"""The evidence of a remedy of which no time is known."""
_COMPILABLE = replace(_UNMEASURED, best="torch:compiled")
_GRADIENT = (
    "Fuse the epilogue: apply.linear of a generated apply.py has the gradient of ReLU, torch._addmm_activation none."
)
_UNTIMED = " `logparse replay` times the pair as it runs and fused, through PyTorch, where a trace marks its GPU time."
_STATED = " The actions state what it saves in all, and the lines to change."
_IN_TRAINING = (
    "A GELU stays a kernel of its own in training; model.compile() joins it with the elementwise operators around it."
)
_WRITTEN = (
    "A GELU that is written out becomes one kernel as torch.nn.functional.gelu(x, approximate='tanh'), in training "
    "too: `logparse replay` times that, for the action one_kernel_gelu."
)


def _copies(tables: Tables, counts: _Counts) -> Iterator[Finding]:
    """``addmm`` that copies its addend into the output and adds the product to it (beta 1)."""
    rows = tables.kernels
    rows = rows[(rows["run"] == tables.run) & (rows["op"] == "aten::addmm") & rows["problem"].notna()]
    rows = rows[rows["kernel"].str.contains(COPY, regex=False)]
    sums = rows.groupby("problem").agg(calls=("calls", "sum"), us=("total_us", "sum"))
    for text, calls, us in sums.sort_index().itertuples():
        yield Finding(
            analyzer=NAME,
            problem=problem_from_text(str(text)),
            message=(
                f"addmm copies its addend by a kernel of its own before the product, {us / calls:.4g} µs per call; a "
                "bias in the epilogue would save at most that, which is not measured"
            ),
            calls=counts.of(str(text), int(calls)),
            evidence=_with_steps(_UNMEASURED, ("copy",), float(us), int(calls)),
            advice="PyTorch uses the bias epilogue where the bias is a contiguous vector of the output's type.",
        )


ANALYZER = Analyzer(name=NAME, about="products whose bias or activation runs as a kernel of its own", find=find)
