"""Make the tables of best times that are shipped with logparse, from files such as find-dbs and aiter's tables.

    python -m analyzers.evidence.make_expected_times --source "MIOpen 3.5.1" --out FOLDER [--most 1000] FILE …

The files must contain the winners of a search, in a format that ``logparse ingest`` reads.  At most ``--most`` GEMMs or
convolutions that differ only in sizes are kept.  They are taken in turn from every group of similar sizes, so that all
sizes stay covered.  Each device gets one Parquet file, and times are rounded to four digits.  State the source,
revision and licence of the files in expected_times/README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analyzers.evidence.comparable import own_rows
from analyzers.evidence.expected import Ints, groups_of
from analyzers.evidence.expected_times import file_name
from analyzers.evidence.families import sized
from analyzers.evidence.runs import tables_to_analyse
from logparse.ingest import ingest
from logparse.store import open_store

MOST = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--source", required=True, help="what wrote the files, with its version")
    parser.add_argument("--out", required=True, type=Path, help="folder of the tables")
    parser.add_argument("--most", type=int, default=MOST, help="problems of one family")
    given = parser.parse_args()
    for device, rows in best_of_files(given.files, given.source).groupby("device"):
        kept = thinned(rows, given.most)
        print(
            f"{device}: {len(kept):,} of {len(rows):,} problems, {write(kept, given.out / file_name(str(device))):,} B"
        )
    return 0


def best_of_files(files: list[str], source: str) -> pd.DataFrame:
    """Read the files and return the best time of each GEMM and convolution on each kind of GPU.

    The columns are ``device, problem, time_us, source``. If several files have a time, the shortest is kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder, create=True)
        ingest(files, store)
        rows = own_rows(tables_to_analyse(store)).assign(source=source)
    rows = rows.sort_values(["device", "problem", "time_us"]).drop_duplicates(["device", "problem"])
    return rows.reset_index(drop=True)


def thinned(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Keep at most ``most`` of the GEMMs or convolutions that differ only in sizes, so that the table stays small.

    They are taken in turn from every group of similar sizes, so that all sizes stay covered.
    """
    kept: list[Ints] = []
    for kind in sized(rows["problem"].tolist()):
        for _, places in kind.by_family():
            groups = groups_of(kind.at[places])
            order = np.argsort(groups, kind="stable")
            first = np.searchsorted(groups[order], groups[order])
            turn = np.empty(len(places), dtype=np.intp)
            turn[order] = np.arange(len(places)) - first
            kept.append(kind.rows[places[np.argsort(turn, kind="stable")[:most]]])
    return rows.iloc[np.sort(np.concatenate(kept))] if kept else rows.iloc[:0]


def write(rows: pd.DataFrame, path: Path) -> int:
    """Write the best times of one GPU to a Parquet file. Return the size of the file in bytes."""
    times = np.array([float(f"{x:.4g}") for x in rows["time_us"]], dtype=np.float32)
    columns = {"problem": pa.array(rows["problem"], pa.string()), "time_us": pa.array(times)}
    table = pa.table(columns | {"source": pa.array(rows["source"], pa.string()).dictionary_encode()})
    pq.write_table(
        table, path, compression="zstd", compression_level=19, use_dictionary=["source"], write_statistics=False
    )
    return path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
