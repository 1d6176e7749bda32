"""Tests of how ``logparse capture`` passes on what a job prints, while it also keeps a copy.

If the job is started at a terminal, it must still have one. Processes that the job leaves behind must not be harmed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from logparse.capture import job
from tests.conftest import ROOT
from tests.waiting import PATIENCE_S

DRIVER = """
import os, sys
from pathlib import Path
from logparse.capture import job
errors, copy, *command = sys.argv[1:]
sys.exit(job.run(command, os.environ, *(Path(x) if x else None for x in (errors, copy))).code)
"""


def driven(errors: Path | None, copy: Path | None, *command: str) -> list[str]:
    return [sys.executable, "-c", DRIVER, *(str(x or "") for x in (errors, copy)), *command]


def python(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


SHELL = f"""
import fcntl, os, signal, sys, time
os.setsid()
fcntl.ioctl(0, {termios.TIOCSCTTY}, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
ready, begin = os.pipe()
job = os.fork()
if job == 0:
    os.read(ready, 1)
    os.execvp(sys.argv[2], sys.argv[2:])
os.setpgid(job, job)
os.tcsetpgrp(0, job)
os.write(begin, b"x")
while True:
    status = os.waitpid(job, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    os.write(1, b"[stopped %d]" % job)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    os.killpg(job, signal.SIGCONT)
"""
"""Program that starts a command as a shell does.

The command runs in a foreground process group of its own. If it is stopped (Ctrl-Z), it is continued once a certain
file exists.
"""


class Terminal:
    """A terminal of 33 rows and 99 columns, in which a shell runs one command in the foreground."""

    def __init__(self, command: Sequence[str], go_on: Path = Path(os.devnull)) -> None:
        self.ours, theirs = os.openpty()
        self.resize(33, 99)
        self.seen = b""
        words = [sys.executable, "-c", SHELL, str(go_on), *command]
        self.process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT)
        os.close(theirs)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def read_until(self, word: bytes) -> None:
        by = time.monotonic() + PATIENCE_S
        while word not in self.seen:
            assert time.monotonic() < by, self.seen
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 4096)

    def end(self) -> int:
        with contextlib.suppress(OSError):  # the other side is closed
            while data := os.read(self.ours, 4096):
                self.seen += data
        os.close(self.ours)
        return self.process.wait()


@pytest.mark.parametrize("copied", [(True, False), (False, True), (True, True)])
def test_a_terminal_stays_one_with_its_size_whatever_is_copied(copied: tuple[bool, bool], tmp_path: Path) -> None:
    tells = """
        import os
        for stream in (0, 1, 2):
            os.write(1, b"%d %d;" % (os.isatty(stream), os.get_terminal_size(stream).columns))
    """
    errors, everything = (tmp_path / name if there else None for name, there in zip("ea", copied, strict=True))
    terminal = Terminal(driven(errors, everything, *python(tells)))
    assert terminal.end() == 0
    assert terminal.seen == b"1 99;1 99;1 99;"


def test_two_outputs_on_one_terminal_keep_their_order(tmp_path: Path) -> None:
    """On a terminal, words on standard output and on standard error appear in the order in which the job wrote them."""
    # In an earlier version each of the two had a terminal of its own, copied by a thread, and half of the words came in
    # the wrong order.
    prints = "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d ' % i)"
    terminal = Terminal(driven(None, tmp_path / "all", *python(prints)))
    assert terminal.end() == 0
    assert [int(x) for x in terminal.seen.split()] == [*range(2000)]
    assert (tmp_path / "all").read_bytes() == terminal.seen


def test_a_new_size_of_the_terminal_reaches_the_job(tmp_path: Path) -> None:
    waits = """
        import os, signal
        signal.signal(signal.SIGWINCH, lambda *_: None)
        print("ready", flush=True)
        while os.get_terminal_size(1).columns != 120:
            signal.sigtimedwait([], 0.05)
        print("seen", os.get_terminal_size(1), flush=True)
    """
    terminal = Terminal(driven(None, tmp_path / "all", *python(waits)))
    terminal.read_until(b"ready")
    terminal.resize(40, 120)
    terminal.read_until(b"lines=40")
    assert terminal.end() == 0


def test_control_z_stops_the_job_and_a_shells_fg_wakes_it_once(tmp_path: Path) -> None:
    waits = """
        import signal, sys, time
        woken = []
        signal.signal(signal.SIGCONT, lambda *_: woken.append(1))
        print("ready", flush=True)
        while not woken:
            time.sleep(0.01)
        time.sleep(0.5)
        print("woken", len(woken), flush=True)
    """
    go_on = tmp_path / "go on"
    terminal = Terminal(driven(None, tmp_path / "all", *python(waits)), go_on)
    terminal.read_until(b"ready")
    os.write(terminal.ours, b"\x1a")
    terminal.read_until(b"[stopped ")
    terminal.read_until(b"]")
    group = int(terminal.seen.rpartition(b"[stopped ")[2].partition(b"]")[0])
    wait_for(lambda: len(stopped(group)) == 2)
    go_on.touch()
    terminal.read_until(b"woken")
    assert terminal.end() == 0, terminal.seen
    assert b"woken 1" in terminal.seen


def stopped(group: int) -> list[int]:
    """Return the ids of all processes in a process group that are stopped (Ctrl-Z)."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
            found += [int(process)] * (fields[0] == "T" and int(fields[2]) == group)
    return found


def wait_for(true: Callable[[], bool]) -> None:
    by = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < by
        time.sleep(0.02)


DAEMON = """
import os, subprocess, sys, time
talks = "import os, sys, time; os.write(2, b'early\\\\n'); open(sys.argv[1] + '.early', 'w')\\n"
talks += "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\\n"
talks += "[os.write(2, b'x' * 9999) for _ in range(99)]; os.write(2, b'late\\\\n'); open(sys.argv[1] + '.done', 'w')"
left = subprocess.Popen([sys.executable, "-c", talks, sys.argv[1]], stdin=-3, stdout=-3, start_new_session=True)
while not os.path.exists(sys.argv[1] + ".early"):
    time.sleep(0.02)
"""
"""Program of a job that leaves a process behind.

This process still has the job's standard error, and later writes more bytes to it than a pipe can buffer.
"""


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    """Path of a file for which a background process of the job waits. When the file exists, the process ends.

    The test may create the file. At the end of the test it is created in any case.
    """
    path = tmp_path / "go"
    yield path
    path.touch()


def test_a_process_left_behind_can_still_print(tmp_path: Path, go: Path) -> None:
    """A process that the job leaves behind can still print, and its output is still copied.

    In an earlier version its next output killed it (SIGPIPE).
    """
    command = driven(tmp_path / "errors", None, *python(DAEMON), str(go))
    with open(tmp_path / "stderr", "wb") as errors:
        done = subprocess.run(command, stdout=-1, stderr=errors, cwd=ROOT, check=False)
    assert done.returncode == 0
    assert not go.exists(), "the job's end was not waited for"
    go.touch()
    wait_for(Path(f"{go}.done").exists)
    paths = [tmp_path / "errors", tmp_path / "stderr"]
    wait_for(lambda: all(path.read_bytes().endswith(b"late\n") for path in paths))
    assert [path.stat().st_size for path in paths] == [len("early\nlate\n") + 99 * 9999] * 2


def test_who_reads_a_pipe_to_its_end_does_not_wait_for_it(tmp_path: Path, go: Path) -> None:
    command = driven(tmp_path / "errors", None, *python(DAEMON), str(go))
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"early\n")
    assert not go.exists()
    go.touch()
    wait_for(Path(f"{go}.done").exists)
    wait_for(lambda: (tmp_path / "errors").read_bytes().endswith(b"late\n"))


def test_a_process_left_behind_that_never_stops_talking_holds_nobody_up(tmp_path: Path) -> None:
    talks = "import os, subprocess, sys; print(subprocess.Popen(['yes'], stdin=-3, stdout=2).pid, flush=True)"
    done = subprocess.run(
        driven(tmp_path / "errors", None, *python(talks)), stdout=-1, stderr=-3, cwd=ROOT, check=True, timeout=120
    )
    os.kill(int(done.stdout), signal.SIGKILL)


THREADED = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
"""Code that starts a thread before the job runs, as a library may do. This thread may receive any signal."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_a_librarys_thread_reaches_the_job_once(number: signal.Signals) -> None:
    """If a signal reaches ``capture`` in a thread of a library, it is passed on to the job exactly once.

    In an earlier version the signal ended ``capture``, but not the job.
    """
    waits = f"""
        import signal, time
        seen = []
        signal.signal({int(number)}, lambda n, frame: seen.append(n))
        print("ready", flush=True)
        while not seen:
            time.sleep(0.01)
        time.sleep(0.3)
        print("seen", len(seen), flush=True)
    """
    words = [sys.executable, "-c", THREADED + DRIVER, "", "", *python(waits)]
    running = subprocess.Popen(words, stdout=-1, cwd=ROOT, start_new_session=True)
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(number)
    assert running.communicate()[0] == b"seen 1\n"
    assert running.returncode == 0


def test_control_c_beside_a_librarys_thread_reaches_the_job_once() -> None:
    waits = """
        import signal, time
        seen = []
        signal.signal(signal.SIGINT, lambda n, frame: seen.append(n))
        print("ready", flush=True)
        while not seen:
            time.sleep(0.01)
        time.sleep(0.3)
        print("seen", len(seen), flush=True)
    """
    terminal = Terminal([sys.executable, "-c", THREADED + DRIVER, "", "", *python(waits)])
    terminal.read_until(b"ready")
    os.write(terminal.ours, b"\x03")
    terminal.read_until(b"seen")
    assert terminal.end() == 0
    assert b"seen 1" in terminal.seen


def test_signals_that_the_caller_ignores_are_ignored() -> None:
    """If the caller ignores a signal, the job ignores it, too. For example, ``nohup`` ignores SIGHUP."""
    tells = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    ignoring = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
    done = subprocess.run([*ignoring, *driven(None, None, *python(tells))], stdout=-1, cwd=ROOT, check=True)
    assert done.stdout == b"True\n"


def test_the_jobs_own_signal_is_not_sent_again(tmp_path: Path) -> None:
    """If a job sends a signal to its own process group, ``capture`` does not send the same signal to the job again.

    In an earlier version it did, so that the job got a second KeyboardInterrupt while it cleaned up.
    """
    sends = """
        import os, signal, time
        seen = []
        for number in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda number, _: seen.append(number))
            os.killpg(0, number)
            time.sleep(0.4)
        print(len(seen), flush=True)
    """
    done = subprocess.run(driven(None, None, *python(sends)), stdout=-1, cwd=ROOT, check=False, start_new_session=True)
    assert (done.returncode, done.stdout) == (0, b"2\n")


def test_a_job_that_cannot_be_started_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert job.run([str(tmp_path)], os.environ, tmp_path / "errors", tmp_path / "all").code == job.CANNOT_RUN
    assert os.listdir("/proc/self/fd") == before
