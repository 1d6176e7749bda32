"""A store that an ingest made and in which nothing was recognised is removed, and nothing of other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from logparse.errors import LogparseError
from logparse.ingest import ingest, ingest_at
from logparse.store import open_store
from logparse.store.announcements import announced
from logparse.store.unused import remove_unused
from tests.conftest import SAMPLES

LOG = str(SAMPLES / "hipblaslt" / "trace_4242.log")


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    path = tmp_path / "foreign.txt"
    path.write_text("nothing of ours\n")
    return str(path)


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("place", ["s", "a/b/s"])
def test_an_ingest_that_recognised_nothing_leaves_nothing(tmp_path: Path, foreign: str, place: str) -> None:
    store = str(tmp_path / place)
    assert [x.format for x in ingest_at(store, [foreign])] == ["foreign"]
    assert [x.state for x in ingest_at(store, [str(tmp_path / "missing.log")])] == ["failed"]
    with pytest.raises(LogparseError, match="no format"):
        ingest_at(store, [LOG], format="no-such")
    assert below(tmp_path) == ["foreign.txt"]


def test_a_folder_that_was_there_stays(tmp_path: Path, foreign: str) -> None:
    (tmp_path / "s").mkdir()
    ingest_at(str(tmp_path / "s"), [foreign])
    assert below(tmp_path) == ["foreign.txt", "s"]
    (tmp_path / "s" / "notes.txt").touch()
    ingest_at(str(tmp_path / "s"), [foreign])
    assert open_store(tmp_path / "s").sources()["format"].tolist() == ["foreign"], "with files in it, it stays a store"


def test_a_store_that_was_there_stays(tmp_path: Path, foreign: str) -> None:
    ingest([], open_store(tmp_path / "s", create=True))
    assert ingest_at(str(tmp_path / "s"), [foreign], run="r")[0].format == "foreign"
    assert open_store(tmp_path / "s").runs() == ["r"]


def test_an_empty_file_of_tunableop_is_stored(tmp_path: Path) -> None:
    (tmp_path / "tunableop_results0.csv").touch()
    ingest_at(str(tmp_path / "s"), [str(tmp_path / "tunableop_results0.csv")], run="r")
    assert open_store(tmp_path / "s").runs() == ["r"]


def test_another_process_keeps_the_store(tmp_path: Path, foreign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it announces itself: before, while the folder is removed, or after."""
    path = tmp_path / "s"
    first, other = open_store(path, create=True), open_store(path, create=True)
    assert (first.made, other.made) == ((path,), None)
    with announced(other, "ingest", "r"):
        assert not remove_unused(first)
    open_store(path)

    unlink = Path.unlink

    def unlinked(one: Path, missing_ok: bool = False) -> None:
        ingest([LOG], other, run="theirs") if one.name == "logparse-store.json" and not other.runs() else None
        unlink(one, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlinked)
        assert not remove_unused(first), "it had committed before the mark went"
    assert open_store(path).runs() == ["theirs"]

    third = open_store(tmp_path / "t", create=True)
    fourth = open_store(tmp_path / "t")
    assert remove_unused(third)
    assert not (tmp_path / "t").exists()
    ingest([LOG], fourth, run="theirs")
    assert open_store(tmp_path / "t").runs() == ["theirs"]
