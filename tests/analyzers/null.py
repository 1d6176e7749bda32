"""Simulate a replay in which every solution takes the same time, and write its results into tables as a replay would.

A correct analysis then finds no gain. A sample is the true time × a slowly drifting clock × short-term noise, with an
outlier now and then. The sizes are assumptions. They are on the high side for a GPU without other users:

* Samples vary by 1 %.
* The clock drifts by 2 %.
* Once in 50 samples the time is 30 % longer.

Between processes the ratio of a pair varies by 0.32 %, as on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from analyzers.evidence.confirmations import Pairs, confirmation_text, judge
from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.statistics.intervals import median
from analyzers.evidence.tables import Tables
from analyzers.replay.confirm import interleave, refuted
from analyzers.replay.results import Method
from logparse.model import GemmProblem
from tests.analyzers.build import facts, frame, measurement, tables, work
from tests.analyzers.example import gemm

NOISE, WANDER, HICCUP, HICCUPS, BETWEEN = 0.01, 0.02, 0.3, 1 / 50, 0.0032
RACED, SAMPLES = 12, 3
"""Number of solutions that are tried per problem, and number of samples of each solution."""


def clock(generator: np.random.Generator, time_us: float) -> Callable[[], float]:
    """Return a function that samples times (µs) on a noisy device where every solution takes ``time_us``."""
    drift = 0.0

    def sample() -> float:
        nonlocal drift
        drift = 0.98 * drift + generator.normal(0.0, WANDER * 0.2)
        hiccup = 1 + HICCUP * (generator.random() < HICCUPS)
        return float(time_us * np.exp(drift + generator.normal(0.0, NOISE)) * hiccup)

    return sample


def confirmations(
    generator: np.random.Generator, problems: int, floor: float
) -> Iterator[tuple[GemmProblem, str, Pairs]]:
    """Yield the problems for which another solution than the library's choice seems fastest, with their confirmations.

    Each item is (problem, winner, pairs of times).
    """
    for index in range(problems):
        sample = clock(generator, float(generator.uniform(20.0, 2000.0)))
        times = [median([sample() for _ in range(SAMPLES)]) for _ in range(RACED)]
        winner = int(np.argmin(times))
        if winner:
            yield gemm(64 * (index + 1)), f"hipblaslt:{winner}", processes(generator, sample, floor)


def processes(generator: np.random.Generator, sample: Callable[[], float], floor: float, count: int = 3) -> Pairs:
    """Return the paired times of two solutions, measured by ``count`` processes.

    In each process the winner is faster or slower by a random factor that stays the same in the process.
    """
    pairs = Pairs((), ())
    for _ in range(count):
        bias = float(np.exp(generator.normal(0.0, BETWEEN)))
        one = interleave(
            0,
            1,
            lambda solution, _block, bias=bias: sample() * (bias if solution else 1.0),  # type: ignore[misc]
            blocks=Method().blocks,
            floor=floor,
        )
        pairs = pairs.joined(one)
        if refuted(one, floor):
            break
    return pairs


def null_tables(seed: int, problems: int = 20, floor: float = 0.03) -> Tables:
    """Return the tables of a store in which all solutions are equal.

    They have its workload and the confirmations of a replay.
    """
    generator = np.random.default_rng(seed)
    rows, found = [], []
    for problem, winner, pairs in confirmations(generator, problems, floor):
        source = f"c{problem.m}"
        for solution, samples in (("Default", pairs.pick_us), (winner, pairs.winner_us)):
            rows.append(
                measurement(
                    problem.text,
                    solution,
                    median(samples),
                    source_id=source,
                    origin=CONFIRM,
                    samples_us=list(samples),
                )
            )
        found += facts(source, arch="gfx942", cu_count="304", confirmation=confirmation(problem, winner, pairs, floor))
    return replace(_called(problems), measurements=frame("measurements", rows), facts=frame("facts", found))


@cache
def _called(problems: int) -> Tables:
    """Return tables with only the called problems, which are the same in all simulated stores."""
    return tables(workload=[work(gemm(64 * (i + 1)).text, 100) for i in range(problems)])


def confirmation(problem: GemmProblem, winner: str, pairs: Pairs, floor: float = 0.03) -> str:
    """Return the value of the fact ``confirmation``, as a replay writes it."""
    return confirmation_text(problem.text, "Default", winner, pairs, judge(pairs, floor=floor))
