"""Does flushing the instruction caches empty them?  Short GEMMs behind kernels of more and more code, on a GPU.

    python benchmarks/instruction_cache.py [--device cuda:0]

Each execution stands between events of its own, behind a kernel of so many statements (``instruction_cache.source``)
that every compute unit runs.  Behind the smallest, the GEMM's code is still in the caches; the column where the times
stop growing has emptied them.  Rounds take turns over the columns; medians, in µs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dataclasses import replace

from analyzers.measure.backend import Conditions, Place
from analyzers.measure.backends.pytorch import BACKEND
from analyzers.measure.device.instruction_cache import InstructionFlush
from analyzers.measure.device.torch_device import torch_device
from analyzers.measure.trial import REFERENCE
from analyzers.statistics.intervals import median
from logparse.model import DEFAULT, GemmProblem

STATEMENTS = (1, 256, 1024, 4096)
SIZES = ((64, 64, 4096), (256, 256, 1024), (512, 512, 4096), (1024, 1024, 1024), (2048, 2048, 2048))
ROUNDS, EXECUTIONS = 15, 32


def gemm(m: int, n: int, k: int) -> GemmProblem:
    """A bf16 product of columns without gaps."""
    types = dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "bf16_r")
    return replace(REFERENCE, m=m, n=n, k=k, lda=m, ldb=k, ldc=m, ldd=m, **types)


def main() -> int:
    """Measure, print a table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    options = parser.parse_args()
    place = Place(device=options.device, flush_instructions=True)
    device, backend = torch_device(place), BACKEND.open(place)
    units = int(device.facts["cu_count"])
    flushes = {count: InstructionFlush(device.torch, device.device, units, count) for count in STATEMENTS}
    rows = []
    print(f"{'':>24}" + "".join(f"{count:>9,}" for count in STATEMENTS))
    for size in SIZES:
        runnable = backend.prepare(gemm(*size), DEFAULT, Conditions())
        times: dict[int, list[float]] = {count: [] for count in STATEMENTS}
        for turn in range(1 + ROUNDS):
            for count, flush in flushes.items():
                device.flush = flush
                time_us = runnable.sample_us(EXECUTIONS)
                if turn:  # the first round compiles and warms up
                    times[count].append(time_us)
        backend.release()
        medians = {count: median(held) for count, held in times.items()}
        rows.append({"m_n_k": size, "time_us": medians, "samples_us": times})
        print(f"{'×'.join(map(str, size)):>24}" + "".join(f"{us:9.2f}" for us in medians.values()), flush=True)
    record = {
        "record": "instruction-cache",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "environment": dict(device.facts),
        "statements": STATEMENTS,
        "results": rows,
    }
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"instruction-cache-{str(device.facts['device']).replace(' ', '-')}-{record['date'][:10]}.json"
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
