"""Find the fastest of many kernels with few samples: drop slow ones early, and take more samples of the rest.

Such a measurement is called a race. The method is successive rejects (Audibert and Bubeck, COLT 2010) with elimination
by interval. In each round, every remaining kernel gets samples until it has twice as many. A kernel is dropped if its
interval lies above the best kernel's interval, or if it is in the slower half. The module is pure apart from
``sample``, so that strategies can be simulated on recorded times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from analyzers.evidence.statistics.intervals import median, pooled_spread

S = TypeVar("S")


class WithdrawnError(Exception):
    """Raised if a kernel turns out to be unusable while kernels are timed, because it failed or its result is wrong."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of a race, in which several kernels are timed against each other.

    * ``hopeless``: a kernel is dropped at once if its first sample exceeds this factor × the best median.
    * ``threshold``: smallest fraction of the time that is worth saving. The race ends if no larger saving is possible.
    * ``rounds``: number of samples that a remaining kernel has after each round.
    * ``keep``: fraction of the kernels that remain after each round. At least 3 kernels remain.
    * ``z``: half-width of an interval in standard errors.
    * ``noise_floor``: smallest relative spread that is assumed, because few samples look quieter than they are.
    """

    hopeless: float = 1.5
    threshold: float = 0.01
    rounds: tuple[int, ...] = (2, 4, 8, 16)
    keep: float = 0.5
    z: float = 2.6
    noise_floor: float = 0.003


@dataclass(frozen=True)
class Race(Generic[S]):
    """The result of timing several kernels against each other.

    * ``best``: the kernel with the smallest median time.
    * ``samples_us``: each kernel's times, µs.
    * ``dropped``: why each other kernel was dropped.
    * ``ended``: why the comparison ended.
    """

    best: S
    samples_us: Mapping[S, Sequence[float]]
    dropped: Mapping[S, str] = field(default_factory=dict)
    ended: str = ""


def race(
    solutions: Sequence[S],
    sample: Callable[[S], float],
    *,
    rules: Rules = Rules(),
) -> Race[S]:
    """Time kernels against each other, and return the fastest one and the times of all.

    * ``solutions``: the kernels. The first is the library's choice, which the others must beat.
    * ``sample`` runs a kernel and returns its time in µs. It raises WithdrawnError if the kernel turns out to be
      unusable, for example wrong.
    * If the library's choice is unusable, the next kernel takes its place.
    * No kernel wins with fewer than two samples.

    Raises WithdrawnError if all kernels are unusable.
    """
    return _Racing(solutions[0], list(dict.fromkeys(solutions)), sample, rules).run()


@dataclass
class _Racing(Generic[S]):
    pick: S
    alive: list[S]
    sample: Callable[[S], float]
    rules: Rules
    samples: dict[S, list[float]] = field(default_factory=dict)
    dropped: dict[S, str] = field(default_factory=dict)

    def run(self) -> Race[S]:
        # Each solution gets one sample. The pick gets two, because everything is compared with it.
        for solution in list(self.alive):
            self._first_sample(solution)
        for index, upto in enumerate(self.rules.rounds):
            ended = self._decided()
            if ended:
                return self._end(ended)
            while behind := [x for x in self.alive if len(self.samples[x]) < upto]:
                for solution in behind:
                    self._top_up(solution, upto)
            self._eliminate(last=index == len(self.rules.rounds) - 1)
        return self._end("all rounds")

    def _first_sample(self, solution: S) -> None:
        self._top_up(solution, 2 if solution == self.pick else 1)
        rival = solution in self.alive and solution != self.pick
        if rival and self.samples[solution][0] > self.rules.hopeless * self._best_us():
            self._drop(solution, "hopeless")

    def _top_up(self, solution: S, count: int) -> None:
        if solution not in self.alive:
            return
        held = self.samples.setdefault(solution, [])
        try:
            while len(held) < count:
                held.append(self.sample(solution))
        except WithdrawnError as reason:
            del self.samples[solution]
            self._drop(solution, str(reason) or "withdrawn")
            self._revive()
            self._replace_pick(solution)

    def _revive(self) -> None:
        """Bring kernels back into the comparison that were dropped because a seemingly much faster kernel was wrong."""
        if not self.samples:
            return
        limit = self.rules.hopeless * self._best_us()
        for solution, why in list(self.dropped.items()):
            if why == "hopeless" and self.samples[solution][0] <= limit:
                del self.dropped[solution]
                self.alive.append(solution)

    def _replace_pick(self, gone: S) -> None:
        if gone != self.pick:
            return
        if not self.alive:
            raise WithdrawnError("every solution withdrew")
        self.pick = self.alive[0]
        self._top_up(self.pick, 2)

    def _eliminate(self, *, last: bool) -> None:
        noise = self._noise()
        best = min(self.alive, key=self._median)
        best_high = self._bounds(best, noise)[1]
        for solution in list(self.alive):
            if self._bounds(solution, noise)[0] > best_high:
                self._drop(solution, "interval")
        if not last:
            ranked = sorted(self.alive, key=self._median)
            for solution in ranked[max(3, math.ceil(len(ranked) * self.rules.keep)) :]:
                self._drop(solution, "slower half")

    def _decided(self) -> str:
        """Several kernels are timed against each other. Return why no further times are needed, or an empty text."""
        noise, worth = self._noise(), 1 - self.rules.threshold
        pick_high = self._bounds(self.pick, noise)[1]
        rivals = [self._bounds(x, noise) for x in self.alive if x != self.pick]
        if len(self.alive) == 1 or not rivals:
            return "one left"
        if all(low >= pick_high * worth for low, _ in rivals):
            # No kernel can be much faster than the library's choice.
            return "no worthwhile saving"
        if min(low for low, _ in rivals) >= max(high for _, high in rivals) * worth and self.pick not in self.alive:
            return "all left are alike"
        # A kernel may still turn out to be much faster.
        return ""

    def _end(self, why: str) -> Race[S]:
        best = min((x for x in self.alive if len(self.samples[x]) > 1), key=self._median, default=self.pick)
        # The pick is kept if it is within the threshold of the winner, because changing it could not pay.
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

    def _noise(self) -> float:
        pooled = pooled_spread(list(self.samples.values()))
        return max(self.rules.noise_floor, 0.0 if math.isnan(pooled) else pooled)

    def _bounds(self, solution: S, noise: float) -> tuple[float, float]:
        samples = self.samples[solution]
        half = math.exp(self.rules.z * noise / math.sqrt(len(samples)))
        return self._median(solution) / half, self._median(solution) * half
