"""Tests that the counter of equal lines in C and the one in Python give the same result for any bytes.

The result must not depend on how a stream is cut into blocks.
"""

from __future__ import annotations

import bz2
import gzip
import io
import tempfile
import zlib
from pathlib import Path
from typing import Any, cast

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from logparse.ingest import ingest
from logparse.ingest.counting import PlainCounter, mask_addresses, new_counter
from logparse.ingest.lines import LineReader, blocks
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat
from logparse.libraries.rocblas.logs import HEADING
from logparse.store import open_store
from tests.conftest import CORPUS, SAMPLES, sized
from tests.libraries.reading import places_of
from tests.store.contents import OF_THE_MOMENT, contents

STREAMS = [f for f in FORMATS if not isinstance(f, FileFormat)]
MARKERS = (b"hipblaslt-bench", b"[HIPBLASLT][", b"[cublasLt]["), (b"Winner:", b"][Info][is"), (b"][HIPBLASLT][",)
STAMP = b"[2026-02-03 04:05:06][HIPBLASLT]"
PIECES = st.sampled_from(
    [
        *(STAMP, b"[77]", b"[]", b"[1234567890123456789]", b"[Api]", b"[Trace]", b"[Info][isS", b"[f]", b"[3x]", b"["),
        *(b"0x7f11c2c00000", b"0X", b"0x", b"0x0", b"0x00000", b"0x12345", b"0x1234", b"0xdeadbeefdeadbeef0", b"g"),
        *(b"=", b"=00000223F861AEA0", b"=0000000000000000", b"=00000223f861aea0", b"0123456789ABCDEF", b"x", b"X"),
        *(
            b"hipblaslt-bench",
            b"Winner:",
            b"][cublasLt][",
            b"[cublasLt][7][Trace][f] a",
            b" ",
            b"\t",
            b"\r",
            b"\x0c",
            b"\x00",
            b"\xff",
            b"\n",
            b"\n\n",
            b"\x1b",
            b"\x1b[31m",
            b"\x1b[0;1:2m\x1b[K",
        ),
        *(b"[2026-02-03 04:05:07][HIPBLASLT]", b"[2026-02-03 04:05:0][HIPBLASLT]", b"[2026-02-03 04:05:06][H9]"),
        *(STAMP + b"[77][Api][f] a=0x7f11c2c00000", STAMP + b"[78][Trace][f] b", STAMP + b"[Api][f] ", STAMP + b"[7"),
        *(b"hipblaslt-bench --api_method c -m 8", b"- { function: matmul, M: 1,", b"./MIOpenDriver conv -n 1 "),
    ]
)

native = pytest.mark.skipif(
    isinstance(new_counter(*MARKERS, native=True), PlainCounter), reason="the native counter was not built"
)
Taken = tuple[list[object], dict[tuple[bytes, bytes, bytes, bytes], int]]


def count_in_blocks(data: bytes, size: int, *, is_native: bool) -> tuple[list[object], Taken]:
    """Count how often each line occurs in a text, in blocks of ``size`` bytes, as logparse does with large logs.

    Returns what the counter said about each block, and the lines with their counts.
    """
    # Different counters may number the lines differently. The numbers are left out, so that results can be compared.
    counter = new_counter(*MARKERS, native=is_native)
    said: list[object] = [counter.count(block, at) for block, at in blocks(io.BytesIO(data), size=size)]
    entries, places, cells = counter.take()
    numbers = memoryview(cells).cast("q").tolist()
    found: dict[tuple[bytes, bytes, bytes, bytes], int] = {}
    for entry, place, count in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        cell = (entries[entry][0], entries[entry][1] or b"", *places[place])
        found[cell] = found.get(cell, 0) + count
    return said, (list(entries), found)


@native
def test_a_native_counter_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from logparse.ingest import _lines

    monkeypatch.delattr(_lines, "VERSION")
    assert isinstance(new_counter(*MARKERS, native=True), PlainCounter)


@native
@given(st.lists(PIECES, max_size=60).map(b"".join), st.sampled_from([1, 7, 64, 1 << 20]))
def test_native_and_plain_counters_give_the_same(data: bytes, size: int) -> None:
    assert count_in_blocks(data, size, is_native=True) == count_in_blocks(data, size, is_native=False)


@native
@given(st.binary(max_size=300), st.binary(max_size=40))
def test_they_do_on_any_bytes(noise: bytes, more: bytes) -> None:
    for data in (noise, STAMP + b"[7][Api][f] " + noise + b"\n" + STAMP + b"[7][Api]" + more, b"=" + noise):
        assert count_in_blocks(data, 64, is_native=True) == count_in_blocks(data, 64, is_native=False)


@native
@pytest.mark.parametrize("length", [0, 1, 5, 31, 32, 33, 4096, 3 << 20])
@pytest.mark.parametrize("head", [b"", b"hipblaslt-bench ", STAMP + b"[1][Api][f] a=0x7f11c2c00000"])
def test_they_do_on_long_lines(head: bytes, length: int) -> None:
    data = b"\n".join([head + b"\x00" * length, head + b"0x" * (length // 2), head * 3 + b" " * length])
    assert count_in_blocks(data, 1 << 20, is_native=True) == count_in_blocks(data, 1 << 20, is_native=False)
    by_block, by_file = (cast(Any, new_counter(*MARKERS, native=True)) for _ in range(2))
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        assert by_file.count_file(file.fileno(), 0, len(data), 1 << 30, 0, 32) == by_block.count(data, 0)
    assert by_file.take() == by_block.take()


@given(st.lists(PIECES, max_size=12).map(b"".join).map(lambda text: text.replace(b"\n", b"")))
def test_a_torn_line_is_cut_where_the_next_one_begins(line: bytes) -> None:
    """If a whole log line begins within a torn one, the line is cut there, and both parts are read separately."""
    reader = LineReader(STREAMS, native=False)
    counter = reader._counters[0]
    assert isinstance(counter, PlainCounter)
    inside = counter._record_inside(line)
    if inside:
        torn = reader.pieces(line[:inside]) if line[:inside].strip() else []
        *before, (format, begin, end) = reader.pieces(line)
        assert before == torn
        assert (begin, end) == (inside, len(line))
        assert reader.pieces(line[inside:]) == [(format, 0, len(line) - inside)]


@native
def test_markers_that_no_counter_can_look_for_are_refused() -> None:
    for wrong in ((b"x",), ("text",)):
        with pytest.raises(ValueError, match="marker"):
            new_counter(wrong, (), (), native=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_native", [True, False])
def test_a_counter_forgets_what_it_gave(is_native: bool) -> None:
    counter = new_counter(*MARKERS, native=is_native)
    line = STAMP + b"[7][Api][f] x\n"
    for _ in range(2):
        counter.count(line * 3, 5)
        assert counter.held > 0
        entries, places, _ = counter.take()
        assert entries == [(line[:-1], b"[HIPBLASLT][Api][f] x", 5, False, False)]
        assert places == [(b"2026-02-03 04:05:06", b"7")]
        assert counter.held == 0


@native
@given(
    st.lists(PIECES, max_size=60).map(b"".join),
    st.sampled_from([1, 300, 1 << 20]),
    st.sampled_from([1, 7, 64]),
    st.sampled_from([32, 96, 4096]),
    st.integers(0, 200),
)
def test_several_threads_count_a_file_correctly(data: bytes, held: int, size: int, piece: int, known: int) -> None:
    """If several threads each count the lines in a part of a file, the result is the same as with one thread."""
    # Random values are tested for the contents, the sizes of parts and pieces, the limit of memory, and the number of
    # bytes that an earlier ingest has read.
    start = data.find(b"\n", known) + 1
    with tempfile.TemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        file.write(data)
        file.flush()
        patch.setattr("logparse.ingest.lines._HELD_BYTES", held)
        patch.setattr("logparse.ingest.lines._RANGE_BYTES", (size, 4 * size))
        patch.setattr("logparse.ingest.lines.PIECE_BYTES", piece)
        reader, plain = LineReader(STREAMS, 2, native=True), LineReader(STREAMS, native=False)
        assert sum(reader.read_file(file.fileno(), start, len(data))) == len(data) - start
        plain.feed(data[start:], start)
        one, two = reader.take(), plain.take()
        list(reader.close())
    assert (one.lines, one.foreign, one.blank, one.splits) == (two.lines, two.foreign, two.blank, two.splits)
    places = [
        {(d.format.name, d.text): (d.offset, d.raw, places_of(out, d)) for d in out.distinct} for out in (one, two)
    ]
    assert places[0] == places[1]
    ends = range(piece, len(data) + 1 if start < len(data) else 0, piece)
    assert reader.hashes == [xxhash.xxh64(data[end - piece : end]).digest() for end in ends]


@native
def test_a_file_that_became_shorter_is_an_error() -> None:
    counter = new_counter(*MARKERS, native=True)
    with tempfile.TemporaryFile() as file, pytest.raises(OSError, match="error"):
        cast(Any, counter).count_file(file.fileno(), 0, 10, 1 << 20, 0, 32)


@given(st.text(alphabet="0x1aFgX =\n", max_size=60).map(str.encode))
def test_masking_never_makes_a_line_longer(text: bytes) -> None:
    """Replacing the addresses in a line by a mask never makes the line longer.

    If addresses are replaced again, nothing changes.
    """
    once = mask_addresses(text)
    assert len(once) <= len(text)
    if b"0x@" in once:
        assert mask_addresses(once) == once


# ------------------------------------------------------------------------------------------ how a stream is cut


def real_lines() -> bytes:
    """Return some lines of every sample and real log, whole and damaged, with an application's output between them."""
    folders = [SAMPLES, *([CORPUS] if CORPUS.is_dir() else [])]
    out: list[bytes] = []
    paths = (p for folder in folders for p in sorted(folder.rglob("*")) if p.is_file())
    # The choice goes by the name, so that a file that is added later does not exchange all others.
    for path in (p for p in paths if zlib.crc32(p.name.encode()) % sized(3, 1) == 0):
        data = path.read_bytes()
        data = (
            gzip.decompress(data) if data[:2] == b"\x1f\x8b" else bz2.decompress(data) if data[:3] == b"BZh" else data
        )
        lines = data[:100_000].split(b"\n")[:150]
        out += lines
        out += [one[: len(one) // 2] + two for one, two in zip(lines[:20], lines[20:40], strict=False)]
        out += [b"epoch 3 loss 0.25", b"", b"\x00\xff\x00", *lines[:30]]
    return b"\n".join(out)


VIEWS = (
    "sources",
    "calls",
    "workload",
    "messages",
    "gemm_problems",
    "conv_problems",
    "measurements",
    "facts",
    "rejects",
)


def views_of(log: Path, store_path: Path, jobs: int) -> dict[str, list[str]]:
    store = open_store(store_path, create=True)
    ingest([str(log)], store, run="r", jobs=jobs)
    return contents(store, OF_THE_MOMENT, VIEWS)


def test_results_do_not_depend_on_workers_blocks_memory_or_the_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "everything.log"
    log.write_bytes(b"hipblaslt-bench -m 1\n" + real_lines())
    expected = views_of(log, tmp_path / "store", jobs=1)
    assert len(expected["rejects"]) > 10
    blocks_of = (1 << 40, 0)  # no file is large enough for ranges
    ways = [
        (2, *blocks_of, 1 << 16, 1 << 30, "1"),
        (3, *blocks_of, 5000, 1 << 18, "1"),
        (2, *blocks_of, 1 << 20, 1 << 18, "0"),
        (1, *blocks_of, 5000, 1 << 18, "1"),
        (1, 0, 1 << 20, 0, 1 << 30, "1"),
        (2, 0, 3000, 0, 1 << 18, "1"),
        (3, 0, 100_000, 0, 1 << 14, "1"),
    ]
    for number, (jobs, ranged, span, block, held, is_native) in enumerate(ways[:: sized(3, 1)]):
        monkeypatch.setattr("logparse.ingest.worker._RANGED_BYTES", ranged)
        monkeypatch.setattr("logparse.ingest.lines._RANGE_BYTES", (span, 4 * span))
        monkeypatch.setattr("logparse.ingest.lines.BLOCK_BYTES", block)
        monkeypatch.setattr("logparse.ingest.lines._HELD_BYTES", held)
        monkeypatch.setenv("LOGPARSE_NATIVE", is_native)
        seen = views_of(log, tmp_path / f"store{number}", jobs)
        for view in VIEWS:
            assert seen[view] == expected[view], (view, number)


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_of_a_table_are_read_in_order(threads: int) -> None:
    """If a log contains a table, the lines of the table are read in order, although several threads read the log."""
    # Each thread reads blocks of the log. A row of a table does not look special by itself, and here the rows lie in
    # different blocks. Other lines follow after each table.
    row = b"N,N,320,588,1,4096,1,0,320,6144,320,f32_r,f32_r,f32_r,3788\n"
    text = b"nobody\n" + (HEADING.encode() + b"\n" + row * 50 + b"\n" + b"nobody\n" * 50) * 20
    reader = LineReader(STREAMS, threads)
    for block, at in blocks(io.BytesIO(text), size=100):
        reader.feed(block, at)
    out = reader.take()
    assert list(reader.close()) == []
    assert [line.outcome.unit for line in out.claimed] == ["message", *["measurement"] * 50] * 20
    assert all(text[line.offset :].startswith((row, HEADING.encode())) for line in out.claimed)
    assert (out.foreign, out.blank, sum(d.count for d in out.distinct)) == (1 + 1000, 20, 0)
