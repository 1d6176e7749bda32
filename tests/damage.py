"""Real text of every format, from the samples, and ways to damage it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from hypothesis import strategies as st

from logparse.formats import FORMATS
from logparse.formats.format import FileFormat, Format, Head, LineFormat
from logparse.ingest.input_file import InputFile
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
"""What is put into the middle of real text: control bytes, marks of every grammar, texts in place of numbers, numbers
that are too large (one in Arabic digits, one for Python's own limit of 4,300), beginnings of other languages.
"""


@cache
def seeds() -> Mapping[str, Sequence[tuple[str, bytes]]]:
    """Per format: names and contents of samples that are (files) or hold (lines, blocks) something of it."""
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
    """A sample's name and its content with a few cuts, copies, changed bytes and strange pieces."""
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
