"""Tests of a store (Parquet folder) with damaged files.

``logparse check`` finds the damage, no answer lacks or changes rows without a message, and the advice in the message
works.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from logparse.cli import check
from logparse.errors import StoreError
from logparse.ingest import all_inputs, ingest, schedule
from logparse.store import Store, compaction, inventory, open_store
from logparse.store.compaction import compact
from logparse.store.digests import read_bytes, seal_list, seal_table, unseal_list, unseal_table
from logparse.store.inventory import Inventory, ListedRow
from logparse.store.manifest import Forgotten, Manifest
from logparse.store.schema import VIEWS
from tests.conftest import SAMPLES, sized
from tests.store.contents import OF_THE_MOMENT, contents, unrecord

LOGS = [
    str(SAMPLES / name)
    for name in ("hipblaslt/hipblaslt_rank0_4242.log", "hipblaslt/bench_output.txt", "miopen/miopen_cmd_4242.log")
]
KINDS = ("single", "joint", "compacted")
Contents = dict[str, list[str]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """Return three stores (Parquet folders) with the same contents: {kind: store}. Tests must not change them."""
    # In the first store each log has Parquet files of its own. In the second one several logs share Parquet files. In
    # the third one the files were merged.
    folder, out = tmp_path_factory.mktemp("stores"), {}
    for kind in KINDS:
        out[kind] = store = open_store(folder / kind, create=True)
        with pytest.MonkeyPatch.context() as patch:
            if kind == "joint":
                patch.setattr(schedule, "MANY", 1)
                patch.setattr(schedule, "_TASKS", 1)
                patch.setattr(all_inputs, "MANY", 1000)
            ingest(LOGS, store, run="r")
        if kind == "compacted":
            compact(store, unread=True)
    return out


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, stores: dict[str, Store], tmp_path: Path) -> Store:
    return copied(stores[request.param], tmp_path)


@pytest.fixture(scope="module")
def wanted(stores: dict[str, Store]) -> Contents:
    """Return the contents of each SQL view of the undamaged store, with which the tests compare theirs."""
    return contents(stores["single"], OF_THE_MOMENT)


def copied(store: Store, folder: Path) -> Store:
    return open_store(shutil.copytree(store.url, folder / "copy"))


def parts(store: Store) -> list[Path]:
    return sorted(x for x in Path(store.url).rglob("*.parquet") if x.relative_to(store.url).parts[0] not in COMMITS)


def commits(store: Store) -> list[Path]:
    return sorted(x for folder in COMMITS for x in Path(store.url, folder).rglob("*.parquet"))


COMMITS = ("sources", "compactions")


def answers(store: Store) -> Contents:
    """Return the rows of all SQL views that can still be read. Checks that every error says what to do."""
    out = Contents()
    for view in VIEWS:
        try:
            with open_store(store.url).reading(f"select * from {view}") as con:
                rows = con.execute(f"select * from {view}").fetchall()
                kept = [n for n, column in enumerate(con.description) if column[0] not in OF_THE_MOMENT]
        except StoreError as error:
            unknown = [] if "ingest" in str(error) else [error]
            assert unknown == [], "the remedy is named"
        else:
            out[view] = sorted(str([row[n] for n in kept]) for row in rows)
    return out


def deleted(data: bytes, rng: random.Random) -> None:
    pass


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


Fault = Callable[[bytes, random.Random], bytes | None]
Files = Callable[[Store], list[Path]]


def test_a_whole_store_answers(store: Store, wanted: Contents) -> None:
    assert answers(store) == {view: lines[1:] for view, lines in wanted.items()}
    assert store.damage() == []


@pytest.mark.parametrize("fault", [deleted, cut, flipped])
@pytest.mark.parametrize("of", [parts, commits])
def test_damage_is_found_and_changes_no_answer(store: Store, wanted: Contents, of: Files, fault: Fault) -> None:
    rng, files = random.Random(fault.__name__), of(store)
    chosen = [rng.choice(files) for _ in range(sized(12, 400))] if fault is flipped else files
    rows = {view: lines[1:] for view, lines in wanted.items()}
    for file in chosen[:: sized(3, 1)]:
        whole = file.read_bytes()
        data = fault(whole, rng)
        file.unlink() if data is None else file.write_bytes(data)
        lines = open_store(store.url).damage()
        assert any(str(file.relative_to(store.url)) in line for line in lines), lines
        left = answers(store)
        assert len(left) < len(rows)
        assert left.items() <= rows.items()
        file.write_bytes(whole)
    assert open_store(store.url).damage() == []


@pytest.mark.parametrize("fault", [deleted, cut, flipped])
@pytest.mark.parametrize("kind", ["single", "joint"])
@pytest.mark.parametrize("of", [parts, commits])
def test_the_named_remedy_restores_what_was_lost(
    stores: dict[str, Store],
    tmp_path: Path,
    wanted: Contents,
    kind: str,
    of: Callable[[Store], list[Path]],
    fault: Fault,
) -> None:
    store = copied(stores[kind], tmp_path)
    file, rng = random.Random(1).choice(of(store)), random.Random(2)
    data = fault(file.read_bytes(), rng)
    file.unlink() if data is None else file.write_bytes(data)
    (line,) = open_store(store.url).damage()
    named = [log for log in LOGS if log in line]
    assert named
    store = open_store(store.url)
    for log in named:
        assert store.forget(log) == [log]
    ingest(named, store, run="r")
    store = open_store(store.url)
    assert (store.damage(), store.remarks()) == ([], [])
    assert contents(store, OF_THE_MOMENT) == wanted


def test_a_merged_part_can_be_left_out(stores: dict[str, Store], tmp_path: Path, wanted: Contents) -> None:
    store = copied(stores["compacted"], tmp_path)
    part = next(Path(store.url).glob("facts/*.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(StoreError, match=f"facts/{part.name}: .*`logparse forget PART`"):
        store.facts()
    store.forget(f"facts/{part.name}")
    for _ in range(2):
        assert store.facts().empty
        assert contents(store, OF_THE_MOMENT)["calls"] == wanted["calls"]
        assert store.damage() == []
        compact(store, unread=True)


def test_damage_is_not_merged(stores: dict[str, Store], tmp_path: Path) -> None:
    store = copied(stores["single"], tmp_path)
    for file in (parts(store)[0], commits(store)[0]):
        whole = file.read_bytes()
        file.write_bytes(flipped(whole, random.Random(3)))
        before = store.manifest().number
        with pytest.raises(StoreError, match=f"{file.name}: its checksum differs"):
            compact(open_store(store.url))
        assert open_store(store.url).manifest().number == before
        file.write_bytes(whole)


def test_parts_of_a_lost_commit_stay_until_it_is_forgotten(stores: dict[str, Store], tmp_path: Path) -> None:
    store = copied(stores["single"], tmp_path)
    file, every = commits(store)[0], parts(store)
    whole = file.read_bytes()
    for fault in (deleted, flipped):
        data = fault(whole, random.Random(4))
        file.unlink() if data is None else file.write_bytes(data)
        assert open_store(store.url).sweep(older_than_s=-1) == 0
        assert parts(store) == every
        file.write_bytes(whole)
    assert open_store(store.url).damage() == []


@pytest.mark.parametrize("kind", ["single", "joint"])
def test_an_older_store_is_read_and_check_says_what_it_cannot_find(
    stores: dict[str, Store], tmp_path: Path, wanted: Contents, kind: str
) -> None:
    store = copied(stores[kind], tmp_path)
    unrecord(store)
    for file in Path(store.url).glob("sources/inventory-*"):
        file.unlink()
    assert contents(open_store(store.url), OF_THE_MOMENT) == wanted
    whole, *remarks = check(store.url).blocks  # type: ignore[attr-defined]
    assert whole == "no file is damaged or missing"
    assert f"{len(parts(store))} parts of an earlier version have no checksum" in remarks[0]
    assert "3 commits in no inventory" in remarks[1]
    ingest(LOGS, store)
    assert len(open_store(store.url).remarks()) == 1, "the commits are listed now"
    compact(store, unread=True)
    assert open_store(store.url).remarks() == [], "merged parts are recorded"
    assert contents(open_store(store.url), OF_THE_MOMENT) == wanted


def test_rewrites_keep_or_renew_the_records(stores: dict[str, Store], tmp_path: Path) -> None:
    store = copied(stores["joint"], tmp_path)
    store.forget(LOGS[0])
    assert (store.damage(), store.remarks()) == ([], [])
    compact(store, unread=True)
    ingest(LOGS, store)
    compact(store)
    store.sweep(unread=True)
    assert (store.damage(), store.remarks()) == ([], [])
    assert {*store.manifest().records} == {*store.manifest().parts}


def test_changed_bits_in_a_remote_store_are_noticed(stores: dict[str, Store], tmp_path: Path) -> None:
    """If a store (Parquet folder) is on another machine, a changed bit is noticed when its part of a file is read.

    Parquet files of such a store are not read as a whole.
    """
    copy = copied(stores["single"], tmp_path)
    store = Store(copy.url, pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), "copy")
    assert store.folder is None
    assert len(store.calls()) == len(copy.calls())
    file = next(Path(copy.url).glob("calls/*/*.parquet"))
    at = pq.read_metadata(file).row_group(0).column(3).data_page_offset + 30
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"CRC.*`logparse check.*` names the file and what is lost"):
        store.calls()
    with pytest.raises(StoreError, match="CRC"):
        store.frames()
    assert [file.name in line for line in store.damage()] == [True]
    file.unlink()
    with pytest.raises(StoreError, match="missing"):
        store.calls()


@pytest.mark.parametrize("verb", ["compact", "forget"])
def test_a_reader_looks_again_where_others_remove_meanwhile(
    stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store = copied(stores["single"], tmp_path)
    before, live = len(store.calls()), Store.live_table
    other = open_store(store.url)
    others = iter([(lambda: other.forget(LOGS[1])) if verb == "forget" else lambda: compact(other, unread=True)])

    def late(self: Store, *given: object, **named: object) -> pa.Table:
        found = live(self, *given, **named)  # type: ignore[arg-type]
        if self is store:
            next(others, lambda: None)()
        return found

    monkeypatch.setattr(Store, "live_table", late)
    calls = len(store.calls())
    assert next(others, None) is None
    assert calls == before if verb == "compact" else 0 < calls < before


def test_a_compaction_whose_parts_are_forgotten_meanwhile_changes_nothing(
    stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied(stores["single"], tmp_path)
    others = iter([lambda: open_store(store.url).forget(LOGS[1])])

    def late(*given: Any) -> bytes:
        next(others, list)()
        return read_bytes(*given)

    monkeypatch.setattr(compaction, "read_bytes", late)
    monkeypatch.setattr(compaction, "_READ_TOGETHER", 1)
    with pytest.raises(StoreError, match="works on the store, so this one changed nothing"):
        compact(store)
    assert open_store(store.url).damage() == []
    before, after = compact(store)
    assert after < before
    assert len(store.sources()) == len(LOGS) - 1


def test_many_inventories_become_one(stores: dict[str, Store], tmp_path: Path) -> None:
    store = copied(stores["single"], tmp_path)
    for number in range(inventory.MANY + 1):
        log = tmp_path / f"{number}.log"
        log.write_text(Path(LOGS[0]).read_text())
        ingest([str(log)], store)
    files = [*Path(store.url).glob("sources/inventory-*")]
    assert 1 < len(files) < inventory.MANY
    assert open_store(store.url).remarks() == []
    files[0].write_bytes(files[0].read_bytes()[:-2])
    (line,) = open_store(store.url).damage()
    assert files[0].name in line
    assert len(store.calls()), "no answer depends on it"
    ingest([LOGS[0]], open_store(store.url))
    assert (open_store(store.url).damage(), open_store(store.url).remarks()) == ([], [])


def test_what_was_forgotten_long_ago_is_missed_by_nobody(stores: dict[str, Store], tmp_path: Path) -> None:
    store = copied(stores["single"], tmp_path)
    store.forget(LOGS[0])
    (told,) = Path(store.url).glob("compactions/forgotten-*")
    then = time.time() - 7 * 86400
    os.utime(told, (then, then))
    store.sweep()
    assert not told.exists()
    assert open_store(store.url).damage() == []
    assert len(store.sources()) == len(LOGS) - 1


def test_a_deleted_list_of_what_was_forgotten_is_found_and_restored(store: Store) -> None:
    store.forget(LOGS[0])
    wanted = contents(store, OF_THE_MOMENT)
    (file,) = Path(store.url).glob("compactions/forgotten-*")
    for number in range(2):
        file.unlink()
        (line,) = open_store(store.url).damage()
        assert line.startswith(f"compactions/{file.name}: missing, so what it forgot may come back; ")
        with pytest.raises(StoreError, match=f"{file.name}: missing.*`logparse compact` writes this file again"):
            store.calls()
        if number:
            ingest(LOGS[1:], open_store(store.url), run="r")
        else:
            compact(store, unread=True)
        assert file.exists()
        assert (store.damage(), store.remarks()) == ([], [])
        assert contents(store, OF_THE_MOMENT) == wanted


def test_a_missing_list_of_deleted_files_is_reported_while_it_matters() -> None:
    """``logparse check`` reports that a list of deleted files is missing, but only as long as the list matters."""
    # A recent list matters, because a compaction (merging of files) may be running. An old list matters if files that
    # it names still exist. Any other list may have been removed, because it was no longer needed.
    old, recent = Forgotten("a.json", ("1", "2"), 0.0), Forgotten("b.json", ("3",), time.time())
    known = Inventory(files=frozenset({"i"}), forgotten=frozenset({old, recent}))
    assert known.missing_lists([], Manifest()) == [recent]
    assert known.missing_lists(["2"], Manifest()) == [old, recent]
    assert known.missing_lists([], Manifest(parts=frozenset({"1"}))) == [old, recent]
    assert known.missing_lists(["2"], Manifest(told=(old, recent))) == []
    assert known.without(Manifest()) == [recent]
    assert {*known.without(Manifest(told=(old, recent)))} == {old, recent}
    assert known.without(Manifest(told=(old, recent), spent=(old,))) == [recent]
    assert known.missing_rows([], Manifest()) == []
    listed = Inventory(rows=frozenset({ListedRow("sources/a.parquet", "1", "r", "/log")}), forgotten=frozenset({old}))
    assert listed.missing_rows([], Manifest()) == [], "its row file was removed with a word"


def test_deleted_findings_are_found(store: Store) -> None:
    assert store.findings().empty
    found = pd.DataFrame({"run": ["r"], "analyzer": ["slow-wrw"], "solution": ["miopen:X"]})
    for _ in range(2):
        store.write_findings(found)
        assert (open_store(store.url).damage(), open_store(store.url).remarks()) == ([], [])
        Path(store.url, "findings/findings.parquet").unlink()
        (line,) = open_store(store.url).damage()
        assert line.startswith("findings/findings.parquet: missing; ")
        with pytest.raises(StoreError, match="run `logparse recommend` again"):
            open_store(store.url).findings()
        assert len(store.calls()), "no other answer depends on them"


def test_a_deleted_inventory_is_a_remark(store: Store, wanted: Contents) -> None:
    """If a store lacks an inventory (a list of its files), ``logparse check`` reports no error, only a remark.

    No answer needs the inventory, and an ``ingest`` that was killed leaves none.
    """
    for file in Path(store.url).glob("sources/inventory-*"):
        file.unlink()
    whole, remark = check(store.url).blocks  # type: ignore[attr-defined]
    assert whole == "no file is damaged or missing"
    assert (
        "in no inventory (`logparse ingest` was killed, or an inventory file, which lists the commits, is missing)"
        in remark
    )
    assert contents(store, OF_THE_MOMENT) == wanted
    ingest(LOGS, open_store(store.url))
    assert open_store(store.url).remarks() == []


def test_rewrites_by_others_alarm_nobody(stores: dict[str, Store], tmp_path: Path) -> None:
    store = copied(stores["compacted"], tmp_path)

    def rewrite(log: str) -> None:
        for _ in range(sized(3, 30)):
            open_store(store.url).forget(log)
            mine = open_store(store.url)
            mine.write_findings(pd.DataFrame({"run": ["r"], "analyzer": [log]}))
            ingest([log], mine, run="r")
            with contextlib.suppress(StoreError):  # another compaction finished first
                compact(open_store(store.url))

    with ThreadPoolExecutor(2) as others:
        at_work = [others.submit(rewrite, log) for log in LOGS[:2]]
        looks = 0
        while not all(one.done() for one in at_work):
            assert open_store(store.url).damage() == []
            looks += 1
    for one in at_work:
        one.result()
    assert looks
    assert open_store(store.url).damage() == []


def test_a_log_read_again_is_not_missing() -> None:
    """If a log was deleted from a store (Parquet folder) and read again, the store is not reported as damaged."""
    # The store has a small file for each log. When the log is read again, a new file gets the name of the deleted one.
    first, second = (ListedRow("sources/a/b.parquet", attempt, "r", "/log") for attempt in ("1", "2"))
    known, manifest = Inventory(rows=frozenset({first, second})), Manifest(told=(Forgotten("f.json", ("1",), 0.0),))
    assert known.missing_rows(["sources/a/b.parquet"], manifest) == []
    assert known.missing_rows([], manifest) == [second]
    assert known.missing_rows([], Manifest(told=(Forgotten("f.json", ("1", "2"), 0.0),))) == []


def test_every_flip_of_a_sealed_file_is_found() -> None:
    table = pa.table({"parts": [["a b"]], "path": ["/log"]})
    data = seal_table(table)
    assert unseal_table(data)[0].equals(table)
    for bit in range(0, 8 * len(data), sized(7, 1)):
        flip = bytearray(data)
        flip[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(OSError, pa.ArrowException):
            assert unseal_table(bytes(flip)) == (table, False), "the key of the digest: the caller demands one"


@pytest.mark.parametrize("items", [[], ["0123456789abcdef"], [3, ["sources/a.parquet", "1", "r", "/log"]]])
def test_every_flip_of_a_sealed_list_is_found(items: list[object]) -> None:
    data = seal_list(items)
    assert unseal_list(data) == items
    for bit in range(8 * len(data)):
        flip = bytearray(data)
        flip[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):  # noqa: PT011 - of JSON, of UTF-8, or of the digest
            unseal_list(bytes(flip))
    assert unseal_list(b'["0123456789abcdef"]') == ["0123456789abcdef"], "as earlier versions wrote it"
