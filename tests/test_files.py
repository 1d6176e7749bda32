"""Tests of writing files into a user's folder.

If a write fails, all old files stay as they were. A symbolic link that leads out of the folder is an error.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from analyzers.evidence.tables import Settings
from analyzers.explore.report import write_report
from analyzers.overrides.export import export
from analyzers.overrides.merge import merge
from analyzers.overrides.write import write_files
from analyzers.recommend import verb
from analyzers.recommend.ranking import Recommendation
from logparse.lookup.ranking import top
from logparse.output import Answer, TableFormat, show
from logparse.output.files import Rewrite, write_file
from logparse.store import Store, open_store
from tests.analyzers.example import gemm
from tests.conftest import SAMPLES

CSV = str(SAMPLES / "tunableop/tunableop_results0.csv")


def full(number: int) -> Callable[[int], None]:
    """Return a replacement for ``os.fsync`` that works ``number`` times and then reports that the disk is full."""
    left = [number]

    def fsync(handle: int) -> None:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1

    return fsync


def held(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder and its subfolders: {path: content}.

    The lists of written files (``.logparse-written``) are left out.
    """
    files = (x for x in folder.rglob("*") if x.is_file() and x.name != ".logparse-written")
    return {str(x.relative_to(folder)): x.read_bytes() for x in files}


@pytest.fixture(scope="module")
def found(samples: Store) -> Recommendation:
    return verb.advise(samples, Settings())


WRITERS: Mapping[str, Callable[[Store, Path], object]] = {
    "csv": lambda store, out: show(Answer(table=top(store), of="top"), out=str(out / "x.csv")),
    "json": lambda store, out: show(Answer(table=top(store), of="top"), out=str(out / "x.json")),
    "parquet": lambda store, out: show(Answer(table=top(store), of="top"), out=str(out / "x.parquet")),
    "table": lambda store, out: show(Answer(table=top(store), of="top"), TableFormat.table, str(out / "x.txt")),
    "report": lambda store, out: write_report(store, out / "x.html", top=10),
    "merge": lambda store, out: write_files(merge([CSV, CSV]), [], out),
    "export": lambda store, out: write_files(export([gemm()], "bench"), [], out),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file(
    name: str, samples: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS[name](samples, tmp_path)
    (path,) = [x for x in tmp_path.iterdir() if x.name[0] != "."]
    path.write_bytes(b"as it was")
    monkeypatch.setattr(os, "fsync", full(0))
    with pytest.raises(OSError, match="No space left on device") as failed:
        WRITERS[name](samples, tmp_path)
    assert os.fspath(failed.value.filename) == str(path)
    assert held(tmp_path) == {path.name: b"as it was"}


def test_files_of_a_recommendation_change_together(
    found: Recommendation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk gets full while ``recommend`` writes its files, all old files stay as they were.

    This is true for whichever of the files the disk gets full.
    """
    made, _ = verb.write(found, Settings(), tmp_path)
    paths = [x.path for x in made if x.path is not None]
    for path in paths:
        path.write_bytes(b"old")
    old = held(tmp_path)
    assert set(old.values()) == {b"old"}
    for number in range(len(paths)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full(number))
            with pytest.raises(OSError, match="No space"):
                verb.write(found, Settings(), tmp_path)
        assert held(tmp_path) == old
    verb.write(found, Settings(), tmp_path)
    assert held(tmp_path) == {str(x.path.relative_to(tmp_path)): x.data for x in made if x.path is not None}


def test_apply_sh_comes_last(found: Recommendation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script ``apply.sh`` is written last, after the files that it uses.

    If the program is killed in between, a new ``apply.sh`` must not lie beside old files to which it does not fit.
    """
    order: list[str] = []
    rename = os.replace

    def replace(source: str, target: str) -> None:
        order.append(os.path.basename(target))
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    verb.write(found, Settings(), tmp_path)
    order = [name for name in order if name != ".logparse-written"]
    scripts = order.count("apply.sh")
    assert scripts
    assert order[-scripts:] == ["apply.sh"] * scripts
    assert {"report.md", "findings.json", "hipblaslt_tuning.txt"} <= set(order[:-scripts])


def test_old_files_stay_if_a_write_is_refused(samples: Store, found: Recommendation, tmp_path: Path) -> None:
    """If the operating system refuses to write a file, the program reports it, and the old files stay.

    The test runs the program in a process that may not write files of more than 1,000 bytes.
    """
    out = tmp_path / "out"
    verb.write(found, Settings(), out)
    for path in out.rglob("*"):
        if path.is_file():
            path.write_bytes(b"old")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    words = [sys.executable, "-m", "logparse", "recommend", "--store", samples.url, "--out", str(out)]
    done = subprocess.run(words, preexec_fn=limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "File too large; the files were not written (--out)" in done.stderr
    assert set(held(out).values()) == {b"old"}


def add(folder: Path, *names: str) -> None:
    with Rewrite(within=folder) as files:
        for name in names:
            files.add(folder / name, b"new")


def test_links_out_of_the_output_folder_are_errors(tmp_path: Path) -> None:
    """A symbolic link within the output folder is followed, but a link that leads out of the folder is an error."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "victim").write_bytes(b"mine")
    (inside / "apply.sh").symlink_to(outside / "victim")
    (inside / "gfx942").symlink_to(outside)
    (inside / "real").write_bytes(b"old")
    (inside / "link").symlink_to("real")
    for name in ("apply.sh", "gfx942/tuning.txt"):
        with pytest.raises(OSError, match="a link that leads out of"):
            add(inside, "fine", name)
        assert sorted(x.name for x in inside.iterdir()) == ["apply.sh", "gfx942", "link", "real"]
    add(inside, "link")
    assert ((inside / "real").read_bytes(), (inside / "link").is_symlink()) == (b"new", True)
    assert held(outside) == {"victim": b"mine"}
    (inside / ".logparse-written").symlink_to(outside / "victim")
    show(Answer(["x"]), TableFormat.table, str(inside / "x.txt"))
    assert held(outside) == {"victim": b"mine"}
    write_file(inside / "apply.sh", b"named")  # named by its own path, so it is the user's choice
    assert held(outside) == {"victim": b"named"}


def test_a_recommendation_into_a_folder_with_such_a_link(found: Recommendation, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    out = tmp_path / "out"
    made, _ = verb.write(found, Settings(), out)
    target = next(x.path for x in made if x.path is not None and x.name == "apply.sh")
    target.unlink()
    target.symlink_to(victim)
    answer = verb.answer(
        found,
        Settings(),
        out,
        1,
        [],
        n=None,
        explain=None,
        verbose=False,
        store=open_store(tmp_path / "s", create=True),
    )
    assert answer.code == 1
    (error,) = answer.errors
    assert "a link that leads out of" in error
    assert str(victim) in error
    assert victim.read_bytes() == b"mine"


def test_a_foreign_findings_file_moves_no_file_outside(found: Recommendation, tmp_path: Path) -> None:
    """A ``findings.json`` that somebody else wrote cannot make logparse rename files outside of the output folder.

    ``recommend`` renames the files of an earlier recommendation, and takes their names from ``findings.json``.
    """
    out = tmp_path / "out"
    (tmp_path / "mine").write_bytes(b"mine")
    out.mkdir()
    (out / "link").symlink_to(tmp_path)
    targets = '[{"name": "..", "files": ["mine"]}, {"name": "link", "files": ["mine"]}]'
    (out / "findings.json").write_text(f'{{"schema": "logparse-findings", "targets": {targets}}}')
    verb.write(found, Settings(), out)
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_modes_and_other_kinds_of_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_file(path, b"1")
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.chmod(0o640)
    write_file(path, b"2")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"2", 0o640)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path / "folder", b"")
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "no" / "folder", b"")
    write_file(Path("/dev/null"), b"3")
    assert Path("/dev/null").is_char_device()
    assert sorted(os.listdir(tmp_path)) == ["folder", "x"]
