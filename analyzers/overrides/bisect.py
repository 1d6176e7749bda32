"""Find the rows of an override file that make a job fail, by running a check with fewer and fewer of the rows.

An override file is a list of kernels that a library must use instead of its own choice. ``narrow_down_rows`` halves the
file to find the last row of the shortest beginning that fails. It keeps that row and searches for the next one,
until the kept
rows fail alone. Each row takes log2(n) runs (the dichotomic search of Hemery, Lecoutre, Saïs & Boussemart, "Extracting
MUCs from Constraint Networks", ECAI 2006). The search assumes that more rows never make a failure disappear.

``ddmin`` (Zeller & Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002) assumes
nothing: its result fails, and passes without any one of its rows. It gets the rows that the search has left. Two rows
of 8,336 that fail only together take 29 runs on average this way, and 83 by ``ddmin`` alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import FileIO
from itertools import count, pairwise
from pathlib import Path
from statistics import fmean
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

from analyzers.overrides.lint import content_of, format_of
from analyzers.overrides.write import write, wrote_lines
from logparse.errors import InputError, UsageError
from logparse.ingest.input_file import HEAD_BYTES
from logparse.libraries.kinds.format import Emission
from logparse.libraries.kinds.override_format import Keep
from logparse.output import CHECK_FAILED, Answer
from logparse.quoting import Shell, fill_template, shell_word
from logparse.text import duration, make_printable, pluralize, shorten_texts

Verdict = Literal["good", "bad", "skip"]
Rows: TypeAlias = Sequence[int]
"""Row numbers of a file, counted from 0, in ascending order."""
_GRACE_S, _WIDTH, _SHOWN = 10, 100, 10
"""Limits of the search for failing rows.

* ``_GRACE_S``: seconds that a check may take to end before it is killed.
* ``_WIDTH``: columns of the answer.
* ``_SHOWN``: lines of the answer that name rows.
"""
_DRAIN_S = 1.0
"""How many seconds to wait for the rest of the output after the user's check has ended."""
_KEPT_BYTES = 64 << 10  # Most bytes that are kept of the output of a check.
_DEVICE = re.compile(r"\d+(?=\.[^.]*\Z)")


def ddmin(rows: Rows, fails: Callable[[Rows], bool]) -> Rows:
    """Reduce a set of rows that fail together, until the set passes if any one of its rows is removed.

    ``fails`` tells whether the check fails with a set of rows. An empty set is assumed to pass.
    """
    parts = 2
    while len(rows) > 1:
        ends = list(pairwise(len(rows) * part // parts for part in range(parts + 1)))
        chunk = next((x for x in (rows[a:b] for a, b in ends) if fails(x)), None)
        rest = None if chunk else next((x for x in ([*rows[:a], *rows[b:]] for a, b in ends) if fails(x)), None)
        if chunk:
            rows, parts = chunk, 2
        elif rest:
            rows, parts = rest, max(parts - 1, 2)
        elif parts == len(rows):
            break
        else:
            parts = min(2 * parts, len(rows))
    return rows


def narrow_down_rows(rows: Rows, ask: Callable[[Rows, int, int], Verdict]) -> Rows:
    """Find a smaller set of rows that still makes the user's check fail, by halving the given rows again and again.

    ``ask(rows, suspected, needed)`` runs the check with some rows. It returns "good", "bad", or "skip" if the check
    ended with exit code 125, which means neither. After many such checks, the set stays large. ``suspected`` and
    ``needed`` are for the progress line: how many rows are suspected, and how many are already known to be needed.
    """
    needed: list[int] = []
    while ask(sorted(needed), len(rows), len(needed)) != "bad":
        # The check passes with ``rows[:good]`` plus the needed rows, and fails with ``rows[:bad]`` plus the needed
        # rows.
        good, bad = 0, len(rows)
        while bad - good > 1:
            steps = dict.fromkeys(good + (bad - good) * part // 16 for part in (8, 4, 12, 2, 14, 6, 10))
            tried = ((x, ask(sorted([*rows[:x], *needed]), bad - good, len(needed))) for x in steps if good < x < bad)
            middle, found = next((x for x in tried if x[1] != "skip"), (0, "skip"))
            if found == "skip":
                return sorted([*rows[:bad], *needed])
            good, bad = (good, middle) if found == "bad" else (middle, bad)
        needed.append(rows[bad - 1])
        rows = rows[: bad - 1]
    return sorted(needed)


class Run(NamedTuple):
    """The result of one run of the user's check (a shell command) with some rows of the override file.

    * ``rows``: a hash of the row numbers.
    * ``code``: exit code, None after a timeout.
    * ``log``: file with the output.
    """

    rows: str
    code: int | None
    seconds: float
    log: str

    @property
    def verdict(self) -> Verdict:
        return "good" if self.code == 0 else "skip" if self.code == 125 else "bad"

    def __str__(self) -> str:
        code = self.code or 0
        how = "timeout" if self.code is None else f"exit {code}" if code >= 0 else f"signal {-code}"
        return f"{self.verdict} ({how}, {duration(self.seconds * 1e6)}, {self.log})"


@dataclass(frozen=True, kw_only=True)
class Table:
    """An override file whose rows can be removed one by one, to find the rows that make a job fail.

    * ``rows``: line number and text of each row.
    * ``cut``: returns the file's content with only some of the rows.
    * ``made``: name of a copy of the file, and the settings that make the library use the copy.
    * ``beside``: other override files in the same folder, if the library looks for files there by name.
    """

    path: Path
    data: bytes
    cut: Callable[[Keep], bytes]
    rows: Sequence[tuple[int, str]]
    made: Emission
    beside: Sequence[Path]

    def with_rows(self, rows: Rows) -> bytes:
        wanted, place = frozenset(rows), count()
        return self.cut(lambda line, text: next(place) in wanted)

    def placed(self, rows: Rows, folder: Path) -> Emission:
        """Write a copy of the override file that has only some rows, to test which rows make a job fail.

        ``folder`` is emptied first. Returns the copy, with the settings that make the library use it. Other files that
        the library reads from the original's folder (``beside``) are copied, too. If one of them has the same content
        as the override file, it also gets only these rows: TunableOp has the same file once for each GPU.
        """
        data, files = self.with_rows(rows), [(path.name, path.read_bytes()) for path in self.beside]
        shutil.rmtree(folder, ignore_errors=True)
        others = [Emission(name, data if other == self.data else other, Shell()) for name, other in files]
        return write([replace(self.made, data=data), *others], folder)[0]


def split_into_rows(path: Path) -> Table:
    """Split an override file (the user's list of kernels for a library) into rows, to find a row that makes a job fail.

    Raises InputError if no library reads such a file, or if it cannot be split.
    """
    name, data = content_of(str(path))
    format, rows = format_of(name, data), list[tuple[int, str]]()
    read = format.reader(name, data, {}).rows

    def keep(line: int, text: bytes) -> bool:
        rows.append((line, make_printable(text.decode("utf-8", "replace"))))
        return True

    cut = partial(format.cut, data, read)
    if not read or cut(keep) != data or len(format.reader(name, cut(lambda line, text: False), {}).rows):
        raise InputError(
            f"{path}: this {format.name} file cannot be split into rows, so bisect cannot work on it (`logparse "
            "lint` states why)"
        )
    try:
        made = format.merging.write((), name, dict(format.merging.header(name, data)), 1)[0]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if format.merging.per_device and _DEVICE.search(name):  # The variable has the name without the device's number.
        made = replace(made, name=name)
    beside = list(_find_other_files(path, made.name)) if "{folder}" in made.use else []
    return Table(path=path, data=data, cut=cut, rows=rows, made=made, beside=beside)


def _find_other_files(path: Path, copy: str) -> Iterator[Path]:
    for other in sorted(path.parent.iterdir()):
        if other.is_file() and other.name not in (path.name, copy) and not other.name.startswith("."):
            # The file is no override file, or belongs to another user.
            with suppress(InputError, OSError), open(other, "rb") as file:
                format_of(other.name, file.read(HEAD_BYTES))
                yield other


@dataclass(frozen=True, kw_only=True)
class Checks:
    """Runs the user's check with some of a file's rows, and remembers the results.

    ``say`` is a function that shows text to the user before and after each check.
    """

    table: Table
    check: str
    timeout_s: float | None
    folder: Path
    # Each result is written here as soon as the check has ended, so no check is repeated after an interruption.
    journal: BinaryIO
    say: Callable[[str], None]
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal.seek(0)
        for line in self.journal:
            with suppress(ValueError, TypeError):  # A kill may have cut the line.
                self.runs.append(Run(**json.loads(line)))

    def run(self, rows: Rows, suspected: int, needed: int, *, again: bool = False) -> Run:
        """Run the user's check with these rows of the override file, and return the result.

        If the check was already run with these rows, the result is taken from the journal, a file with all earlier
        results.

        * ``again``: run the check a second time with the same rows.
        * ``suspected``, ``needed``: how many rows are suspected, and how many are known to be needed for a failure.
          They only serve to estimate in the progress line how many runs are left.
        """
        name, ended = hashlib.sha256(repr([*rows]).encode()).hexdigest()[:16], len(self.runs)
        if sum(run.rows == name for run in self.runs) <= again:
            # The number of runs to go covers the search, the check of the needed rows alone, ``ddmin`` (the smaller one
            # of its own bound and the number of all subsets), the checks with all rows and with none, and the
            # confirmation.
            least = min((needed + 1) * (needed + 4), (1 << min(needed + 1, 30)) - 2)
            search = 0 if again or not suspected else (suspected - 1).bit_length() + 1 + least
            to_go = search + max(0, 2 - ended) + (2 if suspected else 1)
            eta = f", {duration(to_go * fmean(run.seconds for run in self.runs) * 1e6)}" if ended else ""
            left = f"{suspected:,} suspected; at most {pluralize(to_go, 'run')} left{eta}"
            self.say(f"run {ended + 1}: {pluralize(len(rows), 'row')}; {left}: ")
            self.runs.append(self._run(name, rows, f"run{ended + 1}.log"))
            self.journal.write(f"\n{json.dumps(self.runs[-1]._asdict())}\n".encode())
            os.fsync(self.journal.fileno())
            self.say(f"{self.runs[-1]}\n")
        return [run for run in self.runs if run.rows == name][again]

    def _run(self, name: str, rows: Rows, log: str) -> Run:
        """Run the user's test command with only some rows of an override file, to see if these rows make it fail.

        An override file is the user's list of kernels for a library, one in each row.
        """
        copy, code = self.table.placed(rows, self.folder / "table"), None
        table = fill_template(Shell("export LOGPARSE_TABLE=@path@"), {"path": shell_word(copy.path or "")})
        script = "\n".join([*copy.settings, table, self.check])
        began = time.monotonic()
        # The check inherits the open journal file, which is locked. So the journal stays locked if the check outlives
        # this process.
        process = subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, pass_fds=[self.journal.fileno()], bufsize=0,
        )  # fmt: skip
        output = threading.Thread(target=_keep_last, args=[process.stdout, self.folder / log], daemon=True)
        output.start()
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(self.timeout_s)
        finally:
            _end(process)
            output.join(_DRAIN_S)  # A process that left the check's group may hold the pipe open.
        return Run(name, code, time.monotonic() - began, log)

    def guilty(self) -> tuple[list[Rows], Sequence[str]]:
        """Find out which rows of the override file make the user's check fail, and whether the result is certain.

        Returns a list of sets of rows, each as small as possible, and the reasons for doubt. There are no such reasons
        if two more runs confirm the result: the check fails with the rows, and passes with the file without them.
        Raises InputError if the check does not depend on the rows.
        """
        rows: Rows = range(len(self.table.rows))
        names = ", ".join(line.split()[1].partition("=")[0] for line in self.table.made.settings)
        for part, wanted, otherwise in (
            (rows, "bad", f"the job does not fail because of this file, or the job does not read {names}"),
            ((), "good", "the rows of the file do not cause the failure, or the check itself is wrong"),
        ):
            run = self.run(part, len(rows), 0)
            if run.verdict != wanted:
                what = f"{'with all rows' if part else 'without any row'} the check is not {wanted}"
                raise InputError(f"{self.table.path}: {what}: {run}; {otherwise}")
        found: list[Rows] = []
        while True:
            part = narrow_down_rows(rows, lambda *x: self.run(*x).verdict)
            least = ddmin(part, lambda x: self.run(x, 1, len(x)).verdict == "bad")
            found.append(least)
            first, second = (self.run(least, 1, 0, again=x) for x in (False, True))
            if second.verdict != "bad":
                return found, [
                    "the check is flaky, because the same rows gave different results:",
                    f"{first}",
                    f"{second}",
                ]
            rows = [x for x in rows if x not in least]
            rest = self.run(rows, 0, 0)
            if rest.verdict != "bad":
                return found, [] if rest.verdict == "good" else [f"the check without these rows: {rest}"]
            cause = f"line {', '.join(str(self.table.rows[x][0]) for x in least)}"
            self.say(
                f"cause found: {cause}. But the check also fails without {cause}, so the other rows are searched for "
                "another cause\n"
            )


def _keep_last(pipe: FileIO, path: Path) -> None:
    """Copy the output of the user's check from a pipe to a file, but keep only its last ``_KEPT_BYTES``.

    Otherwise a job that prints all day would fill the disk. The file never becomes twice as long as the limit.
    """
    last, left_out = b"", 0
    with pipe, open(path, "wb", buffering=0) as log:
        ended = False
        while not ended:
            data = pipe.read(_KEPT_BYTES)
            ended, last = not data, last + (data or b"")
            more = len(last) - _KEPT_BYTES
            if more > (0 if ended else _KEPT_BYTES):
                last, left_out = last[more:], left_out + more
                log.seek(0)
                log.truncate()
                log.write(f"({left_out:,} bytes before this are left out)\n".encode() + last)
            elif data:
                log.write(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the processes that a check has left behind. They may use the GPU or a port that the next check needs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(_GRACE_S)


def answer(path: Path, check: str, timeout_s: float | None, out: Path | None, say: Callable[[str], None]) -> Answer:
    """Find the rows of an override file that make the user's check fail, and write a copy without them to ``out``.

    The exit code in the answer is 130 if the user pressed Ctrl-C.
    """
    if out is not None and out.exists() and out.samefile(path):
        raise UsageError(f"--out {out} is the file to search; name another file")
    table = split_into_rows(path.absolute())
    key = hashlib.sha256(b"\0".join([table.data, os.fsencode(check), repr(timeout_s).encode()])).hexdigest()
    folder = table.path.parent / f".{path.name}.bisect-{key[:8]}"
    folder.mkdir(exist_ok=True)
    with open(folder / "answers.jsonl", "a+b", buffering=0) as journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another bisect is still running, or a check that a killed bisect started; wait for it, or "
                "end it"
            ) from None
        checks = Checks(table=table, check=check, timeout_s=timeout_s, folder=folder, journal=journal, say=say)
        known = (
            f"{pluralize(len(checks.runs), 'answer')} of the check known from an earlier run; answers and outputs are "
            f"in {make_printable(folder.name)}"
        )
        say(f"{pluralize(len(table.rows), 'row')}, {known}\n")
        try:
            found, doubt = checks.guilty()
        except KeyboardInterrupt:
            return Answer(
                errors=[
                    "",
                    (
                        "stopped: the results of the check so far are kept; run the same command again to continue the "
                        "search"
                    ),
                ],
                code=130,
            )
    text = lines(checks, found, doubt)
    if doubt:
        text.append(f"to start over, remove {make_printable(folder.name)}")
    elif out is None:
        text.append("to write the file without these rows, add --out FILE to the command; the check does not run again")
    else:
        rest = [x for x in range(len(table.rows)) if not any(x in rows for rows in found)]
        text += wrote_lines(write([Emission(out.name, table.with_rows(rest), Shell())], out.parent, [str(path)]))
    return Answer(text, code=CHECK_FAILED if doubt else 0)


def lines(checks: Checks, found: Sequence[Rows], doubt: Sequence[str]) -> list[str]:
    """Return the answer for the user: which rows of an override file make the user's test command fail.

    An override file is a list of kernels for a library. The answer also states how certain it is.
    """
    named: list[str] = []
    for rows in found:
        named += ["  the check fails only if all of these rows are in the file:"] if len(rows) > 1 else []
        for line, text in (checks.table.rows[x] for x in rows):
            head = f"  line {line}: "
            named.append(head + shorten_texts([text], _WIDTH - len(head))[0])
    more = [f"  and {len(named) - _SHOWN:,} more lines"] if len(named) > _SHOWN else []
    of = f"{pluralize(sum(map(len, found)), 'row')} of {len(checks.table.rows):,}"
    cost = f"({pluralize(len(checks.runs), 'run')}, {duration(sum(run.seconds for run in checks.runs) * 1e6)})"
    sure = (
        ["not certain:", *doubt]
        if doubt
        else ["confirmed: the check failed again with these rows, and passed with the whole file without these rows"]
    )
    return [f"{of} make the check fail {cost}", *named[:_SHOWN], *more, *sure]
