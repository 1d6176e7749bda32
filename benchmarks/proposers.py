"""Measure what a race loses and saves if it tries only some solutions. Recorded races are used, without a GPU.

    python benchmarks/proposers.py [--results FOLDER] [--counts 8 16 32 …]

* ``cudnn F``, ``cudnn B``, ``cudnn W``: convolutions with the times of all cuDNN plans, from the latest H200 record
  (``results/fprops-*``, ``dgrads-*`` and ``wgrads-*``, made by ``gpu_replay.py wgrads --direction F --find-db …``).
  Plans that refused to run are left out.
* ``cudnn F of models`` …: the same for convolutions of torchvision's models (``results/fprops-models-*`` …, made by
  ``gpu_replay.py wgrads --of-models --direction F``).
* ``hipblaslt (simulated)``: 2,226 solutions per problem with planted times.  Tiles, waves and split-K make the times
  smooth in the sizes.  Cliffs (a solution that is slow if a size has some remainder) are drawn on top.  The problems
  are the GEMMs of language models of nine widths.

``held out``: all times of all other problems are known.  But a problem learns neither from the problems of its own
model, nor from another model's problem that its own model has as well.  A find-db names no model, so problems are put
into groups instead: problems with the same window, stride and groups, and an equal number of input or output channels,
belong to one group (transitively).  ``empty``: as on an empty store, each problem learns from the solutions that were
tried before it, in the record's order.

``search`` is ``replay --propose neighbours``.  ``by turns`` is a simple rival without a search: it takes the winners of
the nearest problems and the library's order by turns, and stops at a number of solutions.  ``plans`` is the fraction of
solutions that were tried.  ``lost`` is the total time over the total time of the best solutions, minus one.  ``worst``
is the largest such loss of a single problem.  The constants of the search (``plan_search.py``) were chosen by the first
three records.  The records of models judge it.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from racing import _record

from analyzers.replay.experience import KEPT, Measured, coordinates, distance
from analyzers.replay.proposer import NEAR, Proposal, by_turns
from analyzers.replay.trial import REFERENCE
from logparse.model import ConvProblem, Problem, Solution, problem_from_text, solution_from_text

RESULTS = Path(__file__).parent / "results"
PLANS_OF, SETTINGS = "cudnn", "torch"
"""Names of two libraries in the records: the one whose kernels are cuDNN's plans, and PyTorch's settings."""
_KINDS = {"F": "fprops", "B": "dgrads", "W": "wgrads"}
RECORDS = {**_KINDS, **{f"{direction} of models": f"{kind}-models" for direction, kind in _KINDS.items()}}
"""Which records are read: the name in the printed table, and the beginning of the file's name."""
SEARCH, BY_TURNS = "search", "by turns"
COUNTS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128)
"""How many kernels the simple strategy ``by turns`` tries per operator. Simulated operators get eight times as many."""

Near: TypeAlias = Mapping[str, Sequence[Measured]]
"""The nearest measured operators for each operator (with sizes), by its text."""


@dataclass(frozen=True)
class Case:
    """An operator (with sizes) with the measured time (µs) of every kernel.

    The library's choice comes first. ``models`` are the names of the models that contain the operator, or of its group.
    Operators that share a model do not learn from each other.
    """

    problem: Problem
    times_us: Mapping[str, float]
    models: frozenset[str]

    @property
    def offered(self) -> list[Solution]:
        return [solution_from_text(x) for x in self.times_us]


# ------------------------------------------------------------------------------------------------ the data


def latest(kind: str) -> Path:
    """Return the newest record of a kind. Older records were measured with other settings (TF32) and clocks."""
    return max(RESULTS.glob(f"{kind}-NVIDIA-*.json.gz"), key=lambda path: path.name[-len("2026-11-21.json.gz") :])


def recorded(path: Path, libraries: Sequence[str] = (PLANS_OF,)) -> list[Case]:
    """Return the operators of a record, with the times of the kernels that ran and belong to ``libraries``."""
    found: dict[str, dict[str, Any]] = {}
    for result in _record(str(path))["results"]:
        rows = [x for x in result["rows"] if x["status"] == "ok" and library_of(x["solution"]) in libraries]
        if len(rows) > 1:
            found[result["problem"]] = result | {"rows": rows}
    problems = {text: problem_from_text(text) for text in found}
    models = models_of(list(found.values()))
    return [
        Case(problems[text], {x["solution"]: x["time_us"] for x in result["rows"]}, models[text])
        for text, result in found.items()
    ]


def library_of(text: str) -> str:
    """Return the library to which a kernel belongs, from the kernel's text."""
    return solution_from_text(text).library


def models_of(results: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return which models contain each operator, as the record states it. The keys are the operators' texts.

    If the record names no models, the operator's group is used instead.
    """
    problems = [problem_from_text(x["problem"]) for x in results if "models" not in x]
    groups = grouped([x for x in problems if isinstance(x, ConvProblem)])
    return {
        x["problem"]: frozenset(x["models"]) if "models" in x else frozenset([groups[x["problem"]]]) for x in results
    }


def grouped(problems: Sequence[ConvProblem]) -> dict[str, str]:
    """Map each convolution's text to the name of its group, which is the text of the group's first convolution.

    The module's docstring defines the groups.
    """
    first: dict[str, str] = {x.text: x.text for x in problems}

    def root(text: str) -> str:
        while first[text] != text:
            text = first[text]
        return text

    seen: dict[tuple[object, ...], str] = {}
    for x in problems:
        window = (x.filter_d, x.filter_h, x.filter_w, x.stride_d, x.stride_h, x.stride_w, x.groups)
        for key in ((*window, "c", x.c), (*window, "k", x.k)):
            first[root(x.text)] = root(seen.setdefault(key, x.text))
    return {x.text: root(x.text) for x in problems}


_WIDTHS = {
    "gpt2": 768,
    "gpt2-medium": 1024,
    "gpt2-large": 1280,
    "1.5b": 1536,
    "3b": 2560,
    "7b": 4096,
    "13b": 5120,
    "34b": 6656,
    "70b": 8192,
}
"""Hidden sizes of the language models whose GEMMs are simulated."""
SOLUTIONS = 2_226
_CUS = 304


def simulated(seed: int, per_model: int = 4) -> list[Case]:
    """Return the GEMMs of nine language models with invented times.

    Each model has a projection, attention and two GEMMs of the MLP, with two numbers of tokens.
    """
    draw = np.random.default_rng(seed)
    tiles = draw.choice([16, 32, 64, 96, 128, 160, 192, 256], size=(SOLUTIONS, 2))
    depth, split = draw.choice([16, 32, 64], SOLUTIONS), draw.choice([1, 2, 4, 8], SOLUTIONS, p=[0.7, 0.1, 0.1, 0.1])
    quality = np.exp(np.abs(draw.normal(0, 0.15, SOLUTIONS)))
    cliff_size, cliff_at = draw.integers(0, 3, SOLUTIONS), draw.choice([128, 256, 512], SOLUTIONS)
    cases = []
    for model, width in _WIDTHS.items():
        shapes = [(width, width), (3 * width, width), (4 * width, width), (width, 4 * width)]
        for m, k in shapes:
            for n in draw.choice([256, 512, 1000, 2048, 4096, 8192], per_model // len(shapes), replace=False):
                problem = replace(REFERENCE, m=m, n=int(n), k=k, lda=m, ldb=k, ldc=m, ldd=m, a_type="bf16_r")
                groups = np.ceil(m / tiles[:, 0]) * np.ceil(n / tiles[:, 1]) * split
                waves = np.ceil(groups / _CUS)
                steps = np.ceil(k / split / depth)
                feed = 1 + 40 / np.minimum(tiles[:, 0], tiles[:, 1])  # Small tiles wait for memory.
                step_us = tiles[:, 0] * tiles[:, 1] * depth / 1.5e6 * feed
                time = (3 + waves * (steps * step_us + 1) + 2 * (split > 1) * np.log2(split)) * quality
                size = np.array([m, n, k])[cliff_size]
                time = np.where(size % cliff_at != 0, 2.5 * time, time)
                times = {f"hipblaslt:{i}": float(x) for i, x in enumerate(time)}
                pick = min(list(times)[:40], key=times.__getitem__)  # the heuristic is good, but not the best
                order = dict.fromkeys([pick, *times])
                cases.append(Case(problem, {x: times[x] for x in order}, frozenset([model])))
    return cases


# ------------------------------------------------------------------------------------------------ the strategies


def near_of(case: Case, cases: Sequence[Case]) -> list[Measured]:
    """Return the measured operators that most resemble this one, but none that share a model with it."""
    return nearest(case, [Measured(x.problem, x.times_us) for x in cases if not x.models & case.models])


def nearest(case: Case, measured: Sequence[Measured]) -> list[Measured]:
    """Return the measured operators with the same operation that most resemble this one."""
    here = coordinates(case.problem)
    assert here is not None
    far = [(distance(here, at) if (at := coordinates(x.problem)) else math.inf, x.problem.text, x) for x in measured]
    ranked = sorted((x for x in far if x[0] < math.inf), key=lambda x: x[:2])
    return [x.fastest() for _, _, x in ranked[:KEPT]]


def tried_of(case: Case, near: Sequence[Measured], strategy: str, count: int) -> list[Solution]:
    """Return the kernels that a strategy tries for an operator.

    ``near`` are the most similar measured operators. The strategy ``by turns`` tries the first ``count`` kernels of its
    list, or the whole list if too few operators are near. The strategy ``search`` tries as many kernels as a search
    with this ``count`` wants.
    """
    offered = case.offered
    if strategy == SEARCH:
        return searched(Proposal(problem=case.problem, near=tuple(near), least=count, share=0.0), case)
    order = by_turns(offered, near) if len(near) >= NEAR else offered
    return list(dict.fromkeys([offered[0], *order]))[: count if len(near) >= NEAR else None]


def searched(proposal: Proposal, case: Case) -> list[Solution]:
    """Return the kernels that ``replay`` tries for an operator if it follows this proposal."""
    chosen, following = proposal.chosen(case.offered), proposal.further(case.offered)
    found: dict[str, float | None] = {x.text: case.times_us[x.text] for x in chosen}
    while following is not None and (one := following(found)) is not None:
        chosen.append(one)
        found[one.text] = case.times_us[one.text]
    return chosen


def summed(cases: Sequence[Case], near: Near | None, strategy: str, count: int) -> dict[str, Any]:
    """Return which fraction of all kernels a strategy tries, and how much time its choices lose, over all operators.

    Without ``near``, nothing is known at the beginning, and the strategy learns from what it tries.
    """
    tried, found, before = 0, [], list[Measured]()
    for case in cases:
        known = near[case.problem.text] if near is not None else nearest(case, before)
        took = [x.text for x in tried_of(case, known, strategy, count)]
        before.append(Measured(case.problem, {x: case.times_us[x] for x in took}))
        tried += len(took)
        found.append((min(case.times_us[x] for x in took), min(case.times_us.values())))
    ratios = [us / least_us for us, least_us in found]
    return {
        "plans": tried / sum(len(x.times_us) for x in cases),
        "lost": sum(us for us, _ in found) / sum(least_us for _, least_us in found) - 1,
        "worst": max(ratios) - 1,
        "above_5_percent": sum(x > 1.05 for x in ratios),
    }


def rows_of(name: str, cases: Sequence[Case], counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table for one record.

    There is a row for the search with the settings of ``replay``, and a row for the strategy ``by turns`` with each
    count. This is done twice: first each operator learns from all other operators (``held out``), then nothing is known
    at the beginning (``empty``).
    """
    times, least = (8, math.ceil(SOLUTIONS / 10)) if "simulated" in name else (1, Proposal.least)
    held_out = {x.problem.text: near_of(x, cases) for x in cases}
    for learns, near in (("held out", held_out), ("empty", None)):
        for strategy, count in ((SEARCH, least), *((BY_TURNS, times * x) for x in counts)):
            row = {"record": name, "learns": learns, "strategy": strategy, "count": count}
            yield row | summed(cases, near, strategy, count)


def saved(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line per record: how much time the search loses, and how many kernels it need not try.

    It is compared with the strategy ``by turns`` with the fewest kernels that loses no more time than the search, in
    total and for the worst operator.
    """
    for name, learns in itertools.product(dict.fromkeys(x["record"] for x in rows), ("held out", "empty")):
        mine = [x for x in rows if (x["record"], x["learns"]) == (name, learns)]
        search = mine[0]
        enough = [x["plans"] for x in mine[1:] if x["lost"] <= search["lost"] and x["worst"] <= search["worst"]]
        rival = min(enough, default=1.0)
        share = 1 - search["plans"] / rival
        losses = f"lost {search['lost']:.2%}, worst {search['worst']:.1%}"
        yield f"{name}, {learns}: {losses}: search {search['plans']:.1%}, by turns {rival:.1%}, spared {share:.0%}"


# ------------------------------------------------------------------------------------------------ the program


def main(arguments: Sequence[str] | None = None) -> int:
    """Apply both strategies to the records, print the table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default=str(RESULTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--smoke", action="store_true", help="a few problems of each record, to see that it works")
    options = parser.parse_args(arguments)
    few = slice(0, 12 if options.smoke else None)
    rows = []
    for name, cases in sources(options.seed):
        for row in rows_of(name, cases[few], options.counts):
            rows.append(row)
            print(line(row), flush=True)
    made = {"record": "proposers", "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "seed": options.seed, "smoke": options.smoke, "rows": rows}  # fmt: skip
    path = Path(options.results) / f"proposers-replayed-{made['date'][:10]}.json"
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print("\n".join(saved(rows)))
    return 0


def sources(seed: int) -> Iterator[tuple[str, Sequence[Case]]]:
    """Yield the name of each record with its operators."""
    for name, kind in RECORDS.items():
        yield f"cudnn {name}", recorded(latest(kind))
    yield "hipblaslt (simulated)", simulated(seed)


def line(row: Mapping[str, Any]) -> str:
    """Return a row of the table as text."""
    shares = f"plans {row['plans']:6.1%}  lost {row['lost']:6.2%}  worst {row['worst']:6.1%}"
    return f"{row['record']:22} {row['learns']:8} {row['strategy']:8} {row['count']:4}  {shares}"


if __name__ == "__main__":
    sys.exit(main())
