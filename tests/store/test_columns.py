"""Tests that columns which logparse builds without pandas equal the columns that Arrow builds from a DataFrame."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.store.columns import column, numbers, table
from tests.conftest import ROOT

INT = st.integers(-(2**31), 2**31 - 1)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=5)),
    (pa.int32(), INT),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("s"), INT),
    (pa.list_(pa.float64()), st.lists(st.floats(allow_nan=False), max_size=3)),
    (pa.list_(pa.string()), st.lists(st.text(max_size=3), max_size=3)),
    (
        pa.list_(pa.struct({"number": pa.int64(), "name": pa.string()})),
        st.lists(
            st.none() | st.fixed_dictionaries({"number": st.none() | INT, "name": st.text(max_size=3)}), max_size=3
        ),
    ),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda x: str(x) if isinstance(x, pa.DataType) else "")
def test_a_column_is_arrows_own(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(st.none() | values, max_size=20))
    def holds(given_values: list[Any]) -> None:
        made = column(given_values, kind)
        made.validate(full=True)
        assert made.equals(pa.array(given_values, kind))

    holds()


def test_rows_become_a_table_and_missing_names_are_unknown() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert table([{"a": 1}, {"b": "x", "a": None}], schema).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    assert table([], schema).num_rows == 0


def test_numbers_have_one_value_for_unknown() -> None:
    assert numbers(np.array([3, -1, 5]), -1).to_pylist() == [3, None, 5]
    assert numbers(np.array([3, 4])[::-1], -1).to_pylist() == [4, 3]


def test_an_ingest_imports_no_pandas_and_no_compute(tmp_path: Path) -> None:
    sample = ROOT / "sample_logs" / "hipblaslt"
    code = (
        "import sys\nfrom logparse.ingest import ingest\nfrom logparse.store import open_store\n"
        "for _ in range(2):\n  print([r.state for r in ingest(sys.argv[2:], open_store(sys.argv[1], create=True))])\n"
        "print({'pandas', 'pyarrow.compute', 'pyarrow.dataset'} & set(sys.modules))"
    )
    logs = [str(path) for path in sorted(sample.rglob("*.log"))]
    command = [sys.executable, "-c", code, str(tmp_path / "s"), *logs[:1]]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[:3] == ["['new']", "['unchanged']", "set()"]
