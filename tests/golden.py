"""Compare results with golden files: files in the repository with the expected output, which a person has reviewed.

``make goldens`` overwrites the files that differ. Then review the diff.
"""

# make goldens (pytest --renew-goldens) runs only the tests that use the fixture golden. They overwrite the files that
# differ, and remove the files that no test makes any more.

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

OPTION = "--renew-goldens"
HINT = "after a wanted change: make goldens, then review the diff"


class Goldens:
    """Compares results with golden files (reviewed expected outputs), or overwrites these files with the results.

    The function ``on_write`` is called with the path of each file that was written or removed.
    """

    def __init__(self, renew: bool, on_write: Callable[[Path], object]) -> None:
        self._renew, self._on_write = renew, on_write

    def check(self, path: Path, made: str | bytes) -> None:
        """Assert that the golden file contains ``made``: a text, stored as UTF-8, or bytes.

        If the golden files are being renewed, the file is first overwritten with ``made``.
        """
        is_text = isinstance(made, str)
        if self._renew and not (path.is_file() and _read(path, is_text) == made):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.encode() if isinstance(made, str) else made)
            self._on_write(path)
        assert path.is_file(), f"{path} does not exist; {HINT}"
        reviewed = _read(path, is_text)
        assert made == reviewed, f"{path.name}; {HINT}"

    def check_names(self, folder: Path, wanted: Iterable[Path], pattern: str = "*") -> None:
        """Assert that the files in the folder that match the pattern are exactly the files in ``wanted``.

        If the golden files are being renewed, other files are first removed.
        """
        wanted = set(wanted)
        if self._renew:
            for path in _files(folder, pattern) - wanted:
                path.unlink()
                self._on_write(path)
        found = _files(folder, pattern)
        assert found == wanted, HINT


def _read(path: Path, is_text: bool) -> str | bytes:
    data = path.read_bytes()
    return data.decode() if is_text else data


def _files(folder: Path, pattern: str) -> set[Path]:
    return {path for path in folder.glob(pattern) if path.is_file()}
