"""Racing: many solutions, few samples.  Those that cannot win are dropped early, the rest get more.

Successive rejects (Audibert and Bubeck, COLT 2010) with elimination by interval: round after round every survivor has
twice the samples, and a solution is dropped when its interval lies above the best one's, or when it is in the slower
half.  Pure over ``sample``, so strategies are simulated on recorded times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from analyzers.measure.stats import median, pooled_spread

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a race is run.

    ``hopeless``: a first sample this many times the best median ends a solution at once.
    ``threshold``: a saving below this share is not worth looking for; the race ends when none larger is possible.
    ``rounds``: samples that a survivor has after each round.  ``keep``: share that survives each, at least 3.
    ``z``: half-width of an interval in standard errors.  ``noise_floor``: the relative spread is never taken smaller,
    because few samples look quieter than they are.
    """

    hopeless: float = 1.5
    threshold: float = 0.01
    rounds: tuple[int, ...] = (2, 4, 8, 16)
    keep: float = 0.5
    z: float = 2.6
    noise_floor: float = 0.003


@dataclass(frozen=True)
class Race(Generic[S]):
    """How a race ended: ``best`` by median, the samples (µs) of everyone, and why the others stopped."""

    best: S
    samples_us: Mapping[S, Sequence[float]]
    dropped: Mapping[S, str] = field(default_factory=dict)
    ended: str = ""

    @property
    def count(self) -> int:
        """Samples taken in all."""
        return sum(len(samples) for samples in self.samples_us.values())


def race(
    solutions: Sequence[S],
    sample: Callable[[S], float],
    *,
    rules: Rules = Rules(),
    bound_us: float | None = None,
) -> Race[S]:
    """Find the fastest of ``solutions``; the first one is the pick that the others must beat.

    ``sample`` gives one time in µs; ``bound_us`` is a time that nothing can beat.  Raises ValueError without solutions.
    """
    if not solutions:
        raise ValueError("a race needs solutions")
    return _Racing(solutions, sample, rules, bound_us).run()


class _Racing(Generic[S]):
    def __init__(
        self, solutions: Sequence[S], sample: Callable[[S], float], rules: Rules, bound_us: float | None
    ) -> None:
        self.pick, self.sample, self.rules, self.bound_us = solutions[0], sample, rules, bound_us
        self.alive = list(dict.fromkeys(solutions))
        self.samples: dict[S, list[float]] = {}
        self.dropped: dict[S, str] = {}

    def run(self) -> Race[S]:
        self._first_samples()
        for index, upto in enumerate(self.rules.rounds):
            ended = self._decided()
            if ended:
                return self._end(ended)
            for solution in self.alive:
                self._top_up(solution, upto)
            self._eliminate(last=index == len(self.rules.rounds) - 1)
        return self._end("all rounds")

    def _first_samples(self) -> None:
        """One sample of each; the pick has two, because everything is measured against it."""
        self._top_up(self.pick, 2)
        for solution in self.alive[1:]:
            self.samples[solution] = [self.sample(solution)]
            if self.samples[solution][0] > self.rules.hopeless * self._best_us():
                self._drop(solution, "hopeless")

    def _top_up(self, solution: S, count: int) -> None:
        held = self.samples.setdefault(solution, [])
        while len(held) < count:
            held.append(self.sample(solution))

    def _eliminate(self, *, last: bool) -> None:
        best = min(self.alive, key=self._median)
        best_high = self._bounds(best)[1]
        for solution in list(self.alive):
            if self._bounds(solution)[0] > best_high:
                self._drop(solution, "interval")
        if not last:
            ranked = sorted(self.alive, key=self._median)
            for solution in ranked[max(3, math.ceil(len(ranked) * self.rules.keep)) :]:
                self._drop(solution, "slower half")

    def _decided(self) -> str:
        """Why the race need not go on; empty while a saving above the threshold is possible."""
        rules, pick = self.rules, self.pick
        least_worth = 1 - rules.threshold
        pick_low = self._bounds(pick)[0]
        if self.bound_us is not None and self.bound_us >= pick_low * least_worth:
            return "roofline"
        rivals = [x for x in self.alive if x != pick]
        if not rivals:
            return "one left"
        if all(self._bounds(x)[0] >= self._bounds(pick)[1] * least_worth for x in rivals):
            return "no worthwhile saving"
        if len(self.alive) == 1:
            return "one left"
        return ""

    def _end(self, why: str) -> Race[S]:
        sampled = [x for x in self.samples if x not in self.dropped] or list(self.samples)
        best = min(sampled, key=self._median)
        # A pick within the threshold of the winner is kept: changing it could not pay.
        if self._median(best) > self._median(self.pick) * (1 - self.rules.threshold):
            best = self.pick
        return Race(best, self.samples, self.dropped, why)

    def _drop(self, solution: S, why: str) -> None:
        self.alive.remove(solution)
        self.dropped[solution] = why

    def _median(self, solution: S) -> float:
        return median(self.samples[solution])

    def _best_us(self) -> float:
        return min(self._median(solution) for solution in self.samples)

    def _bounds(self, solution: S) -> tuple[float, float]:
        samples = self.samples[solution]
        pooled = pooled_spread(list(self.samples.values()))
        noise = max(self.rules.noise_floor, 0.0 if math.isnan(pooled) else pooled)
        half = math.exp(self.rules.z * noise / math.sqrt(len(samples)))
        return self._median(solution) / half, self._median(solution) * half
