"""GEMMs that take as long as a several times larger one of the same family: a fallback kernel, or far too large tiles.

What is seen: two problems that differ in M only (or in N: tokens) and take the same time, although one of them does at
least four times the work.  Why it costs time: a library that has no kernel for the smaller one runs one made for the
larger, and most of what that computes is thrown away.

The formula needs no data sheet.  The larger problem, measured by the same source, did F' floating-point operations and
moved at least B' bytes in the time t'.  At these rates the smaller one would take

    t* = t' · max(F / F', B / B')

which is never less than what the roofline model predicts (Williams, Waterman, Patterson, CACM 52 (2009)), whatever peak
and bandwidth the device has.  A kernel also takes some microseconds whatever it does, so t* is at least ``LATENCY_US``.

Evidence needed: times of both problems in one source, and no faster time of the smaller one in another source that may
be of the same device.  The loss is taken to be t − t*, with little confidence; the tuning script searches for a file.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analyzers.evidence.joins import calls_of, facts_of, not_elsewhere, timed
from analyzers.evidence.origins import RACE, TRACE, is_evidence
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from logparse.groups import in_groups
from logparse.model import Evidence, Finding, GemmProblem, Search, problem_from_text
from logparse.roofline import Size, resized
from logparse.target import Facts, device_of_file, same_device

NAME = "flat-cost"
LATENCY_US = 20.0
"""Launch, fill and drain of a GPU kernel: below this a time does not depend on the work done."""
GROWTH = 4.0
"""The larger problem does at least this many times the work."""
SAME = 1.25
"""Times within this factor are the same."""
WASTE = 2.0
"""A time is too long above this many times what the larger problem's rates allow."""
ORIGINS = (TRACE, RACE)
"""Origins of times beside the evidence: a trace counts too (it times the job's own calls), and so does a race: what is
looked for are factors, not percents."""


@dataclass(frozen=True)
class Timed:
    """One GEMM of one source and origin: its fastest time there (µs), and the work."""

    source_id: str
    device: str
    origin: str
    problem: GemmProblem
    text: str
    time_us: float
    flops: float
    bytes: float


def fastest(tables: Tables, settings: Settings) -> list[Timed]:
    """The fastest known time of each plain GEMM per source and origin, in a fixed order.

    Left out: sources of another device, grouped GEMMs, problems without all sizes and a batch count.
    """
    rows = tables.measurements
    rows = rows[(rows["kind"] == "gemm").to_numpy(dtype=bool)]
    rows = rows[(is_evidence(rows) | rows["origin"].isin(ORIGINS)).to_numpy(dtype=bool)]
    rows = not_elsewhere(timed(rows), tables, settings)
    rows = rows.groupby(["source_id", "origin", "problem"], observed=True)["time_us"].min().reset_index()
    facts = facts_of(tables)
    problems = {text: _sized(text) for text in rows["problem"].unique()}
    out = []
    for source, origin, text, time_us in rows.itertuples(index=False):
        known = problems[text]
        if known is not None:
            device = device_of_file(facts.get(source, {}))
            out.append(Timed(str(source), device, str(origin), known[0], text, float(time_us), *known[1:]))
    return out


def _sized(text: str) -> tuple[GemmProblem, float, float] | None:
    """The problem, its operations and bytes; None for other problems, and where these are unknown."""
    given = problem_from_text(text)
    if not isinstance(given, GemmProblem):
        return None
    problem = given.normal
    flops, bytes = problem.flops, problem.bytes
    return (problem, float(flops), float(bytes)) if flops and bytes else None


def families(times: Sequence[Timed], size: Size) -> Iterator[list[Timed]]:
    """Those of one source and origin that differ in nothing but this size; only groups of two or more."""
    open_size = {text: resized(problem, size, None) for text, problem in {x.text: x.problem for x in times}.items()}
    found = in_groups(times, lambda x: (x.source_id, x.origin, open_size[x.text]))
    yield from (members for members in found.values() if len(members) > 1)


def at_best(
    times: Sequence[Timed], linked: Mapping[str, set[str]], facts: Mapping[str, Facts]
) -> dict[tuple[str, str], float]:
    """(device, problem text) → the fastest time, in any source that may be of this device, of the problem or of one
    that may be the same call.
    """
    stated = {x.device: facts.get(x.source_id, {}) for x in times}
    own: dict[str, dict[str, float]] = {}
    for x in times:
        of = own.setdefault(x.text, {})
        of[x.device] = min(x.time_us, of.get(x.device, math.inf))
    alike = {one: [y for y in stated if same_device(stated[one], stated[y]) is not False] for one in stated}
    return {
        (device, text): min(
            own[other].get(y, math.inf) for other in {text, *linked.get(text, ())} for y in alike[device]
        )
        for text, of in own.items()
        for device in of
    }


def linked_to(tables: Tables, times: Sequence[Timed]) -> dict[str, set[str]]:
    """Problem text → the texts of others among these that may be the same call."""
    texts = {x.text for x in times}
    links = tables.links[tables.links["problem"].isin(texts) & tables.links["other"].isin(texts)]
    links = links[links["problem"] != links["other"]]
    return {str(text): set(others) for text, others in links.groupby("problem")["other"]}


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


def flats(times: Sequence[Timed], linked: Mapping[str, set[str]], facts: Mapping[str, Facts]) -> list[Flat]:
    """For each device and problem the flat pair with the smallest loss; a problem that is faster in some source of the
    device is not flat.

    Of several texts that may be one call (``linked``) the one with the smallest loss stands for all.
    """
    best = at_best(times, linked, facts)
    found: dict[tuple[str, str], Flat] = {}
    sizes: tuple[Size, ...] = ("m", "n")
    for size in sizes:
        for members in families(times, size):
            for small, large in as_long(members):
                share, key = max(small.flops / large.flops, small.bytes / large.bytes), (small.device, small.text)
                flat = Flat(small, large, size, max(LATENCY_US, large.time_us * share))
                if best[key] <= WASTE * flat.expected_us:
                    continue
                if key not in found or _order(flat) < _order(found[key]):
                    found[key] = flat
    out: dict[tuple[str, str], Flat] = {}
    for flat in sorted(found.values(), key=lambda x: (_order(x), x.small.text)):
        device, text = flat.small.device, flat.small.text
        if not any((device, other) in out for other in linked.get(text, ())):
            out[device, text] = flat
    return [out[key] for key in sorted(out, key=lambda x: (x[1], x[0]))]


def _order(flat: Flat) -> tuple[float, str, str, str]:
    return (flat.loss_us, flat.small.source_id, flat.small.origin, flat.size)


def as_long(members: Sequence[Timed]) -> Iterator[tuple[Timed, Timed]]:
    """Each member with the largest one of those that take as long, where that does ``GROWTH`` times the work.

    By increasing time, what takes as long is a window of the members whose ends only move forward; ``largest`` holds
    those of the window that no later one exceeds, so that its first is the largest: n log n for the sorting.
    """
    by_time = sorted(members, key=lambda x: x.time_us)
    largest: deque[Timed] = deque()
    end = 0
    for small in by_time:
        while end < len(by_time) and by_time[end].time_us / small.time_us <= SAME:
            while largest and _size(largest[-1]) <= _size(by_time[end]):
                largest.pop()
            largest.append(by_time[end])
            end += 1
        while largest[0].time_us / small.time_us < 1 / SAME:
            largest.popleft()
        if largest[0].flops >= GROWTH * small.flops:
            yield small, largest[0]


def _size(x: Timed) -> tuple[float, float, str]:
    return x.flops, x.time_us, x.text


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per problem that costs as much as a larger one; its loss is an estimate."""
    times = fastest(tables, settings)
    facts = facts_of(tables)
    found = flats(times, linked_to(tables, times), facts)
    calls = calls_of(tables, pd.Series([x.small.text for x in found], dtype="object"))
    return [_finding(x, calls.get(x.small.text), facts.get(x.small.source_id, {})) for x in found]


def _finding(flat: Flat, calls: int | None, known: Facts) -> Finding:
    small, large = flat.small, flat.large
    mine, theirs = (getattr(x.problem, flat.size) for x in (small, large))
    work = large.flops / small.flops
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
            details={"expected_us": flat.expected_us, "larger": large.text, "larger_us": large.time_us},
        ),
        remedy=Search(),
        advice="Let the library search (tune_hipblaslt.sh) or replay it: the kernel that runs is made for more rows.",
    )


ANALYZER = Analyzer(name=NAME, about="GEMMs that take as long as a several times larger one", find=find)
