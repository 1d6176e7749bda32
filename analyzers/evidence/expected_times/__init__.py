"""Best times of many GEMMs and convolutions that are shipped with ``logparse``: one Parquet file per kind of GPU.

``make_expected_times.py`` makes the files. README.md lists their sources.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from analyzers.evidence.expected import Calibration

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SHIPPED = "shipped"
"""First word of the column ``source``. It marks a time that is shipped with logparse, not measured by the user."""
CALIBRATIONS = b"calibrations"
"""Key in the metadata of a file. Its value is JSON with the fields of ``Calibration`` for each family."""


@cache
def shipped(device: str) -> pd.DataFrame | None:
    """Return the table of best times that comes with logparse for one kind of GPU. None if there is no such table.

    ``device`` is, for example, ``gfx942 304`` (architecture and number of compute units). The columns are ``device,
    problem, time_us, source``. The rows are sorted by ``problem``, and no problem occurs twice.
    """
    table = _table(device)
    if table is None:
        return None
    rows: pd.DataFrame = table.to_pandas()
    rows["source"] = SHIPPED + " " + rows["source"].astype(str)
    return rows.assign(device=device)[["device", "problem", "time_us", "source"]]


def calibrations(device: str) -> dict[str, Calibration]:
    """Return how wrong estimates from the shipped times of one kind of GPU are, for each family of problems.

    ``make_expected_times.py`` computes them, because each command that needs them would compute the same.
    """
    table = _table(device)
    kept = json.loads((table.schema.metadata or {}).get(CALIBRATIONS, b"{}")) if table is not None else {}
    return {family: Calibration(**values) for family, values in kept.items()}


@cache
def _table(device: str) -> pa.Table | None:
    import pyarrow.parquet as pq

    place = files(__name__) / file_name(device)
    if not place.is_file():
        return None
    with as_file(place) as path:
        return pq.read_table(path)


def file_name(device: str) -> str:
    """Return the name of the file with the shipped times of a GPU: ``gfx942-304.parquet`` for ``gfx942 304``."""
    return f"{device.replace(' ', '-')}.parquet"


def device_of_file(name: str) -> str:
    """Return the GPU whose times are in the file of that name: ``gfx942 304`` for ``gfx942-304.parquet``."""
    return name.removesuffix(".parquet").replace("-", " ")
