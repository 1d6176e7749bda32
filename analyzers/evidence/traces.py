"""Decide which traces belong to the job's time, and leave the other traces out of every sum.

Traces that are left out are counted, and ``recommend`` lists them. The rules and their reasons:

| left out | reason |
|---|---|
| a copy of a trace, for example beside its ``.gz`` | The kernels ran once, but both files contain them. |
| the capture of a graph | The capture is not part of the job's time, only the launches of the graph are. |
| kernels of another profiler, beside a trace of torch.profiler | The trace contains the same work already. |
| a trace without marked steps, beside traces with marked steps | The number of its steps is unknown. |

The times of traces from two kinds of GPUs or from two programs are never added, because no job takes the sum of their
times (``unlike``). Two traces are of one program if at least one statement is true:

* They are of one process.
* They are of different ranks of one job.
* Our ``capture`` counted the steps or requests of both.
* The GEMMs and convolutions that they have in common take at least 5 % of the time of each.
* One of them names no GEMM or convolution.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pandas as pd

from analyzers.evidence.tables import LeftOut, Tables, cached_per_run
from logparse.devices import same_model
from logparse.ingest.input_file import CAPTURES
from logparse.libraries.kinds.format import TRACE_ID

Facts: TypeAlias = Mapping[str, list[str]]
"""The facts that one file states, for example the name of the GPU: a list of values for each name."""
TORCH = "torch-profiler"
CAPTURE = "graph_capture"
"""Name of a fact about a trace: number and time of its kernels that ran only while a CUDA or HIP graph was captured."""
STEPS, KINDS, RANK, PID = "profiler_steps", "unit_kinds", "rank", "pid"
_OF_TIME = r"gpu_|profiler_steps|step_kinds|graph_(?!capture)|untraced_step_us|unit_kinds|epilogue_|gelu_|searches"
"""Pattern for the names of facts about a trace that are times or counts.

If a trace is left out of the job's time, these facts about it are dropped, too.
"""
_IN_COMMON = 0.05
"""Two traces are taken to be of one program if they have enough GEMMs and convolutions in common.

This is the smallest fraction (0 to 1) of each trace's time that the common ones must take.
"""


def of_the_job(tables: Tables) -> Tables:
    """Remove traces that do not show the job's normal work from all tables, and list them in ``left_out``.

    For example, a trace may be a copy of another one, or it only shows how a graph was recorded.
    """
    facts = tables.facts[tables.facts["run"] == tables.run]
    kernels = tables.kernels[tables.kernels["run"] == tables.run]
    sources = tables.sources[tables.sources["run"] == tables.run]
    torch = sources[sources["format"].astype(str).str.contains(TORCH, regex=False, na=False)]
    if not len(torch):
        return tables
    paths = dict(zip(sources["source_id"], sources["path"].astype(str), strict=True))
    of = _group_facts_by_source(facts)
    ran = set(kernels["source_id"])
    ordered = sorted(set(torch["source_id"]), key=lambda x: (paths[x], x))
    dropped: dict[str, str] = {}
    for source, why in _reasons(ordered, paths, of, ran):
        dropped.setdefault(source, why)
    kept = [x for x in sorted(paths, key=lambda x: (paths[x], x)) if x in ran and x not in dropped]
    unlike = _why_not_addable(kept, paths, of, kernels)
    if unlike:
        dropped |= dict.fromkeys(kept, _UNLIKE)
    elif any(STEPS in of.get(x, {}) for x in kept):
        dropped |= {x: _UNMARKED for x in kept if STEPS not in of.get(x, {})}
    left_out = [*_copies(tables, kernels), *_describe_left_out(dropped, paths, kernels), *_captures(of, dropped, paths)]
    changed = _drop_traces(tables, dropped) if dropped else tables
    return replace(changed, left_out=tuple(left_out), unlike=unlike) if left_out else changed


def _group_facts_by_source(facts: pd.DataFrame) -> Mapping[str, Facts]:
    """Return the facts that each file states, by the file's id. A fact may have several values."""
    out: dict[str, dict[str, list[str]]] = {}
    for source, name, value in facts[["source_id", "name", "value"]].dropna().itertuples(index=False):
        out.setdefault(str(source), {}).setdefault(str(name), []).append(str(value))
    return out


_COPY = "a copy of another trace"
_OF_CAPTURE = "kernels that ran while a CUDA or HIP graph was captured, which is not part of the job's time"
_OTHER_TOOL = "kernels from another profiler; the trace of torch.profiler is used instead"
_UNLIKE = "traces of several devices or programs, whose times cannot be added"
_UNMARKED = "a trace without marked steps; traces with marked steps are used instead"


def _reasons(
    torch: Sequence[str], paths: Mapping[str, str], of: Mapping[str, Facts], ran: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield each trace that must not be counted in the job's time, with the reason.

    There are two reasons: the trace is a copy of another one, or it only shows how a graph was recorded.
    """
    seen: set[str] = set()
    for source in torch:
        known = of.get(source, {}).get(TRACE_ID, [])
        if seen.intersection(known):
            yield source, _COPY
        seen.update(known)
    captures = {x for x in torch if f"/{CAPTURES}" in f"/{paths[x]}" or CAPTURE in of.get(x, {})}
    yield from ((x, _OF_CAPTURE) for x in torch if x in captures and x in ran)
    if any(x in ran and x not in captures for x in torch):
        yield from ((x, _OTHER_TOOL) for x in paths if x in ran and x not in torch)


def _describe_left_out(
    dropped: Mapping[str, str], paths: Mapping[str, str], kernels: pd.DataFrame
) -> Iterator[LeftOut]:
    sums = kernels[kernels["source_id"].isin(list(dropped))].groupby("source_id")[["total_us", "calls"]].sum()
    for why in sorted(set(dropped.values())):
        mine = sorted(x for x in dropped if dropped[x] == why)
        held = sums.reindex(mine).fillna(0.0)
        yield LeftOut(
            why=why,
            sources=frozenset(mine),
            names=tuple(paths[x].rpartition("/")[2] for x in mine),
            kernels=round(float(held["calls"].sum())),
            us=float(held["total_us"].sum()),
        )


def _copies(tables: Tables, kernels: pd.DataFrame) -> Iterator[LeftOut]:
    """Yield a note about traces that are not counted because they are copies of other traces.

    The note states how many kernels the copies repeat, and how long these take.
    """
    if tables.copies is None:
        return
    copies = tables.copies[(tables.copies["run"] == tables.run) & tables.copies["copy_of"].isin(kernels["source_id"])]
    if len(copies):
        sums = kernels.groupby("source_id")[["total_us", "calls"]].sum().reindex(copies["copy_of"])
        names = tuple(str(path).rpartition("/")[2] for path in sorted(copies["path"].astype(str)))
        held = round(float(sums["calls"].sum())), float(sums["total_us"].sum())
        yield LeftOut(_COPY, frozenset(copies["source_id"]), names, *held)


def _captures(of: Mapping[str, Facts], dropped: Mapping[str, str], paths: Mapping[str, str]) -> Iterator[LeftOut]:
    """Yield a note about kernels that ran only while a CUDA or HIP graph was recorded.

    Such kernels are not part of the job's time, so they were left out when the files were read.
    """
    held = {x: json.loads(known[CAPTURE][0]) for x, known in of.items() if CAPTURE in known and x not in dropped}
    if held:
        names = tuple(sorted(paths[x].rpartition("/")[2] for x in held if x in paths))
        kernels, us = sum(x["kernels"] for x in held.values()), sum(x["us"] for x in held.values())
        yield LeftOut(_OF_CAPTURE, frozenset(held), names, kernels, us)


def _drop_traces(tables: Tables, dropped: Mapping[str, str]) -> Tables:
    """Return the tables without the kernels, calls and times of the given trace files."""
    ours = set(dropped)

    def rest(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[~frame["source_id"].isin(ours)].reset_index(drop=True)

    calls = tables.calls
    gone = calls[calls["source_id"].isin(ours) & calls["category"].eq("profiler")]
    facts = tables.facts
    timed = facts["source_id"].isin(ours) & facts["name"].astype(str).str.match(_OF_TIME)
    return replace(
        tables,
        kernels=rest(tables.kernels),
        collectives=rest(tables.collectives),
        calls=calls.drop(index=gone.index).reset_index(drop=True),
        workload=_subtract_calls(tables.workload, gone),
        facts=facts[~timed].reset_index(drop=True),
    )


def _subtract_calls(workload: pd.DataFrame, gone: pd.DataFrame) -> pd.DataFrame:
    """Subtract the calls in traces that are left out (``gone``) from the numbers of calls in ``workload``."""
    if not len(gone):
        return workload
    keys = ["pid", "problem"]
    less = gone.assign(count=gone["count"].astype("Float64")).groupby(keys, dropna=False)["count"].sum()
    known = pd.MultiIndex.from_frame(workload[keys])
    fewer = less.reindex(known).reset_index(drop=True).fillna(0.0).set_axis(workload.index)
    traced = workload["calls_from"].eq("profiler")
    calls = workload["calls"].astype("Float64") - fewer.where(traced, 0.0)
    kept = ~traced | (calls > 0).fillna(True)
    same = calls.round().astype("Int64") if (calls.dropna() % 1 == 0).all() else calls
    return workload.assign(calls=same)[kept].reset_index(drop=True)


# --------------------------------------------------------------------------------------------- one device, one program


def _why_not_addable(
    sources: Sequence[str], paths: Mapping[str, str], of: Mapping[str, Facts], kernels: pd.DataFrame
) -> str:
    """Explain why the times of the traces cannot be added. Returns an empty text if they can.

    They cannot if they are from several kinds of GPUs or several programs.
    """
    devices = _grouped(sources, lambda one, other: _same_device(of.get(one, {}), of.get(other, {})))
    if len(devices) > 1:
        known = [of.get(x[0], {}) for x in devices]
        names = [_device(x) for x in known]
        names = names if len(set(names)) == len(names) else [_device(x, units=True) for x in known]
        return _sentence("devices", {name: [paths[y] for y in x] for name, x in zip(names, devices, strict=True)})
    shares = _shares(sources, kernels)
    programs = _grouped(
        sources,
        lambda one, other: (
            _of_one_job(of.get(one, {}), of.get(other, {})) or _is_same_program(shares.get(one), shares.get(other))
        ),
    )
    named = {f"program {n}": [paths[y] for y in x] for n, x in enumerate(programs, 1)}
    return _sentence("programs", named) if len(named) > 1 else ""


def _grouped(sources: Sequence[str], alike: Callable[[str, str], bool]) -> list[list[str]]:
    """Divide files into groups of files that are alike.

    ``alike`` compares two files. Two files that are not alike are also in one group if a third file is like both.
    """
    groups: list[list[str]] = []
    for source in sources:
        near = [x for x in groups if any(alike(other, source) for other in x)]
        joined = [*(y for x in near for y in x), source]
        groups = [*(x for x in groups if x not in near), joined]
    return groups


def _same_device(one: Facts, other: Facts) -> bool:
    """Tell whether two traces may be from the same kind of GPU.

    Their names (``same_model``) and numbers of CUs must not differ. If a trace states no name, ``arch`` is compared
    instead.
    """
    # A partition of a GPU has the name of the whole GPU, but fewer CUs. A value that a trace does not state does not
    # differ.
    pairs = {x: (set(one.get(x, [])) - {""}, set(other.get(x, [])) - {""}) for x in ("device", "arch", "cu_count")}
    names, others = pairs["device"]
    if names and others:
        del pairs["device"], pairs["arch"]
        if not any(same_model(a, b) for a in names for b in others):
            return False
    return all(bool(a & b) for a, b in pairs.values() if a and b)


def _device(known: Facts, *, units: bool = False) -> str:
    """Return the name of the GPU (or GPUs) of a trace, for a message. ``units``: also the number of its CUs."""
    named = next((x for name in ("device", "arch") if (x := sorted(set(known.get(name, [])) - {""}))), [])
    count = f"with {' or '.join(sorted(set(known.get('cu_count', ['?']))))} CUs"
    return " and ".join(named) + f" {count}" * units if named else f"a device {count}"


def _sentence(what: str, groups: Mapping[str, Sequence[str]]) -> str:
    named = [f"{name}: {', '.join(x.rpartition('/')[2] for x in paths)}" for name, paths in groups.items()]
    return (
        f"the run's traces are from {len(groups)} {what} ({'; '.join(named)}), whose times cannot be added. Ingest "
        "each into its own run (logparse ingest FILE --run NAME), then: logparse recommend --run NAME"
    )


def _shares(sources: Sequence[str], kernels: pd.DataFrame) -> Mapping[str, pd.Series]:
    """For each trace, return how its time is divided among the GEMMs and convolutions.

    Each has a fraction (0 to 1) of the time of all GEMMs and convolutions in the trace. Traces of one job have similar
    fractions.
    """
    mine = kernels[kernels["source_id"].isin(list(sources)) & kernels["problem"].notna()]
    sums = mine.groupby(["source_id", "problem"])["total_us"].sum()
    return {str(x): each.droplevel(0) / each.sum() for x, each in sums.groupby(level=0) if each.sum() > 0}


def _of_one_job(one: Facts, other: Facts) -> bool:
    """Tell whether two traces certainly belong to one job.

    One of three things must be true: both are of the same process, they are of different ranks, or logparse's
    ``capture`` counted the steps of both.
    """
    ranks = one.get(RANK), other.get(RANK)
    processes = one.get(PID), other.get(PID)
    apart = None not in ranks and ranks[0] != ranks[1]
    same = None not in processes and processes[0] == processes[1]
    return apart or same or (KINDS in one and KINDS in other)


def _is_same_program(one: pd.Series | None, other: pd.Series | None) -> bool:
    """Tell whether two traces seem to be of the same program.

    They must spend enough of their time (``_IN_COMMON``) in the same GEMMs and convolutions.
    """
    # A trace without GEMMs and convolutions shows no difference.
    if one is None or other is None:
        return True
    both = pd.concat([one, other], axis=1, join="inner")
    return float(both.min(axis=1).sum()) >= _IN_COMMON


# -------------------------------------------------------------------------------------------- what a trace may not show


@cached_per_run
def unknown_idle(tables: Tables) -> str:
    """Explain why the GPU's idle time cannot be computed from the traces. Returns an empty text if it can."""
    facts = tables.facts[tables.facts["run"] == tables.run]
    lost, kept, us, window = (
        float(pd.to_numeric(facts.loc[facts["name"] == name, "value"], errors="coerce").sum())
        for name in ("graph_launches_without_kernels", "graph_launches", "graph_us", "gpu_window_us")
    )
    # A profiler may lose the kernels of a graph launch, so that the GPU seems to be idle. Such a launch is assumed to
    # take the mean time of the others. From ``_HIDDEN`` (2 %) of the traced time on, the idle time is unknown.
    if not lost or (kept and lost * us / kept < _HIDDEN * window):
        return ""
    return (
        f"the GPU's idle time is unknown, because {lost:,.0f} of {lost + kept:,.0f} graph launches have no kernel in "
        "the traces"
    )


_HIDDEN = 0.02
