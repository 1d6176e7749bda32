"""Tests of the program as a user sees it: exit codes, messages and the formats of tables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from logparse import __version__
from logparse.output.options import GROUPS
from logparse.output.program import run_program
from logparse.store import Store
from logparse.text import duration
from tests.conftest import ROOT, SAMPLES
from tests.program import run
from tests.waiting import wait_until


@pytest.fixture
def store(samples: Store) -> str:
    return samples.url


VERBS = [name for names in GROUPS.values() for name in names]


def test_help_lists_each_verb_once() -> None:
    from typer.main import get_command

    from logparse.cli import app

    assert sorted(VERBS) == sorted(get_command(app).commands)  # type: ignore[attr-defined]
    assert [line.split()[0] for line in run("--help").stdout.splitlines() if line.startswith("  ")].count("ingest") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    out = run(verb, "--help")
    assert out.returncode == 0
    assert "Example:" in out.stdout


def test_a_run_that_is_no_option_says_how_to_name_it() -> None:
    for words, known in ((["recommend", "before"], True), (["status", "before"], False)):
        said = " ".join(run(*words).stderr.split())
        assert "Got unexpected extra argument(s) (before)" in said
        assert ("a run is named with --run RUN" in said) == known


def test_the_version_is_printed() -> None:
    command = [sys.executable, "-m", "logparse", "--version"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == (
        f"logparse {__version__}\n"
    )


def test_a_query_and_its_limits(store: str) -> None:
    endless = "select sum(a.range * b.range) from range(10000000) a, range(10000000) b"
    for words, output, error in (
        (("select 41 + 1 as x", "--format", "csv"), "x\n42\n", ""),
        ((endless, "--timeout", "0.5"), "", "took longer"),
        (("copy (select 1) to 'x.csv'",), "", "one SELECT at a time"),
        (("select 1", "--run", "nosuch"), "", "no run 'nosuch'"),
    ):
        out = run("sql", *words, "--store", store)
        assert (out.stdout, out.returncode, out.stderr.count("error:")) == (output, bool(error), bool(error))
        assert error in out.stderr


def _cpu_s(pid: int) -> float | None:
    """Return the CPU seconds of a process, or None once it has ended."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else (int(rest[10]) + int(rest[11])) / os.sysconf("SC_CLK_TCK")


def _below(pid: int) -> Iterator[int]:
    """Yield the process ids of all children, grandchildren and so on of a process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            yield child
            yield from _below(child)


def test_a_query_ends_with_the_program(samples: Store) -> None:
    """If logparse is killed during an SQL query, the process that runs the query ends, too.

    Otherwise that process would go on: the query of this test takes weeks, and nobody is left to stop it.
    """
    endless = "select sum(a.x * b.x) from range(1000000000000) a(x), range(1000000) b(x)"
    command = [sys.executable, "-m", "logparse", "sql", endless, "--timeout", "600", "--store", samples.url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as program:
        try:
            child = None
            while child is None:
                assert program.poll() is None
                busy = (x for x in _below(program.pid) if (_cpu_s(x) or 0.0) > 1.5)  # more than its imports take
                child = next(busy, None)
                time.sleep(0.05)
        finally:
            program.kill()
    assert wait_until(lambda: _cpu_s(child) is None), "it ends, too"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("Query interrupted"), duckdb.InvalidInputException("reading the schema failed: KeyboardInterrupt: ")],
)
def test_ctrl_c_in_a_query_is_no_error(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C during an SQL query ends the program with exit code 130 and without a message."""
    # DuckDB turns a KeyboardInterrupt into errors of its own. In an earlier version, these errors led to a traceback,
    # or to the false message that the store (Parquet folder) is damaged.

    def app(words: Sequence[str]) -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_program(app, [])
    assert (ended.value.code, capsys.readouterr()) == (130, ("", ""))


def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run("ingest", str(SAMPLES / "hipblaslt" / "trace_4242.log"), "--run", "r", "--store", store)
    for name in (str(tmp_path / "none" / "x.csv"), str(tmp_path / "x.csv" / "y.csv")):
        (tmp_path / "x.csv").touch()
        out = run("top", "--run", "r", "--store", store, "-o", name)
        assert (out.returncode, out.stderr.startswith(f"error: {name}: "), out.stderr.count("\n")) == (1, True, 1)


def test_exit_codes(tmp_path: Path, store: str) -> None:
    (tmp_path / "foreign.txt").write_text("nothing of ours\n")
    at = ("--store", str(tmp_path / "s"))
    foreign = run("ingest", str(tmp_path / "foreign.txt"), *at)
    assert (foreign.returncode, "foreign.txt" in foreign.stdout) == (1, True)
    both = run("ingest", str(tmp_path / "foreign.txt"), str(SAMPLES / "hipblaslt" / "trace_4242.log"), *at)
    assert both.returncode == 0
    missing = run("ingest", str(tmp_path / "no*such"), str(SAMPLES / "hipblaslt" / "trace_4242.log"), *at)
    assert (missing.returncode, "no*such" in missing.stderr) == (1, True)
    assert run("ingest").returncode == 2
    assert run("top", "--by", "colour", "--store", store).returncode == 2
    assert run("status", "--store", str(tmp_path / "nowhere")).returncode == 1
    assert run("ingest", str(tmp_path / "foreign.txt"), "--as", "no-such", *at).returncode == 2


def test_top_ranks_by_calls_and_by_time(store: str) -> None:
    by_calls = json.loads(run("top", "--store", store, "--format", "json").stdout)
    assert [row["calls"] for row in by_calls] == sorted((row["calls"] for row in by_calls), reverse=True)
    by_time = json.loads(run("top", "--by", "time", "--store", store, "--format", "json").stdout)
    known = [row["total_us"] for row in by_time if row["total_us"] is not None]
    assert known == sorted(known, reverse=True)
    assert known


@pytest.mark.parametrize("name", ["trace_4242.log", "profile_4242.log", "extended_profile_4242.log"])
def test_show_takes_a_pasted_line(store: str, name: str) -> None:
    line = (SAMPLES / "hipblaslt" / name).read_text().splitlines()[0]
    out = run("show", line, "-v", "--store", store)
    assert out.returncode == 0, out.stderr
    for category in ("bench", "trace", "profile"):
        assert category in out.stdout
    assert "hipblaslt:" in out.stdout


def test_show_takes_the_name_that_tables_show(store: str) -> None:
    named = json.loads(run("top", "--store", store, "--format", "json").stdout)
    assert {row["kind"] for row in named} >= {"conv", "gemm"}
    for row in named[:5] + [x for x in named if x["kind"] == "conv"][:3]:
        out = run("show", row["problem"].replace("×", "x"), "--store", store)
        assert out.returncode == 0, out.stderr
        assert out.stdout.startswith(f"{row['problem']}: ")
        known = json.loads(run("show", row["problem"], "--store", store, "--format", "json").stdout)
        assert row["text"] in {x["problem"] for x in known}
    assert run("show", "TN 3×5×7 bf16_r", "--store", store).returncode == 1


def test_show_is_a_sentence_and_a_table(store: str) -> None:
    """``logparse show`` prints a sentence about a matrix product, and a table of the kernels that can compute it.

    In the sample's log, the library chose a kernel that is 3.5 times slower than the fastest one in the tuning file.
    """
    out = run("show", "NT 4096×12288×8192 bf16_r", "--store", store)
    first, heads, _, *rows = out.stdout.splitlines()
    assert re.fullmatch(
        r"NT 4096×12288×8192 bf16_r: run \S+ picks hipblaslt:91033, 3\.51 × slower than hipblaslt:91077: "
        r"6\.12 ms and 1\.74 ms a call",
        first,
    )
    assert heads.split()[:6] == ["solution", "calls", "time_us", "slower", "from", "run"]
    assert sum("hipblaslt:91033" in row and "3.51 ×" in row for row in rows) == 1
    assert sum("──" in row for row in out.stdout.splitlines()) == 1, "one table"


def test_top_ends_with_the_sums_over_all_problems(store: str) -> None:
    rows = json.loads(run("top", "-n", "1000", "--store", store, "--format", "json").stdout)
    saves, perhaps = (
        sum(row["saves_us"] or 0 for row in rows if bool(row["saves_only_if"]) is unsettled)
        for unsettled in (False, True)
    )
    assert saves > 0
    assert perhaps > 0
    for row in rows:
        both = row["calls"] and row["pick_us"]
        if row["saves_only_if"]:
            assert row["saves_only_if"] == "the job does not read its user find-db yet"
            continue
        assert row["saves_us"] == (
            pytest.approx(row["calls"] * max(row["pick_us"] - row["best_us"], 0)) if both else None
        )
    (total,) = (x for x in run("top", "-n", "2", "--store", store).stdout.splitlines() if x.startswith("total: "))
    assert total.startswith(f"total: {len(rows)} problems, {sum(row['calls'] or 0 for row in rows):,} calls ")
    assert total.endswith(
        f"the best known solutions save {duration(saves)}, and another {duration(perhaps)} if the job does not read "
        "its user find-db yet"
    )


def test_top_says_which_part_of_the_traced_time_it_lists(tmp_path: Path) -> None:
    """The sums are a part of a traced step, and `recommend` shows the rest. Logs know no time of a step."""
    store, logged = str(tmp_path / "traced"), str(tmp_path / "logged")
    run("ingest", str(SAMPLES / "traces/job.trace.json"), "--run", "a", "--store", store)
    shown = run("top", "--by", "time", "--store", store).stdout
    assert "; 608 µs (304 µs a step, 58% of a traced step of 525 µs)\n" in shown
    assert f"where the rest of the time goes: logparse recommend --store {store} --run a" in " ".join(shown.split())
    assert "of_time" in shown
    run("ingest", str(SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log"), "--store", logged)
    shown = run("top", "--store", logged).stdout
    assert "of_calls" in shown
    assert "of a traced step" not in shown
    assert "rest of the time" not in shown


def test_show_states_comparable_times(tmp_path: Path) -> None:
    """``logparse show`` states how long comparable convolutions take.

    A call of this test takes 9 ms, far longer than comparable calls. The comparable times come with logparse: it ships
    the best known times for the MI300X, the GPU of this run.
    """
    at = ("--store", str(tmp_path / "store"))
    head = (
        "direction,n,c,h,w,k,filter_h,filter_w,pad_h,pad_w,stride_h,stride_w,dilation_h,dilation_w,out_h,out_w,groups"
    )
    row = "F,64,64,56,56,64,3,3,1,1,1,1,1,1,56,56,1"
    layouts = ",".join(f"{x}_layout" for x in ("in", "weights", "out"))
    (tmp_path / "job.csv").write_text(
        f"{head},in_type,{layouts},library,solution,time_us,calls,arch,cu_count\n"
        f"{row},FP16,NCHW,NCHW,NCHW,torch,Default,9000,3,gfx942,304\n"
    )
    assert run("ingest", str(tmp_path / "job.csv"), *at).returncode == 0
    assert run("recommend", "--out", str(tmp_path / "out"), *at).returncode == 0
    shown = run("show", "F 64×64×56×56 k64 3×3 FP16 NCHW", *at)
    assert shown.returncode == 0, shown.stderr
    assert "8 comparable F convolutions take" in shown.stdout + shown.stderr


def test_show_of_nonsense_lists_what_can_be_pasted(store: str) -> None:
    out = run("show", "hello", "--store", store)
    assert (out.returncode, "row of a find-db" in out.stderr) == (1, True)
