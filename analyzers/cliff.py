"""GEMMs that take less time padded: sizes or leading dimensions that are no multiple of 16 bytes.

What is seen: a row of some matrix does not begin on a multiple of 16 bytes, because a size or a leading dimension is
odd (or 4 mod 8, …; 8 elements of f16_r, 16 of f8_r, 4 of f32_r).  Why it costs time: kernels load 128 bits at a time;
where rows are not aligned to that, the library has only kernels with narrow loads, or predicates every one (NVIDIA
"Matrix Multiplication Background User's Guide": sizes that are multiples of 16 bytes; hipBLASLt's
``AssertFree0ElementMultiple`` and ``AssertSummationElementMultiple`` predicates of a kernel).  The remedy is to pad: to
store the operand larger, or to copy it for each call.

The saving is measured, never estimated: a replay of the torch backend times ``torch:pad=8`` and ``torch:pad=64`` (the
copies are charged) and the same with ``,stored`` (the program keeps the operands padded, so nothing is copied) against
``Default``; what was confirmed is default − padded per call.  What was not replayed, or is not faster, is no finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.times.alternatives import Alternative, alternatives, evidence, meant
from analyzers.times.cells import count_of
from analyzers.times.comparison import PADDING
from analyzers.times.joins import calls_by_problem, facts_of
from analyzers.times.roofline import matrices
from logparse.model import TYPE_BYTES, Evidence, Finding, GemmProblem, problem_from_text

NAME = "cliff"
PADDED = r"torch:pad=\d+(?:,stored)?"
"""Texts of the padded formulations of the torch backend (``measure/backends/torch_gemms.py``)."""
LOAD_BYTES = 16


def unaligned(problem: GemmProblem) -> tuple[str, ...]:
    """What keeps the rows of A, B or D from beginning on multiples of 16 bytes: ``m 50257``, ``lda 1023`` …

    A size counts where the leading dimension is not known; empty where everything is aligned or types are unknown.
    """
    out: dict[str, None] = {}
    for name, (rows, cols) in matrices(problem).items():
        type_ = str(getattr(problem, f"{name}_type") or problem.a_type)
        if name == "c" or problem.trans_a is None or problem.trans_b is None or type_ not in TYPE_BYTES:
            continue
        size, ld = getattr(problem, rows), getattr(problem, f"ld{name}")
        single = getattr(problem, cols) == 1  # one row: nothing begins after it
        if not single and ((ld or size or 0) * TYPE_BYTES[type_]) % LOAD_BYTES:
            out[f"{rows} {size}" if ld in (None, size) else f"ld{name} {ld}"] = None
    return tuple(out)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per product that a replay timed padded, where that is faster."""
    facts = facts_of(tables)
    padded = alternatives(tables, settings, PADDED)
    asked = _asked(tables, padded)
    measured = meant(tables, asked, padded)
    calls = calls_by_problem(tables.workload)
    out = []
    for text, ways in sorted(measured.items()):
        problem, count = problem_from_text(text), calls.get(text)
        faster = [x for x in ways if x.faster(settings.floor_share)]
        if faster and isinstance(problem, GemmProblem):
            out.append(_padding(problem, faster[0], ways, count_of(count), evidence(faster[0], facts)))
    return out


def _asked(tables: Tables, padded: dict[str, list[Alternative]]) -> pd.Series:
    """The run's own GEMMs, and replayed ones that are linked to none of them."""
    work = tables.workload.loc[tables.workload["kind"] == "gemm", "problem"].drop_duplicates()
    linked = tables.links.loc[tables.links["problem"].isin(work), "other"]
    return pd.Series([*sorted(work), *(x for x in sorted(padded) if x not in {*work, *linked})], dtype="object")


def _padding(
    problem: GemmProblem, what: Alternative, ways: list[Alternative], calls: int | None, shown: Evidence
) -> Finding:
    where = ", ".join(unaligned(problem)) or "no size is a multiple of the tile"
    stored = what.solution.endswith(",stored")
    message = (
        f"{where}: the default takes {what.default_us:.4g} µs, padded ({what.solution}) {what.time_us:.4g} µs"
        f"{', if the program keeps its operands padded' if stored else ', the copies included'}"
        f"{'' if what.confirmed else ' (raced, not confirmed)'}"
    )
    others = tuple((x.solution, x.time_us, x.default_us) for x in ways)

    return Finding(
        analyzer=NAME,
        problem=problem,
        message=message,
        per_call_us=what.saving_us if what.confirmed else None,
        calls=calls,
        saving_us=what.saving_us * calls if what.confirmed and calls is not None else None,
        evidence=replace(shown, details={**shown.details, "alternatives": others, "unaligned": unaligned(problem)}),
        advice=PADDING,
    )


ANALYZER = Analyzer(name=NAME, about="GEMMs that take less time with padded operands", find=find)
