"""Tests of reading what hipblaslt-bench prints.

The tests use real output, the part about the fastest kernel, columns of older versions, and damaged text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from logparse.libraries.hipblaslt import bench, bench_output
from logparse.libraries.kinds.format import Line, Outcome
from logparse.model import Call, Fact, GemmProblem, Measurement, Record, Reject, SolutionName
from tests.conftest import CORPUS, needs_corpus
from tests.libraries.hipblaslt.texts import SAMPLES


def read(lines: Iterable[str]) -> tuple[Counter[str], list[Record]]:
    """Read lines of a benchmark's output. Returns the number of lines of each kind, and what was read from them.

    Like ``ingest``, this function first skips lines without certain words, which is faster. Only within a table it
    reads every line.
    """
    format, reader = bench_output.FORMAT, bench_output.FORMAT.begin()
    units, out = Counter[str](), list[Record]()
    for number, text in enumerate(lines):
        outcome: Outcome | None = bench.read(text) if "hipblaslt-bench " in text else None
        if outcome is None and (reader.awake or any(marker.decode() in text for marker in format.markers)):
            outcome = reader.take(Line(text, number * 1000))
        units[outcome.unit if outcome else "foreign" if text.strip() else "blank"] += 1
        out += outcome.records if outcome else ()
    return units, [*out, *reader.close()]


def of(kind: type, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if isinstance(record, kind)]


@needs_corpus
def test_221_complete_outputs() -> None:
    lines = (CORPUS / "hipblaslt" / "bench_stdout_v100200_mi350x_all.log").read_text().split("\n")[:-1]
    units, records = read(lines)
    assert units["foreign"] == units["reject"] == 0
    assert units["measurement"] == 221, "a Winner's row repeats one"
    measured = [record for record in records if isinstance(record, Measurement)]
    calls = [record for record in records if isinstance(record, Call)]
    assert len(measured) == len(calls) == 221
    assert all(m.solution.id.isdigit() and m.status == "ok" and m.origin == "bench" for m in measured)
    assert measured[0].time_us == 55881.5
    assert len(of(SolutionName, records)) == 221
    facts = {record.name: record.value for record in records if isinstance(record, Fact)}
    assert facts == {
        "hipblaslt_version": "100200",
        "hipblaslt_revision": "de5c1aebb6-dirty",
        "device": "AMD Instinct MI350X",
        "arch": "gfx950:sramecc+:xnack-",
    }
    # The tool ran what its command line asked for, leading dimensions included.
    for asked, got in zip(calls, measured, strict=True):
        a, g = asked.problem, got.problem
        assert isinstance(a, GemmProblem)
        assert isinstance(g, GemmProblem)
        assert asked.by_tool
        names = (
            "trans_a",
            "trans_b",
            "m",
            "n",
            "k",
            "batch_count",
            "lda",
            "ldb",
            "ldd",
            "a_type",
            "d_type",
            "compute_type",
        )
        assert [getattr(a, name) for name in names] == [getattr(g, name) for name in names]
        assert a.shape == g.shape


@needs_corpus
def test_documentation_excerpts() -> None:
    folder = CORPUS / "hipblaslt"
    _, records = read((folder / "bench_stdout_winner_docs_6.4.log").read_text().splitlines())
    assert [(m.solution.text, m.time_us) for m in records if isinstance(m, Measurement)] == [
        ("hipblaslt:56537", 16.1189),
        ("hipblaslt:56537", 28.5758),
        ("hipblaslt:49257", 9.28735),
    ]
    units, records = read((folder / "bench_stdout_readme_2024-12_verify_and_freq.log").read_text().splitlines())
    assert units == {"call": 3, "measurement": 3, "fact": 3}
    assert [m.time_us for m in records if isinstance(m, Measurement)] == [10.4, 10.9, 14.1]
    units, records = read((folder / "bench_stdout_v5x_docs_noindex.log").read_text().splitlines())
    assert units == {"call": 1, "measurement": 1, "fact": 1}
    (only,) = (m for m in records if isinstance(m, Measurement))
    assert isinstance(only.problem, GemmProblem)
    assert (only.solution.text, only.time_us, only.problem.m, only.problem.a_type) == ("hipblaslt:?", 10.0, 128, None)


def sample() -> list[str]:
    return (SAMPLES / "bench_output.txt").read_text().split("\n")[:-1]


def test_winner_repeats_a_row_and_is_not_counted_again() -> None:
    units, records = read(sample())
    assert units["foreign"] == units["reject"] == 0
    measured = [(m.problem.text, m.solution.text) for m in records if isinstance(m, Measurement)]
    assert len(measured) == len(set(measured)) == 13 * 2 + 4 * 3
    without_winner = [line for line in sample() if line != "Winner: "]
    assert len(of(Measurement, read(without_winner)[1])) == len(measured) + 17


def test_winner_gives_the_index_of_a_row_without_one() -> None:
    header = "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,hipblaslt-Gflops,us"
    rows = ["    T,N,0,1,8,8,8,1,8,64,0,1,5.5", "    T,N,0,1,8,8,8,1,8,64,0,2,2.5"]
    lines = [
        f"[0]:{header}",
        rows[0],
        f"[1]:{header}",
        rows[1],
        "Winner: ",
        f"{header},solution_index",
        rows[1] + ",42",
    ]
    units, records = read(lines)
    assert units == {"measurement": 2, "fact": 5}
    assert [(m.solution.text, m.solution.raw, m.time_us) for m in records if isinstance(m, Measurement)] == [
        ("hipblaslt:?", "[0]", 5.5),
        ("hipblaslt:42", "42", 2.5),
    ]


def test_values_of_older_releases() -> None:
    header = (
        "[0]transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,hipblaslt-Gflops,us,norm_error,atol"
    )
    _, records = read([header, "    T,N,0,1,8,8,8,1,8,64,1, 1.5, 5.5,1,failed"])
    (only,) = (m for m in records if isinstance(m, Measurement))
    assert (only.status, only.error, only.time_us) == ("wrong", "atol failed", 5.5)
    _, records = read([header, "    T,N,0,1,8,8,8,1,8,64,1,invalid,invalid,1,1"])
    assert [m.status for m in records if isinstance(m, Measurement)] == ["no_time"]


def test_a_row_of_the_wrong_width_is_a_reject() -> None:
    header = "[0]:transA,transB,grouped_gemm,m,n,k,hipblaslt-Gflops,us"
    units, records = read([header, "    T,N,0,8,8,8,1"])
    assert units == {"fact": 1, "reject": 1}
    assert isinstance(records[0], Reject)


def test_a_quoted_row_keeps_its_time_and_an_unreadable_time_is_a_reject() -> None:
    header = "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,lda,ldb,ldc,ldd,d_type,hipblaslt-Gflops,us"
    row = "    N,T,0,1,96,64,32,96,64,96,96,f16_r,12.5,"
    units, records = read([header, f"{row}41.25`"])
    assert units == {"fact": 1, "measurement": 1}
    assert [m.time_us for m in of(Measurement, records) if isinstance(m, Measurement)] == [41.25]
    units, records = read([header, f"{row}41.25ms"])
    assert units == {"fact": 1, "reject": 1}
    assert records == [Reject("hipblaslt-bench row: us has the value '41.25ms', no number")]


def test_other_lines() -> None:
    lines = [
        "hipBLASLt version: 1200",
        "application",
        "with 5 apples",
        "Is supported 0 / Total solutions: 7",
        "No Solution Found!!",
    ]
    assert read(lines)[0] == {"fact": 1, "foreign": 2, "message": 2}


HEAD = (
    "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,"
    "b_type,c_type,d_type,compute_type,activation_type,bias_vector,hipblaslt-Gflops,us"
)


def make_output_row(m: int, us: float) -> str:
    return f"N,N,0,1,{m},32,64,1,{m},0,0,64,0,{m},0,{m},0,f16_r,f16_r,f16_r,f16_r,f32_r,none,0,10,{us}"


@pytest.mark.parametrize("mark", ["", "+ ", "> ", "+"])
@pytest.mark.parametrize("between", [[], ["", "text of a shell"], ["    --Solution index: 7"]])
def test_rows_below_one_header_are_all_read(mark: str, between: list[str]) -> None:
    lines = [HEAD, make_output_row(16, 4.5), *between, make_output_row(48, 5.5), make_output_row(80, 6.5), "N,N,0,1,16"]
    reader, rejects = bench_output.FORMAT.begin(), 0
    for text in lines:
        outcome = reader.take(Line(f"{mark}{text}" if text else "", 0))
        rejects += outcome is not None and outcome.unit == "reject"
    found = [x for x in reader.close() if isinstance(x, Measurement)]
    assert [(x.problem.m, x.time_us) for x in found] == [(16, 4.5), (48, 5.5), (80, 6.5)]  # type: ignore[union-attr]
    assert rejects == 1, "a row that is cut is told"


def add_pipes(text: str) -> str:
    return f"| {' | '.join(text.split(','))} |"


@pytest.mark.parametrize(
    "written",
    [
        add_pipes,
        lambda text: text.replace(",", ", "),
        lambda text: text.replace(",", ";"),
        lambda text: text.replace(",", "\t"),
        lambda text: "\t" + text.replace(",", "\t"),
    ],
)
def test_a_table_with_other_separators_is_read(written: Callable[[str], str]) -> None:
    """People post the output as a table of Markdown, or as columns from a spreadsheet."""
    head = HEAD.rpartition(":")[2]
    rule = [f"|{'|'.join(['---'] * (head.count(',') + 1))}|"] if written is add_pipes else []
    lines = [
        written(head),
        *rule,
        written(make_output_row(16, 4.5)),
        written(make_output_row(48, 5.5)),
        written("N,N,0,1,16"),
    ]
    units, records = read(lines)
    found = of(Measurement, records)
    assert [(x.problem.m, x.time_us) for x in found] == [(16, 4.5), (48, 5.5)]  # type: ignore[attr-defined]
    assert (units["measurement"], units["reject"], units["foreign"]) == (2, 1, 0)


def test_a_row_without_a_header_is_nobodys() -> None:
    reader = bench_output.FORMAT.begin()
    assert reader.take(Line(make_output_row(16, 4.5), 0)) is None
    assert not list(reader.close())


def test_adaptive_timing_states_its_spread_and_whether_it_settled() -> None:
    reader = bench_output.FORMAT.begin()
    for status, us in (("converged", 4.0), ("max_time", 5.0)):
        reader.take(Line(f"{HEAD},mean_us,min_us,cv,status", 0))
        reader.take(Line(f"{make_output_row(16, us)},{us + 1},3.5,0.25,{status}", 0))
    found = [x for x in reader.close() if isinstance(x, Measurement)]
    assert [(x.time_us, x.min_us, x.std_us, x.status, x.error) for x in found] == [
        (4.0, 3.5, 1.25, "ok", None),
        (5.0, 3.5, 1.5, "ok", "adaptive timing: max_time"),
    ]


@pytest.mark.parametrize(
    ("device", "us", "reason"),
    [
        ("AMD Radeon VII gfx906:sramecc+:xnack-", 6.3, "2,727 Tflop/s, but "),
        ("AMD Radeon VII gfx906:sramecc+:xnack-", 1500.0, ""),
        ("AMD Instinct MI300X gfx942:sramecc+:xnack-", 4.0, "4,295 Tflop/s, but MI300X does less than 2,876"),
        ("AMD Instinct MI355X gfx950:sramecc+:xnack-", 4.0, ""),  # below the device's 4-bit rate
        ("AMD Radeon Graphics gfx1999", 6.3, ""),  # the peak of this device is unknown
        ("AMD Radeon Graphics gfx1999", 0.2, "85,899 Tflop/s, but any device does less than"),
    ],
)
def test_a_time_above_the_devices_peak_is_no_time(device: str, us: float, reason: str) -> None:
    reader = bench_output.FORMAT.begin()
    row = f"N,N,0,1,2048,2048,2048,1,2048,0,0,2048,0,2048,0,2048,0,f32_r,f32_r,f32_r,f32_r,f32_r,relu,0,1,{us}"
    lines = ("hipBLASLt version: 100202", f"Device ID 0 : {device}", HEAD, row)
    *_, last = (reader.take(Line(text, 0)) for text in lines)
    assert last is not None
    assert last.unit == ("reject" if reason else "measurement")
    found = [x for x in (*last.records, *reader.close()) if isinstance(x, Measurement | Reject)]
    assert [reason in x.reason if isinstance(x, Reject) else not reason for x in found] == [True]
