"""The order of work: expected saving per second of measuring, so that a budget cut anywhere is the best cut.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pandas as pd

from analyzers.job.efficiency import efficiencies
from analyzers.times.cells import count_of
from analyzers.times.joins import agreed_facts, facts_by_source, is_default
from analyzers.times.predictions import Prediction, Predictor, spread
from analyzers.times.transfer import transferred
from logparse.model import ConvProblem, GemmProblem, Problem, layer_of, problem_from_text
from logparse.target import device_of_file, same_device

PRIOR_REGRET: Mapping[str, float] = {"gemm": 0.03, "F": 0.08, "B": 0.10, "W": 0.25, "B+W": 0.15}
"""Share of a pick's time that the best solution saves on average, where nothing is known of a problem.

GEMM heuristics are good: a few percent over many ordinary shapes.  Backward weights are where they fail.
"""

_ASSUMED_FLOPS_PER_US = 2e8  # of a problem without any time; only the order of work hangs on it
_ASSUMED_BYTES_PER_US = 2e6
_LEAST_US = 5.0
_LEAST_REGRET = 0.01  # what a race looks for; no problem is left out because similar ones gained nothing
_SAMPLES = 4  # per solution, on average of a race
_SAMPLE_US = 1500.0
_PREPARE_S = 0.02
_SETUP_S = 0.3


Basis: TypeAlias = Literal["measured", "predicted", "assumed"]
"""What a time rests on: its own measurement (or a linked problem's), similar problems', or peak rates alone."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One problem of a plan.  ``time_us`` is the best guess of one call, ``regret`` the share that may be saved.

    ``risk`` is the predicted probability that this share exceeds ``predictions.LARGE``.
    """

    problem: Problem
    calls: int | None
    time_us: float
    regret: float
    solutions: int
    cost_s: float
    workspace_bytes: int | None = None
    basis: Basis = "assumed"
    risk: float | None = None

    @property
    def saving_us(self) -> float:
        """Expected saving per run of the workload; a problem without counted calls counts once."""
        return (self.calls or 1) * self.time_us * self.regret

    @property
    def value(self) -> float:
        """Expected µs saved per second of measuring."""
        return self.saving_us / self.cost_s


def plan(
    tables: Mapping[str, pd.DataFrame],
    *,
    run: str | None = None,
    kind: str | None = None,
    direction: str | None = None,
    top: int | None = None,
    solutions: int = 20,
) -> list[Item]:
    """The problems of a run, the most valuable first.

    ``tables`` are the store's frames (``calls``, ``workload``, ``measurements``, ``facts``, ``links``, ``kernels``).  A
    problem that a trace shows far below its roofline is expected to gain what comparable ones reach.  A run without
    calls (only tuning files) offers the problems that were measured in ``run`` (None: in any).  What no measurement is
    known of is predicted from similar problems, where there are enough; where the run's files state a device, times of
    other devices are no measurements, and predictions are made of what they are expected to be on it.  A text without
    calls that may be a counted
    call (a TunableOp key beside the log's line) is left to that.  ``solutions`` is how many each is expected to have.
    """
    workload = tables["workload"]
    calls = workload.groupby("problem")["calls"].sum(min_count=1)
    measured, elsewhere = _measured(tables, run)
    echoes = _echoes(calls, tables["links"])
    texts = [x for x in calls.index if x not in echoes] if len(calls) else _measured_in(run, tables, measured)
    wanted = [problem for problem in map(problem_from_text, texts) if _wanted(problem, kind, direction)]
    linked = _linked(tables["links"], [x.text for x in wanted], measured)
    workspaces = _workspaces(tables["calls"])
    slow = _slow_backward_weights(measured)
    below = _below_roofline(tables)
    unmeasured = [x for x in wanted if x.text not in linked]
    predictions = _predictions(pd.concat([measured, elsewhere]), slow, unmeasured)
    items = []
    for problem in wanted:
        known = linked.get(problem.text)
        count = calls.get(problem.text)
        predicted = predictions.get(problem.text)
        time_us = known.time_us if known else predicted.time_us if predicted else _guess_us(problem)
        regret = max(known.regret or 0.0, slow.get(known.problem, 0.0)) if known else 0.0
        if predicted and predicted.regret is not None:
            regret = max(predicted.regret, _LEAST_REGRET)
        if known is None or not known.regret:
            regret = max(regret, below.get(problem.text, 0.0))
        items.append(
            Item(
                problem=problem,
                calls=count_of(count),
                time_us=time_us,
                regret=regret or PRIOR_REGRET.get(getattr(problem, "direction", "gemm"), 0.03),
                solutions=solutions,
                cost_s=cost_s(time_us, solutions),
                workspace_bytes=workspaces.get(problem.text),
                basis="measured" if known else "predicted" if predicted else "assumed",
                risk=predicted.risk if predicted else None,
            )
        )
    items.sort(key=lambda item: (-item.value, item.problem.text))
    return items[:top]


def _measured_in(run: str | None, tables: Mapping[str, pd.DataFrame], measured: pd.DataFrame) -> list[str]:
    """The measured problems of which the run has a measurement, in their order."""
    rows = tables["measurements"]
    own = measured.index if run is None else set(rows.loc[rows["run"] == run, "problem"])
    return [text for text in measured.index if text in own]


def _predictions(
    measured: pd.DataFrame, slow: Mapping[str, float], unmeasured: Sequence[Problem]
) -> dict[str, Prediction]:
    """Predictions of the problems that nothing measured is linked to, by text."""
    if not unmeasured or measured.empty:
        return {}
    known = measured["regret"].clip(lower=0).fillna(pd.Series(slow, dtype="float64"))
    predictor = Predictor(measured.assign(regret=known))
    found = zip(unmeasured, predictor.predict(unmeasured), strict=True)
    return {problem.text: prediction for problem, prediction in found if prediction is not None}


def _echoes(calls: pd.Series, links: pd.DataFrame) -> set[str]:
    """Problems without a number of calls that are linked to one with it."""
    counted = set(calls.dropna().index)
    return set(links.loc[links["other"].isin(counted), "problem"]) - counted


def _workspaces(calls: pd.DataFrame) -> dict[str, int]:
    """The largest workspace (bytes) that the logs state for a problem."""
    stated = calls[calls["workspace_bytes"].notna()].groupby("problem")["workspace_bytes"].max()
    return {str(text): int(value) for text, value in stated.items()}


@dataclass(frozen=True)
class _Known:
    problem: str
    time_us: float
    regret: float | None


def _wanted(problem: Problem, kind: str | None, direction: str | None) -> bool:
    if kind is not None and problem.kind != kind and not (kind == "gemm" and problem.kind == "grouped"):
        return False
    return direction is None or getattr(problem, "direction", None) == direction


def _measured(tables: Mapping[str, pd.DataFrame], run: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What is measured, and of what other devices than the run's measured alone, the times expected on the run's.

    See ``_best_and_default``.  A file that states no device is taken for one of the run's.
    """
    rows, facts = tables["measurements"], facts_by_source(tables["facts"])
    own = agreed_facts(tables["facts"][tables["facts"]["run"] == run])
    others: dict[str, list[str]] = {}
    for source in rows["source_id"].unique():
        if same_device(facts.get(source, {}), own) is False:
            others.setdefault(device_of_file(facts[source]), []).append(source)
    away = rows["source_id"].isin([source for sources in others.values() for source in sources])
    measured = _best_and_default(rows[~away], tables["facts"])
    moved = [measured.iloc[:0]]
    for _, sources in sorted(others.items()):
        there = _best_and_default(rows[rows["source_id"].isin(sources)], tables["facts"])
        both = pd.DataFrame({"source_us": there["time_us"], "target_us": measured["time_us"]}).dropna()
        left = spread(there.drop(both.index))["time_us"]
        times = transferred(left, spread(both), facts[sources[0]], own)
        moved.append(there.loc[times.index].assign(time_us=times))
    elsewhere = pd.concat(moved)
    return measured, elsewhere[~elsewhere.index.duplicated()]


def _best_and_default(measurements: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """By problem: ``time_us`` of the pick (the library's default, else the best known) and ``regret`` where both are
    known in one source.
    """
    rows = measurements[(measurements["status"] == "ok") & measurements["time_us"].notna()]
    best = rows.groupby(["problem", "source_id"])["time_us"].min().rename("best")
    own = rows[is_default(rows, facts)]
    default = own.groupby(["problem", "source_id"])["time_us"].median().rename("default")
    both = pd.concat([best, default], axis=1)
    both["regret"] = 1 - both["best"] / both["default"]
    both["time_us"] = both["default"].fillna(both["best"])
    return both.groupby(level="problem").agg(time_us=("time_us", "min"), regret=("regret", "max"))


def _linked(links: pd.DataFrame, texts: Sequence[str], measured: pd.DataFrame) -> dict[str, _Known]:
    """What is known of each problem, from itself or from the closest problem that it is linked to."""
    times, regrets = measured["time_us"].to_dict(), measured["regret"].dropna().to_dict()

    def known(text: str) -> _Known:
        return _Known(text, float(times[text]), regrets.get(text))

    out = {text: known(text) for text in texts if text in measured.index}
    order = {"exact": 0, "layout": 1, "shape": 2}
    rows = links[links["problem"].isin(texts) & links["other"].isin(measured.index)]
    rows = rows.assign(near=rows["level"].map(order)).sort_values(["problem", "near", "other"])
    for problem, other in rows.drop_duplicates("problem")[["problem", "other"]].itertuples(index=False):
        out.setdefault(problem, known(other))
    return out


def _slow_backward_weights(measured: pd.DataFrame) -> dict[str, float]:
    """Regret to expect of W problems that take much longer than the slower of F and B of their layer."""
    layers: dict[str, dict[str, tuple[str, float]]] = {}
    for text, time_us in measured["time_us"].items():
        found = layer_of(str(text))
        if found is not None:
            direction, layer = found
            layers.setdefault(layer, {})[direction] = (str(text), float(time_us))
    return dict(_excess(layers))


def _below_roofline(tables: Mapping[str, pd.DataFrame]) -> dict[str, float]:
    """Regret to expect of problems whose kernels in a trace are far from what is within their reach."""
    rows = efficiencies(tables["kernels"], tables["calls"], tables["facts"])
    rows = rows[rows["far"]]
    shares = 1 - rows["within_us"] / rows["now_us"]
    return {str(text): float(share) for text, share in zip(rows["problem"], shares, strict=True)}


def _excess(layers: Mapping[str, Mapping[str, tuple[str, float]]]) -> Iterator[tuple[str, float]]:
    for times in layers.values():
        siblings = [times[x][1] for x in ("F", "B") if x in times]
        if "W" in times and siblings and times["W"][1] > 1.5 * max(siblings):
            yield times["W"][0], 1 - 1.5 * max(siblings) / times["W"][1]


def _guess_us(problem: Problem) -> float:
    if isinstance(problem, GemmProblem | ConvProblem):
        flops, moved = problem.flops or 0, problem.bytes or 0.0
        return max(_LEAST_US, flops / _ASSUMED_FLOPS_PER_US, moved / _ASSUMED_BYTES_PER_US)
    return _LEAST_US


def cost_s(time_us: float, solutions: int) -> float:
    """Seconds that racing so many solutions of a problem takes, one call of which takes ``time_us``."""
    return _SETUP_S + solutions * (_PREPARE_S + _SAMPLES * max(_SAMPLE_US, time_us) / 1e6)
