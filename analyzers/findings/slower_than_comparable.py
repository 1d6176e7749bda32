"""What ran takes longer than the best solutions of comparable problems on this device.  An estimate.

What is seen: the time of a call (a trace's kernels, or a file's only time of a problem: a default, a verbose log, a
bench line), held against what measured best times of comparable problems let expect (``evidence/expected.py``).  A
finding is a time above the bound that 95 % of problems at their best stay below.

What is not claimed: that a faster solution exists.  The remedy is a search, never an override; once a second solution
of the problem was timed, ``suboptimal-pick`` states what two measured times do.  Without measured times of the type,
the operation and the device nothing is said.

How often it is right, groups of sizes left out: of 2,476 defaults of rocBLAS on an MI300X that it flags, 93 % gain
10 % or more (docs/expected.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analyzers.evidence.comparable import Expected, Neighbour
from analyzers.evidence.expected_times import SHIPPED
from analyzers.evidence.joins import calls_of, facts_of
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from analyzers.job.expectations import expectations
from logparse.devices import devices
from logparse.model import ConvProblem, Evidence, Finding, GemmProblem, Problem, Replay, Search, problem_from_text
from logparse.target import Facts
from logparse.text import duration

NAME = "slower-than-comparable"
RIGHT = {
    "gemm": "an estimate: of products that it flags in published times of an MI300X, 93 % gain 10 % or more",
    "conv": "an estimate: at most 5 % of convolutions at their best are above that",
}
"""What is known of how often such a finding is right, as ``benchmarks/expected.py`` measures it."""
SEARCH = {
    "conv": "Search: tune_miopen.sh lets MIOpen time its solvers; `logparse replay` times them one by one.",
    "sm": "Search: `logparse replay` times the other solutions that cuBLASLt and cuDNN offer.",
    "gemm": "Search: tune_hipblaslt.sh, or PYTORCH_TUNABLEOP_TUNING=1, times the solutions of hipBLASLt and rocBLAS; "
    "`logparse replay` races them on this machine.",
}


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per problem whose time is above what is expected at most."""
    out = []
    facts = facts_of(tables)
    for device, (rows, found) in expectations(tables, settings).items():
        now = rows["now_us"].to_numpy(dtype="float64")
        with np.errstate(invalid="ignore"):
            flagged = np.flatnonzero(now > found.high_us)
        calls = calls_of(tables, rows["problem"].iloc[flagged])
        for i in flagged.tolist():
            row = {str(key): value for key, value in rows.iloc[i].items()}
            known = facts.get(str(row["source_id"]), {})
            out.append(_finding(row, device, found, i, calls.get(str(row["problem"])), known))
    return out


def _finding(
    row: Mapping[str, object], device: str, found: Expected, i: int, calls: int | None, known: Facts
) -> Finding:
    problem, now = problem_from_text(str(row["problem"])), float(str(row["now_us"]))
    expected, high, near = float(found.expected_us[i]), float(found.high_us[i]), found.neighbours(i)
    kind = "sm" if device.startswith("sm_") else problem.kind
    return Finding(
        analyzer=NAME,
        problem=problem,
        message=f"takes {duration(now)} ({row['origin']}); {in_words(problem, near, device)}: "
        f"{duration(expected)} is expected, at most {duration(high)}; {RIGHT[problem.kind]}",
        per_call_us=now - expected,
        per_call_low_us=now - high,
        calls=calls,
        saving_us=None if calls is None else (now - expected) * calls,
        evidence=Evidence(
            now_us=now,
            source_id=str(row["source_id"]),
            origin=str(row["origin"]),
            arch=known.get("arch"),
            cu_count=known.get("cu_count"),
            details={
                "expected_us": expected,
                "at_most_expected_us": high,
                "device": device,
                "comparable": "; ".join(map(_neighbour, near)),
                "shipped": "; ".join(sorted({x.source for x in near if x.source.startswith(SHIPPED)})) or None,
            },
        ),
        advice=SEARCH[kind],
        remedy=Replay() if kind == "sm" else Search(),  # cuBLASLt and cuDNN have no tool that searches
    )


def in_words(problem: Problem, near: Sequence[Neighbour], device: str) -> str:
    """The neighbours in one line: ``8 comparable products take 38 to 47 µs on an MI300X``, scaled to its size."""
    what = f"{problem.direction} convolutions" if isinstance(problem, ConvProblem) else "products"
    least, most = (f(x.scaled_us for x in near) for f in (min, max))
    return f"{len(near)} comparable {what} take {span(least, most)} at its size on {device_in_words(device)}"


def span(least_us: float, most_us: float) -> str:
    """Two times as a range, with the unit once where it is the same: ``38 to 47 µs``."""
    least, most = duration(least_us), duration(most_us)
    if least == most:
        return most
    number, _, unit = least.rpartition(" ")
    return f"{number} to {most}" if most.endswith(f" {unit}") else f"{least} to {most}"


def device_in_words(device: str) -> str:
    """``an MI300X`` of ``gfx942 304``; a device without a data sheet by its arch and CU count."""
    name = next((x.name for x in devices() if f"{x.arch} {x.cu_count}" == device), None)
    if name is None:
        words, _, count = device.partition(" ")
        return f"{words} with {count} CUs"
    return f"an {name}" if name[0] in "AHM" else f"a {name}"


def _neighbour(x: Neighbour) -> str:
    problem = problem_from_text(x.problem)
    assert isinstance(problem, GemmProblem | ConvProblem)
    return f"{problem.label} {duration(x.time_us)}"


ANALYZER = Analyzer(
    name=NAME,
    about="a time above what measured best times of comparable problems on the device let expect "
    "([expected.md](expected.md)); 93 % of what is flagged gains 10 % or more on published measurements of an"
    " MI300X",
    worth="estimated: the expected time; a search finds it",
    find=find,
)
