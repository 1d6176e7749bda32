"""Tests of modules and names that are imported only when they are first used."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

from logparse import lazy


@pytest.fixture
def heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a small module that stands for a large library, and return its name. Nothing has imported it yet."""
    (tmp_path / "some_heavy_library.py").write_text("value = [1]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_heavy_library", raising=False)
    return "some_heavy_library"


def test_a_module_is_imported_at_the_first_use_of_an_attribute(heavy: str) -> None:
    module = lazy.Module(heavy)
    assert heavy not in sys.modules
    assert module.value == [1]
    assert module.value is sys.modules[heavy].value
    with pytest.raises(AttributeError, match="some_heavy_library"):
        _ = module.other


def test_an_attribute_that_is_replaced_is_replaced_here(heavy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = lazy.Module(heavy)
    assert module.value == [1]
    monkeypatch.setattr(f"{heavy}.value", 2)
    assert module.value == 2


def test_a_copy_in_another_process_is_the_module_itself(heavy: str) -> None:
    copy = pickle.loads(pickle.dumps(lazy.Module(heavy)))
    assert copy is sys.modules[heavy]


@pytest.mark.parametrize("name", ["duckdb", "pa", "ds", "pq", "pd"])
def test_the_libraries_are_those_that_type_checkers_see(name: str) -> None:
    import duckdb
    import pandas
    import pyarrow.dataset
    import pyarrow.parquet

    seen = {"duckdb": duckdb, "pd": pandas, "pa": pyarrow, "ds": pyarrow.dataset, "pq": pyarrow.parquet}
    stands_for = getattr(lazy, name)
    assert sys.modules[stands_for.__name__] is seen[name]


def test_members_are_found_once(heavy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, made = ModuleType("some_package"), []
    monkeypatch.setitem(sys.modules, "some_package", package)
    find = lazy.members("some_package", {"value": heavy, "MADE": lambda: made.append(1) or tuple(made)})
    package.__getattr__ = find  # type: ignore[method-assign]
    assert heavy not in sys.modules
    assert package.value == [1]
    assert (package.MADE, package.MADE, made) == ((1,), (1,), [1])
    assert vars(package)["value"] == [1]
    with pytest.raises(AttributeError, match="module 'some_package' has no attribute 'other'"):
        _ = package.other
