"""Write files into a user's folder in such a way that no reader ever sees half a file.

A full disk, an error or a kill leaves the old file. Several files change together.
"""

# Each file is written under another name, flushed, and then renamed. Of several files the first is renamed after the
# last was flushed. ``tests/test_architecture.py`` allows no other way to write such a file.

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_SPECIAL = ("/dev/", "/proc/")


class Rewrite:
    """Context that writes or replaces several files in a user's folder together: all of them, or none after an error.

    ``within`` is the folder that the user named. Raises OSError if a link in it leads to a place outside of it.
    """

    def __init__(self, within: Path | None = None) -> None:
        self._within = within
        self._made: list[tuple[str, str]] = []

    def __enter__(self) -> Rewrite:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            while self._made and kind is None:
                # The files get their names in the order in which they were added.
                temporary, place = self._made[0]
                os.replace(temporary, place)
                del self._made[0]
                _flush_folder(os.path.dirname(place))
        except OSError as failed:
            failed.filename, failed.filename2 = place, None
            raise
        finally:
            for temporary, _ in self._made:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def add(self, path: Path, data: bytes, *, executable: bool = False) -> None:
        """Write the new content of a file, which replaces the old file at the end of the ``with`` block.

        Raises OSError if that fails.  The error names the file.
        """
        with self.open(path, executable=executable) as file:
            file.write(data)

    @contextlib.contextmanager
    def open(self, path: Path, *, executable: bool = False) -> Iterator[BinaryIO]:
        """Open a file for writing. It replaces the old file at the end of the ``with`` block.

        The new file has the access mode of the old one. Raises OSError, which names the file, if that fails.
        """
        try:
            # A pipe or a device is written at once.
            if _is_special(path):
                with open(path, "wb") as file:
                    yield file
                return
            place = self._place(path)
            folder, name = os.path.split(place)
            temporary = os.path.join(folder, f".{name[:80]}.{os.urandom(4).hex()}.part")
            mode = _mode(place) | (0o111 if executable else 0)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
            self._made.append((temporary, place))
            with open(handle, "wb") as file:
                if os.path.exists(place):  # the user's mask must not change the old file's mode
                    os.chmod(temporary, mode)
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if error.filename is None or os.path.basename(os.fsdecode(error.filename)).endswith(".part"):
                error.filename = os.fspath(path)
            raise

    def _place(self, path: Path) -> str:
        """Return the path at which a file will really be written, after links were followed.

        Raises OSError if the path is a folder, a file that may not be written, or a link that leads out of ``within``.
        """
        place = os.path.realpath(path)
        if os.path.isdir(place):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if self._within is not None and not is_within(path, self._within):
            remedy = f"a link that leads out of {self._within}, to {place}; remove it, or name another folder"
            raise OSError(errno.ELOOP, remedy, os.fspath(path))
        if os.path.exists(place) and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return place


def write_file(path: Path, data: bytes, within: Path | None = None) -> None:
    """Write one file, or replace it completely.  If that fails, the old file stays unchanged.

    Raises OSError if the file cannot be written, or if the path is a link that leads out of ``within``.
    """
    with Rewrite(within) as files:
        files.add(path, data)


def is_within(path: Path, folder: Path) -> bool:
    """Return True if a path is inside a folder after all links were followed."""
    inside = os.path.realpath(folder)
    return os.path.commonpath([inside, os.path.realpath(path)]) == inside


def _is_special(path: Path) -> bool:
    """Return True if a path is a pipe, a device or the standard output, which no file can replace."""
    with contextlib.suppress(OSError):
        kind = os.stat(path).st_mode
        return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) or os.path.abspath(path).startswith(_SPECIAL)
    return False


def _mode(place: str) -> int:
    with contextlib.suppress(OSError):
        return stat.S_IMODE(os.stat(place).st_mode)
    return 0o666


def _flush_folder(folder: str) -> None:
    """Write a folder's list of files to the disk, so that renamed files keep their new names after a power cut.

    Some systems cannot do this.  The error is then ignored.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
