"""Put the kernel that a library chose beside the fastest known one, for every GEMM and convolution of a job.

The finding ``suboptimal_pick`` reads the resulting table. Times are compared only within one file, so that both kernels
were timed on one device and with one method. A kernel may be named by an *index*, which has a meaning only within one
library build and arch. A MIOpen solver is a name, which means the same solver everywhere, but its time differs between
machines.
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
from analyzers.evidence.tables import Settings, Tables, cached_per_run, query_frames
from logparse.libraries.builds import has_comparable_times
from logparse.model import TRIED, solution_from_text
from logparse.store.rules import LOGGED, counted_as_sql, picks_sql
from logparse.target import Facts, device_of_file, different_devices, same_device

SILENT, UNCALLED = "", "-"
"""Values of the column ``log`` for rows in which no log names the kernel that the library chose.

* ``SILENT``: the job calls the GEMM or convolution, but no log names its kernel.
* ``UNCALLED``: no log of the job calls the GEMM or convolution.
"""
COLUMNS = (
    *("problem", "pick", "calls", "basis", "pick_us", "noise_us", "best", "best_raw", "best_us", "algorithm"),
    *("workspace_bytes", "key_text", "candidates", "source_id", "origin", "measured", "level", "choices", "fan"),
    *("tried", "disagree", "apart"),
)


@cached_per_run
def picks(tables: Tables) -> pd.DataFrame:
    """Return the kernel that the library chose for each GEMM and convolution, according to the job's logs.

    ``picks_sql`` lists the columns.
    """
    calls, chosen = tables.calls, tables.measurements
    chosen = chosen[chosen["origin"].isin(LOGGED) & (chosen["run"] == tables.run)]
    with query_frames({"calls": calls[calls["solution"].notna()], "measurements": chosen}, _NAMING) as con:
        return con.execute(f"{picks_sql()} order by all").df()


_NAMING = {
    "calls": "source_id text, category text, problem text, solution text, count float, by_tool bool",
    "measurements": "source_id text, origin text, problem text, solution text",
}


def records(measurements: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """Return, for each GEMM or convolution in each file, the fastest kernel and the library's own choice.

    Columns ``source_id, origin, measured, best, best_us, best_raw, algorithm, workspace_bytes, key_text, candidates,
    tried, default, default_us, noise_us``:

    * ``measured``: the text of the GEMM or convolution.
    * ``candidates``: the number of kernels with a time.
    * ``tried``: the number of kernels that ran, with or without success.
    * ``default``: the kernel that is the library's own choice in this file.
    * ``default_us``: the mean of its times, µs.
    * ``noise_us``: the longest minus the shortest of its times, µs.

    If a replay timed kernels against each other (a race), the fastest of many is partly fast by chance. So its time is
    not used: such a row names the library's own choice as the best. The row is kept so that sums over measured GEMMs
    and convolutions contain it.
    """
    of_evidence = measurements[is_evidence(measurements) | (measurements["origin"] == RACE)]
    rows = joins.keep_timed(of_evidence)
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
    """For each file, count how many kernels were timed for each GEMM or convolution.

    Returns a Series. Its index is the file, the tool that measured (``origin``), and the GEMM or convolution.
    """
    count: pd.Series = rows.groupby(["source_id", "origin", "problem"])["solution"].nunique()
    return count.rename_axis(index={"problem": "measured"})


@cached_per_run
def picks_vs_best(tables: Tables, settings: Settings) -> pd.DataFrame:
    """Make a table with the kernel that the library chose and the fastest known one, for each GEMM and convolution.

    The table has the columns ``COLUMNS``, and one row for each GEMM or convolution and chosen kernel. Times are in µs.
    If no log names the chosen kernel, the library's default is used. ``calls`` is missing if no log counts calls.
    ``apart`` is True if the time may be from another device than the calls. Such a row has no ``calls``.

    If several files have times, the most reliable is used. These criteria decide, in this order:

    1. how the time of the chosen kernel is known (``basis``, ``BASES``)
    2. how closely the text of the measured GEMM or convolution agrees with the text in the log
    3. whether the time is from a confirmation
    4. the number of kernels with a time
    """
    made = _with_workload(tables, picks(tables))
    known = records(_keep_relevant(tables, made["problem"]), tables.facts)
    made = pd.concat([made, _uncalled(tables, made["problem"], known)], ignore_index=True)
    if not len(known) or not len(made):
        return pd.DataFrame(columns=list(COLUMNS))
    calls = made.groupby(["problem", "pick"])["calls"].sum(min_count=1)
    rows = made.drop(columns="calls").merge(
        joins.linked_measurements(tables, made["problem"], known["measured"]), on="problem"
    )
    rows = rows.rename(columns={"other": "measured"}).merge(known, on="measured")
    rows = rows.assign(apart=~_of_these_calls(rows, unknown_device(tables)))
    # The problem may mean several measured problems of a source, and their winners may differ.
    winners = rows.groupby(["problem", "pick", "source_id", "origin"])["best"].transform("nunique")
    rows = rows.assign(disagree=winners > 1)
    rows = rows.merge(_times(tables, rows["measured"]), how="left", on=[*_RECORD, "pick"])
    here = joins.run_facts(tables)
    rows = _add_pick_times(
        _drop_other_devices(rows, {**joins.facts_of(tables), SILENT: here, UNCALLED: here}, settings)
    )
    if not len(rows):
        return pd.DataFrame(columns=list(COLUMNS))
    order = rows["basis"].map({x: i for i, x in enumerate(BASES)})
    near = rows["level"].map({x: i for i, x in enumerate(joins.LEVELS)})
    # A confirmation comes first although it has only two candidates, because in other files selection biases the
    # fastest of many times low. A race comes last, because it only shows that the problem was measured.
    bias = rows["origin"].map({CONFIRM: 0, RACE: 2}).fillna(1)
    near = near.where(bias != 2, len(joins.LEVELS))
    # Among confirmations, the most processes come first, then the latest. To take the fastest would bias the result.
    few = -rows["source_id"].map(_processes(tables)).fillna(0)
    age = rows["source_id"].map(_number_by_age(tables)).where(bias == 0, 0)
    # If two runs have equally many candidates, the analysed run comes first, so that its report shows its own times.
    own = tables.sources.loc[tables.sources["run"] == tables.run, "source_id"]
    foreign = ~rows["source_id"].isin(own)
    more = -rows["candidates"]
    rows = rows.assign(order=order, near=near, bias=bias, few=few, age=age, more=more, foreign=foreign)
    by = ("apart", "order", "near", "bias", "few", "age", "more", "foreign", "best_us", *_RECORD, "log")
    rows = rows.sort_values(["problem", "pick", *by])
    rows = rows.drop_duplicates(["problem", "pick"]).merge(calls.reset_index(), on=["problem", "pick"])
    rows["calls"] = rows["calls"].mask(rows["apart"])
    # All picks of a problem that are judged by the default's time become one row, because they have one time.
    rows["pick"] = rows["pick"].where(rows["basis"] != BY_DEFAULT, rows["default"])
    rows["calls"] = rows.groupby(["problem", "pick"])["calls"].transform("sum", min_count=1)
    return rows.drop_duplicates(["problem", "pick"])[list(COLUMNS)].reset_index(drop=True)


_RECORD = ["source_id", "origin", "measured"]


def _processes(tables: Tables) -> dict[str, int]:
    """A faster kernel is measured again in several processes, to confirm that it is faster. Return their number.

    The result has the number for each file with such measurements.
    """
    rows = tables.facts[tables.facts["name"] == "confirmation"]
    columns = (rows["source_id"], rows["value"])
    return {str(x): len(blocks_of(json.loads(value))) or 1 for x, value in zip(*columns, strict=True)}


def _number_by_age(tables: Tables) -> dict[str, int]:
    """Number the files by their age: 1 for the file that was read last, 2 for the one before, and so on.

    Files of unknown age have 0.
    """
    ages = tables.sources["ingested_at"].rank(method="dense", ascending=False).fillna(0).astype(int)
    return dict(zip(tables.sources["source_id"].astype(str), ages, strict=True))


@cached_per_run
def counted_as(tables: Tables) -> pd.Series:
    """Return under which text the job counts a GEMM or convolution, for texts that spell it differently.

    For example, one log counts the calls, and another log names the chosen kernel under a slightly different text.
    """
    links = tables.links[tables.links["problem"].isin(tables.workload["problem"])]
    frames = {"picks": picks(tables), "links": links[links["problem"] != links["other"]]}
    with query_frames(frames, {"picks": "problem text", "links": "problem text, other text, level text"}) as con:
        found = con.execute(f"{counted_as_sql('links', 'picks')} order by problem").df()
    return pd.Series(found["other"].to_numpy(), index=found["problem"], dtype="object")


def _with_workload(tables: Tables, made: pd.DataFrame) -> pd.DataFrame:
    """Add to each chosen kernel the number of calls that used it.

    Columns ``log, problem, pick, calls``. If no log names the kernel of a called GEMM or convolution, its kernel is
    ``Default``. One log may name the kernel under one text, and another may count the calls under another text (for
    example MIOpen's key and MIOpen's command). So calls are moved between texts that mean the same GEMM or convolution.
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


def _keep_relevant(tables: Tables, problems: pd.Series) -> pd.DataFrame:
    """Keep the measurements that may matter for the given GEMMs or convolutions, because a find-db has many others.

    These measurements are kept:

    * measurements of the given ones
    * measurements of others that may mean the same call
    * all measurements of a GEMM or convolution for which the library's own choice was timed

    A find-db that MIOpen ships has hundreds of thousands of records of convolutions that the job does not call.
    """
    links, rows = tables.links, tables.measurements
    linked = links.loc[links["problem"].isin(problems), "other"]
    default = rows.loc[joins.is_default(rows, tables.facts), "problem"]
    return rows[rows["problem"].isin(set(problems) | set(linked) | set(default))]


def _uncalled(tables: Tables, problems: pd.Series, known: pd.DataFrame) -> pd.DataFrame:
    """Return GEMMs or convolutions that were measured, but do not occur in any log of the job.

    Each of them must meet three conditions:

    * A file of the job measured it, or it may be a call of the job under another text.
    * The kernel that the library chooses has a time.
    * Another kernel was tried, too.

    It is unknown how often they are called, so only the loss of a single call can be reported.
    """
    known = known[known["default_us"].notna() & (known["tried"] > 1)]
    own = tables.sources.loc[tables.sources["run"] == tables.run, "source_id"]
    known = known[known["source_id"].isin(own) | known["measured"].isin(joins.called_problems(tables))]
    measured = known["measured"].drop_duplicates()
    covered = joins.linked_measurements(tables, problems, measured)["other"]
    left = measured[~measured.isin(covered)].to_numpy()
    calls = np.full(len(left), np.nan)
    return pd.DataFrame({"log": UNCALLED, "problem": left, "pick": joins.DEFAULT_TEXT, "calls": calls})


def _times(tables: Tables, measured: pd.Series) -> pd.DataFrame:
    rows = joins.keep_timed(tables.measurements[tables.measurements["problem"].isin(set(measured))])
    rows = rows[is_evidence(rows)]
    rows = rows.rename(columns={"problem": "measured", "solution": "pick", "time_us": "own_us"})
    out: pd.DataFrame = rows.groupby([*_RECORD, "pick"])["own_us"].min().reset_index()
    return out


def _of_these_calls(rows: pd.DataFrame, unknown: UnknownDevice) -> pd.Series:
    """Mark the measured times that may be compared with the job's calls, because they are from the same kind of GPU."""
    logs = [None if log == SILENT else str(log) for log in rows["log"]]
    keys = zip(rows["problem"], rows["source_id"], logs, strict=True)
    # A time is not marked if the log does not name the GPU of the calls, and the time may be from another one.
    known = [log == UNCALLED or not unknown(problem, source, log) for problem, source, log in keys]
    return pd.Series(known, rows.index)


def _drop_other_devices(rows: pd.DataFrame, facts: Mapping[str, Facts], settings: Settings) -> pd.DataFrame:
    """Drop times that were measured on another device than the job's, and mark where kernel numbers can be compared.

    New column ``same``: True if a kernel number means the same kernel in both files.
    """

    @cache
    def same(log: str, source: str, library: str) -> bool:
        if log == source:
            return True
        # A library may number its kernels differently in another build.
        verdict = has_comparable_times(facts.get(log, {}), facts.get(source, {}), library)
        return settings.same_build if verdict is None else verdict

    @cache
    def device(log: str, source: str) -> bool:
        measured = facts.get(source, {})
        return all(same_device(measured, x) is not False for x in (facts.get(log, {}), settings.target))

    # The job's log states its device, or the user does (``settings.target``).
    kept = [device(*key) for key in zip(rows["log"], rows["source_id"], strict=True)]
    rows = rows[np.asarray(kept, dtype=bool)]
    libraries = [solution_from_text(str(pick)).library for pick in rows["pick"]]
    return rows.assign(same=[same(*key) for key in zip(rows["log"], rows["source_id"], libraries, strict=True)])


def _add_pick_times(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the time of the kernel that the library chose (``pick_us``), how it is known (``basis``) and its noise.

    A file that tried only one kernel is not used, for example a file with the winners of a tuner. It would show a loss
    of zero if the library chose this kernel, and no time otherwise, so the total loss would be too low. If other
    kernels were tried and failed, the remaining one is the best, and the file is used.
    """
    index = rows["pick"] != joins.DEFAULT_TEXT
    choice = rows["tried"] > 1
    measured = index & rows["same"] & rows["own_us"].notna() & choice
    default = ~measured & rows["default_us"].notna() & choice
    incomparable = ~measured & ~default & index & ~rows["same"]
    basis = np.select([measured, default, incomparable], [MEASURED, BY_DEFAULT, INCOMPARABLE], UNMEASURED)
    pick_us = np.where(measured, rows["own_us"], np.where(default, rows["default_us"], np.nan))
    return rows.assign(basis=basis, pick_us=pick_us, noise_us=np.where(default, rows["noise_us"], np.nan))


def devices_of_processes(logs: pd.DataFrame, device: Mapping[str, str]) -> dict[str, str]:
    """Return the device of logs that name none, if all logs of the same process that name one name the same.

    * ``logs``: the logs of a run, with the columns ``pid`` and ``source_id``.
    * ``device``: maps the id of a file to the device that the file names.
    """
    logs = logs[logs["pid"].notna()].drop_duplicates().astype({"source_id": str})
    named = logs["source_id"].map(lambda x: device.get(x, ""))
    out: dict[str, str] = {}
    for _, one in logs.assign(device=named).groupby("pid"):
        known = {x for x in one["device"] if x}
        if len(known) == 1:
            out |= dict.fromkeys(one.loc[one["device"] == "", "source_id"], *known)
    return out


class UnknownDevice:
    """Tells whether a measured time may come from another GPU than the job's calls.

    A log that does not name its GPU may be from any GPU. If its calls were multiplied by the times of one GPU, the
    result would be a saving that nothing measured. If all files are from one kind of GPU, the answer is always False.
    If another log of the same process names its GPU, the log is from that GPU.
    """

    def __init__(self, tables: Tables) -> None:
        facts = joins.facts_by_source(tables.facts)
        own = tables.sources.loc[tables.sources["run"] == tables.run, "source_id"].astype(str)
        self._device = {source: device_of_file(x) for source, x in facts.items()}
        of_run = tables.calls["source_id"].isin(own)
        self._device |= devices_of_processes(tables.calls.loc[of_run, ["pid", "source_id"]], self._device)
        self._apart = different_devices(facts, own)
        rows = tables.calls[["problem", "source_id"]].drop_duplicates() if self._apart else tables.calls[:0]
        self._callers = rows.groupby("problem")["source_id"].agg(list).to_dict() if len(rows) else {}

    def __call__(self, problem: str, source: str, log: str | None = None) -> bool:
        """Return True if the times in the file ``source`` may be from another GPU than the job's calls of ``problem``.

        ``log``: if given, only the calls in this log are considered.
        """
        callers = self._callers.get(problem, ()) if log is None else (log,)
        device = self._device.get(source, "")
        return bool(callers) and all((self._device.get(x, ""), device) in self._apart for x in callers)


@cached_per_run
def unknown_device(tables: Tables) -> UnknownDevice:
    return UnknownDevice(tables)
