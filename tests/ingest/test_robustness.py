"""Tests that reading logs never fails as a whole and never loses a line.

The logs have damaged text of every format, the disk is full, or files vanish or cannot be read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logparse.ingest import Ingested, ingest
from logparse.ingest.worker import _UNREAD
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import UNITS, BlockFormat, FileFormat, Format, Head, LineFormat, Outcome
from logparse.model import Reject
from logparse.store import Store, open_store
from tests.conftest import ROOT, sized
from tests.damage import PIECES, damaged, seeds
from tests.ingest.test_ingest import BENCH, bench, counts
from tests.libraries.reading import Memory, check_conservation

LINE_FORMATS = [f for f in FORMATS if isinstance(f, LineFormat)]
BLOCK_FORMATS = [f for f in FORMATS if isinstance(f, BlockFormat)]
FILE_FORMATS = [f for f in FORMATS if isinstance(f, FileFormat)]
fuzz = settings(suppress_health_check=list(HealthCheck))


def by_name(format: Format) -> str:
    return format.name


def sound(outcome: Outcome, length: int) -> None:
    """Check that the result of reading a line is consistent: a known kind, and positions that lie within the line."""
    assert outcome.unit in UNITS
    assert outcome.lines >= 0
    for record in outcome.records:
        if isinstance(record, Reject):
            assert 0 <= outcome.at + record.offset <= length
            assert 0 <= record.length <= length
            assert record.reason
    assert outcome.unit != "reject" or any(isinstance(record, Reject) for record in outcome.records)


# ------------------------------------------------------------------------------------------------------ damaged text


@pytest.mark.parametrize("format", FORMATS, ids=by_name)
def test_every_format_has_real_text_to_damage(format: Format) -> None:
    assert seeds()[format.name]


@pytest.mark.parametrize("format", LINE_FORMATS, ids=by_name)
def test_a_damaged_line_is_one_outcome(format: LineFormat) -> None:
    @fuzz
    @given(damaged(format))
    def check(seed: tuple[str, bytes]) -> None:
        line = seed[1].replace(b"\n", b" ")
        outcome = format.read(line.decode("utf-8", "backslashreplace"))
        assert outcome.lines == 1
        sound(outcome, 4 * len(line))  # an escaped byte is four characters

    check()


@pytest.mark.parametrize("format", BLOCK_FORMATS, ids=by_name)
def test_a_damaged_stream_is_one_outcome_per_line(format: BlockFormat) -> None:
    @fuzz
    @given(damaged(format))
    def check(seed: tuple[str, bytes]) -> None:
        reader = format.begin()
        for line in Memory(seed[1], seed[0]).lines():
            outcome = reader.take(line)
            if outcome is not None:
                assert outcome.lines == 1
                sound(outcome, 4 * len(seed[1]))
            assert isinstance(reader.awake, bool)
        list(reader.close())

    check()


@pytest.mark.parametrize("format", FILE_FORMATS, ids=by_name)
def test_a_damaged_file_is_accounted_for(format: FileFormat) -> None:
    counts = [(_read(format, *seed), len(list(Memory(seed[1], "").lines()))) for seed in seeds()[format.name]]
    # (1, 1): the file is one unit
    counts_lines = all(units == lines for units, lines in counts) and max(counts) > (1, 1)

    @fuzz
    @given(damaged(format))
    def check(seed: tuple[str, bytes]) -> None:
        name, data = seed
        recognised = format.recognise(Head(name, data[: 64 << 10]))
        units = _read(format, name, data)
        if counts_lines and recognised:
            assert units == len(list(Memory(data, name).lines()))

    check()


def _read(format: FileFormat, name: str, data: bytes) -> int:
    units = 0
    for outcome in format.read(Memory(data, name)):
        sound(outcome, 4 * len(data))
        units += outcome.lines
    return units


@pytest.mark.parametrize("format", FORMATS, ids=by_name)
def test_damaged_lines_are_counted_once(format: Format) -> None:
    """Damaged text of any log format is read without an error, and each line is counted once.

    The text also goes into the store (Parquet folder), because unusual numbers must fit its columns.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"{folder}/store", create=True)

        @settings(fuzz, max_examples=sized(3, 60))
        @given(st.lists(damaged(format), min_size=1, max_size=30))
        def check(found: list[tuple[str, bytes]]) -> None:
            if isinstance(format, FileFormat):
                name, data = found[0]
            else:
                name, data = "damaged_7.log", b"\n".join(data for _, data in found)
            path = Path(folder, name)
            path.write_bytes(data)
            (result,) = ingest([str(path)], store)
            # Damage may make the first bytes of an archive or of UTF-16. Such a file is refused by name.
            refused = any(kind in result.error for kind in ("compressed file is damaged", *_UNREAD))
            assert result.state in ("new", "grown", "unchanged") or refused, result.error
            path.unlink()

        check()
        check_conservation(store)


FOUND = [
    (
        "tunableop-verbose",
        "finding fastest for GemmTunableOp_float_TN(tn_8_8_8_ld_8_8_8) out of 2 candidates\n"
        "├──tuning using warmup iters 1 [10 ms] and tuning iters 1 [10 ms] instance id=1,"
        " GemmTunableOp_float_TN(tn_8_8_8_ld_8_8_8) Default\n"
        "├──found better instance id=1. -0.00.562336ms. Default min 1 max 1 mean 1 std 1\n",
    )
]
"""Texts that raised errors in earlier versions. They were found by feeding random text to the readers."""


@pytest.mark.parametrize(("name", "text"), FOUND)
def test_what_fuzzing_found_stays_mended(store: Store, tmp_path: Path, name: str, text: str) -> None:
    assert any(format.name == name for format in FORMATS)
    (tmp_path / "found.log").write_text(text)
    (result,) = ingest([str(tmp_path / "found.log")], store)
    assert result.state == "new"
    assert result.units["reject"] == 1
    check_conservation(store)


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=30))
def test_heads_of_anything_are_recognised_or_not(pieces: list[bytes]) -> None:
    head = Head(pieces[0].decode("latin-1") if pieces else "", b"".join(pieces))
    assert [f.recognise(head) in (True, False) for f in FILE_FORMATS] == [True] * len(FILE_FORMATS)


def test_a_long_line_with_records_in_it_is_read(store: Store, tmp_path: Path) -> None:
    record = BENCH.format(m=64, i=1).encode()
    with (tmp_path / "long.log").open("wb") as sink:
        for _ in range(sized(2, 10)):  # 10 MB each
            sink.write(b"x" * (5 << 20) + record + b"y" * (5 << 20))
        sink.write(b"\n" + record + b"\n")
    (result,) = ingest([str(tmp_path / "long.log")], store)
    assert (result.state, result.lines) == ("new", 2)
    assert counts(store)[64] >= 1
    check_conservation(store)


# ------------------------------------------------------------------------------------------------------------- disks


class Failing(pafs.FileSystemHandler):  # type: ignore[misc]
    """Stand-in for this machine's file system. The disk is full after the given number of writes."""

    def __init__(self, writes: int) -> None:
        self.disk = pafs.LocalFileSystem()
        self.left = writes
        self.failed = False

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.failed = True
            raise OSError(errno.ENOSPC, "No space left on device")

    def get_type_name(self) -> str:
        return "failing"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self.disk.get_file_info(paths)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> Any:
        return self.disk.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.disk.create_dir(path, recursive=recursive)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        import pyarrow as pa

        self.spend()
        return pa.PythonFile(_Counting(open(path, "wb"), self), mode="w")

    def move(self, source: str, target: str) -> None:
        self.spend()
        self.disk.move(source, target)

    def delete_file(self, path: str) -> None:
        self.disk.delete_file(path)

    def open_input_stream(self, path: str) -> Any:
        return self.disk.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self.disk.open_input_file(path)

    def _refuse(self, *arguments: object) -> Any:
        raise NotImplementedError

    delete_dir = delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = _refuse


class _Counting:
    def __init__(self, file: Any, owner: Failing) -> None:
        self._file = file
        self._owner = owner

    def write(self, data: bytes) -> int:
        self._owner.spend()
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_disk_that_is_full_at_any_write_loses_and_doubles_nothing(tmp_path: Path) -> None:
    logs = [tmp_path / f"log_{number}.log" for number in range(3)]
    for number, log in enumerate(logs):
        log.write_text(bench(number + 1, number + 1, 40))
    expected = {1: 2, 2: 2, 3: 2, 40: 3}

    def attempted(writes: int) -> tuple[Failing, Store, list[Ingested]]:
        root = tmp_path / f"store{writes}"
        whole = open_store(root, create=True)
        disk = Failing(writes)
        return disk, whole, ingest(map(str, logs), Store(str(root), pafs.PyFileSystem(disk), str(root)))

    enough = 1 << 20
    room, whole, results = attempted(enough)
    assert [result.state for result in results] == ["new"] * 3
    needed = enough - room.left
    assert needed > 20
    for writes in range(0, needed, needed // sized(4, 12)):
        disk, whole, results = attempted(writes)
        assert disk.failed
        assert any(result.state == "failed" for result in results)
        for result in results:
            assert (result.state == "failed") == ("No space left" in result.error), result
            assert result.state != "failed" or result.path in result.error
        assert sum(counts(whole).values()) == 3 * [result.state for result in results].count("new")
        whole.sweep(older_than_s=0)
        ingest(map(str, logs), whole)
        assert counts(whole) == expected
        check_conservation(whole)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "logparse", *words]


def test_a_full_disk_fails_only_one_log(tmp_path: Path) -> None:
    """If the disk has no room for the data of one log, only this log fails.

    A limit on the size of files simulates the full disk, because the system then refuses the write.
    """
    (tmp_path / "a_small.log").write_text(bench(1))
    (tmp_path / "b_large.log").write_text(bench(*range(1, 20_000)))
    (tmp_path / "c_small.log").write_text(bench(2))
    out = subprocess.run(
        command("ingest", str(tmp_path / "*.log"), "--store", str(tmp_path / "s"), "--jobs", "1"),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10)),
    )
    assert out.returncode == 1
    assert "b_large.log: " in out.stderr
    assert "File too large" in out.stderr
    assert "Traceback" not in out.stderr
    assert counts(open_store(tmp_path / "s")) == {1: 1, 2: 1}


def test_a_store_where_none_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(bench(1))
    for place in ("/proc/logparse-store", str(tmp_path / "a.log" / "store")):
        out = subprocess.run(
            command("ingest", str(tmp_path / "a.log"), "--store", place),
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert out.returncode == 1
        assert place in out.stderr
        assert "Traceback" not in out.stderr


# ------------------------------------------------------------------------------------------------------------- inputs


def test_a_file_that_vanishes_meanwhile_fails_alone(store: Store, tmp_path: Path) -> None:
    logs = [tmp_path / f"{name}.log" for name in "abc"]
    for log in logs:
        log.write_text(bench(64))

    def remove_the_second(path: str, count: int) -> None:
        logs[1].unlink(missing_ok=True)

    results = ingest(map(str, logs), store, progress=remove_the_second)
    assert [result.state for result in results] == ["new", "failed", "new"]
    assert str(logs[1]) in results[1].error
    assert counts(store) == {64: 2}


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file whose bytes cannot be read")
def test_a_file_whose_bytes_cannot_be_read_fails_alone(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("/proc/self/mem")
    (tmp_path / "b.log").write_text(bench(64))
    bad, good = ingest([str(tmp_path / "*.log")], store)
    assert (bad.state, good.state) == ("failed", "new")
    assert "a.log" in bad.error
    assert counts(store) == {64: 1}


@contextlib.contextmanager
def _open_folder() -> Iterator[Path]:
    """Make a temporary folder that other users may enter, unlike pytest's own folders."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


AS_NOBODY = """
import codecs, contextlib, io, os, sys
for name in ("utf-8-sig", "unicode_escape", "latin-1", "ascii"):
    codecs.lookup(name)
import duckdb, pandas, pyarrow.dataset, rich.table
import logparse.ingest.render, logparse.ingest.all_inputs, logparse.location
from logparse.cli import app, main
with contextlib.redirect_stdout(io.StringIO()):  # what the program imports when a verb runs
    app(["formats"], standalone_mode=False)
if os.geteuid() == 0:  # only now: another user may not be able to read the interpreter's own files
    os.setgid(65534)
    os.setuid(65534)
main()
"""


def _as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *words], capture_output=True, text=True, check=False, cwd=ROOT
    )


def test_without_permission_the_others_are_done(tmp_path: Path) -> None:
    with _open_folder() as folder:
        for name in ("a.log", "locked.log", "z.log"):
            (folder / name).write_text(bench(64))
        (folder / "locked.log").chmod(0)
        (folder / "closed").mkdir(mode=0)
        out = _as_nobody("ingest", f"{folder}/*.log", f"{folder}/closed/x.log", "--store", f"{folder}/s")
        assert out.returncode == 1
        assert "locked.log: Permission denied" in out.stderr
        assert "closed/x.log" in out.stderr
        assert "Traceback" not in out.stderr
        assert counts(open_store(folder / "s")) == {64: 2}
        (folder / "s" / "sources").chmod(0o555)
        (folder / "new.log").write_text(bench(32))
        out = _as_nobody("ingest", f"{folder}/new.log", "--store", f"{folder}/s")
        assert out.returncode == 1
        assert "Permission denied" in out.stderr
        assert "Traceback" not in out.stderr


@pytest.mark.parametrize("name", [b"red\x1b[31m\n.log", "täst\u202e.log".encode()])
def test_odd_file_names_are_read_and_printed_escaped(tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with open(os.fsencode(folder) + b"/" + name, "wb") as sink:
        sink.write(bench(64).encode())
    ingesting = command("ingest", str(folder), "--store", str(tmp_path / "s"))
    out = subprocess.run(ingesting, capture_output=True, check=False, cwd=ROOT)
    assert out.returncode == 0, out.stderr.decode()
    assert b"\x1b" not in out.stdout + out.stderr
    assert "\u202e" not in out.stdout.decode()
    assert counts(open_store(tmp_path / "s")) == {64: 1}
    missing = subprocess.run(
        [*command("ingest"), os.fsencode(folder) + b"/no\x1b" + name, "--store", str(tmp_path / "s")],
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert missing.returncode == 1
    assert b"\x1b" not in missing.stderr
    assert missing.stderr.count(b"\n") == 1
