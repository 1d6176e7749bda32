"""Test whether the intervals of confirmations contain the true ratio often enough. Needs a GPU.

A confirmation compares the times of two solutions. Two kinds of pairs whose true ratio is known are confirmed as
``logparse replay`` does it, each by several fresh processes, twice:

* *copies*: PyTorch's default GEMM against itself under another name. The truth is 1, so a 95 % interval may exclude it
  in about 5 % of cases.
* *planted*: a memory-bound kernel over all of its rows against the same kernel over 94 to 98 % of them. The second is
  then 2 to 6 % faster, whatever else the device does.

Required:

* At most 6 % of the intervals on copies exclude 1 (of at least 300).
* In at least 90 % of cases (of at least 200), the ratio of a process of the second run is inside the first run's
  prediction.
* At least 90 % of one run's findings between 3 and 5 % are found again by the other run.

The raw record has the log ratio of every block of every process.

    python benchmarks/intervals.py                         # one H200, about 7 minutes
    python benchmarks/intervals.py --device cpu --smoke    # tests only that it runs: a few pairs, no target is tested
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from analyzers.evidence.confirmations import Confirmation, Pairs, judge, judge_all
from analyzers.evidence.statistics.intervals import Interval
from analyzers.replay.results import Method
from analyzers.replay.trial import REFERENCE, ConfirmTask, WorkerContext
from logparse.libraries.kinds.backend import Conditions, Place
from logparse.libraries.kinds.device.operands import GemmOperands
from logparse.libraries.kinds.device.torch_device import TorchRunnable
from logparse.libraries.pytorch.replay import Torch
from logparse.model import DEFAULT, GemmProblem, Problem, Solution

MOST_EXCLUDED, LEAST_INSIDE, LEAST_AGAIN = 0.06, 0.90, 0.90
LEAST_COPIES, LEAST_FRESH = 300, 200
SHARES = (0.980, 0.975, 0.970, 0.967, 0.964, 0.961, 0.958, 0.955, 0.952, 0.948, 0.944, 0.940)
SIZES = (512, 768, 1024, 1536, 2048, 3072, 4096)
_MOST_FLOPS = 1.2e11
_COPIES_EACH = 16
_START_S = 12.0  # A process needs this time to start: it imports torch and opens the device.

Key: TypeAlias = tuple[str, str, int]
"""Identifies a pair of kernels that are compared.

It has three parts: ``copy`` or ``planted``, the text of the GEMM, and the pair's number for this GEMM.
"""


class Known(Torch):
    """Kernels whose true time ratios are known, to test whether ``logparse replay`` measures these ratios correctly.

    * ``copy:N`` is PyTorch's default kernel, so two copies have the ratio 1.
    * ``part:0.95`` takes 95 % of the time of ``part:1.0``.
    """

    # part:SHARE copies only the fraction SHARE of a matrix.

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        super().solutions(problem, 1)  # This line raises an error if torch does not run the problem.
        copies = [Solution("copy", str(index)) for index in range(_COPIES_EACH)]
        return copies + [Solution("part", str(share)) for share in (1.0, *SHARES)]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        if solution.library == "copy":
            return super().prepare(problem, DEFAULT, conditions)
        operands = self.operands(problem, conditions)
        assert isinstance(operands, GemmOperands)
        torch, share = self._device.torch, float(solution.id)
        sources = [operands.memory["d"][i] for i in range(conditions.sets)]
        count = int(sources[0].numel() * share)
        targets = [torch.empty_like(x) for x in sources]

        def call(i: int) -> Any:
            return targets[i][:count].copy_(sources[i][:count])

        return _Unchecked(self._device, operands, call)


class _Unchecked(TorchRunnable):
    """A call whose result is not checked, because it only copies rows and computes no product."""

    def error(self) -> float:
        return 0.0

    def fault(self) -> str:
        return ""


@dataclass(frozen=True)
class Pair:
    """Two kernels for one GEMM, and the true ratio of their times."""

    key: Key
    problem: Problem
    pick: Solution
    winner: Solution
    true: float


def pairs_of(smoke: bool, copies: int) -> list[Pair]:
    """Return the pairs of kernels to compare, in the order in which they are measured."""
    # Pairs of two equal kernels and pairs with a known difference of 2 to 6 % alternate. So both kinds are measured
    # even if the time ends before the list does.
    sizes = (64, 96) if smoke else SIZES
    types = ("f32_r",) if smoke else ("bf16_r", "f16_r")
    problems = [
        _gemm(m, n, k, dtype)
        for k in sizes
        for m in sizes
        for n in sizes
        for dtype in types
        if 2.0 * m * n * k <= _MOST_FLOPS
    ]
    step = max(1, len(problems) * 5 // copies)
    chosen = problems[::step] if not smoke else problems[:2]
    out: list[Pair] = []
    large = _gemm(512, 1024, 64, "f32_r") if smoke else _gemm(8192, 16384, 64, "bf16_r")
    for turn in range(1 if smoke else math.ceil(copies / len(chosen))):
        for index, problem in enumerate(chosen):
            pick, other = Solution("copy", "0"), Solution("copy", str(turn + 1))
            out.append(Pair(("copy", problem.text, turn), problem, pick, other, 1.0))
            if index % 2 == 0:
                number = turn * len(chosen) + index
                share = SHARES[number // 2 % len(SHARES)]
                sized = replace(large, n=large.n + 64 * number)  # type: ignore[operator]
                whole, part = Solution("part", "1.0"), Solution("part", str(share))
                out.append(Pair(("planted", sized.text, number), sized, whole, part, 1 / share))
    return out


def _gemm(m: int, n: int, k: int, dtype: str) -> GemmProblem:
    types = dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), dtype)
    return replace(REFERENCE, m=m, n=n, k=k, lda=m, ldb=k, ldc=m, ldd=m, **types)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Measured:
    """Results of one process: the times of each pair of kernels, the pairs that failed, and facts about the device."""

    pairs: dict[Key, Pairs]
    failed: dict[str, str]
    facts: dict[str, str]
    seconds: float


def one_process(device: str, pairs: Sequence[Pair], turn: int, blocks: int, deadline_s: float) -> Measured:
    """Compare the two kernels of each pair in this process, one pair after the other, until the time is over.

    ``deadline_s`` is the time in seconds. The result says which pairs were measured, and which failed.
    """
    started = time.monotonic()
    place = Place(device=device)
    method = Method(blocks=blocks, floor=-1.0)  # No pair is given up early, because the intervals are measured here.
    context = WorkerContext({"known": Known(place)}, place, method, lambda what: None)
    out: dict[Key, Pairs] = {}
    failed: dict[str, str] = {}
    for pair in pairs:
        if time.monotonic() - started > deadline_s:
            break
        try:
            task = ConfirmTask(problem=pair.problem, pick=pair.pick, winner=pair.winner, turn=turn)
            out[pair.key] = context.run(task).pairs
        except Exception as error:  # The failure of one pair must not lose the record of the others.
            failed[str(pair.key)] = f"{type(error).__name__}: {error}"
            context.release()
    return Measured(out, failed, dict(context.facts), time.monotonic() - started)


def measured_by(device: str, pairs: Sequence[Pair], total: int, blocks: int, budget_s: float) -> list[Measured]:
    """Compare the two kernels of each pair in ``total`` new processes, one after the other.

    The first process measures as many pairs as its time allows. The others measure the same pairs.
    """
    started, done, left = time.monotonic(), list[Measured](), list(pairs)
    for turn in range(total):
        rest = budget_s - (time.monotonic() - started)
        share = rest / (total - turn) - _START_S if turn == 0 else rest  # only the list limits later processes
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            one = pool.submit(one_process, device, left, turn, blocks, max(5.0, share)).result()
        done.append(one)
        left = [pair for pair in left if pair.key in one.pairs]
        print(
            f"process {turn + 1} of {total}: {len(one.pairs)} pairs in {one.seconds:.0f} s, {len(one.failed)} failed",
            flush=True,
        )
        if not left:
            break
    return done


def collect_processes(pairs: Sequence[Pair], processes: Sequence[Measured]) -> dict[Key, Pairs]:
    """Collect the times that several processes measured for the same two kernels, for every pair of kernels."""
    out = {}
    for pair in pairs:
        held = Pairs((), ())
        for process in processes:
            held = held.joined(process.pairs[pair.key])
        out[pair.key] = held
    return out


def summary(pairs: Sequence[Pair], processes: Sequence[Measured]) -> dict[str, Any]:
    """Return the numbers with which the requirements of this benchmark are checked.

    They are fractions and the counts behind them, for example the fraction of intervals that exclude the true ratio.
    """
    half = len(processes) // 2
    runs = [processes[:half], processes[half : 2 * half]]
    judged = [judge_all(collect_processes(pairs, run)) for run in runs]
    copies = [run[pair.key] for run, _ in judged for pair in pairs if pair.key[0] == "copy"]
    fresh = [(judged[0][0][pair.key], runs[1][0].pairs[pair.key]) for pair in pairs]
    inside = [_is_within_prediction(first, judge(second).speedup.value) for first, second in fresh]
    found = again = 0
    for (one, kept), (_, other) in (judged, judged[::-1]):
        between = {key for key in kept if 1.03 <= one[key].speedup.value <= 1.05}
        found, again = found + len(between), again + len(between & other)
    planted = [run[pair.key] for run, _ in judged for pair in pairs if pair.key[0] == "planted"]
    return {
        "copies": len(copies),
        "copies_excluded": _share(not x.speedup.low <= 1 <= x.speedup.high for x in copies),
        "copies_confirmed": sum(key[0] == "copy" for _, kept in judged for key in kept),
        "fresh": len(inside),
        "fresh_inside": _share(inside),
        "found_between_3_and_5_percent": found,
        "found_again": again / found if found else math.nan,
        "planted": len(planted),
        "planted_confirmed": sum(x.confirmed for x in planted),
        "deviation_between_processes": _deviation(pairs, processes),
    }


def prediction(confirmation: Confirmation) -> Interval:
    """Predict which ratio of two kernels' times one more process would measure, as a 95 % interval.

    The given interval is about the mean of n processes.
    """
    # The given interval is narrower. The value of a single further process varies around the mean with a variance that
    # is (n + 1) times as large.
    value = confirmation.speedup.value
    half = math.log(confirmation.speedup.high / value) * math.sqrt(confirmation.processes + 1)
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def _is_within_prediction(first: Confirmation, value: float) -> bool:
    return prediction(first).low <= value <= prediction(first).high


def _share(values: Any) -> float:
    held = list(values)
    return sum(held) / len(held) if held else math.nan


def _deviation(pairs: Sequence[Pair], processes: Sequence[Measured]) -> float:
    """Return how much the measured ratio of the times of two kernels differs from process to process.

    The result is the standard deviation of the ratio's logarithm, computed from all pairs of kernels together.
    """
    squares = degrees = 0.0
    for pair in pairs:
        values = [math.log(judge(process.pairs[pair.key]).speedup.value) for process in processes]
        mean = sum(values) / len(values)
        squares, degrees = squares + sum((x - mean) ** 2 for x in values), degrees + len(values) - 1
    return math.sqrt(squares / degrees) if degrees else math.nan


def missed(made: Mapping[str, Any]) -> list[str]:
    """Return a line for each requirement of this benchmark that is not met."""
    checks = {
        f"copies_excluded {made['copies_excluded']:.1%} of {made['copies']}": made["copies"] >= LEAST_COPIES
        and made["copies_excluded"] <= MOST_EXCLUDED,
        f"fresh_inside {made['fresh_inside']:.1%} of {made['fresh']}": made["fresh"] >= LEAST_FRESH
        and made["fresh_inside"] >= LEAST_INSIDE,
        f"found_again {made['found_again']:.1%} of {made['found_between_3_and_5_percent']}": made["found_again"]
        >= LEAST_AGAIN,
    }
    return [what for what, kept in checks.items() if not kept]


def _blocks(pairs: Pairs) -> list[int]:
    """Return for each block of samples log(time of the library's choice / time of the other kernel), in millionths."""
    return [round(1e6 * math.log(a / b)) for a, b in zip(pairs.pick_us, pairs.winner_us, strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the record, and print the numbers. Returns 1 if a requirement is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--budget", type=float, default=430.0, help="seconds in all")
    parser.add_argument("--copies", type=int, default=170, help="pairs of copies, each of which both runs confirm")
    parser.add_argument("--processes", type=int, default=Method().processes, help="fresh processes of a confirmation")
    parser.add_argument("--blocks", type=int, default=Method().blocks)
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--smoke", action="store_true", help="a few small pairs, to see that it works")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    processes = measured_by(
        options.device,
        pairs_of(options.smoke, options.copies),
        2 * options.processes,
        options.blocks,
        options.budget,
    )
    pairs = [x for x in pairs_of(options.smoke, options.copies) if x.key in processes[-1].pairs]
    if not pairs:
        print(f"nothing was measured: {next((x.failed for x in processes), {})}")
        return 1
    made = summary(pairs, processes)
    facts = processes[0].facts
    device = str(facts.get("device", "unknown")).replace(" ", "-")
    record = {
        "record": "intervals",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "smoke": options.smoke,
        "command": f"benchmarks/intervals.py --device {options.device} --processes {options.processes}",
        "environment": facts,
        "seconds": round(time.monotonic() - started, 1),
        "summary": made,
        "missed": missed(made),
        "failed": {key: why for process in processes for key, why in process.failed.items()},
        "pairs": [
            {
                "kind": pair.key[0],
                "problem": pair.problem.text,
                "true": pair.true,
                "pick_us": round(sorted(processes[0].pairs[pair.key].pick_us)[0], 3),
                "log_ratios_ppm": [_blocks(process.pairs[pair.key]) for process in processes],
            }
            for pair in pairs
        ],
    }
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"intervals{'-smoke' if options.smoke else ''}-{device}-{record['date'][:10]}.json.gz"
    (folder / name).write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
    print(json.dumps(made, indent=1))
    for what in record["missed"]:
        print(f"missed: {what}")
    print(f"{record['seconds']:.0f} s on {device}; {folder / name}")
    return 1 if record["missed"] and not options.smoke else 0


if __name__ == "__main__":
    sys.exit(main())
