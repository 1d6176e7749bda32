"""Find GEMMs that a trace times with two leading dimensions, one of which is at least 20 % slower than the other.

The leading dimension is the distance of two columns of a matrix in memory. If it is for example a multiple of a large
power of two, or is not aligned, the same kernel reads the matrix more slowly, or the library chooses a slower kernel.

* Seen: two products in one trace with equal sizes, types, transposes and epilogue, and with other leading dimensions.
  The times are means of their calls. Even the shortest call of the slow product takes longer than the mean call of the
  other. If several traces have both products, the smallest difference counts.
* Saving: estimated as the difference of the two times. The operands are different tensors, and neither the change of
  the program nor a copy into the padded tensor was timed.
* Remedy: a change of the program, which gives the operand the faster leading dimension. A search is no remedy. So
  ``below-roofline`` and ``slower-than-comparable`` leave these calls out.
* Not compared: times of two traces, grouped GEMMs, and products of which a leading dimension is unknown. The leading
  dimension of a matrix with one column has no effect, so products that differ in it are not compared either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analyzers.evidence.joins import calls_of, not_elsewhere
from analyzers.evidence.origins import TRACE
from analyzers.evidence.tables import Settings, Tables, cached_per_run
from analyzers.findings.finding import Analyzer
from analyzers.job.gpu_time import traced_calls_of_run
from logparse.model import ChangeProgram, Evidence, Finding, Gain, GemmProblem, problem_from_text
from logparse.text import duration

NAME = "leading-dimension"
SLOWER = 1.2
"""A call is reported if it takes at least this many times as long as with other leading dimensions."""
PAD = ChangeProgram("pad-operand", "pad the operand", "change the program: allocate the operand with padding")
REPACK = ChangeProgram("repack-operand", "repack the operand", "change the program: store the operand more densely")
_LEADING = ("lda", "ldb", "ldc", "ldd")
_STRIDES = ("stride_a", "stride_b", "stride_c", "stride_d")
_OPERANDS = {"lda": "A", "ldb": "B", "ldc": "C", "ldd": "D"}


@dataclass(frozen=True)
class _Timed:
    """A product of a trace, the mean time of its calls, and the shortest time that a call can have taken."""

    problem: GemmProblem
    us: float
    least_us: float
    source_id: str


@dataclass(frozen=True)
class _Slow:
    """A product of a trace, and the same product with the fastest leading dimensions of that trace."""

    problem: GemmProblem
    faster: GemmProblem
    gain: Gain
    source_id: str


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Return one finding per GEMM that is slower than the same GEMM with other leading dimensions."""
    slow = _slow_products(tables, settings)
    calls = calls_of(tables, pd.Series([x.problem.text for x in slow], dtype=object))
    return [_finding(x, calls.get(x.problem.text)) for x in slow]


def explained(tables: Tables, settings: Settings) -> frozenset[str]:
    """Return the texts of the GEMMs that are slow because of their leading dimensions."""
    return frozenset(x.problem.text for x in _slow_products(tables, settings))


@cached_per_run
def _slow_products(tables: Tables, settings: Settings) -> Sequence[_Slow]:
    """Return the slow GEMMs, sorted by text."""
    pairs: dict[str, list[_Slow]] = {}
    for found in _alike(tables, settings):
        best = min(found, key=lambda x: (x.us, x.problem.text))
        for x in found:
            # If the times overlap, the product counts as equally fast.
            gain = Gain(x.us if x.least_us > best.us else best.us, best.us)
            pairs.setdefault(x.problem.text, []).append(_Slow(x.problem, best.problem, gain, x.source_id))
    least = [min(pairs[text], key=lambda x: x.gain.now_us / x.gain.then_us) for text in sorted(pairs)]
    return [x for x in least if x.gain.now_us >= SLOWER * x.gain.then_us]


def _alike(tables: Tables, settings: Settings) -> Iterator[Sequence[_Timed]]:
    """Yield the GEMMs of one trace that differ only in leading dimensions, two or more at a time."""
    rows = not_elsewhere(traced_calls_of_run(tables), tables, settings)
    # A call is taken to run each of its kernels once, so its time is at least the sum of their shortest times. The
    # table has a row of a kernel for each kind of step.
    shortest_us = tables.kernels.groupby(["source_id", "problem", "kernel"])["min_us"].min()
    least = shortest_us.groupby(level=["source_id", "problem"]).sum(min_count=1)
    alike: dict[tuple[str, GemmProblem], list[_Timed]] = {}
    for row in rows.sort_values(["source_id", "problem"]).to_dict("records"):
        source, problem = str(row["source_id"]), problem_from_text(str(row["problem"]))
        if isinstance(problem, GemmProblem) and (same := _without_leading_dimensions(problem)) is not None:
            shortest = float(least.get((row["source_id"], row["problem"]), math.nan))
            alike.setdefault((source, same), []).append(_Timed(problem, float(row["now_us"]), shortest, source))
    yield from (found for found in alike.values() if len(found) > 1)


def _without_leading_dimensions(problem: GemmProblem) -> GemmProblem | None:
    """Return what is equal for products that differ only in leading dimensions. None if these are unknown.

    The strides of a batch follow from the leading dimensions. Only whether they are 0 (one matrix for all) is compared.
    """
    asked = [name for name in _LEADING if name not in problem.irrelevant]
    if problem.members or any(getattr(problem, name) is None for name in asked):
        return None
    columns = {
        "lda": problem.k if problem.trans_a == "N" else problem.m,
        "ldb": problem.n if problem.trans_b == "N" else problem.k,
        "ldc": problem.n,
        "ldd": problem.n,
    }
    same: dict[str, Any] = {name: getattr(problem, name) if columns[name] == 1 else None for name in _LEADING}
    same |= {name: value and 1 for name in _STRIDES if (value := getattr(problem, name)) is not None}
    return replace(problem, **same)


def _finding(slow: _Slow, calls: int | None) -> Finding:
    now, then = vars(slow.problem), vars(slow.faster)
    differ = [name for name in _LEADING if now[name] != then[name]]
    slower = ", ".join(f"{name} {now[name]}" for name in differ)
    faster = ", ".join(f"{name} {then[name]}" for name in differ)
    pads = any(now[name] < then[name] for name in differ)
    operands = " and ".join(f"{_OPERANDS[name]} the leading dimension {then[name]}" for name in differ)
    return Finding(
        analyzer=NAME,
        problem=slow.problem,
        message=(
            f"takes {duration(slow.gain.now_us)} with {slower}, but the same product takes "
            f"{duration(slow.gain.then_us)} with {faster} in the same trace; no run timed the changed program"
        ),
        per_call=slow.gain,
        calls=calls,
        in_run=None if calls is None else slow.gain.times(calls),
        evidence=Evidence(
            source_id=slow.source_id,
            origin=TRACE,
            details={"slower": slower, "faster": faster, "faster_problem": slow.faster.text},
        ),
        remedy=PAD if pads else REPACK,
        advice=f"Change the program: give {operands}. {_WIDER if pads else _DENSER} {_PYTORCH}",
    )


_WIDER = "Allocate a wider tensor once, and pass a view of it that leaves out the padding."
_DENSER = "Store the operand in a tensor of its own, not as a part of a wider tensor."
_PYTORCH = "If PyTorch's result is row-major, A is the right operand of the product, and B is the left operand."


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "a GEMM that a trace times with two leading dimensions, one of them at least 20 % slower. The program can give "
        "the slow operand the faster leading dimension, for example by padding"
    ),
    worth="estimated as the difference of the two times",
    find=find,
)
