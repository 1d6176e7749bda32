"""Decide the order in which a job's GEMMs and convolutions are measured.

The first one has the largest expected saving per second of measuring. So the measuring can be ended at any time. The
functions do no input or output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analyzers.evidence import ladders
from analyzers.evidence.cells import count_of
from analyzers.evidence.joins import calls_by_problem, facts_of, linked_measurements, run_facts
from analyzers.evidence.passes import backward_weights, find_best_pass_times
from analyzers.evidence.picks import records
from analyzers.evidence.tables import Settings, Tables
from analyzers.job.efficiency import efficiencies
from analyzers.job.expectations import estimate_times
from logparse.model import ConvProblem, GemmProblem, Problem, problem_from_text
from logparse.target import same_device

PRIOR_REGRET: Mapping[str, float] = {"gemm": 0.03, "F": 0.08, "B": 0.10, "W": 0.25, "B+W": 0.15}
"""Fraction of a call's time (0 to 1) that the fastest kernel is expected to save, if nothing else is known.

It is small for GEMMs, because heuristics choose well there: they lose a few percent over many ordinary shapes. It is
larger for weight gradients (W), because heuristics often choose badly there.
"""

_LEAST_REGRET = 0.005
"""Smallest expected saving (0 to 1), for a GEMM or convolution that is already as fast as similar ones."""
_ASSUMED_FLOPS_PER_US = 2e8  # Rates for a problem without any time. Only the order of work depends on them.
_ASSUMED_BYTES_PER_US = 2e6
_LEAST_US = 5.0
_SAMPLES = 4  # Samples per solution, on average over a race.
_SAMPLE_US = 1500.0
_PREPARE_S = 0.02
_SETUP_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Item:
    """A GEMM or convolution that is going to be measured, with its expected saving.

    * ``time_us``: expected time of a call, µs.
    * ``regret``: the fraction that may be saved (0 to 1).
    * ``basis``: ``measured``, or ``assumed`` from peak rates alone.
    """

    problem: Problem
    calls: int | None
    time_us: float
    regret: float
    solutions: int
    workspace_bytes: int | None = None
    # A time from a trace is measured, too.
    basis: Literal["measured", "assumed"] = "assumed"

    @property
    def cost_s(self) -> float:
        """Estimated seconds that it takes to measure all kernels for this GEMM or convolution."""
        return _SETUP_S + self.solutions * (_PREPARE_S + _SAMPLES * max(_SAMPLE_US, self.time_us) / 1e6)

    @property
    def saving_us(self) -> float:
        """Expected saving per run of the job, µs. If no log counts calls, one call is assumed."""
        return (self.calls or 1) * self.time_us * self.regret

    @property
    def value(self) -> float:
        """The saving (µs) that is expected per second of measuring. The plan is sorted by it."""
        return self.saving_us / self.cost_s


def plan(
    tables: Tables,
    settings: Settings,
    *,
    kind: str | None = None,
    direction: str | None = None,
    top: int | None = None,
    ladder: int | None = None,
    solutions: int = 20,
) -> list[Item]:
    """Return the GEMMs and convolutions of a job that a replay should measure, the most valuable first.

    * ``solutions``: the number of kernels that each is expected to have.
    * ``ladder``: a step of n. If it is given, matrix products with an n in the middle between two planned ones follow
      at the end.

    Their times and the expected savings are from the same sources as the findings:

    * the library's choice and the best kernel of one file, measured on the job's device (``picks.records``)
    * a slow weight gradient (``passes.backward_weights``)
    * the time to expect from the best kernels of similar ones (``job/expectations.py``)
    * a trace's time far below the roofline

    If a job has no calls (only tuning files), the GEMMs and convolutions that its own files measured are returned. A
    text without calls may mean the same as a counted call, for example a TunableOp key and the log's line of the same
    call. Then only the counted call is planned.
    """
    calls = calls_by_problem(tables.workload)
    wanted = [x for x in map(problem_from_text, _find_called_texts(tables, calls)) if _is_selected(x, kind, direction)]
    known = _find_known_times(tables, settings, wanted)
    traced = efficiencies(tables.kernels, tables.calls, tables.facts).set_index("problem")
    far = traced[traced["far"]]
    below, now_us = (1 - far["within_us"] / far["now_us"]).to_dict(), traced["now_us"].to_dict()
    expected = _estimate_times(tables, settings, wanted)
    workspaces = tables.calls.groupby("problem")["workspace_bytes"].max().dropna()

    def item(problem: Problem) -> Item:
        time_us, regret = known.get(problem.text, (now_us.get(problem.text), 0.0))
        if not regret and problem.text in expected:
            time_us, least = expected[problem.text]
            regret = max(_LEAST_REGRET, 1 - least / time_us)
        prior = PRIOR_REGRET.get(getattr(problem, "direction", "gemm"), 0.03)
        return Item(
            problem=problem,
            calls=count_of(calls.get(problem.text)),
            time_us=_guess_us(problem) if time_us is None else time_us,
            regret=regret or below.get(problem.text) or prior,
            solutions=solutions,
            workspace_bytes=count_of(workspaces.get(problem.text)),
            basis="assumed" if time_us is None else "measured",
        )

    items = sorted(map(item, wanted), key=lambda item: (-item.value, item.problem.text))[:top]
    if ladder is None:
        return items
    ends = {x.text for x in ladders.called(tables)} & {x.problem.text for x in items}
    found = ladders.rungs((x.problem for x in items if x.problem.text in ends), ladder)
    return items + [item(x.middle) for x in found]


def _find_called_texts(tables: Tables, calls: pd.Series) -> list[str]:
    """Return the texts of the GEMMs and convolutions that the job calls. These are worth measuring.

    If no log has the calls, the ones with times in the job's own files are returned.
    """
    if not len(calls):
        own = tables.measurements[tables.measurements["run"] == tables.run]
        return sorted(own.loc[own["time_us"].notna(), "problem"].unique())
    counted = set(calls.dropna().index)
    echoes = set(tables.links.loc[tables.links["other"].isin(counted), "problem"]) - counted
    return [x for x in calls.index if x not in echoes]


def _is_selected(problem: Problem, kind: str | None, direction: str | None) -> bool:
    if kind is not None and problem.kind != kind and not (kind == "gemm" and problem.kind == "grouped"):
        return False
    return direction is None or getattr(problem, "direction", None) == direction


def _find_known_times(tables: Tables, settings: Settings, wanted: list[Problem]) -> dict[str, tuple[float, float]]:
    """Return the time of each GEMM or convolution (µs), and the fraction of it that a better kernel would save.

    * The time is the time of the library's choice. If that is unknown, it is the time of the fastest kernel.
    * If the GEMM or convolution itself was not measured, another one that most probably means the same call is used.
    * Times from other devices than the job's are not used. A file that states no device is assumed to be from the job's
      device.
    """
    facts, own = facts_of(tables), run_facts(tables)
    away = [x for x in tables.measurements["source_id"].unique() if same_device(facts.get(x, {}), own) is False]
    rows = records(tables.measurements[~tables.measurements["source_id"].isin(away)], tables.facts)
    best_us, default_us = rows["best_us"], rows["default_us"]
    rows = rows.assign(time_us=default_us.fillna(best_us), regret=1 - best_us / default_us)
    measured = rows.groupby("measured").agg(time_us=("time_us", "min"), regret=("regret", "max"))
    w = backward_weights(find_best_pass_times(tables), settings)
    w = w[w["slow"] & ~w["source_id"].isin(away)]
    slow = (1 - w["sibling_us"] / w["best_us"]).groupby(w["problem"]).max()
    measured["regret"] = pd.concat([measured["regret"], slow.reindex(measured.index)], axis=1).max(axis=1).fillna(0.0)
    links = linked_measurements(tables, pd.Series([x.text for x in wanted], dtype=object), measured.index.to_series())
    links = links.drop_duplicates("problem").merge(measured, left_on="other", right_index=True)
    return dict(zip(links["problem"], zip(links["time_us"], links["regret"].clip(lower=0), strict=True), strict=True))


def _estimate_times(tables: Tables, settings: Settings, wanted: list[Problem]) -> dict[str, tuple[float, float]]:
    """Return two times for each GEMM or convolution, µs: the time that was measured, and how fast it should be."""
    found = estimate_times(tables, settings)
    if not found:
        return {}
    texts = pd.Series([x.text for x in wanted], dtype=object)
    # Files may describe the same call in different ways. So if the exact text has no times, a text that may be the same
    # call is looked up instead.
    links = linked_measurements(tables, texts, pd.Series(list(found), dtype=object)).drop_duplicates("problem")
    return {str(text): found[str(other)] for text, other in zip(links["problem"], links["other"], strict=True)}


def _guess_us(problem: Problem) -> float:
    if isinstance(problem, GemmProblem | ConvProblem):
        flops, moved = problem.flops or 0, problem.bytes or 0.0
        return max(_LEAST_US, flops / _ASSUMED_FLOPS_PER_US, moved / _ASSUMED_BYTES_PER_US)
    return _LEAST_US
