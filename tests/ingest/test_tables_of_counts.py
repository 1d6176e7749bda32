"""Tests of tables that ``sort | uniq -c`` makes from a log. The number before a line is then its count.

In an ordinary log, a number before a line is no count.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.ingest.input_file import InputFile
from logparse.ingest.lines import TORN, LineReader, Read
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat, LineFormat
from logparse.store import Store
from tests.conftest import SAMPLE_FILES
from tests.ingest.test_ingest import BENCH, TRACE
from tests.libraries.reading import check_conservation, units_of

LINES = [f for f in FORMATS if isinstance(f, LineFormat)]
DRIVER = "./bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 64 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -F 1 -t 1"
LOGGED = f"MIOpen(HIP): Command [LogCmdConvolution] {DRIVER}"
TYPED = BENCH.format(m=64, i=65).rstrip()


def read(data: bytes, *, native: bool | None = None) -> Read:
    reader = LineReader(LINES, head=data, native=native)
    reader.feed(data, 0)
    read = reader.take()
    assert sum(units_of(read).values()) == read.lines + read.splits
    return read


def records(read: Read) -> Counter[tuple[str, str]]:
    found = [entry for entry in read.distinct if entry.format is not TORN]
    assert all(int(entry.counts.sum()) == entry.count for entry in found)
    return Counter({(entry.format.name, entry.text): entry.count for entry in found})


def uniq(data: bytes, times: int) -> bytes:
    """Return the table that ``sort | uniq -c`` would write if each line of the log came ``times`` times as often."""
    counts = Counter(line for line in data.split(b"\n") if line.strip())
    return b"".join(b"%7d %s\n" % (count * times, line) for line, count in sorted(counts.items()))


def calls(store: Store, tmp_path: Path, text: str) -> list[tuple[int, bool]]:
    log = tmp_path / "lines.txt"
    log.write_text(text)
    ingest([str(log)], store)
    check_conservation(store)
    return sorted((int(row.count), bool(row.by_tool)) for row in store.calls().itertuples())


def test_every_line_format_counts_as_the_table_states() -> None:
    seen = set()
    for path in SAMPLE_FILES:
        data = path.read_bytes()
        head = InputFile(str(path)).head()
        if (
            any(f.recognise(head) for f in FORMATS if isinstance(f, FileFormat))
            or LineReader(LINES, head=data).is_table
        ):
            continue
        once = records(read(data))
        counted = {key: 3 * count for key, count in once.items()}
        assert records(read(uniq(data, 3))) == counted, path
        assert records(read(uniq(data, 3), native=False)) == counted, path
        seen |= {format for format, _ in once}
    assert {"hipblaslt-bench", "hipblaslt-log", "rocblas-bench", "miopen-driver"} <= seen


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (TYPED, (37, False)),
        (f"./{TYPED} --iters 10", (37, False)),  # a list of commands with weights
        (TRACE.format(s=1, pid=1), (37, False)),
        (LOGGED, (37, False)),
        (DRIVER, (37, False)),
    ],
)
def test_a_line_of_a_table_is_one_of_the_job(store: Store, tmp_path: Path, line: str, wanted: tuple[int, bool]) -> None:
    assert calls(store, tmp_path, f"the most frequent ones\n     37 {line}\n") == [wanted]
    assert list(store.workload()["calls"]) == [37]


def test_without_a_count_a_typed_line_is_the_tools(store: Store, tmp_path: Path) -> None:
    assert calls(store, tmp_path, f"  5 {LOGGED}\n  6 {DRIVER}\n{DRIVER}\n") == [(1, True), (11, False)]


@pytest.mark.parametrize("digits", ["2", "     12", "3554432"])
def test_digits_of_a_torn_line_are_no_count(store: Store, tmp_path: Path, digits: str) -> None:
    """If a damaged line begins with digits, they are not taken for the number of times that the call occurs."""
    # If several threads of hipBLASLt write at once, a line may be torn, for example within data=33554432. The next line
    # then begins with some digits of this number.
    text = f"{TYPED}\n{digits} {TYPED}\n{TYPED}\n"
    assert calls(store, tmp_path, text) == [(3, False)]
    (source,) = store.sources().itertuples()
    assert (source.call_lines, source.foreign_lines, source.splits) == (3, 1, 1)


def test_a_thread_before_miopens_prefix_is_no_count(store: Store, tmp_path: Path) -> None:
    assert calls(store, tmp_path, f"4711 {LOGGED}\n4712 {LOGGED}\n") == [(2, False)]


@pytest.mark.parametrize("form", ["{:6}\t{}\n", "{}\t{}\n", "{:7} {}\n"])
def test_line_numbers_are_no_counts(store: Store, tmp_path: Path, form: str) -> None:
    """Line numbers before the lines of a log are not taken for counts.

    Line numbers come from ``cat -n`` (which also counts blank lines) and ``nl``, or from text copied out of ``less
    -N``.
    """
    lines = ["of 3 lines, two empty", "", "", TYPED, LOGGED, TYPED, TYPED, LOGGED]
    text = "".join(form.format(number, line) for number, line in enumerate(lines, start=98))
    assert calls(store, tmp_path, text) == [(2, False), (3, False)]


def test_counts_in_ascending_order_are_counts(store: Store, tmp_path: Path) -> None:
    """Counts of 1, 2, 3 and so on are not taken for line numbers.

    ``sort | uniq -c | sort -n`` of a small log may give such counts.
    """
    text = f"      1 {LOGGED}\n      2 {DRIVER}\n      3 {TYPED}\n"  # the first two are one call
    assert calls(store, tmp_path, text) == [(3, False), (3, False)]
