"""Combine tables for the analyzers: facts about each file, measurements that match a call, and numbers of calls.

"Problem" in this module means a GEMM or a convolution with all its sizes and types. Two problems are linked if their
texts may mean the same call, for example because one log states fewer values. They are never merged into one
(docs/findings.md). A value of one call, such as its time, is used for a linked problem, and how closely the texts agree
(``LEVELS``) is recorded. A number of calls is used for a linked problem only if it is clear to which problem the calls
belong.
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
"""How closely two texts that may mean the same GEMM or convolution agree, the closest level first.

* ``exact``: all values are known and equal.
* ``layout``: the values that describe the memory layout are known and equal.
* ``shape``: only the sizes are known and equal.
"""
DEFAULT_TEXT = DEFAULT.text
"""The name that is used for a library's own choice of a kernel. A replay records which kernel that is."""


def facts_by_source(facts: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Map each file (its id) to the facts that it states about its machine, for example ``arch``.

    If a file states two values for a fact, the one that sorts first is used.
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
    """Return facts about the machine on which the job ran, for example its arch.

    Three groups of files are read, in this order:

    1. the job's logs and traces
    2. ``facts.json``, which ``capture`` wrote on the machine
    3. all other files

    The first group that states a fact decides its value. The fact is left out if the files of the group disagree. So a
    table that was made on another machine never overrules a log.
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
    """Drop measurements from files of another kind of GPU, so that times of different GPUs are never mixed."""
    # ``settings.target`` describes the right GPU. If it is not set, the job's own GPU is the right one.
    here, facts = settings.target or run_facts(tables), facts_of(tables)
    sources = rows["source_id"].unique()
    # Files that do not name their GPU are kept.
    away = [source for source in sources if same_device(facts.get(str(source), {}), here) is False]
    return rows[~rows["source_id"].isin(away).to_numpy(dtype=bool)] if away else rows


def agreed_facts(facts: pd.DataFrame) -> dict[str, str]:
    """Return each fact (for example the GPU's architecture) for which all files that state it give the same value."""
    values = facts.groupby("name")["value"].agg(["nunique", "first"])
    return {str(name): str(value) for name, value in values.loc[values["nunique"] == 1, "first"].items()}


@cached_per_run
def called_problems(tables: Tables) -> frozenset[str]:
    """Return the texts of all GEMMs and convolutions that the job calls.

    Other texts that may describe the same calls are included.
    """
    called = set(tables.workload["problem"])
    linked = tables.links.loc[tables.links["problem"].isin(called), "other"]
    return frozenset(map(str, called.union(linked)))


def keep_timed(measurements: pd.DataFrame) -> pd.DataFrame:
    """Keep the measurements with a usable time: the status is ``ok``, and the time is positive and finite.

    The check is needed because the files of MIOpen's kernel searches (find-dbs) contain zero and negative times.
    """
    time = measurements["time_us"].to_numpy(dtype="float64", na_value=np.nan)
    with np.errstate(invalid="ignore"):
        good = (time > 0) & np.isfinite(time)
    return measurements.iloc[np.flatnonzero(good & (measurements["status"] == "ok").to_numpy(dtype=bool))]


def of_problems(rows: pd.DataFrame, problems: Collection[str]) -> pd.DataFrame:
    """Keep the rows of a table that are about the given GEMMs or convolutions."""
    # For an empty table, pandas would convert the thousands of texts in ``problems`` for nothing.
    return rows[rows["problem"].isin(problems)] if len(rows) else rows


def is_default(measurements: pd.DataFrame, facts: pd.DataFrame) -> pd.Series:
    """Tell for each measurement whether its kernel is the one that the library chooses by itself.

    There are two signs: the kernel is named ``Default``, or the file states that the library chose this kernel.
    """
    named = facts[facts["name"] == PICK]
    own = dict(zip(named["source_id"], named["value"], strict=True))
    out = is_true(measurements["solution"] == DEFAULT_TEXT).to_numpy(dtype=bool, copy=True)
    named_there = measurements["source_id"].isin(own).to_numpy(dtype=bool)
    of_pick = measurements[named_there]
    out[named_there] = is_true(of_pick["solution"] == of_pick["source_id"].map(own)).to_numpy(dtype=bool)
    return pd.Series(out, index=measurements.index)


def against_default(measurements: pd.DataFrame, facts: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return how much slower or faster kernels are than the library's own choice.

    The result maps pairs of a GEMM or convolution and a kernel to a ratio of two times. For example, 0.8 means that the
    kernel takes 20 % less time. Both times are from the same file. If several files have both, the largest ratio is
    returned. Kernel times of traces are not used, because a call takes longer than its kernel.
    """
    rows = keep_timed(measurements[(measurements["origin"] != TRACE).to_numpy(dtype=bool)])
    keys = ["source_id", "origin", "problem"]
    own = rows[is_default(rows, facts)].groupby(keys)["time_us"].min().rename("own")
    times = rows.groupby([*keys, "solution"])["time_us"].min().reset_index().merge(own.reset_index(), on=keys)
    times = times.assign(ratio=times["time_us"] / times["own"])
    worst = times.groupby(["problem", "solution"])["ratio"].max().reset_index()
    columns = (worst["problem"], worst["solution"], worst["ratio"])
    return {(str(problem), str(solution)): float(ratio) for problem, solution, ratio in zip(*columns, strict=True)}


def linked_measurements(tables: Tables, problems: pd.Series, others: pd.Series) -> pd.DataFrame:
    """Find for each GEMM or convolution in ``problems`` the ones in ``others`` that may mean the same call.

    Two logs of the same call may state more or fewer values, so that their texts differ. Only the closest matches are
    returned. If a text is also in ``others``, it matches only itself. Columns:

    * ``problem``, ``other``: the two texts.
    * ``level``: how closely the two texts agree (``LEVELS``).
    * ``choices``: how many texts in ``others`` match the first text.
    * ``fan``: how many texts in ``problems`` match the second text.
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
    """Return how often the job called each GEMM or convolution, summed over all processes.

    The number is missing if the log does not count calls.
    """
    return workload.assign(calls=workload["calls"].astype("Float64")).groupby("problem")["calls"].sum(min_count=1)


def calls_of(tables: Tables, problems: pd.Series) -> Mapping[str, int]:
    """Return how often the job called each of the given GEMMs or convolutions.

    The text in the job's log may fit several of them, because it states less. Such calls are not counted, because it is
    unknown which one was called.
    """
    if not len(tables.workload) or not len(problems):
        return {}
    calls = calls_by_problem(tables.workload).dropna()
    links = linked_measurements(tables, calls.index.to_series(), problems)
    links = links[links["choices"] == 1]
    sums = links["problem"].map(calls).groupby(links["other"]).sum()
    return {str(problem): int(count) for problem, count in sums.items()}


class Given(NamedTuple):
    """The smallest and the largest workspace (bytes) that the job provides for calls of one GEMM or convolution."""

    least: int
    most: int


@cached_per_run
def given_workspaces(tables: Tables) -> Mapping[str, Given]:
    """Return how much workspace (bytes) the job provides for its calls of each GEMM or convolution.

    This matters because hipBLASLt uses no kernel that needs more workspace than the call provides. Only a few kinds of
    log lines state the workspace: a Trace line (mask 2) does, a bench or profile line does not. If no line of a call
    states it, the value of another text that may mean the same call is used.
    """
    calls, links = tables.calls, tables.links
    stated = calls[calls["workspace_bytes"].notna() & ~is_true(calls["by_tool"])][["problem", "workspace_bytes"]]
    linked = links.loc[~links["problem"].isin(stated["problem"]), ["problem", "other"]]
    other = linked.merge(stated.rename(columns={"problem": "other"}), on="other")[["problem", "workspace_bytes"]]
    rows = pd.concat([x for x in (stated, other) if len(x)] or [stated])
    sizes = rows.groupby("problem")["workspace_bytes"].agg(["min", "max"])
    pairs = zip(sizes.index, sizes["min"], sizes["max"], strict=True)
    return {str(text): Given(int(least), int(most)) for text, least, most in pairs}
