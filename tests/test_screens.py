"""Tests of the program's printed output in terminals of 80, 100 and 160 columns.

A golden file (expected output) has the screens of one command.
"""

# The store (Parquet folder) is from the example session in README.md, with another run "after". If a wider screen looks
# the same as the one before it, the file has only its width.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logparse.output import Answer, options, show
from tests.conftest import ROOT, SAMPLES
from tests.golden import Goldens
from tests.program import run
from tests.transcript import files_of_session

GOLDEN = Path(__file__).parent / "screens"
WIDTHS = (80, 100, 160)
SENTENCES = ("recommend", "explain", "verify")
"""The cases whose sentences are wrapped to the terminal's width."""
CASES: Mapping[str, Sequence[str]] = {
    "ingest": ("ingest", ".", "--run", "again", "--store", "other"),
    "status": ("status",),
    "top": ("top", "--by", "time", "-n", "6", "--run", "before"),
    "top of a trace": ("top", "-n", "4", "--run", "trace"),
    "show": ("show", "NT 4096×12288×8192 bf16_r"),
    "show all of it": ("show", "4096x12288x8192", "-v"),
    "show a convolution": ("show", "W 64×128×56×56 k128 3×3 g32 FP16 NCHW"),
    "diff": ("diff", "before", "after"),
    "recommend": ("recommend", "--run", "before", "--target", "tunableop_results0.csv"),
    "explain": ("recommend", "--run", "before", "--target", "tunableop_results0.csv", "--explain", "2"),
    "lint": ("lint", "damaged_results0.csv"),
    "coverage": ("coverage", "tunableop_results0.csv", "--run", "before", "-n", "3"),
    "verify": ("verify", "before", "after", "tunableop_results0.csv", "-v", "-n", "3"),
    "dry run": ("replay", "--run", "before", "--dry-run", "--top", "3"),
}
ANSWERS: Mapping[str, Sequence[str]] = {
    "ingest": ("file", "rejects"),
    "status": ("run", "rejects"),
    "top": ("problem", "best", "total_us"),
    "show": ("solution", "calls", "time_us", "slower"),
    "diff": ("problem", "pick_before", "pick_after"),
    "dry run": ("problem", "saving_us"),
}
"""The columns that matter most in each subcommand's table. They must be visible in a terminal of any width."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of README.md's example session, and with a store (Parquet folder).

    The store has three runs of a job, named ``after``, ``trace`` and ``before``.
    """
    folder = files_of_session((ROOT / "README.md").read_text(encoding="utf-8"), tmp_path_factory.mktemp("screens"))
    damaged = (SAMPLES / "tunableop/tunableop_results0.csv").read_text(encoding="utf-8").splitlines()
    damaged[-1] = damaged[-1].replace(",", ";")
    (folder / "damaged_results0.csv").write_text("\n".join(damaged) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("LOGPARSE_STORE", raising=False)
        files = sorted(
            str(x) for x in folder.iterdir() if x.suffix in (".log", ".txt") or x.stem == "tunableop_results0"
        )
        for words in (
            ("ingest", "after", "--run", "after"),
            ("ingest", str(SAMPLES / "traces/job.trace.json"), "--run", "trace"),
            ("ingest", *files, "--run", "before"),
        ):
            assert run(*words).returncode == 0
    return folder


def screens(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[int, str]:
    """Return what a command prints in a terminal of each width: {columns: text}.

    The command runs only once, and its answer is laid out for each width. If it makes lines of sentences, it runs for
    each width.
    """
    asked: list[tuple[Answer, tuple[Any, ...], dict[str, Any]]] = []
    out = {}
    for width in WIDTHS:
        if not asked or case in SENTENCES:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(options, "show", lambda answer, *words, **more: asked.append((answer, words, more)))
                done = run(*CASES[case], columns=width)
            assert done.returncode in (0, 3, 4), done.stderr
            answer, words, more = asked[-1]
            blocks, notes = [*answer.blocks], [*answer.notes()]
            answer = replace(answer, text=blocks, notes=lambda notes=notes: notes)  # type: ignore[misc]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            capsys.readouterr()
            show(answer, *words, **more)
        out[width] = capsys.readouterr().out.replace(f"{folder}/", "$PWD/").replace(f"{folder}", "$PWD")
    return out


def heads(screen: str) -> list[str]:
    """Return the column names of the first table on a screen: the words above the line of dashes."""
    lines = screen.splitlines()
    rule = next((number for number, line in enumerate(lines) if line.startswith(" ──")), 0)
    return lines[rule - 1].split() if rule else []


@pytest.mark.parametrize("case", CASES)
def test_screens(
    case: str,
    session: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Goldens,
) -> None:
    monkeypatch.chdir(session)
    monkeypatch.delenv("LOGPARSE_STORE", raising=False)
    shown = screens(case, session, capsys)
    text, before = "", ""
    for width, screen in shown.items():
        again = "as before\n"
        text += f"== {width} columns\n{again if screen == before else screen}"
        before = screen
    golden.check(GOLDEN / f"{case}.txt", text)
    for width, screen in shown.items():
        tables = [line for line in screen.splitlines() if line.startswith(" ──")]
        assert all(len(line) <= width for line in tables)
        assert set(ANSWERS.get(case, ())) <= set(heads(screen)), f"{case} at {width}"
        assert set(heads(shown[80])) <= set(heads(screen)), "a wider terminal shows more"
        files = [line.split()[0] for line in screen.splitlines() if " new " in line]
        assert len(set(files)) == len(files), "names that are cut stay different"
    if case == "recommend":
        assert all(len(line) <= width for width, screen in shown.items() for line in screen.splitlines()[:-1])
    assert max(map(len, text.splitlines())) <= 400, "no line without an end"


def test_no_golden_is_left_over(golden: Goldens) -> None:
    golden.check_names(GOLDEN, (GOLDEN / f"{case}.txt" for case in CASES))
