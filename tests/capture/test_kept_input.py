"""Tests that each start of a job gets the same standard input."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from logparse.capture.kept_input import KeptInput
from logparse.errors import InputError

WORDS = b"".join(b"%d\n" % i for i in range(60_000))
"""Bytes for standard input, more than a pipe can buffer."""


def piped(data: bytes) -> int:
    """Return a file descriptor for reading from a pipe, into which a thread writes ``data``."""
    read, write = os.pipe()

    def fill() -> None:
        with os.fdopen(write, "wb") as file:
            file.write(data)

    threading.Thread(target=fill, daemon=True).start()
    return read


def start(kept: KeptInput, program: str) -> bytes:
    """Run a program with a kept copy of standard input, and return what the program prints."""
    with kept.given() as streams:
        words = [sys.executable, "-c", f"import sys\nread = sys.stdin.buffer\n{program}"]
        return subprocess.run(words, stdin=streams.get(0), stdout=-1, check=True).stdout


ALL, SOME, NOTHING = "sys.stdout.buffer.write(read.read())", "sys.stdout.buffer.write(read.readline())", "print('none')"


def test_each_start_gets_all_bytes_of_a_pipe() -> None:
    """If standard input is a pipe, every start of the job gets all its bytes.

    In an earlier version, the second start found the pipe empty and failed.
    """
    source = piped(WORDS)
    kept = KeptInput(source)
    assert [start(kept, x) for x in (NOTHING, SOME, ALL, ALL, SOME)] == [b"none\n", b"0\n", WORDS, WORDS, b"0\n"]
    os.close(source)


def test_a_job_that_reads_nothing_does_not_wait_for_a_pipe_that_nobody_fills() -> None:
    read, write = os.pipe()
    assert start(KeptInput(read), NOTHING) == b"none\n"
    os.close(write)
    os.close(read)


def test_new_input_is_passed_on_at_once() -> None:
    """Input that arrives while the job runs is passed on to the job at once.

    Otherwise a program that answers each line of its input would wait for ever.
    """
    read, write = os.pipe()
    kept = KeptInput(read)
    with kept.given() as streams:
        echo = [sys.executable, "-uc", "import sys; [print(line, end='') for line in sys.stdin]"]
        running = subprocess.Popen(echo, stdin=streams[0], stdout=-1)
        assert running.stdout is not None
        for word in (b"one\n", b"two\n"):
            os.write(write, word)
            assert running.stdout.readline() == word
        os.close(write)
        assert running.wait() == 0
        running.stdout.close()
    assert start(kept, ALL) == b"one\ntwo\n"
    os.close(read)


def test_two_starts_at_once_each_read_all() -> None:
    source = piped(WORDS)
    kept = KeptInput(source)
    with kept.given() as one, kept.given() as other:
        words = [sys.executable, "-c", f"import sys\nread = sys.stdin.buffer\n{ALL}"]
        both = [subprocess.Popen(words, stdin=streams[0], stdout=-1) for streams in (one, other)]
        assert [x.communicate()[0] for x in both] == [WORDS, WORDS]
    os.close(source)


def test_a_file_is_read_again_from_where_the_first_start_began(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"head\n" + WORDS)
    source = os.open(path, os.O_RDONLY)
    os.lseek(source, 5, os.SEEK_SET)
    kept = KeptInput(source)
    with kept.given() as streams:
        assert streams == {}, "the first start has the file itself, as without us"
        os.read(source, 100)
    assert [start(kept, ALL) for _ in range(2)] == [WORDS] * 2
    assert os.lseek(source, 0, os.SEEK_CUR) == 105
    os.close(source)


def test_other_inputs_are_the_jobs_own() -> None:
    ours, theirs = os.openpty()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source in (theirs, nothing, 4000):
        kept = KeptInput(source)
        for _ in range(2):
            with kept.given() as streams:
                assert streams == {}
    for number in (ours, theirs, nothing):
        os.close(number)


def test_input_that_cannot_be_kept_is_read_once_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    source = piped(WORDS)
    kept = KeptInput(source)
    assert start(kept, ALL) == WORDS
    with pytest.raises(InputError, match="No space left"), kept.given():
        pass
    os.close(source)
