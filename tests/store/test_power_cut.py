"""Tests that a power cut at any moment leaves a valid store (Parquet folder) with everything that was completed before.

The tests record all changes of the disk in order, and then repeat them up to some moment. If a file was not flushed to
the disk by then, all, some or none of its bytes are there. If a folder was not flushed, new names in it may be missing.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from logparse import location
from logparse.ingest import all_inputs, ingest, schedule
from logparse.store import Store, open_store
from logparse.store.compaction import compact
from tests.conftest import sized
from tests.ingest.test_ingest import bench

FILES = 3


@dataclass
class File:
    data: bytes = b""
    flushed: bytes = b""


@dataclass
class Folder:
    flushed: dict[str, Any] = field(default_factory=dict)
    changes: list[tuple[str, Any]] = field(default_factory=list)  # a name, and what it means from then on

    @property
    def names(self) -> dict[str, Any]:
        return applied(self.flushed, self.changes)


def applied(names: dict[str, Any], changes: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the files of a folder after some changes: {name: file}. A change to None removes the name."""
    return {name: found for name, found in {**names, **dict(changes)}.items() if found is not None}


Change = tuple[Any, ...]


class Disk:
    """A simulated disk. It can write the files that would be left after a power cut."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.top = Folder()

    def at(self, path: str) -> Any:
        found: Any = self.top
        for name in Path(path).relative_to(self.root).parts:
            found = found.names[name]
        return found

    def change(self, kind: str, path: str, more: Any) -> None:
        folder, _, name = path.rpartition("/")
        if kind == "write":
            self.at(path).data += more
        elif kind == "flush":
            found = self.at(path)
            if isinstance(found, File):
                found.flushed = found.data
            else:
                found.flushed, found.changes = found.names, []
        elif kind == "rename":
            self.change("link", path, more)
            self.change("name", more, None)
        elif kind == "link":
            self.at(folder).changes.append((name, self.at(more)))
        else:
            made = {"file": File, "folder": Folder}.get(kind)
            self.at(folder).changes.append((name, made and made()))

    def left(self, into: Path, folder: Folder, cut: Cut) -> None:
        """Write the files that would be left in a folder after a power cut to the real folder ``into``."""
        into.mkdir()
        changes = [change for change in folder.changes if cut.keeps()]
        for name, found in applied(folder.flushed, changes).items():
            if isinstance(found, Folder):
                self.left(into / name, found, cut)
            else:
                (into / name).write_bytes(found.data if found.data == found.flushed else cut.of(found))


@dataclass
class Cut:
    """A simulated power cut. It decides which data survive that were written, but not yet flushed to the disk.

    ``names`` says which new file names survive: "all", "some" (at random) or "none".
    """

    # Unflushed contents of files survive only with "some", in part or as a whole, also chosen at random.

    names: str
    rng: random.Random

    def keeps(self) -> bool:
        return self.names == "all" or (self.names == "some" and self.rng.random() < 0.5)

    def of(self, file: File) -> bytes:
        some = file.data[: self.rng.randrange(len(file.data) + 1)]
        return self.rng.choice([file.flushed, some, bytes(len(file.data)), file.data]) if self.names == "some" else b""


class Recorder:
    """Stand-in for the module ``os`` in ``logparse.location``. It records all changes of the disk."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._paths: dict[int, str] = {}
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        with self._lock:
            new = bool(flags & os.O_CREAT)
            assert not (new and os.path.exists(path)), "a file is written once"
            file = os.open(path, flags, mode)
            self._paths[file] = path
            if new:
                self.changes.append(("file", path, None))
            return file

    def write(self, file: int, data: memoryview) -> int:
        with self._lock:
            count = os.write(file, data)
            self.changes.append(("write", self._paths[file], bytes(data[:count])))
            return count

    def fsync(self, file: int) -> None:
        with self._lock:
            os.fsync(file)
            self.changes.append(("flush", self._paths[file], None))

    def makedirs(self, path: str, exist_ok: bool) -> None:
        with self._lock:
            new = []
            while not os.path.isdir(path):
                new.append(path)
                path = os.path.dirname(path)
            for folder in reversed(new):
                os.mkdir(folder)
                self.changes.append(("folder", folder, None))

    def link(self, source: str, path: str) -> None:
        with self._lock:
            os.link(source, path)
            self.changes.append(("link", path, source))

    def replace(self, source: str, path: str) -> None:
        with self._lock:
            os.replace(source, path)
            self.changes.append(("rename", path, source))

    def unlink(self, path: str) -> None:
        with self._lock:
            os.unlink(path)
            self.changes.append(("name", path, None))


Step = Callable[[Store], object]


def logs_in(folder: Path, *numbers: int) -> list[str]:
    return [str(folder / f"{number}.log") for number in numbers]


def steps_of(folder: Path) -> list[Step]:
    """Return functions that change a store (Parquet folder) one after the other, for example by reading logs.

    The tests cut the power during each of them. A function that did not finish can be called again.
    """
    for number in range(FILES):
        (folder / f"{number}.log").write_text(bench(number + 1, 40))
    every = logs_in(folder, *range(FILES))

    def grow(store: Store) -> None:
        Path(every[0]).write_text(bench(1, 40, 50))
        ingest(every[:1], store, run="r")

    return [
        lambda store: ingest(every[:1], store, run="r"),
        lambda store: ingest(every, store, run="r"),
        grow,
        compact,
        lambda store: ingest(every, store, run="r"),
        lambda store: Path(every[1]) in map(Path, paths(store)) and store.forget(every[1]),
        lambda store: compact(store, unread=True),
        lambda store: ingest(every, store, run="r"),
    ]


def paths(store: Store) -> list[str]:
    return [str(path) for path in store.sources()["path"]]


def rows(store: Store) -> dict[str, list[str]]:
    """Return the matrix products and numbers of calls of each log in the store: {path: calls as text}."""
    found = store.query(
        "select path, string_agg(problem || ' ' || count, ';' order by problem) as calls "
        "from sources left join (select source_id, problem, sum(count) as count from calls group by all) "
        "using (source_id) group by path"
    )
    return dict(zip(found["path"], found["calls"], strict=True))


@pytest.fixture(params=["single", "joint"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "joint":
        for module in (all_inputs, schedule):
            monkeypatch.setattr(module, "MANY", 2)
        monkeypatch.setattr(schedule, "_TASKS", 1)


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("names", ["all", "none", "some"])
def test_a_cut_anywhere_leaves_what_was_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    disk, logs = tmp_path / "disk", tmp_path / "logs"
    for folder in (disk, logs):
        folder.mkdir()
    url, recorder, steps = str(disk / "new" / "store"), Recorder(), steps_of(logs)
    held: list[dict[str, list[str]]] = [{}]
    done: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(location, "os", recorder)
        for step in steps:
            step(open_store(url, create=True))
            done.append(len(recorder.changes))
            held.append(rows(open_store(url)))
    assert len(held[2]) == FILES
    assert held[6].keys() == held[2].keys() - {*logs_in(logs, 1)}
    for count in [*range(0, len(recorder.changes), sized(9, 1)), len(recorder.changes)]:
        shutil.rmtree(tmp_path / "left", ignore_errors=True)
        replayed = Disk(str(disk))
        for change in recorder.changes[:count]:
            replayed.change(*change)
        replayed.left(tmp_path / "left", replayed.top, Cut(names, random.Random(count)))
        at = sum(changes <= count for changes in done)
        store = open_store(tmp_path / "left" / "new" / "store", create=at == 0)
        assert store.damage() == [], (count, at)
        before, after = held[at], held[min(at + 1, len(steps))]
        found = rows(store)
        assert {path for path in before if path in after} <= {*found} <= {*before, *after}
        for path, calls in found.items():
            assert calls in (before.get(path), after.get(path)), (count, at, path)
        if count % sized(4, 2) == 0:  # the store can go on from there
            for step in steps[at:]:
                step(open_store(store.url))
            assert rows(open_store(store.url)) == held[-1]
            assert open_store(store.url).damage() == []
    same_tree(recorder, disk, tmp_path / "all")


def same_tree(recorder: Recorder, disk: Path, into: Path) -> None:
    """Check that the recorder has seen every change of the files on the disk.

    The changes that it recorded are repeated from the beginning. This must give exactly the files on the disk.
    """
    replayed = Disk(str(disk))
    for change in recorder.changes:
        replayed.change(*change)
    for file in disk.rglob("*"):
        if file.is_file():
            assert replayed.at(str(file)).data == file.read_bytes()
    replayed.left(into, replayed.top, Cut("all", random.Random(0)))
    assert {x.relative_to(into) for x in into.rglob("*")} == {x.relative_to(disk) for x in disk.rglob("*")}
