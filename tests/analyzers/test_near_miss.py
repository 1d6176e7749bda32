from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import near_miss
from analyzers.analyzer import Settings, Tables
from analyzers.near_miss import KEYS, Difference, difference
from analyzers.stale_override import MIOPEN, TUNABLEOP, TUNING_FILE
from logparse.model import ConvProblem
from logparse.store import Store
from tests.analyzers.build import measurement, tables, work
from tests.analyzers.example import B, W, gemm
from tests.analyzers.ingested import bench, key, product, read, tunableop

P = product(4096, 512, 8192)


def planted() -> Tables:
    """A row of TunableOp whose leading dimension of A is not that of the calls."""
    row = measurement(gemm(6000, lda=2048).text, "hipblaslt:4", 9.0, source_id="tuned", origin="tunableop")
    tuned = {"source_id": "tuned", "run": "r", "path": "tunableop_results0.csv", "format": TUNABLEOP}
    return tables(sources=[tuned], measurements=[row], workload=[work(gemm(6000).text, 7)])


def test_a_leading_dimension_that_a_view_made_larger(store: Store, tmp_path: Path) -> None:
    rows = tunableop((key(512), "Gemm_Hipblaslt_1", 0.5), (key(64), "Gemm_Hipblaslt_2", 0.1))
    log = bench(4096, 512, 8192, ldb=8256, count=7) + bench(4096, 64, 8192)
    (found,) = near_miss.find(read(store, tmp_path, {"tunableop_results0.csv": rows, "job.log": log}), Settings())
    assert (found.evidence["field"], found.evidence["of_row"], found.evidence["of_call"]) == ("ldb", "tight", "8256")
    assert found.evidence["key_text"] == key(512)
    assert (found.calls, found.saving_us, found.per_call_us) == (7, None, None)
    assert "tunableop_results0.csv has a row" in found.message


def test_a_row_of_the_call_itself_gives_no_finding(store: Store, tmp_path: Path) -> None:
    rows = tunableop((key(512), "Gemm_Hipblaslt_1", 0.5), (key(512, ldb=8256), "Gemm_Hipblaslt_2", 0.1))
    t = read(store, tmp_path, {"r.csv": rows, "job.log": bench(4096, 512, 8192, ldb=8256)})
    assert near_miss.find(t, Settings()) == []


def test_a_tuning_file_does_not_look_at_leading_dimensions(store: Store, tmp_path: Path) -> None:
    entry = (
        "Git Version: 3b3d59eb\n    T,N,0,1,4096,512,8192,1,8192,33554432,0,8192,4194304,4096,2097152,4096,2097152,"
        "bf16_r,bf16_r,bf16_r,bf16_r,f32_r,0,0,0,0,0,none,0,f32_r,512,481566,200.742,1712.4,105597,"
        "gfx942:sramecc+:xnack-,304\n"
    )
    t = read(store, tmp_path, {"tuning.txt": entry, "job.log": bench(4096, 512, 8192, ldb=8256)})
    assert near_miss.find(t, Settings()) == []
    half = read(store, tmp_path, {"half.log": bench(4096, 512, 8192, dtype="f16_r")})
    (found,) = near_miss.find(half, Settings())
    assert (found.evidence["field"], found.evidence["of_row"]) == ("type", "bf16_r,bf16_r,bf16_r")


def test_a_batch_of_another_size_in_a_users_find_db(store: Store, tmp_path: Path) -> None:
    row = "64-56-56-3x3-64-56-56-{}-1x1-1x1-1x1-0-NCHW-FP16-{}=ConvAsm3x3U:0.3,0,miopenConvolutionFwdAlgoDirect\n"
    command = (
        "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 "
        "-p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n"
    )
    files = {"gfx942130.HIP.3_4_0_x.ufdb.txt": row.format(64, "F") + row.format(32, "B"), "job.log": command * 4}
    (found,) = near_miss.find(read(store, tmp_path, files), Settings())
    assert (found.evidence["field"], found.evidence["of_row"], found.evidence["of_call"]) == ("n", "64", "32")
    assert found.calls == 4


def changed(**more: object) -> Any:
    return replace(P, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (P, None),
        (changed(bias=True, bias_type="bf16_r"), "bias"),
        (changed(trans_a="N", lda=4096), "transposes"),
        (changed(ldb=9000), "ldb"),
        (changed(m=4090, ldd=4090), "m"),  # within 2 %: a size and its padding
        (changed(m=4000, ldd=4000), None),  # another problem
        (changed(m=4090, ldd=4096), None),  # two things
        (changed(n=500, ldb=9000), None),
        (changed(bias=None), None),  # the log does not tell
        (changed(beta="nonzero", ldc=4096, c_type="bf16_r"), None),  # TunableOp does not look at beta
        (changed(compute_type="xf32_r"), "type"),
        (W, None),
    ],
)
def test_the_one_thing(call: Any, what: str | None) -> None:
    found = difference(P, call, TUNABLEOP)
    assert (found.what if found else None) == what


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (replace(W, n=32), Difference("n", "64", "32")),
        (replace(W, groups=1), Difference("groups", "32", "1")),
        (replace(W, in_layout="NHWC", weights_layout="NHWC", out_layout="NHWC"),
         Difference("layout", "NCHW,NCHW,NCHW", "NHWC,NHWC,NHWC")),
        (replace(W, k=512), None),
        (B, None),  # directions are two problems
    ],
)  # fmt: skip
def test_the_one_thing_of_a_convolution(call: ConvProblem, found: Difference | None) -> None:
    assert difference(W, call, "miopen-find-db") == found


numbers = st.integers(1, 1 << 14)


@given(st.sampled_from([TUNABLEOP, TUNING_FILE]), numbers, numbers, numbers, st.integers(0, 64), st.booleans())
def test_a_difference_is_one_of_the_key_and_the_same_both_ways(
    format_: str, m: int, n: int, k: int, gap: int, bias: bool
) -> None:
    call = product(m, n, k, ldb=k + gap, bias=bias)
    one, other = difference(P, call, format_), difference(call, P, format_)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert (one.what, one.of_row, one.of_call) == (other.what, other.of_call, other.of_row)
        assert one.what in {*KEYS[format_], "type", "transposes"}
    assert difference(call, call, format_) is None


def test_keys_are_of_known_fields() -> None:
    for format_, names in KEYS.items():
        problem = W if format_ in MIOPEN else P
        assert all(hasattr(problem, name) for name in names)


def test_a_shipped_database_is_no_override_of_a_user(store: Store, tmp_path: Path) -> None:
    row = "64-56-56-3x3-64-56-56-64-1x1-1x1-1x1-0-NCHW-FP16-F=ConvAsm3x3U:0.3,0,miopenConvolutionFwdAlgoDirect\n"
    log = bench(4096, 512, 8192)
    t: Tables = read(store, tmp_path, {"gfx942130.HIP.fdb.txt": row, "job.log": log})
    assert near_miss.find(t, Settings()) == []
