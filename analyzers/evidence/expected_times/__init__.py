"""The shipped best times: one Parquet file per device.

``make_expected_times.py`` makes the files; README.md beside them states their sources. A file is read only if its
device is asked for.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SHIPPED = "shipped"
"""First word of the column ``source`` of the shipped times."""


@cache
def shipped(device: str) -> pd.DataFrame | None:
    """Return the shipped best times of a device (``gfx942 304``): columns ``device, problem, time_us, source``.

    Return None if no table of the device is shipped.
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
    """Return the name of a device's file: ``gfx942-304.parquet``."""
    return f"{device.replace(' ', '-')}.parquet"
