"""How analyzers join tables: what a source's facts are, which measured problem a call means, and what it weighs.

Linked problems are a relation and never merged (docs/findings.md): a value of one call passes over a link and records
its level; a count passes only where it is clear whose it is.
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
"""Levels of links, the closest first."""
DEFAULT_TEXT = DEFAULT.text
"""The library's own choice as a solution's text; in a replay its fact ``PICK`` names the solution that it was."""


def facts_by_source(facts: pd.DataFrame) -> dict[str, dict[str, str]]:
    """The facts of each source about where it was made; of two values of one name the smaller text is kept."""
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
    """The facts of the machine that the run's calls are of: those on which its logs and traces agree that state them,
    what none of these states from what a capture found out (``facts.json``), and else from its other files.

    A table that was made elsewhere, or of rows of several devices, does not change what a log states.
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
    """The rows (with a ``source_id``) of sources that are not known to be of another device than the target, or where
    none is named, than the run's calls: times of two devices are never joined.
    """
    here, facts = settings.target or run_facts(tables), facts_of(tables)
    sources = rows["source_id"].unique()
    away = [source for source in sources if same_device(facts.get(str(source), {}), here) is False]
    return rows[~rows["source_id"].isin(away).to_numpy(dtype=bool)] if away else rows


def agreed_facts(facts: pd.DataFrame) -> dict[str, str]:
    """The facts that have one value in all files that state them."""
    values = facts.groupby("name")["value"].agg(["nunique", "first"])
    return {str(name): str(value) for name, value in values.loc[values["nunique"] == 1, "first"].items()}


@cached_per_run
def called_problems(tables: Tables) -> frozenset[str]:
    """The problems that the run calls, and those that may be one of these."""
    called = set(tables.workload["problem"])
    linked = tables.links.loc[tables.links["problem"].isin(called), "other"]
    return frozenset(map(str, called.union(linked)))


def timed(measurements: pd.DataFrame) -> pd.DataFrame:
    """The measurements that have a time: status ok, positive and finite (find-dbs hold zero and negative ones)."""
    time = measurements["time_us"].to_numpy(dtype="float64", na_value=np.nan)
    with np.errstate(invalid="ignore"):
        good = (time > 0) & np.isfinite(time)
    return measurements.iloc[np.flatnonzero(good & (measurements["status"] == "ok").to_numpy(dtype=bool))]


def of_problems(rows: pd.DataFrame, problems: Collection[str]) -> pd.DataFrame:
    """The rows of these problems; without a row no look at thousands of texts, which pandas converts all the same."""
    return rows[rows["problem"].isin(problems)] if len(rows) else rows


def is_default(measurements: pd.DataFrame, facts: pd.DataFrame) -> pd.Series:
    """Whether each measurement is of the library's own choice: ``Default``, or what a replay's fact ``pick`` names."""
    named = facts[facts["name"] == PICK]
    own = dict(zip(named["source_id"], named["value"], strict=True))
    out = is_true(measurements["solution"] == DEFAULT_TEXT).to_numpy(dtype=bool, copy=True)
    named_there = measurements["source_id"].isin(own).to_numpy(dtype=bool)
    of_pick = measurements[named_there]
    out[named_there] = is_true(of_pick["solution"] == of_pick["source_id"].map(own)).to_numpy(dtype=bool)
    return pd.Series(out, index=measurements.index)


def against_default(measurements: pd.DataFrame, facts: pd.DataFrame) -> dict[tuple[str, str], float]:
    """(problem, solution) → its time over that of the library's own choice, where one source has both.

    Of several sources the largest ratio is returned.  Kernel times of traces are not times of calls.
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
    """For each of ``problems`` the ones of ``others`` linked to it at its closest level.

    Columns ``problem, other, level, choices, fan``: ``choices`` counts the others that the problem may mean, ``fan``
    the problems that the other stands for.  A problem that is itself among ``others`` means that one.
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
    """Calls of each problem of the workload over all processes; missing where the log does not count."""
    return workload.assign(calls=workload["calls"].astype("Float64")).groupby("problem")["calls"].sum(min_count=1)


def calls_of(tables: Tables, problems: pd.Series) -> Mapping[str, int]:
    """How often the workload called each of these (measured) problems.

    A logged problem that may mean several of them gives its count to none.
    """
    if not len(tables.workload) or not len(problems):
        return {}
    calls = calls_by_problem(tables.workload).dropna()
    links = linked_measurements(tables, calls.index.to_series(), problems)
    links = links[links["choices"] == 1]
    sums = links["problem"].map(calls).groupby(links["other"]).sum()
    return {str(problem): int(count) for problem, count in sums.items()}


class Given(NamedTuple):
    """Bytes, the least and the most over the calls of one problem: call sites may differ."""

    least: int
    most: int


@cached_per_run
def given_workspaces(tables: Tables) -> Mapping[str, Given]:
    """The workspace that a job gives its calls, as far as a log states it: hipBLASLt takes no solution that needs more.

    By the text of a called problem, or of one that is linked to it: a Trace line (mask 2) states the workspace, a bench
    or profile line of the same call does not.
    """
    calls, links = tables.calls, tables.links
    stated = calls[calls["workspace_bytes"].notna() & ~is_true(calls["by_tool"])][["problem", "workspace_bytes"]]
    linked = links.loc[~links["problem"].isin(stated["problem"]), ["problem", "other"]]
    other = linked.merge(stated.rename(columns={"problem": "other"}), on="other")[["problem", "workspace_bytes"]]
    rows = pd.concat([x for x in (stated, other) if len(x)] or [stated])
    sizes = rows.groupby("problem")["workspace_bytes"].agg(["min", "max"])
    pairs = zip(sizes.index, sizes["min"], sizes["max"], strict=True)
    return {str(text): Given(int(least), int(most)) for text, least, most in pairs}
