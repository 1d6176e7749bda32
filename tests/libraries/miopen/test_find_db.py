"""Tests of reading and writing MIOpen's find-db, its file of measured solvers, including damaged and shipped files.

The fast readers, which return columns, are compared with the reader that reads one line at a time.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import os
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.ingest import ingest
from logparse.libraries.kinds.format import Head, Outcome
from logparse.libraries.miopen import find_db, find_db_columns
from logparse.libraries.miopen.find_db_columns import read_columns
from logparse.libraries.miopen.find_db_index import native_reader
from logparse.libraries.miopen.find_db_items import DUPLICATE_KEY, read_record
from logparse.libraries.miopen.problem_key import TYPES, key_of, problem_from_key
from logparse.libraries.miopen.solvers import ALGORITHMS, algorithm_name, known_algorithm
from logparse.model import CONV_FIELDS, ConvProblem, Fact, Measurement, Override, Reject, Solution
from logparse.store import Store
from tests import conftest
from tests.conftest import needs_corpus
from tests.libraries.reading import Memory

CORPUS, SAMPLES = conftest.CORPUS / "miopen", conftest.SAMPLES / "miopen"


READERS = ("0", "1") if native_reader() else ("0",)
"""Values of the environment variable ``LOGPARSE_NATIVE`` to test. They include the reader in C, if it is built."""
needs_native = pytest.mark.skipif(len(READERS) == 1, reason="the native reader was not built")


def rows_of(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Return measurements as dictionaries, so that the results of two readers can be compared.

    One reader returns them as columns, the other as objects.
    """
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        if outcome.tables:
            rows += outcome.tables["measurements"].to_pylist()
        for ordinal, record in enumerate(x for x in outcome.records if isinstance(x, Measurement)):
            rows.append(
                {
                    "origin": record.origin,
                    "kind": record.problem.kind,
                    "problem": record.problem.text,
                    "library": record.solution.library,
                    "solution": record.solution.text,
                    "raw": record.solution.raw,
                    "algorithm": record.solution.algorithm,
                    "status": record.status,
                    "time_us": record.time_us,
                    "workspace_bytes": record.workspace_bytes,
                    "error": record.error,
                    "key_text": record.key_text,
                    "ordinal": ordinal,
                }
            )
    return rows


def rejects_of(outcomes: list[Outcome]) -> list[tuple[int, int, str]]:
    return [(o.at + r.offset, r.length, r.reason) for o in outcomes for r in o.records if isinstance(r, Reject)]


def plainly(data: bytes) -> list[Outcome]:
    """Read a find-db (MIOpen's file of measured solvers) line by line, in a slow but simple way.

    The fast reader must give the same results. If several lines are for the same convolution, only the first is used.
    """
    out: list[Outcome] = []
    seen: set[str] = set()
    offset = 0
    for raw in data.split(b"\n")[: None if not data.endswith(b"\n") else -1] if data else []:
        outcome = read_record(raw.decode("utf-8", "backslashreplace"))
        key = raw.decode("utf-8", "backslashreplace").partition("=")[0]
        records = list(outcome.records)
        if key in seen:
            records = [
                replace(r, status="skipped", error=DUPLICATE_KEY, time_us=None, workspace_bytes=None)
                if isinstance(r, Measurement)
                else r
                for r in records
            ]
        if b"=" in raw:
            seen.add(key)
        out.append(replace(outcome, at=offset, records=records))
        offset += len(raw) + 1
    return out


def agree(data: bytes) -> list[Outcome]:
    """Check that each fast reader gives the same results for this text as the reader that reads one line at a time."""
    return [agree_by(data, native) for native in READERS][-1]


def agree_by(data: bytes, native: str) -> list[Outcome]:
    with patch.dict(os.environ, LOGPARSE_NATIVE=native):
        columns = list(read_columns(io.BytesIO(data)))
    plain = plainly(data)
    got, wanted = (sorted(rows_of(outcomes), key=repr) for outcomes in (columns, plain))
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine == theirs
    assert rejects_of(columns) == rejects_of(plain)
    units, problems = Counter[str](), set[str]()
    for outcome in columns:
        units[outcome.unit] += outcome.lines
        if outcome.tables:
            convs_agree(outcome.tables["convs"].to_pylist())
            named = set(outcome.tables["measurements"]["problem"].to_pylist())
            assert named - problems <= set(outcome.tables["convs"]["problem"].to_pylist()) <= named
            problems |= named
        problems |= {x.problem.text for x in outcome.records if isinstance(x, Measurement)}
    assert units == Counter(outcome.unit for outcome in plain)
    assert sum(units.values()) == len(plain)
    return columns


def convs_agree(rows: list[dict[str, Any]]) -> None:
    from logparse.model import problem_from_text

    for row in rows:
        problem = problem_from_text(row["problem"])
        assert isinstance(problem, ConvProblem)
        assert problem.text == row["problem"]
        assert problem.flops == row["flops"]
        assert {name: getattr(problem, name) for name in CONV_FIELDS} == {name: row[name] for name in CONV_FIELDS}


# ---------------------------------------------------------------------------------------------------- reading


def test_golden_record() -> None:
    line = (
        "256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32="
        "GemmWrwUniversal:5.45463,3211264,miopenConvolutionBwdWeightsAlgoGEMM;"
        "ConvDirectNaiveConvWrw:0,0,miopenConvolutionBwdWeightsAlgoDirect;"
        "GemmWrwUniversal:9,0,miopenConvolutionBwdWeightsAlgoGEMM;x"
    )
    outcome = read_record(line)
    assert outcome.unit == "measurement"
    rows = [
        (r.solution.text, r.status, r.time_us, r.workspace_bytes) for r in outcome.records if isinstance(r, Measurement)
    ]
    assert rows == [
        ("miopen:GemmWrwUniversal", "ok", 5454.63, 3211264),
        ("miopen:ConvDirectNaiveConvWrw", "no_time", None, 0),
        ("miopen:GemmWrwUniversal", "skipped", None, None),
    ]
    (reject,) = [r for r in outcome.records if isinstance(r, Reject)]
    assert line[reject.offset : reject.offset + reject.length] == "x"
    problem = outcome.records[0].problem  # type: ignore[union-attr]
    assert problem == ConvProblem(
        direction="W", n=64, c=256, h=56, w=56, k=256, filter_h=3, filter_w=3, pad_h=1, pad_w=1, stride_h=2, stride_w=2,
        dilation_h=1, dilation_w=1, out_h=28, out_w=28, groups=32, in_type="FP16", weights_type="FP16", out_type="FP16",
        in_layout="NCHW", weights_layout="NCHW", out_layout="NCHW", bias=0, mode="convolution",
    )  # fmt: skip


def test_backward_keys_are_unswapped_types_and_layouts_too() -> None:
    problem = problem_from_key("512-28-29-1x1-256-56-57-8-0x0-2x2-1x1-0-NHWC-CHWN-NCHW-FP32INT8FP16-B_ciFP8_coBF8")
    assert (problem.c, problem.h, problem.w, problem.k, problem.out_h, problem.out_w) == (256, 56, 57, 512, 28, 29)
    assert (problem.in_type, problem.weights_type, problem.out_type) == ("FP16", "INT8", "FP32")
    assert (problem.in_layout, problem.weights_layout, problem.out_layout) == ("NCHW", "CHWN", "NHWC")
    assert (problem.in_cast, problem.weights_cast, problem.out_cast) == ("BF8", "none", "FP8")


def test_v1_v0_and_ragged_items_agree_with_the_plain_reader() -> None:
    text = (
        b"1-1-1-3x3-2-3-3-128-0x0-1x1-1x1-0-NCHW-FP16-W=miopenConvolutionBwdWeightsAlgoImplicitGEMM:ConvMlirIgemmWrW,"
        b"0.02032,0,miopenConvolutionBwdWeightsAlgoImplicitGEMM,<unused>;miopenConvolutionBwdWeightsAlgoGEMM:gemm,1.5,8,0_1\n"
        b"1024-4-14-14-1x1x1-2048-2-7-7-4-0x0-2x2x2-1x1x1-0-NCHW-FP32-F=GemmFwdRest:23.3,401408,miopenConvolutionFwdAlgoGEMM\n"
        b"64-8-28-28-3x3x3-128-8-28-28-4-1x1x1-1x1x1-1x1x1-0-NCDHW-BF16-B=x:1,0,miopenConvolutionBwdDataAlgoGEMM,more\n"
    )
    rows = rows_of(agree(text))
    assert len(rows) == 4
    assert {row["problem"].partition(" pad=")[2].partition(",")[0] for row in rows} == {"0", "?", "1"}


@pytest.mark.parametrize(
    ("items", "read"),
    [
        ("a:1,0,@", ["a 1000.0"]),
        ("a:1,0,@\r", ["a 1000.0"]),
        ("a:1,0,@ ;b:2,0,@", ["a 1000.0", "b 2000.0"]),
        ("a: 1 , 0 , @,more", ["a 1000.0"]),
        ("@:a,1,0,", ["a 1000.0"]),
        ("@:a,1,0", ["no comma follows its workspace size"]),
        ("@:a,1", ["no comma follows its workspace size"]),
        ("@:a", ["no comma follows its workspace size"]),
        ("@:a,1,0;b:2,0,@", ["no comma follows its workspace size", "b 2000.0"]),
        (" a:1,0,@", ["contains a blank"]),
        ("@:a b,1,0,", ["contains a blank"]),
        ("a:2,0,@;@:a,1,0,", ["a 2000.0", "MIOpen uses the first item"]),
        ("@:a,1,0,;a:2,0,@", ["a 1000.0", "MIOpen uses the first item"]),
        ("@:a,1,0,;@:b,2,0,", ["a 1000.0", "b 2000.0"]),
        ("a:1,0", ["throws"]),
        ("a:1,0,@;b:2,0", ["throws Bad algorithm because of another", "throws"]),
        ("a:1,0,@;b:2,0,@2", ["throws Bad algorithm because of another", "throws"]),
        ("gemm:1,0,miopenConvolutionFwdAlgoDirect", ["may run UNKNOWN"]),
        ("GemmWrwUniversal:1,0,@", ["for direction W"]),
        ("a:-1,0,@;b:2,0,@", ["uses another solver with a time", "b 2000.0"]),
        ("a:1,999999999999,@", ["more than the memory of any GPU"]),
        ("a:0.5x,0,@", ["a 500.0"]),
        (":1,0,@", ["does not have the form 'solver:values'"]),
        (";a:1,0,@", ["does not have the form 'solver:values'", "a 1000.0"]),
    ],
)
def test_entries_are_read_as_by_miopen(items: str, read: list[str]) -> None:
    """logparse reads the entries of a find-db line as MIOpen 3.5.1 (ROCm 7.2.4) reads them from a user's file.

    A find-db is MIOpen's file of measured solvers. An entry that the library drops gets no time, but a reason.
    """
    line = f"3-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-F={items}\n".replace("@", "miopenConvolutionFwdAlgoGEMM")
    agree(line.encode())
    found = [
        x.reason if isinstance(x, Reject) else x.error or f"{x.solution.id} {x.time_us}"
        for x in read_record(line.removesuffix("\n")).records
        if isinstance(x, (Reject, Measurement))
    ]
    assert len(found) == len(read)
    assert all(str(wanted) in str(text) for text, wanted in zip(found, read, strict=True)), found


def test_a_key_that_miopen_spells_otherwise_has_no_times() -> None:
    key = "3-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-NCHW-NCHW-FP32-F"
    (row,) = rows_of(agree(f"{key}=a:1,0,miopenConvolutionFwdAlgoGEMM\n".encode()))
    assert (row["status"], row["time_us"], row["workspace_bytes"]) == ("skipped", None, None)
    assert row["error"] == "MIOpen spells the key 3-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-F"


def test_the_first_record_of_a_key_wins_in_every_order() -> None:
    one = b"3-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-F=a:1,0,miopenConvolutionFwdAlgoGEMM\n"
    two = one.replace(b"3-8", b"4-8").replace(b"\n", b";b:2,0,miopenConvolutionFwdAlgoFFT\n")
    for text in (one + two + one, two + one + two + two, one + one, one + b"junk\n" * 5 + two + one + b"no=\n"):
        outcomes = agree(text)
        assert {row["status"] for row in rows_of(outcomes)} == {"ok", "skipped"}
        problems = [row["problem"] for o in outcomes if o.tables for row in o.tables["convs"].to_pylist()]
        assert len(problems) == len(set(problems))


LINES = [
    b"256-56-56-1x1-512-28-28-256-0x0-2x2-1x1-0-NCHW-FP16-F=GemmFwd1x1_0_2:0.66529,0,miopenConvolutionFwdAlgoGEMM;"
    b"ConvWinograd3x3MultipassWrW<7-2-1-1>:0.7,12,miopenConvolutionFwdAlgoWinograd\n",
    b"256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NHWC-NHWC-NHWC-FP16-W_g32=a:5.4e-05,0,miopenConvolutionBwdWeightsAlgoGEMM\n",
    b"128-14-28-28-3x3x3-64-28-56-56-8-1x1x1-2x2x2-1x1x1-0-NCDHW-FP16-W=miopenConvolutionBwdWeightsAlgoGEMM:b,1,2,c,d\n",
    b"1024-4-14-14-1x1x1-256-4-14-14-4-0x0-1x1x1-1x1x1-0-NCHW-FP32-B=a:0,0,miopenConvolutionBwdDataAlgoGEMM\n",
    b"3-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-F=miopenConvolutionFwdAlgoGEMM:a,1,2,;miopenConvolutionFwdAlgoGEMM:b,1,2,;"
    b"c:1,2,miopenConvolutionFwdAlgoGEMM\n",
]
DAMAGE = [
    b"",
    b";a:2,0,miopenConvolutionFwdAlgoGEMM",
    b";miopenConvolutionFwdAlgoGEMM:a,1,2",
    b";miopenConvolutionFwdAlgoGEMM:a,1,2,",
    b" ",
    b"x",
    b"-",
    b"=",
    b";",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"0",
    b"0x1",
    b"+1",
    b"nan",
    b"inf",
    b"-3",
    b"\xff",
    b"\x00",
    b"\t",
    b"1e400",
    b"e-5",
    b"123456789",
    b"9007199254740993",
    b"miopenConvolutionFwdAlgoGEMM",
    b"NHWC",
    b"_g0",
]


@given(
    st.lists(
        st.tuples(st.sampled_from(LINES), st.integers(0, 200), st.sampled_from(DAMAGE), st.integers(0, 5)),
        min_size=1,
        max_size=8,
    )
)
def test_damaged_lines_never_raise_and_both_readers_agree(edits: list[tuple[bytes, int, bytes, int]]) -> None:
    agree(b"".join(line[:at] + new + line[at + gone :] for line, at, new, gone in edits))


TIMES = st.one_of(
    st.from_regex(r"[+-]?[0-9]{0,20}\.?[0-9]{0,20}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.floats(0, 1e300).map(repr),
    st.decimals(0, 10**6, places=6).map(str),
)


@given(st.lists(TIMES, min_size=1, max_size=20))
def test_every_time_is_the_nearest_double_to_what_is_written(times: list[str]) -> None:
    items = ";".join(f"s{i}:{time},0,miopenConvolutionFwdAlgoGEMM" for i, time in enumerate(times))
    rows = rows_of(agree(f"3-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-F={items}\n".encode()))
    for row, time in zip(sorted(rows, key=lambda x: int(x["raw"][1:])), times, strict=True):
        with contextlib.suppress(ValueError, OverflowError):
            assert row["time_us"] in (None, float(Fraction(time) * 1000))


@pytest.mark.parametrize("native", READERS)
def test_a_key_is_met_again_whoever_read_it_first(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # a block holds a line or two: some blocks in columns, some read by the plain reader
    monkeypatch.setattr(find_db_columns, "BLOCK", 250)
    plain = [line.replace(b":", b":,", 1) for line in LINES]
    lines = [*LINES, *plain, *(line.replace(b"x1-0-", b"x1-0-x") for line in LINES), b"junk\n"] * 3
    for order in range(20):
        random.Random(order).shuffle(lines)
        agree_by(b"".join(lines), native)


@pytest.mark.parametrize("native", READERS)
@pytest.mark.parametrize("milliseconds", ["0.00002", "0.5"])
def test_an_impossible_time_is_a_reject(
    tmp_path: Path, store: Store, native: str, milliseconds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A find-db's time that is above the device's peak is a reject, whichever reader reads the line."""
    monkeypatch.setenv("LOGPARSE_NATIVE", native)
    algorithm = "miopenConvolutionFwdAlgoGEMM"
    key = "256-56-56-1x1-512-28-28-256-0x0-2x2-1x1-0-NCHW-FP16-F"
    path = tmp_path / "gfx942130.HIP.3_4_0_0.ufdb.txt"
    path.write_text(f"{key}=GemmFwd1x1_0_2:{milliseconds},0,{algorithm};GemmFwdRest:0.9,0,{algorithm}\n")
    ingest([str(path)], store, run="run")
    with store.connect() as con:
        times = con.execute("select solution, time_us from measurements order by time_us").fetchall()
    reasons = list(store.rejects()["reason"])
    rest = [("miopen:GemmFwdRest", 900.0)]
    if milliseconds == "0.5":
        assert (times, reasons) == ([("miopen:GemmFwd1x1_0_2", 500.0), *rest], [])
    else:
        assert times == rest
        (reason,) = reasons
        assert "Tflop/s, but MI300X does less than 2,876 in any precision" in reason


@given(st.lists(st.lists(st.integers(0, 40), min_size=1), max_size=12))
def test_hashes_met_before(blocks: list[list[int]]) -> None:
    keys, seen = find_db_columns._Keys(), set[int]()
    for block in blocks:
        wanted = [key in seen or key in block[:place] for place, key in enumerate(block)]
        seen.update(block)
        hashes = np.array(block, np.uint64) << np.uint64(58) | np.array(block, np.uint64)
        assert keys.met(hashes).tolist() == wanted


@needs_native
def test_a_native_module_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    native = native_reader()
    with monkeypatch.context() as patched:
        patched.delattr(native, "VERSION")
        assert native_reader() is None
    monkeypatch.setattr(native, "VERSION", 0)
    assert native_reader() is None
    assert list(read_columns(io.BytesIO(LINES[0])))


@needs_native
def test_the_native_module_checks_what_it_is_given() -> None:
    native = native_reader()
    assert native is not None
    pieces = ((b"",) * 3,)
    with pytest.raises(ValueError, match="twelve sizes"):
        native.texts(bytes(95), bytes(4), pieces)
    for size, tail in ((10**9, 0), (-1, 0), (1, 1), (1, -1)):
        with pytest.raises(ValueError, match="out of range"):
            native.texts(np.full(12, size, np.int64).tobytes(), np.int32(tail).tobytes(), pieces)
    with pytest.raises(TypeError):
        native.texts(bytes(96), bytes(4), ((b"",) * 4,))


def test_one_bad_line_in_a_large_file_costs_only_itself() -> None:
    good = [
        f"3-{i}-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-F=a:1,0,miopenConvolutionFwdAlgoGEMM\n" for i in range(1, 2000)
    ]
    text = "".join([*good[:700], "torn li\n", *good[700:]]).encode()
    outcomes = agree(text)
    assert sum(o.lines for o in outcomes if o.tables) == (1999 if len(READERS) > 1 else 0)
    assert [o.unit for o in outcomes].count("reject") == 1


# ------------------------------------------------------------------------------------------ names and recognition


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("gfx942130.HIP.fdb.txt", {"arch": "gfx942", "cu_count": "304", "backend": "HIP", "find_db": "system"}),
        ("gfx90a68.HIP.fdb.txt", {"arch": "gfx90a", "cu_count": "104", "backend": "HIP", "find_db": "system"}),
        ("gfx906_60.OpenCL.fdb.txt", {"arch": "gfx906", "cu_count": "60", "backend": "OpenCL", "find_db": "system"}),
        (
            "gfx942130.HIP.3_4_0_037eb6dc4-dirty.ufdb.txt",
            {"arch": "gfx942", "cu_count": "304", "backend": "HIP", "miopen_version": "3.4.0",
             "miopen_tweak": "037eb6dc4-dirty", "find_db": "user"},
        ),
        (
            "gfx1030_36.HIP.3_3_0_abc.ufdb.txt",
            {"arch": "gfx1030", "cu_count": "36", "backend": "HIP", "miopen_version": "3.3.0", "miopen_tweak": "abc",
             "find_db": "user", "times_biased": find_db.BIASED},
        ),
        ("gfx1030_.HIP.3_4_0_.ufdb.txt",
         {"arch": "gfx1030", "backend": "HIP", "miopen_version": "3.4.0", "miopen_tweak": "", "find_db": "user"}),
        ("gfx908_nosramecc_xnack78.HIP.fdb.txt",
         {"arch": "gfx908_nosramecc:xnack+", "cu_count": "120", "backend": "HIP", "find_db": "system"}),
        ("downloaded.fdb.txt", {"find_db": "system"}),
        ("db.txt", {}),
    ],
)  # fmt: skip
def test_facts_of_the_name(name: str, facts: dict[str, str]) -> None:
    outcomes = list(find_db.read(Memory(b"", name)))
    found = {f.name: f.value for o in outcomes for f in o.records if isinstance(f, Fact)}
    assert found == facts
    assert all(o.lines == 0 for o in outcomes)


def test_recognised_by_name_or_by_content() -> None:
    assert find_db.recognise(Head("gfx942130.HIP.fdb.txt", b""))
    assert find_db.recognise(Head("anything", LINES[2]))
    assert not find_db.recognise(Head("anything", b"a=b:c\n"))
    assert not find_db.recognise(Head("anything", b"\x00\xff"))
    assert not find_db.recognise(Head("gfx942130.HIP.db.txt", b"2x1x1=a:1"))


# ---------------------------------------------------------------------------------------------------- keys

small = st.integers(0, 99999)
types = st.sampled_from(TYPES)
layouts = st.sampled_from(["NCHW", "NHWC", "NCDHW", "NDHWC", "CHWN", "NCHWc4"])


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    three = draw(st.booleans())
    axes = "dhw" if three else "hw"
    sizes = {f"{word}{x}": draw(st.integers(0, 40)) for x in axes
             for word in ("", "filter_", "pad_", "stride_", "dilation_", "out_")}  # fmt: skip
    plain = draw(st.booleans())
    one_layout, one_type = draw(layouts), draw(types)
    told = {
        f"{role}_{what}": (one if plain else draw(pick))
        for role in ("in", "weights", "out")
        for what, one, pick in (("layout", one_layout, layouts), ("type", one_type, types))
    }
    casts = {f"{role}_cast": draw(st.sampled_from(["none", "FP8", "BF8"])) for role in ("in", "weights", "out")}
    return ConvProblem(
        direction=draw(st.sampled_from("FBW")),  # type: ignore[arg-type]
        spatial=3 if three else 2,
        n=draw(small), c=draw(small), k=draw(small), groups=draw(st.integers(1, 512)), bias=draw(st.integers(0, 1)),
        mode="convolution", **sizes, **told, **casts,
    )  # fmt: skip


@given(problems())
def test_object_to_key_to_object(problem: ConvProblem) -> None:
    key = key_of(problem)
    assert key is not None
    try:
        assert problem_from_key(key) == problem
    except ValueError:
        assert (problem.flops or 0) >= 2**63
        return
    algorithm = algorithm_name("GEMM", problem.direction)
    agree(f"{key}=a:1,0,{algorithm}\n".encode())


def test_a_key_needs_every_field_and_transposed_is_swapped() -> None:
    problem = problem_from_key("512-28-29-1x1-256-56-57-8-0x0-2x2-1x1-0-NCHW-FP16-B")
    for name in ("n", "out_h", "groups", "in_type", "out_layout", "bias", "pad_h"):
        assert key_of(replace(problem, **{name: None})) is None  # type: ignore[arg-type]
    assert key_of(replace(problem, direction="B+W")) is None
    # A transposed forward on x is the backward-data of a convolution whose dy is that x.
    transposed = ConvProblem(
        direction="F", n=8, c=512, h=28, w=29, k=256, filter_h=1, filter_w=1, pad_h=0, pad_w=0, stride_h=2, stride_w=2,
        dilation_h=1, dilation_w=1, out_h=56, out_w=57, groups=1, in_type="FP16", weights_type="FP16", out_type="FP16",
        in_layout="NCHW", weights_layout="NCHW", out_layout="NCHW", bias=0, mode="transposed",
    )  # fmt: skip
    assert key_of(transposed) == key_of(problem)


# ---------------------------------------------------------------------------------------------------- writing

TARGET = {"arch": "gfx942:sramecc+:xnack-", "cu_count": "304", "miopen_version": "3.4.0", "miopen_tweak": "abc-dirty"}


def override(key: str, solver: str, time_us: float | None, workspace: int | None = 0) -> Override:
    return Override(
        problem=problem_from_key(key),
        solution=Solution("miopen", solver),
        target=TARGET,
        time_us=time_us,
        workspace_bytes=workspace,
    )


KEY = "256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32"


def test_the_written_file_is_read_back_as_it_was_meant() -> None:
    rows = [
        override(KEY, "GemmWrwUniversal", 5454.63, 77),
        override(KEY, "ConvHipImplicitGemmGroupWrwXdlops", 212.5, 12),
    ]
    rows.append(override(KEY, "ConvDirectNaiveConvWrw", 90000.0))
    (emission,) = find_db.write(rows, TARGET)
    assert emission.name == "gfx942130.HIP.3_4_0_abc-dirty.ufdb.txt"
    assert emission.data.decode() == (
        f"{KEY}=ConvHipImplicitGemmGroupWrwXdlops:0.2125,12,miopenConvolutionBwdWeightsAlgoImplicitGEMM;"
        "GemmWrwUniversal:5.45463,77,miopenConvolutionBwdWeightsAlgoGEMM\n"
    )
    back = rows_of(list(find_db.read(Memory(emission.data, emission.name))))
    assert [(r["solution"], r["time_us"], r["workspace_bytes"], r["status"]) for r in back] == [
        ("miopen:ConvHipImplicitGemmGroupWrwXdlops", 212.5, 12, "ok"),
        ("miopen:GemmWrwUniversal", 5454.63, 77, "ok"),
    ]
    assert "MIOPEN_USER_DB_PATH={folder}" in emission.use


@given(problems(), st.floats(0.001, 1e9), st.integers(0, 2**36), st.sampled_from(["GemmX", "SomethingNew"]))
def test_object_to_text_to_object(problem: ConvProblem, time_us: float, workspace: int, solver: str) -> None:
    solution = Solution("miopen", solver, solver, algorithm_name("GEMM", problem.direction))
    row = Override(problem=problem, solution=solution, target=TARGET, time_us=time_us, workspace_bytes=workspace)
    (emission,) = find_db.write([row], TARGET)
    for outcome in find_db.read(Memory(emission.data, emission.name)):
        if outcome.unit == "reject":
            assert (problem.flops or 0) >= 2**63
        elif outcome.tables:
            (back,) = outcome.tables["measurements"].to_pylist()
            assert (back["problem"], back["workspace_bytes"], back["raw"]) == (problem.text, workspace, solver)
            assert back["time_us"] == pytest.approx(time_us, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("fact", ["arch", "cu_count", "miopen_version", "miopen_tweak"])
def test_a_missing_fact_is_named(fact: str) -> None:
    with pytest.raises(EmissionError, match=fact):
        find_db.write([override(KEY, "GemmWrwUniversal", 1.0)], {k: v for k, v in TARGET.items() if k != fact})


def test_an_empty_tweak_is_known() -> None:
    (file,) = find_db.write([override(KEY, "GemmWrwUniversal", 1.0)], {**TARGET, "miopen_tweak": ""})
    assert file.name == "gfx942130.HIP.3_4_0_.ufdb.txt"


def test_nothing_that_miopen_checks_is_invented() -> None:
    with pytest.raises(EmissionError, match="workspace"):
        find_db.write([override(KEY, "GemmWrwUniversal", 1.0, None)], TARGET)
    with pytest.raises(EmissionError, match="time"):
        find_db.write([override(KEY, "GemmWrwUniversal", None)], TARGET)
    with pytest.raises(EmissionError, match="algorithm"):
        find_db.write([override(KEY, "SomethingNew", 1.0)], TARGET)
    unknown = replace(override(KEY, "GemmWrwUniversal", 1.0), problem=replace(problem_from_key(KEY), out_h=None))
    with pytest.raises(EmissionError, match="a size, type or layout is unknown"):
        find_db.write([unknown], TARGET)
    assert find_db.write([], {}) == []


# ---------------------------------------------------------------------------------------------------- real files


@pytest.mark.parametrize("path", sorted(SAMPLES.rglob("*fdb.txt")), ids=lambda p: p.name)
def test_samples(path: Path) -> None:
    agree(path.read_bytes())


@needs_corpus
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*excerpt.fdb.txt")), ids=lambda p: p.name)
def test_corpus_excerpts_agree_and_no_record_is_rejected(path: Path) -> None:
    data = path.read_bytes()
    outcomes = agree(data)
    assert {outcome.unit for outcome in outcomes} == {"measurement"}
    assert not rejects_of(outcomes)
    for row in rows_of(outcomes):
        assert key_of(problem_from_key(row["key_text"])) == row["key_text"]


def whole(name: str) -> tuple[bytes, list[Outcome]]:
    data = bz2.decompress((CORPUS / f"{name}.bz2").read_bytes())
    return data, list(read_columns(io.BytesIO(data)))


@needs_corpus
@needs_native
def test_gfx942_file() -> None:
    data, outcomes = whole("gfx942130.HIP.fdb.txt")
    assert not rejects_of(outcomes)
    convs = [row for o in outcomes for row in o.tables["convs"].select(["direction", "problem"]).to_pylist()]
    assert Counter(row["direction"] for row in convs) == {"F": 3391, "B": 3072, "W": 3137}
    lines = data.splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    agree(b"".join(lines[:400]))
    assert all(key_of(problem_from_key(k)) == k for k in (line.split(b"=")[0].decode() for line in lines[:2000]))
    families = {
        (row["raw"], row["algorithm"])
        for o in outcomes
        for row in o.tables["measurements"].group_by(["raw", "algorithm"]).aggregate([]).to_pylist()
    }
    assert all(a == algorithm_name(known_algorithm(solver) or "", ALGORITHMS[a]) for solver, a in families)


@needs_corpus
@needs_native
@pytest.mark.nightly
def test_gfx90a_file() -> None:
    data, outcomes = whole("gfx90a68.HIP.fdb.txt")
    assert sum(o.lines for o in outcomes) == 193_590 == data.count(b"\n")
    assert {o.unit for o in outcomes} == {"measurement"}
    assert not rejects_of(outcomes)
    status = Counter(row["status"] for row in rows_of(outcomes))
    assert status["no_time"] == 1179
    assert set(status) == {"ok", "no_time"}
    follow = clamped = other = 0
    names = [name for name in CONV_FIELDS if "_" in name or name in "hwd"]
    for outcome in outcomes:
        if outcome.tables:
            columns = {name: outcome.tables["convs"][name].to_numpy() for name in names}
        else:  # a line with an item that has no time
            columns = {name: np.array([getattr(outcome.records[0].problem, name)]) for name in names}
        agrees = wide = True
        for x in "dhw":
            span = columns[x] + 2 * columns[f"pad_{x}"] - (columns[f"dilation_{x}"] * (columns[f"filter_{x}"] - 1) + 1)
            out = span // columns[f"stride_{x}"] + 1
            agrees &= columns[f"out_{x}"] == out.clip(min=1)
            wide &= out >= 1
        follow += int((agrees & wide).sum())
        clamped += int((agrees & ~wide).sum())
        other += int((~agrees).sum())
    assert (follow + clamped, other) == (193_590, 0)
