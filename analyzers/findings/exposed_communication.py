"""Find exposed communication: collectives (NCCL, RCCL) that run while no other kernel does.

In that time the GPU computes nothing. The trace shows how long only collectives ran
(``logparse/libraries/torch_profiler/busy.py``). PyTorch records which collective each kernel belongs to, and its
message (``libraries/torch_profiler/operands.py``). The rate is message size / time, which nccl-tests calls the
algorithm bandwidth (its ``doc/PERFORMANCE.md``).

A collective's kernel begins when its own rank is ready, and ends after the last rank is ready. So its time contains the
wait for the slowest rank. The trace of a single rank cannot distinguish the wait from the transfer, so no saving is
stated. If there are traces of several ranks, the finding names the rank for which the others wait
(``analyzers/job/ranks.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from analyzers.job.epilogues import trains
from analyzers.job.gpu_time import COMMUNICATION, collectives_of_run, gpu_time, part_of
from analyzers.job.ranks import Ranks, ranks
from logparse.libraries.torch_profiler.operands import COLLECTIVE
from logparse.model import Advise, Evidence, Finding, Operand, OperatorProblem, problem_from_text
from logparse.text import duration, pluralize

NAME = "exposed-communication"
_FIRST = (
    "First compare the traces of several ranks (`logparse capture --trace 2 -- JOB` traces all ranks of a job, and "
    "`recommend` then names the rank for which the others wait). If the same collective is short on one rank, the "
    "other ranks wait for that rank (because of its data, its host or its share of the work). "
)
GATHERED = _FIRST + (
    "Otherwise overlap transfers with the computation (FSDP: backward_prefetch, forward_prefetch; fully_shard: "
    "set_modules_to_forward_prefetch), or transfer less often (reshard_after_forward=False, if memory allows) or "
    "less data (gather and reduce in bf16)."
)
REDUCED = _FIRST + (
    "Otherwise, with DistributedDataParallel (which overlaps transfers with the backward pass): join small messages "
    "(bucket_cap_mb), transfer less often (gradient accumulation under no_sync) or less data (bf16_compress_hook). "
    "With tensor parallelism: use fewer ranks."
)
ADVICE = _FIRST + (
    "Otherwise overlap transfers with the computation, join small messages, and transfer less often (use fewer ranks "
    "of tensor parallelism) or less data (reduce in bf16)."
)
CHANGES: Mapping[str, str] = {
    GATHERED: "first trace all ranks; if none is late, prefetch parameters (FSDP)",
    REDUCED: "first trace all ranks; if none is late, try another bucket_cap_mb (DDP)",
    ADVICE: "first trace all ranks; if none is late, use fewer ranks or send less data",
}
"""Maps each advice text to a short form: a few words about what to change."""
_GATHERS, _REDUCES = (re.compile(x, re.IGNORECASE) for x in ("all_?gather|reduce_?scatter", "all_?reduce"))
_SHOWN = 3
_FEW = 0.02
"""A wait for another rank is mentioned only if it takes at least this fraction of a step (0 to 1)."""


@dataclass(frozen=True)
class _Collective:
    """All communication calls of the same operation (for example an all-reduce) with the same message size.

    A value of None means that the trace does not record it.
    """

    name: str
    us: float
    calls: int
    message_bytes: float | None = None
    ranks: str = ""

    def text(self, steps: float, each: str) -> str:
        size = f" of {_format_bytes(self.message_bytes)}" if self.message_bytes else ""
        among = f" among {self.ranks} ranks" if self.ranks else ""
        rate = f", {self.message_bytes / self.us * self.calls / 1e3:,.3g} GB/s" if self.message_bytes else ""
        count = f"once{each}" if self.calls == steps else f"{self.calls / steps:,.3g} times{each}"
        return f"{self.name}{size}{among}, {count}, {duration(self.us / self.calls)} each{rate}"


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Return one finding if the GPU spends much time on communication while nothing computes.

    This time must be at least the fraction ``min_gain`` of the traces' time.
    """
    time = gpu_time(tables, settings.steps)
    if time is None or not time.alone_us or not time.window_us or time.exposed_us is None:
        return []
    found = sorted(_collectives(tables), key=lambda x: (-x.us, x.name, x.message_bytes or 0.0))
    if time.alone_us < settings.min_gain * time.window_us or not found:
        return []
    steps, each = (time.steps, f" per {time.word}") if time.steps else (1.0, "")
    shown = "; ".join(x.text(steps, each) for x in found[:_SHOWN])
    more = f"; {pluralize(len(found) - _SHOWN, 'more kind')}" if len(found) > _SHOWN else ""
    whole = sum(x.us for x in found)
    waits = (
        f". Under the profiler, {duration(time.waiting_us / steps)} more are spent waiting for other ranks"
        if time.waiting_us
        else ""
    )
    advice = _advice(found, trains(tables))
    return [
        Finding(
            analyzer=NAME,
            message=(
                f"the GPU runs only collectives for {duration(time.exposed_us / steps)} of "
                f"{duration(time.window_us / steps)}{each} ({time.exposed_us / time.window_us:.0%}, called exposed "
                f"communication){waits}. Under the profiler, all collectives together take "
                f"{duration(whole / steps)}{each}: {shown}{more}. {_explain_waiting(ranks(tables))}"
            ),
            evidence=Evidence(
                at_most_us=time.exposed_us,
                waits_for="communication",
                details={"alone_us": time.alone_us, "window_us": time.window_us},
            ),
            remedy=Advise("hide communication behind computation", CHANGES[advice]),
            advice=advice,
        )
    ]


def _advice(found: Sequence[_Collective], in_training: bool) -> str:
    """Return advice for the kind of communication that takes the most time.

    A trace does not name the PyTorch module that communicates, so it is guessed: FSDP or DistributedDataParallel.
    """
    gathers, reduces = (sum(x.us for x in found if words.search(x.name)) for words in (_GATHERS, _REDUCES))
    # A job without gradients uses neither module, so it gets general advice.
    if not in_training or not gathers + reduces:
        return ADVICE
    # FSDP gathers sharded parameters and scatters their gradients. DistributedDataParallel reduces gradients to all
    # replicas.
    return GATHERED if gathers > reduces else REDUCED


def _explain_waiting(found: Ranks | None) -> str:
    """Return a sentence that names the rank for which the other ranks wait, and why that rank is late."""
    if found is None or not found.matched:
        return "These times include the time in which ranks wait for the slowest rank"
    late, longest = found.slowest, max(found.ranks, key=lambda x: x.waiting_us)
    if longest.waiting_us < _FEW * longest.unit_us:
        return "The ranks hardly wait for each other"
    more, later = late.compute_us - longest.compute_us, late.host_us - longest.host_us
    why = f"computes {duration(more)} longer" if more > later else "waits for its host to launch kernels"
    least = "at least " if found.missing else ""
    waits = f"rank {longest.rank} waits {least}{duration(longest.waiting_us)} per step"
    if found.missing:
        why += f"; {pluralize(found.missing, 'rank')} left no trace"
    return f"Of this, {waits} for rank {late.rank} (idle {duration(late.host_us)}), which {why}"


def _collectives(tables: Tables) -> Iterator[_Collective]:
    rows = collectives_of_run(tables)
    texts = rows.reindex(columns=["op", "operator", "kernel"]).astype(object)
    texts = texts.where(texts.notna(), "").astype(str)
    talks = [part_of(op, kernel, "") == COMMUNICATION for op, kernel in zip(texts["op"], texts["kernel"], strict=True)]
    sums = pd.concat([texts, rows[["total_us", "calls"]]], axis=1)[pd.Series(talks, index=rows.index, dtype=bool)]
    for (op, operator, kernel), one in sums.groupby(["op", "operator", "kernel"]):
        us, calls = float(one["total_us"].sort_values().sum()), int(one["calls"].sum())
        if us > 0 and calls > 0:
            yield _parse_collective(str(operator), us, calls) or _Collective(str(op or kernel), us, calls)


def _parse_collective(operator: str, us: float, calls: int) -> _Collective | None:
    if not operator.startswith(f"operator {COLLECTIVE} "):
        return None
    problem = problem_from_text(operator)
    assert isinstance(problem, OperatorProblem)
    match problem.inputs:
        case (Operand() as message, str(name), str(ranks)):
            return _Collective(name, us, calls, problem.bytes if message.dtype != "?" else None, ranks)
    return None  # An early store has the message as a list of tensors.


def _format_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1e3:
            return f"{count:,.3g} {unit}"
        count /= 1e3
    return f"{count:,.3g} GB"


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "exposed communication: collectives (NCCL, RCCL and others) that run while no other kernel of a trace runs, "
        "with their time, kind and message size"
    ),
    worth="no saving is stated, because the times include the wait for the slowest rank",
    find=find,
    place=2,
)
