"""The display of a running replay: what the board shows, and that a terminal is left as it was found."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from analyzers.measure.progress import ROWS, FindingsTable
from analyzers.measure.replay import Busy, Step
from analyzers.measure.results import Confirmed, Result
from analyzers.times.confirmations import Pairs, judge
from logparse.model import Problem, Solution
from tests.analyzers.measure.fakes import NAME
from tests.analyzers.measure.problems import named, store_of

ROOT = Path(__file__).parents[3]
PICK, FAST = Solution("fake", "pick"), Solution("fake", "fast")


def drawn(board: FindingsTable, width: int = 160) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(board)
    file = console.file
    assert isinstance(file, io.StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]


def raced(problem: Problem, best_us: float, calls: int | None = None, done: int = 1) -> Step:
    result = Result(problem=problem, pick=PICK, best=FAST if best_us < 100 else PICK, pick_us=100.0, best_us=best_us)
    return Step(done=done, total=9, outcome=result, confirmation=None, seconds=1.0, eta_s=40.0, calls=calls)


def confirmed(problem: Problem, winner_us: float) -> Step:
    pairs = Pairs((100.0,) * 8, (winner_us,) * 8)
    outcome = Confirmed(problem=problem, pick=PICK, winner=FAST, pairs=pairs)
    return Step(done=3, total=9, outcome=outcome, confirmation=judge(pairs), seconds=2.0, eta_s=20.0)


def test_the_board_ranks_findings_by_saving_and_names_the_work_in_hand() -> None:
    clock = iter([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 12.0])
    board = FindingsTable(lambda: next(clock))
    assert drawn(board) == ["opening the backends"]
    often, large, wrong = (named("pick", "fast", m=8 * i) for i in (1, 2, 3))
    board.take(raced(large, 50.0, calls=2))
    board.take(raced(often, 90.0, calls=1000))
    board.take(raced(wrong, 40.0, calls=5000))
    board.take(confirmed(often, 90.0))
    board.take(confirmed(wrong, 99.9))
    board.watch(lambda: [Busy("cuda:1", large, FAST), Busy("cuda:0", None, "opening the backends")])
    lines = drawn(board)
    rows = [line for line in lines if "fake:fast" in line and "cuda" not in line]
    assert [x.label in row for x, row in zip((often, large, wrong), rows, strict=True)] == [True] * 3
    assert "confirmed ×1.111 [1.099, 1.124]" in rows[0]
    assert rows[1].endswith("raced")
    assert "not confirmed ×1.001" in rows[2]
    assert lines[-3] == "3 of 9 problems, 13 s left; 3 flagged, 1 confirmed"
    assert lines[-2] == f"  cuda:1: {large.label}: fake:fast"
    assert lines[-1] == "  cuda:0: opening the backends"


def test_the_board_stays_small_and_untrusted_names_cannot_steer_the_terminal() -> None:
    board = FindingsTable()
    for i in range(ROWS + 4):
        board.take(raced(named("pick", "fast", m=8 * (i + 1)), 50.0, done=i))
    board.take(raced(named("pick", m=4), 100.0))  # the pick won: no finding
    board.watch(lambda: [Busy("cuda:0", named("pick", m=4), "evil \x1b[2J step")])
    lines = drawn(board, width=60)
    assert len(lines) == ROWS + 5
    assert "and 4 more" in lines
    assert lines[-1].endswith("…") or "\\x1b" in lines[-1]
    assert all(len(line) <= 60 and "\x1b" not in line for line in lines)


def command(store: Path) -> Sequence[str]:
    program = "import sys; from logparse.cli import main; sys.exit(main())"
    return [sys.executable, "-c", program, "replay", "--store", str(store), "--backend", NAME, "--device", "cpu"]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "150", "TERM": "xterm", **more}


def test_a_pipe_gets_plain_lines(tmp_path: Path) -> None:
    store_of(tmp_path, [named("pick", "fast", "slow")])
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, env=environment(), check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("[1/1")
    assert "confirmed, ×2.0" in lines[1]
    assert "\x1b" not in done.stdout


def test_ctrl_c_leaves_the_terminal_clean_and_keeps_what_was_measured(tmp_path: Path) -> None:
    problems = [named("pick", "patient", "fast", m=8 * i) for i in range(1, 40)]
    store = store_of(tmp_path, problems)
    ours, theirs = pty.openpty()
    running = subprocess.Popen(command(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs, env=environment())
    os.close(theirs)
    seen, asked, deadline = b"", False, time.monotonic() + 100
    while time.monotonic() < deadline:
        try:
            data = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        seen += data
        if not asked and re.search(rb"[3-9] of 39 problems", seen):
            asked = True
            running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    os.close(ours)
    text = seen.decode()
    assert asked
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "Traceback" not in text
    plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", text)
    assert re.search(r"problems.*\n(?s:.*)\nrun r: \d+ of 39 problems", plain), "the report begins at the left"
    assert "interrupted: everything measured is kept" in text[text.rindex("\x1b[?25h") :]
    assert store.query("select count(distinct problem) as n from measurements")["n"][0] >= 3
