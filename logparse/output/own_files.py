"""Files that logparse wrote into a folder (overrides, lists of problems, answers).

An ingest of the folder leaves them out.  They hold calls and times of other files, so these would be counted twice.  A
hidden file beside them lists their SHA-256, as ``sha256sum`` prints it.  A file that its library or a person has
changed since is read like any other file.  A file that is named by its own path is read, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from logparse.output.files import write_file

LIST = ".logparse-written"
_LARGEST = 1 << 28
"""Maximum bytes of a file that logparse writes.  A larger file is not read to compare its digest."""


def remember(paths: Iterable[Path]) -> None:
    """Add files that were just written to the lists in their folders.

    If a folder cannot be written, it gets no list.
    """
    for path in paths:
        with suppress(OSError, UnicodeError):
            if not path.is_file():  # it is a pipe or device
                continue
            place, name = path.parent / LIST, f"  {path.name}\n"
            known = place.read_text(encoding="utf-8").splitlines(keepends=True) if place.exists() else []
            others = "".join(line for line in known if not line.endswith(name))
            write_file(place, f"{others}{_digest(path)}{name}".encode(), within=path.parent)


def listed(folder: Path) -> frozenset[str]:
    """Return the digests of the files that were written into a folder.

    For a damaged list, return the digests that can be read.
    """
    with suppress(OSError):
        text = (folder / LIST).read_text(encoding="utf-8", errors="replace")
        return frozenset(line.partition(" ")[0] for line in text.splitlines())
    return frozenset()


def is_own(path: Path, digests: frozenset[str]) -> bool:
    """Tell whether a file has one of the digests, so that its content is as logparse wrote it.  Its name may differ."""
    with suppress(OSError):
        return path.stat().st_size <= _LARGEST and _digest(path) in digests
    return False


def _digest(path: Path) -> str:
    import hashlib  # imported here, because few commands need it

    return hashlib.sha256(path.read_bytes()).hexdigest()
