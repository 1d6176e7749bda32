"""Tests of pairs of matrix products that need different kernels, but look the same in hipBLASLt's files.

No subcommand may confuse these products.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.evidence.runs import tables_of
from analyzers.overrides.coverage import coverage
from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import merge
from logparse.ingest import ingest
from logparse.libraries.hipblaslt.tuning_file import TUNING_COLUMNS
from logparse.lookup.ranking import top
from logparse.store import Store

FIRST = "Git Version: abc\n"
COLUMNS = (*TUNING_COLUMNS[:27], "swizzle_a", "swizzle_b", *TUNING_COLUMNS[27:30], "aux_type", *TUNING_COLUMNS[30:])
CALL = (
    "hipblaslt-bench --api_method c -m 256 -n 32 -k 64 --lda 64 --ldb 64 --ldc 256 --ldd 256 --stride_a 0 --stride_b 0 "
    "--stride_c 0 --stride_d 0 --alpha 1.000000 --beta 0.000000 --transA T --transB N --batch_count 1 {more}"
    "--a_type {type} --b_type {type} --c_type bf16_r --d_type bf16_r --scale_type f32_r --bias_type f32_r "
    "--compute_type f32_r --algo_method index --solution_index {index} --activation_type none --any_stride "
    "--rotating 0 --cold_iters 0 --iters 0\n"
)
PRODUCTS: dict[str, tuple[str, dict[str, str], str, str]] = {
    "swizzled": ("bf16_r", {"swizzle_a": "1"}, "--scaleA 0 --scaleB 0 ", "--scaleA 0 --scaleB 0 --swizzleA "),
    "swizzled both": (
        "f16_r", {"swizzle_a": "1", "swizzle_b": "1"}, "--scaleA 0 --scaleB 0 ",
        "--scaleA 0 --scaleB 0 --swizzleA --swizzleB ",
    ),
    "block-scaled": ("f8_r", {"scaleA": "3", "scaleB": "3"}, "--scaleA 1 --scaleB 1 ", "--scaleA 3 --scaleB 3 "),
    "row-scaled": ("f8_r", {"scaleA": "2", "scaleB": "2"}, "--scaleA 1 --scaleB 1 ", "--scaleA 2 --scaleB 2 "),
}  # fmt: skip
"""Pairs of matrix products that need different kernels although hipBLASLt's files cannot tell them apart.

A pair has a type, the values in the row of the special product, and the flags in the log lines of both.
"""


def entry(index: int, us: float, kind: str, **cells: str) -> str:
    values = dict.fromkeys(COLUMNS, "0") | {"a_type": kind, "b_type": kind, "c_type": "bf16_r", "d_type": "bf16_r"}
    values |= dict(
        zip(("m", "n", "k", "lda", "ldb", "ldc", "ldd"), ["256", "32", "64", "64", "64", "256", "256"], strict=True)
    )
    values |= {"transA": "T", "transB": "N", "batch_count": "1", "alpha": "1", "compute_type": "f32_r"}
    values |= {"activation_type": "none", "bias_type": "f32_r", "aux_type": "f32_r", "gcnArchName": "gfx950"}
    values |= {"CUs": "256", "us": str(us), "solution_index": str(index), **cells}
    return f"    {','.join(COLUMNS)}\n    {','.join(values[x] for x in COLUMNS)}\n"


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_row_serves_calls_of_its_own_product_alone(name: str, store: Store, tmp_path: Path) -> None:
    kind, cells, plain, other = PRODUCTS[name]
    scaled = {"scaleA": "1", "scaleB": "1"} if kind == "f8_r" else {}
    rows = {"plain": entry(11, 9.0, kind, **scaled), "other": entry(12, 5.0, kind, **{**scaled, **cells})}
    for path, text in rows.items():
        (tmp_path / f"{path}.txt").write_text(FIRST + text)
    (tmp_path / "job.log").write_text(
        CALL.format(type=kind, index=11, more=plain) + CALL.format(type=kind, index=12, more=other)
    )
    ingest([str(tmp_path / x) for x in ("job.log", "plain.txt", "other.txt")], store)
    shown = {x["pick"]: (x["best"], x["best_us"]) for x in top(store).to_dict("records")}
    assert shown == {f"hipblaslt:{x}": (f"hipblaslt:{x}", us) for x, us in ((11, 9.0), (12, 5.0))}
    tables = tables_of(store)
    for path, text in rows.items():
        found = coverage(inspect(path, (FIRST + text).encode(), {"hipblaslt_version": "100202"}), tables)
        assert found.share("calls") == 0.5, f"{path}: the row serves the call of its own product"
    both = inspect("t.txt", (FIRST + rows["plain"] + rows["other"]).encode(), {"hipblaslt_version": "100202"})
    assert {x.rule for x in both.notes if x.rule in ("conflict", "shared", "products")} == {"products"}
    made = merge([str(tmp_path / "plain.txt"), str(tmp_path / "other.txt")])
    assert [row.solution.id for row in inspect("m", made.files[0].data, {}).rows if row.solution] == ["11", "12"]
    assert made.conflicts == ()


def test_a_call_with_unknown_swizzle_may_be_either_product(store: Store, tmp_path: Path) -> None:
    """If a log line does not say whether an operand is swizzled, its call may be the product with or without swizzle.

    Both are shown as uncertain. hipBLASLt's Trace lines are such lines.
    """
    trace = (
        "[2026-01-01 00:00:00][HIPBLASLT][1][Trace][rocblaslt_matmul] A=0x1 Adesc=[type=R_16BF rows=64 cols=256 ld=64] "
        "B=0x1 Bdesc=[type=R_16BF rows=64 cols=32 ld=64] C=0x1 Cdesc=[type=R_16BF rows=256 cols=32 ld=256] D=0x1 "
        "Ddesc=[type=R_16BF rows=256 cols=32 ld=256] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transA=OP_T "
        "transB=OP_N epilogue=EPILOGUE_DEFAULT biasPointer=0x0] workSpace=0 workSpaceSizeInBytes=0 alpha=1 beta=0 "
        "stream=0 \n"
    )
    (tmp_path / "trace.log").write_text(trace)
    (tmp_path / "t.txt").write_text(FIRST + entry(11, 9.0, "bf16_r") + entry(12, 5.0, "bf16_r", swizzle_a="1"))
    ingest([str(tmp_path / "trace.log"), str(tmp_path / "t.txt")], store)
    with store.connect() as con:
        found = con.execute(
            "select level, fan, count(*) from links "
            "where contains(problem, 'swizzle=?,?') and problem <> other group by all"
        ).fetchall()
    assert found == [("layout", 2, 2)]
