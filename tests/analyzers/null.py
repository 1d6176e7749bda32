"""Simulate measurements of kernels that all take the same time, so that a correct analysis must not find a gain.

A simulated time is the true time × a slowly drifting clock × short-term noise, with an outlier now and then. The sizes
are assumptions, on the high side for a GPU without other users:

* Times vary by 1 %.
* The clock drifts by 2 %.
* Once in 50 times, the time is 30 % longer.
* The ratio of the times of two kernels varies by 0.32 % from process to process, as on an H200.
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
from analyzers.replay.confirm import interleave, is_refuted
from analyzers.replay.results import Method
from logparse.model import GemmProblem
from tests.analyzers.build import facts, frame, measurement, tables, work
from tests.analyzers.example import gemm

NOISE, WANDER, HICCUP, HICCUPS, BETWEEN = 0.01, 0.02, 0.3, 1 / 50, 0.0032
RACED, SAMPLES = 12, 3
"""Number of kernels that are tried for each matrix product, and number of times that are measured for each kernel."""


def clock(generator: np.random.Generator, time_us: float) -> Callable[[], float]:
    """Return a function that simulates one measurement on a noisy GPU where every kernel takes ``time_us``."""
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
    """Simulate matrix products for which another kernel seems faster than the library's choice, but only by chance.

    Yields (product, seemingly fastest kernel, new times of both kernels).
    """
    # All kernels are equally fast in truth, with random noise. The new times must show that the kernel is not faster.
    for index in range(problems):
        sample = clock(generator, float(generator.uniform(20.0, 2000.0)))
        times = [median([sample() for _ in range(SAMPLES)]) for _ in range(RACED)]
        winner = int(np.argmin(times))
        if winner:
            yield gemm(64 * (index + 1)), f"hipblaslt:{winner}", processes(generator, sample, floor)


def processes(generator: np.random.Generator, sample: Callable[[], float], floor: float, count: int = 3) -> Pairs:
    """Simulate how several processes measure two equally fast kernels in turns. Returns the pairs of times."""
    # In each process the second kernel is slower or faster than the default one by a small random factor, which stays
    # the same within the process.
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
        if is_refuted(one, floor):
            break
    return pairs


def null_tables(seed: int, problems: int = 20, floor: float = 0.03) -> Tables:
    """Return made-up data of a job in which all kernels are equally fast.

    The data contain the calls of the job, and the results of measuring its kernels.
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
    """Return made-up data with only the calls of a job. All simulated jobs have the same calls."""
    return tables(workload=[work(gemm(64 * (i + 1)).text, 100) for i in range(problems)])


def confirmation(problem: GemmProblem, winner: str, pairs: Pairs, floor: float = 0.03) -> str:
    """Return the result of a second measurement, which confirms a faster kernel, as the text that logparse stores."""
    return confirmation_text(problem.text, "Default", winner, pairs, judge(pairs, floor=floor))
