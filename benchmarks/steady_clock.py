"""Test whether a GPU's clock settles, and whether samples are taken at the settled clock. The clock is not locked.

    python benchmarks/steady_clock.py                          # one H200, below 2 minutes
    python benchmarks/steady_clock.py --device cpu --smoke     # tests only that it runs; no target is tested

There are three parts.  Each part records every reading of the reference computation that ``SteadyClock`` takes (its
time in µs, and the moment):

* *idle*: the device rests for some seconds, then the reference runs until the clock is settled.  The results are how
  far the first reading lay from the settled one, and how long settling took.
* *load*: blocks of a large bfloat16 product take the device to its power limit.  Each block is checked against the
  reference like a confirmation's blocks.  The results are how many blocks were discarded, and how far the readings
  around a kept block differ.
* *copies*: a product is compared with a copy of itself.  One sample of each is taken right after a rest, with
  ``SteadyClock``'s loop and without it.  The true ratio is 1.

Required: every rest ends in a settled clock, no kept block lies between readings that differ by more than 5 %, and with
the loop the copies differ by less than 1 % in the median.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from analyzers.evidence.statistics.intervals import median
from analyzers.replay.drift import SteadyClock, UnsettledError, idle_facts, noise
from analyzers.replay.sampler import executions
from analyzers.replay.trial import REFERENCE
from logparse.libraries.kinds.backend import Conditions, Place, Runnable
from logparse.libraries.pytorch.replay import BACKEND
from logparse.model import DEFAULT, GemmProblem

MOST_APART, MOST_OFF = 0.05, 0.01


@dataclass
class Watched:
    """A small computation that is timed again and again, because its time shows how fast the GPU's clock is.

    All times are kept, as pairs of (seconds since the start, time in µs).
    """

    runnable: Runnable
    started: float = field(default_factory=time.monotonic)
    read: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self) -> float:
        us = self.runnable.sample_us(8)
        self.read.append((time.monotonic() - self.started, us))
        return us

    @property
    def last_us(self) -> float:
        """The median of the last three readings in µs. ``SteadyClock`` takes three readings at each check."""
        return median([us for _, us in self.read[-3:]])


def main() -> int:
    """Measure how a GPU's clock settles after a rest and under load. Write the results to a file, and print a summary.

    Returns 1 if the clock does not settle well enough.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=8, help="rests of the parts idle and copies")
    parser.add_argument("--rest", type=float, default=3.0, help="seconds of each")
    parser.add_argument("--load", type=float, default=20.0, help="seconds of the large product")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--smoke", action="store_true", help="small and short, to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.rest, options.load = 2, 0.1, 0.5
    started, backend = time.monotonic(), BACKEND.open(Place(device=options.device))

    def product(size: int) -> Runnable:
        """Prepare a square matrix product with ``size`` rows.

        A quick test (``--smoke``) uses a small product in single precision.
        """
        wanted = gemm(64, "f32_r") if options.smoke else gemm(size, "bf16_r")
        return backend.prepare(wanted, DEFAULT, Conditions())

    reference = Watched(product(64) if options.smoke else backend.prepare(REFERENCE, DEFAULT, Conditions()))
    before = dict(idle_facts(options.device))
    parts = {
        "idle": idle(options, reference),
        "load": load(options, reference, product(8192)),
        "copies": copies(options, reference, product(2048), product(2048)),
    }
    record = {
        "record": "steady-clock",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "smoke": options.smoke,
        "environment": dict(backend.environment()),
        "before": before,
        "remarks": noise(before),
        "seconds": round(time.monotonic() - started, 1),
        **parts,
    }
    record["missed"] = missed(record)
    device = str(record["environment"].get("device", "unknown")).replace(" ", "-")
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"steady-clock{'-smoke' if options.smoke else ''}-{device}-{record['date'][:10]}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
    for name, part in parts.items():
        print(f"{name}: {json.dumps({key: value for key, value in part.items() if not isinstance(value, list)})}")
    for what in record["missed"]:
        print(f"missed: {what}")
    print(f"{record['seconds']:.0f} s on {device}; {path}")
    return 1 if record["missed"] and not options.smoke else 0


def gemm(size: int, dtype: str) -> GemmProblem:
    """Return a square matrix product whose columns follow each other without gaps."""
    types = dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), dtype)
    return replace(REFERENCE, m=size, n=size, k=size, lda=size, ldb=size, ldc=size, ldd=size, **types)  # type: ignore[arg-type]


def idle(options: argparse.Namespace, reference: Watched) -> dict[str, Any]:
    """Let the device rest, and measure how long its clock then needs to become steady. This is done several times."""
    rounds = []
    for _ in range(options.rounds):
        time.sleep(options.rest)
        clock_mhz = idle_facts(options.device).get("clock_mhz")
        at, begun = len(reference.read), time.monotonic()
        row: dict[str, Any] = {"clock_mhz": clock_mhz}
        try:
            SteadyClock(reference).settle()
        except UnsettledError as error:
            row["unsettled"] = str(error)
        seen = reference.read[at:]
        row |= {"first_us": seen[0][1], "settled_us": median([us for _, us in seen[-8:]])}
        row |= {"seconds": time.monotonic() - begun, "readings": seen}
        row["clock_mhz_after"] = idle_facts(options.device).get("clock_mhz")
        rounds.append(row)
    settled = [row["settled_us"] for row in rounds]
    return {
        "rests": len(rounds),
        "unsettled": sum("unsettled" in row for row in rounds),
        "median_first_over_settled": median([row["first_us"] / row["settled_us"] for row in rounds]),
        "settled_apart": max(settled) / min(settled) - 1,
        "median_seconds": median([row["seconds"] for row in rounds]),
        "rounds": rounds,
    }


def load(options: argparse.Namespace, reference: Watched, large: Runnable) -> dict[str, Any]:
    """Test the check of the GPU's clock while the GPU is busy with a large matrix product.

    The clock is checked before and after each block of four samples.
    """
    clock, kept, tries, unsettled = SteadyClock(reference), list[dict[str, Any]](), 0, 0
    with contextlib.suppress(UnsettledError):  # as a worker opens: each block is then either kept or refused
        clock.settle()

    def block() -> list[float]:
        nonlocal tries
        tries += 1
        return [large.sample_us(1) for _ in range(4)]

    begun = time.monotonic()
    while time.monotonic() - begun < options.load:
        before, at = reference.last_us, len(reference.read)
        try:
            samples = clock.held(block, every_s=0.0)
        except UnsettledError:
            unsettled += 1
            continue
        discarded = (len(reference.read) - at) // 3 - 1
        around = [
            before,
            *(median([us for _, us in reference.read[i : i + 3]]) for i in range(at, len(reference.read), 3)),
        ]
        kept.append(
            {
                "seconds": time.monotonic() - begun,
                "samples_us": samples,
                "discarded": discarded,
                "apart": abs(around[-1] / around[-2] - 1),
            }
        )
    tail = [median(row["samples_us"]) for row in kept]
    return {
        "blocks": len(kept),
        "discarded": tries - len(kept),
        "unsettled": unsettled,
        "most_apart": max((row["apart"] for row in kept), default=math.nan),
        "first_us": tail[0] if tail else math.nan,
        "last_us": tail[-1] if tail else math.nan,
        "clock_mhz_after": idle_facts(options.device).get("clock_mhz"),
        "kept": kept,
    }


def copies(options: argparse.Namespace, reference: Watched, one: Runnable, other: Runnable) -> dict[str, Any]:
    """Compare a matrix product with an exact copy of itself just after the GPU was idle.

    Returns the logarithm of the ratio of both times, which should be 0.
    """
    # The comparison is made with and without the loop that waits until the GPU's clock is steady.
    count = executions(one.sample_us(4))
    ratios: dict[str, list[float]] = {"held": [], "free": []}
    for _ in range(options.rounds):
        for way, found in ratios.items():
            time.sleep(options.rest)
            clock = SteadyClock(reference)
            if way == "held":
                with contextlib.suppress(UnsettledError):
                    clock.settle()

            def sample(runnable: Runnable) -> Callable[[], float]:
                return lambda: runnable.sample_us(count)

            for runnable in (one, other):  # A confirmation also runs both products once before.
                runnable.sample_us(1)
            with contextlib.suppress(UnsettledError):
                pair = [clock.held(sample(x)) if way == "held" else sample(x)() for x in (one, other)]
                found.append(math.log(pair[0] / pair[1]))
    return {
        "rests": options.rounds,
        **{f"median_off_{way}": median([abs(x) for x in found]) for way, found in ratios.items()},
        **{f"log_ratios_{way}": found for way, found in ratios.items()},
    }


def missed(record: dict[str, Any]) -> list[str]:
    """Return a line for each requirement of this benchmark that is not met."""
    checks = {
        f"{record['idle']['unsettled']} rests did not end in a settled clock": record["idle"]["unsettled"] == 0,
        f"readings {record['load']['most_apart']:.1%} apart around a kept block": record["load"]["most_apart"]
        <= MOST_APART,
        f"copies {record['copies']['median_off_held']:.1%} apart": record["copies"]["median_off_held"] <= MOST_OFF,
    }
    return [what for what, kept in checks.items() if not kept]


if __name__ == "__main__":
    sys.exit(main())
