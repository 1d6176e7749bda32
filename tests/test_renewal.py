"""Tests of pytest's option ``--renew-goldens``, which overwrites and removes golden files (expected outputs).

Without the option, a result that differs from its golden file is a failure.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import Goldens


def test_a_difference_fails_and_names_the_command(tmp_path: Path) -> None:
    golden, path = Goldens(False, pytest.fail), tmp_path / "a.txt"
    with pytest.raises(AssertionError, match=r"does not exist; after a wanted change: make goldens"):
        golden.check(path, "new\n")
    path.write_bytes(b"old\r\n")
    with pytest.raises(AssertionError, match=r"a\.txt; after a wanted change: make goldens"):
        golden.check(path, "old\n")
    golden.check(path, "old\r\n")
    golden.check(path, b"old\r\n")
    assert path.read_bytes() == b"old\r\n"


def test_renewal_writes_what_differs_and_removes_what_is_left_over(tmp_path: Path) -> None:
    changed: list[str] = []
    golden = Goldens(True, lambda path: changed.append(path.name))
    same, other, left = (tmp_path / "folder" / name for name in ("same.txt", "other.txt", "left.txt"))
    same.parent.mkdir()
    same.write_text("same\n", encoding="utf-8")
    left.write_text("left\n", encoding="utf-8")
    golden.check(same, "same\n")
    golden.check(other, "µs\n")
    golden.check_names(same.parent, [same, other])
    assert changed == ["other.txt", "left.txt"]
    assert other.read_text(encoding="utf-8") == "µs\n"
    assert not left.exists()


def test_a_file_that_is_left_over_fails(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.golden").touch()
    golden = Goldens(False, pytest.fail)
    golden.check_names(tmp_path, [tmp_path / "a.txt"], "*.txt")
    with pytest.raises(AssertionError, match="make goldens"):
        golden.check_names(tmp_path, [tmp_path / "a.txt"])
