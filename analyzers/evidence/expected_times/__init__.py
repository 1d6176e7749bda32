"""Best times of many problems that are shipped with ``logparse``: one Parquet file for each device.

``make_expected_times.py`` makes the files; README.md in this folder states where the times are from. A file is read
only when its device is needed.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SHIPPED = "shipped"
"""First word of the column ``source`` in rows with shipped times."""


@cache
def shipped(device: str) -> pd.DataFrame | None:
    """Return the best times that are shipped for a device, for example ``gfx942 304``.

    The columns are ``device, problem, time_us, source``. Returns None if nothing is shipped for the device.
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
    """Return the file name for a device's shipped times, for example ``gfx942-304.parquet`` for ``gfx942 304``."""
    return f"{device.replace(' ', '-')}.parquet"
