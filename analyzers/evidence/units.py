"""How often a job did each kind of step and how long it took, and traces scaled to the whole run by these numbers.

The steps of a job are called units here, because a unit may also be a request or a call
(``logparse/capture/in_job/logparse_in_job/units.py``). Kinds of units differ in sizes, for example batches of 1 and of
16, or a first and a later token. A trace has a few units of random kinds, but the process counted all of its units. So
the kernels of a kind are multiplied by (fraction of the run's units that are of this kind) / (the same fraction of the
traced units). If nothing counted units, only a trace's own marked steps are known.

Logs slow the host: on two H100s, units took 1.2 to 1.9 times as long with logs. ``tune`` therefore also runs the job
without logs. If there are times of such a run, they replace the times of the logged run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import pandas as pd

from analyzers.evidence.tables import Tables, cached_per_run
from logparse.libraries.own.job_units import ALONE, KIND, SETTINGS, TRACING, UNIT
from logparse.libraries.torch_profiler.busy import BEFORE, COMMUNICATION
from logparse.libraries.torch_profiler.searches import SEARCH

KINDS = "unit_kinds"
"""Name under which the number of steps of each kind in a trace is stored, as JSON."""


WINDOW = "window"
_WORDS = {"optimizer": "step", "module": "call", "named": "call", "graph": "replay", "time": WINDOW}


def word_of_sort(sort: str) -> str:
    """Return what the user calls a step of this sort.

    For example, the word is ``step`` for ``optimizer`` and ``call`` for ``module``.
    """
    return _WORDS.get(sort, sort)


@dataclass(frozen=True)
class UnitKind:
    """The steps of one kind in all processes, for example steps with one batch size.

    * ``count``, ``traced``: how many ran, and how many of them were traced.
    * ``us``: their times without a profiler, µs.
    * ``host_us``: the host's times for steps before which the device was idle, µs.
    """

    name: str
    count: int
    traced: int
    us: tuple[float, ...]
    host_us: tuple[float, ...] = ()

    @property
    def late_us(self) -> tuple[float, ...]:
        """The later half of the times, µs. The first half is left out because the job warms up in it."""
        return self.us[len(self.us) // 2 :]

    @property
    def late_host_us(self) -> tuple[float, ...]:
        return self.host_us[len(self.host_us) // 2 :]

    @property
    def mean_us(self) -> float | None:
        late = self.late_us
        return math.fsum(late) / len(late) if late else None


@dataclass(frozen=True)
class Units:
    """How often a job did each kind of step, as its processes counted them.

    * ``sort``: what a step is (``optimizer``, ``request`` …).
    * ``tracing``: the state of the tracing. It begins with ``not settled: `` if the times had not become steady.
    * ``alone``: True if the times are from a run without logs.
    * ``settings``: settings of PyTorch that were in force in the busiest process.
    """

    sort: str
    tracing: str
    kinds: tuple[UnitKind, ...]
    alone: bool = False
    settings: frozenset[str] = frozenset()

    @property
    def word(self) -> str:
        """The user's word for a step of the job, for example ``step`` or ``request``."""
        return word_of_sort(self.sort)

    @property
    def count(self) -> int:
        return sum(x.count for x in self.kinds)

    @property
    def provisional(self) -> bool:
        """True if the job was too short for its times to become steady. Then only its first steps were traced."""
        return self.tracing.startswith("not settled: ")

    @property
    def mean_us(self) -> float | None:
        """Mean wall time of a step without the profiler, µs. None if no step was timed.

        It is the mean over the kinds of steps, weighted by how often each kind ran.
        """
        timed = [(x.count, x.mean_us) for x in self.kinds if x.mean_us is not None]
        total = sum(count for count, _ in timed)
        return math.fsum(count * (us or 0.0) for count, us in timed) / total if total else None

    @property
    def untraced_share(self) -> float:
        """The part of the job's time (0 to 1) in steps of kinds that were never traced.

        If the time of a kind is unknown, the mean time of all steps is used.
        """
        parts = [(x.count * (x.mean_us or self.mean_us or 1.0), x.traced) for x in self.kinds]
        total = math.fsum(us for us, _ in parts)
        return math.fsum(us for us, traced in parts if not traced) / total if total else 0.0


@cached_per_run
def units(tables: Tables) -> Units | None:
    """Return how often the run did each kind of step, over all of its processes.

    Return None if nothing counted them.
    """
    return units_of_facts(tables.facts[tables.facts["run"] == tables.run])


@cached_per_run
def word_of(tables: Tables) -> str:
    """Return what the user calls a step of this run, for example ``step`` or ``request``."""
    return unit_word(tables.facts[tables.facts["run"] == tables.run])


def unit_word(facts: pd.DataFrame) -> str:
    """Return what the user calls a step of the run: ``step``, ``request``, ``window`` or ``rank``, for example.

    ``facts`` are what the run's files state.

    | facts | word |
    |---|---|
    | a process counted its steps | the word for their sort (``word_of_sort``) |
    | none counted, traced by time | ``window`` |
    | none counted, traces of several ranks without marked steps | ``rank`` |
    | none counted otherwise | ``step`` |
    """
    found, sorts = units_of_facts(facts), set(facts.loc[facts["name"] == UNIT, "value"])
    if found is None and sorts != {"time"} and unmarked_ranks(facts):
        return "rank"
    return found.word if found else WINDOW if sorts == {"time"} else "step"


def unmarked_ranks(facts: pd.DataFrame) -> int:
    """Return the number of ranks that left traces, if no trace marks steps.

    Returns 0 if there is only one rank, or if a trace marks steps. Without marked steps, the work of one rank is used
    as the unit of the job, so that the trace of another rank changes no sum.
    """
    if facts["name"].eq("profiler_steps").any():
        return 0
    traced = facts.loc[facts["name"] == "gpu_window_us", "source_id"]
    ranks = facts.loc[(facts["name"] == "rank") & facts["source_id"].isin(traced), "value"].nunique()
    return int(ranks) if ranks > 1 else 0


def units_of_facts(facts: pd.DataFrame, alone: bool = True) -> Units | None:
    """Return how often the run's processes did each kind of step, from what their files state (``facts``).

    Returns None if nothing counted steps. The times of several processes are interleaved, so that the later half of all
    times contains the later half of each process. With ``alone``, the times of a run without logs are used if there are
    any.
    """
    found = [*units_by_source(facts).values()]
    logged = [x for x in found if not x.alone]
    joined = _joined(logged or found)
    timed = _joined([x for x in found if x.alone]) if logged and alone else None
    if joined is None or timed is None or timed.sort != joined.sort:
        return joined
    of = {x.name: x for x in timed.kinds if x.us}
    kinds = (replace(x, us=of[x.name].us, host_us=of[x.name].host_us) if x.name in of else x for x in joined.kinds)
    return replace(joined, kinds=tuple(kinds), alone=any(x.name in of for x in joined.kinds))


def as_alone(after: Tables, before: Tables, before_us: float, after_us: float, kinds: Sequence[str]) -> Tables:
    """Add estimated times without logs to the tables ``after``, whose run was timed only with logs.

    Logs slow the host. So the times that ``before`` has without logs are scaled:

    * All are multiplied by ``before_us`` / (mean time in ``before`` without logs), because the machine may be slower or
      faster by now.
    * The times of steps are also multiplied by ``after_us / before_us``.

    ``before_us`` and ``after_us`` are the mean times (µs) of a step of the kinds ``kinds`` in the two runs. If
    ``before`` has no times without logs, ``after`` is returned as it is.
    """
    rows = before.facts[before.facts["run"] == before.run]
    rows = rows[rows["source_id"].isin(rows.loc[rows["name"] == ALONE, "source_id"])]
    alone = units(before)
    mean = replace(alone, kinds=tuple(x for x in alone.kinds if x.name in kinds)).mean_us if alone else None
    moment = before_us / (mean or before_us)
    shares = {"us": moment * after_us / before_us, "host_us": moment}

    def scaled(value: str) -> str:
        held = json.loads(value)
        return json.dumps(held | {name: [us * x for us in held[name]] for name, x in shares.items() if name in held})

    timed = rows["name"].str.startswith(KIND)
    values = rows["value"].where(~timed, rows.loc[timed, "value"].map(scaled))
    more = rows.assign(run=after.run, value=values)
    return replace(after, facts=pd.concat([after.facts, more], ignore_index=True)) if len(more) else after


def _joined(found: Sequence[Units]) -> Units | None:
    if not found:
        return None
    busiest = found[-1]
    kinds: dict[str, list[UnitKind]] = {}
    for one in (kind for each in found if each.sort == busiest.sort for kind in each.kinds):
        kinds.setdefault(one.name, []).append(one)
    joined = (
        UnitKind(
            name,
            sum(x.count for x in each),
            sum(x.traced for x in each),
            _by_turns([x.us for x in each]),
            _by_turns([x.host_us for x in each]),
        )
        for name, each in kinds.items()
    )
    return replace(busiest, kinds=tuple(sorted(joined, key=lambda x: (-x.count, x.name))))


def _by_turns(times: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(us for row in zip_longest(*times) for us in row if us is not None)


def units_by_source(facts: pd.DataFrame) -> Mapping[str, Units]:
    """Return the steps of each process that counted them, by the id of its file.

    The process with the most steps is last.
    """
    out: dict[str, Units] = {}
    rows = facts[facts["name"].isin([UNIT, TRACING, ALONE, SETTINGS]) | facts["name"].str.startswith(KIND)]
    for source, each in rows.groupby("source_id"):
        values = dict(zip(each["name"], each["value"], strict=True))
        kinds = tuple(
            UnitKind(name[len(KIND) :], x["count"], x["traced"], tuple(x["us"]), tuple(x.get("host_us", ())))
            for name, x in ((name, json.loads(value)) for name, value in values.items() if name.startswith(KIND))
        )
        if kinds and UNIT in values:
            settings = frozenset(values.get(SETTINGS, "").split())
            out[str(source)] = Units(values[UNIT], values.get(TRACING, ""), kinds, ALONE in values, settings)
    return dict(sorted(out.items(), key=lambda x: x[1].count))


def weighed(tables: Tables) -> Tables:
    """Scale kernel times and numbers of calls from a few traced steps to an average step of the whole run.

    * If a kind of step is rarer or more frequent in the traces than in the run, its kernels are multiplied accordingly.
    * If kernels compute at the same time on several streams, their times are reduced, so that their sum does not exceed
      the time in which any of them runs.
    * If a log counts the calls of some problems, it counts calls of the whole run. Then the calls in the workload that
      come from traces are scaled to the whole run, too.

    Numbers of calls may get a fraction. If none of the cases applies, the tables are returned as they are.
    """
    kernels = tables.kernels
    if not len(kernels):
        return tables
    facts = tables.facts[tables.facts["run"] == tables.run]
    return _of_the_whole_run(_weighed(tables, facts), facts)


def units_each(facts: pd.DataFrame) -> float:
    """Return (number of steps of the run) / (number of traced steps). Return 1 if that is unknown."""
    found, traced = units_of_facts(facts), sum(traced_kinds(facts).values())
    return found.count / traced if found is not None and traced else 1.0


def _of_the_whole_run(tables: Tables, facts: pd.DataFrame) -> Tables:
    rows, ours = tables.workload, tables.workload["run"].eq(tables.run)
    by_traces = rows["calls_from"].eq("profiler") & ours
    if not by_traces.any() or by_traces.equals(ours):
        return tables
    factor = by_traces.map({True: units_each(facts), False: 1.0}).astype("Float64")
    return replace(tables, workload=rows.assign(calls=rows["calls"].astype("Float64") * factor))


def _weighed(tables: Tables, facts: pd.DataFrame) -> Tables:
    kernels = tables.kernels
    by_kind = _weights(tables, facts)
    factor = by_kind * _overlaps(kernels, facts)
    if (factor == 1.0).all():
        return tables
    changed = kernels.assign(total_us=kernels["total_us"] * factor)
    if (by_kind == 1.0).all():
        return replace(tables, kernels=changed)
    return _with_calls(replace(tables, kernels=changed), kernels, by_kind)


def reweighed(tables: Tables, counts: Mapping[str, float]) -> Tables:
    """Return the tables as if the run had done ``counts`` steps of each kind, and none of other kinds.

    ``tables`` come from ``weighed``. Their sums still cover as many average steps as the traces have.
    """
    facts = tables.facts[tables.facts["run"] == tables.run]
    traced = traced_kinds(facts)
    if not any(counts.get(name) for name in traced):
        return tables
    factor = _as_if(tables, counts, traced) / _weights(tables, facts)
    kernels = tables.kernels
    return _with_calls(replace(tables, kernels=kernels.assign(total_us=kernels["total_us"] * factor)), kernels, factor)


def _with_calls(tables: Tables, kernels: pd.DataFrame, factor: pd.Series) -> Tables:
    """Multiply the numbers of calls of kernels, and of their GEMMs and convolutions, by ``factor``.

    ``factor`` has one value per row of kernels.
    """
    calls, workload = _counted(tables, kernels, factor)
    changed = tables.kernels.assign(calls=kernels["calls"] * factor)
    return replace(tables, kernels=changed, calls=calls, workload=workload)


def _weights(tables: Tables, facts: pd.DataFrame) -> pd.Series:
    """Return a factor for each row of kernels: how frequent its kind of step is in the run, relative to the traces.

    For example, if half of the run's steps are of a kind but only a quarter of the traced steps, the factor is 2.
    """
    found, traced = units(tables), traced_kinds(facts)
    counts = {x.name: x.count for x in found.kinds if x.name in traced} if found else {}
    if not any(counts.values()) or counts.keys() != traced.keys():
        return pd.Series(1.0, index=tables.kernels.index)
    return _as_if(tables, counts, traced)


def problem_weights(tables: Tables) -> pd.Series:
    """Return by how much ``weighed`` multiplied the traced calls of each problem (GEMM or convolution)."""
    rows = tables.kernels[tables.kernels["run"].eq(tables.run)].dropna(subset=["problem", "calls"])
    by_kind = _weights(tables, tables.facts[tables.facts["run"] == tables.run])
    calls = rows["calls"].astype("float64")
    sums = rows.assign(calls=calls, traced=calls / by_kind[rows.index]).groupby("problem")[["calls", "traced"]].sum()
    return (sums["calls"] / sums["traced"]).dropna()


def _as_if(tables: Tables, counts: Mapping[str, float], traced: Mapping[str, int]) -> pd.Series:
    """Return a factor for each row of kernels, with which the kinds of steps become as frequent as in ``counts``.

    It is (fraction of ``counts`` that is of the row's kind) / (the same fraction of the traced steps).
    """
    counted, total = math.fsum(counts.get(name, 0.0) for name in traced), sum(traced.values())
    weights = {name: counts.get(name, 0.0) / counted * total / traced[name] for name in traced}
    ours = tables.kernels["run"].eq(tables.run)
    return tables.kernels["unit"].map(weights).where(ours).fillna(1.0).astype("float64")


def traced_kinds(facts: pd.DataFrame) -> dict[str, int]:
    """Return the number of steps of each kind in all traces of the run."""
    out: dict[str, int] = {}
    for value in facts.loc[facts["name"] == KINDS, "value"]:
        for name, count in json.loads(value).items():
            out[name] = out.get(name, 0) + count
    return out


def _overlaps(kernels: pd.DataFrame, facts: pd.DataFrame) -> pd.Series:
    """Return a factor for each row of kernels, so that kernels on several streams are not counted twice.

    It is (time in which any kernel of the trace computed) / (sum of the kernels' times). Kernels of one operator that
    overlap already share their time, because ``records.without_overlap`` divided it.
    """
    computes = ~communicates(kernels)
    rows = kernels[computes & ~kernels["op"].isin([BEFORE, SEARCH])].groupby("source_id")
    # For a trace of several devices, the mean per device is used.
    summed = rows["total_us"].sum() / rows["device"].nunique().clip(lower=1)
    found = facts[facts["name"] == "gpu_compute_us"].set_index("source_id")["value"]
    share = (pd.to_numeric(found, errors="coerce") / summed).clip(upper=1.0)
    share = share.where(share < _OVERLAP)
    return kernels["source_id"].map(share).where(computes).fillna(1.0).astype("float64")


_OVERLAP = 0.995
"""If kernels overlap so little that the factor of ``_overlaps`` is above this value, the factor is treated as 1.

Then kernels overlap only because one begins while the kernel before it ends. There is no second stream.
"""


def communicates(kernels: pd.DataFrame) -> pd.Series:
    """Tell for each row of kernels whether it is a collective, by the names of its operator and kernel."""
    names = kernels["op"].fillna("").astype(str) + " " + kernels["kernel"].astype(str)
    known = {name: bool(COMMUNICATION.search(name)) for name in names.unique()}
    return names.map(known).astype(bool)


def _counted(tables: Tables, kernels: pd.DataFrame, weights: pd.Series) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of calls and of the workload, with the calls from traces multiplied by ``weights``.

    ``weights`` has one value per row of kernels. A problem gets the average weight of its kernels.
    """
    rows = kernels.assign(weighed=kernels["calls"] * weights)[
        kernels["problem"].notna() & kernels["run"].eq(tables.run)
    ]
    sums = rows.groupby("problem")[["weighed", "calls"]].sum()
    by_problem = sums["weighed"] / sums["calls"]

    def scaled(frame: pd.DataFrame, counts: str, traced: pd.Series) -> pd.DataFrame:
        factor = frame["problem"].map(by_problem).where(traced).fillna(1.0)
        return frame.assign(**{counts: frame[counts].astype("Float64") * factor.astype("Float64")})

    calls = scaled(tables.calls, "count", tables.calls["category"].eq("profiler"))
    return calls, scaled(tables.workload, "calls", tables.workload["calls_from"].eq("profiler"))
