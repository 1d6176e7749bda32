"""Tests of the search for tests that quote a printed text (``make saying``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import saying

HERE = "GOLDEN = Path(__file__).parent"


def test_code_stored_results_and_pages_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``make saying`` finds a text in code even if the code breaks its lines or joins it from several literals.

    If the text is in a stored result (golden), the tests that name the folder of this result are found.
    """
    tests = tmp_path / "tests"
    files = {
        "tests/a/test_code.py": 'assert text == (\n    "keep the "\n    f"GPU busy"\n)\n',
        "tests/a/test_golden.py": f'{HERE} / "golden"\n',
        "tests/b/test_stored.py": f'{HERE} / "golden" / "screen"\n',
        "tests/b/test_other.py": f'{HERE} / "golden"\n',
        "tests/b/golden/screen/case.txt": "list: keep the\n    GPU busy\n",
        "tests/test_screens.py": f'{HERE} / "screens"\n',
        "tests/screens/case.txt": "nothing\n",
        "tests/notes.txt": "keep the GPU busy, but no stored result\n",
        "README.md": "Keep calm.\n",
        "docs/page.md": "as printed: keep the GPU busy\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(saying, "TESTS", tests)
    found = [str(path.relative_to(tests)) for path in saying.quoting("keep the GPU busy")]
    assert found == ["a/test_code.py", "b/test_stored.py", "test_docs.py"]
    assert saying.quoting("nothing") == [tests / "test_screens.py"]
    assert saying.quoting("words of no test") == []


def test_every_stored_result_has_a_test_that_names_its_folder() -> None:
    files = [x.relative_to(saying.TESTS) for x in saying.TESTS.rglob("*") if x.is_file()]
    stored = {saying.TESTS / x.parent for x in files if {"golden", "goldens", "screens"}.intersection(x.parts[:-1])}
    assert stored
    assert [str(x) for x in stored if not saying.tests_of(x / "case.txt")] == []


def test_no_words_are_refused() -> None:
    with pytest.raises(ValueError, match="name a few words"):
        saying.quoting(" ")
