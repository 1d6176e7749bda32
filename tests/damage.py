"""Take real text of every log format from the samples, and damage it at random for tests."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from logparse.ingest.input_file import InputFile
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat, Format, Head, LineFormat
from tests.conftest import SAMPLE_FILES

_SMALL = 96 << 10
PIECES: tuple[bytes, ...] = (
    *(b"\0", b"\r", b"\xff\xfe", b"\xc3", b"\xe2\x80\xa8", b"\x1b[31m", b"\t", b"\x0c", b"\xef\xbb\xbf"),
    *(b"=", b",", b";", b":", b"-", b"--", b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b" ", b"0x", b"%i", b"*"),
    *(
        b"-1",
        b"0",
        b"99999999999999999999999",
        b"9" * 5000,
        b"1e999",
        b"nan",
        b"inf",
        b"-0.0",
        b"1_000",
        b"\xd9\xa3",
        b"true",
    ),
    *(b"null", b"hipblaslt-bench ", b"[HIPBLASLT]", b"- { function: matmul", b"MIOpen(HIP): ", b"GemmTunableOp_"),
)
"""Strange pieces of text that tests insert into real logs.

* Some are control bytes, or words and signs with a meaning in some log format.
* Some are words where a number is expected, or beginnings of text in another language, such as JSON.
* Some are numbers that are too large. One number is in Arabic digits, and one exceeds Python's own limit of 4,300
  digits.
"""


@cache
def seeds() -> Mapping[str, Sequence[tuple[str, bytes]]]:
    """Return samples of each log format: {format: [(file name, content)]}.

    The content is a whole file, or only the lines or blocks of a file that the format reads.
    """
    out: dict[str, list[tuple[str, bytes]]] = {format.name: [] for format in FORMATS}
    for path in SAMPLE_FILES:
        file = InputFile(str(path))
        with file.open() as stream:
            data = b"".join(iter(lambda: stream.read(1 << 20), b""))
        for format in FORMATS:
            for seed in _of(format, file.name, data):
                out[format.name].append((file.name, seed))
    return out


def _of(format: Format, name: str, data: bytes) -> Iterator[bytes]:
    if isinstance(format, FileFormat):
        if format.recognise(Head(name, data[: 64 << 10])):
            yield data if len(data) <= _SMALL or b"\0" in data[:64] else data[:_SMALL]
    elif isinstance(format, LineFormat):
        lines = {line: None for line in data.split(b"\n") if any(marker in line for marker in format.markers)}
        yield from list(lines)[:40]
    elif any(marker in data for marker in format.markers):
        yield data[:_SMALL]


@st.composite
def damaged(draw: st.DrawFn, format: Format) -> tuple[str, bytes]:
    """Draw a sample of the format at random and damage it. Returns the file name and the damaged content.

    One to four times, bytes are cut out, copied, or replaced, or a strange piece of text is inserted.
    """
    name, data = draw(st.sampled_from(seeds()[format.name]))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        far = min(len(data), at + draw(st.sampled_from([0, 1, 2, 5, 20, 200, 5000])))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4), st.just(data[at:far])))
        how = draw(st.sampled_from(["put", "replace", "cut", "end", "begin"]))
        if how == "put":
            data = data[:at] + piece + data[at:]
        elif how == "replace":
            data = data[:at] + piece + data[far:]
        elif how == "cut":
            data = data[:at] + data[far:]
        else:
            data = data[:at] if how == "end" else data[at:]
    return name, data


NUMBERS: tuple[bytes, ...] = (
    *(b"0", b"-1", b"-2.5", b"2147483648", b"9223372036854775807", b"9223372036854775808"),
    *(b"1e308", b"NaN", b"Infinity", b""),
)
"""Texts to put in place of a number: limits of number types, numbers beyond them, and words that are no number."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MEMBER = re.compile(rb'"([\w ]{1,40})"\s*:\s*-?\d')


def other_numbers(data: bytes, random: Random, count: int) -> Iterator[bytes]:
    """Yield copies of a file in which numbers are replaced by odd ones (``NUMBERS``), for example a negative number.

    Each copy has one odd number, in one of ``count`` random places.
    """
    # In JSON there are also copies in which all values of a random name are replaced, for example all values of "dur",
    # for up to count names.
    if data.startswith(b"SQLite"):
        yield from _other_columns(data, random, count)
        return
    places = [found.span() for found in _NUMBER.finditer(data)]
    names = sorted({found[1] for found in _MEMBER.finditer(data)}) if data.lstrip()[:1] in (b"{", b"[") else []
    for number in NUMBERS:
        for begin, end in random.sample(places, min(count, len(places))):
            yield data[:begin] + number + data[end:]
        for name in random.sample(names, min(count, len(names))):
            member = re.compile(rb'("%s"\s*:\s*)%s' % (re.escape(name), _NUMBER.pattern))
            yield member.sub(lambda found, number=number: found[1] + number, data)  # type: ignore[misc]


def _other_columns(data: bytes, random: Random, count: int) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "copy.db")
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as database:
            tables = [x for (x,) in database.execute("select name from sqlite_master where type = 'table'")]
            columns = [(x, row[1]) for x in tables for row in database.execute(f'pragma table_info("{x}")')]
            columns = [x for x in columns if x[1] not in ("id", "guid")]
        for number in NUMBERS:
            value = b"" if not number else number if number.isalpha() else float(number)
            value = int(number) if number.lstrip(b"-").isdigit() and int(number) < 1 << 63 else value
            for table, column in random.sample(columns, min(count, len(columns))):
                path.write_bytes(data)
                with closing(sqlite3.connect(path)) as database, database:
                    database.execute(f'update or ignore "{table}" set "{column}" = ?', [value])
                yield path.read_bytes()
