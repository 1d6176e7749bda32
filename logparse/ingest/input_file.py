"""Input files: finding, opening, decompressing and identifying them.

An input is a file, a folder, a glob (``logs/**/hipblaslt_*.log``), standard input (``-``) or a URL (``s3://``,
``gs://``, ``hdfs://``, ``file://``), which may also be a folder or a glob, such as
``s3://bucket/job-7/**/*.log.gz?region=eu-west-1``.  The URL of each file that it matches keeps its options; endpoints
and credentials: ``logparse.location``.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import glob
import gzip
import io
import lzma
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, cast
from weakref import finalize

import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from logparse.errors import InputError
from logparse.ingest.lines import PIECE_BYTES, blocks
from logparse.libraries.kinds.format import Head, Line
from logparse.libraries.kinds.patterns import regex
from logparse.location import META, explained, join_url, resolve, split_url
from logparse.output.own_files import LIST, is_own, listed
from logparse.text import printable

HEAD_BYTES = 64 << 10
_REMOTE_BYTES = 4 << 20
_RATIO, _SURELY_FINE = 2000, 64 << 20
"""How many times its size a compressed file may expand to, beside so many bytes."""
_PIECE_BYTES = 64 << 10  # decompressed at a time
_COMPARED_BYTES = 1 << 20
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_MOST_MAGIC = max(map(len, _MAGIC))
CAPTURES = "capture_traces/"
_SUFFIX = regex(r"\.(gz|bz2|xz|zst)$")


def name_of(path: str) -> str:
    """The file name of a path or URL, without folder and compression suffix."""
    inner = split_url(path)[1] if "://" in path else path
    return _SUFFIX.sub("", inner.rstrip("/").rsplit("/", 1)[-1])


class InputFile:
    """One input: a path or URL, or ``-`` for standard input.  Implements ``formats.format.Source``.

    A byte order mark at the start is no content (``mark_bytes``), unless the file is read ``as_is``, as libraries read
    it.  Of a compressed file that was cut, reading raises CutError, or with ``until_cut`` ends there (``cut``).
    """

    def __init__(self, path: str, *, as_is: bool = False, until_cut: bool = False) -> None:
        self.path = path
        self.cut: Cut | None = None
        """Where reading ended early, once it has."""
        self._as_is, self._until_cut = as_is, until_cut
        self._mark_bytes = 0
        self._fs: pafs.FileSystem | None = None
        self._inner = path
        self._head: Head | None = None
        self._copy: _Copy | None = None
        if path != "-":
            self._fs, self._inner = resolve(path)

    @property
    def name(self) -> str:
        return name_of(self.path)

    @property
    def size(self) -> int:
        """Size in raw bytes.  Raises InputError when the file is gone."""
        if self._fs is None:
            return 0
        info = self._fs.get_file_info(self._inner)
        if not info.is_file:
            other = info.type == pafs.FileType.Unknown
            what = "a pipe or device: `logparse ingest -` reads standard input" if other else "no such file"
            raise InputError(f"{printable(self.path)}: {what}")
        return int(info.size or 0)

    def raw(self) -> BinaryIO:
        """The stored bytes, as a stream.  Raises OSError, and InputError where standard input is closed."""
        if self._fs is None:
            if sys.stdin is None:  # as Python has it where the descriptor is closed
                raise InputError("standard input is closed")
            return cast(BinaryIO, sys.stdin.buffer)
        if isinstance(self._fs, pafs.LocalFileSystem):
            return open(self._inner, "rb", buffering=0)
        # Each read of the stream below is a request: small ones would be slow and, in a cloud, cost money.
        stream = self._fs.open_input_stream(self._inner, compression=None, buffer_size=_REMOTE_BYTES)
        return cast(BinaryIO, stream)

    def open(self) -> BinaryIO:
        """The decompressed content from its start.  Reading raises InputError where it expands beyond the ratio."""
        return self.decompressed(self.raw())

    def decompressed(self, raw: BinaryIO) -> BinaryIO:
        """The decompressed content of ``raw`` without its byte order mark; its first bytes, not its name, determine
        how it is compressed.
        """
        content = raw if self._fs is None else self._unpacked(_Peekable(raw))
        return content if self._as_is else cast(BinaryIO, _Unmarked(content))

    @property
    def mark_bytes(self) -> int:
        """The length of the byte order mark at the start of the content (0: none), which is no part of it."""
        self.head()
        return self._mark_bytes

    def _unpacked(self, peeked: _Peekable) -> BinaryIO:
        kind = _compression(peeked.head)
        if kind is None:
            return cast(BinaryIO, peeked)
        if kind == "zst":
            inner: object = pa.CompressedInputStream(pa.PythonFile(peeked, mode="r"), "zstd")
        else:
            opener = cast(Callable[[object], object], {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}[kind])
            inner = opener(peeked)
        whole = _Bounded(cast(BinaryIO, inner), self.path, _RATIO * self.size + _SURELY_FINE)
        return cast(BinaryIO, _UntilCut(cast(BinaryIO, whole), self._ended_early) if self._until_cut else whole)

    def _ended_early(self, cut: Cut) -> None:
        self.cut = cut

    @property
    def compressed(self) -> bool:
        """Whether the content is not the stored bytes."""
        if self._fs is None:
            return False
        with self.raw() as raw:
            return _compression(_read_up_to(raw, _MOST_MAGIC)) is not None

    def head(self) -> Head:
        """The beginning of the content, as it was when first asked for."""
        if self._head is None:
            with self.open() as stream:
                self._head = Head(self.name, _read_up_to(stream, HEAD_BYTES))
                self._mark_bytes = getattr(stream, "skipped", 0)
        return self._head

    def beside(self) -> Iterator[InputFile]:
        """The other files of its folder, by name, then those of its subfolder ``capture_traces``, where vLLM (0.26 and
        later), SGLang and ATOM put the traces of captured graphs; empty for standard input.
        """
        if self._fs is None or self.path == "-":
            return
        folder, _, own = self._inner.rpartition("/")
        for below in ("", CAPTURES):
            at = f"{folder or '.'}/{below}".rstrip("/")
            infos = self._fs.get_file_info(pafs.FileSelector(at, allow_not_found=bool(below)))
            for name in sorted(info.base_name for info in infos if info.is_file and (below or info.base_name != own)):
                if "://" in self.path:
                    place, path, query = split_url(self.path)
                    url = join_url(place, f"{path.rpartition('/')[0]}/{below}{name}", query)
                    yield InputFile(url)
                else:
                    yield InputFile(os.path.join(os.path.dirname(self.path), below, name))

    def lines(self) -> Iterator[Line]:
        """Lines decoded as UTF-8 (bad bytes escaped), split at LF only."""
        with self.open() as stream:
            for block, offset in blocks(stream):
                place = offset
                parts = block.split(b"\n")
                if not parts[-1]:
                    parts.pop()
                for part in parts:
                    yield Line(part.decode("utf-8", "backslashreplace"), place)
                    place += len(part) + 1

    @property
    def plain_path(self) -> str | None:
        """The path of a local file that is not compressed, else None."""
        return self._inner if isinstance(self._fs, pafs.LocalFileSystem) and not self.compressed else None

    def local_path(self) -> str:
        """A path on this machine with the decompressed content: the file itself or a temporary copy."""
        if (path := self.plain_path) is not None:
            return path
        if self._copy is None:
            with self.open() as stream:
                self._copy = _Copy(stream)
        return self._copy.name

    def kept(self, stream: BinaryIO) -> InputFile:
        """The same input over a copy of the stream, as standard input can be read once only."""
        out = InputFile(self.path, as_is=self._as_is, until_cut=self._until_cut)
        out._copy = _Copy(stream)
        out._fs, out._inner = pafs.LocalFileSystem(), out._copy.name
        return out

    def digest(self, upto: int, pieces: Sequence[bytes] = ()) -> str:
        """Hash of the first ``upto`` raw bytes, from the hashes of its first ``pieces`` where they are known.

        Raises OSError, and InputError where the file has become shorter.
        """
        whole = min(upto // PIECE_BYTES, len(pieces))  # a last line without its end may be longer than a piece
        state, left = Digest(pieces[:whole]), upto - whole * PIECE_BYTES
        with self.raw() as raw:
            if whole:
                raw.seek(upto - left)
            while left:
                data = raw.read(min(left, 1 << 20))
                if not data:
                    raise InputError(f"{printable(self.path)}: became shorter while it was read")
                state.update(data)
                left -= len(data)
        return state.hexdigest()


class Digest:
    """Hash of bytes: the XXH64 of each piece of ``PIECE_BYTES``; of several pieces' hashes, their XXH3 (128 bits).

    ``before``: the hashes of the pieces before the bytes that ``update`` takes.
    """

    def __init__(self, before: Iterable[bytes] = ()) -> None:
        self._whole = list(before)
        self._state = xxhash.xxh64()
        self._length = 0

    def update(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            if self._length == PIECE_BYTES:
                self._whole.append(self._state.digest())
                self._state, self._length = xxhash.xxh64(), 0
            part = rest[: PIECE_BYTES - self._length]
            self._state.update(part)
            self._length += len(part)
            rest = rest[len(part) :]

    def copy(self) -> Digest:
        out = Digest(self._whole)
        out._state, out._length = self._state.copy(), self._length
        return out

    def hexdigest(self) -> str:
        """The hash of all bytes."""
        pieces = [*self._whole, self._state.digest()] if self._length or not self._whole else self._whole
        return pieces[0].hex() if len(pieces) == 1 else xxhash.xxh3_128_hexdigest(b"".join(pieces))


def source_id(path: str, digest: str) -> str:
    """The id of a source: of a path, and of the content that was first read there."""
    return str(xxhash.xxh3_64_hexdigest(f"{path}\0{digest}".encode()))


def last_line_end(file: int, start: int, end: int) -> int:
    """The place after the last line end in bytes ``start`` to ``end`` of a file descriptor; ``start`` without one."""
    stop = end
    while stop > start:
        begin = max(start, stop - (1 << 16))
        cut = os.pread(file, stop - begin, begin).rfind(b"\n")
        if cut >= 0:
            return begin + cut + 1
        stop = begin
    return start


class _Passing(io.RawIOBase):
    """A stream over another one: subclasses define ``read``; closing it closes the other one."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(size)

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


class Hashing(_Passing):
    """A raw stream that hashes and reports what passes; ``whole_lines`` is the hash up to the last line end."""

    def __init__(self, raw: BinaryIO, report: Callable[[int], None]) -> None:
        super().__init__(raw)
        self._report = report
        self._state = Digest()
        self._at_line_end = self._state.copy()
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        cut = data.rfind(b"\n") + 1
        if cut:
            self._state.update(memoryview(data)[:cut])
            self._at_line_end = self._state.copy()
        self._state.update(memoryview(data)[cut:])
        self.count += len(data)
        self._report(len(data))
        return data

    def finish(self) -> str:
        """Read what is left (bytes after the end of a compressed stream) and return the hash of all bytes."""
        while self.read(1 << 20):
            pass
        return self._state.hexdigest()

    @property
    def whole_lines(self) -> str:
        return self._at_line_end.hexdigest()


def _compression(head: bytes) -> str | None:
    """How a file with these first bytes is compressed; None where it is not."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


class _Peekable(_Passing):
    """A stream whose first bytes can be peeked at before it is read."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(raw)
        self.head = self._rest = _read_up_to(raw, _MOST_MAGIC)

    def read(self, size: int = -1) -> bytes:
        if not self._rest:
            return super().read(size)
        out, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return out + super().read(size if size < 0 else size - len(out))


class _Unmarked(_Passing):
    """A stream without the byte order mark of UTF-8 at its start, as editors of Windows write it."""

    def __init__(self, inner: BinaryIO) -> None:
        super().__init__(inner)
        self.skipped = 0
        """Length of the mark, once something was read."""
        self._begun = False
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        if not self._begun:
            self._begun = True
            first = _read_up_to(self._inner, len(codecs.BOM_UTF8))
            self.skipped = len(codecs.BOM_UTF8) if first == codecs.BOM_UTF8 else 0
            self._rest = first[self.skipped :]
        if not self._rest:
            return super().read(size)
        out, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return out + super().read(size if size < 0 else size - len(out))


class CutError(InputError):
    """A compressed file that ends early."""


class _Bounded(_Passing):
    """Decompressed bytes, refused beyond a limit (a few bytes can expand to terabytes).

    Raises CutError behind the last byte of a file that was cut, and InputError where one is damaged otherwise: what was
    decompressed of it may be wrong, as checksums stand at the end.
    """

    def __init__(self, inner: BinaryIO, path: str, limit: int) -> None:
        super().__init__(inner)
        self._path, self._left = printable(path), limit
        self._next: Callable[[int], bytes] = getattr(inner, "read1", inner.read)
        self._damage = ""
        self._is_cut = False

    def read(self, size: int = -1) -> bytes:
        parts, length = list[bytes](), 0
        while not self._damage and (size < 0 or length < size):
            data = self._piece(_PIECE_BYTES if size < 0 else min(size - length, _PIECE_BYTES))
            if not data:
                break
            parts.append(data)
            length += len(data)
        if self._damage and (size < 0 or not parts or not self._is_cut):
            raise (CutError if self._is_cut else InputError)(f"{self._path}: damaged compressed file: {self._damage}")
        self._left -= length
        if self._left < 0:
            raise InputError(f"{self._path}: expands to more than {_RATIO} times its size; if that is right, unpack it")
        return b"".join(parts)

    def _piece(self, size: int) -> bytes:
        """Bytes as they come: one large read would lose with the error what it had decompressed before."""
        try:
            return bytes(self._next(size))
        except (EOFError, OSError, lzma.LZMAError, zlib.error, ValueError, pa.ArrowException) as error:
            self._is_cut = isinstance(error, EOFError) or "Truncated" in str(error)  # Arrow has no error of its own
            self._damage = str(error) or type(error).__name__
            return b""


class Cut(NamedTuple):
    """Where the content of a compressed file ends early: after ``offset`` bytes.

    Behind them ``length`` bytes could be decompressed, and are left out: the beginning of a line.
    """

    offset: int
    length: int


class _UntilCut(_Passing):
    """Decompressed bytes up to where the file is cut, and ``ended`` is told where that is.

    They end with a whole line, as half a number would be read as another one.  Of a line of more than ``_PIECE_BYTES``
    the beginning is read, and so is one that is all that there is.
    """

    def __init__(self, inner: BinaryIO, ended: Callable[[Cut], None]) -> None:
        super().__init__(inner)
        self._ended = ended
        self._ready, self._held = b"", b""  # whole lines, and the beginning of the next
        self._count = 0
        self._over = False

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        while not self._ready and not self._over:
            self._fetch(max(size, _PIECE_BYTES))
        out, self._ready = self._ready[:size], self._ready[size:]
        return out

    def _fetch(self, size: int) -> None:
        try:
            data = self._inner.read(size)
        except CutError:
            self._over = True
            self._ready, left = (b"", len(self._held)) if self._count else (self._held, 0)
            self._ended(Cut(self._count + len(self._ready), left))
            return
        self._over = not data
        held = self._held + data
        cut = len(held) if self._over else held.rfind(b"\n") + 1
        cut = len(held) if not cut and len(held) > _PIECE_BYTES else cut
        self._ready, self._held = held[:cut], held[cut:]
        self._count += cut


class Inputs(NamedTuple):
    """The files that paths name."""

    files: dict[str, int]
    """Raw bytes of each (0 where unknown)."""
    missing: list[tuple[str, str]]
    """Paths that name no file, each with a message that states why."""
    own: dict[str, int]
    """The number of files that logparse itself wrote below each folder, which are left out."""
    copies: Mapping[str, str] = MappingProxyType({})
    """Packed files that hold the same as a file beside them, by that file: they are left out."""


def find_inputs(paths: Iterable[str]) -> Inputs:
    """The files that these paths, folders, globs and URLs name, each once."""
    found: dict[str, int] = {}
    missing: list[tuple[str, str]] = []
    own: dict[str, int] = {}
    for path in paths:
        left_out: list[Path] = []
        try:
            files = {"-": 0} if path == "-" else _expand(path, left_out)
        except InputError as error:
            missing.append((path, printable(str(error))))
            continue
        if not files:
            why = "no such file, and as a folder or pattern it matches nothing"
            why = "a folder without a file to read" if os.path.isdir(path) else why
            why = "holds only what logparse itself wrote: a file's own path reads it" if left_out else why
            missing.append((path, f"{printable(path)}: {why}"))
        elif left_out:
            own[path] = len(left_out)
        found |= files
    # A link beside its file, such as latest.log, is no second log.  A link to itself is its own real path.
    linked = {path: os.path.realpath(path) for path in found if os.path.islink(path)}
    twice = {path for path, real in linked.items() if real != path and real in found}
    files = {path: size for path, size in found.items() if path not in twice}
    copies = {path: plain for path in files if (plain := _SUFFIX.sub("", path)) != path and plain in files}
    copies = {path: plain for path, plain in copies.items() if _same_content(path, plain)}
    return Inputs({path: size for path, size in files.items() if path not in copies}, missing, own, copies)


def _same_content(packed: str, plain: str) -> bool:
    """Whether a packed file holds what the other one does; False where one of them cannot be read."""
    try:
        with InputFile(packed).open() as one, InputFile(plain).open() as other:
            while True:
                block = _read_up_to(one, _COMPARED_BYTES)
                if block != _read_up_to(other, _COMPARED_BYTES):
                    return False
                if not block:
                    return True
    except (InputError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        return False


def _expand(path: str, left_out: list[Path]) -> dict[str, int]:
    """The files that a path names; files of our own below a folder are added to ``left_out`` instead."""
    if "://" in path:
        return _expand_url(path, left_out)
    if os.path.isdir(path):
        return dict(sorted((_named(p), _size(p)) for p in _walk(Path(path), left_out)))
    if os.path.lexists(path):
        return {_named(Path(path)): _size(path)}
    out: dict[str, int] = {}
    for match in sorted(glob.glob(path, recursive=True)):
        out |= _expand(match, left_out) if not os.path.isdir(match) or "**" not in path else {}
    return out


def _size(path: str | Path) -> int:
    with contextlib.suppress(OSError):  # reading it will report why it cannot be read
        return os.path.getsize(path)
    return 0


def _named(path: Path) -> str:
    return str(path.parent.resolve() / path.name if ".." in path.parts else path.absolute())


_LEFT_OUT = regex(r"/\.|/miopen-lockfiles/|db\.txt\.(?:lock|time)$")
"""Below a folder: hidden files, and what MIOpen keeps beside its databases (a lock, and when it last wrote)."""


def _walk(folder: Path, left_out: list[Path]) -> Iterator[Path]:
    """Regular files below a folder, without ``_LEFT_OUT``, files of stores, and links to folders (they may loop).

    Those that logparse itself wrote are added to ``left_out`` instead.
    """
    for root, folders, files in os.walk(folder):
        if META in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not _LEFT_OUT.search(f"/{name}/"))
        own = listed(Path(root)) if LIST in files else frozenset[str]()
        for path in (Path(root, name) for name in files if not _LEFT_OUT.search(f"/{name}")):
            if own and is_own(path, own):
                left_out.append(path)
            elif path.is_file():
                yield path


def _expand_url(url: str, left_out: list[Path]) -> dict[str, int]:
    """The URLs of the files that a URL names: itself, those below a folder, or those that match a glob."""
    place, path, query = split_url(url)
    if place == "file://":
        return _expand(path, left_out)
    wild = re.search(r"[*?\[]", path)
    folder = path[: path.rfind("/", 0, wild.start())] if wild else path.rstrip("/")
    filesystem, base = resolve(join_url(place, folder, query))
    with explained(url, InputError):
        info = None if wild else filesystem.get_file_info(base)
        if info is not None and info.is_file:
            return {join_url(place, path, query): info.size or 0}
        selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
        infos = filesystem.get_file_info(selector)
    sizes = {info.path[len(base) :]: info.size or 0 for info in infos if info.is_file}
    if wild:
        pattern = path[len(folder) :].split("/")
        below = [name for name in sizes if _matches(name.split("/"), pattern)]
    else:
        stores = tuple(name.removesuffix(META) for name in sizes if name.endswith("/" + META))
        below = [name for name in sizes if not _LEFT_OUT.search(name) and not name.startswith(stores)]
    return {join_url(place, folder + name, query): sizes[name] for name in sorted(below)}


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path match those of a glob, in which ``**`` is any number of folders."""
    if not names or not pattern:
        return not names and not pattern
    if pattern[0] == "**":
        return any(_matches(names[n:], pattern[1:]) for n in range(len(names) + 1))
    return fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


class _Copy:
    """A temporary file with the content of a stream; it is removed with this object, at the latest at the program's
    end.
    """

    def __init__(self, stream: BinaryIO) -> None:
        with tempfile.NamedTemporaryFile(prefix="logparse-", delete=False) as copy:
            self.name = copy.name
            finalize(self, Path(copy.name).unlink, missing_ok=True)
            shutil.copyfileobj(stream, copy)


def _read_up_to(stream: BinaryIO, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
