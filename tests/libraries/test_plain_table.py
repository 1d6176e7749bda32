"""Tests of reading a plain CSV table of times, which a user may write by hand."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.recommend.ranking import recommend
from logparse.ingest import ingest
from logparse.libraries.kinds.format import Head
from logparse.libraries.user_table import table as plain_table
from logparse.model import Call, ConvProblem, Fact, GemmProblem, Measurement, Record, Reject
from logparse.model.faults import solution_fault
from logparse.store import Store
from tests.conftest import SAMPLES
from tests.libraries.reading import from_file, head, outcomes, records

SAMPLE = from_file(SAMPLES / "tables/spreadsheet.csv")


def read(text: str) -> list[Record]:
    return records(outcomes(plain_table.FORMAT, text.encode()))


def test_golden() -> None:
    assert plain_table.recognise(head(SAMPLE))
    found = records(outcomes(plain_table.FORMAT, SAMPLE))
    assert found[0] == Fact("ignored_columns", "model")
    first, second, calls, only_calls, letter, empty = found[1:]
    assert isinstance(first, Measurement)
    assert (first.solution.text, first.time_us, first.problem.label) == (
        "hipblaslt:104377", 23.6, "TN 64×8192×4096 bf16_r"
    )  # fmt: skip
    assert isinstance(second, Measurement)
    assert second.solution.text == "Default"
    assert second.problem == first.problem  # 64.0 is 64
    assert isinstance(calls, Call)
    assert (calls.count, calls.category) == (16, "table")
    assert isinstance(only_calls, Call)
    assert only_calls.count == 8
    assert isinstance(letter, Reject)
    assert "not one of N, T, C" in letter.reason
    assert isinstance(empty, Reject)
    assert empty.reason == "the row has neither a time (time_us) nor a number of calls (calls)"


def test_a_convolution_and_the_canonical_text() -> None:
    header = "direction,n,c,h,w,k,filter_h,filter_w,groups,in_type,bias,solution,time_us,status"
    (one,) = read(f"{header}\nW,64,256,56,56,256,3,3,1,FP16,0,miopen:GemmWrwUniversal,812.5,\n")
    assert isinstance(one, Measurement)
    assert isinstance(one.problem, ConvProblem)
    assert (one.problem.direction, one.problem.filter_h, one.problem.bias, one.problem.pad_h) == ("W", 3, 0, None)
    again = read(f'problem,calls\n"{one.problem.text}",3\n')
    assert again == [Call(problem=one.problem, category="table", count=3)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,2,x,Default,1", "k is 'x', not a"),
        ("1,2,3,Default,fast", "time_us is 'fast', not a number"),
        ("1,2,3.5,Default,1", "k is '3.5', not a whole number"),
        ("1,2,3,,1", "the row has a time, but does not name the solution"),
        ("1,2,3,Default,1,9", "6 cells, but the header has 5 columns"),
        ("1,2,inf,Default,1", "k is 'inf', not a whole number"),
    ],
)
def test_an_unreadable_row_states_the_reason(row: str, reason: str) -> None:
    (record,) = read(f"m,n,k,solution,time_us\n{row}\n")
    assert isinstance(record, Reject)
    assert re.search(reason, record.reason)


def test_default_of_another_library_than_torch_says_what_to_write() -> None:
    [row] = read("m,n,k,library,solution,time_us\n1,2,3,rocblas,Default,61.2\n")
    assert isinstance(row, Measurement)
    why = solution_fault(row.solution)
    assert why is not None
    assert "so its library is torch; leave the library empty" in why
    assert "'rocblas:123'" in why
    [torch] = read("m,n,k,library,solution,time_us\n1,2,3,torch,Default,61.2\n")
    assert isinstance(torch, Measurement)
    assert solution_fault(torch.solution) is None


def test_other_csvs_are_not_ours() -> None:
    for line in (b"m,n,k\n", b"time_us,solution\n", b"a,b\n", b"M,N,K,time_us\n", b""):
        assert not plain_table.recognise(Head("x.csv", line))


def test_parquet_and_csv_read_alike(tmp_path: Path) -> None:
    table = pa.table(
        {"m": [64, 64], "n": [8192, None], "k": [4096, 4096], "solution": ["hipblaslt:104377", None],
         "time_us": [23.6, None], "calls": [None, 3], "note": ["a", "b"]}
    )  # fmt: skip
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    source = from_file(path)
    assert plain_table.recognise(head(source))
    csv = "m,n,k,solution,time_us,calls,note\n64,8192,4096,hipblaslt:104377,23.6,,a\n64,,4096,,,3,b\n"
    found = list(plain_table.read(source))
    assert [r for o in found for r in o.records] == read(csv)
    assert sum(o.lines for o in found) == 2


@given(
    st.builds(GemmProblem, m=st.integers(1, 99), n=st.integers(1, 99), k=st.integers(1, 99),
              trans_a=st.sampled_from(["N", "T", None]), bias=st.sampled_from([True, False, None]),
              a_type=st.sampled_from(["f16_r", None]), batch_count=st.integers(1, 9)),
    st.floats(0.01, 1e6),
)  # fmt: skip
def test_what_is_in_the_cells_is_what_is_read(problem: GemmProblem, time_us: float) -> None:
    names = ("m", "n", "k", "batch_count", "trans_a", "bias", "a_type")
    cells = ["" if (v := getattr(problem, name)) is None else str(v) for name in names]
    (one,) = read(f"{','.join(names)},solution,time_us\n{','.join(cells)},hipblaslt:1,{time_us!r}\n")
    assert isinstance(one, Measurement)
    assert one.problem == problem
    assert one.time_us == time_us


def test_all_rows_of_a_table_are_of_one_machine() -> None:
    """If a row of a table names another machine than the rows before it, the row is rejected."""
    found = read(
        "m,n,k,a_type,solution,time_us,arch,cu_count,hipblaslt_version\n"
        "8,8,8,f16_r,hipblaslt:1,5.0,gfx942,304.0,1201\n"
        "8,8,9,f16_r,hipblaslt:1,5.0,gfx942,80,1201\n"
    )
    first, second, *told = found
    assert isinstance(first, Measurement)
    assert isinstance(second, Reject)
    assert second.reason == "cu_count is 80 here and 304 before, but a file describes one machine"
    assert told == [Fact("arch", "gfx942"), Fact("cu_count", "304"), Fact("hipblaslt_version", "1201")]


def test_the_example_of_the_docstring_is_recommended(store: Store, tmp_path: Path) -> None:
    text = (plain_table.__doc__ or "").split("::\n\n", 1)[1]
    rows = [line.strip() for line in text.split("\n\n")[0].splitlines()]
    (tmp_path / "table.csv").write_text("\n".join([f"{rows[0]},calls", *(f"{row},10" for row in rows[1:])]) + "\n")
    ingest([str(tmp_path / "table.csv")], store, run="r")
    (finding,) = recommend(tables_of(store), Settings()).findings
    assert finding.evidence.best == "hipblaslt:477479"
    assert finding.per_call_us == pytest.approx(61.2 - 55.9)


def test_the_gain_of_a_published_table_is_right(store: Store, tmp_path: Path) -> None:
    """logparse computes the right gain from a table of kernel times, as a few lines of arithmetic show.

    The table has 338 matrix products, with the times of four kernels and the number of calls for each.
    """
    draw = random.Random(7)
    lines, before, after = ["m,n,k,a_type,solution,time_us,calls,arch,cu_count"], 0.0, 0.0
    for index in range(338):
        default, calls = draw.uniform(5, 900), draw.randint(1, 400)
        others = [round(default * draw.uniform(0.8, 1.5), 4) for _ in range(3)]
        before, after = before + calls * round(default, 4), after + calls * min(round(default, 4), *others)
        shape = f"{64 + index},{draw.choice((1024, 4096))},{draw.choice((512, 2048))},bf16_r"
        times = {"Default": round(default, 4), **{f"hipblaslt:{i + 1}": us for i, us in enumerate(others)}}
        lines += [f"{shape},{name},{us},{calls if name == 'Default' else ''},gfx942,304" for name, us in times.items()]
    (tmp_path / "published.csv").write_text("\n".join(lines) + "\n")
    ingest([str(tmp_path / "published.csv")], store, run="r")
    found = recommend(tables_of(store), Settings())
    assert found.ceiling.problems == 338
    assert found.ceiling.share == pytest.approx(1 - after / before, abs=0.003)
    listed = sum(x.saving_us or 0.0 for x in found.findings)
    assert listed <= found.ceiling.saving_us * (1 + 1e-9)
    assert listed == pytest.approx(before - after, rel=0.15)  # all gains but those below the floor
