"""Check how reliable ``logparse replay`` is when it reports that another kernel is faster than the default.

* ``gpu_replay.py --repeat`` measures twice, and counts how many reports come again.
* ``gpu_replay.py --null`` counts false reports, about copies of the default kernel.
"""

# The copies are PyTorch's default kernel under other names (COPIES). A copy cannot be faster, so every report is false.

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from intervals import Pair, collect_processes, measured_by

from analyzers.evidence.confirmations import Confirmation, Pairs, judge_all
from analyzers.evidence.statistics.intervals import median
from analyzers.replay.drift import idle_facts, noise
from analyzers.replay.results import Confirmed, Method, Result
from analyzers.replay.scheduler import Outcome
from logparse.libraries.kinds.backend import Backend, BackendType, Conditions, Place, Runnable
from logparse.libraries.pytorch.replay import BACKEND as TORCH
from logparse.model import DEFAULT, Problem, Solution

LEAST_AGAIN, MOST_FALSE = 0.95, 0.01
COPIES_EACH, PAIRS = 8, 300
SHARE_OF_RACES = 0.4
"""The fraction (0 to 1) of the time of ``--null`` in which the search for the fastest kernel is tested.

In the rest of the time, single pairs of kernels are compared in fresh processes.
"""

Replayed: TypeAlias = Callable[
    [argparse.Namespace, Sequence[str], Sequence[Problem], Mapping[str, int], float], tuple[list[Outcome], bool]
]


class CopiesOfDefault:
    """A replay backend with eight kernels that are all the same: PyTorch's default call.

    So every difference that a replay finds between them is false.
    """

    def __init__(self, place: Place) -> None:
        self._inner: Backend = TORCH.open(place)
        self.cache_bytes = self._inner.cache_bytes

    def environment(self) -> Mapping[str, str]:
        return dict(self._inner.environment()) | {"null": "1"}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        self._inner.solutions(problem, 1)  # This line raises an error if torch does not run the problem.
        return [Solution("copy", str(index)) for index in range(min(limit, COPIES_EACH))]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> Runnable:
        return self._inner.prepare(problem, DEFAULT, conditions)

    def refresh(self, seed: int) -> None:
        self._inner.refresh(seed)

    def release(self) -> None:
        self._inner.release()

    def healthy(self) -> bool:
        return self._inner.healthy()


COPIES = BackendType("copies", "PyTorch's default under several names", CopiesOfDefault)


@dataclass(frozen=True)
class Replay:
    """The results of measuring many operators with all their kernels.

    An operator is identified by its text, which includes its sizes.

    * ``raced`` are all operators that were measured.
    * ``kept`` are the operators for which a faster kernel was confirmed.
    """

    raced: frozenset[str]
    judged: Mapping[str, Confirmation]
    kept: frozenset[str]
    winners: Mapping[str, str]


def verdicts(outcomes: Sequence[Outcome]) -> Replay:
    """Decide for which operators a faster kernel was found, by the same rules as ``logparse replay``."""
    # A faster kernel counts only if repeated comparisons with the default confirm it. Many operators are tested at
    # once, so the rules correct for gains that appear by chance.
    confirmed = {x.problem.text: x for x in outcomes if isinstance(x, Confirmed)}
    judged, kept = judge_all({text: x.pairs for text, x in confirmed.items()})
    raced = frozenset(x.problem.text for x in outcomes if isinstance(x, Result) and x.pick_us)
    # A winner whose confirmation the budget cut off is neither found nor refuted.
    unsure = {x.problem.text for x in outcomes if isinstance(x, Result) and x.worth_confirming} - confirmed.keys()
    return Replay(raced - unsure, judged, frozenset(kept), {text: x.winner.text for text, x in confirmed.items()})


def count_found_again(first: Replay, second: Replay) -> dict[str, Any]:
    """Count how many findings (faster kernels) of the first replay are found again by the second replay.

    Only operators that both replays measured are counted.
    """
    common = first.raced & second.raced
    found = first.kept & common
    again = found & second.kept
    ratios = [first.judged[x].speedup.value / second.judged[x].speedup.value for x in again]
    return {
        "problems": len(common),
        "found": len(found),
        "found_again": len(again),
        "share": len(again) / len(found) if found else math.nan,
        "found_only_in_the_second": len((second.kept & common) - first.kept),
        "same_winner": sum(first.winners[x] == second.winners[x] for x in again),
        "median_change_of_speedup": median([abs(math.log(ratio)) for ratio in ratios]),
        "largest_change_of_speedup": max((abs(math.log(ratio)) for ratio in ratios), default=math.nan),
    }


def repeat(
    options: argparse.Namespace,
    backends: Sequence[str],
    problems: Sequence[Problem],
    workspaces: Mapping[str, int],
    replayed: Replayed,
) -> int:
    """Measure the kernels of many operators twice, and compare which faster kernels are found in each measurement.

    Each measurement gets half of the available time.
    """
    started, runs = time.monotonic(), []
    for turn in (1, 2):
        print(f"-- run {turn} of 2: {len(problems)} problems", flush=True)
        outcomes, _ = replayed(options, backends, problems, workspaces, options.budget / 2)
        runs.append((verdicts(outcomes), outcomes))
    (first, outcomes), (second, _) = runs
    both = count_found_again(first, second), count_found_again(second, first)
    found, again = (sum(side[key] for side in both) for key in ("found", "found_again"))
    share = again / found if found else math.nan
    totals = {
        "found": found,
        "found_again": again,
        "share": share,
        "first_to_second": both[0],
        "second_to_first": both[1],
    }
    rows = [
        _row(text, run.judged[text], text in run.kept, turn)
        for turn, run in ((1, first), (2, second))
        for text in run.judged
    ]
    print(f"{again} of {found} findings (counted both ways) came again")
    passed = share >= LEAST_AGAIN
    return _write_record(options, "repeatability", outcomes, totals, rows, passed, time.monotonic() - started)


def null(options: argparse.Namespace, problems: Sequence[Problem], replayed: Replayed) -> int:
    """Test how often ``replay`` reports a gain that does not exist. Return the exit code.

    All kernels are copies of PyTorch's default under other names. A copy cannot be faster than the original, so every
    reported gain is false. First a replay searches for the fastest copy. In the rest of the time, copies are compared
    with each other in fresh processes, in the same way in which ``replay`` confirms a faster kernel.
    """
    started = time.monotonic()
    outcomes, _ = replayed(options, [f"{Path(__file__).stem}:COPIES"], problems, {}, SHARE_OF_RACES * options.budget)
    run = verdicts(outcomes)
    print(f"-- races of copies: {len(run.judged)} flagged, {len(run.kept)} confirmed of {len(run.raced)} problems")
    forced = _compare_with_copies(options, problems, options.budget - (time.monotonic() - started))
    judged, kept = judge_all(forced)
    alone = sum(x.confirmed for x in judged.values())
    tried, false = len(run.raced) + len(forced), len(run.kept) + alone
    totals = {
        "races": len(run.raced),
        "races_flagged": len(run.judged),
        "races_confirmed": len(run.kept),
        "forced": len(forced),
        "forced_confirmed": alone,
        "forced_confirmed_under_control": len(kept),
        "share_false": false / tried if tried else math.nan,
        "upper_95": _upper_bound(false, tried),
    }
    rows = [_row(key, judged[key], key in kept, 1) for key in judged]
    print(f"{false} false findings in {tried} trials; at 95 % confidence the share is below {totals['upper_95']:.2%}")
    passed = totals["share_false"] <= MOST_FALSE
    return _write_record(options, "null", outcomes, totals, rows, passed, time.monotonic() - started)


def _compare_with_copies(options: argparse.Namespace, problems: Sequence[Problem], budget_s: float) -> dict[str, Pairs]:
    """Compare PyTorch's default kernel with copies of itself in fresh processes, in the way in which ``replay`` does.

    Returns the paired times. Any gain that is found is false.
    """
    # No copy is faster than the original.
    wanted = [
        Pair(
            ("copy", problem.text, turn),
            problem,
            Solution("copy", "0"),
            Solution("copy", str(1 + turn % (COPIES_EACH - 1))),
            1.0,
        )
        for turn in range(math.ceil(PAIRS / len(problems)))
        for problem in problems
    ]
    method = Method()
    processes = measured_by(options.device, wanted[:PAIRS], method.processes, method.blocks, budget_s)
    held = [pair for pair in wanted if pair.key in processes[-1].pairs]
    return {f"{key[1]} #{key[2]}": pairs for key, pairs in collect_processes(held, processes).items()}


def _upper_bound(count: int, trials: int) -> float:
    """Return an upper bound for the true fraction of an event that was seen ``count`` times in ``trials`` trials.

    The confidence is 95 % (Clopper and Pearson).
    """
    # If the fraction were larger, so few events would have a probability of less than 5 %. The bound is found by
    # bisection.
    low, high = 0.0, 1.0
    for _ in range(50):
        share = (low + high) / 2
        seen = sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(count + 1))
        low, high = (share, high) if seen > 0.05 else (low, share)
    return high


def _row(text: str, confirmation: Confirmation, kept: bool, run: int) -> dict[str, Any]:
    ratio = confirmation.speedup
    values = {"speedup": ratio.value, "low": ratio.low, "high": ratio.high, "p": confirmation.p}
    return {"run": run, "problem": text, **values, "confirmed": kept}


def _write_record(
    options: argparse.Namespace,
    name: str,
    outcomes: Sequence[Outcome],
    totals: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    passed: bool,
    seconds: float,
) -> int:
    facts = dict(next((x.facts for x in outcomes if x.facts), {}))
    device = str(facts.get("device", "unknown")).replace(" ", "-")
    quiet = dict(idle_facts(options.device))
    record = {
        "record": f"{name} of {options.record}",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seed": options.seed,
        "smoke": options.smoke,
        "environment": facts,
        "remarks": noise(quiet),
        "seconds": round(seconds, 1),
        "summary": totals,
        "passed": passed,
        "confirmations": rows,
    }
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{'-smoke' if options.smoke else ''}-{device}-{record['date'][:10]}.json"
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(json.dumps(totals, indent=1))
    print(f"{'passed' if passed else 'FAILED'}, {seconds:.0f} s on {device}; {path}")
    return 0 if passed else 1
