"""Best times of many GEMMs and convolutions that are shipped with ``logparse``: one Parquet file per kind of GPU.

``make_expected_times.py`` makes the files. README.md lists their sources.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SHIPPED = "shipped"
"""First word of the column ``source``. It marks a time that is shipped with logparse, not measured by the user."""


@cache
def shipped(device: str) -> pd.DataFrame | None:
    """Return the table of best times that comes with logparse for one kind of GPU. None if there is no such table.

    ``device`` is, for example, ``gfx942 304`` (architecture and number of compute units). The columns are ``device,
    problem, time_us, source``.
    """
    import pyarrow.parquet as pq

    place = files(__name__) / file_name(device)
    if not place.is_file():
        return None
    with as_file(place) as path:
        table = pq.read_table(path)
    rows: pd.DataFrame = table.to_pandas()
    rows["source"] = SHIPPED + " " + rows["source"].astype(str)
    return rows.assign(device=device)[["device", "problem", "time_us", "source"]]


def file_name(device: str) -> str:
    """Return the name of the file with the shipped times of a GPU: ``gfx942-304.parquet`` for ``gfx942 304``."""
    return f"{device.replace(' ', '-')}.parquet"
