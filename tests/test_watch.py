"""``status --watch``: its lines on an ingest that runs, and on one that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logparse import watch
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.store import Store, announcements
from logparse.store.announcements import Running, announced
from logparse.store.compaction import compact
from logparse.watch import Count
from tests.conftest import ROOT
from tests.ingest.test_ingest import bench

LOGPARSE = [sys.executable, "-m", "logparse"]


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


@contextmanager
def open_ended(store: Store, *paths: Path, run: str = "job") -> Iterator[subprocess.Popen[bytes]]:
    """An ingest in another process that has read ``paths`` and waits for its standard input to end."""
    command = [*LOGPARSE, "ingest", *map(str, paths), "-", "--store", store.url, "--run", run]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            until(lambda: len(store.commits()) >= len(paths) and bool(announcements.running(store)))
            yield process
        finally:
            process.kill()


def logs(folder: Path, count: int = 2) -> list[Path]:
    paths = [folder / f"log_{number}.log" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text(bench(*range(1, 11 + number)))
    return paths


def test_a_running_ingest_of_another_process_is_followed_to_its_end(tmp_path: Path, store: Store) -> None:
    paths = logs(tmp_path)
    with open_ended(store, *paths) as process:
        command = [*LOGPARSE, "status", "--store", store.url, "--watch", "--interval", "0.1"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout
            first = watching.stdout.readline()
            assert process.stdin
            process.stdin.write(bench(7).encode())
            process.stdin.close()
            rest = watching.stdout.read()
    assert first.startswith("ingest job: 2 of 3 files, ")
    assert ", 21 lines" in first
    assert "MB/s" in first
    assert "ingest job: ended: 3 of 3 files, " in rest
    assert rest.splitlines()[-1] == "nothing runs"
    assert watching.returncode == 0
    assert announcements.running(store) == {}


def test_a_killed_ingest_is_recognised_by_its_silence_and_swept_after_weeks(tmp_path: Path, store: Store) -> None:
    with open_ended(store, *logs(tmp_path)) as process:
        process.kill()
    looking = watch.Watch(store)
    (count,), ended = looking.look()
    assert not ended
    assert "stopped" not in watch.line(count, count.last + 60)
    shown = watch.line(count, count.last + 720)
    assert "no commit for 12 min: stopped? (pid" in shown
    assert "MB/s" not in shown
    assert "left" not in shown
    assert announcements.remove_abandoned(store, count.last + 13 * 86_400) == 0
    assert announcements.remove_abandoned(store, count.last + 15 * 86_400) == 1
    assert announcements.running(store) == {}


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_ctrl_c_ends_the_watch_and_an_interrupted_ingest_takes_its_file_away(
    tmp_path: Path, store: Store, number: signal.Signals
) -> None:
    with open_ended(store, *logs(tmp_path)) as process:
        command = [*LOGPARSE, "status", "--store", store.url, "--watch"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stdout
            assert watching.stderr
            watching.stdout.readline()
            watching.send_signal(number)
            assert watching.stderr.read() == ""
        assert watching.returncode == 0
        process.send_signal(number)
        process.wait()
    assert announcements.running(store) == {}


def test_an_ingest_that_fails_takes_its_file_away(tmp_path: Path, store: Store) -> None:
    with pytest.raises(InputError), announced(store, "ingest", "job"):
        raise InputError("no")
    assert announcements.running(store) == {}


def test_nothing_runs(store: Store) -> None:
    shown: list[str] = []
    watch.watch(store, shown.append)
    assert shown == ["nothing runs"]


def test_only_what_is_to_be_read_is_announced(tmp_path: Path, store: Store) -> None:
    whole, grown = logs(tmp_path)
    ingest([str(whole), str(grown)], store, run="before")
    before = grown.stat().st_size
    with grown.open("a") as sink:
        sink.write(bench(1, 2, 3))
    counts: list[Count] = []
    looking = watch.Watch(store)
    ingest([str(whole), str(grown)], store, run="now", progress=lambda path, count: counts.extend(looking.look()[0]))
    count = counts[0]
    assert (count.entry.files, count.entry.bytes) == (1, grown.stat().st_size - before)
    _, ended = looking.look()
    assert (ended[0].files, ended[0].lines, ended[0].share) == (1, 3, 1.0), "though it stays with its first run"


def test_a_compaction_meanwhile_counts_nothing_twice(tmp_path: Path, store: Store) -> None:
    looking = watch.Watch(store)
    with announced(store, "ingest", "job", files=3):
        ingest(map(str, logs(tmp_path, 2)), store, run="job")
        looking.look()
        compact(store)
        (count,) = [count for count in looking.look()[0] if count.entry.files == 3]
    assert (count.files, count.lines) == (2, 21)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"kind": "ingest"}', '{"kind": "ingest", "run": "r", "started": "x"}', "\ud800"]
)
def test_a_damaged_file_is_passed_over(store: Store, text: str) -> None:
    folder = Path(store.root) / "running"
    folder.mkdir()
    (folder / "a.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert watch.Watch(store).look() == ([], [])


def test_the_line_of_a_running_ingest() -> None:
    entry = Running(kind="ingest", run="job-7", started=1000.0, host="node1", pid=42, files=200, bytes=4_000_000_000)
    count = Count(entry, 1000.0, files=100, bytes=1_000_000_000, lines=5_300_000)
    assert watch.line(count, 1010.0) == (
        "ingest job-7: 100 of 200 files, 1.0 of 4.0 GB, 5,300,000 lines, 100.0 MB/s, 30 s left"
    )
