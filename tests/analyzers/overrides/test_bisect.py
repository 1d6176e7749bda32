"""Tests of ``logparse bisect``, which finds the lines of an override file that make a user's test fail.

An override file is the user's choice of kernels.
"""

# The tests run the search with random answers, remove lines from files of every format, and run the subcommand with
# shell scripts as user's tests.

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides import bisect as searching
from analyzers.overrides.bisect import Verdict, ddmin, narrow_down_rows
from analyzers.overrides.lint import by_name, content_of, format_of
from logparse.libraries.kinds.format import Emission
from logparse.libraries.kinds.override_format import OverrideFormat
from logparse.libraries.override_formats import OVERRIDE_FORMATS
from logparse.quoting import Shell
from tests.analyzers.overrides.test_laws import samples
from tests.conftest import CORPUS, ROOT, needs_corpus
from tests.program import Done, run
from tests.waiting import wait_until

# ------------------------------------------------------------------------------------------------------- the search

Sets = Sequence[frozenset[int]]


def failing(guilty: Sets) -> Callable[[Sequence[int]], bool]:
    """Return a function that imitates a user's test: it gets line numbers and returns True if the test fails.

    ``guilty`` has sets of line numbers. The test fails if the given lines include all lines of at least one set.
    """
    return lambda rows: any(x <= frozenset(rows) for x in guilty)


def arbitrary(seed: int, every: int) -> Callable[[Sequence[int]], bool]:
    """Return a function that imitates a user's test: it gets line numbers and returns True if the test fails.

    ``every`` is the number of all lines.
    """
    # The result for each set of lines is chosen at random, and stays the same if the function is called again. Without
    # any line, the test passes. With all lines, it fails.
    return lambda rows: len(rows) == every or (bool(rows) and random.Random(f"{seed} {sorted(rows)}").random() < 0.3)


@st.composite
def checks(draw: st.DrawFn) -> tuple[int, Callable[[Sequence[int]], bool]]:
    count = draw(st.integers(1, 40))
    if draw(st.booleans()):
        return count, arbitrary(draw(st.integers(0, 1 << 16)), count)
    sets = st.frozensets(st.integers(0, count - 1), min_size=1, max_size=4)
    return count, failing(draw(st.lists(sets, min_size=1, max_size=4)))


def is_minimal(rows: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> bool:
    return fails(rows) and not any(fails([x for x in rows if x != left_out]) for left_out in rows)


@given(checks())
def test_ddmin_fails_and_does_not_without_any_one_row(case: tuple[int, Callable[[Sequence[int]], bool]]) -> None:
    count, fails = case
    found = ddmin(range(count), fails)
    assert is_minimal(found, fails)
    assert list(found) == sorted(set(found))


@given(checks(), st.integers(0, 1 << 16), st.sampled_from([0.0, 0.2, 0.9]))
def test_the_guilty_set_is_minimal_even_without_some_answers(
    case: tuple[int, Callable[[Sequence[int]], bool]], seed: int, skipped: float
) -> None:
    """``bisect`` finds a minimal set of bad lines, even if the user's test cannot tell for some sets of lines.

    Minimal means: if any one line is removed from the set, the test no longer fails.
    """
    # If the test cannot tell for a set, the set is treated as if it passed.
    count, fails = case

    def ask(rows: Sequence[int], suspected: int = 0, needed: int = 0) -> Verdict:
        ends = len(rows) in (0, count)
        if not ends and random.Random(f"{seed} {sorted(rows)} skip").random() < skipped:
            return "skip"
        return "bad" if fails(rows) else "good"

    part = narrow_down_rows(range(count), ask)
    assert ask(part) == "bad"
    assert is_minimal(ddmin(part, lambda rows: ask(rows) == "bad"), lambda rows: ask(rows) == "bad")


@pytest.mark.parametrize(("guilty", "most"), [([8_000], 15), ([17, 5_000], 30), ([1, 2_000, 8_335], 45)])
def test_the_search_takes_few_runs(guilty: Sequence[int], most: int) -> None:
    """``logparse bisect`` finds one to three bad lines among 8,336 without running the user's test often.

    A real override file (the user's choice of kernels) has as many lines.
    """
    fails, asked = failing([frozenset(guilty)]), set[tuple[int, ...]]()

    def ask(rows: Sequence[int], suspected: int = 0, needed: int = 0) -> Verdict:
        asked.add(tuple(rows))
        return "bad" if fails(rows) else "good"

    part = narrow_down_rows(range(8_336), ask)
    assert list(ddmin(part, lambda rows: ask(rows) == "bad")) == guilty
    assert len(asked) <= most + (1 << len(guilty)) - 2  # ddmin tries all subsets of three rows


# --------------------------------------------------------------------------------------------------------- the cuts


def cut(format: OverrideFormat, file: Emission, kept: Callable[[int], bool]) -> tuple[bytes, int]:
    """Return a copy of an override file with only some of its rows, and the number of rows in the whole file.

    ``kept`` gets the position of a row (from 0) and returns True if the row stays.
    """
    asked: list[bytes] = []

    def keep(line: int, text: bytes) -> bool:
        asked.append(text)
        return kept(len(asked) - 1)

    return format.cut(file.data, format.reader(file.name, file.data, {}).rows, keep), len(asked)


def texts(format: OverrideFormat, file: Emission, data: bytes) -> list[str]:
    return [row.text for row in format.reader(file.name, data, {}).rows]


EVERY = [(format.name, number) for format in OVERRIDE_FORMATS for number in range(len(samples()[format.name]))]


@given(st.sampled_from(EVERY), st.integers(0, 1 << 30), st.sampled_from([b"", b"\r"]))
def test_a_cut_file_differs_only_in_its_rows(of: tuple[str, int], wanted: int, end: bytes) -> None:
    """If lines are removed from an override file, the other lines and everything between them stay unchanged.

    This is also true for files with the line ends of Windows.
    """
    format, (file, _) = by_name(of[0]), samples()[of[0]][of[1]]
    file = Emission(file.name, file.data.replace(b"\n", end + b"\n"), Shell())
    every = texts(format, file, file.data)
    whole, count = cut(format, file, lambda place: True)
    assert (whole, count) == (file.data, len(every)), "each row once"
    some, _ = cut(format, file, lambda place: bool(wanted >> place & 1))
    assert texts(format, file, some) == [x for place, x in enumerate(every) if wanted >> place & 1]
    head, _ = cut(format, file, lambda place: False)
    assert not texts(format, file, head)
    assert len(head) + sum(map(len, every)) <= len(file.data) + 2 * count, "nothing else goes, but what separates rows"


@needs_corpus
@pytest.mark.parametrize("path", ["mlperf_tuning_aa0bda7b.txt.gz", "primus_tune_gemm_results-v26.5.txt"])
def test_real_files_are_taken_apart(path: str) -> None:
    name, data = content_of(str(CORPUS / "serving" / path))
    format, file = format_of(name, data), Emission(name, data, Shell())
    every = texts(format, file, data)
    assert cut(format, file, lambda place: True) == (data, len(every))
    assert texts(format, file, cut(format, file, lambda place: place % 3 == 0)[0]) == every[::3]


# --------------------------------------------------------------------------------------------------------- the verb


def copy_of(file: Emission) -> str:
    """Return the path of the shortened override file as a shell expression, for example ``$LOGPARSE_TABLE``.

    An override file is the user's choice of kernels. ``logparse bisect`` runs the user's test command with shortened
    copies of the file. The settings of the file's format tell the library where the copy is.
    """
    merging = format_of(file.name, file.data).merging
    made = merging.write((), file.name, dict(merging.header(file.name, file.data)), 1)[0]
    place = {"{path}": "", "{folder}": f"/{file.name}"}
    for name, path, rest in re.findall(r"^export (\w+)=(\{path\}|\{folder\})(.*)$", made.use, re.M):
        # TunableOp puts the number of the GPU before the end of the name.
        return f"${{{name}%.csv}}0.csv" if rest else f"${name}{place[path]}"
    return "$LOGPARSE_TABLE"


def holds(file: Emission, *rows: str) -> str:
    """Return a shell command that stands for the user's test of an override file (the user's choice of kernels).

    The command fails if the file contains all lines in ``rows``.
    """
    return "! { " + " && ".join(f'grep -qF -e {shlex.quote(row)} "{copy_of(file)}"' for row in rows) + "; }"


def unique(format: OverrideFormat, file: Emission) -> list[tuple[int, str]]:
    """Return the position and the text of each row whose text occurs in no other row of the file."""
    found: list[str] = []

    def keep(line: int, text: bytes) -> bool:
        item = text.decode().rpartition("=")[2] if format.convolutions else text.decode()
        # A row of JSON may stand on several lines, but the test command searches in single lines.
        found.append(item if item in file.data.decode() else item.partition("{")[0])
        return True

    format.cut(file.data, format.reader(file.name, file.data, {}).rows, keep)
    return [(place, x) for place, x in enumerate(found) if sum(x in other for other in found) == 1]


def bisect(path: Path, check: str, *more: str) -> Done:
    return run("bisect", str(path), "--check", check, *more)


def check_printed(done: Done) -> list[str]:
    lines = done.stdout.splitlines()
    assert len(lines) <= 15
    assert all(len(line) <= 100 or line.startswith("wrote ") for line in lines)
    return lines


@pytest.fixture(params=OVERRIDE_FORMATS, ids=lambda format: format.name)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[OverrideFormat, Emission, Path]:
    """Write a sample override file (the user's choice of kernels) into a folder whose name needs quotes in a shell.

    Returns the format, the file and its path.
    """
    # A format may have several samples. The one with the most different lines is used.
    format = request.param
    files = [x for x, _ in samples()[format.name]]
    file = max(files, key=lambda x: len(unique(format, x)))
    path = tmp_path / "it's a job" / file.name
    path.parent.mkdir()
    path.write_bytes(file.data)
    return format, file, path


def test_one_row_of_every_format(written: tuple[OverrideFormat, Emission, Path], tmp_path: Path) -> None:
    format, file, path = written
    place, text = unique(format, file)[-1]
    done = bisect(path, holds(file, text), "--out", str(tmp_path / "without" / path.name))
    assert done.returncode == 0, done.stderr
    lines = check_printed(done)
    assert lines[0].startswith("1 row of ")
    assert re.match(r"  line \d+: ", lines[1])
    assert (
        lines[2]
        == "confirmed: the check failed again with these rows, and passed with the whole file without these rows"
    )
    rest = cut(format, file, lambda x: x != place)[0]
    assert (tmp_path / "without" / path.name).read_bytes() == rest
    assert path.read_bytes() == file.data
    assert {x.name for x in path.parent.iterdir() if not x.name.startswith(".")} == {path.name}


def test_two_rows_that_fail_only_together(written: tuple[OverrideFormat, Emission, Path], tmp_path: Path) -> None:
    format, file, path = written
    (first, one), *_, (second, other) = unique(format, file)
    out = tmp_path / "rest"
    done = bisect(path, holds(file, one, other), "--out", str(out))
    assert check_printed(done)[1] == "  the check fails only if all of these rows are in the file:"
    assert out.read_bytes() == cut(format, file, lambda x: x not in (first, second))[0]


ROWS = [f"GemmTunableOp_Half_TN,tn_{m}_256_512_ld_512_512_{m},Gemm_Hipblaslt_{m},0.5" for m in range(101, 165)]
HEAD = "Validator,PT_VERSION,2.11.0\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write an override file (the user's choice of kernels) with 64 lines.

    Line n + 2 of the file names the kernel 101 + n.
    """
    path = tmp_path / "tunableop_results0.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in ROWS))
    return path


def bad(*numbers: int) -> str:
    return " && ".join(f'! grep -q Hipblaslt_{x}, "$LOGPARSE_TABLE"' for x in numbers)


def test_rows_that_fail_each_by_itself_are_all_found(table: Path) -> None:
    done = bisect(table, bad(107, 108, 164))
    lines = check_printed(done)
    assert lines[0].startswith("3 rows of 64 make the check fail (")
    assert sorted(x.partition(":")[0] for x in lines[1:4]) == ["  line 65", "  line 8", "  line 9"]
    assert "so the other rows are searched for another cause" in done.stderr


def test_many_rows_are_counted(table: Path) -> None:
    table.write_text(HEAD + "".join(f"{row}\n" for row in ROWS[:12]))
    lines = check_printed(bisect(table, bad(*range(101, 113))))
    assert lines[0].startswith("12 rows of 12 make the check fail (")
    assert lines[11] == "  and 2 more lines"


def test_progress_states_what_is_left_and_never_too_few_runs(table: Path) -> None:
    done = bisect(table, bad(140))
    lines = done.stderr.splitlines()
    assert lines[0].startswith(
        "64 rows, 0 answers of the check known from an earlier run; answers and outputs are in "
        ".tunableop_results0.csv.bisect-"
    )
    before = r"run (\d+): \d+ rows?; (\d+) suspected; at most (\d+) runs? left(?:, .*)?"
    pattern = before + r": (?:good|bad) \(exit \d, .*, run\1\.log\)"
    found = [re.fullmatch(pattern, line) for line in lines[1:]]
    assert all(found), lines
    numbers = [tuple(map(int, x.groups())) for x in found if x]
    assert all(number + to_go > len(numbers) for number, _, to_go in numbers), "at most"
    assert [x[1] for x in numbers[2:8]] == [64, 32, 16, 8, 4, 2]


def test_the_jobs_output_is_in_a_file_per_run(table: Path) -> None:
    done = bisect(table, f"echo of the job; echo and its errors >&2; {bad(140)}")
    assert "of the job" not in done.stdout + done.stderr
    (folder,) = table.parent.glob(".*bisect*")
    logs = sorted(folder.glob("run*.log"))
    assert len(logs) == len(done.stderr.splitlines()) - 1
    assert {x.read_text() for x in logs} == {"of the job\nand its errors\n"}


def test_only_the_end_of_a_long_output_is_kept(table: Path) -> None:
    """If the user's test prints a lot, ``bisect`` keeps only the end of the output.

    In an earlier version, a test that printed all day filled the disk.
    """
    bisect(table, f"seq 100000; echo the last word; {bad(140)}")
    (folder,) = table.parent.glob(".*bisect*")
    text = "".join(f"{x}\n" for x in range(1, 100_001)) + "the last word\n"
    logs = list(folder.glob("run*.log"))
    assert logs
    for log in logs:
        first, _, rest = log.read_text().partition("\n")
        assert rest == text[-(64 << 10) :]
        assert first == f"({len(text) - (64 << 10):,} bytes before this are left out)"


def test_processes_that_the_check_left_behind_are_not_awaited(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``logparse bisect`` does not wait for processes that the user's test command left in the background.

    Such a process may keep the pipe for the command's output open. A process in another process group is not killed.
    """
    monkeypatch.setattr(searching, "_DRAIN_S", 0.01)
    done = bisect(table, f"setsid sleep 60 & echo $! >> {table.parent / 'left'}; {bad(140)}")
    assert done.returncode == 0
    for pid in (table.parent / "left").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


def test_what_was_answered_is_not_run_again(table: Path) -> None:
    first = bisect(table, bad(140))
    again = bisect(table, bad(140))
    assert again.stdout == first.stdout
    assert len(again.stderr.splitlines()) == 1
    other = bisect(table, bad(141))
    assert "run 1: 64 rows" in other.stderr, "another check"
    table.write_text(table.read_text() + "\n")
    assert "run 1: 64 rows" in bisect(table, bad(140)).stderr, "another file"
    assert len(list(table.parent.glob(".*bisect*"))) == 3


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (
            "true",
            r"with all rows the check is not bad: good \(exit 0, .*\); .* does not read PYTORCH_TUNABLEOP_ENABLED",
        ),
        ("exit 125", r"with all rows the check is not bad: skip \(exit 125, "),
        (
            "false",
            r"without any row the check is not good: bad \(exit 1, .*run2\.log\); the rows of the file do not "
            r"cause the failure",
        ),
        ("no-such-program", r"without any row the check is not good: bad \(exit 127, "),
        ('grep -q Hipblaslt "$LOGPARSE_TABLE" && exit 1; kill -9 $$', r"without any .* not good: bad \(signal 9, "),
        ('grep -q Hipblaslt "$LOGPARSE_TABLE" && exit 1; exit 125', r"without any row the check is not good: skip"),
    ],
)
def test_a_check_that_does_not_depend_on_the_rows_is_an_error(table: Path, check: str, why: str) -> None:
    done = bisect(table, check)
    assert done.returncode == 1
    assert re.search(rf"error: .*tunableop_results0\.csv: {why}", done.stderr), done.stderr


def test_what_cannot_be_taken_apart_is_an_error(tmp_path: Path) -> None:
    for name, text, why in (
        ("tunableop_results0.csv", HEAD, "this tunableop-results file cannot be split into rows"),
        (
            "aiter.csv",
            "M,N,K,libtype,solidx\n1,2,3,asm,4\r\r5,6,7,asm,8\n9,6,7,asm,8\n",
            "this aiter file cannot be split into rows",
        ),
        ("x.txt", "nothing", "the file is not an override file that logparse knows"),
        ("none.csv", None, "No such file"),
        ("aiter.csv", "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName\ngfx942,304,1,2,3,4,0,5,k\n", "name decides"),
    ):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        done = bisect(path, "true")
        assert (done.returncode, why in done.stderr) == (1, True), done.stderr
    assert not list(tmp_path.glob(".*"))


def test_the_file_itself_is_never_written(table: Path) -> None:
    before = table.stat()
    done = bisect(table, "false", "--out", str(table))
    assert (done.returncode, "is the file to search" in done.stderr) == (2, True)
    bisect(table, f'echo >> "$LOGPARSE_TABLE"; {bad(140)}')  # as MIOpen does
    assert (table.stat().st_mtime_ns, table.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_skipped_half_is_gone_around(table: Path) -> None:
    lines = 'n=$(grep -c Gemm "$LOGPARSE_TABLE"); '
    done = bisect(table, f"{lines} [ $n -eq 32 ] && exit 125; {bad(140)}")
    assert "skip (exit 125" in done.stderr
    assert check_printed(done)[1].startswith("  line 41: GemmTunableOp_Half_TN,tn_140_")
    assert len(done.stderr.splitlines()) <= 15


def test_where_nothing_else_can_be_judged_the_answer_is_not_certain(table: Path) -> None:
    table.write_text(HEAD + "".join(f"{row}\n" for row in ROWS[:8]))
    judged = 'case $(grep -c Gemm "$LOGPARSE_TABLE") in 0|8|6);; *) exit 125; esac; '
    done = bisect(table, judged + bad(104))
    lines = check_printed(done)
    assert lines[0].startswith("6 rows of 8 make the check fail (")
    assert lines[1] == "  the check fails only if all of these rows are in the file:"
    assert lines[8] == "not certain:"
    assert lines[9].startswith("the check without these rows: skip (exit 125, ")
    assert done.returncode == 3


def test_a_timeout_is_bad_and_ends_all_that_the_check_started(table: Path, tmp_path: Path) -> None:
    hangs = f'grep -q Hipblaslt_140, "$LOGPARSE_TABLE" || exit 0; sleep 300 & echo $! >> {tmp_path}/pids; wait'
    done = bisect(table, hangs, "--timeout", "0.4")
    assert check_printed(done)[1].startswith("  line 41: ")
    assert "bad (timeout, " in done.stderr
    assert "64 rows, 0 answers of the check known" in bisect(table, hangs, "--timeout", "0.3").stderr, (
        "others may end in another time"
    )
    for pid in (tmp_path / "pids").read_text().split():
        assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


def test_a_check_that_answers_in_two_ways_is_reported_with_both(table: Path, tmp_path: Path) -> None:
    once = f'at={tmp_path}/$(sha256sum < "$LOGPARSE_TABLE" | cut -c 1-16); [ -e $at ] && exit 0; touch $at; '
    done = bisect(table, once + bad(140))
    assert done.returncode == 3
    lines = check_printed(done)
    assert lines[2:4] == ["not certain:", "the check is flaky, because the same rows gave different results:"]
    assert [x.partition(",")[0] for x in lines[4:6]] == ["bad (exit 1", "good (exit 0"]
    assert lines[6].startswith("to start over")
    assert bisect(table, once + bad(140)).stdout == done.stdout


def test_files_of_other_gpus_are_copied_and_cut_too(table: Path) -> None:
    """If TunableOp has a file for each GPU, ``bisect`` gives the user's test a copy of all of them."""
    # bisect removes lines from one file to find the lines that make the test fail. If the file of another GPU has the
    # same content, the same lines are removed from its copy.
    table = table.rename(table.with_name("mine 10.csv"))
    for name, text in (("mine 11.csv", table.read_text()), ("mine 2.csv", HEAD), ("notes.txt", "foreign")):
        table.with_name(name).write_text(text)
    there = 'cd "${PYTORCH_TUNABLEOP_FILENAME%/*}" && [ "$(ls | tr "\\n" :)" = "mine 10.csv:mine 11.csv:mine 2.csv:" ]'
    file = '[ "$PYTORCH_TUNABLEOP_FILENAME" = "$PWD/mine .csv" ] && cmp -s "mine 10.csv" "mine 11.csv" || exit 125'
    done = bisect(table, f"{there} && {file}; {bad(140)}")
    assert check_printed(done)[1].startswith("  line 41: "), done.stderr


def test_records_of_miopen_keep_the_files_of_their_folder(tmp_path: Path) -> None:
    for name in ("gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt", "gfx942130.HIP.3_4_0_7c1e0a9d2.udb.txt"):
        (tmp_path / name).write_bytes((ROOT / "sample_logs/miopen" / name).read_bytes())
        path = tmp_path / name
    gone = '[ -z "${MIOPEN_FIND_ENFORCE+x}" ] || exit 125; '
    check = f'cd "$MIOPEN_USER_DB_PATH" && cmp -s *.ufdb.txt {shlex.quote(str(tmp_path))}/*.ufdb.txt || exit 125; '
    text = path.read_text().splitlines()[0].partition("=")[2].partition(";")[0]
    assert "confirmed" in bisect(path, f"{check} ! grep -qF -e {shlex.quote(text)} *.udb.txt").stdout
    find_db = tmp_path / "gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt"
    text = find_db.read_text().splitlines()[0].partition("=")[2].partition(";")[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIOPEN_FIND_ENFORCE", "3")
        check = f'{gone} ! grep -qF -e {shlex.quote(text)} "$MIOPEN_USER_DB_PATH"/*.ufdb.txt'
        assert "confirmed" in bisect(find_db, check).stdout


# -------------------------------------------------------------------------------------------------- ended and resumed


def program(table: Path, check: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "logparse", "bisect", str(table), "--check", check]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def counting(number: int) -> str:
    """Return a shell command that stands for the user's test, and fails if the override file has one certain line.

    In its run ``number`` the command sleeps, so that a test can interrupt it.
    """
    # logparse bisect runs the command with shortened copies of the file to find the bad line. The command writes its
    # process ids to the file runs, and a hash of each copy to the file sets.
    waits = f"if [ $(wc -l < runs) -eq {number} ]; then sleep 100 & echo $! >> runs; wait; fi"
    return f'echo $$ >> runs; sha256sum < "$LOGPARSE_TABLE" >> sets; {waits}; {bad(140)}'


def ended_at(number: int, table: Path, how: signal.Signals) -> tuple[int, str, list[int]]:
    """Start ``logparse bisect``, and interrupt it by a signal during run ``number`` of the user's test command.

    Returns the exit code of ``bisect``, its error output, and the process ids of the interrupted run.
    """
    # bisect runs the command again and again to find bad lines of an override file.
    runs = table.parent / "runs"
    with program(table, counting(number)) as process:
        while not runs.exists() or len(runs.read_text().split()) <= number:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(how)
        _, errors = process.communicate()
    return process.returncode, errors, list(map(int, runs.read_text().split()[number - 1 :]))


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def ended(pids: list[int]) -> bool:
    """Wait until all given processes have ended. Returns False if a process still runs after a long while.

    On a busy machine, a killed process takes a moment to end.
    """
    return wait_until(lambda: not any(map(alive, pids)))


@pytest.fixture
def inside(table: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(table.parent)
    return table


def finished(table: Path) -> None:
    """Start ``logparse bisect`` again after an interruption, and check that it uses the answers that it already has."""
    # bisect runs the user's test with many sets of lines. Only two sets may be tested twice: the interrupted one, and
    # the final one, which is always confirmed.
    done = bisect(table, counting(5))
    assert "64 rows, 4 answers of the check known from an earlier run;" in done.stderr
    assert check_printed(done)[1].startswith("  line 41: ")
    sets = (table.parent / "sets").read_text().splitlines()
    answered = sets[:4] + sets[5:]
    assert [answered.count(x) for x in set(answered)].count(2) == 1, "the confirmed one"
    assert len(answered) == len(set(answered)) + 1


def test_ctrl_c_ends_the_check_and_the_same_command_goes_on(inside: Path) -> None:
    code, errors, pids = ended_at(5, inside, signal.SIGINT)
    assert code == 130
    assert errors.endswith(
        "\nstopped: the results of the check so far are kept; run the same command again to continue the search\n"
    )
    assert ended(pids), "the check too"
    finished(inside)


def test_after_a_kill_the_same_command_goes_on_once_the_check_has_ended(inside: Path) -> None:
    code, _, pids = ended_at(5, inside, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert all(map(alive, pids))
    refused = bisect(inside, counting(5))
    assert (refused.returncode, "a check that a killed bisect started" in refused.stderr) == (1, True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert ended(pids)
    (folder,) = inside.parent.glob(".*bisect*")
    with open(folder / "answers.jsonl", "a", encoding="utf-8") as journal:
        journal.write('{"rows": "torn')
    finished(inside)
    kept = [json.loads(x) for x in (folder / "answers.jsonl").read_text().splitlines() if x and "torn" not in x]
    assert len(kept) == len(list(folder.glob("run*.log")))
