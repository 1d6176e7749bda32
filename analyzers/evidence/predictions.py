"""What unmeasured problems will take, and whether their pick is slow: from the nearest measured ones.  Pure.

Nearest neighbours, because the data of one store are small and differ from store to store: nothing is trained before,
nothing is downloaded.  The logarithm of a time is a linear law in the logarithms of flops, bytes and sizes, fitted per
operation, plus the weighted mean of what the nearest problems (``nearness``) deviate from it.  The weights are those of
ordinary kriging (Cressie, Statistics for Spatial Data, 1993, 3.2): of problems that are near to each other as well each
counts less.  A prediction orders work and is shown as one; it is no measurement, no saving, and no ground for an
override.

How good it is: ``docs/proposers.md``, ``benchmarks/predict.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.evidence.nearness import OTHER_LAYOUT, OTHER_TYPE, Coordinates, coordinates, work
from logparse.model import Problem, problem_from_text

LEAST = 16
"""With fewer measured problems of an operation no prediction is made."""
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

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """``time_us`` of the pick; ``regret``: the share of it that the best solution is expected to save; ``risk``: the
    probability that the regret exceeds ``LARGE``.  Both are None where no near problem's regret is known.
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
        found: dict[str, list[tuple[Coordinates, Problem, float, float]]] = {}
        for text, time_us, regret in zip(rows.index, rows["time_us"], rows["regret"], strict=True):
            problem = problem_from_text(str(text))
            at = coordinates(problem)
            if at is not None and work(problem) is not None:
                found.setdefault(at.operation, []).append((at, problem, float(time_us), float(regret)))
        self._operations = {name: _Operation(rows) for name, rows in found.items() if len(rows) >= LEAST}

    def predict(self, problems: Sequence[Problem]) -> list[Prediction | None]:
        """In the order of ``problems``; None where fewer than ``LEAST`` of the operation are measured."""
        out: list[Prediction | None] = [None] * len(problems)
        asked: dict[str, list[int]] = {}
        at = [coordinates(x) for x in problems]
        for number, (there, problem) in enumerate(zip(at, problems, strict=True)):
            if there is not None and there.operation in self._operations and work(problem) is not None:
                asked.setdefault(there.operation, []).append(number)
        for operation, numbers in asked.items():
            for start in range(0, len(numbers), _CHUNK):
                chunk = numbers[start : start + _CHUNK]
                places = [x for x in (at[i] for i in chunk) if x is not None]
                made = self._operations[operation].predict(places, [problems[i] for i in chunk], self._large)
                for number, prediction in zip(chunk, made, strict=True):
                    out[number] = prediction
        return out


class _Operation:
    """The measured problems of one operation as arrays, and their law."""

    def __init__(self, rows: Sequence[tuple[Coordinates, Problem, float, float]]) -> None:
        places, problems, times, regrets = zip(*rows, strict=True)
        self._names: dict[str, int] = {}
        self._at, self._type, self._layout = self._arrays(places)
        self._regret = np.array(regrets)
        terms, logs = _terms(self._at, problems), np.log(np.array(times))
        self._law = np.linalg.lstsq(terms, logs, rcond=None)[0]
        self._apart = logs - terms @ self._law

    def predict(self, places: Sequence[Coordinates], problems: Sequence[Problem], large: float) -> list[Prediction]:
        at, type, layout = self._arrays(places)
        far = np.sqrt(((self._at[None] - at[:, None]) ** 2).sum(axis=2))
        far += OTHER_TYPE * (self._type != type[:, None]) + OTHER_LAYOUT * (self._layout != layout[:, None])
        near = np.argpartition(far, min(NEAREST, len(self._at)) - 1, axis=1)[:, :NEAREST]
        apart = np.sqrt(((self._at[near][:, :, None] - self._at[near][:, None]) ** 2).sum(axis=3))
        for codes, further in ((self._type[near], OTHER_TYPE), (self._layout[near], OTHER_LAYOUT)):
            apart += further * (codes[:, :, None] != codes[:, None])
        far = np.take_along_axis(far, near, axis=1)
        regret = self._regret[near]
        known = ~np.isnan(regret)
        weight = _weights(apart, far, np.ones_like(known))
        logs = _terms(at, problems) @ self._law + (weight * self._apart[near]).sum(axis=1)
        if not known.all():
            weight = _weights(apart, far, known)
        mean = np.clip((weight * np.nan_to_num(regret)).sum(axis=1), 0, 1)
        risk = np.clip((weight * (regret > large)).sum(axis=1), DOUBT, 1 - DOUBT)
        return [
            Prediction(float(np.exp(x)), *((float(r), float(p)) if k else (None, None)))
            for x, r, p, k in zip(logs, mean, risk, known.any(axis=1), strict=True)
        ]

    def _arrays(self, places: Sequence[Coordinates]) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        names = self._names
        type = np.array([names.setdefault(x.type, len(names)) for x in places])
        layout = np.array([names.setdefault(x.layout, len(names)) for x in places])
        return np.array([x.at for x in places]), type, layout


def _weights(apart: Floats, far: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    """Asked × near: what each known near value counts; they sum to 1 (to 0 where none is known).

    ``apart``: asked × near × near, the distances of near problems from each other; ``far``: asked × near.
    """
    alike = np.exp(-apart / _ALIKE) * known[:, :, None] * known[:, None]
    place = np.arange(far.shape[1])
    alike[:, place, place] += np.where(known, _NOISE, 1.0)  # an unknown one is alike to itself alone
    ones = known.astype(np.float64)
    asked, level = np.moveaxis(np.linalg.solve(alike, np.stack([np.exp(-far / _ALIKE) * ones, ones], axis=2)), 2, 0)
    total = level.sum(axis=1)
    share = np.divide(1 - asked.sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
    out: Floats = asked + share[:, None] * level
    return out


def _terms(at: Floats, problems: Sequence[Problem]) -> Floats:
    sizes = np.log([work(x) or (1.0, 1.0) for x in problems])
    return np.column_stack([np.ones(len(at)), at, sizes])
