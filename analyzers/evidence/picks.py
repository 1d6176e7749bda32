"""What the library picked, and how that compares with the best that is known: the table behind ``suboptimal_pick``.

Times are only compared within one file: pick and best come from the same source, so from one device and one method.
A solution *index* means something only within one library build and arch; a MIOpen solver is a name and means the same
everywhere, its time does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from analyzers.evidence import joins
from analyzers.evidence.comparison import BASES, BY_DEFAULT, INCOMPARABLE, MEASURED, UNMEASURED
from analyzers.evidence.confirmations import blocks_of
from analyzers.evidence.origins import CONFIRM, RACE, is_evidence
from analyzers.evidence.tables import Settings, Tables, cached_per_run, reading
from logparse.model import TRIED, solution_from_text
from logparse.store.rules import LOGGED, counted_as_sql, picks_sql
from logparse.target import Facts, comparable, device_of_file, different_devices, same_device

SILENT, UNCALLED = "", "-"
"""In place of a log: a call of the run whose pick no log names, and a problem that the run never called."""
COLUMNS = (
    *("problem", "pick", "calls", "basis", "pick_us", "noise_us", "best", "best_raw", "best_us", "algorithm"),
    *("workspace_bytes", "key_text", "candidates", "source_id", "origin", "measured", "level", "choices", "fan"),
    *("tried", "disagree", "apart"),
)


@cached_per_run
def picks(tables: Tables) -> pd.DataFrame:
    """The solutions that the run's logs name: columns of ``picks_sql``, in the order of its texts."""
    calls, chosen = tables.calls, tables.measurements
    chosen = chosen[chosen["origin"].isin(LOGGED) & (chosen["run"] == tables.run)]
    with reading({"calls": calls[calls["solution"].notna()], "measurements": chosen}, _NAMING) as con:
        return con.execute(f"{picks_sql()} order by all").df()


_NAMING = {
    "calls": "source_id text, category text, problem text, solution text, count float, by_tool bool",
    "measurements": "source_id text, origin text, problem text, solution text",
}


def records(measurements: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """One row per source, origin and problem: its fastest solution, how many have a time, and the default's time.

    Columns ``source_id, origin, measured, best, best_us, best_raw, algorithm, workspace_bytes, key_text, candidates,
    tried, default, default_us, noise_us``.  ``candidates`` have a time, ``tried`` counts those, too, that ran and
    failed.  ``default`` is the library's own choice there; several times of it in one source
    are averaged, and their spread is the noise floor.

    Of a race only the default counts as known, and as the best: selection biases its winner's time low.  A problem
    without a better confirmed solution is measured all the same, and belongs in every sum over what was measured.
    """
    of_evidence = measurements[is_evidence(measurements) | (measurements["origin"] == RACE)]
    rows = joins.timed(of_evidence)
    default, raced = joins.is_default(rows, facts), rows["origin"] == RACE
    with_time, every = _solutions_of(rows), of_evidence[of_evidence["status"].isin(TRIED)]
    tried = with_time if len(every) == len(rows) else _solutions_of(every)
    rows = rows.assign(own=default)[~raced | default].rename(columns={"problem": "measured", "solution": "best"})
    keys = ["source_id", "origin", "measured"]
    rows = rows.sort_values([*keys, "time_us", "best", "ordinal"])
    out = rows.drop_duplicates(keys)[
        [*keys, "best", "time_us", "raw", "algorithm", "workspace_bytes", "key_text"]
    ].rename(columns={"time_us": "best_us", "raw": "best_raw"})
    own = rows[rows["own"]].groupby(keys)
    times = own["time_us"]
    spread = times.max() - times.min()
    defaults = pd.DataFrame({"default": own["best"].first(), "default_us": times.mean(), "noise_us": spread})
    for columns in (with_time.rename("candidates"), tried.rename("tried"), defaults):
        out = out.merge(columns.reset_index(), on=keys, how="left")
    return out


def _solutions_of(rows: pd.DataFrame) -> pd.Series:
    """How many solutions each source and origin has of a problem."""
    count: pd.Series = rows.groupby(["source_id", "origin", "problem"])["solution"].nunique()
    return count.rename_axis(index={"problem": "measured"})


@cached_per_run
def picks_vs_best(tables: Tables, settings: Settings) -> pd.DataFrame:
    """Each pick (or, where no log names one, the library's default) beside the best known solution of its problem.

    One row per problem and pick, the best evidence there is (``BASES``, then the closest link, then a confirmation,
    then the most candidates), with ``COLUMNS``; times in µs, ``calls`` missing where no log counts.  ``apart``:
    the time is not known to be of the device that was called, so that it weighs no call.
    """
    made = _with_workload(tables, picks(tables))
    known = records(_relevant(tables, made["problem"]), tables.facts)
    made = pd.concat([made, _uncalled(tables, made["problem"], known)], ignore_index=True)
    if not len(known) or not len(made):
        return pd.DataFrame(columns=list(COLUMNS))
    calls = made.groupby(["problem", "pick"])["calls"].sum(min_count=1)
    rows = made.drop(columns="calls").merge(
        joins.linked_measurements(tables, made["problem"], known["measured"]), on="problem"
    )
    rows = rows.rename(columns={"other": "measured"}).merge(known, on="measured")
    rows = rows.assign(apart=~_of_these_calls(rows, unknown_device(tables)))
    # The problem may mean several measured ones of a source, and these have different winners.
    winners = rows.groupby(["problem", "pick", "source_id", "origin"])["best"].transform("nunique")
    rows = rows.assign(disagree=winners > 1)
    rows = rows.merge(_times(tables, rows["measured"]), how="left", on=[*_RECORD, "pick"])
    here = joins.run_facts(tables)
    rows = _judged(_comparable(rows, {**joins.facts_of(tables), SILENT: here, UNCALLED: here}, settings))
    if not len(rows):
        return pd.DataFrame(columns=list(COLUMNS))
    order = rows["basis"].map({x: i for i, x in enumerate(BASES)})
    near = rows["level"].map({x: i for i, x in enumerate(joins.LEVELS)})
    # A confirmation has two candidates only, and outweighs a file in which selection biases the fastest of many low; of
    # a race no more is taken than that a problem was measured.
    bias = rows["origin"].map({CONFIRM: 0, RACE: 2}).fillna(1)
    near = near.where(bias != 2, len(joins.LEVELS))
    # Of several confirmations the one of the most processes, then the latest: the fastest would be biased.
    few = -rows["source_id"].map(_processes(tables)).fillna(0)
    age = rows["source_id"].map(_ages(tables)).where(bias == 0, 0)
    # Of two runs that timed as many, the one that is asked about: the faster one's times would be shown as its own.
    own = tables.sources.loc[tables.sources["run"] == tables.run, "source_id"]
    foreign = ~rows["source_id"].isin(own)
    more = -rows["candidates"]
    rows = rows.assign(order=order, near=near, bias=bias, few=few, age=age, more=more, foreign=foreign)
    by = ("apart", "order", "near", "bias", "few", "age", "more", "foreign", "best_us", *_RECORD, "log")
    rows = rows.sort_values(["problem", "pick", *by])
    rows = rows.drop_duplicates(["problem", "pick"]).merge(calls.reset_index(), on=["problem", "pick"])
    rows["calls"] = rows["calls"].mask(rows["apart"])
    # Picks that all fall back on the default are one statement about the problem, not one per pick.
    rows["pick"] = rows["pick"].where(rows["basis"] != BY_DEFAULT, rows["default"])
    rows["calls"] = rows.groupby(["problem", "pick"])["calls"].transform("sum", min_count=1)
    return rows.drop_duplicates(["problem", "pick"])[list(COLUMNS)].reset_index(drop=True)


_RECORD = ["source_id", "origin", "measured"]


def _processes(tables: Tables) -> dict[str, int]:
    """Source of a confirmation → the processes that confirmed."""
    rows = tables.facts[tables.facts["name"] == "confirmation"]
    columns = (rows["source_id"], rows["value"])
    return {str(x): len(blocks_of(json.loads(value))) or 1 for x, value in zip(*columns, strict=True)}


def _ages(tables: Tables) -> dict[str, int]:
    """Source → how many came later; sources of one moment, or without one, are equally old."""
    ages = tables.sources["ingested_at"].rank(method="dense", ascending=False).fillna(0).astype(int)
    return dict(zip(tables.sources["source_id"].astype(str), ages, strict=True))


@cached_per_run
def counted_as(tables: Tables) -> pd.Series:
    """Called problem → the one other text whose pick its calls count for (``counted_as_sql``)."""
    links = tables.links[tables.links["problem"].isin(tables.workload["problem"])]
    frames = {"picks": picks(tables), "links": links[links["problem"] != links["other"]]}
    with reading(frames, {"picks": "problem text", "links": "problem text, other text, level text"}) as con:
        found = con.execute(f"{counted_as_sql('links', 'picks')} order by problem").df()
    return pd.Series(found["other"].to_numpy(), index=found["problem"], dtype="object")


def _with_workload(tables: Tables, made: pd.DataFrame) -> pd.DataFrame:
    """Columns ``log, problem, pick, calls``: the picks with the calls that each stands for, and a ``Default`` for
    every problem of the workload without a logged pick.

    A log may name the pick for one text of the problem and count its calls for another (MIOpen's key and command).
    """
    calls = joins.calls_by_problem(tables.workload).astype("float64")
    without, passed = calls[~calls.index.isin(made["problem"])], counted_as(tables)
    moved = passed.index.to_series().map(calls).astype("float64").groupby(passed).sum(min_count=1)
    weights = calls.add(moved, fill_value=0.0)
    total = made.groupby("problem")["count"].transform("sum")
    weight = made["problem"].map(weights).astype("float64") * (made["count"] / total)
    made = made.rename(columns={"source_id": "log"}).assign(calls=weight)
    silent = without[~without.index.isin(passed.index)].rename_axis("problem").reset_index()
    silent = silent.assign(log=SILENT, pick=joins.DEFAULT_TEXT)
    columns = ["log", "problem", "pick", "calls"]
    return pd.concat([x[columns] for x in (made, silent) if len(x)] or [made[columns]], ignore_index=True)


def _relevant(tables: Tables, problems: pd.Series) -> pd.DataFrame:
    """Measurements of these problems, of those linked to them, and of every problem with a time of the default.

    A system find-db has hundreds of thousands of records that no log of the run touches.
    """
    links, rows = tables.links, tables.measurements
    linked = links.loc[links["problem"].isin(problems), "other"]
    default = rows.loc[joins.is_default(rows, tables.facts), "problem"]
    return rows[rows["problem"].isin(set(problems) | set(linked) | set(default))]


def _uncalled(tables: Tables, problems: pd.Series, known: pd.DataFrame) -> pd.DataFrame:
    """Problems that the run measured against their default but never logged: the loss of one call is still reported."""
    known = known[known["default_us"].notna() & (known["tried"] > 1)]
    own = tables.sources.loc[tables.sources["run"] == tables.run, "source_id"]
    known = known[known["source_id"].isin(own) | known["measured"].isin(joins.called_problems(tables))]
    measured = known["measured"].drop_duplicates()
    covered = joins.linked_measurements(tables, problems, measured)["other"]
    left = measured[~measured.isin(covered)].to_numpy()
    calls = np.full(len(left), np.nan)
    return pd.DataFrame({"log": UNCALLED, "problem": left, "pick": joins.DEFAULT_TEXT, "calls": calls})


def _times(tables: Tables, measured: pd.Series) -> pd.DataFrame:
    rows = joins.timed(tables.measurements[tables.measurements["problem"].isin(set(measured))])
    rows = rows[is_evidence(rows)]
    rows = rows.rename(columns={"problem": "measured", "solution": "pick", "time_us": "own_us"})
    out: pd.DataFrame = rows.groupby([*_RECORD, "pick"])["own_us"].min().reset_index()
    return out


def _of_these_calls(rows: pd.DataFrame, unknown: UnknownDevice) -> pd.Series:
    """Whether each time may be of the calls that it would be weighed by."""
    logs = [None if log == SILENT else str(log) for log in rows["log"]]
    keys = zip(rows["problem"], rows["source_id"], logs, strict=True)
    known = [log == UNCALLED or not unknown(problem, source, log) for problem, source, log in keys]
    return pd.Series(known, rows.index)


def _comparable(rows: pd.DataFrame, facts: Mapping[str, Facts], settings: Settings) -> pd.DataFrame:
    """The rows of files that no fact shows to be of another device than the log and the target, with ``same``: an
    index means the same in log and file.
    """

    @cache
    def same(log: str, source: str, library: str) -> bool:
        if log == source:
            return True
        verdict = comparable(facts.get(log, {}), facts.get(source, {}), library)
        return settings.same_build if verdict is None else verdict

    @cache
    def device(log: str, source: str) -> bool:
        measured = facts.get(source, {})
        return all(same_device(measured, x) is not False for x in (facts.get(log, {}), settings.target))

    kept = [device(*key) for key in zip(rows["log"], rows["source_id"], strict=True)]
    rows = rows[np.asarray(kept, dtype=bool)]
    libraries = [solution_from_text(str(pick)).library for pick in rows["pick"]]
    return rows.assign(same=[same(*key) for key in zip(rows["log"], rows["source_id"], libraries, strict=True)])


def _judged(rows: pd.DataFrame) -> pd.DataFrame:
    """``basis``, ``pick_us``, ``noise_us`` per row.

    A file that holds one solution of a problem (a tuner's winner) shows no regret: counting the picks that happen
    to equal it as no regret, and the others as unmeasured, would bias the regret low.  Where all others were tried and
    failed, the one that is left is the best.
    """
    index = rows["pick"] != joins.DEFAULT_TEXT
    choice = rows["tried"] > 1
    measured = index & rows["same"] & rows["own_us"].notna() & choice
    default = ~measured & rows["default_us"].notna() & choice
    incomparable = ~measured & ~default & index & ~rows["same"]
    basis = np.select([measured, default, incomparable], [MEASURED, BY_DEFAULT, INCOMPARABLE], UNMEASURED)
    pick_us = np.where(measured, rows["own_us"], np.where(default, rows["default_us"], np.nan))
    return rows.assign(basis=basis, pick_us=pick_us, noise_us=np.where(default, rows["noise_us"], np.nan))


class UnknownDevice:
    """Which times are not known to be of a run's calls: none of them where the run is of one device.

    A log that states no device may be of any of those that the run's files are of: to weigh one device's times with its
    calls would claim a saving that nothing measured.
    """

    def __init__(self, tables: Tables) -> None:
        facts = joins.facts_by_source(tables.facts)
        own = tables.sources.loc[tables.sources["run"] == tables.run, "source_id"].astype(str)
        self._device = {source: device_of_file(x) for source, x in facts.items()}
        self._apart = different_devices(facts, own)
        rows = tables.calls[["problem", "source_id"]].drop_duplicates() if self._apart else tables.calls[:0]
        self._callers = rows.groupby("problem")["source_id"].agg(list).to_dict() if len(rows) else {}

    def __call__(self, problem: str, source: str, log: str | None = None) -> bool:
        """Whether the time of a source is not known to be of the calls that a log (None: any) has of a problem."""
        callers = self._callers.get(problem, ()) if log is None else (log,)
        device = self._device.get(source, "")
        return bool(callers) and all((self._device.get(x, ""), device) in self._apart for x in callers)


@cached_per_run
def unknown_device(tables: Tables) -> UnknownDevice:
    return UnknownDevice(tables)
