"""What unmeasured problems will take, and whether their pick is slow: from the nearest measured ones.  Pure.

Nearest neighbours, because the data of one store are small and differ from store to store: nothing is trained before,
nothing is downloaded.  The logarithm of a time is a linear law in the logarithms of flops, bytes and sizes, fitted per
operation, plus the weighted mean of what the nearest problems (``nearness``) deviate from it.  The weights are those of
ordinary kriging (Cressie, Statistics for Spatial Data, 1993, 3.2): of problems that are near to each other as well each
counts less.  A regret is predicted from the known regrets of every direction, as much the same sizes make a pick slow
forward and backward.  A prediction orders work and is shown as one; it is no measurement, no saving, and no ground for
an override.

How good it is: ``docs/proposers.md``, ``benchmarks/predict.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.times.nearness import OTHER_LAYOUT, OTHER_TYPE, Coordinates, coordinates, work
from logparse.model import Problem, problem_from_text

LEAST = 16
"""With fewer measured problems of an operation no time is predicted, with fewer known regrets no regret."""
NEAREST = 32
"""Measured problems that a prediction is made of, at most."""
LARGE = 0.10
"""Regret (share of the pick's time that the best solution saves) whose probability is predicted."""
DOUBT = 0.05
"""No probability below this, and none above 1 less this: where the near problems agreed, so many were otherwise."""
MOST = 20_000
"""Measured problems that are looked at: reading more takes longer than they help."""
_CHUNK = 256
_ALIKE, _NOISE = 3.0, 0.05
"""Distance over which the correlation of two problems falls by e; the share of the variance that none explains."""
_OTHER = OTHER_TYPE, OTHER_LAYOUT, 1.0
"""What another type, layout or direction adds to a distance."""

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prediction:
    """``time_us`` of the pick; ``regret``: the share of it that the best solution is expected to save; ``risk``: the
    probability that the regret exceeds ``LARGE``.  Both are None where fewer than ``LEAST`` of the operation are known.
    """

    time_us: float
    regret: float | None = None
    risk: float | None = None

    @property
    def best_us(self) -> float:
        """Of the best solution."""
        return self.time_us * (1 - (self.regret or 0.0))


def spread(rows: pd.DataFrame) -> pd.DataFrame:
    """At most ``MOST`` rows, evenly over all of them."""
    return rows.iloc[:: max(1, -(-len(rows) // MOST))]


class Predictor:
    """``measured``: by problem text ``time_us`` (of the pick, µs) and ``regret`` (missing: unknown)."""

    def __init__(self, measured: pd.DataFrame, *, large: float = LARGE) -> None:
        self._large = large
        rows = measured[measured["time_us"] > 0].sort_index()
        rows = spread(rows)
        times: dict[str, list[tuple[Coordinates, Problem, float]]] = {}
        regrets: dict[str, list[tuple[Coordinates, float]]] = {}
        for text, time_us, regret in zip(rows.index, rows["time_us"], rows["regret"], strict=True):
            problem = problem_from_text(str(text))
            at = coordinates(problem)
            if at is None or work(problem) is None:
                continue
            times.setdefault(at.operation, []).append((at, problem, float(time_us)))
            if not np.isnan(regret):
                regrets.setdefault(at.any_direction, []).append((at, float(regret)))
        self._times = {name: _Times(found) for name, found in times.items() if len(found) >= LEAST}
        self._regrets: dict[str, _Regrets] = {}
        for found in regrets.values():
            pooled, known = _Regrets(found), Counter(at.operation for at, _ in found)
            self._regrets |= {operation: pooled for operation, count in known.items() if count >= LEAST}

    def predict(self, problems: Sequence[Problem]) -> list[Prediction | None]:
        """In the order of ``problems``; None where fewer than ``LEAST`` of the operation are measured."""
        out: list[Prediction | None] = [None] * len(problems)
        asked: dict[str, list[tuple[int, Coordinates]]] = {}
        for number, problem in enumerate(problems):
            at = coordinates(problem)
            if at is not None and at.operation in self._times and work(problem) is not None:
                asked.setdefault(at.operation, []).append((number, at))
        for operation, found in asked.items():
            for start in range(0, len(found), _CHUNK):
                numbers, places = zip(*found[start : start + _CHUNK], strict=True)
                times = self._times[operation].predict(places, [problems[i] for i in numbers])
                regrets = self._regrets.get(operation)
                made = regrets.predict(places, self._large) if regrets else [(None, None)] * len(places)
                for number, time_us, (regret, risk) in zip(numbers, times, made, strict=True):
                    out[number] = Prediction(time_us, regret, risk)
        return out


class _Times:
    """The times of one operation: their law, and what each deviates from it."""

    def __init__(self, rows: Sequence[tuple[Coordinates, Problem, float]]) -> None:
        places, problems, times = zip(*rows, strict=True)
        terms, logs = _terms(places, problems), np.log(np.array(times))
        self._law = np.linalg.lstsq(terms, logs, rcond=None)[0]
        self._apart = logs - terms @ self._law
        self._measured = _Measured(places)

    def predict(self, places: Sequence[Coordinates], problems: Sequence[Problem]) -> list[float]:
        near, weight = self._measured.near(places)
        logs = _terms(places, problems) @ self._law + (weight * self._apart[near]).sum(axis=1)
        return [float(x) for x in np.exp(logs)]


class _Regrets:
    """The known regrets of an operation in any direction."""

    def __init__(self, rows: Sequence[tuple[Coordinates, float]]) -> None:
        places, regrets = zip(*rows, strict=True)
        self._regrets = np.array(regrets)
        self._measured = _Measured(places)

    def predict(self, places: Sequence[Coordinates], large: float) -> list[tuple[float, float]]:
        """The regret, and the probability that it exceeds ``large``."""
        near, weight = self._measured.near(places)
        regret = self._regrets[near]
        mean = np.clip((weight * regret).sum(axis=1), 0, 1)
        risk = np.clip((weight * (regret > large)).sum(axis=1), DOUBT, 1 - DOUBT)
        return [(float(r), float(p)) for r, p in zip(mean, risk, strict=True)]


class _Measured:
    """Where the measured problems lie, as arrays."""

    def __init__(self, places: Sequence[Coordinates]) -> None:
        self._names: dict[str, int] = {}
        self._at, self._words = self._arrays(places)

    def near(self, places: Sequence[Coordinates]) -> tuple[Numbers, Floats]:
        """Asked × near: the numbers of the nearest measured problems, and what each counts."""
        far = _distances(self._arrays(places), (self._at, self._words))
        near = np.argpartition(far, min(NEAREST, len(self._at)) - 1, axis=1)[:, :NEAREST]
        there = self._at[near], self._words[near]
        return near, _weights(_distances(there, there), np.take_along_axis(far, near, axis=1))

    def _arrays(self, places: Sequence[Coordinates]) -> tuple[Floats, Numbers]:
        names = self._names
        words = [[names.setdefault(x, len(names)) for x in (at.type, at.layout, at.operation)] for at in places]
        return np.array([x.at for x in places]), np.array(words)


def _distances(some: tuple[Floats, Numbers], others: tuple[Floats, Numbers]) -> Floats:
    """… × some × others: how far problems lie apart, each given by its sizes and its words (… × problems × values)."""
    pairs = zip(np.moveaxis(some[0], -1, 0), np.moveaxis(others[0], -1, 0), strict=True)
    squares = sum((x[..., :, None] - y[..., None, :]) ** 2 for x, y in pairs)
    words = zip(_OTHER, np.moveaxis(some[1], -1, 0), np.moveaxis(others[1], -1, 0), strict=True)
    out: Floats = np.sqrt(squares) + sum(further * (x[..., :, None] != y[..., None, :]) for further, x, y in words)
    return out


def _weights(apart: Floats, far: Floats) -> Floats:
    """Asked × near: what each near value counts; they sum to 1.

    ``apart``: asked × near × near, the distances of near problems from each other; ``far``: asked × near.
    """
    alike = np.exp(-apart / _ALIKE) + _NOISE * np.eye(far.shape[1])
    sides = np.stack([np.exp(-far / _ALIKE), np.ones_like(far)], axis=2)
    asked, level = np.moveaxis(np.linalg.solve(alike, sides), 2, 0)
    out: Floats = asked + ((1 - asked.sum(axis=1)) / level.sum(axis=1))[:, None] * level
    return out


def _terms(places: Sequence[Coordinates], problems: Sequence[Problem]) -> Floats:
    sizes = np.log([work(x) or (1.0, 1.0) for x in problems])
    return np.column_stack([np.ones(len(places)), [x.at for x in places], sizes])
