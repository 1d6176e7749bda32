"""GEMMs that take as long as a several times larger one of the same family: a fallback kernel, or far too large tiles.

What is seen: two problems that differ in M only (or in N: tokens) and take the same time, although one of them does at
least four times the work.  Why it costs time: a library that has no kernel for the smaller one runs one made for the
larger, and most of what that computes is thrown away.

The formula needs no data sheet.  The larger problem, measured by the same source, did F' floating-point operations and
moved at least B' bytes in the time t'.  At these rates the smaller one would take

    t* = t' · max(F / F', B / B')

which is never less than what the roofline model predicts (Williams, Waterman, Patterson, CACM 52 (2009): time is the
longer of F/peak and B/bandwidth), whatever peak and bandwidth the device has: a device that follows the roofline gives
no finding.  A kernel also takes some microseconds whatever it does, so t* is at least ``LATENCY_US``; a skinny product
that only streams its weights has B ≈ B' and is not flat either.

Evidence needed: times of both problems in one source.  Without a measurement it does not claim that a faster solution
exists.  The loss is taken to be t − t*, with little confidence, and no override is proposed; the tuning script searches
for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.times.joins import calls_of, facts_of
from analyzers.times.neighbours import Size, Timed, at_best, fastest, linked_to, neighbours
from analyzers.times.roofline import roofline_us
from logparse.model import Evidence, Finding

NAME = "flat-cost"
LATENCY_US = 20.0
"""Launch, fill and drain of a GPU kernel: below this a time does not depend on the work done."""
GROWTH = 4.0
"""The larger problem does at least this many times the work."""
SAME = 1.25
"""Times within this factor are the same."""
WASTE = 2.0
"""A time is too long above this many times what the larger problem's rates allow."""


@dataclass(frozen=True)
class Flat:
    """``small`` takes as long as ``large``; ``expected_us`` is what it would take at the large one's rates."""

    small: Timed
    large: Timed
    size: Size
    expected_us: float

    @property
    def loss_us(self) -> float:
        return self.small.time_us - self.expected_us


def flats(times: list[Timed], linked: Mapping[str, set[str]]) -> list[Flat]:
    """For each problem the flat pair with the smallest loss; a problem that is faster in some source is not flat.

    Of several texts that may be one call (``linked``) the one with the smallest loss stands for all.
    """
    best = at_best(times, linked)
    found: dict[str, Flat] = {}
    sizes: tuple[Size, ...] = ("m", "n")
    for size in sizes:
        for members in neighbours(times, size):
            for small in members:
                flat = _flat(small, members, size)
                text = small.problem.text
                if flat is None or best[text] <= WASTE * flat.expected_us:
                    continue
                if text not in found or _order(flat) < _order(found[text]):
                    found[text] = flat
    out: dict[str, Flat] = {}
    for flat in sorted(found.values(), key=lambda x: (_order(x), x.small.problem.text)):
        text = flat.small.problem.text
        if not linked.get(text, set()) & out.keys():
            out[text] = flat
    return [out[text] for text in sorted(out)]


def _order(flat: Flat) -> tuple[float, str, str, str]:
    return (flat.loss_us, flat.small.source_id, flat.small.origin, flat.size)


def _flat(small: Timed, members: list[Timed], size: Size) -> Flat | None:
    """The pair with the largest problem that takes as long, where that is too long for the smaller one."""
    same = [
        x
        for x in members
        if _flops(x) >= GROWTH * _flops(small) and 1 / SAME <= x.time_us / small.time_us <= SAME
    ]  # fmt: skip
    if not same:
        return None
    large = max(same, key=lambda x: (_flops(x), x.time_us, x.problem.text))
    share = max(_flops(small) / _flops(large), float(small.problem.bytes or 0.0) / float(large.problem.bytes or 1.0))
    expected = max(LATENCY_US, large.time_us * share)
    return Flat(small, large, size, expected) if small.time_us > WASTE * expected else None


def _flops(x: Timed) -> float:
    return float(x.problem.flops or 0)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per problem that costs as much as a larger one; its loss is an estimate."""
    times = fastest(tables, settings)
    found = flats(times, linked_to(tables, times))
    calls = calls_of(tables, pd.Series([x.small.problem.text for x in found], dtype="object"))
    facts = facts_of(tables)
    return [_finding(x, calls.get(x.small.problem.text), facts.get(x.small.source_id, {})) for x in found]


def _finding(flat: Flat, calls: int | None, known: Mapping[str, str]) -> Finding:
    small, large = flat.small, flat.large
    mine, theirs = (getattr(x.problem, flat.size) for x in (small, large))
    work = _flops(large) / _flops(small)
    message = (
        f"takes {small.time_us:.4g} µs, as long as with {flat.size} = {theirs} instead of {mine} "
        f"({large.time_us:.4g} µs for {work:.3g}× the work, {small.origin}); at the same rates it would take "
        f"{flat.expected_us:.4g} µs"
    )
    return Finding(
        analyzer=NAME,
        problem=small.problem,
        message=message,
        per_call_us=flat.loss_us,
        calls=calls,
        saving_us=None if calls is None else calls * flat.loss_us,
        evidence=Evidence(
            now_us=small.time_us,
            source_id=small.source_id,
            origin=small.origin,
            arch=known.get("arch"),
            cu_count=known.get("cu_count"),
            details={
                "solution": small.solution,
                "time_us": small.time_us,
                "expected_us": flat.expected_us,
                "larger": large.problem.text,
                "larger_us": large.time_us,
                "larger_solution": large.solution,
                "roofline_us": roofline_us(small.problem, known),
                "confidence": 0.4,  # the larger problem shows what the device can do, not that a kernel exists
            },
        ),
        advice="Let the library search (tune_hipblaslt.sh) or replay it: the kernel that runs is made for more rows.",
    )


ANALYZER = Analyzer(name=NAME, about="GEMMs that take as long as a several times larger one", find=find)
