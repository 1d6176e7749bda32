"""Find convolutions that run MIOpen's naive solver, a slow kernel that computes one output per thread.

The naive solver takes 10 to 500 times longer than other solvers. MIOpen runs it if no other solver applies, or if the
solvers that apply need more workspace than they are given. For example, the GEMM solver of a large 3-D convolution
needs tens of GiB. MIOpen then writes a warning and chooses the naive solver (ROCm/rocm-libraries
``projects/miopen/src/conv/solver_finders.cpp``: ``EvaluateInvokers``, ``IsEnoughWorkspace``).

A convolution is taken as naive in these cases:

* Its calls in a trace launch the naive kernel. One launch among the many launches of a search inside a call is ignored.
* A log names the naive solver as the library's choice.
* The naive solver is the fastest in a user find-db (the file in which MIOpen's search stores its results).

The time that the convolution could take is an estimate. The first time in this list that is known is used:

1. the time of another solver for the same convolution
2. the time of the slower of the layer's other two directions (forward, backward data, backward weights)
3. the time of the nearest convolution that differs only in sizes of the image and batch, scaled to the amount of work
4. twice the least time that the device's peak rates allow
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analyzers.evidence.joins import calls_of, facts_of, keep_timed
from analyzers.evidence.origins import is_evidence
from analyzers.evidence.picks import picks
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from analyzers.job.efficiency import WITHIN_REACH
from analyzers.job.gpu_time import TRANSPOSE, traced_calls_of_run
from logparse.devices import device_of, devices
from logparse.libraries.miopen.solvers import MOST_ELEMENTS
from logparse.model import AFTER_SEARCH, Advise, ConvProblem, Evidence, Finding, Gain, Remedy, Search, problem_from_text
from logparse.roofline import roofline_us
from logparse.target import Facts, arch, same_device
from logparse.text import bytes_text, duration

NAME = "naive-convolution"
_KERNEL = re.compile(r"naive_conv_")
_SOLVER = re.compile(r"miopen:ConvDirectNaiveConv")
_HELPER = re.compile(rf"{TRANSPOSE.pattern}|SubTensorOp", re.IGNORECASE)
_LEAST_FLOPS = 1e9
"""Convolutions with fewer floating-point operations than this are not reported, although they run the naive solver.

For them it may really be the fastest, as in MIOpen's own databases for thousands of convolutions.
"""
_TYPE_BYTES = {"FP64": 8, "FP32": 4, "FP16": 2, "BF16": 2, "INT8": 1, "FP8": 1, "BF8": 1}
_LARGE = 1 << 30
"""A workspace of this size (bytes) is called large, because a device may not have that much free memory."""
SEARCH = (
    f"Let MIOpen search for a faster solver (tune_miopen.sh, takes hours), {AFTER_SEARCH}. With "
    "MIOPEN_LOG_LEVEL=5, MIOpen's log names the solvers that it skipped for lack of workspace."
)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Report each convolution that runs MIOpen's slow naive solver although it could be much faster.

    Its time must be at least ``slow_factor`` times the expected time, if both are known.
    """
    rows = _naive(tables)
    if not len(rows):
        return []
    facts, others = facts_of(tables), _find_other_solvers(tables)
    calls = calls_of(tables, rows["problem"])
    refused = _find_refused_solvers(tables)
    found = []
    for row in rows.to_dict("records"):
        text, source = str(row["problem"]), str(row["source_id"])
        problem = problem_from_text(text)
        # Convolutions of less than 1 GFLOP are left out.
        if not isinstance(problem, ConvProblem) or (problem.flops or 0) < _LEAST_FLOPS:
            continue
        now = None if pd.isna(row["now_us"]) else float(row["now_us"])
        expected = _expect_time(problem, source, others, facts)
        # If one of the two times is unknown, the convolution is reported without a saving.
        if expected is not None and now is not None and now <= settings.slow_factor * expected.us:
            continue
        count = calls.get(text, None if pd.isna(row["calls"]) else int(row["calls"]))
        found.append(_finding(problem, row, now, expected, count, refused.get(text, ()), facts.get(source, {})))
    return found


# ------------------------------------------------------------------------------------------------ naive passes


def _naive(tables: Tables) -> pd.DataFrame:
    """Return the convolutions that run MIOpen's slow naive solver, one row each.

    * The columns are ``source_id, problem, now_us, calls``.
    * ``now_us``: the time of a call, µs.
    * ``calls``: the number of calls in a trace.
    """
    rows = pd.concat([_find_in_traces(tables), _find_in_logs(tables), _find_in_databases(tables)], ignore_index=True)
    return rows.drop_duplicates("problem").sort_values("problem", ignore_index=True)


def _find_in_traces(tables: Tables) -> pd.DataFrame:
    keys = ["source_id", "problem"]
    rows = traced_calls_of_run(tables)
    rows = rows[rows["kernel"].astype(str).str.contains(_KERNEL)]
    if not len(rows):  # in most runs
        return rows[[*keys, "now_us", "calls"]]
    launched = tables.kernels[tables.kernels["problem"].isin(set(rows["problem"]))]
    names = launched["kernel"].astype(str)
    naive = launched[names.str.contains(_KERNEL)].groupby(keys)["calls"].sum().rename("naive")
    other = launched[~names.str.contains(_KERNEL) & ~names.str.contains(_HELPER)]
    most = other.groupby([*keys, "kernel"])["calls"].sum().groupby(keys).max().rename("other")
    rows = rows.merge(naive.reset_index(), on=keys).merge(most.reset_index(), on=keys, how="left")
    # A search launches the naive solver once and the solvers that it compares with several times.
    usual = (rows["naive"] * 2 > rows["calls"]) & ~(rows["other"].fillna(0) > rows["naive"])
    return rows.loc[usual, [*keys, "now_us", "calls"]].sort_values(["problem", "now_us"], ascending=[True, False])


def _find_in_logs(tables: Tables) -> pd.DataFrame:
    """Find in the job's logs the convolutions for which MIOpen mostly used its slow naive solver.

    Their time comes from a file of the job with measured times.
    """
    made = picks(tables)
    total = made.groupby("problem")["count"].transform("sum")
    made = made[made["pick"].astype(str).str.contains(_SOLVER) & (made["count"] * 2 > total)]
    if not len(made):  # in most runs
        return made[["source_id", "problem"]].assign(now_us=float("nan"), calls=float("nan"))
    times = keep_timed(tables.measurements[tables.measurements["run"] == tables.run])
    times = times[times["problem"].isin(set(made["problem"])) & times["solution"].isin(set(made["pick"]))]
    best = times.groupby(["problem", "solution"])["time_us"].min().rename("now_us").reset_index()
    rows = made.merge(best.rename(columns={"solution": "pick"}), on=["problem", "pick"], how="left")
    rows = rows.sort_values(["problem", "source_id"])
    return rows[["source_id", "problem", "now_us"]].assign(calls=float("nan"))


def _find_in_databases(tables: Tables) -> pd.DataFrame:
    """Return the convolutions for which MIOpen's stored search results name the slow naive solver as the fastest.

    The job's next call then runs the naive solver.
    """
    known = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == "find_db")]
    # MIOpen stores the results in a file (user find-db), and obeys it.
    users = set(known.loc[known["value"] == "user", "source_id"])
    rows = keep_timed(tables.measurements[tables.measurements["source_id"].isin(users)])
    rows = rows.sort_values(["problem", "time_us", "solution", "source_id"]).drop_duplicates(["source_id", "problem"])
    rows = rows[rows["solution"].astype(str).str.contains(_SOLVER)]
    return rows[["source_id", "problem"]].assign(now_us=rows["time_us"].astype("float64"), calls=float("nan"))


# ------------------------------------------------------------------------------------- what it could take


@dataclass(frozen=True)
class _Time:
    """The time (µs) that a convolution would take with a better kernel, and a text about where this time comes from."""

    us: float
    how: str


@dataclass(frozen=True)
class _Other:
    """A measured time (µs) of a convolution with a kernel other than the slow naive one.

    It shows how fast the same or a similar convolution can run.
    """

    problem: ConvProblem
    source: str
    solver: str
    us: float


def _find_other_solvers(tables: Tables) -> list[_Other]:
    """Return the times of all kernels in the job's files except MIOpen's naive one.

    The find-dbs (search results) that come with MIOpen are left out, because they have too many convolutions.
    """
    own = set(tables.sources.loc[tables.sources["run"] == tables.run, "source_id"])
    system = tables.facts[(tables.facts["name"] == "find_db") & (tables.facts["value"] == "system")]
    rows = keep_timed(tables.measurements)
    rows = rows[rows["source_id"].isin(own - set(system["source_id"])) & (rows["kind"] == "conv")]
    rows = rows[is_evidence(rows) & ~rows["solution"].astype(str).str.contains(_SOLVER)]
    traced = traced_calls_of_run(tables)
    traced = traced[traced["problem"].astype(str).str.startswith("conv ")]
    traced = traced[~traced["kernel"].astype(str).str.contains(_KERNEL)]
    named = [(rows, "solution", "time_us"), (traced, "kernel", "now_us")]
    columns = [(x["problem"], x["source_id"], x[name], x[us]) for x, name, us in named]
    found = [
        (str(p), str(s), str(name), float(us)) for column in columns for p, s, name, us in zip(*column, strict=True)
    ]
    problems = {text: problem_from_text(text) for text, *_ in found}
    return [
        _Other(problem, source, name.rpartition(":")[2], us)
        for text, source, name, us in sorted(found, key=lambda x: (x[3], *x[:3]))
        if isinstance(problem := problems[text], ConvProblem)
    ]


_OF_IMAGE = ("n", "d", "h", "w", "out_d", "out_h", "out_w")


def _kind(problem: ConvProblem) -> tuple[object, ...]:
    """Return all properties of a convolution except its batch and image sizes.

    If two convolutions agree in them, their times can be compared.
    """
    return tuple(
        x for name, x in vars(problem).items() if name in problem.__dataclass_fields__ and name not in _OF_IMAGE
    )


def _expect_time(
    problem: ConvProblem, source: str, others: Sequence[_Other], facts: Mapping[str, Facts]
) -> _Time | None:
    here = facts.get(source, {})
    near = [x for x in others if same_device(facts.get(x.source, {}), here) is not False]
    for x in near:
        if x.problem == problem:
            return _Time(x.us, f"{x.solver} takes {duration(x.us)}")
    passes = {x.problem.direction: x for x in reversed(near) if x.problem.layer == problem.layer}
    if passes:
        x = max(passes.values(), key=lambda x: (x.us, x.problem.direction))
        return _Time(x.us, f"its {x.problem.direction} pass takes {duration(x.us)}")
    alike = [x for x in near if _kind(x.problem) == _kind(problem) and x.problem.flops]
    if alike and problem.flops:
        work = problem.flops
        x = min(alike, key=lambda x: (abs((x.problem.flops or 0) - work), x.us))
        us = x.us * work / (x.problem.flops or work)
        return _Time(
            us,
            f"{x.solver} takes {duration(x.us)} for {x.problem.label}, which scales to {duration(us)} for this "
            "convolution",
        )
    least = _roofline_us(problem, here)
    if least is None:
        return None
    return _Time(
        least / WITHIN_REACH, f"at half of the roofline the convolution would take {duration(least / WITHIN_REACH)}"
    )


def _roofline_us(problem: ConvProblem, known: Facts) -> float | None:
    """Return the least time that the peak rates of the device allow for the convolution, µs.

    If only the architecture is known, it is the time on the slowest device of that architecture.
    """
    if device_of(known) is not None or "cu_count" in known or "device" in known:
        return roofline_us(problem, known)
    alike = [roofline_us(problem, {"device": x.name}) for x in devices() if x.arch == arch(known)]
    return max((x for x in alike if x is not None), default=None)


# ------------------------------------------------------------------------------------------- why, and what to do


def _find_refused_solvers(tables: Tables) -> dict[str, list[tuple[str, int]]]:
    """Return for each convolution the kernels that MIOpen could not use because the workspace was too small.

    Each entry has the kernel's name (solver), and the workspace that it needs, bytes.
    """
    rows = tables.measurements
    lost = rows["error"].astype("string").str.startswith("too little workspace").fillna(False)
    rows = rows[(rows["run"] == tables.run) & lost.to_numpy(dtype=bool) & rows["workspace_bytes"].notna()]
    out: dict[str, list[tuple[str, int]]] = {}
    columns = (rows["problem"], rows["solution"], rows["workspace_bytes"])
    for text, solution, size in sorted({(str(p), str(s), int(b)) for p, s, b in zip(*columns, strict=True)}):
        out.setdefault(text, []).append((solution.rpartition(":")[2], size))
    return out


def gemm_workspace(problem: ConvProblem) -> int | None:
    """Return how much workspace (bytes) MIOpen's GEMM solver needs for a convolution. None if a size is unknown.

    Source: ROCm/MIOpen ``src/solver/gemm.cpp`` (``GemmFwdRest::GetWorkspaceSize``).
    """
    # The workspace has a copy of the inputs of every filter position, for one image of the batch. Its size is the same
    # for all three directions: (c / groups) · filter · output sizes · groups · bytes per element.
    sizes = [problem.c, problem.filter_d, problem.filter_h, problem.filter_w]
    sizes += [problem.out_d, problem.out_h, problem.out_w, _TYPE_BYTES.get(problem.weights_type or "")]
    out = 1
    for size in sizes:
        if size is None:
            return None
        out *= size
    return out


def _reasons(problem: ConvProblem, refused: Sequence[tuple[str, int]]) -> Iterator[str]:
    for solver, size in refused:
        yield f"MIOpen skipped {solver}, which needs {bytes_text(size)} of workspace, because the call gave less"
    needs = gemm_workspace(problem)
    if not refused and needs is not None and needs >= _LARGE:
        yield f"the GEMM solver of this convolution needs {bytes_text(needs)} of workspace"
    if (problem.largest_tensor or 0) > MOST_ELEMENTS:
        yield (
            f"a tensor has {problem.largest_tensor:,} elements, more than the 2,147,483,647 that other solvers support"
        )


def _advice(problem: ConvProblem, refused: Sequence[tuple[str, int]]) -> str:
    """Return the advice for a convolution that runs the naive solver.

    * Tensor too large for 32 bits: split the batch.
    * Large workspace: make room, or split the convolution.
    * Else: let MIOpen search for a faster solver.
    """
    needs = max([size for _, size in refused], default=gemm_workspace(problem) or 0)
    if (problem.largest_tensor or 0) > MOST_ELEMENTS and (problem.n or 0) > 1:
        return "Split the batch so that no tensor has more than 2,147,483,647 elements. " + SEARCH
    if not refused and needs < _LARGE:
        return SEARCH
    deep = (problem.out_d or 0) > 1
    axis, out = ("depth", problem.out_d) if deep else ("height", problem.out_h)
    filter_ = problem.filter_d if deep else problem.filter_h
    split = ""
    if out is not None and out > 1:
        slices = (filter_ or 1) - 1
        shared = f", which share {slices} of the {axis} as input" if slices else ""
        split = (
            f". Or split the {axis} into {min(out, 4)} parts{shared}: a part needs "
            f"{bytes_text(-(-needs // min(out, 4)))}, and the joined outputs are the same"
        )
    return (
        f"Leave {bytes_text(needs)} of the device's memory free for the workspace when the job first calls the "
        f"convolution. PyTorch allocates it then, and passes none to MIOpen if the allocation fails{split}."
    )


def _remedy(problem: ConvProblem, refused: Sequence[tuple[str, int]]) -> Remedy:
    """Return what the user can do about a convolution that runs the slow naive solver. Usually it is a search."""
    # No search helps if a tensor has too many elements for 32 bits.
    if (problem.largest_tensor or 0) > MOST_ELEMENTS and (problem.n or 0) > 1:
        return Advise("split the batch", "change the program")
    # No search helps if there is too little memory for a workspace.
    if refused or (gemm_workspace(problem) or 0) >= _LARGE:
        return Advise("make room for the workspace", "change the program: free memory, or split the convolution")
    return Search()


def _finding(
    problem: ConvProblem,
    row: Mapping[Hashable, Any],
    now: float | None,
    expected: _Time | None,
    calls: int | None,
    refused: Sequence[tuple[str, int]],
    known: Facts,
) -> Finding:
    direction, flops = problem.direction, problem.flops or 0
    rate = f", {flops / now / 1e6:.2g} TFLOP/s" if now else ""
    takes = f"takes {duration(now)} with the naive solver{rate}" if now else "runs the naive solver"
    gain = None if now is None or expected is None else Gain(now, expected.us)
    about = expected.how if expected is not None else "no time of another solver is known"
    return Finding(
        analyzer=NAME,
        problem=problem,
        message="; ".join((f"{direction} {takes}", about, *_reasons(problem, refused))),
        per_call=gain,
        calls=calls,
        in_run=None if gain is None or calls is None else gain.times(calls),
        evidence=Evidence(
            now_us=now,
            # If MIOpen refused a solver, ``best`` names that solver without a time, so that no search is proposed.
            best=f"miopen:{refused[0][0]}" if refused else None,
            best_us=None if refused or expected is None else expected.us,
            source_id=str(row["source_id"]),
            arch=known.get("arch"),
            cu_count=known.get("cu_count"),
        ),
        remedy=_remedy(problem, refused),
        advice=_advice(problem, refused),
    )


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "convolutions that run MIOpen's naive solver, which can run every convolution but is slow (in traces, logs "
        "or a user find-db). The finding states the cause (too little workspace for another solver, or a tensor that "
        "is too large) and what to do: free memory, split the convolution, or let MIOpen search"
    ),
    worth=(
        "estimated from a known time of another solver, of another pass or of another size of the convolution. If no "
        "such time is known, the convolution is assumed to be able to reach half of the roofline (the device's peak "
        "performance). Otherwise unknown"
    ),
    find=find,
)
