"""Tests of tables for a terminal: no line is wider than the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from logparse.ingest import ingest
from logparse.output import Answer, show
from logparse.output.terminal import Stages, Wait, draw_table, is_coloured, make_bold, paint, with_total
from logparse.store import Store, open_store
from logparse.text import line_width
from tests.conftest import SAMPLES
from tests.program import run


def test_sentences_wrap_between_words_and_nothing_of_them_is_lost() -> None:
    message = "the problem is 3 × slower: /a/very/long/path/that/is/wider/than/its/column/gfx942.HIP.fdb.txt"
    lines = draw_table([{"problem": "NT 1×2×3", "message": message}], 60).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert "".join(line[12:] for line in lines[2:]).replace(" ", "") == message.replace(" ", "")


def test_the_number_of_a_solution_is_never_cut() -> None:
    solutions = ["rocblas:1140812957", "hipblaslt:104377", "use hipblaslt:104377", "kernel:Cijk_Ailk_Bljk_MT256x256x64"]
    frame = pd.DataFrame({"problem": ["TN 4096×512×1024 bf16_r"] * 4, "best": solutions, "time_us": [1.5] * 4})
    for width in range(40, 100, 5):
        shown, _, left_out = draw_table(frame, width).partition("not shown:")
        assert all(x in shown for x in solutions[:3]) or "best" in left_out


def test_a_long_text_does_not_pad_other_rows() -> None:
    """If the output goes to a program, a long text in one row of a table does not make the other rows longer."""
    # Names of C++ kernels have thousands of characters. In an earlier version, every row was padded to this length.
    name, prose = "void k<" + "x" * 2_000 + ">()", "words " * 50
    rows = [{"kernel": name, "message": "m", "n": 1}, {"kernel": "mm", "message": prose, "n": 22}]
    heading, rule, first, second = draw_table(rows, None).splitlines()
    assert name in first, "whole"
    assert prose in second, "on one line"
    assert heading == " kernel   message    n"
    assert len(rule) == len(heading)
    assert second.startswith(" mm       words")


def test_answers_are_left_out_after_all_other_columns() -> None:
    row = {
        "problem": "TN 4096×512×1024 bf16_r",
        "pick": "hipblaslt:1",
        "share": 0.1,
        "best": "hipblaslt:2",
        "kind": None,
    }
    for width in range(50, 110, 5):
        shown, _, left_out = draw_table([row], width).partition("not shown: ")
        assert "problem" in shown
        assert ("best" in left_out) <= ({"pick", "share"} <= set(left_out.strip().split(", ")))
        assert not left_out or "kind" not in shown, "it is empty"
        assert "kind" not in left_out, "and no loss"


def test_answers_have_an_order() -> None:
    row = {
        "calls": 16,
        "problem": "x" * 44,
        "pick": "hipblaslt:1",
        "best": "hipblaslt:2",
        "saves_us": 1.5,
        "kind": "gemm",
    }
    left_out = [draw_table([row], width).partition("not shown: ")[2].strip().split(", ") for width in range(90, 48, -1)]
    order = list(dict.fromkeys(name for names in left_out for name in sorted(names) if name))
    assert order == ["kind", "pick", "calls", "saves_us", "best"]


def test_a_table_of_several_rows_has_a_total() -> None:
    rows = [{"file": "a", "format": "x", "lines": 2}, {"file": "b", "format": "y", "lines": 3}]
    assert with_total(rows) == [*rows, {"file": "total", "format": "", "lines": 5}]
    assert with_total(rows[:1]) == rows[:1]


def test_bold_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    stream = io.StringIO()
    assert not is_coloured(stream), "a pipe"
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    assert is_coloured(stream)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_coloured(stream)
    assert is_coloured(stream, "always"), "an option is stronger than a variable"
    monkeypatch.delenv("NO_COLOR")
    assert not is_coloured(stream, "never")
    head, *rest = draw_table([{"problem": "x"}], 60, coloured=True).splitlines()
    assert head == make_bold(" problem")
    assert "\x1b" not in "".join(rest)


def test_commands_and_doubts_have_colours() -> None:
    cyan, yellow, end = "\x1b[36m", "\x1b[33m", "\x1b[39m"
    assert paint("rest  logparse top --by time · all: -v") == f"rest  {cyan}logparse top --by time{end} · all: -v"
    assert paint("see `logparse status`, or wait") == f"see `{cyan}logparse status{end}`, or wait"
    assert paint("goes: logparse recommend --run a") == f"goes: {cyan}logparse recommend --run a{end}"
    assert paint("      --run a", before="logparse top \\") == f"{cyan}      --run a{end}"
    assert paint("lost 4 ms, not confirmed") == f"{yellow}lost 4 ms{end}, {yellow}not confirmed{end}"
    assert paint("note: logparse assumes that logs differ") == "note: logparse assumes that logs differ"
    assert paint("   to do  saves a run  certainty") == make_bold("   to do  saves a run  certainty")


def test_every_line_of_a_headline_is_bold(capsys: pytest.CaptureFixture[str]) -> None:
    show(Answer(["saves 3 ms,", "    or more", "  a step", "    of it"]), colour="always")
    assert capsys.readouterr().out.splitlines() == [
        make_bold("saves 3 ms,"),
        make_bold("    or more"),
        "  a step",
        "    of it",
    ]


def test_color_is_an_option_before_the_verb(two_runs: Store) -> None:
    words = ("top", "-n", "1", "--store", two_runs.url)
    assert run("--color", "always", *words).stdout.startswith("\x1b[1m")
    assert "\x1b" not in run("--color", "never", *words).stdout + run(*words).stdout
    wrong = run("--color", "red", *words)
    assert (wrong.returncode, "--color red: must be one of auto, always, never" in wrong.stderr) == (2, True)


def test_stages_say_how_much_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 9.0, 10.0, 12.0])
    monkeypatch.setattr("logparse.output.terminal.time.monotonic", lambda: next(moments))
    with Stages("recommend", 3) as stages:
        stages.shown = True
        stages("reading the store")
        stages("slow-wrw")
        stages("ranking")
    lines = capsys.readouterr().err.split("\r\x1b[K")
    expected = ["reading the store", "slow-wrw", "ranking, 2 s left"]
    assert lines == ["", *(f"recommend {i} of 3: {x}" for i, x in enumerate(expected, 1)), ""]


def test_a_wait_says_when_it_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 3.0])
    monkeypatch.setattr("logparse.output.terminal.time.monotonic", lambda: next(moments))
    with Wait("sql") as wait:
        wait.shown = True
        wait(57.0)
    assert capsys.readouterr().err.split("\r\x1b[K") == ["", "sql: 3 s, stopped in 57 s", ""]


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "before", "after"),
        ("verify", "before", "after", "{tuned}"),
        ("lint", "{tuned}", "{tuned}"),
        ("lint", "{tuned}", "--against", "{store}"),
        ("coverage", "{tuned}", "--run", "before"),
        ("report", "--out", "{out}", "--run", "before"),
        ("top", "--run", "before"),
        ("export", "--to", "bench", "--out", "{out}", "--run", "before"),
        ("replay", "--dry-run", "--run", "before"),
    ],
    ids=lambda words: words[0],
)
def test_subcommands_announce_all_stages(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_runs: Store
) -> None:
    """No subcommand reports more stages of its work than it announced.

    Otherwise the remaining time that it displays would be wrong.
    """
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(Stages, "__call__", lambda self, stage: told.append((len(told) + 1, self._total)))
    places = {"tuned": SAMPLES / "tunableop" / "tunableop_results0.csv", "store": two_runs.url, "out": tmp_path / "r"}
    given = [word.format(**places) for word in words]
    out = run(*given, *([] if words[0] == "lint" else ["--store", two_runs.url]))
    assert out.returncode in (0, 3, 4), out.stderr
    assert told
    assert all(number <= total for number, total in told)


def test_explore_tells_that_it_reads_until_it_has_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Stages, "__call__", lambda self, stage: said.append(stage))
    monkeypatch.setattr(Stages, "__exit__", lambda self, *error: said.append("removed"))
    monkeypatch.setattr("analyzers.explore.page.serve.explore", lambda *_, say, **more: (say("http://x"), say("y")))
    assert run("explore", "--no-browser").stdout == "http://x\ny\n"
    assert said == ["reading the store", "removed"]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(tmp_path_factory.mktemp("two") / "store", create=True)
    for name in ("before", "after"):
        ingest([str(SAMPLES / "hipblaslt" / f"hipblaslt_rank{int(name == 'after')}_424{2 + int(name == 'after')}.log")],
               store, run=name)  # fmt: skip
    return store


@pytest.mark.parametrize(("columns", "width"), [("60", 80), ("90", 90), ("160", 100), (None, 100)])
def test_sentences_fit_the_terminal_and_are_never_long(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert line_width() == width


def test_a_table_is_written_only_to_a_name_that_states_its_format(tmp_path: Path, two_runs: Store) -> None:
    words = ("top", "--store", two_runs.url, "-o")
    refused = run(*words, str(tmp_path / "top"))
    assert (refused.returncode, "must end in .csv, .json, .parquet or .txt" in refused.stderr) == (2, True)
    done = run(*words, path := str(tmp_path / "top.csv"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"written: {path}\n")
    assert run(*words, str(tmp_path / "top"), "--format", "csv").returncode == 0
