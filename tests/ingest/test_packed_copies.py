"""Tests that a log and its compressed copy in the same folder (``a.log`` and ``a.log.gz``) are counted only once.

A compressed file with other contents is read as a log of its own.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.conftest import SAMPLES

SUMS = """
    select (select sum(lines) from sources), (select sum(count) from calls), (select sum(calls) from workload),
           (select count(*) from measurements), (select sum(total_us) from kernels), (select count(*) from facts)"""
PACKED: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
FILES = (
    *("hipblaslt/info_4242.log", "hipblaslt/hipblaslt_rank0_4242.log", "tunableop/tunableop_results0.csv"),
    *("miopen/gfx942130.HIP.fdb.txt", "traces/job.trace.json", "traces/4242_kernel_trace.csv", "aiter/server.log"),
)


def sums(store: Store) -> tuple[object, ...]:
    with store.reading(SUMS) as con:
        found: tuple[object, ...] = con.execute(SUMS).fetchall()[0]
        return found


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("name", FILES)
def test_a_packed_copy_changes_no_sum(tmp_path: Path, store: Store, name: str, suffix: str) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    shutil.copy(SAMPLES / name, folder)
    ingest([str(folder)], store, run="run")
    packed = folder / f"{Path(name).name}.{suffix}"
    packed.write_bytes(PACKED[suffix]((SAMPLES / name).read_bytes()))
    other = open_store(tempfile.mkdtemp(dir=tmp_path), create=True)
    results = ingest([str(folder)], other, run="run")
    assert sums(other) == sums(store)
    assert [(x.path, x.state, x.remark) for x in results][1:] == [
        (
            str(packed),
            "left out",
            f"left out: this file is a packed copy of {Path(name).name}, and logparse reads only the unpacked file",
        )
    ]


@pytest.mark.parametrize(
    "content", [b"", b"other", gzip.compress(b"other", mtime=0), gzip.compress(b"one\ntwo\n", mtime=0)[:-9]]
)
def test_a_packed_file_of_another_content_is_read(tmp_path: Path, store: Store, content: bytes) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    (tmp_path / "a.log.gz").write_bytes(content)
    results = ingest([str(tmp_path / "a.log"), str(tmp_path / "a.log.gz")], store, run="run")
    assert not [x for x in results if x.state == "left out"]
    assert len(results) == 2


def test_a_packed_file_alone_is_read(tmp_path: Path, store: Store) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"one\n", mtime=0))
    [result] = ingest([str(tmp_path)], store, run="run")
    assert result.state != "left out"
