"""Test that the notebook's cells run in order, without Jupyter."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import plotly.graph_objects as go
import pytest

from logparse.api import Run
from tests.conftest import ROOT

NOTEBOOK = ROOT / "docs" / "explore.ipynb"


def test_cells_run_and_every_chart_has_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs")
    names: dict[str, object] = {}
    figures = 0
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "the notebook is kept without outputs"
        tree = ast.parse(cell["source"])
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        if last is not None:
            assert isinstance(last, ast.Expr)
            shown = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
            figures += isinstance(shown, go.Figure)
            if isinstance(shown, Run):
                assert len(repr(shown).splitlines()) == 1
                assert "<table" in shown._repr_html_()
            else:
                assert len(shown.data if isinstance(shown, go.Figure) else shown)
    assert figures == 4
    assert Path(str(names["folder"])).is_dir()
