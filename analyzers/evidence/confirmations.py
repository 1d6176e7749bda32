"""Confirm that a kernel is faster than the one that the library chose, with times from several fresh processes.

The pick is the kernel that the library chose. The winner is the fastest kernel of a search. Both are timed in short
blocks, one right after the other, so that they meet the same conditions.

Two processes that measure the same pair differ by more than the samples within one process. On an H200 the standard
deviation of the ratio between processes is 0.32 %, while 12 blocks of one process estimate that process's ratio to 0.11
% (``docs/measurement.md``). So each process gives one value, the median log ratio of its blocks, and the confidence
interval is a t-interval over the processes.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from analyzers.evidence.joins import called_problems
from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.statistics import intervals
from analyzers.evidence.tables import Tables

K = TypeVar("K")

RATE = 0.05
"""Largest expected fraction (0 to 1) of wrongly confirmed gains among all confirmed gains."""

BETWEEN_PROCESSES = 0.0032
"""Standard deviation of log(speedup) from one process to the next. It is used if only one process measured.

It was measured with 238 pairs of repeated confirmations on H200s
(``benchmarks/results/scale-gpu-NVIDIA-H200-2026-11-21.json.gz``).
"""


@dataclass(frozen=True)
class Pairs:
    """Times (µs) of two kernels that were measured alternately: the library's choice and a faster one (``winner_us``).

    Entry i of both is from the same short block. ``blocks``: number of entries of each process.
    """

    # An entry is the mean of two times.
    pick_us: tuple[float, ...]
    winner_us: tuple[float, ...]
    # It is empty if one process measured all.
    blocks: tuple[int, ...] = ()

    @property
    def by_process(self) -> tuple[Pairs, ...]:
        """The measured times, split into one object for each process that measured them."""
        out, at = [], 0
        for count in self.blocks or (len(self.pick_us),):
            out.append(Pairs(self.pick_us[at : at + count], self.winner_us[at : at + count]))
            at += count
        return tuple(x for x in out if x.pick_us)

    def joined(self, other: Pairs) -> Pairs:
        """Return the times in this object, followed by the times in ``other``, which other processes measured.

        Both have times of the same two kernels.
        """
        mine = self.blocks or ((len(self.pick_us),) if self.pick_us else ())
        blocks = (*mine, *(other.blocks or (len(other.pick_us),)))
        return Pairs(self.pick_us + other.pick_us, self.winner_us + other.winner_us, blocks)


@dataclass(frozen=True)
class Confirmation:
    """The statistical answer to one question: is the fastest kernel of a search faster than the library's choice?

    * ``speedup``: (time of the library's choice) / (time of the fastest kernel), with a 95 % interval.
    * ``p``: p-value of the hypothesis that the speedup is at most 1 + ``floor``.
    * ``processes``: the number of fresh processes that measured both kernels.
    * ``confirmed``: True if the whole interval of the speedup is above 1 + ``floor``.
    """

    speedup: intervals.Interval
    p: float
    floor: float
    processes: int = 1

    @property
    def confirmed(self) -> bool:
        return self.speedup.low > 1 + self.floor


def judge(pairs: Pairs, *, floor: float = 0.03) -> Confirmation:
    """Tell from paired times whether one kernel is really faster than another, and by how much.

    ``floor`` is the smallest gain that is confirmed (0.03 means 3 %).
    """
    # No GPU is needed, so stored times can be judged again with another ``floor``.
    return judge_all({0: pairs}, floor=floor)[0][0]


def judge_all(
    pairs: Mapping[K, Pairs], *, floor: float = 0.03, device: Mapping[K, str] | None = None
) -> tuple[dict[K, Confirmation], set[K]]:
    """Judge many pairs of kernels at once: return each result, and the keys whose gain is still confirmed.

    If many pairs are tested, some look faster by chance. So the second result is corrected for the number of tests: at
    most a small fraction (``RATE``) of its keys is expected to be wrong (false-discovery control).

    ``device`` names the GPU of each key. None means that all pairs are of one GPU. The variances between processes are
    estimated together for all pairs of a GPU (``intervals.moderate_variances``). Otherwise three processes would give a
    variance with only two degrees of freedom, and no p-value would be small enough among a thousand pairs.
    """
    estimates = {key: _estimate(x) for key, x in pairs.items() if x.pick_us}
    groups: dict[str, list[K]] = {}
    for key in estimates:
        if len(pairs[key].by_process) > 1:
            groups.setdefault(device[key] if device else "", []).append(key)
    variances = {key: variance for key, (_, variance) in estimates.items()}
    for keys in groups.values():
        variances |= dict(zip(keys, intervals.moderate_variances([variances[key] for key in keys]), strict=True))
    judged = {key: Confirmation(intervals.Interval(math.nan, math.nan, math.nan), 1.0, floor) for key in pairs}
    for key, (value, _) in estimates.items():
        count = len(pairs[key].by_process)
        variance = variances[key].scaled(1 / count)
        half = min(variance.half_width(), _WIDEST)
        speedup = intervals.Interval(math.exp(value), math.exp(value - half), math.exp(value + half))
        judged[key] = Confirmation(speedup, intervals.greater_p(value - math.log1p(floor), variance), floor, count)
    kept = intervals.benjamini_hochberg([x.p for x in judged.values()], RATE)
    return judged, {key for (key, x), keep in zip(judged.items(), kept, strict=True) if keep and x.confirmed}


def _estimate(pairs: Pairs) -> tuple[float, intervals.Variance]:
    """Return the logarithm of the speedup between two kernels.

    The second result is its variance from one process to another.
    """
    ratios = [intervals.log_ratios(x.pick_us, x.winner_us) for x in pairs.by_process]
    values = [statistics.median(map(float, x)) for x in ratios]
    if len(values) > 1:
        return statistics.fmean(values), intervals.Variance(statistics.variance(values), len(values) - 1.0)
    within = intervals.variance_of_median(ratios[0])
    return values[0], intervals.Variance(within.value + BETWEEN_PROCESSES**2, within.degrees)


_WIDEST = 20.0  # Largest half width of a log ratio, because the exponential of a wider interval would overflow.


# ------------------------------------------------------------------ as a fact of the store


def confirmation_text(
    problem: str, pick: str, winner: str, pairs: Pairs, confirmation: Confirmation, *, complete: bool = True
) -> str:
    """Return the result of comparing two kernels as JSON text, for example to store it in a file.

    ``complete``: True if the two kernels need not be measured again.
    """
    ratio = confirmation.speedup
    values = {"speedup": ratio.value, "low": ratio.low, "high": ratio.high, "p": confirmation.p}
    verdict = {"floor": confirmation.floor, "confirmed": confirmation.confirmed}
    names = {"problem": problem, "pick": pick, "winner": winner}
    blocks = list(pairs.blocks or (len(pairs.pick_us),))
    return json.dumps(names | values | verdict | {"blocks": blocks, "complete": complete})


def blocks_of(fact: Mapping[str, object]) -> tuple[int, ...]:
    """Return how many blocks of measurements each process contributed to a comparison of two kernels.

    ``fact``: the decoded JSON of the comparison. Returns an empty tuple if the JSON has no such numbers.
    """
    # Early files lack the numbers, because one process measured all blocks.
    blocks = fact.get("blocks", ())
    return tuple(int(x) for x in blocks) if isinstance(blocks, Sequence) else ()


def samples_in(values: object) -> tuple[float, ...]:
    """Return the times in one cell of the column ``samples_us`` as a tuple. An empty cell gives an empty tuple."""
    return tuple(map(float, values)) if isinstance(values, list | tuple | np.ndarray) else ()


@dataclass(frozen=True)
class Stored:
    """A stored comparison of two kernels, with all of its times (``pairs``).

    With the times, a later analysis can test again whether the faster kernel gains enough, for example at least 5 %
    instead of 3 %.
    """

    problem: str
    pick: str
    winner: str
    environment: str
    pairs: Pairs


def stored_confirmations(tables: Tables) -> dict[str, Stored]:
    """Read the times of two kernels, measured alternately, that show whether one is really faster.

    Returns the times by the id of their file.
    """
    facts = tables.facts[tables.facts["name"].isin(("confirmation", "environment"))]
    values = {(x, name): str(value) for x, name, value in facts[["source_id", "name", "value"]].itertuples(index=False)}
    rows = tables.measurements
    own = (rows["origin"] == CONFIRM).to_numpy(dtype=bool)
    rows = rows[own & rows["source_id"].isin([x for x, name in values if name == "confirmation"]).to_numpy(dtype=bool)]
    # ``rows`` has few entries here, but a find-db adds 400,000 to ``measured``: skip that work if there are no rows.
    # Only GEMMs and convolutions that the job calls, or that its own files measure, are included.
    if len(rows):
        measured = set(tables.measurements.loc[tables.measurements["run"] == tables.run, "problem"])
        rows = rows[rows["problem"].isin(called_problems(tables) | measured)]
    samples: dict[str, dict[str, tuple[float, ...]]] = {}
    for source, solution, taken in zip(rows["source_id"], rows["solution"], rows["samples_us"], strict=True):
        samples.setdefault(str(source), {})[str(solution)] = samples_in(taken)
    out = {}
    for source in sorted(samples):
        try:
            fact = json.loads(values[source, "confirmation"])
            problem, pick, winner = (str(fact[name]) for name in ("problem", "pick", "winner"))
        except (ValueError, LookupError, TypeError):  # The fact comes from a damaged bundle.
            continue
        above, below = (samples[source].get(x, ()) for x in (pick, winner))
        environment = values.get((source, "environment"), "")
        if above and len(above) == len(below):
            pairs = Pairs(above, below, blocks_of(fact))
            out[source] = Stored(problem, pick, winner, environment, pairs)
    return out


def choose_one_per_pair(stored: Mapping[str, Stored], tables: Tables) -> dict[str, str]:
    """Choose which result to use if the same two kernels were compared several times.

    Returns a dictionary from the file of each comparison to the file whose result is used.
    """
    ingested = dict(zip(tables.sources["source_id"], tables.sources["ingested_at"], strict=True))
    best: dict[tuple[str, ...], str] = {}

    # The comparison by the most processes is used, and among several such the latest. Preferring the largest gain would
    # bias the result.
    def rank(source: str) -> tuple[int, str, str]:
        return len(stored[source].pairs.by_process), str(ingested.get(source, "")), source

    keys = {source: (x.problem, x.pick, x.winner, x.environment) for source, x in stored.items()}
    for source, key in keys.items():
        if key not in best or rank(source) > rank(best[key]):
            best[key] = source
    return {source: best[key] for source, key in keys.items()}


def judge_confirmations(stored: Mapping[str, Stored], sources: Iterable[str], floor: float) -> dict[str, Confirmation]:
    """Decide which faster kernels are really faster, from times that were measured again in fresh processes.

    * ``sources``: files, each with the times of two kernels.
    * ``floor``: the smallest accepted gain, 0.03 for 3 %.
    """
    pairs = {source: stored[source].pairs for source in set(sources)}
    return judge_all(pairs, floor=floor, device={source: stored[source].environment for source in pairs})[0]
