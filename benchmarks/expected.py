"""Test how well times are estimated from the best times of comparable problems, with groups of sizes left out.

    python benchmarks/expected.py INPUT … [--device "gfx942 304"] [--folds 10] [--json FILE]

An INPUT is a store, a shipped table (``ARCH-CUS.parquet``), a table of defaults and bests, or any files that ``logparse
ingest`` reads (aiter's tables, find-dbs).  A table of defaults and bests has the columns

    m,n,k,type,op_a,op_b,solutions,best_us,default_us

(column-major; type fp16, bf16 or fp32; output f32).  Such a table does not state a device, so ``--device`` states the
arch and CU count.

    python benchmarks/expected.py --cost 1300000

measures what expected times of so many random products cost: CPU seconds to order the products by their time alone
(without expected times) and by time − expected time (with), by turns.

A group is all sizes that round to the same powers of two.  The groups are distributed over folds.  The times of each
fold are estimated, calibrated and flagged from the other folds alone.  With ``--leave lines``, lines take the place of
groups: all problems that differ in one size only, for example all numbers of tokens for one weight matrix.

| column | meaning |
|---|---|
| error | standard deviation of log(estimate / best), and the median of abs(estimate / best − 1) |
| known | fraction of problems that have an estimate (the roofline and the guess are known for every problem) |
| above | fraction of best times that are above ``high_us``; 5 % is promised |
| AUC | area under the curve (see ``area``) of log(default / estimate), for defaults above 1.2 times the best |
| first 5/10/20 % | fraction of all recoverable time that is in the problems with the largest default − estimate |
| flagged | problems whose default is above ``high_us``; ``right``: fraction of them that gain 10 % or more |
| recovered | fraction of all recoverable time that is in the flagged problems |
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analyzers.evidence.comparable import BestTimes, own_rows
from analyzers.evidence.expected import Comparable, Floats, Ints, groups_of
from analyzers.evidence.expected_times import shipped
from analyzers.evidence.families import parse_sizes
from analyzers.evidence.runs import tables_to_analyse
from logparse.ingest import ingest
from logparse.model import GemmProblem, problem_from_text
from logparse.store import open_store

TYPES = {"fp16": "f16_r", "bf16": "bf16_r", "fp32": "f32_r"}
COLUMNS = {"m", "n", "k", "type", "op_a", "op_b", "best_us", "default_us"}
FAMILIES = (
    *(("T", "N", x) for x in ("bf16_r", "f16_r", "f32_r")),
    *(("N", "N", x) for x in ("bf16_r", "f16_r")),
    ("N", "T", "bf16_r"),
)
"""Transposes and data type of the random matrix products for ``--cost``."""
MEASURED = 12_000
"""How many of the random matrix products for ``--cost`` are treated as measured.

The times of the others are estimated.
"""
GAINS, WORTH = 1.2, 1.1
"""Two limits for the ratio (time of the library's default kernel) / (best time).

* ``GAINS``: if the ratio is larger, the default kernel is slow and should be found.
* ``WORTH``: if the ratio is at least this, it is right to report the default kernel as slow.
"""
FIRST = (0.05, 0.10, 0.20)
TILES = ((16, 32, 64, 96, 128, 160, 192, 224, 256), (16, 32, 64, 96, 128, 160, 192, 224, 256), (16, 32, 64, 128))
"""Sizes m, n and k of the tiles for which the analytical model Origami predicts times (``--origami``)."""
ORIGAMI_DEVICE = (65_536, 4 << 20, 2_100_000)
"""Local memory of a CU (bytes), L2 cache (bytes) and clock (kHz) of an MI300X."""
FEW = (1000, 300, 100)
"""Numbers of measured operators with which the estimates are tested, in addition to all of them.

They show how good the estimates would be with fewer measurements.
"""


@dataclass(frozen=True, eq=False)
class Known:
    """Operators (with sizes) of one device, with their best times. They are used to test estimates of the best times.

    The time of the library's default kernel is NaN if it is unknown.
    """

    name: str
    family: Ints
    at: Floats
    base_us: Floats
    best_us: Floats
    default_us: Floats
    device: str
    texts: Sequence[str]


@dataclass(frozen=True, eq=False)
class Guesses:
    """Estimated times of operators, µs.

    * ``expected_us``: the estimate, NaN if it is unknown.
    * ``high_us``: the upper bound of the estimate.
    * ``guess_us``: a rougher guess, by which operators are ordered.
    """

    expected_us: Floats
    high_us: Floats
    guess_us: Floats


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", nargs="*", metavar="INPUT")
    parser.add_argument("--cost", type=int, metavar="N", help="measure the CPU seconds of N random products")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of --cost")
    parser.add_argument("--device", default="gfx942 304", help="arch and CU count of tables of defaults and bests")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--families", action="store_true", help="a table for each family of products")
    parser.add_argument("--origami", action="store_true", help="compare with rocm-origami, which must be installed")
    parser.add_argument("--leave", choices=("groups", "lines"), default="groups", help="what a fold is made of")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    if not given.inputs and given.cost is None:
        parser.error("state an INPUT or --cost N")
    if given.cost is not None:
        show_cost(given.cost, given.rounds, given.device)
    out: dict[str, list[dict[str, object]]] = {}
    for known in read(given.inputs, given.device, part_of if not given.families else str):
        rows = list(table(known, given.folds, given.leave, given.origami))
        out[known.name] = rows
        print(f"\n**{known.name}**, {len(known.best_us):,} problems\n")
        show(rows)
    if given.json:
        Path(given.json).write_text(json.dumps(out, indent=1), encoding="utf-8")
    return 0


# ----------------------------------------------------------------------------------------------------------- inputs


def read(inputs: Sequence[str], device: str, part_of: Callable[[str], str]) -> Iterator[Known]:
    """Read measured times of matrix products and convolutions from the input files, as sets that are judged separately.

    * A CSV table with default and best times is judged alone, and so is a table of best times that ships with logparse.
    * All other inputs are read together and then divided by GPU and by ``part_of``.
    * ``part_of`` returns the name of the set for a kind of operators, for example "products".
    """
    tables = [x for x in inputs if Path(x).is_file() and x.endswith(".csv") and columns(x) >= COLUMNS]
    for path in tables:
        yield from of_texts(f"{Path(path).name} ({device})", device, part_of, *of_table(path))
    packed = [x for x in inputs if x.endswith(".parquet")]
    for path in packed:
        rows, name = pd.read_parquet(path), Path(path).stem.replace("-", " ")
        times = rows["time_us"].to_numpy(dtype="float64")
        yield from of_texts(name, name, part_of, rows["problem"].tolist(), times, np.full(len(times), np.nan))
    others = [x for x in inputs if x not in tables and x not in packed]
    stores = [x for x in others if Path(x).is_dir() and (Path(x) / "sources").exists()]
    with tempfile.TemporaryDirectory() as folder:
        files = [x for x in others if x not in stores]
        if files:
            ingest(files, open_store(folder, create=True))
            stores.append(folder)
        for store in stores:
            for name, rows in own_rows(tables_to_analyse(open_store(store))).groupby("device"):
                times = rows["time_us"].to_numpy(dtype="float64")
                none = np.full(len(times), np.nan)
                yield from of_texts(str(name), str(name), part_of, rows["problem"].tolist(), times, none)


def columns(path: str) -> set[str]:
    with open(path, encoding="utf-8", newline="") as file:
        return set(next(csv.reader(file), []))


def of_table(path: str) -> tuple[list[str], Floats, Floats]:
    """Read a table with the default time and the best time of matrix products.

    Returns the texts of the products, their best times and their default times.
    """
    with open(path, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["type"] in TYPES]
    texts = [product(row).text for row in rows]
    return texts, *(np.array([float(row[name]) for row in rows]) for name in ("best_us", "default_us"))


def product(row: Mapping[str, str]) -> GemmProblem:
    """Convert a row of a table of matrix products to a ``GemmProblem``.

    The table lacks some values, so they are assumed: the product is not batched, its columns have no gaps, and beta is
    0 (no C is added).
    """
    dtype = TYPES[row["type"]]
    sizes = {name: int(row[name]) for name in ("m", "n", "k")}
    types = {"a_type": dtype, "b_type": dtype, "d_type": "f32_r", "compute_type": "f32_r"}
    words: dict[str, Any] = {"trans_a": row["op_a"], "trans_b": row["op_b"], "beta": "zero", "batch_count": 1}
    return GemmProblem(**words, **sizes, **types)


def of_texts(
    name: str, device: str, part_of: Callable[[str], str], texts: list[str], best_us: Floats, default_us: Floats
) -> Iterator[Known]:
    """Yield the matrix products and the convolutions of one GPU with their times, as separate sets.

    ``part_of`` decides to which set an operator belongs, for example to all matrix products.
    """
    for kind in parse_sizes(texts):
        base_us, parts = kind.base_us(device), dict[str, list[tuple[str, Ints]]]()
        for family, places in kind.by_family():
            parts.setdefault(part_of(family), []).append((family, places))
        for part, families in parts.items():
            places = np.concatenate([x for _, x in families])
            number = np.repeat(np.arange(len(families)), [len(x) for _, x in families])
            rows = kind.rows[places]
            sizes = kind.at[places], base_us[places], best_us[rows], default_us[rows]
            yield Known(f"{name}: {part}", number, *sizes, device, [texts[i] for i in rows.tolist()])


def part_of(family: str) -> str:
    """Return the name of the set in which operators are judged together, for example "products".

    There is one set of all matrix products, and one of the convolutions of each direction. Grouped convolutions are
    sets of their own.
    """
    words = family.split()
    if words[0] not in ("F", "B", "W"):
        return "products"
    grouped = next((x for x in words if x in ("grouped", "depthwise")), "")
    return " ".join(filter(None, ("convolutions", words[0], words[1] if words[1] != "2D" else "", grouped)))


# ------------------------------------------------------------------------------------------------------------- cost


def show_cost(count: int, rounds: int, device: str) -> None:
    """Print how much CPU time (s) it takes to sort ``count`` random matrix products by their possible gain.

    The sorting is measured twice: by the products' times alone, and with an expected best time for each product.
    """
    known, asked = random_products(MEASURED, 1), pd.Series(random_products(count, 2), dtype="str")
    [kind] = parse_sizes(known)
    best_us = np.empty(len(known))
    best_us[kind.rows] = kind.base_us(device) * np.exp(0.3 * np.sin(kind.at.sum(axis=1)))
    rows = pd.DataFrame({"device": device, "problem": known, "time_us": best_us, "source": "own"})
    now_us = np.random.default_rng(3).uniform(10, 1000, count)
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(rounds):
        start = time.process_time()
        np.argsort(-now_us, kind="stable")
        seconds["without"].append(time.process_time() - start)
        start = time.process_time()
        guess_us = BestTimes(device, rows).expect(asked).guess_us
        np.argsort(guess_us - now_us, kind="stable")
        seconds["with"].append(time.process_time() - start)
    print(f"{count:,} products, {MEASURED:,} measured products, CPU seconds of {rounds} rounds (median)")
    for name, times in seconds.items():
        print(f"  {name}: {np.median(times):.2f} ({', '.join(f'{x:.2f}' for x in times)})")


def random_products(count: int, seed: int) -> list[str]:
    """Return the texts of random matrix products. Their sizes are from 1 to 16,384, uniform in the logarithm."""
    random = np.random.default_rng(seed)
    sizes = np.exp2(random.uniform(0, 14, (count, 3))).astype(int).tolist()
    plain = [
        GemmProblem(trans_a=a, trans_b=b, m=2, n=3, k=5, batch_count=1, beta="zero", a_type=x, b_type=x, d_type=x).text
        for a, b, x in FAMILIES
    ]
    parts = [text.split("mnk=2,3,5") for text in plain]
    out = []
    for (m, n, k), family in zip(sizes, random.integers(0, len(plain), count).tolist(), strict=True):
        before, after = parts[family]
        out.append(f"{before}mnk={m},{n},{k}{after}")
    return out


# -------------------------------------------------------------------------------------------------------- estimates


def table(known: Known, folds: int, leave: str, origami: bool) -> Iterator[dict[str, object]]:
    """Yield the rows of the table that this benchmark prints, for one set of matrix products or convolutions.

    Each row shows how good one way of estimating best times is, for example the roofline.
    """
    sets = groups_of(known.at) if leave == "groups" else lines_of(known)
    log_ratio = np.log(known.best_us / known.base_us)
    roofline = known.base_us * np.exp(np.median(log_ratio))
    none = np.full(len(roofline), np.nan)
    yield judged("roofline, one factor", known, Guesses(roofline, none, roofline))
    yield judged("nearest measured problems", known, estimated(known, folds, sets))
    for count in FEW:
        if count < 0.8 * len(known.best_us):
            yield judged(f"the same from {count:,}", known, estimated(known, folds, sets, count))
    if origami:
        modelled = replace(known, base_us=by_origami(known))
        scaled = modelled.base_us * np.exp(np.median(np.log(known.best_us / modelled.base_us)))
        yield judged("Origami, one factor", known, Guesses(scaled, none, scaled))
        yield judged("nearest, ratio to Origami", known, estimated(modelled, folds, sets))
    yield judged("the same, times shuffled", known, estimated(known, folds, sets, shuffled=True))
    if np.isfinite(known.default_us).any():
        yield judged("the shipped times", known, from_shipped(known))
        yield judged("knowing everything", known, Guesses(known.best_us, none, known.best_us))


def by_origami(known: Known) -> Floats:
    """Return the times in µs that AMD's analytical model Origami predicts for matrix products on a gfx942.

    Source: rocm-origami 0.0.3 (MIT, github.com/ROCm/rocm-libraries, shared/origami). No GPU is needed.
    """
    # For each tile size, Origami predicts how many cycles a product takes. The shortest prediction is used. Origami's
    # build script asks for HIP, but only the declarations of HIP's device queries are needed.
    import origami

    arch, cus = known.device.split()
    hardware = origami.get_hardware_for_arch(getattr(origami.architecture_t, arch), int(cus), *ORIGAMI_DEVICE)
    types = {"f16_r": "f16", "bf16_r": "bf16", "f32_r": "f32"}
    out = np.empty(len(known.texts))
    for i, text in enumerate(known.texts):
        gemm = problem_from_text(text)
        assert isinstance(gemm, GemmProblem)
        problem, dtype = origami.problem_t(), origami.string_to_datatype(types[str(gemm.a_type)])
        problem.size, problem.batch = origami.dim3_t(gemm.m, gemm.n, gemm.k), gemm.batch_count
        problem.a_transpose, problem.b_transpose = (
            getattr(origami.transpose_t, str(x)) for x in (gemm.trans_a, gemm.trans_b)
        )
        problem.a_dtype = problem.b_dtype = problem.mi_dtype = dtype
        problem.c_dtype = problem.d_dtype = origami.string_to_datatype(types[str(gemm.d_type)])
        configs = tiles(str(gemm.a_type), hardware, dtype)
        out[i] = origami.select_config(problem, hardware, configs).latency / ORIGAMI_DEVICE[-1] * 1e3
    return out


@cache
def tiles(name: str, hardware: Any, dtype: Any) -> list[Any]:
    """Return Origami's configurations (one for each tile size in ``TILES``) for a data type."""
    import origami

    out = []
    for m, n, k in itertools.product(*TILES):
        config = origami.config_t()
        config.mt, config.mi = origami.dim3_t(m, n, k), hardware.get_recommended_matrix_instruction(dtype)
        config.occupancy = 1
        out.append(config)
    return out


def from_shipped(known: Known) -> Guesses:
    """Estimate the best times on this device from the best times that are shipped with logparse."""
    # The shipped times come from other machines. They are corrected by a factor, which is computed from the times of
    # the library's default kernels on this device.
    none = pd.DataFrame({x: pd.Series(dtype="object") for x in ("device", "problem", "time_us", "source")})
    alone = pd.DataFrame({"problem": known.texts, "time_us": known.default_us})
    found = BestTimes(known.device, none, shipped(known.device)).beside(alone).expect(known.texts)
    return Guesses(found.expected_us, found.high_us, found.guess_us)


def lines_of(known: Known) -> Ints:
    """Group matrix products or convolutions that differ in a single size, for example in the number of tokens.

    Returns for each operator the number of its group.
    """
    out = np.empty(len(known.at), dtype=np.intp)
    for family in np.unique(known.family):
        mine = np.flatnonzero(known.family == family)
        out[mine] = Comparable(known.at[mine], known.base_us[mine], known.best_us[mine]).lines
    _, place = np.unique(np.stack([known.family, out], axis=1), axis=0, return_inverse=True)
    return place.reshape(-1)


def estimated(known: Known, folds: int, sets: Ints, count: int | None = None, shuffled: bool = False) -> Guesses:
    """Estimate the time of each operator from the times of others, so that none is estimated from itself.

    The operators are divided into ``folds`` parts, and each part is estimated from the others. Similar operators (one
    set) are in the same part.

    * ``count`` limits the measured operators to a random sample of this size.
    * ``shuffled`` exchanges the measured times at random, which shows how good the estimates are by chance.
    """
    random = np.random.default_rng(7)
    expected, high, guess = (np.full(len(known.best_us), np.nan) for _ in range(3))
    fold = random.permutation(int(sets.max()) + 1)[sets] % folds
    best_us = known.best_us.copy()
    if shuffled:
        for family in np.unique(known.family):
            mine = np.flatnonzero(known.family == family)
            best_us[mine] = best_us[random.permutation(mine)]
    for number in range(folds):
        measured = np.flatnonzero(fold != number)
        if count is not None:
            measured = np.sort(random.choice(measured, min(count, len(measured)), replace=False))
        for family in np.unique(known.family):
            near = measured[known.family[measured] == family]
            asked = np.flatnonzero((fold == number) & (known.family == family))
            if not len(near) or not len(asked):
                continue
            made = Comparable(known.at[near], known.base_us[near], best_us[near])
            found = made.estimates(known.at[asked], known.base_us[asked])
            expected[asked], high[asked], guess[asked] = found.expected_us, found.high_us, found.guess_us
    return Guesses(expected, high, guess)


def judged(name: str, known: Known, guesses: Guesses) -> dict[str, object]:
    """Compare estimated times of matrix products or convolutions with the true best times.

    Returns one row of the table that this benchmark prints, for example the error of the estimates.
    """
    there = np.isfinite(guesses.guess_us)
    error = np.log(guesses.guess_us[there] / known.best_us[there])
    bounded = np.isfinite(guesses.high_us)
    row: dict[str, object] = {
        "estimate": name,
        "known": float(np.isfinite(guesses.expected_us).mean()),
        "error": float(error.std()) if len(error) else None,
        "median": float(np.median(np.abs(np.expm1(error)))) if len(error) else None,
        "above": float((known.best_us > guesses.high_us)[bounded].mean()) if bounded.any() else None,
    }
    if not np.isfinite(known.default_us).any():
        return row
    gain, saved = known.default_us / known.best_us, known.default_us - known.best_us
    guess = np.where(there, guesses.guess_us, known.default_us)
    order = np.argsort(guess - known.default_us, kind="stable")
    flagged = bounded & (known.default_us > guesses.high_us)
    row["auc"] = area(np.log(known.default_us / guess), gain > GAINS)
    row["first"] = [float(saved[order[: round(len(order) * share)]].sum() / saved.sum()) for share in FIRST]
    row["flagged"] = int(flagged.sum())
    row["right"] = float((gain[flagged] >= WORTH).mean()) if flagged.any() else None
    row["recovered"] = float(saved[flagged].sum() / saved.sum())
    return row


def area(score: Floats, true: Sequence[bool] | Floats) -> float | None:
    """Return the probability that a true case has a higher score than a false one (the area under the ROC curve).

    Returns None if all cases are true or all are false.
    """
    yes = np.asarray(true, dtype=bool)
    if yes.all() or not yes.any():
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((rank[yes].sum() - yes.sum() * (yes.sum() + 1) / 2) / (yes.sum() * (~yes).sum()))


def show(rows: Sequence[Mapping[str, object]]) -> None:
    """Print the rows as a Markdown table."""
    whole = any("auc" in row for row in rows)
    heads = ["estimate", "known", "error (sd of log; median)", "above"]
    heads += ["AUC", "first 5 / 10 / 20 %", "flagged", "right", "recovered"] if whole else []
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        cells = [
            str(row["estimate"]),
            share(row["known"]),
            f"{number(row['error'])}; {share(row['median'])}",
            share(row["above"]),
        ]
        if whole:
            first = row["first"]
            assert isinstance(first, list)
            cells += [number(row["auc"], 3), " / ".join(f"{100 * x:.1f}" for x in first) + " %"]
            cells += [f"{row['flagged']:,}", share(row["right"]), share(row["recovered"])]
        print("| " + " | ".join(cells) + " |")


def share(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) else "–"


def number(value: object, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else "–"


if __name__ == "__main__":
    sys.exit(main())
