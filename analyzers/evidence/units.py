"""Count how often a job did each kind of step and how long it took, and scale traces to the whole execution.

A step of the job is called a unit here, because it may also be a request or a call
(``logparse/capture/in_job/logparse_in_job/units.py``). Kinds of steps differ in sizes, for example batches of 1 and of
16, or a first and a later token. A trace has a few steps of random kinds, but the process counted all of its steps. So
the kernels of a kind are multiplied by (fraction of the run's steps that are of this kind) / (the same fraction of the
traced steps). If nothing counted steps, only a trace's own marked steps are known.

Logs slow the host: on two H100s, steps took 1.2 to 1.9 times as long with logs. ``tune`` therefore also runs the job
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
from logparse.model import Gain

KINDS = "unit_kinds"
"""Name of a fact about a trace: how many steps of each kind it contains, as JSON."""


WINDOW = "window"
_WORDS = {"optimizer": "step", "module": "call", "named": "call", "graph": "replay", "time": WINDOW}


def word_of_sort(sort: str) -> str:
    """Return the word that users say for a step of the job, for example ``request``.

    ``sort`` is the way in which steps were recognised: an ``optimizer`` gives ``step``, a ``module`` gives ``call``.
    """
    return _WORDS.get(sort, sort)


@dataclass(frozen=True)
class UnitKind:
    """All steps of one kind in all processes of the job, for example all steps with a batch of 16.

    * ``traced``: number of traced steps.
    * ``us``: times of steps without a profiler, µs.
    * ``host_us``: the host's work for a step, µs.
    """

    name: str
    count: int
    traced: int
    us: tuple[float, ...]
    # These are only steps before which the GPU was idle.
    host_us: tuple[float, ...] = ()

    @property
    def late_us(self) -> tuple[float, ...]:
        """The later half of the step times, µs. The first half is left out because the job still warms up."""
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
    """How often a job did each kind of step, counted by its processes while they ran.

    * ``sort``: what marks the end of a step (``optimizer``, ``request`` …).
    * ``tracing``: how the tracing went. It begins with ``not settled: `` if the step times never became steady.
    * ``kinds``: each kind of step with its number and times.
    * ``alone``: True if the times come from a run without logs, which is not slowed by them.
    * ``settings``: settings of PyTorch in the process with the most steps.
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
        """True if only the first steps of the job were traced.

        That happens if the job was too short for its step times to become steady.
        """
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
        """The fraction of the job's time (0 to 1) in kinds of steps that were never traced.

        If the time of a kind is unknown, the mean time of all steps is used for it.
        """
        parts = [(x.count * (x.mean_us or self.mean_us or 1.0), x.traced) for x in self.kinds]
        total = math.fsum(us for us, _ in parts)
        return math.fsum(us for us, traced in parts if not traced) / total if total else 0.0


@cached_per_run
def units(tables: Tables) -> Units | None:
    """Return how many steps of each kind the job did, summed over its processes. None if nothing counted steps."""
    return units_of_facts(tables.facts[tables.facts["run"] == tables.run])


@cached_per_run
def word_of(tables: Tables) -> str:
    """Return the user's word for a step of this job, for example ``step`` or ``request``."""
    return unit_word(tables.facts[tables.facts["run"] == tables.run])


def unit_word(facts: pd.DataFrame) -> str:
    """Return the user's word for a step of the job, for example ``step``, ``request``, ``window`` or ``rank``.

    ``facts`` are what the job's files state.

    | facts | word |
    |---|---|
    | a process counted its steps | the word for this sort of step (``word_of_sort``) |
    | nothing counted steps, and a fixed time was traced | ``window`` |
    | nothing counted steps, and there are traces of several ranks without marked steps | ``rank`` |
    | nothing counted steps otherwise | ``step`` |
    """
    found, sorts = units_of_facts(facts), set(facts.loc[facts["name"] == UNIT, "value"])
    if found is None and sorts != {"time"} and unmarked_ranks(facts):
        return "rank"
    return found.word if found else WINDOW if sorts == {"time"} else "step"


def unmarked_ranks(facts: pd.DataFrame) -> int:
    """Return the number of traced ranks if no trace marks its steps.

    Returns 0 if a trace marks steps, or if there is only one rank. Without marks, the whole trace of one rank is
    treated as one step.
    """
    if facts["name"].eq("profiler_steps").any():
        return 0
    traced = facts.loc[facts["name"] == "gpu_window_us", "source_id"]
    ranks = facts.loc[(facts["name"] == "rank") & facts["source_id"].isin(traced), "value"].nunique()
    return int(ranks) if ranks > 1 else 0


def units_of_facts(facts: pd.DataFrame, alone: bool = True) -> Units | None:
    """Return how often the job's processes did each kind of step (for example training), and how long the steps took.

    * ``facts``: the table that has the numbers and times. Returns None if it has none.
    * ``alone``: if True, times from a run of the job without logs are used instead of the others, because logs slow a
      job.
    * The times of several processes are merged alternately. So the second half of the result has the second half of
      each process.
    """
    found = [*units_by_source(facts).values()]
    logged = [x for x in found if not x.alone]
    joined = _join_units(logged or found)
    timed = _join_units([x for x in found if x.alone]) if logged and alone else None
    if joined is None or timed is None or timed.sort != joined.sort:
        return joined
    of = {x.name: x for x in timed.kinds if x.us}
    kinds = (replace(x, us=of[x.name].us, host_us=of[x.name].host_us) if x.name in of else x for x in joined.kinds)
    return replace(joined, kinds=tuple(kinds), alone=any(x.name in of for x in joined.kinds))


def as_alone(after: Tables, before: Tables, gain: Gain, kinds: Sequence[str]) -> Tables:
    """Estimate how long the steps of a run take without logs, although it was timed only with logs.

    The libraries' logs slow the host. ``before`` and ``after`` are runs before and after a change, and only ``before``
    was also timed without logs. Its times without logs are scaled and added to the tables ``after``:

    * All times are multiplied by ``gain.now_us`` / (mean time in ``before`` without logs), because the machine may be
      slower or faster by now.
    * The times of steps are also multiplied by ``gain.ratio``.

    ``gain`` has the mean times of a step of the kinds ``kinds`` in the two runs. If ``before`` has no times without
    logs, ``after`` is returned as it is.
    """
    rows = before.facts[before.facts["run"] == before.run]
    rows = rows[rows["source_id"].isin(rows.loc[rows["name"] == ALONE, "source_id"])]
    alone = units(before)
    mean = replace(alone, kinds=tuple(x for x in alone.kinds if x.name in kinds)).mean_us if alone else None
    moment = gain.now_us / (mean or gain.now_us)
    shares = {"us": moment * gain.ratio, "host_us": moment}

    def scaled(value: str) -> str:
        held = json.loads(value)
        return json.dumps(held | {name: [us * x for us in held[name]] for name, x in shares.items() if name in held})

    timed = rows["name"].str.startswith(KIND)
    values = rows["value"].where(~timed, rows.loc[timed, "value"].map(scaled))
    more = rows.assign(run=after.run, value=values)
    return replace(after, facts=pd.concat([after.facts, more], ignore_index=True)) if len(more) else after


def _join_units(found: Sequence[Units]) -> Units | None:
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
            _interleave_times([x.us for x in each]),
            _interleave_times([x.host_us for x in each]),
        )
        for name, each in kinds.items()
    )
    return replace(busiest, kinds=tuple(sorted(joined, key=lambda x: (-x.count, x.name))))


def _interleave_times(times: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(us for row in zip_longest(*times) for us in row if us is not None)


_SORTS = {"optimizer": 1, "named": 2}
"""How surely a sort of step is the job's own. A helper process may call a model more often than the job makes steps."""


def units_by_source(facts: pd.DataFrame) -> Mapping[str, Units]:
    """Return how many steps of each kind each process did, and how long they took.

    The keys are the ids of the processes' files. The process that does the job is last: one that calls the function of
    ``--unit``, else one with optimizer steps, else any other. Among equals, it is the process with the most steps.
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
    return dict(sorted(out.items(), key=lambda x: (_SORTS.get(x[1].sort, 0), x[1].count)))


def scale_to_average_unit(tables: Tables) -> Tables:
    """Scale kernel times and numbers of calls from a few traced steps to an average step of the whole run.

    * If a kind of step is rarer or more frequent in the traces than in the run, its kernels are multiplied accordingly.
    * If kernels compute at the same time on several streams, their times are reduced, so that their sum does not exceed
      the time in which any of them runs.
    * If a log counts the calls of some GEMMs and convolutions, it counts the whole run. Then the numbers of calls that
      come from traces are scaled to the whole run, too.

    Numbers of calls may get a fraction. If none of the cases applies, the tables are returned as they are.
    """
    kernels = tables.kernels
    if not len(kernels):
        return tables
    facts = tables.facts[tables.facts["run"] == tables.run]
    return _of_the_whole_run(_weigh_kernels(tables, facts), facts)


def units_each(facts: pd.DataFrame) -> float:
    """Return how many steps of the run one traced step represents: (steps of the run) / (traced steps).

    Return 1 if that is unknown.
    """
    found, traced = units_of_facts(facts), sum(traced_kinds(facts).values())
    return found.count / traced if found is not None and traced else 1.0


def _of_the_whole_run(tables: Tables, facts: pd.DataFrame) -> Tables:
    rows, ours = tables.workload, tables.workload["run"].eq(tables.run)
    by_traces = rows["calls_from"].eq("profiler") & ours
    if not by_traces.any() or by_traces.equals(ours):
        return tables
    factor = by_traces.map({True: units_each(facts), False: 1.0}).astype("Float64")
    return replace(tables, workload=rows.assign(calls=rows["calls"].astype("Float64") * factor))


def _weigh_kernels(tables: Tables, facts: pd.DataFrame) -> Tables:
    kernels = tables.kernels
    by_kind = _weights(tables, facts)
    factor = by_kind * _overlaps(kernels, facts)
    if (factor == 1.0).all():
        return tables
    changed = kernels.assign(total_us=kernels["total_us"] * factor)
    if (by_kind == 1.0).all():
        return replace(tables, kernels=changed)
    return _with_calls(replace(tables, kernels=changed), kernels, by_kind)


def reweigh_kinds(tables: Tables, counts: Mapping[str, float]) -> Tables:
    """Recompute kernel times and numbers of calls as if the job had done more steps of one kind and fewer of another.

    ``counts`` has the wanted number of steps of each kind, for example training and evaluation. In this way a job can
    be compared with one that did the same kinds of steps in another ratio. The total number of traced steps does not
    change. ``tables`` must already be scaled to the ratio of the whole job (``scale_to_average_unit``).
    """
    facts = tables.facts[tables.facts["run"] == tables.run]
    traced = traced_kinds(facts)
    if not any(counts.get(name) for name in traced):
        return tables
    factor = _as_if(tables, counts, traced) / _weights(tables, facts)
    kernels = tables.kernels
    return _with_calls(replace(tables, kernels=kernels.assign(total_us=kernels["total_us"] * factor)), kernels, factor)


def _with_calls(tables: Tables, kernels: pd.DataFrame, factor: pd.Series) -> Tables:
    """Multiply the numbers of calls in all tables by ``factor``, which has one value per kernel."""
    calls, workload = _scale_calls_to_job(tables, kernels, factor)
    changed = tables.kernels.assign(calls=kernels["calls"] * factor)
    return replace(tables, kernels=changed, calls=calls, workload=workload)


def _weights(tables: Tables, facts: pd.DataFrame) -> pd.Series:
    """Return a factor for each traced kernel, so that each kind of step has the same weight as in the whole run."""
    found, traced = units(tables), traced_kinds(facts)
    counts = {x.name: x.count for x in found.kinds if x.name in traced} if found else {}
    # Unless all kinds of steps that were traced are counted, all factors are 1.
    if not any(counts.values()) or counts.keys() != traced.keys():
        return pd.Series(1.0, index=tables.kernels.index)
    return _as_if(tables, counts, traced)


def problem_weights(tables: Tables) -> pd.Series:
    """Return the factor by which the traced calls of each GEMM or convolution were scaled to the whole run.

    ``scale_to_average_unit`` scales them, because only a few steps are traced.
    """
    rows = tables.kernels[tables.kernels["run"].eq(tables.run)].dropna(subset=["problem", "calls"])
    by_kind = _weights(tables, tables.facts[tables.facts["run"] == tables.run])
    calls = rows["calls"].astype("float64")
    sums = rows.assign(calls=calls, traced=calls / by_kind[rows.index]).groupby("problem")[["calls", "traced"]].sum()
    return (sums["calls"] / sums["traced"]).dropna()


def _as_if(tables: Tables, counts: Mapping[str, float], traced: Mapping[str, int]) -> pd.Series:
    """Return a factor for each traced kernel, so that each kind of step is as frequent as in ``counts``."""
    counted, total = math.fsum(counts.get(name, 0.0) for name in traced), sum(traced.values())
    # For example, half of the steps in ``counts`` are of one kind, but only a quarter of the traced steps. Then the
    # kernels of that kind get the factor 0.5 / 0.25 = 2.
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
    """Return factors that shorten the times of kernels that run at the same time, so that no time is counted twice.

    The factor is (time in which any kernel computed) / (sum of kernel times).
    """
    computes = ~is_communication(kernels)
    rows = kernels[computes & ~kernels["op"].isin([BEFORE, SEARCH])].groupby("source_id")
    # For a trace of several devices, the mean per device is used.
    summed = rows["total_us"].sum() / rows["device"].nunique().clip(lower=1)
    found = facts[facts["name"] == "gpu_compute_us"].set_index("source_id")["value"]
    share = (pd.to_numeric(found, errors="coerce") / summed).clip(upper=1.0)
    # Overlapping kernels of one operator were already corrected by ``records.without_overlap``.
    share = share.where(share < _OVERLAP)
    # The factor is 1 for communication.
    return kernels["source_id"].map(share).where(computes).fillna(1.0).astype("float64")


_OVERLAP = 0.995
"""If the factor of ``_overlaps`` is above this value, it is replaced by 1.

The kernels then hardly overlap. Such a small overlap also arises on a single stream, when a kernel begins shortly
before the earlier one ends.
"""


def is_communication(kernels: pd.DataFrame) -> pd.Series:
    """Tell for each row of kernels whether the kernel communicates with other GPUs (a collective).

    The names of its operator and of the kernel decide.
    """
    names = kernels["op"].fillna("").astype(str) + " " + kernels["kernel"].astype(str)
    known = {name: bool(COMMUNICATION.search(name)) for name in names.unique()}
    return names.map(known).astype(bool)


def _scale_calls_to_job(tables: Tables, kernels: pd.DataFrame, weights: pd.Series) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scale the numbers of calls, which come from a few traced steps, to the whole job.

    ``weights``: each kernel's factor. Returns the changed tables ``calls`` and ``workload``.
    """
    rows = kernels.assign(weighed=kernels["calls"] * weights)[
        kernels["problem"].notna() & kernels["run"].eq(tables.run)
    ]
    # If a GEMM or convolution launches several kernels, the average of their factors is used.
    sums = rows.groupby("problem")[["weighed", "calls"]].sum()
    by_problem = sums["weighed"] / sums["calls"]

    def scaled(frame: pd.DataFrame, counts: str, traced: pd.Series) -> pd.DataFrame:
        factor = frame["problem"].map(by_problem).where(traced).fillna(1.0)
        return frame.assign(**{counts: frame[counts].astype("Float64") * factor.astype("Float64")})

    # Numbers of calls that come from a log stay, because a log counts the whole job.
    calls = scaled(tables.calls, "count", tables.calls["category"].eq("profiler"))
    return calls, scaled(tables.workload, "calls", tables.workload["calls_from"].eq("profiler"))
