"""Find the test files that quote a printed text: ``python -m tests.saying 'may save more'`` prints their paths.

``make saying WORDS='may save more'`` runs them. A test quotes a text if the text is in its code, or in a stored result
(golden) with which it compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
_JOINED = re.compile(r'"\s*\n\s*f?"')
"""Pattern of the gap between two string literals that Python joins."""
_FOLDER = re.compile(r'Path\(__file__\)\.parent((?: / "[^"]+")+)')
_STORED = {"golden", "goldens", "screens"}
"""Names of the folders with stored results."""


def quotes(path: Path, words: str) -> bool:
    """Tell whether a file contains these words. Line breaks between words do not matter."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return " ".join(words.split()) in " ".join(_JOINED.sub("", text).split())


def stored_in(test: Path) -> Iterator[Path]:
    """Yield the folders with stored results that a test file names, as in ``Path(__file__).parent / "golden"``."""
    for names in _FOLDER.findall(test.read_text(encoding="utf-8")):
        folder = test.parent.joinpath(*re.findall('"(.+?)"', names))
        if _STORED.intersection(folder.relative_to(TESTS).parts):
            yield folder


def tests_of(stored: Path) -> list[Path]:
    """Return the test files that compare with a stored result, because they name its innermost folder."""
    naming = [(folder, test) for test in TESTS.rglob("test_*.py") for folder in stored_in(test)]
    inner = max((len(folder.parts) for folder, _ in naming if folder in stored.parents), default=0)
    return [test for folder, test in naming if folder in stored.parents and len(folder.parts) == inner]


def quoting(words: str) -> list[Path]:
    """Return the sorted paths of all test files that quote these words. Raises ValueError if there are no words."""
    if not words.strip():
        raise ValueError('name a few words of the text, for example: make saying WORDS="may save more"')
    found = {path for path in TESTS.rglob("test_*.py") if quotes(path, words)}
    for path in TESTS.rglob("*"):
        if path.is_file() and _STORED.intersection(path.relative_to(TESTS).parts) and quotes(path, words):
            found.update(tests_of(path))
    pages = (TESTS.parent / "README.md", *(TESTS.parent / "docs").glob("*.md"))
    if any(quotes(path, words) for path in pages):
        found.add(TESTS / "test_docs.py")
    return sorted(found)


if __name__ == "__main__":
    paths = quoting(" ".join(sys.argv[1:]))
    print("\n".join(str(path.relative_to(TESTS.parent)) for path in paths))
    sys.exit(0 if paths else "no test quotes these words")
