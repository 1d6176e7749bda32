"""The shipped best times: one Parquet file per device.

``make_expected_times.py`` makes the files; README.md beside them states their sources. A file is read only if its
device is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SHIPPED = "shipped"
"""First word of the column ``source`` of the shipped times."""


def shipped(devices: Sequence[str]) -> pd.DataFrame:
    """Return the shipped best times of the devices (``gfx942 304``): columns ``device, problem, time_us, source``."""
    import pandas as pd

    empty = pd.DataFrame({"device": [], "problem": [], "source": []}, dtype=object).assign(
        time_us=pd.Series(dtype=float)
    )
    found = [_of_device(device) for device in devices]
    return pd.concat([x for x in found if x is not None and len(x)] or [empty], ignore_index=True)


def file_name(device: str) -> str:
    """Return the name of a device's file: ``gfx942-304.parquet``."""
    return f"{device.replace(' ', '-')}.parquet"


@cache
def _of_device(device: str) -> pd.DataFrame | None:
    import pyarrow.parquet as pq

    place = files(__name__) / file_name(device)
    if not place.is_file():
        return None
    with as_file(place) as path:
        table = pq.read_table(path)
    rows: pd.DataFrame = table.to_pandas()
    rows["source"] = SHIPPED + " " + rows["source"].astype(str)
    return rows.assign(device=device)[["device", "problem", "time_us", "source"]]
