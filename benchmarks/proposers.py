"""What is lost, and what is saved, when a race tries only proposed solutions: records replayed, no GPU.

    python benchmarks/proposers.py [--html docs/proposers.html] [--results FOLDER]

* ``cudnn F``, ``cudnn B``, ``cudnn W``: the convolutions whose every cuDNN plan the latest H200 record holds
  (``results/fprops-*``, ``dgrads-*`` and ``wgrads-*``, made by ``gpu_replay.py wgrads --direction F --find-db …``);
  plans that refused to run are left out.
* ``cudnn F of models`` …: the same for convolutions of torchvision's models (``results/fprops-models-*`` …, made by
  ``gpu_replay.py wgrads --of-models --direction F``).
* ``torch F`` … ``torch W of models``: the settings of PyTorch in the same records, at most seven per problem.
* ``hipblaslt (simulated)``: 2,226 solutions a problem with planted times: tiles, waves and split-K make them smooth in
  the sizes, and cliffs (a solution that is slow wherever a size has some remainder) are drawn on top.  The problems are
  the GEMMs of language models of nine widths.

Held out: no problem learns from its own model, nor from another one's problem that its own model has as well.  A
find-db names no model: there a group is what shared channel counts connect (same window, stride and groups, and an
equal number of input or output channels, transitively), which holds the layers of a model together.

Each strategy chooses the solutions of each problem; these are raced as ``replay`` races them, on times drawn from the
record, and the proposers choose in that race.  What a search of ``neighbours`` leaves over goes to the problems after
it, in the record's order (``other_orders``: in others).  ``plans`` is the share that is built, ``gpu`` the GPU time of
exhaustive timing (16 samples of everything), ``lost`` the total above the best solutions, ``worst`` that of a problem.
Anchors: TunableOp's two screens (pytorch ``TunableOp.h``) over everything, the first plans in cuDNN's order as
``torch.backends.cudnn.benchmark_limit`` has them, the nearest neighbour alone, random samples, and for cuDNN's plans
KernelTuner's strategies where it is installed (``kernel_tuner_anchor.py``).

Beside ``--counts`` each record has one of its own: a tenth of the mean length of its lists, so that a tenth of all
plans is built.  As many are tried of a short list as of a long one, because that loses less.  It follows from the
target and from nothing that was measured.  The constants of the search (``plan_search.py``) were chosen by the first
three records; those of models judge it.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import kernel_tuner_anchor
import numpy as np
from racing import Bench, Metered, Simulated, _record

from analyzers.measure.backend import Place
from analyzers.measure.proposer import KEPT, Measured, Proposal, fastest
from analyzers.measure.results import Method
from analyzers.measure.trial import REFERENCE
from analyzers.times.nearness import coordinates, distance
from logparse.model import ConvProblem, Problem, Solution, problem_from_text, solution_from_text

RESULTS = Path(__file__).parent / "results"
PLANS_OF, SETTINGS = "cudnn", "torch"
"""The library of plans, and that of PyTorch's settings."""
_KINDS = {"F": "fprops", "B": "dgrads", "W": "wgrads"}
RECORDS = {**_KINDS, **{f"{direction} of models": f"{kind}-models" for direction, kind in _KINDS.items()}}
"""Kinds of the records."""
ORDERS, DRAWS = 5, 4
COUNTS = (4, 8, 12, 16, 24, 32, 48)
PLANS, GPU, LOST, WORST = 0.10, 0.01, 0.01, 0.05
"""The targets of ``neighbours``: at most this share of plans and of GPU time; at most this is lost in all, and once."""

Chosen: TypeAlias = Callable[["Case", Sequence[Measured]], list[Solution]]
Near: TypeAlias = Mapping[str, Sequence[Measured]]
"""What is near a problem, by its text."""


@dataclass(frozen=True)
class Case:
    """A problem with the time (µs) of every solution, the pick first, and the models (or group) it is held out with."""

    problem: Problem
    times_us: Mapping[str, float]
    models: frozenset[str]

    @property
    def offered(self) -> list[Solution]:
        return [solution_from_text(x) for x in self.times_us]


# ------------------------------------------------------------------------------------------------ the data


def latest(kind: str) -> Path:
    """The newest record of a kind: older ones were measured under other settings (TF32) and clocks."""
    return max(RESULTS.glob(f"{kind}-NVIDIA-*.json.gz"), key=lambda path: path.name[-len("2026-11-21.json.gz") :])


def recorded(path: Path, libraries: Sequence[str] = (PLANS_OF,)) -> tuple[list[Case], list[dict[str, Any]]]:
    """The problems of a record with the solutions of libraries that ran; its results, with these alone."""
    found: dict[str, dict[str, Any]] = {}
    for result in _record(str(path))["results"]:
        rows = [x for x in result["rows"] if x["status"] == "ok" and library_of(x["solution"]) in libraries]
        if len(rows) > 1:
            found[result["problem"]] = result | {"rows": rows}
    problems = {text: problem_from_text(text) for text in found}
    models = models_of(list(found.values()))
    cases = [
        Case(problems[text], {x["solution"]: x["time_us"] for x in result["rows"]}, models[text])
        for text, result in found.items()
    ]
    return cases, list(found.values())


def library_of(text: str) -> str:
    """The library of a solution."""
    return solution_from_text(text).library


def models_of(results: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """By problem text the models that a record states, else the problem's group."""
    problems = [problem_from_text(x["problem"]) for x in results if "models" not in x]
    groups = grouped([x for x in problems if isinstance(x, ConvProblem)])
    return {
        x["problem"]: frozenset(x["models"]) if "models" in x else frozenset([groups[x["problem"]]]) for x in results
    }


def grouped(problems: Sequence[ConvProblem]) -> dict[str, str]:
    """By problem text the text of the first problem of its group (see the module)."""
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
"""Hidden sizes of language models."""
SOLUTIONS = 2_226
_CUS = 304


def simulated(seed: int, per_model: int = 4) -> list[Case]:
    """The GEMMs of nine models (projection, attention, two of the MLP; two token counts), with planted times."""
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
                feed = 1 + 40 / np.minimum(tiles[:, 0], tiles[:, 1])  # small tiles wait for memory
                step_us = tiles[:, 0] * tiles[:, 1] * depth / 1.5e6 * feed
                time = (3 + waves * (steps * step_us + 1) + 2 * (split > 1) * np.log2(split)) * quality
                size = np.array([m, n, k])[cliff_size]
                time = np.where(size % cliff_at != 0, 2.5 * time, time)
                times = {f"hipblaslt:{i}": float(x) for i, x in enumerate(time)}
                pick = min(list(times)[:40], key=times.__getitem__)  # the heuristic is good, not the best
                order = dict.fromkeys([pick, *times])
                cases.append(Case(problem, {x: times[x] for x in order}, frozenset([model])))
    return cases


def as_record(cases: Sequence[Case], seed: int) -> list[dict[str, Any]]:
    """Simulated cases as results of a record, with samples that vary by 0.5 %."""
    draw = random.Random(seed)
    return [
        {
            "problem": x.problem.text,
            "rows": [
                {"solution": s, "status": "ok", "time_us": us, "samples_us": [us * draw.gauss(1, 0.005) for _ in "12"]}
                for s, us in x.times_us.items()
            ],
        }
        for x in cases
    ]


# ------------------------------------------------------------------------------------------------ the strategies


class Narrow(Proposal):
    """Never everything: of the problems that a replay searches widely, too, what is proposed counts."""

    def searches_widely(self, problem: Problem) -> bool:
        return False


def library_order(count: int) -> Chosen:
    """The first ``count`` as the library lists them: a benchmark limit."""
    return lambda case, near: case.offered[:count]


def nearest_alone(count: int) -> Chosen:
    """The fastest of the one nearest problem."""

    def chosen(case: Case, near: Sequence[Measured]) -> list[Solution]:
        times = near[0].times_us
        ranked = [x for x in sorted(times, key=times.__getitem__) if x in case.times_us]
        return list(dict.fromkeys([case.offered[0], *map(solution_from_text, ranked)]))[:count]

    return chosen


def at_random(count: int, seed: int) -> Chosen:
    """The pick and others drawn at random."""

    def chosen(case: Case, near: Sequence[Measured]) -> list[Solution]:
        draw = random.Random(f"{seed} {case.problem.text}")
        return [case.offered[0], *draw.sample(case.offered[1:], min(count, len(case.times_us)) - 1)]

    return chosen


def kernel_tuned(strategy: str, count: int, seed: int) -> Chosen:
    """The pick and what a strategy of KernelTuner's evaluates."""

    def chosen(case: Case, near: Sequence[Measured]) -> list[Solution]:
        others = {x: us for x, us in case.times_us.items() if x != case.offered[0].text}
        found = kernel_tuner_anchor.evaluated(others, strategy, count - 1, seed)
        return [case.offered[0], *map(solution_from_text, found)]

    return chosen


def near_of(case: Case, cases: Sequence[Case]) -> list[Measured]:
    """The nearest measured problems that share no model with the case."""
    here = coordinates(case.problem)
    others = [(x, coordinates(x.problem)) for x in cases if not x.models & case.models]
    assert here is not None
    ranked = sorted(others, key=lambda x: (distance(here, x[1]) if x[1] else math.inf, x[0].problem.text))
    return [fastest(Measured(x.problem, x.times_us)) for x, _ in ranked[:KEPT]]


class Restricted(Simulated):
    """Offers only some of the recorded solutions."""

    only: frozenset[str] | None = None

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        offered = super().solutions(problem, limit, workspace_bytes)
        return [x for x in offered if self.only is None or x.text in self.only]


def proposal_of(proposer: str, count: int, case: Case, near: Near, spare: int) -> Narrow:
    """So many of each library, whatever is offered."""
    mine = tuple(near[case.problem.text])
    return Narrow(proposer=proposer, least=count, share=0.0, near=mine, problem=case.problem, spare=spare)


def by_times(cases: Sequence[Case], near: Near, count: int) -> dict[str, float]:
    """What ``neighbours`` tries and loses, one problem after another, where each solution takes its time once."""
    tried, found, spare = 0, [], 0
    for case in cases:
        proposal = proposal_of("neighbours", count, case, near, spare)
        texts = [x.text for x in proposal.tried(case.offered, case.times_us)]
        spare, tried = spare + proposal.left_over(case.offered, texts), tried + len(texts)
        found.append((min(case.times_us[x] for x in texts), min(case.times_us.values())))
    ratios = [us / least_us for us, least_us in found]
    return {
        "plans": tried / sum(len(x.times_us) for x in cases),
        "lost": sum(us for us, _ in found) / sum(least_us for _, least_us in found) - 1,
        "worst": max(ratios) - 1,
        "above_3_percent": sum(x > 1.03 for x in ratios),
    }


def in_other_draws(count: int, seed: int) -> dict[str, Any]:
    """``neighbours`` on ``DRAWS`` other draws of the simulated times."""
    draws = [simulated(seed + 1 + x) for x in range(DRAWS)]
    return {"other_draws": [by_times(x, {y.problem.text: near_of(y, x) for y in x}, count) for x in draws]}


class Table:
    """One record: its cases, what is near each, and the GPU time of timing everything."""

    def __init__(
        self, name: str, cases: Sequence[Case], results: Sequence[Mapping[str, Any]], seed: int, library: str = ""
    ) -> None:
        self.name, self.cases = name, list(cases)
        self._us = {
            x.problem.text: {y: us for y, us in x.times_us.items() if library in ("", library_of(y))} for x in cases
        }
        self._near = {x.problem.text: near_of(x, cases) for x in cases}
        self._backend = Restricted({"environment": {}, "results": results}, seed)
        self._bench = Bench(Metered(self._backend), Method(limit=10_000), math.inf, Place())
        self._exhaustive_us = sum(self._timed(x, self._bench.exhaustive)[1] for x in cases)

    @property
    def tenth(self) -> int:
        """Solutions per problem that are a tenth of all in total."""
        return max(1, int(PLANS * sum(len(x.times_us) for x in self.cases) / len(self.cases)))

    def row(self, strategy: str, count: int, chosen: Chosen) -> dict[str, Any]:
        """A strategy's shares and losses; lost is what the fastest of the tried ones takes more than the best."""
        outcomes = []
        for case in self.cases:
            taken = chosen(case, self._near[case.problem.text])
            self._backend.only = frozenset(x.text for x in taken)
            _, gpu_us = self._timed(case, self._bench.racing)
            self._backend.only = None
            outcomes.append((case, len(taken), min(case.times_us[x.text] for x in taken), gpu_us))
        return self._summed(strategy, count, outcomes)

    def raced(self, proposer: str, count: int) -> dict[str, Any]:
        """What ``replay --propose`` tries, chosen while it races, problem after problem in the record's order."""
        outcomes, spare = [], 0
        for case in self.cases:
            self._bench.ready(case.problem)
            self._bench.backend.gpu_us = 0.0
            result = self._bench.context.measure(case.problem, proposal=self._proposal(proposer, count, case, spare))
            spare += result.left_over
            times_us = self._us[case.problem.text]
            tried = [x.solution.text for x in result.rows if x.solution.text in times_us]
            outcomes.append((case, len(tried), min(times_us[x] for x in tried), self._bench.backend.gpu_us))
        return self._summed(proposer, count, outcomes)

    def in_other_orders(self, count: int, seed: int) -> dict[str, Any]:
        """``neighbours`` with the problems in ``ORDERS`` other orders, as their plans are left to others: plans and
        losses of each by the record's times alone, and the CPU time of the choice.
        """
        draw, started = random.Random(seed), time.process_time()
        found = [by_times(draw.sample(self.cases, len(self.cases)), self._near, count) for _ in range(ORDERS)]
        return {
            "other_orders": found,
            "cpu_s_per_problem": (time.process_time() - started) / (ORDERS * len(self.cases)),
        }

    def _proposal(self, proposer: str, count: int, case: Case, spare: int) -> Narrow:
        return proposal_of(proposer, count, case, self._near, spare)

    def screened(self) -> dict[str, Any]:
        """TunableOp's screens over everything; lost is what its choice takes more than the best."""
        outcomes = []
        for case in self.cases:
            best, gpu_us = self._timed(case, self._bench.tunableop)
            outcomes.append((case, len(case.times_us), case.times_us[best.text], gpu_us))
        return self._summed("TunableOp's screens", 0, outcomes)

    def _timed(self, case: Case, strategy: Callable[..., Solution]) -> tuple[Solution, float]:
        ready = self._bench.ready(case.problem)
        self._bench.backend.gpu_us = 0.0
        return strategy(case.problem, ready), self._bench.backend.gpu_us

    def _summed(self, strategy: str, count: int, outcomes: Sequence[tuple[Case, int, float, float]]) -> dict[str, Any]:
        least = {text: min(times_us.values()) for text, times_us in self._us.items()}
        ratios = [time_us / least[case.problem.text] for case, _, time_us, _ in outcomes]
        return {
            "record": self.name,
            "strategy": strategy,
            "count": count,
            "plans": sum(x[1] for x in outcomes) / sum(map(len, self._us.values())),
            "gpu": sum(x[3] for x in outcomes) / self._exhaustive_us,
            "lost": sum(x[2] for x in outcomes) / sum(least.values()) - 1,
            "worst": max(ratios) - 1,
            "above_3_percent": sum(x > 1.03 for x in ratios),
        }


def rows_of(table: Table, counts: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """Every strategy at every count."""
    if SETTINGS in table.name:
        yield table.raced("neighbours", Proposal.least)
        return
    yield table.screened()
    for count in sorted({*counts, table.tenth}):
        for name in ("neighbours", "portfolio", "heuristic"):
            row = table.raced(name, count)
            if name == "neighbours" and count in (table.tenth, Proposal.least):
                row |= table.in_other_orders(count, seed)
                row |= in_other_draws(count, seed) if "simulated" in table.name else {}
            yield row
        yield table.row("library's order", count, library_order(count))
        yield table.row("nearest alone", count, nearest_alone(count))
        yield table.row("random", count, at_random(count, seed))
    if kernel_tuner_anchor.available() and "cudnn" in table.name:
        for strategy in kernel_tuner_anchor.STRATEGIES:
            yield table.row(f"KernelTuner {strategy}", table.tenth, kernel_tuned(strategy, table.tenth, seed))
    yield table.row("all", 0, lambda case, near: case.offered)


# ------------------------------------------------------------------------------------------------ the program


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the records, print the table, write record and chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default=str(RESULTS))
    parser.add_argument("--html", help="write the curves as a plotly page")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--smoke", action="store_true", help="a few problems of each record, to see that it works")
    options = parser.parse_args(arguments)
    few = slice(0, 12 if options.smoke else None)
    rows = []
    for name, table_cases, table_results in sources(options.seed, few):
        counts = [x * (8 if "simulated" in name else 1) for x in options.counts]
        library = SETTINGS if name.startswith(SETTINGS) else ""
        table = Table(name, table_cases, table_results, options.seed, library)
        models = len(frozenset.union(*(x.models for x in table_cases)))
        plans = sum(len(x.times_us) for x in table_cases)
        print(f"{name}: {len(table_cases)} problems of {models} models or groups, {plans:,} plans")
        for row in rows_of(table, counts, options.seed):
            rows.append(row)
            print(line(row), flush=True)
    made = {"record": "proposers", "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "seed": options.seed, "smoke": options.smoke, "rows": rows}  # fmt: skip
    path = Path(options.results) / f"proposers-replayed-{made['date'][:10]}.json"
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    if options.html:
        Path(options.html).write_text(chart(rows), encoding="utf-8")
    for text in met(rows):
        print(text)
    return 0


def sources(seed: int, few: slice) -> Iterator[tuple[str, Sequence[Case], Sequence[Mapping[str, Any]]]]:
    """Name, cases and results of each record."""
    for library, (name, kind) in itertools.product(("cudnn", SETTINGS), RECORDS.items()):
        cases, results = recorded(latest(kind), (SETTINGS, PLANS_OF) if library == SETTINGS else (library,))
        yield f"{library} {name}", cases[few], results[few]
    planted = simulated(seed)[few]
    yield "hipblaslt (simulated)", planted, as_record(planted, seed)


def line(row: Mapping[str, Any]) -> str:
    """A row as text."""
    shares = f"plans {row['plans']:6.1%}  gpu {row['gpu']:6.2%}  lost {row['lost']:6.2%}  worst {row['worst']:6.1%}"
    return f"  {row['strategy']:32} {row['count'] or '':>4}  {shares}  {row['above_3_percent']:3} above 3 %"


def met(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Per record the count at which ``neighbours`` meets all targets, or what the closest one misses."""
    out = []
    for name in dict.fromkeys(x["record"] for x in rows if SETTINGS not in x["record"]):
        mine = [x for x in rows if x["record"] == name and x["strategy"] == "neighbours"]
        good = [x for x in mine if _within(x)]
        if good:
            out.append(f"{name}: all targets are met with {', '.join(str(x['count']) for x in good)} solutions")
        else:
            within = [x for x in mine if x["plans"] <= PLANS] or mine[:1]
            out.append(f"{name}: not all targets are met; closest:{line(min(within, key=lambda x: x['worst']))}")
    return out


def _within(row: Mapping[str, Any]) -> bool:
    return bool(row["plans"] <= PLANS and row["gpu"] <= GPU and row["lost"] <= LOST and row["worst"] <= WORST)


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Loss against the share of plans, one panel per record."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    names = list(dict.fromkeys(x["record"] for x in rows))
    figure = make_subplots(rows=1, cols=len(names), subplot_titles=names)
    for column, name in enumerate(names, 1):
        for strategy in dict.fromkeys(x["strategy"] for x in rows):
            mine = [x for x in rows if x["record"] == name and x["strategy"] == strategy]
            at = {"x": [x["plans"] for x in mine], "y": [max(1e-5, x["lost"]) for x in mine]}
            figure.add_trace(go.Scatter(**at, name=strategy, mode="lines+markers"), row=1, col=column)
    figure.update_xaxes(type="log", title="share of plans built", tickformat="~%")
    figure.update_yaxes(type="log", title="lost of the total", tickformat="~%")
    return str(figure.to_html(include_plotlyjs="cdn"))


if __name__ == "__main__":
    sys.exit(main())
