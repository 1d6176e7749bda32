"""GEMMs whose sizes or leading dimensions are no multiple of 16 bytes, and what padding them saves.

What is seen: a row of some matrix does not begin on a multiple of 16 bytes, because a size or a leading dimension is
odd (or 4 mod 8, …; 8 elements of f16_r, 16 of f8_r, 4 of f32_r).  Why it costs time: kernels load 128 bits at a time;
where rows are not aligned to that, the library has only kernels with narrow loads, or predicates every one (NVIDIA
"Matrix Multiplication Background User's Guide": sizes that are multiples of 16 bytes; hipBLASLt's
``AssertFree0ElementMultiple`` and ``AssertSummationElementMultiple`` predicates of a kernel).  The remedy is to pad: to
store the operand larger, or to copy it for each call.

The saving is measured, never estimated: a replay of the torch backend times ``torch:pad=8`` and ``torch:pad=64`` (the
copies are charged) and the same with ``,stored`` (the program keeps the operands padded, so nothing is copied) against
``Default``; what was confirmed is default − padded per call.  What was measured and is not faster is no finding.  What
was never replayed is reported without a saving, and only where the same source shows the cliff: a problem with no size
smaller, aligned, at most a quarter more work, that takes at least 1.25 times less.  A device whose time does not fall
when a problem grows gives no finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.times.alternatives import Alternative, alternatives, evidence, meant
from analyzers.times.cells import count_of
from analyzers.times.comparison import PADDING
from analyzers.times.joins import calls_by_problem, calls_of, facts_of
from analyzers.times.neighbours import SIZES, Timed, at_best, fastest, linked_to, matrices, neighbours
from logparse.model import TYPE_BYTES, Evidence, Finding, GemmProblem, problem_from_text

NAME = "cliff"
PADDED = r"torch:pad=\d+(?:,stored)?"
"""Texts of the padded formulations of the torch backend (``measure/backends/torch_gemms.py``)."""
LOAD_BYTES = 16
DROP = 1.25
"""A neighbour shows the cliff when it takes this many times less …"""
NEAR = 1.25
"""… for at most this many times the work."""


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


@dataclass(frozen=True)
class Cliff:
    """``edge`` is unaligned and slower than the aligned, no smaller ``beyond`` of the same source."""

    edge: Timed
    beyond: Timed


def cliffs(times: list[Timed], linked: Mapping[str, set[str]]) -> list[Cliff]:
    """For each unaligned problem its fastest aligned neighbour; left out if the problem is as fast in some source.

    Of several texts that may be one call (``linked``) the first stands for all.
    """
    best = at_best(times, linked)
    found: dict[str, Cliff] = {}
    for members in neighbours(times, *SIZES):
        aligned = [x for x in members if not unaligned(x.problem)]
        for edge in (x for x in members if unaligned(x.problem)):
            near = [x for x in aligned if _covers(x.problem, edge.problem) and x.time_us * DROP <= edge.time_us]
            if not near:
                continue
            beyond = min(near, key=lambda x: (x.time_us, x.problem.text))
            text = edge.problem.text
            old = found.get(text)
            if best[text] >= DROP * beyond.time_us and (old is None or _order(edge, beyond) < _order(old.edge, beyond)):
                found[text] = Cliff(edge, beyond)
    out: dict[str, Cliff] = {}
    for text in sorted(found):
        if not linked.get(text, set()) & out.keys():
            out[text] = found[text]
    return list(out.values())


def _order(edge: Timed, beyond: Timed) -> tuple[float, str, str]:
    return (edge.time_us, edge.source_id, edge.origin)


def _covers(larger: GemmProblem, problem: GemmProblem) -> bool:
    fits = all(getattr(larger, x) >= getattr(problem, x) for x in SIZES)
    return fits and float(larger.flops or 0) <= NEAR * float(problem.flops or 0)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Padding that a replay confirmed as faster, then cliffs that neighbours show and no replay measured."""
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
    replayed = set(measured) | set(padded)
    replayed |= set(tables.links.loc[tables.links["problem"].isin(replayed), "other"])
    times = fastest(tables, settings)
    shown = [x for x in cliffs(times, linked_to(tables, times)) if x.edge.problem.text not in replayed]
    counts = calls_of(tables, pd.Series([x.edge.problem.text for x in shown], dtype="object"))
    return [*out, *(_unmeasured(x, counts.get(x.edge.problem.text)) for x in shown)]


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


def _unmeasured(cliff: Cliff, calls: int | None) -> Finding:
    edge, beyond = cliff.edge, cliff.beyond
    return Finding(
        analyzer=NAME,
        problem=edge.problem,
        message=(
            f"{', '.join(unaligned(edge.problem))}: takes {edge.time_us:.4g} µs, the larger {beyond.problem.label} "
            f"only {beyond.time_us:.4g} µs ({edge.origin}); padding is not measured"
        ),
        calls=calls,
        evidence=Evidence(
            now_us=edge.time_us,
            source_id=edge.source_id,
            origin=edge.origin,
            best="torch:pad=8",  # the remedy; its time is not known
            details={
                "time_us": edge.time_us,
                "solution": edge.solution,
                "neighbour": beyond.problem.text,
                "neighbour_us": beyond.time_us,
                "unaligned": unaligned(edge.problem),
                "confidence": 0.3,
            },
        ),
        advice="`logparse replay` measures the padded call.",
    )


ANALYZER = Analyzer(name=NAME, about="unaligned GEMMs: what padding saves, and cliffs that neighbours show", find=find)
