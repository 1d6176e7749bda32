"""Tests that find slow weight gradients in the databases of solver times that MIOpen ships for two GPUs.

The expected findings are computed by a few lines that do not use logparse.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from analyzers.evidence.passes import find_best_pass_times
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import slow_wrw
from tests.analyzers.build import tables
from tests.conftest import CORPUS


def records(path: Path) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
    """Read a MIOpen database and yield the layer, the direction and the solver times of each line.

    The times are pairs of (solver, ms).
    """
    # The layer is the text before "=", without the direction and with the sizes of the forward pass.
    with bz2.open(path, "rt") as file:
        for line in file:
            key, _, values = line.rstrip("\n").partition("=")
            cells = key.split("-")
            sizes = 4 if "x" in cells[4] else 3  # c and two or three spatial sizes stand before the filter
            last = cells[-1].split("_")
            direction, options = last[0], "_".join(last[1:])
            x, y = cells[:sizes], cells[sizes + 1 : 2 * sizes + 1]
            if direction != "F":
                x, y = y, x
            layer = "-".join([*x, cells[sizes], *y, *cells[2 * sizes + 1 : -1], options])
            items = [item.partition(":") for item in values.split(";")]
            yield layer, direction, [(name, float(rest.split(",")[0])) for name, _, rest in items]


def load(name: str) -> Tables:
    path = CORPUS / "miopen" / name
    if not path.exists():
        pytest.skip("the corpus is not here")
    problems, measured = [], []
    for layer, direction, items in records(path):
        text = f"conv {direction} {layer}"  # the beginning of the model's texts
        problems.append((text, direction, layer, 0))
        measured += [(text, f"miopen:{solver}", ms * 1e3) for solver, ms in items]
    rows = pd.DataFrame(measured, columns=["problem", "solution", "time_us"])
    rows = rows.assign(source_id="db", run="r", origin="find-db", kind="conv", library="miopen")
    rows["status"] = ["ok" if time > 0 else "no_time" for time in rows["time_us"]]
    empty = tables()
    convs = pd.DataFrame(problems, columns=["problem", "direction", "layer", "flops"])
    return Tables(**{**vars(empty), "conv_problems": convs, "measurements": rows})


def test_mi300x() -> None:
    given = load("gfx942130.HIP.fdb.txt.bz2")
    assert given.conv_problems["direction"].value_counts().to_dict() == {"F": 3391, "W": 3137, "B": 3072}
    w = slow_wrw.backward_weights(find_best_pass_times(given), Settings())
    total = slow_wrw.totals(w)
    assert (total["problems"], total["slow"]) == (3137, 299)
    layers = given.conv_problems.groupby("direction")["layer"].agg(set)
    assert w["f_us"].notna().sum() == len(layers["W"] & layers["F"])
    assert w["b_us"].notna().sum() == len(layers["W"] & layers["B"])
    assert total["held_us"] / 1e3 == pytest.approx(581.9, abs=0.05)
    assert total["w_us"] / 1e3 == pytest.approx(948.6, abs=0.05)
    assert total["recoverable_us"] / 1e3 == pytest.approx(520.0, abs=0.05)


@pytest.mark.nightly
def test_mi210() -> None:
    w = slow_wrw.backward_weights(find_best_pass_times(load("gfx90a68.HIP.fdb.txt.bz2")), Settings())
    total = slow_wrw.totals(w)
    assert total["slow"] == 8612
