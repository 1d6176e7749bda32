"""Combine tables for the analyzers: facts of each file, measured problems that belong to a call, calls of each problem.

Two problems are linked if their texts may mean the same call, for example because one log states fewer values. They are
never merged into one (docs/findings.md). A value of one call, such as its time, is used for a linked problem, and how
close the link is (``LEVELS``) is recorded. A number of calls is used for a linked problem only if it is clear to which
problem the calls belong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from analyzers.evidence.cells import is_true
from analyzers.evidence.origins import PICK, TRACE
from analyzers.evidence.tables import Settings, Tables, cached_per_run
from logparse.lazy import pd
from logparse.libraries.own import machine_facts
from logparse.model import DEFAULT
from logparse.target import same_device

LEVELS = ("exact", "layout", "shape")
"""How closely two texts agree that may mean the same GEMM or convolution, the closest first."""
DEFAULT_TEXT = DEFAULT.text
"""Name of the solution that means "the library's own choice". A replay records which solution that is."""


def facts_by_source(facts: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return the facts that each file states about its machine, for example its arch, by the id of the file.

    If a file states a fact twice, the smaller text is used.
    """
    kept: dict[tuple[str, str], str] = {}
    for source, name, value in zip(facts["source_id"], facts["name"], facts["value"], strict=True):
        key, text = (str(source), str(name)), str(value)
        kept[key] = min(text, kept.get(key, text))
    out: dict[str, dict[str, str]] = {}
    for (source, name), value in sorted(kept.items()):
        out.setdefault(source, {})[name] = value
    return out


@cached_per_run
def facts_of(tables: Tables) -> dict[str, dict[str, str]]:
    return facts_by_source(tables.facts)


def launches_graphs(tables: Tables) -> bool:
    return bool(tables.facts.loc[tables.facts["run"] == tables.run, "name"].eq("graph_launches").any())


@cached_per_run
def run_facts(tables: Tables) -> dict[str, str]:
    """Return facts about the machine on which the run's calls were made, for example its arch.

    The files of the run are asked in this order:

    1. its logs and traces
    2. ``facts.json``, which ``capture`` wrote on the machine
    3. its other files

    The first group that states a fact decides, and only if all its files agree. So a table that was made on another
    machine, or whose rows are of several devices, never overrules a log.
    """
    facts = tables.facts
    own = facts[facts["source_id"].isin(tables.sources.loc[tables.sources["run"] == tables.run, "source_id"])]
    own = own.assign(value=own["value"].where(own["name"] != "arch", own["value"].astype(str).str.split(":").str[0]))
    captured = tables.sources.loc[tables.sources["format"] == machine_facts.FORMAT.name, "source_id"]
    out: dict[str, str] = {}
    for sources in ({*tables.calls["source_id"], *tables.kernels["source_id"]}, set(captured), set(own["source_id"])):
        stated = own[own["source_id"].isin(sources)]
        out |= agreed_facts(stated)
        own = own[~own["name"].isin(stated["name"])]
    return out


def not_elsewhere(rows: pd.DataFrame, tables: Tables, settings: Settings) -> pd.DataFrame:
    """Drop the rows of files that are known to be from another device than the target, so that times are never mixed.

    If the settings name no target, the device of the run's calls is the target.
    """
    here, facts = settings.target or run_facts(tables), facts_of(tables)
    sources = rows["source_id"].unique()
    away = [source for source in sources if same_device(facts.get(str(source), {}), here) is False]
    return rows[~rows["source_id"].isin(away).to_numpy(dtype=bool)] if away else rows


def agreed_facts(facts: pd.DataFrame) -> dict[str, str]:
    """Return the facts (such as arch and CU count) that have the same value in all files that state them."""
    values = facts.groupby("name")["value"].agg(["nunique", "first"])
    return {str(name): str(value) for name, value in values.loc[values["nunique"] == 1, "first"].items()}


@cached_per_run
def called_problems(tables: Tables) -> frozenset[str]:
    """Return the GEMMs and convolutions that the run calls, and the ones whose texts may mean the same calls."""
    called = set(tables.workload["problem"])
    linked = tables.links.loc[tables.links["problem"].isin(called), "other"]
    return frozenset(map(str, called.union(linked)))


def timed(measurements: pd.DataFrame) -> pd.DataFrame:
    """Keep the measurements that have a usable time: status ``ok``, positive and finite.

    Find-dbs contain zero and negative times.
    """
    time = measurements["time_us"].to_numpy(dtype="float64", na_value=np.nan)
    with np.errstate(invalid="ignore"):
        good = (time > 0) & np.isfinite(time)
    return measurements.iloc[np.flatnonzero(good & (measurements["status"] == "ok").to_numpy(dtype=bool))]


def of_problems(rows: pd.DataFrame, problems: Collection[str]) -> pd.DataFrame:
    """Keep the rows of the given problems (GEMMs or convolutions).

    An empty table is returned at once, because pandas would convert the thousands of texts in ``problems`` for nothing.
    """
    return rows[rows["problem"].isin(problems)] if len(rows) else rows


def is_default(measurements: pd.DataFrame, facts: pd.DataFrame) -> pd.Series:
    """Tell for each measurement whether its solution is the library's own choice.

    The solution is named ``Default``, or the replay recorded it as the library's choice.
    """
    named = facts[facts["name"] == PICK]
    own = dict(zip(named["source_id"], named["value"], strict=True))
    out = is_true(measurements["solution"] == DEFAULT_TEXT).to_numpy(dtype=bool, copy=True)
    named_there = measurements["source_id"].isin(own).to_numpy(dtype=bool)
    of_pick = measurements[named_there]
    out[named_there] = is_true(of_pick["solution"] == of_pick["source_id"].map(own)).to_numpy(dtype=bool)
    return pd.Series(out, index=measurements.index)


def against_default(measurements: pd.DataFrame, facts: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return how much slower or faster solutions are than the library's own choice: a ratio of two times.

    The keys are pairs of a problem (GEMM or convolution) and a solution. Both times are from the same file. If several
    files have both, the largest ratio is returned. Kernel times of traces are not used, because they are not times of
    calls.
    """
    rows = timed(measurements[(measurements["origin"] != TRACE).to_numpy(dtype=bool)])
    keys = ["source_id", "origin", "problem"]
    own = rows[is_default(rows, facts)].groupby(keys)["time_us"].min().rename("own")
    times = rows.groupby([*keys, "solution"])["time_us"].min().reset_index().merge(own.reset_index(), on=keys)
    times = times.assign(ratio=times["time_us"] / times["own"])
    worst = times.groupby(["problem", "solution"])["ratio"].max().reset_index()
    columns = (worst["problem"], worst["solution"], worst["ratio"])
    return {(str(problem), str(solution)): float(ratio) for problem, solution, ratio in zip(*columns, strict=True)}


def linked_measurements(tables: Tables, problems: pd.Series, others: pd.Series) -> pd.DataFrame:
    """Find for each of ``problems`` (GEMMs or convolutions) the ones in ``others`` that may mean the same call.

    Logs of the same call may state more or fewer values. Only the closest matches of a problem are returned. A problem
    that is itself in ``others`` is paired only with itself. Columns:

    * ``problem``, ``other``: the pair.
    * ``level``: how closely the two texts agree (``LEVELS``).
    * ``choices``: how many others the problem may mean.
    * ``fan``: how many problems may mean this other.
    """
    mine, theirs = pd.Index(problems.dropna().unique()), pd.Index(others.dropna().unique())
    links = tables.links[["problem", "other", "level"]]
    links = links[links["problem"].isin(mine) & links["other"].isin(theirs)].drop_duplicates(["problem", "other"])
    own = mine.intersection(theirs).difference(pd.Index(links.loc[links["problem"] == links["other"], "problem"]))
    level = ["shape" if "?" in problem else "exact" for problem in own]
    out = pd.concat([pd.DataFrame({"problem": own, "other": own, "level": level}), links], ignore_index=True)
    if (out["problem"] == out["other"]).all():
        return out.sort_values("problem", ignore_index=True).assign(choices=1, fan=1)
    rank = out["level"].map({level: i for i, level in enumerate(LEVELS)}).fillna(len(LEVELS))
    rank = rank.mask(out["problem"] == out["other"], -1)
    out = out[rank == rank.groupby(out["problem"]).transform("min")]
    out = out.sort_values(["problem", "other"], ignore_index=True)
    out["choices"] = out.groupby("problem")["other"].transform("nunique")
    out["fan"] = out.groupby("other")["problem"].transform("nunique")
    return out


def calls_by_problem(workload: pd.DataFrame) -> pd.Series:
    """Return how often each problem (GEMM or convolution) was called, summed over all processes.

    The number is missing if the log does not count calls.
    """
    return workload.assign(calls=workload["calls"].astype("Float64")).groupby("problem")["calls"].sum(min_count=1)


def calls_of(tables: Tables, problems: pd.Series) -> Mapping[str, int]:
    """Return how often the run called each of the given problems (GEMMs or convolutions), which a file measured.

    If a problem in the log may mean several of them, its calls are counted for none of them.
    """
    if not len(tables.workload) or not len(problems):
        return {}
    calls = calls_by_problem(tables.workload).dropna()
    links = linked_measurements(tables, calls.index.to_series(), problems)
    links = links[links["choices"] == 1]
    sums = links["problem"].map(calls).groupby(links["other"]).sum()
    return {str(problem): int(count) for problem, count in sums.items()}


class Given(NamedTuple):
    """The smallest and the largest workspace (bytes) that the job gives to calls of one GEMM or convolution."""

    least: int
    most: int


@cached_per_run
def given_workspaces(tables: Tables) -> Mapping[str, Given]:
    """Return how much workspace the job gives to its calls of each problem (GEMM or convolution), if a log states it.

    The workspace matters because hipBLASLt uses no solution that needs more than the call gives. If no log states it
    for a problem, the workspace of a problem that may mean the same call is used. For example, a Trace line (mask 2)
    states the workspace, but a bench or profile line of the same call does not.
    """
    calls, links = tables.calls, tables.links
    stated = calls[calls["workspace_bytes"].notna() & ~is_true(calls["by_tool"])][["problem", "workspace_bytes"]]
    linked = links.loc[~links["problem"].isin(stated["problem"]), ["problem", "other"]]
    other = linked.merge(stated.rename(columns={"problem": "other"}), on="other")[["problem", "workspace_bytes"]]
    rows = pd.concat([x for x in (stated, other) if len(x)] or [stated])
    sizes = rows.groupby("problem")["workspace_bytes"].agg(["min", "max"])
    pairs = zip(sizes.index, sizes["min"], sizes["max"], strict=True)
    return {str(text): Given(int(least), int(most)) for text, least, most in pairs}
