"""Fill a store (Parquet folder) for tests of the analyzers, with logs that are really read and times of kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from analyzers.evidence.origins import CONFIRM, RACE
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Tables
from analyzers.replay.results import make_measurement
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
    """Write files (name → text) and read them into the store (Parquet folder) as one run.

    ``MadeTrace`` (``tests/libraries/torch_profiler/made.py``) makes the text of a trace. Returns the tables of the run.
    """
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    ingest([str(folder / name) for name in files], store, run="run")
    return tables_of(store)


def tunableop(*rows: tuple[str, str, float], validators: Sequence[str] = VALIDATORS) -> str:
    """Return the text of a TunableOp results file with the given rows: (key, kernel, milliseconds).

    ``validators`` are the first lines of the file. They name the versions of the libraries.
    """
    return "\n".join([*validators, *(f"{key},{solution},{ms}" for key, solution, ms in rows)]) + "\n"


def key(n: int, m: int = 4096, k: int = 8192, ldb: int | None = None, op: str = "Gemm") -> str:
    """Return TunableOp's name of an m × n × k matrix product in bf16 whose first operand is transposed (TN)."""
    return f"{op}TunableOp_BFloat16_TN,tn_{m}_{n}_{k}_ld_{k}_{ldb or k}_{m}"


def bench(m: int, n: int, k: int, *, ldb: int | None = None, count: int = 1, dtype: str = "bf16_r") -> str:
    """Return the line that hipBLASLt logs for a call of a matrix product (log mask 32), ``count`` times."""
    line = (
        f"hipblaslt-bench --api_method c -m {m} -n {n} -k {k} --lda {k} --ldb {ldb or k} --ldc {m} --ldd {m} "
        "--stride_a 0 --stride_b 0 --stride_c 0 --stride_d 0 --alpha 1.000000 --beta 0.000000 --transA T --transB N "
        f"--batch_count 1 --scaleA 0 --scaleB 0 --a_type {dtype} --b_type {dtype} --c_type {dtype} --d_type {dtype} "
        "--scale_type f32_r --bias_type f32_r --compute_type f32_r --algo_method index --solution_index 7 "
        "--activation_type none\n"
    )
    return line * count


def store_race_times(
    store: Store,
    problem: Problem,
    race: Mapping[str, float],
    confirmed: str | None = None,
    *,
    facts: Mapping[str, str] = HERE,
    errors: Mapping[str, float] | None = None,
    pick: str = "Default",
) -> None:
    """Store made-up times of an operation (kernel → µs), as if ``logparse replay`` had measured them.

    * ``pick`` is the kernel that the library chooses by itself.
    * ``confirmed`` is a faster kernel with a confirmed gain, or None.
    """
    # The operation is a matrix product or a convolution. The gain is confirmed by twelve more times of both kernels.
    known = [*(Fact(name, value) for name, value in facts.items()), Fact("pick", pick)]
    rows: list[Record] = [
        make_measurement(problem, solution_from_text(text), [us, us], origin=RACE, error=(errors or {}).get(text))
        for text, us in race.items()
    ]
    record(store, [*known, *rows], run="run", name=f"race of {problem.text}", format="replay")
    if confirmed is None:
        return
    # Twelve pairs: times vary a little from pair to pair, and the two times of a pair vary by the same factor.
    drift = [1 + 0.002 * (i - 5.5) for i in range(12)]
    pair = [
        make_measurement(problem, solution, [us * x for x in drift], origin=CONFIRM)
        for solution, us in ((solution_from_text(text), race[text]) for text in (pick, confirmed))
    ]
    verdict = {"problem": problem.text, "pick": pick, "winner": confirmed, "speedup": 0, "low": 0, "high": 0, "p": 0,
            "floor": 0.03}  # fmt: skip
    confirmation = Fact("confirmation", json.dumps(verdict))
    record(store, [*known, confirmation, *pair], run="run", name=f"pair of {problem.text}", format="replay")


def count_units(store: Store, run: str) -> None:
    """Store that a job made 40 steps, of which two are in the trace.

    A second process of the job, which wrote no logs, made seven steps.
    """
    record(store, [Fact("unit_kinds", '{"a": 2}')], run=run, name="kinds", format="torch-profiler")
    for name, count in (("logged", 40), ("unit_alone", 7)):
        kind = json.dumps({"count": count, "traced": 2, "us": []})
        known = [Fact("unit", "optimizer"), Fact("unit:a", kind), *([Fact(name, "1")] if name == "unit_alone" else [])]
        record(store, known, run=run, name=name, format="job-units")


def product(m: int, n: int, k: int, **more: object) -> GemmProblem:
    """Return a matrix product with m, n and k as given, and with usual values for everything else, such as bfloat16.

    The function ``bench`` makes the log line of the same product.
    """
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
