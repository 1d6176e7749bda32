"""Find, open, decompress and identify input files. The user can name these inputs:

* a file, a folder or a glob (``logs/**/hipblaslt_*.log``)
* standard input (``-``)
* a URL (``s3://``, ``gs://``, ``hdfs://`` or ``file://``), also of a folder or a glob
"""

# ``logparse.location`` describes endpoints and credentials. An example of a URL is
# ``s3://bucket/job-7/**/*.log.gz?region=eu-west-1``. The URL of each file that a glob matches keeps the options of the
# glob.

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
from logparse.location import META, explain_os_errors, join_url, resolve, split_url
from logparse.output.own_files import LIST, is_own, read_digests
from logparse.text import make_printable

HEAD_BYTES = 64 << 10
_REMOTE_BYTES = 4 << 20
_RATIO, _SURELY_FINE = 2000, 64 << 20
"""A compressed file may expand to at most ``_RATIO`` times its size, plus ``_SURELY_FINE`` bytes."""
_PIECE_BYTES = 64 << 10  # bytes decompressed at a time
_COMPARED_BYTES = 1 << 20
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_MOST_MAGIC = max(map(len, _MAGIC))
CAPTURES = "capture_traces/"
_SUFFIX = regex(r"\.(gz|bz2|xz|zst)$")


def name_of(path: str) -> str:
    """Return the file name in a path or URL, without the ending of a compressed file.

    For example ``a.log`` for ``s3://bucket/a.log.gz``.
    """
    inner = split_url(path)[1] if "://" in path else path
    return _SUFFIX.sub("", inner.rstrip("/").rsplit("/", 1)[-1])


class InputFile:
    """An input file: a path or URL, or ``-`` for standard input.

    * It is decompressed while it is read. If a compressed file ends too early, reading raises CutError. If
      ``until_cut`` is set, reading ends there instead, and ``cut`` tells where.
    * A byte order mark at the start is skipped (``mark_bytes``). If ``as_is`` is set, the mark is kept, because
      libraries read files without skipping it.

    The object has the methods of ``libraries.kinds.format.Source``.
    """

    def __init__(self, path: str, *, as_is: bool = False, until_cut: bool = False) -> None:
        self.path = path
        self.cut: Cut | None = None
        """Where a compressed file ended too early. Unknown (None) until reading has come to that place."""
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
        """The size of the stored file in bytes. Raises InputError if the file no longer exists."""
        if self._fs is None:
            return 0
        info = self._fs.get_file_info(self._inner)
        if not info.is_file:
            other = info.type == pafs.FileType.Unknown
            what = (
                "this is a pipe or a device; to read its content, redirect the content into `logparse ingest -`"
                if other
                else "no such file"
            )
            raise InputError(f"{make_printable(self.path)}: {what}")
        return int(info.size or 0)

    def raw(self) -> BinaryIO:
        """Open the file without decompressing it.

        Raises OSError if that fails, and InputError if the file is standard input and is closed.
        """
        if self._fs is None:
            if sys.stdin is None:  # Python sets this if the descriptor is closed
                raise InputError("standard input is closed")
            return cast(BinaryIO, sys.stdin.buffer)
        if isinstance(self._fs, pafs.LocalFileSystem):
            return open(self._inner, "rb", buffering=0)
        # Each read of the stream below is a request.  Small requests would be slow and, in a cloud, cost money.
        stream = self._fs.open_input_stream(self._inner, compression=None, buffer_size=_REMOTE_BYTES)
        return cast(BinaryIO, stream)

    def open(self) -> BinaryIO:
        """Open the file and decompress it. Reading raises InputError if the content is larger than a limit."""
        return self.decompressed(self.raw())

    def decompressed(self, raw: BinaryIO) -> BinaryIO:
        """Return a stream with the decompressed content of the stream ``raw``, without its byte order mark.

        The first bytes tell how it is compressed. The file's name does not matter.
        """
        content = raw if self._fs is None else self._unpacked(_Peekable(raw))
        return content if self._as_is else cast(BinaryIO, _Unmarked(content))

    @property
    def mark_bytes(self) -> int:
        """The length in bytes of the byte order mark at the start, which is skipped. 0 for a file without a mark."""
        self.head()
        return self._mark_bytes

    @property
    def mark(self) -> bytes:
        """The byte order mark at the start of the file, or no bytes if the file has no such mark."""
        return codecs.BOM_UTF8[: self.mark_bytes]

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
        """True if the stored file is compressed."""
        return self.packed is not None

    @property
    def packed(self) -> str | None:
        """The kind of compression of the file, such as ``gz``.  None if it is not compressed."""
        if self._fs is None:
            return None
        with self.raw() as raw:
            return _compression(_read_up_to(raw, _MOST_MAGIC))

    def head(self) -> Head:
        """Return the first bytes of the decompressed content. They are read only once."""
        if self._head is None:
            with self.open() as stream:
                self._head = Head(self.name, _read_up_to(stream, HEAD_BYTES))
                self._mark_bytes = getattr(stream, "skipped", 0)
        return self._head

    def beside(self) -> Iterator[InputFile]:
        """Yield the other files in the same folder, by name, and then the files in its subfolder ``capture_traces``.

        vLLM (0.26 and later), SGLang and ATOM write the traces of captured CUDA graphs into that subfolder. For
        standard input nothing is yielded.
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
        """Yield the lines as text. Lines end only at LF. Bytes that are not valid UTF-8 are escaped."""
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
        """The path of a local file that is not compressed. None for other inputs."""
        return self._inner if isinstance(self._fs, pafs.LocalFileSystem) and not self.compressed else None

    def local_path(self) -> str:
        """Return the path of a local file with the decompressed content: the file itself or a temporary copy."""
        if (path := self.plain_path) is not None:
            return path
        if self._copy is None:
            with self.open() as stream:
                self._copy = _Copy(stream)
        return self._copy.name

    def kept(self, stream: BinaryIO) -> InputFile:
        """Return an input with the same path and with the content of ``stream``, which is kept in a temporary file.

        Standard input needs this, because it can be read only once.
        """
        out = InputFile(self.path, as_is=self._as_is, until_cut=self._until_cut)
        out._copy = _Copy(stream)
        out._fs, out._inner = pafs.LocalFileSystem(), out._copy.name
        return out

    def digest(self, upto: int, pieces: Sequence[bytes] = ()) -> str:
        """Return the hash of the first ``upto`` bytes of the file as it is stored.

        ``pieces`` are the known hashes of its first pieces. Raises OSError if the file cannot be read, InputError if it
        became shorter.
        """
        whole = min(upto // PIECE_BYTES, len(pieces))  # a last line without a line end may be longer than a piece
        state, left = Digest(pieces[:whole]), upto - whole * PIECE_BYTES
        with self.raw() as raw:
            if whole:
                raw.seek(upto - left)
            while left:
                data = raw.read(min(left, 1 << 20))
                if not data:
                    raise InputError(f"{make_printable(self.path)}: became shorter while it was read; ingest it again")
                state.update(data)
                left -= len(data)
        return state.hexdigest()

    def content_digest(self) -> str:
        """Return the hash of the unpacked content, including its byte order mark.  Raises OSError and InputError."""
        with Hashing(self.open(), lambda count: None, before=self.mark) as content:
            return content.finish()


class Digest:
    """Hash of a file, made from the hashes of its pieces of ``PIECE_BYTES`` bytes.

    ``before`` holds the hashes of the first pieces, if they are known. Then ``update`` gets only the bytes behind them.
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
        """Return the hash of all bytes so far."""
        pieces = [*self._whole, self._state.digest()] if self._length or not self._whole else self._whole
        # The hash of a single piece is its XXH64. The hash of several pieces is the XXH3 (128 bits) of their hashes.
        return pieces[0].hex() if len(pieces) == 1 else xxhash.xxh3_128_hexdigest(b"".join(pieces))


def source_id(path: str, digest: str) -> str:
    """Return the id of an input file, made from its path and a hash of its first content.

    ``digest`` is that hash. The id stays the same when the file grows.
    """
    return str(xxhash.xxh3_64_hexdigest(f"{path}\0{digest}".encode()))


def last_line_end(file: int, start: int, end: int) -> int:
    """Return the position after the last line end in bytes ``start`` to ``end`` of a file.

    ``file`` is a file descriptor. Returns ``start`` if there is no line end.
    """
    stop = end
    while stop > start:
        begin = max(start, stop - (1 << 16))
        cut = os.pread(file, stop - begin, begin).rfind(b"\n")
        if cut >= 0:
            return begin + cut + 1
        stop = begin
    return start


class _Passing(io.RawIOBase):
    """Base class of streams that read from another stream, and close it when they are closed."""

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
    """A stream that passes on the bytes of ``raw``, and computes a hash of them meanwhile.

    ``before`` are bytes that were read earlier. ``report`` gets the number of bytes of each read.
    """

    def __init__(self, raw: BinaryIO, report: Callable[[int], None], before: bytes = b"") -> None:
        super().__init__(raw)
        self._report = report
        self._state = Digest()
        self._state.update(before)
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
        """Read the rest of the file, and return the hash of all its bytes.

        The rest may be bytes after the end of a compressed stream.
        """
        while self.read(1 << 20):
            pass
        return self._state.hexdigest()

    @property
    def whole_lines(self) -> str:
        # This is the hash up to the last line end.
        return self._at_line_end.hexdigest()


def _compression(head: bytes) -> str | None:
    """Return how a file with these first bytes is compressed: ``gz``, ``bz2``, ``xz``, ``zst``, or None."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


class _Peekable(_Passing):
    """Stream whose first bytes (``head``) can be seen before it is read."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(raw)
        self.head = self._rest = _read_up_to(raw, _MOST_MAGIC)

    def read(self, size: int = -1) -> bytes:
        if not self._rest:
            return super().read(size)
        out, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return out + super().read(size if size < 0 else size - len(out))


class _Unmarked(_Passing):
    """Stream that skips a UTF-8 byte order mark at its start. Editors of Windows write such marks."""

    def __init__(self, inner: BinaryIO) -> None:
        super().__init__(inner)
        self.skipped = 0
        """Length of the skipped mark in bytes. It is known as soon as something was read."""
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
    """Raised if a compressed file ends too early."""


class _Bounded(_Passing):
    """Stream of decompressed bytes. Their number is limited, because a few bytes can expand to terabytes.

    Raises CutError after the last byte of a file that ends too early, and InputError if a file is damaged in another
    way.
    """

    def __init__(self, inner: BinaryIO, path: str, limit: int) -> None:
        super().__init__(inner)
        self._path, self._left = make_printable(path), limit
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
        # If a file is damaged and not merely cut, all bytes that were decompressed may be wrong, because the checksum
        # that would tell is at the end of the file.
        if self._damage and (size < 0 or not parts or not self._is_cut):
            raise (CutError if self._is_cut else InputError)(
                f"{self._path}: the compressed file is damaged: {self._damage}"
            )
        self._left -= length
        if self._left < 0:
            raise InputError(
                f"{self._path}: expands to more than {_RATIO} times its size, which may be an attack; if the file "
                "is right, unpack it and ingest the result"
            )
        return b"".join(parts)

    def _piece(self, size: int) -> bytes:
        """Decompress the next few bytes. If that fails, remember the error's text, and return no bytes.

        The pieces are small because all bytes of a failed read are lost.
        """
        try:
            return bytes(self._next(size))
        except (EOFError, OSError, lzma.LZMAError, zlib.error, ValueError, pa.ArrowException) as error:
            self._is_cut = isinstance(error, EOFError) or "Truncated" in str(error)  # Arrow has no error of its own
            self._damage = str(error) or type(error).__name__
            return b""


class Cut(NamedTuple):
    """The place at which a damaged compressed file ends too early: after ``offset`` bytes of whole lines.

    ``length`` more bytes could be decompressed. They are left out, because they are only the beginning of a line.
    """

    offset: int
    length: int


class _UntilCut(_Passing):
    """Stream of the decompressed bytes of a file that may be cut off. At the cut it ends without an error.

    The function ``ended`` is then called with the place of the cut. The bytes end with a whole line, because half a
    number would be read as another number. There are two exceptions: the beginning of a line of more than
    ``_PIECE_BYTES`` is read, and so is the beginning of a line that is the whole content.
    """

    def __init__(self, inner: BinaryIO, ended: Callable[[Cut], None]) -> None:
        super().__init__(inner)
        self._ended = ended
        self._ready, self._held = b"", b""  # whole lines, and the beginning of the next line
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
    """Result of a search for the user's inputs: the files, the paths that name no file, and the files left out."""

    files: dict[str, int]
    """For each file, its size as it is stored, in bytes (0 if unknown)."""
    missing: list[tuple[str, str]]
    """Paths that name no file, each with a message that says why."""
    own: dict[str, int]
    """For each folder, how many files in it are left out because logparse itself wrote them."""
    copies: Mapping[str, str] = MappingProxyType({})
    """For each compressed copy (``a.log.gz``) of another file, that file (``a.log``). The copies are left out."""


def find_inputs(paths: Iterable[str]) -> Inputs:
    """Return the files that these paths, folders, globs and URLs name. Each file is returned once."""
    found: dict[str, int] = {}
    missing: list[tuple[str, str]] = []
    own: dict[str, int] = {}
    for path in paths:
        left_out: list[Path] = []
        try:
            files = {"-": 0} if path == "-" else _expand(path, left_out)
        except InputError as error:
            missing.append((path, make_printable(str(error))))
            continue
        if not files:
            why = "no such file, and no file matches this name as a pattern"
            why = "the folder contains no file to read" if os.path.isdir(path) else why
            why = (
                "logparse itself wrote all files that were found; to read such a file, give the file's own name"
                if left_out
                else why
            )
            missing.append((path, f"{make_printable(path)}: {why}"))
        elif left_out:
            own[path] = len(left_out)
        found |= files
    # A link beside its file, such as latest.log, is not a second log.  A link that points to itself is kept as its own
    # real path.
    linked = {path: os.path.realpath(path) for path in found if os.path.islink(path)}
    twice = {path for path, real in linked.items() if real != path and real in found}
    files = {path: size for path, size in found.items() if path not in twice}
    copies = {path: plain for path in files if (plain := _SUFFIX.sub("", path)) != path and plain in files}
    copies = {path: plain for path, plain in copies.items() if _same_content(path, plain)}
    return Inputs({path: size for path, size in files.items() if path not in copies}, missing, own, copies)


def _same_content(packed: str, plain: str) -> bool:
    """Return True if a compressed file has the same content as another file, False if not or if one cannot be read."""
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
    """Return the files that a path of the user names, with their sizes.  The path may be a folder, a pattern or a URL.

    Files in a folder that logparse itself wrote are not returned, but added to ``left_out``.
    """
    if "://" in path:
        return _expand_url(path, left_out)
    if os.path.isdir(path):
        return dict(sorted((_make_absolute(p), _read_size(p)) for p in _walk(Path(path), left_out)))
    if os.path.lexists(path):
        return {_make_absolute(Path(path)): _read_size(path)}
    out: dict[str, int] = {}
    for match in sorted(glob.glob(path, recursive=True)):
        out |= _expand(match, left_out) if not os.path.isdir(match) or "**" not in path else {}
    return out


def _read_size(path: str | Path) -> int:
    with contextlib.suppress(OSError):  # the file is kept here, because reading it will report why it cannot be read
        return os.path.getsize(path)
    return 0


def _make_absolute(path: Path) -> str:
    return str(path.parent.resolve() / path.name if ".." in path.parts else path.absolute())


_LEFT_OUT = regex(r"/\.|/miopen-lockfiles/|db\.txt\.(?:lock|time)$")
"""Pattern of names that are left out in a folder.

The pattern matches hidden files, and two kinds of files that MIOpen keeps beside its databases: a lock, and the time of
its last write.
"""


def _walk(folder: Path, left_out: list[Path]) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, except names that match ``_LEFT_OUT`` and files of stores.

    Files that logparse itself wrote are added to ``left_out`` instead.
    """
    # Links to folders are not followed, because they may form a loop.
    for root, folders, files in os.walk(folder):
        if META in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not _LEFT_OUT.search(f"/{name}/"))
        own = read_digests(Path(root)) if LIST in files else frozenset[str]()
        for path in (Path(root, name) for name in files if not _LEFT_OUT.search(f"/{name}")):
            if own and is_own(path, own):
                left_out.append(path)
            elif path.is_file():
                yield path


def _expand_url(url: str, left_out: list[Path]) -> dict[str, int]:
    """Return the URLs of the files that a URL names, with their sizes.

    A URL names the file itself, all files in a folder, or the files that a glob matches.
    """
    place, path, query = split_url(url)
    if place == "file://":
        return _expand(path, left_out)
    wild = re.search(r"[*?\[]", path)
    folder = path[: path.rfind("/", 0, wild.start())] if wild else path.rstrip("/")
    filesystem, base = resolve(join_url(place, folder, query))
    with explain_os_errors(url, InputError):
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
    """Return True if the parts of a path match the parts of a glob. ``**`` matches any number of folders."""
    if not names or not pattern:
        return not names and not pattern
    if pattern[0] == "**":
        return any(_matches(names[n:], pattern[1:]) for n in range(len(names) + 1))
    return fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


class _Copy:
    """Temporary file with the content of a stream.

    The file is deleted together with this object, at the latest when the program ends.
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
