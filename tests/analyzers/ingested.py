"""Build small stores for the tests of analyzers, with real ingest of logs and real records of replays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from analyzers.evidence.origins import CONFIRM, RACE
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Tables
from analyzers.replay.results import measured
from logparse.ingest import ingest, record
from logparse.model import Fact, GemmProblem, Problem, Record, solution_from_text, with_plain
from logparse.store import Store

VALIDATORS = (
    "Validator,PT_VERSION,2.9.1",
    "Validator,HIP_VERSION,701",
    "Validator,HIPBLASLT_VERSION,100000-3b3d59eb",
    "Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-",
    "Validator,ROCBLAS_VERSION,5.0.0.3b3d59eb",
)
HERE = {"arch": "gfx942:sramecc+:xnack-", "cu_count": "304"}


def read(store: Store, folder: Path, files: Mapping[str, str]) -> Tables:
    """Ingest files (given as name → text) as one run, and return the run's tables."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    ingest([str(folder / name) for name in files], store, run="run")
    return tables_of(store)


def tunableop(*rows: tuple[str, str, float], validators: Sequence[str] = VALIDATORS) -> str:
    """Return the text of a TunableOp results file. Each row is (key, solution, milliseconds)."""
    return "\n".join([*validators, *(f"{key},{solution},{ms}" for key, solution, ms in rows)]) + "\n"


def key(n: int, m: int = 4096, k: int = 8192, ldb: int | None = None, op: str = "Gemm") -> str:
    """Return the key that TunableOp writes for a bf16 product with a transposed first operand (TN)."""
    return f"{op}TunableOp_BFloat16_TN,tn_{m}_{n}_{k}_ld_{k}_{ldb or k}_{m}"


def bench(m: int, n: int, k: int, *, ldb: int | None = None, count: int = 1, dtype: str = "bf16_r") -> str:
    """Return ``count`` equal log lines of a product, as hipBLASLt writes them for each call under log mask 32."""
    line = (
        f"hipblaslt-bench --api_method c -m {m} -n {n} -k {k} --lda {k} --ldb {ldb or k} --ldc {m} --ldd {m} "
        "--stride_a 0 --stride_b 0 --stride_c 0 --stride_d 0 --alpha 1.000000 --beta 0.000000 --transA T --transB N "
        f"--batch_count 1 --scaleA 0 --scaleB 0 --a_type {dtype} --b_type {dtype} --c_type {dtype} --d_type {dtype} "
        "--scale_type f32_r --bias_type f32_r --compute_type f32_r --algo_method index --solution_index 7 "
        "--activation_type none\n"
    )
    return line * count


def replayed(
    store: Store,
    problem: Problem,
    race: Mapping[str, float],
    confirmed: str | None = None,
    *,
    facts: Mapping[str, str] = HERE,
    errors: Mapping[str, float] | None = None,
    pick: str = "Default",
) -> None:
    """Record what a replay (timing of single calls) would record: the times of all tried solutions (solution → µs).

    If ``confirmed`` names the winner, also record its confirmation: twelve pairs of times.
    """
    known = [*(Fact(name, value) for name, value in facts.items()), Fact("pick", pick)]
    rows: list[Record] = [
        measured(problem, solution_from_text(text), [us, us], origin=RACE, error=(errors or {}).get(text))
        for text, us in race.items()
    ]
    record(store, [*known, *rows], run="run", name=f"race of {problem.text}", format="replay")
    if confirmed is None:
        return
    # Twelve pairs: times vary a little from pair to pair, and the two times of a pair vary by the same factor.
    drift = [1 + 0.002 * (i - 5.5) for i in range(12)]
    pair = [
        measured(problem, solution, [us * x for x in drift], origin=CONFIRM)
        for solution, us in ((solution_from_text(text), race[text]) for text in (pick, confirmed))
    ]
    verdict = {"problem": problem.text, "pick": pick, "winner": confirmed, "speedup": 0, "low": 0, "high": 0, "p": 0,
            "floor": 0.03}  # fmt: skip
    confirmation = Fact("confirmation", json.dumps(verdict))
    record(store, [*known, confirmation, *pair], run="run", name=f"pair of {problem.text}", format="replay")


def count_units(store: Store, run: str) -> None:
    """Record that the run made 40 steps and that its trace contains two of them.

    A second process without logs made seven steps.
    """
    record(store, [Fact("unit_kinds", '{"a": 2}')], run=run, name="kinds", format="torch-profiler")
    for name, count in (("logged", 40), ("unit_alone", 7)):
        kind = json.dumps({"count": count, "traced": 2, "us": []})
        known = [Fact("unit", "optimizer"), Fact("unit:a", kind), *([Fact(name, "1")] if name == "unit_alone" else [])]
        record(store, known, run=run, name=name, format="job-units")


def product(m: int, n: int, k: int, **more: object) -> GemmProblem:
    """Return the matrix product that a log line of ``bench`` describes."""
    given: dict[str, object] = {
        "trans_a": "T",
        "trans_b": "N",
        "m": m,
        "n": n,
        "k": k,
        "batch_count": 1,
        "beta": "zero",
        "lda": k,
        "ldb": k,
        "ldd": m,
        "compute_type": "f32_r",
        "scale_type": "f32_r",
        "bias": False,
        **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "bf16_r"),
        "activation": "none",
        "gradient": False,
        "aux": False,
        "scale_alpha_vector": False,
    }
    return GemmProblem(**with_plain(given | more))
