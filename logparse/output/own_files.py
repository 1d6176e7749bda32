"""Remember which files logparse itself wrote into a folder, so that reading the folder later leaves them out.

Such files (overrides, lists of problems, answers) contain calls and times of other files, so these would be counted
twice.  A hidden file in the folder lists their SHA-256, in the format of ``sha256sum``.  If a library or a person has
changed such a file since, it is read like any other file.  A file is also read if the user names the file itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from logparse.output.files import write_file

LIST = ".logparse-written"
_LARGEST = 1 << 28
"""Size in bytes of the largest file that logparse writes.  A larger file need not be compared with the list."""


def remember(paths: Iterable[Path]) -> None:
    """Note in a list that logparse itself has just written these files.

    The list is a file in the folder of the files. If a folder cannot be written, it gets no list.
    """
    for path in paths:
        with suppress(OSError, UnicodeError):
            if not path.is_file():  # it is a pipe or device
                continue
            place, name = path.parent / LIST, f"  {path.name}\n"
            known = place.read_text(encoding="utf-8").splitlines(keepends=True) if place.exists() else []
            others = "".join(line for line in known if not line.endswith(name))
            write_file(place, f"{others}{_digest(path)}{name}".encode(), within=path.parent)


def read_digests(folder: Path) -> frozenset[str]:
    """Return the digests (SHA-256) of the files that logparse wrote into a folder.

    If the list is damaged, the digests that can be read are returned.
    """
    with suppress(OSError):
        text = (folder / LIST).read_text(encoding="utf-8", errors="replace")
        return frozenset(line.partition(" ")[0] for line in text.splitlines())
    return frozenset()


def is_own(path: Path, digests: frozenset[str]) -> bool:
    """Return True if logparse wrote the file and nobody has changed it since.

    The file's digest must be one of ``digests``.  Its name may differ.
    """
    with suppress(OSError):
        return path.stat().st_size <= _LARGEST and _digest(path) in digests
    return False


def _digest(path: Path) -> str:
    import hashlib  # imported here, because few commands need it

    return hashlib.sha256(path.read_bytes()).hexdigest()
