"""Checksums that reveal a damaged file of a store.

* A commit (the small file that makes data files valid) contains the size and checksum of each data file (``Part``).
  After a compaction the manifest (the list of merged files) contains them.
* Commits, manifests and lists contain a checksum of themselves (``seal_table``, ``seal_list``).
* Pages of data files also have Parquet's own checksums. Readers of a store at a URL use only these, because reading a
  whole file to check it would cost too much there.

Files of earlier versions have no checksums. They are read without a check.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash

DIFFERS = "its checksum differs"
UNSEALED = "its checksum is missing"
_KEY = b"logparse_digest"
_VALUE = 2
"""Number of bytes between a key and its value in the footer of a Parquet file.

The footer is in Thrift's compact protocol. These bytes are the header of the second field, and a length.
"""
_BLANK = b"0" * 32
_LISTED = "digest "
_CHUNK = 1 << 20


class Part(NamedTuple):
    """A data file of a store: its path in the store, its size in bytes, and a checksum of all its bytes."""

    path: str
    size: int
    digest: str

    @property
    def text(self) -> str:
        return f"{self.path} {self.size} {self.digest}"

    def why_not(self, filesystem: pafs.FileSystem, root: str) -> str:
        """Check a data file, and return what is wrong with it. Returns an empty text if nothing is wrong.

        The whole file is read. Raises OSError if it cannot be read.
        """
        with _opened(filesystem, f"{root}/{self.path}") as file:
            hashed, size = xxhash.xxh3_64(), 0
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
                size += len(chunk)
        if size != self.size:
            return f"has {size:,} of {self.size:,} bytes"
        return "" if hashed.hexdigest() == self.digest else DIFFERS


def part_of(path: str, data: Any) -> Part:
    """Return the description of a data file with these bytes: its path in the store, its size and its checksum."""
    return Part(path, len(data), xxhash.xxh3_64_hexdigest(data))


def part_from_text(text: str) -> Part:
    path, size, digest = text.rsplit(" ", 2)
    return Part(path, int(size), digest)


def seal_table(table: pa.Table, compression: str = "snappy") -> bytes:
    """Return the bytes of a Parquet file with a table and a checksum, by which damage to the file is noticed.

    The checksum is of the whole file.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression=compression, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_KEY: _BLANK})
    data = sink.getvalue().to_pybytes()
    place = data.rindex(_KEY) + len(_KEY) + _VALUE
    assert data[place : place + len(_BLANK)] == _BLANK
    return bytes(data[:place] + _digest(data) + data[place + len(_BLANK) :])


def unseal_table(data: bytes) -> tuple[pa.Table, bool]:
    """Read a table from the bytes of a Parquet file, and check the file's checksum.

    The second result is True if the file has a checksum (files of earlier versions have none). Raises
    pyarrow.ArrowException or OSError if the file is damaged.
    """
    if whole := _KEY in data:
        place = data.rindex(_KEY) + len(_KEY) + _VALUE
        told, blank = data[place : place + len(_BLANK)], data[:place] + _BLANK + data[place + len(_BLANK) :]
        if told != _digest(blank):
            raise pa.ArrowInvalid(DIFFERS)
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False), whole


def seal_list(items: Sequence[object]) -> bytes:
    """Write a list as JSON, with a checksum as an additional last item."""
    return json.dumps([*items, _LISTED + _digest(json.dumps(items).encode()).decode()]).encode()


def unseal_list(data: bytes) -> list[Any]:
    """Read a list from JSON, check its checksum and remove the checksum. Lists of earlier versions have no checksum.

    Raises ValueError if the list is damaged.
    """
    items = json.loads(data)
    if not isinstance(items, list):
        raise ValueError("no list")
    if not items or len(str(items[-1])) < len(_BLANK):  # the last item is an attempt's name
        return items
    if items.pop() != _LISTED + _digest(json.dumps(items).encode()).decode():
        raise ValueError(DIFFERS)
    return items


def read_bytes(filesystem: pafs.FileSystem, path: str) -> bytes:
    """Return all bytes of a file."""
    with _opened(filesystem, path) as file:
        return bytes(file.read())


def _opened(filesystem: pafs.FileSystem, path: str) -> Any:
    """Open a file for reading. A local file is opened by Python, which is faster than pyarrow's buffers and threads."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return open(path, "rb", buffering=0)
    return filesystem.open_input_stream(path)


def _digest(data: bytes) -> bytes:
    return str(xxhash.xxh3_128_hexdigest(data)).encode()
