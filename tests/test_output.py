"""Tests of the subcommands' output: every subcommand, in every format, on every kind of store (Parquet folder).

The tests also check that tables fit the terminal and that options refuse wrong values.
"""

from __future__ import annotations

import contextlib
import csv
import doctest
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import ModuleType

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.core
import typer.main

import logparse
from logparse import api
from logparse.cli import app
from logparse.errors import LogparseError, StoreError, UsageError
from logparse.ingest import ingest, lines, worker
from logparse.output import TABLES, Answer, Bar, TableFormat, show
from logparse.output.answer import arrow, convert_to_columns
from logparse.output.terminal import draw_table
from logparse.store import Store, open_store
from logparse.store.compaction import compact
from logparse.text import duration, join_times, parse_share, shorten_texts, signed_percent
from tests.conftest import ROOT, SAMPLES
from tests.program import run, run_with_answers

TUNED = str(SAMPLES / "tunableop/tunableop_results0.csv")
LOG = str(SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log")
FIND_DB = str(SAMPLES / "miopen/gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt")
LINE = next(line for line in Path(LOG).read_text().splitlines() if line.startswith("hipblaslt-bench"))

VERBS: dict[str, tuple[str, ...]] = {
    "top": ("top",),
    "show": ("show", LINE),
    "status": ("status",),
    "formats": ("formats",),
    "recommend": ("recommend", "--out", "{out}"),
    "replay": ("replay", "--dry-run", "--device", "cpu"),
    "lint": ("lint", TUNED),
    "lint -v": ("lint", TUNED, "-v"),
    "coverage": ("coverage", TUNED),
    "verify": ("verify", "{store}", "{store}", TUNED),
    "diff": ("diff", "{store}", "{store}"),
    "sql": ("sql", "select problem, calls from workload"),
}
WITHOUT_STORE = ("formats", "lint", "lint -v")
CHANGES: dict[str, tuple[str, ...]] = {
    "check": ("check",),
    "export": ("export", "--to", "bench", "--out", "{out}"),
    "ingest": ("ingest", TUNED, "--run", "r"),
    "compact": ("compact",),
    "forget": ("forget", "r"),
}
"""Subcommands that print no table, with their arguments.

Their order is such that each subcommand finds what the earlier ones made.
"""
ELSEWHERE = {
    **dict.fromkeys(
        ("capture", "run", "tune", "try"), "they start a job: tests/capture, tests/analyzers/tune/test_tune.py"
    ),
    **dict.fromkeys(("merge", "convert", "bisect"), "they read no store: tests/analyzers/overrides"),
    **dict.fromkeys(("explore", "report"), "they draw: tests/analyzers/explore"),
}


@pytest.fixture(
    scope="module",
    params=[
        "empty",
        "no findings",
        "damaged",
        *(pytest.param(x, marks=pytest.mark.nightly) for x in ("one row", "foreign")),
    ],
)
def kind_of_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("kinds")
    store = open_store(folder / "store", create=True)
    if request.param == "foreign":
        (folder / "foreign.txt").write_text("nothing of ours\n")
        ingest([str(folder / "foreign.txt")], store, run="r")
    elif request.param == "one row":
        (folder / "one.log").write_text(LINE + "\n")
        ingest([str(folder / "one.log")], store, run="r")
    elif request.param in ("no findings", "damaged"):
        ingest([LOG, FIND_DB], store, run="r")
    if request.param == "damaged":
        for path in (*(folder / "store" / "calls").rglob("*.parquet"), *(folder / "store/gemms").rglob("*.parquet")):
            path.write_bytes(path.read_bytes()[:40])
    return request.param, str(folder / "store")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_in_every_format_on_every_kind_of_store(
    kind_of_store: tuple[str, str], verb: str, tmp_path: Path
) -> None:
    """Each subcommand prints the documented columns with the documented types, or an error of one line.

    Every output format and several kinds of stores (Parquet folders) are tested.
    """
    kind, store = kind_of_store
    words = [word.format(store=store, out=tmp_path / "out") if "{" in word[:1] else word for word in VERBS[verb]]
    words += [] if verb in (*WITHOUT_STORE, "verify", "diff") else ["--store", store]
    out, answers = run_with_answers(*words)
    assert out.returncode in (0, 1, 3), out.stderr
    if not answers:
        assert out.returncode == 1
        assert out.stderr.startswith("error: ")
    for answer, how in product(answers, TableFormat):
        path = tmp_path / f"x.{how.value}"
        try:
            show(answer, how, str(path))
        except (LogparseError, duckdb.Error):
            assert (kind, verb, how) == ("damaged", "status", TableFormat.table), "its remarks read further tables"
            continue
        if verb in TABLES and how is TableFormat.parquet:
            assert pq.read_schema(path).equals(arrow(pd.DataFrame(), verb).schema), verb
        if how is TableFormat.json:
            assert isinstance(json.loads(path.read_text()), list)
    if kind == "damaged" and verb not in WITHOUT_STORE and verb != "status":
        assert out.returncode == 1
    if kind == "no findings" and verb != "verify":
        assert out.returncode != 1


def test_the_tables_of_verbs_hold_all_of_them() -> None:
    from typer.main import get_group

    from logparse.cli import app

    verbs = get_group(app).commands
    with_table = {name for name, verb in verbs.items() if any(x.name == "output" for x in verb.params)}
    assert with_table - {"try"} == {x.partition(" ")[0] for x in VERBS}
    assert set(verbs) - with_table == {*CHANGES, *ELSEWHERE} - {"try"}, "whose table is held in tests/analyzers/tune"


def test_verbs_without_a_table_end_on_every_kind_of_store(kind_of_store: tuple[str, str], tmp_path: Path) -> None:
    """Each subcommand that prints no table succeeds or prints an error of one line, on every kind of store.

    A store is a folder of Parquet files.
    """
    kind, store = kind_of_store
    url = str(shutil.copytree(store, tmp_path / "store"))
    for verb, given in CHANGES.items():
        out = run(*(word.format(out=tmp_path / "out") for word in given), "--store", url)
        assert out.returncode in (0, 1, 3), (verb, out.stderr)
        nothing = out.stdout.startswith("nothing to export: ")  # no error in a store without problems
        assert (out.returncode == 1) == (nothing or out.stderr.startswith("error: ")), (verb, out.stderr)
        assert "Traceback" not in out.stderr, verb
    assert run("check", "--store", url).returncode == 0, f"{kind}: what is forgotten leaves nothing damaged"


def test_a_damaged_store_is_named_file_by_file(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s", create=True)
    ingest([LOG, FIND_DB], store, run="r")
    assert run("check", "--store", store.url).stdout == "no file is damaged or missing\n"
    part = next((tmp_path / "s" / "calls").rglob("*.parquet"))
    part.write_bytes(b"PAR1")
    out = run("check", "--store", store.url)
    assert (out.returncode, part.name in out.stdout, LOG in out.stdout) == (3, True, True)
    assert "`logparse forget` it and ingest it again" in out.stdout
    for path in (tmp_path / "s").rglob("*.parquet"):
        if path.name.startswith(part.name.partition("-")[0]):
            path.unlink()
    out = run("check", "--store", store.url)
    assert "calls/category=" in out.stdout
    assert all("parquet: missing; lost: rows of " in line and LOG in line for line in out.stdout.splitlines())
    out = run("top", "--store", store.url)
    assert (out.returncode, LOG in out.stderr, "ingest it again" in out.stderr) == (1, True, True)


def test_what_is_lost_with_merged_and_joint_parts_has_a_remedy_that_works(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s", create=True)
    ingest([LOG, FIND_DB], store, run="r")  # small files, which are read together
    part = next((tmp_path / "s" / "calls").rglob("*.parquet"))
    whole = part.read_bytes()
    part.write_bytes(b"PAR1")
    (line,) = store.damage()
    assert LOG in line
    part.write_bytes(whole)
    compact(store, unread=True)
    part = next((tmp_path / "s" / "calls").rglob("*.parquet"))
    part.write_bytes(b"PAR1")
    (line,) = open_store(store.url).damage()
    assert "into a new store, or run `logparse forget PART`" in line
    part.unlink()
    (line,) = (left := open_store(store.url)).damage()
    assert (
        "missing; lost: all data that `logparse compact` merged; remedy: ingest all log files into a new store, or"
        in line
    )
    with pytest.raises(StoreError, match="into a new store"):
        left.calls()
    assert len(left.measurements())
    name = str(part.relative_to(store.url))
    assert left.forget(name) == [name]
    assert left.calls().empty
    compact(left)
    assert left.calls().empty
    assert len(left.measurements())
    assert left.damage() == []


@pytest.mark.parametrize("verb", ["top", "status", "formats"])
def test_tables_fit_and_break_no_number(
    samples: Store, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [verb, *(["-n", "30"] if verb == "top" else [])]
    _, (answer,) = run_with_answers(*words, *([] if verb == "formats" else ["--store", samples.url]))
    show(answer, wide=True)
    whole = capsys.readouterr().out
    for width in (80, 100, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        show(answer)
        out = capsys.readouterr().out.splitlines()
        rule = next(i for i, line in enumerate(out) if "──" in line)
        assert len(out[rule]) <= width
        table = out[rule - 1 : next((i for i in range(rule, len(out)) if not out[i].startswith(" ")), len(out))]
        assert all(len(line) <= width for line in table)
        assert len(out[rule - 1].split()) >= 3, "columns are left out only where there is no room"
        for number in re.findall(r"\d[\d,.]*\d", "\n".join(table)):
            assert number in whole


def test_what_a_table_names_as_remedy_is_an_option_of_the_verb(tmp_path: Path) -> None:
    words = ["ingest", str(LOG), "--store", str(tmp_path)]
    assert "foreign (--wide shows all columns)" in run(*words, columns=80).stdout
    assert "foreign" in run(*words, "--wide", columns=80).stdout.splitlines()[0]


@pytest.fixture
def samples_store(samples: Store) -> str:
    return samples.url


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_problem_is_in_every_table_that_has_one(width: int) -> None:
    numbers = {f"n{i}": [1234567.5] for i in range(9)}
    table = draw_table(
        pd.DataFrame({**numbers, "problem": ["W 64×128×56×56 k128 3×3 g32 FP16 NCHW"], "n9": [1]}), width
    )
    assert "W 64×128×56×56 k128 3×3 g32 FP16 NCHW" in table
    assert all(len(line) <= width for line in table.splitlines()[:-1])
    shown, left_out = table.splitlines()[0].split(), table.splitlines()[-1]
    assert all((f"n{i}" in shown) != (f"n{i}" in left_out) for i in range(10))


def test_files_are_shown_below_the_folder_that_holds_all(tmp_path: Path) -> None:
    for name in ("one.log", "two/one.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(LINE + "\n")
    out = run("ingest", str(tmp_path), "--store", str(tmp_path / "s"), "--run", "r")
    lines_ = [line.split() for line in out.stdout.splitlines()]
    assert lines_[0] == ["in", f"{tmp_path}/"]
    assert [lines_[3][0], lines_[4][0]] == ["one.log", "two/one.log"]


def test_a_file_that_is_cut_in_a_foreign_line_keeps_its_formats(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(f"{LINE}\nforeign, and without an end")
    store = open_store(tmp_path / "s", create=True)
    ingest([str(tmp_path / "x.log")], store, run="r")
    assert store.query("select format from sources")["format"].tolist() == ["hipblaslt-bench"]


@pytest.mark.parametrize("as_arrow", [False, True])
def test_no_time_is_shortened(as_arrow: bool) -> None:
    times = pd.to_datetime([f"2026-11-21 05:{minute}:08" for minute in (10, 59)])
    frame = pd.DataFrame(
        {"run": ["one long name of a run", "another long name"], "first_seen": times, "solution": ["x" * 60] * 2}
    )
    shown = draw_table(pa.Table.from_pandas(frame) if as_arrow else frame, 60)
    assert "2026-11-21 05:10:08" in shown
    assert "2026-11-21 05:59:08" in shown


def test_names_of_kernels_are_cut_between_words() -> None:
    """A cut name keeps whole words, because a reader cannot guess a kernel from ``rwXdlops``."""
    kernel, other = "miopen:ConvHipImplicitGemmGroupWrwXdlops", "miopen:ConvBinWinogradRxSf3x2"
    assert shorten_texts([f"use {kernel}"], 20) == ["use …GroupWrwXdlops"]
    assert shorten_texts([kernel], 16) == ["…GroupWrwXdlops"]
    assert shorten_texts([kernel, other], 20) == ["…GemmGroupWrwXdlops", "…BinWinogradRxSf3x2"]
    for room in range(12, 40):
        cut = shorten_texts([kernel, other, "hipblaslt:104377"], room)
        assert len(set(cut)) == 3
        assert max(map(len, cut[:2])) <= room


def test_an_unknown_number_stands_under_the_numbers() -> None:
    rows = [{"saves_us": 12.5, "why": "unknown"}, {"saves_us": "unknown", "why": "unknown"}]
    lines = draw_table(rows, 80).splitlines()
    assert [line[:9] for line in lines[2:]] == ["     12.5", "  unknown"]


def test_names_are_shortened_to_what_differs() -> None:
    kernels = [f"kernel:void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_{x}_relu>(cutlass::Params)" for x in "ab"]
    assert shorten_texts(kernels, 60) == [f"kernel:cutlass_80_tensorop_s16816gemm_{x}_relu" for x in "ab"]
    for room in (12, 20, 30):
        cut = shorten_texts(kernels, room)
        assert len(set(cut)) == 2
        assert all(len(text) <= room for text in cut)
    tables = [f"aiter/{x}_tuned_gemm.head.csv" for x in ("bf16", "a8w8_blockscale", "a8w8_bpreshuffle", "a4w4")]
    for room in (16, 20):
        assert len(set(shorten_texts([*tables, "aiter/tuned_gemm_v1.csv"], room))) == len(tables) + 1
    stems = (
        "bf16_tuned_gemm",
        "bf16_untuned_gemm",
        "a8w8_tuned_gemm",
        "a8w8_untuned_gemm",
        "bf16_tuned_gemm_v9_f15277ab",
    )
    stems += ("tuned_gemm_v2_56a09c8865", "tuned_gemm_v3_449189b166", "tuned_gemm_v6_cf1d28e3fa")
    files = ["flydsl_2.7.1_gfx942_results0.csv", *(f"aiter/{stem}.head.csv" for stem in stems)]
    assert len(set(shorten_texts(files, 20))) == len(files), "a name that is cut again becomes like no other"
    flags = {"nchwToNhwc": "float, false, true", "nhwcToNchw": "float, true, false"}
    changes = [f"cudnn::engines_precompiled::{x}Kernel<__half, __half, {y}, (cudnnKernelDataType_t)0>"
               for x, y in flags.items()]  # fmt: skip
    for room in (16, 20, 24):
        assert len({*shorten_texts(changes, room)}) == len(changes), "they differ in their middle alone"
        assert max(map(len, shorten_texts(changes, room))) <= room
    assert shorten_texts(["one"], 10) == ["one"]
    assert shorten_texts(["x" * 30], 10) == ["xxxxxx…xxx"]
    label = "W 64×128×56×56 k128 3×3 g32 FP16 NCHW"
    for room in range(12, len(label)):
        (cut,) = shorten_texts([label], room)
        assert len(cut) <= room
        assert set(re.findall(r"[^ …]+", cut)) <= set(label.split()), "no word, and so no number, is broken"


@pytest.mark.parametrize(
    ("us", "text"), [(999.9, "1000 µs"), (5455.0, "5.46 ms"), (1.24e7, "12.4 s"), (7.2e9, "120 min"), (None, "unknown")]
)
def test_durations(us: float | None, text: str) -> None:
    assert duration(us) == text


@pytest.mark.parametrize(("us", "text"), [(45400.0, "18.5 of 45.4 ms"), (4.5e6, "18.5 ms of 4.5 s")])
def test_two_times_of_one_unit_name_it_once(us: float, text: str) -> None:
    assert join_times(18500.0, "of", us) == text


@pytest.mark.parametrize(
    ("change", "text"), [(0.25, "+25.0%"), (-0.591, "−59.1%"), (-0.0001, "0.0%"), (0.0, "0.0%"), (21.0, "+2100.0%")]
)
def test_signed_percents(change: float, text: str) -> None:
    assert signed_percent(change) == text


def test_documented_columns_are_those_of_the_program() -> None:
    text = (ROOT / "docs/commands.md").read_text()
    documented = dict(
        re.findall(r"^\| `([a-z -]+)` \| ((?:`\w+` (?:int|float|text|bool|time)(?:, )?)+) \|$", text, re.M)
    )
    assert {verb: columns.replace("`", "") for verb, columns in documented.items()} == dict(TABLES)


def test_a_file_is_written_in_the_format_of_its_ending(samples_store: str, tmp_path: Path) -> None:
    _, (answer,) = run_with_answers("top", "-n", "3", "--store", samples_store)
    for ending in ("csv", "json", "parquet"):
        show(answer, out=str(tmp_path / f"t.{ending}"))
    rows = json.loads((tmp_path / "t.json").read_text())
    table = pq.read_table(tmp_path / "t.parquet")
    assert rows == table.to_pylist()
    assert len(rows) == 3
    texts = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [float(row["share"]) for row in texts] == [row["share"] for row in rows]


@pytest.mark.parametrize(
    "words",
    [
        ("sql", "select problem from gemm_problems"),
        ("coverage", TUNED),
        ("status",),
        ("formats",),
        ("lint", TUNED, "-v"),
    ],
    ids=lambda words: words[0],
)
def test_n_limits_the_rows_in_every_format(words: tuple[str, ...], samples_store: str, tmp_path: Path) -> None:
    where = [] if words[0] in WITHOUT_STORE else ["--store", samples_store]
    for ending in ("csv", "json", "parquet"):
        path = str(tmp_path / f"t.{ending}")
        assert run(*words, *where, "-n", "2", "-o", path).stderr == f"written: {path}\n"
    assert len(json.loads((tmp_path / "t.json").read_text())) == pq.read_table(tmp_path / "t.parquet").num_rows == 2
    assert len(list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text())))) == 3
    if words[0] in ("sql", "formats"):
        assert len(run(*words, *where, "-n", "2").stdout.splitlines()) == 4, "names, a rule, two rows"


def test_numbers_are_exact_and_what_is_no_number_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"x": [0.1, float("nan"), None], "n": pa.array([1, None, 2**60])})
    show(Answer(table=table), TableFormat.json)
    assert json.loads(capsys.readouterr().out) == [{"x": 0.1, "n": 1}, {"x": None, "n": None}, {"x": None, "n": 2**60}]
    show(Answer(table=table), TableFormat.csv)
    assert capsys.readouterr().out == f"x,n\n0.1,1\n,\n,{2**60}\n"


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.03", 0.03), (" 250 % ", 2.5), ("0", 0.0), ("5%", 0.05)])
def test_a_share(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["3", "1", "x", "-1%", "nan", "inf%", "%", "3%%"])
def test_what_may_mean_percent_or_a_hundred_times_as_much_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--min-gain .*give a share such as 3%"):
        parse_share(text, "--min-gain")


def test_a_share_above_the_most_is_refused() -> None:
    assert parse_share("100%", "--min-gain", most=1.0) == 1.0
    with pytest.raises(UsageError, match=r"^--min-gain 101%: at most 100%$"):
        parse_share("101%", "--min-gain", most=1.0)


new_typer = pytest.mark.skipif(
    not hasattr(typer.core.TyperOption, "get_runtime_param"), reason="an older typer states limits in other words"
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("top", "--kind", "foo"), "--kind foo: must be one of gemm, grouped, conv"),
        pytest.param(("top", "-n", "-3"), "greater than or equal to 1", marks=new_typer),
        (("replay", "--backend", "torch,nosuch"), "--backend nosuch: must be one of torch, cublaslt"),
        (("diff", "a", "b", "--fail-on", "x"), "give a share such as 3%"),
        pytest.param(("diff", "a", "b", "--floor", "-1"), "greater than or equal to 0", marks=new_typer),
        (("capture", "--print", "--masks", "nosuch"), "'nosuch' is not a log category; the categories are 1 error"),
        (("ingest", LOG, "--engine", "spark"), "--engine spark: must be local, ray"),
        (("recommend", "--target", "nosuch=1"), "names are arch"),
        (("recommend", "--target", "cu_count=abc"), "cu_count must be a number of compute units"),
        pytest.param(("recommend", "--min-saving", "nan"), "greater than or equal to 0", marks=new_typer),
        (("recommend", "--out", "s3://bucket/overrides"), "s3:/bucket/overrides: cannot write to a URL"),
        (("report", "--out", "gs://bucket/r.html"), "gs:/bucket/r.html: cannot write to a URL"),
        (("top", "-o", "s3://bucket/top.csv"), "s3://bucket/top.csv: cannot write to a URL"),
        (("replay", "--dry-run", "--device", "foo"), "--device foo: must be cpu or the numbers of GPUs"),
        (("replay", "--device", "0,cuda"), "--device cuda: must be cpu or the numbers of GPUs"),
        (("replay", "--dry-run", "--engine", "spark"), "--engine spark: must be local, ray"),
        (("replay", "--dry-run", "--backend", ":x"), "--backend :x: must be one of torch, cublaslt"),
        (("coverage", "x.csv", "--against", "s", "--run", "nosuch"), "--against and --run both name a run"),
        (("top", "-o", "x.xlsx"), "-o x.xlsx: must end in .csv, .json, .parquet"),
        (("replay", "--budget", "soon"), "--budget soon: must be a time above 0"),
        (("export", "--to", "nosuch"), "--to nosuch: must be one of bench"),
        (("convert", "x.csv", "--to", "nosuch"), "--to nosuch: must be one of"),
        (("lint", "x.csv", "--as", "nosuch"), "--as nosuch: must be one of"),
    ],
)
def test_values_that_an_option_does_not_have_are_refused(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    out = run(*words)
    assert (out.returncode, expected in out.stderr) == (2, True), out.stderr


def test_a_format_is_no_name_of_a_file(samples_store: str) -> None:
    out = run("top", "--store", samples_store, "-o", "csv")
    assert (out.returncode, out.stderr) == (
        2,
        "error: -o names a file, not a format; to print csv, use --format csv; to write it, use -o NAME.csv\n",
    )


@pytest.mark.parametrize(
    ("words", "parameter", "value"),
    [
        (("ingest", "a.log", "--format", "hipblaslt-bench"), "format", "hipblaslt-bench"),
        (("capture", "--dir", "logs"), "folder", Path("logs")),
        (("recommend", "--max-rows", "3"), "max_rows", 3),
        (("lint", "a.csv", "--rows"), "verbose", True),
        (("export", "--as", "bench"), "to", "bench"),
        (("coverage", "a.csv", "--run", "before"), "run", "before"),
        (("top", "--output=top.csv"), "output", "top.csv"),
    ],
)
def test_an_earlier_name_of_an_option_works_and_no_help_shows_it(
    words: tuple[str, ...], parameter: str, value: object
) -> None:
    verb = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    context = verb.make_context(words[0], list(words[1:]))
    assert context.params[parameter] == value
    old = next(x for x in words if x.startswith("--")).partition("=")[0]
    assert not re.search(rf"{old}(?![\w-])", verb.get_help(context).replace("--table", "")), "the help names it"


def test_equal_options_mean_the_same_in_every_subcommand() -> None:
    """An option has the same help text in every subcommand, with a few exceptions."""
    # The exceptions mean nearly the same, but need another sentence in each subcommand. In an earlier version, --as
    # named a format to read in lint, but a format to write in export.
    alike = {"-n", "--run", "--budget", "--trace", "--out", "--kind", "--ladder", "--timeout", "--as", "--to",
             "--same-build", "--against", "--verbose"}  # fmt: skip
    known: dict[str, dict[str, str]] = {}
    for name, verb in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for option in verb.params:
            for word in option.opts:
                if word.startswith("-") and not option.hidden:
                    known.setdefault(word, {})[name] = option.help
    differ = {word for word, told in known.items() if len(set(told.values())) > 1}
    assert differ - {"-v", "-o"} <= alike


def test_short_help() -> None:
    assert "Usage:" in run("top", "-h").stdout


def test_progress_is_one_line_with_share_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.StringIO()
    monkeypatch.setattr(sink, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", sink)
    monkeypatch.setattr("time.monotonic", iter([0.0, 2.0, 2.1, 8.0]).__next__)
    with Bar() as bar:
        bar.begin(400_000_000)
        for _ in range(3):
            bar.advance("a.log", 100_000_000)
    assert sink.getvalue().split("\r\x1b[K") == [
        "",
        "ingest 25% 50 MB/s 6 s left",
        "ingest 75% 38 MB/s 2.67 s left",
        "",
    ]


def test_an_ingest_that_gave_nothing_states_the_reason(tmp_path: Path) -> None:
    at = ("--store", str(tmp_path / "s"))
    (tmp_path / "empty.log").touch()
    (tmp_path / "foreign.txt").write_text("hello\nworld\n")
    out = run("ingest", str(tmp_path / "empty.log"), str(tmp_path / "foreign.txt"), *at)
    assert out.returncode == 1
    assert "empty.log: the file is empty" in out.stderr
    (tmp_path / "cleared.json").write_text(
        '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "M", "name": "x"}]}'
    )
    assert "export the trace in `on_trace_ready`" in run("ingest", str(tmp_path / "cleared.json"), *at).stderr
    assert "the file begins with 'hello'" in out.stderr
    (tmp_path / "tunableop_results0.csv").touch()
    out = run("ingest", str(tmp_path / "tunableop_results0.csv"), *at)
    assert (out.returncode, "TunableOp wrote no result" in out.stderr) == (0, True)


@pytest.mark.parametrize(
    ("category", "wanted"),
    [
        ("Trace", "export the trace in `on_trace_ready`"),
        ("mtia_runtime", "the trace is of an MTIA device"),
        ("async_npu", "the trace is of Ascend NPUs"),
        ("cuda_profiler_range", "counters of CUPTI"),
        ("Kernel", "the trace has the form of 2021"),
        ("cpu_op", "events of the CPU only"),
        ("xpu_driver", "the trace's events have only the categories xpu_driver"),
    ],
)
def test_a_trace_without_kernels_is_named_by_what_it_is_of(category: str, wanted: str, tmp_path: Path) -> None:
    event = {"ph": "X", "cat": category, "name": "x", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0, "args": {}}
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [event]}))
    assert wanted in run("ingest", str(path), "--store", str(tmp_path / "store")).stderr


def test_a_run_without_problems_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "tunableop_results0.csv").touch()
    ingest([str(tmp_path / "tunableop_results0.csv")], store, run="none")
    at = ("--store", store.url)
    assert run("top", *at).stdout.startswith("run none holds no problem that a job called")
    assert run("top", *at, "--kind", "conv").stdout.startswith("run none holds no convolution that a job called")
    assert "status" in run("top", *at).stdout
    ingest([str(SAMPLES / "traces" / "4242_kernel_stats.csv")], store, run="profiled")
    assert f"it holds 2 kernels of a profiler, which `logparse sql --store {store.url}" in run("top", *at).stdout
    assert run("diff", "none", "none", *at).stdout.startswith(
        "none → none: neither run has a matrix product or a convolution\n"
    )


def test_a_file_of_another_run_is_never_silently_ignored(tmp_path: Path) -> None:
    at = ("--store", str(tmp_path / "s"))
    assert run("ingest", LOG, "--run", "one", *at).returncode == 0
    out = run("ingest", LOG, "--run", "two", *at)
    assert out.returncode == 1
    assert "already in the store as part of run one" in out.stderr
    assert f"`logparse forget --store {at[1]} {LOG}`" in out.stderr, "without it the file of another store would go"
    assert run("ingest", LOG, *at).returncode == 0, "without --run it is only known"


def test_a_file_in_place_of_a_run_is_remarked(tmp_path: Path) -> None:
    at = ("--store", str(tmp_path / "s"))
    run("ingest", TUNED, "--run", "one", *at)
    out = run("diff", "one", TUNED, *at)
    assert out.stderr == (
        f"note: {TUNED} is read again from the file, without the rest of run one in the store, which it is "
        "compared with\n"
    )
    assert "20 same" in out.stdout
    assert run("diff", "one", "one", *at).stderr == "note: one is compared with itself\n"
    out = run("verify", TUNED, "one", TUNED, *at)
    assert (out.returncode, "which it is compared with" in out.stderr) == (3, True)
    assert out.stdout.splitlines()[0] == "verify: not verified: no problem (problems with a row); no time was compared"
    assert "run one has no calls (ingest a log or a trace of the job into this" in " ".join(out.stdout.split())
    bare = run("verify", "one", "one", *at)
    assert (bare.returncode, bare.stdout) == (2, "")
    assert "needs override files or --action" in bare.stderr


def test_the_same_stream_twice_is_remarked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logparse", "ingest", "-", "--run", "r", "--store", str(tmp_path / "s")]
    (tmp_path / "temporary").mkdir()
    environ = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    outs = [
        subprocess.run(command, input=LINE + "\n", env=environ, cwd=ROOT, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert ["the same content as an earlier stream" in out.stderr for out in outs] == [False, True]
    assert not list((tmp_path / "temporary").iterdir()), "the copies of the stream are gone"


def test_recommend_on_a_store_that_cannot_be_written(
    samples_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logparse.store import findings

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "findings.parquet")

    monkeypatch.setattr(findings, "replace_file", refused)
    out = run("recommend", "--store", samples_store, "--out", str(tmp_path / "out"))
    assert (out.returncode, "a run" in out.stdout) == (0, True), out.stderr
    assert (tmp_path / "out" / "report.md").exists()


def test_recommend_prints_where_its_files_cannot_be_written(samples_store: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = run("recommend", "--store", samples_store, "--out", str(tmp_path / "file" / "out"))
    assert (out.returncode, "a run" in out.stdout) == (1, True)
    assert out.stderr.startswith(f"error: {tmp_path / 'file'}")
    assert "the files were not written (--out)" in out.stderr


def test_findings_have_confidence_and_action_in_sql(samples_store: str, tmp_path: Path) -> None:
    found = run("recommend", "--store", samples_store, "--out", str(tmp_path), "--format", "json")
    names = "problem, message, confidence, action"
    kept = run("sql", f"select {names} from findings", "--store", samples_store, "--format", "json")
    wanted = [{name: row[name] for name in names.split(", ")} for row in json.loads(found.stdout)]
    assert json.loads(kept.stdout) == wanted
    assert {row["action"].split(" ")[0] for row in wanted} >= {"use", "tune"}


def test_sql_errors_are_readable(samples_store: str) -> None:
    out = run("sql", "select nosuch from calls", "--store", samples_store)
    assert (out.returncode, "\\n" in out.stderr) == (1, False)
    assert "nosuch" in out.stderr
    [line] = run("sql", "from nosuch", "--store", samples_store).stderr.splitlines()
    assert "does not exist! The views are sources, calls, workload" in line


def test_offsets_have_a_name_that_needs_no_quotes(samples_store: str) -> None:
    sql = "(select offset_bytes from rejects limit 1) union all (select offset_bytes from messages limit 1)"
    out = run("sql", sql, "--store", samples_store, "--format", "json")
    assert [type(row["offset_bytes"]) for row in json.loads(out.stdout)] == [int, int]


ENDING = """
import atexit, os, sys, tempfile, threading, time
from logparse.output.program import end_process

class Freed:
    def __del__(self, write=os.write):
        write(1, b"taken apart\\n")

def late():
    time.sleep(0.05)
    print("thread")

freed, folder = Freed(), tempfile.TemporaryDirectory(dir=sys.argv[1])
atexit.register(print, "exit function")
threading.Thread(target=late).start()
print("buffered")
{watched}
end_process(3)"""


@pytest.mark.parametrize("watched", ["", "sys.setprofile(lambda *event: None)"])
def test_a_process_ends_at_once_and_leaves_nothing_undone(watched: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDING.format(watched=watched), str(tmp_path)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (out.returncode, out.stderr, list(tmp_path.iterdir())) == (3, "", [])
    assert out.stdout.splitlines() == ["buffered", "thread", "exit function", *["taken apart"] * bool(watched)]


@pytest.mark.parametrize("verb", ["top", "recommend", "status", "coverage", "diff"])
def test_a_program_that_ends_prints_nothing_else(verb: str, samples_store: str, tmp_path: Path) -> None:
    """A subcommand prints nothing on standard error except for its own notes and remarks.

    DuckDB would print a warning when Python shuts down if some of DuckDB's objects were still alive.
    """
    rest = {"coverage": [TUNED], "diff": [TUNED, TUNED], "recommend": ["--out", str(tmp_path)]}.get(verb, [])
    command = [sys.executable, "-m", "logparse", verb, *rest, "--store", samples_store]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert out.stdout
    assert [x for x in out.stderr.splitlines() if not x.startswith(("note: ", "remark: "))] == []


def test_the_c_locale_and_closed_streams(samples_store: str) -> None:
    environ = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    streams = (("formats >&-", 0), ("formats > /dev/full", 1), ("formats | head -1", 0))
    for words, code in ((f"top --store {samples_store}", 0), *streams):
        command = ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m logparse {words}"]
        out = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, check=False)
        assert (out.returncode, b"Traceback" in out.stderr) == (code, False), out.stderr
        assert b"Exception ignored" not in out.stderr


def test_the_status_of_an_empty_store_states_that(tmp_path: Path) -> None:
    at = ("--store", open_store(tmp_path / "s", create=True).url)
    assert run("status", *at).stdout.endswith(
        f"/s is empty; ingest some logs first (`logparse ingest --store {at[1]} PATH…`)\n"
    )
    assert run("status", *at, "--format", "json").stdout == "[]\n"


def test_fractional_counts_are_printed_as_whole_numbers() -> None:
    """A number of calls with a fraction is printed as a whole number: 1.98 calls are printed as 2."""
    # Fractions occur because logparse weights the kinds of steps of a job. The SQL views with the counts of a run have
    # whole numbers.
    rows = pd.DataFrame({"count": pd.array([1.98, None, 3.0], "Float64")})
    assert convert_to_columns(rows, "count int")["count"].to_pylist() == [2, None, 3]


def test_empty_columns_are_left_out_before_others() -> None:
    table = pa.table(
        {"state": ["changed"], "problem": ["TN"], "a_us": pa.nulls(1, pa.float64()), "pick": ["hipblaslt"]}
    )
    assert draw_table(table, 31).splitlines()[::3] == [" state     problem   pick"], "and not named: nothing is lost"
    assert "a_us" not in draw_table(table, None), "an empty column says nothing"


def test_paths_that_are_not_utf8_are_errors(tmp_path: Path) -> None:
    """If a path is not valid UTF-8, an error says what to do, and the other files are still read.

    In the C locale, every path with a character beyond ASCII is such a path.
    """
    (tmp_path / "é").mkdir()
    for folder in ("", "é"):
        shutil.copy(LOG, tmp_path / folder / "x.log")
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["ingest", str(tmp_path), "--store", str(tmp_path / "s"), "--run", "r", "--wide"]
    out = subprocess.run(
        [sys.executable, "-m", "logparse", *words], env=environ, cwd=ROOT, capture_output=True, check=False
    )
    assert (out.returncode, out.stdout.isascii()) == (1, True)
    assert b"/x.log: a path must be UTF-8; rename it, or set PYTHONUTF8=1" in out.stderr
    assert open_store(tmp_path / "s").sources()["path"].tolist() == [str(tmp_path / "x.log")]


def test_pasted_bytes_that_are_no_utf8(store: Store) -> None:
    for words in (("show", "a\udcff"), ("sql", "select 'a\udcff' as x")):
        out = run(*words, "--store", store.url)
        assert (
            "a\\xff" in out.stdout or "is no matrix product or convolution" in out.stderr or "x'a\\\\xff'" in out.stderr
        )


def test_json_is_utf_8_in_every_locale() -> None:
    text = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(text, encoding="ascii")) as stream:
        show(Answer(table=pa.table({"x": ["ß─µ"]})), TableFormat.json)
        stream.flush()
    assert json.loads(text.getvalue()) == [{"x": "ß─µ"}]


@pytest.mark.parametrize("how", ["gzip", "blocks", "counters", "standard input"])
def test_too_long_lines_are_rejected_and_counted(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of a log that is longer than the limit is rejected and counted.

    The line is read in blocks, so that it is never in memory as a whole.
    """
    monkeypatch.setattr(lines, "LONGEST_BYTES", 3 << 20)
    monkeypatch.setattr(worker, "_RANGED_BYTES", 1 << 20 if how == "counters" else 1 << 40)
    content = b"".join((LINE.encode() + b"\n", b"x" * (9 << 20) + b"\n", LINE.encode() + b"\n", b"y" * (5 << 20)))
    path = tmp_path / "long.log"
    path.write_bytes(gzip.compress(content, 1) if how == "gzip" else content)
    store = open_store(tmp_path / "s", create=True)
    with path.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        (result,) = ingest(["-" if how == "standard input" else str(path)], store, run="r")
    assert (result.lines, result.units["call"], result.units["reject"]) == (4, 2, 2)
    rejects = store.rejects().sort_values("offset_bytes")
    assert rejects["offset_bytes"].tolist() == [len(LINE) + 1, 2 * (len(LINE) + 1) + (9 << 20) + 1]
    assert rejects["length"].tolist() == [(9 << 20) + 1, 5 << 20]
    blocks = [block for block, _ in lines.blocks(io.BytesIO(content), long=lambda *_: None)]
    assert b"".join(blocks) == (LINE + "\n").encode() * 2
    assert max(map(len, blocks)) < 4 << 20


def test_many_small_files_give_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from logparse.lookup import contents

    store = open_store(tmp_path / "s", create=True)
    ingest([LOG, FIND_DB, TUNED], store, jobs=1)
    assert "compact" not in run("status", "--store", store.url).stdout
    monkeypatch.setattr(contents, "MANY_FILES", 2)
    assert "`logparse compact` merges them" in run("status", "--store", store.url).stdout


@pytest.mark.parametrize("module", [logparse, api])
def test_the_package_as_its_docstring_shows_it(module: ModuleType, tmp_path: Path) -> None:
    found = doctest.testmod(
        module,
        extraglobs={"folder": str(tmp_path / "s")},
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert found.attempted >= 5
    assert found.failed == 0
