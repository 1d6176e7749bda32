"""What times measured on one device are expected to be on another.  Pure.

Between two devices a problem gains at least nothing, as launches and latencies last as long on both, and at most what
their data sheets state for its roofline.  Where nothing was measured on both, the middle of these two, in logarithms,
is expected.  What problems measured on both deviate from it is a linear law in the logarithms of time, flops and bytes
with an offset per operation and type, fitted so that few problems change little and outliers count less.

How good it is: ``docs/proposers.md``, ``benchmarks/predict.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.times.nearness import coordinates, work
from analyzers.times.roofline import input_type
from logparse.devices import Device, device_of
from logparse.model import Problem, problem_from_text
from logparse.target import Facts

GAIN = 0.5
"""Share of the data sheets' ratio, in logarithms, that is expected: the middle is off by the least factor at most."""
_STIFF = (1.0, 2.0, 10.0)  # of the common offset, of one operation and type, of a slope: larger needs more problems
_OUTLIER = 0.3  # from this deviation on, in logarithms, a problem counts less
_ROUNDS = 8

Floats = npt.NDArray[np.float64]


def transferred(times: pd.Series, both: pd.DataFrame, source: Facts, target: Facts) -> pd.Series:
    """``times`` (µs by problem text) of the device with the facts ``source``, as those of the one with ``target``.

    ``both``: by problem text ``source_us`` and ``target_us``, of problems that were measured on both devices.  Problems
    whose size is unknown are left out.
    """
    asked = _Rows(times, source, target)
    moved = np.log(asked.times) + asked.prior
    pairs = _Rows(both["source_us"], source, target)
    if len(pairs.texts) and len(asked.texts):
        wanted = np.log(both.loc[pairs.texts, "target_us"].to_numpy(np.float64) / pairs.times) - pairs.prior
        moved = moved + _Law(pairs, wanted)(asked)
    return pd.Series(np.exp(moved), index=asked.texts, dtype="float64")


class _Rows:
    """Problems whose sizes are known, with what the law looks at."""

    def __init__(self, times: pd.Series, source: Facts, target: Facts) -> None:
        made = [(str(text), float(us), problem_from_text(str(text))) for text, us in times.items() if us > 0]
        rows = [(text, us, x, size) for text, us, x in made if (size := work(x)) is not None]
        self.texts = [text for text, _, _, _ in rows]
        self.times = np.array([us for _, us, _, _ in rows], np.float64)
        sizes = np.array([size for *_, size in rows], np.float64).reshape(-1, 2)
        self.sizes = np.column_stack([np.log(self.times), np.log(sizes)])
        self.groups = [_group(x) for _, _, x, _ in rows]
        self.prior = GAIN * _gains([(x, size) for _, _, x, size in rows], source, target)


class _Law:
    """An offset in all, one per group, and slopes: regularised least squares with Huber's weights."""

    def __init__(self, rows: _Rows, wanted: Floats) -> None:
        self._groups = sorted(set(rows.groups))
        self._middle = rows.sizes.mean(axis=0)
        terms = self._terms(rows)
        offset, group, slope = _STIFF
        stiff = np.diag([offset, *[group] * len(self._groups), *[slope] * rows.sizes.shape[1]])
        weight = np.ones(len(wanted))
        for _ in range(_ROUNDS):
            self._law = np.linalg.solve(terms.T @ (terms * weight[:, None]) + stiff, terms.T @ (weight * wanted))
            weight = _OUTLIER / np.maximum(_OUTLIER, np.abs(wanted - terms @ self._law))

    def __call__(self, rows: _Rows) -> Floats:
        return np.asarray(self._terms(rows) @ self._law, np.float64)

    def _terms(self, rows: _Rows) -> Floats:
        of_group = [[float(x == name) for name in self._groups] for x in rows.groups]
        return np.column_stack([np.ones(len(rows.groups)), np.array(of_group), rows.sizes - self._middle])


def _group(problem: Problem) -> str:
    at = coordinates(problem)
    return f"{at.operation} {at.type}" if at is not None else problem.kind


def _gains(problems: Sequence[tuple[Problem, tuple[float, float]]], source: Facts, target: Facts) -> Floats:
    """The logarithm of the rooflines' ratio; 0 where a device or a type has no data sheet."""
    one, two = device_of(source), device_of(target)
    if one is None or two is None:
        return np.zeros(len(problems))
    found = [(_least(one, x, size, source), _least(two, x, size, target)) for x, size in problems]
    return np.array([np.log(after / before) if before and after else 0.0 for before, after in found], np.float64)


def _least(device: Device, problem: Problem, size: tuple[float, float], facts: Facts) -> float | None:
    dtype = input_type(problem, facts)
    return None if dtype is None else device.least_us(*size, dtype)
