"""The confirmations that a store holds of a run's problems: which of them count, and what they predict for a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.analyzer import Tables
from analyzers.statistics.intervals import Interval
from analyzers.times.confirmations import Confirmation, Pairs, blocks_of, judge_all
from analyzers.times.joins import facts_of
from analyzers.times.origins import CONFIRM
from logparse.target import same_device


@dataclass(frozen=True)
class Stored:
    """A stored confirmation: its pairs where the tables hold the samples, and the replay's own verdict."""

    problem: str
    pick: str
    winner: str
    environment: str
    pairs: Pairs
    verdict: Confirmation


def stored_confirmations(tables: Tables) -> dict[str, Stored]:
    """The confirmations of the run's problems, by source."""
    facts = tables.facts[tables.facts["name"].isin(("confirmation", "environment"))]
    values = {(x, name): str(value) for x, name, value in facts[["source_id", "name", "value"]].itertuples(index=False)}
    rows = tables.measurements
    own = (rows["origin"] == CONFIRM).to_numpy(dtype=bool)
    rows = rows[own & rows["source_id"].isin([x for x, name in values if name == "confirmation"]).to_numpy(dtype=bool)]
    rows = rows[rows["problem"].isin(_problems(tables))] if len(rows) else rows  # few, of 400,000 of a find-db
    samples: dict[str, dict[str, tuple[float, ...]]] = {}
    for source, solution, taken in zip(rows["source_id"], rows["solution"], rows["samples_us"], strict=True):
        samples.setdefault(str(source), {})[str(solution)] = _samples(taken)
    out = {}
    for source in sorted(samples):
        fact = json.loads(values[source, "confirmation"])
        pick, winner = str(fact["pick"]), str(fact["winner"])
        above, below = (samples[source].get(x, ()) for x in (pick, winner))
        pairs = Pairs(above, below, blocks_of(fact)) if len(above) == len(below) else Pairs((), ())
        speedup = Interval(*(float(fact[name]) for name in ("speedup", "low", "high")))
        verdict = Confirmation(speedup, float(fact["p"]), float(fact["floor"]))
        environment = values.get((source, "environment"), "")
        out[source] = Stored(str(fact["problem"]), pick, winner, environment, pairs, verdict)
    return out


def counting(stored: Mapping[str, Stored], tables: Tables) -> dict[str, str]:
    """By source the one that counts: of one pair on one device the most processes, then the latest.

    The fastest of several would be biased by selection.
    """
    ingested = dict(zip(tables.sources["source_id"], tables.sources["ingested_at"], strict=True))
    best: dict[tuple[str, ...], str] = {}

    def rank(source: str) -> tuple[int, str, str]:
        return len(stored[source].pairs.by_process), str(ingested.get(source, "")), source

    keys = {source: (x.problem, x.pick, x.winner, x.environment) for source, x in stored.items()}
    for source, key in keys.items():
        if key not in best or rank(source) > rank(best[key]):
            best[key] = source
    return {source: best[key] for source, key in keys.items()}


def _problems(tables: Tables) -> set[str]:
    """Problems that the run called, those linked to them, and those measured in it."""
    called = set(tables.workload["problem"])
    linked = tables.links.loc[tables.links["problem"].isin(called), "other"]
    return called | set(linked) | set(tables.measurements.loc[tables.measurements["run"] == tables.run, "problem"])


def _samples(values: object) -> tuple[float, ...]:
    return tuple(map(float, values)) if isinstance(values, list | tuple | np.ndarray) else ()


def judged(stored: Mapping[str, Stored], sources: Iterable[str], floor: float) -> dict[str, Confirmation]:
    """The verdicts on these confirmations, by source, as far as the tables hold their samples."""
    pairs = {source: stored[source].pairs for source in set(sources) if stored[source].pairs.pick_us}
    return judge_all(pairs, floor=floor, device={source: stored[source].environment for source in pairs})[0]


def by_winner(tables: Tables, machine: Mapping[str, str], floor: float) -> dict[tuple[str, str], Confirmation]:
    """Problem and confirmed solution → the confirmation of the most processes, of those not of another device."""
    stored, facts = stored_confirmations(tables), facts_of(tables)
    sources = [x for x in set(counting(stored, tables).values()) if same_device(facts.get(x, {}), machine) is not False]
    out: dict[tuple[str, str], Confirmation] = {}
    for source, confirmation in sorted(judged(stored, sources, floor).items()):
        key = (stored[source].problem, stored[source].winner)
        if key not in out or confirmation.processes > out[key].processes:
            out[key] = confirmation
    return out
