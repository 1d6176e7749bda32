"""Tests that a byte order mark at the start of a file does not change what is read from it."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
from collections import Counter
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.conftest import SAMPLE_FILES, SAMPLES
from tests.ingest.test_ingest import bench, counts
from tests.libraries.reading import check_conservation

TEXTS = [path for path in SAMPLE_FILES if b"\0" not in path.read_bytes()[:64]]
VIEWS = {
    "calls": "run, category, kind, problem, solution, count, by_tool, workspace_bytes",
    "measurements": "* exclude (source_id)",
    "kernels": "* exclude (source_id)",
    "messages": "run, category, function, text, count",
    "facts": "name, value",
    "rejects": "length, count, reason, text",
}


def read(store: Store) -> dict[str, Counter[str]]:
    """Return the rows of each SQL view of a store, without the columns that state positions in files."""
    with store.reading() as con:
        return {
            view: Counter(map(repr, con.execute(f"select {names} from {view}").fetchall()))
            for view, names in VIEWS.items()
        }


def test_with_a_mark_every_sample_is_read_as_without(tmp_path: Path) -> None:
    found, units = [], []
    for name, mark in (("without", b""), ("with", codecs.BOM_UTF8)):
        folder = tmp_path / name
        for path in TEXTS:
            copy = folder / path.relative_to(SAMPLES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.stem.startswith("tunableop_results_bom"):
                copy.write_bytes(path.read_bytes())  # has a mark already
            elif path.suffix == ".gz":
                copy.write_bytes(gzip.compress(mark + gzip.decompress(path.read_bytes())))
            else:
                copy.write_bytes(mark + path.read_bytes())
        store = open_store(tmp_path / f"store-{name}", create=True)
        results = ingest([str(folder)], store, run="r")
        assert {x.state for x in results} == {"new"}
        check_conservation(store)
        units.append({str(Path(x.path).relative_to(folder)): (x.format, x.counts) for x in results})
        found.append(read(store))
    assert units[0] == units[1]
    assert found[0] == found[1]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_places_are_those_of_the_file(store: Store, tmp_path: Path, pack: object) -> None:
    text = codecs.BOM_UTF8 + b"hipblaslt-bench --torn\n" + bench(64).encode()
    (tmp_path / "a.log").write_bytes(pack(text))  # type: ignore[operator]
    ingest([str(tmp_path / "a.log")], store)
    (row,) = store.rejects().itertuples()
    assert text[row.offset : row.offset + row.length] == b"hipblaslt-bench --torn"
    assert counts(store) == {64: 1}


@pytest.mark.parametrize("first", ["", "x", "x\n", bench(1)], ids=["nothing", "part", "short", "line"])
def test_a_file_with_a_mark_may_grow(store: Store, tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(codecs.BOM_UTF8 + first.encode())
    ingest([str(path)], store)
    path.write_bytes(codecs.BOM_UTF8 + first.encode() + b"\n" + bench(64, 65).encode())
    (result,) = ingest([str(path)], store)
    assert result.state == "grown"
    assert counts(store) == dict.fromkeys([1, 64, 65] if len(first) > 2 else [64, 65], 1)
    check_conservation(store)
    assert store.sources()["lines"].tolist() == [(first + "\n").count("\n") + 2]


def test_standard_input_may_begin_with_a_mark(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(codecs.BOM_UTF8 + bench(64, 65).encode())))
    monkeypatch.setattr(sys, "stdin", stream)
    (result,) = ingest(["-"], store)
    assert (result.state, result.lines) == ("new", 2)
    assert counts(store) == {64: 1, 65: 1}


def test_a_short_first_line_is_read_once(store: Store, tmp_path: Path) -> None:
    """If a file grows, its first line is not read a second time, however short the line is."""
    # A few bytes of a file are read in advance to recognise the format. If the line was shorter than these bytes, an
    # earlier version read it twice.
    (tmp_path / "a.log").write_text("ab\n")
    ingest([str(tmp_path / "a.log")], store)
    (tmp_path / "a.log").write_text("ab\n" + bench(64))
    ingest([str(tmp_path / "a.log")], store)
    assert store.sources()["lines"].tolist() == [2]
    check_conservation(store)
