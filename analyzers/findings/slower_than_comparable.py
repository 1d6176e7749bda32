"""Find GEMMs and convolutions that take longer than similar ones with their best kernels on the same device.

* Seen: the time of a call is above a bound. 95 % of GEMMs and convolutions that run their best kernel are below this
  bound, which comes from the best measured times of comparable ones (``evidence/expected.py``). The call's time comes
  from a trace's kernels, or is a file's only time (a default, a verbose log, a bench line).
* Not claimed: that a faster kernel exists. The user is advised to search, and never given an override. As soon as a
  second kernel has been timed, ``suboptimal-pick`` compares the two times instead.
* Not judged: GEMMs and convolutions without measured times of their type, operation and device. A GEMM that is slow
  because of its leading dimensions is left to ``leading-dimension``.

How often a finding is right was measured with groups of sizes left out: of 2,522 flagged defaults of rocBLAS on an
MI300X, 93 % gain 10 % or more (docs/expected.md). If the comparable times of GEMMs are shipped, no such rate is known,
because aiter's tables have no times of defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analyzers.evidence.comparable import Expected, Neighbour
from analyzers.evidence.expected_times import SHIPPED
from analyzers.evidence.joins import calls_of, facts_of
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import leading_dimension, odd_output
from analyzers.findings.finding import Analyzer
from analyzers.job.expectations import expectations
from logparse.devices import devices
from logparse.model import ConvProblem, Evidence, Finding, Gain, GemmProblem, Problem, Replay, Search, problem_from_text
from logparse.target import Facts
from logparse.text import duration

NAME = "slower-than-comparable"
RIGHT = {
    "gemm": (
        "this is an estimate: in published times of an MI300X, 93 % of the GEMMs that exceed the highest expected "
        "time can save 10 % or more of their time"
    ),
    "conv": (
        "this is an estimate: of convolutions that already run their fastest kernel, at most 5 % exceed the highest "
        "expected time"
    ),
    "shipped": (
        "this is an estimate from times of aiter's fastest kernels on another machine: of GEMMs that run such a "
        "kernel, at most 5 % exceed the highest expected time. But the library that runs this call may have no kernel "
        "as fast as aiter's"
    ),
}
"""Sentences with the share of such findings that are right, for GEMMs and for convolutions.

``benchmarks/expected.py`` measures the numbers. The entry ``shipped`` is for GEMMs whose comparable times are shipped
with logparse.
"""
SEARCH = {
    "conv": (
        "Search for a faster solution: tune_miopen.sh lets MIOpen time its solvers, and `logparse replay` times "
        "them one by one."
    ),
    "aiter": (
        "Search for a faster solution: aiter's tuner times its kernels. AITER_TUNE_GEMM=1 in the job writes the "
        "shapes, which csrc/ck_gemm_a8w8_blockscale/gemm_a8w8_blockscale_tune.py of aiter then reads."
    ),
    "sm": "Search for a faster solution: `logparse replay` times the other solutions of cuBLASLt and cuDNN.",
    "gemm": (
        "Search for a faster solution: tune_hipblaslt.sh or PYTORCH_TUNABLEOP_TUNING=1 times the solutions of "
        "hipBLASLt and rocBLAS, and `logparse replay` times them on this machine."
    ),
}


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Return one finding per GEMM or convolution that takes longer than the times of similar ones suggest."""
    out = []
    facts = facts_of(tables)
    # The cause of a slow leading dimension is known, and a search is not its remedy.
    explained = leading_dimension.explained(tables, settings) | odd_output.explained(tables, settings)
    for device, (rows, found) in expectations(tables, settings).items():
        now = rows["now_us"].to_numpy(dtype="float64")
        with np.errstate(invalid="ignore"):
            flagged = np.flatnonzero((now > found.high_us) & ~rows["problem"].isin(explained).to_numpy(dtype=bool))
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
    kind: str = "sm" if device.startswith("sm_") else problem.kind
    if isinstance(problem, GemmProblem) and (problem.scale_a or "").startswith("block128") and kind != "sm":
        kind = "aiter"  # Of the libraries on an AMD GPU, only aiter computes with such scales.
    shipped = sorted({x.source for x in near if x.source.startswith(SHIPPED)})
    right = RIGHT["shipped" if shipped and problem.kind == "gemm" else problem.kind]
    gain = Gain(now, expected, high_us=high)
    return Finding(
        analyzer=NAME,
        problem=problem,
        message=(
            f"takes {duration(now)} ({row['origin']}). The expected time is {duration(expected)} (at most "
            f"{duration(high)}), because {in_words(problem, near, device)}; {right}"
        ),
        per_call=gain,
        calls=calls,
        in_run=None if calls is None else gain.times(calls),
        evidence=Evidence(
            source_id=str(row["source_id"]),
            origin=str(row["origin"]),
            arch=known.get("arch"),
            cu_count=known.get("cu_count"),
            details={
                "expected_us": expected,
                "at_most_expected_us": high,
                "device": device,
                "comparable": "; ".join(map(_neighbour, near)),
                "shipped": "; ".join(shipped) or None,
            },
        ),
        advice=SEARCH[kind],
        remedy=Replay() if kind == "sm" else Search(),  # cuBLASLt and cuDNN have no tool that searches.
    )


def in_words(problem: Problem, near: Sequence[Neighbour], device: str) -> str:
    """Describe similar GEMMs or convolutions in one line, with their times converted to the size of this one.

    Example: ``8 comparable products take 38 to 47 µs, scaled to its size, on an MI300X``.
    """
    what = f"{problem.direction} convolutions" if isinstance(problem, ConvProblem) else "products"
    least, most = (f(x.scaled_us for x in near) for f in (min, max))
    return f"{len(near)} comparable {what} take {span(least, most)}, scaled to its size, on {device_in_words(device)}"


def span(least_us: float, most_us: float) -> str:
    """Return two times (in µs) as a range, for example ``38 to 47 µs``. A common unit is written once."""
    least, most = duration(least_us), duration(most_us)
    if least == most:
        return most
    number, _, unit = least.rpartition(" ")
    return f"{number} to {most}" if most.endswith(f" {unit}") else f"{least} to {most}"


def device_in_words(device: str) -> str:
    """Return a readable name of a device, for example ``an MI300X`` for ``gfx942 304``.

    A device without a data sheet is described by its architecture and number of CUs: ``gfx942 with 80 CUs``.
    """
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
    about=(
        "calls that take longer than expected. The [expected time](expected.md) follows from the best measured times "
        "of comparable matrix products or convolutions on the device. In published measurements of an MI300X, 93 % "
        "of the GEMMs that are reported can save 10 % or more of their time"
    ),
    worth="estimated as the call's time minus its expected time. A search may find a kernel that saves this time",
    find=find,
)
