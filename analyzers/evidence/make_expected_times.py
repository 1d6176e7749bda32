"""Make the tables of best times that are shipped with logparse, from files such as find-dbs and aiter's tables.

    python -m analyzers.evidence.make_expected_times --source "MIOpen 3.5.1" --out FOLDER [--most 1000] FILE …

At most ``--most`` problems of each family are kept.  They are taken in turn from every group of sizes, so that all
sizes stay covered.  A family is left out if estimates from it do not hold (see ``judge_predictability``).  Each device
gets one Parquet file, and times are rounded to four digits.  If the file exists,
its rows of other sources stay.  State the
source, revision and licence of the files in expected_times/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analyzers.evidence.comparable import calibrations, own_rows
from analyzers.evidence.expected import FOLDS, Bools, Comparable, Ints, groups_of
from analyzers.evidence.expected_times import CALIBRATIONS, device_of_file, file_name
from analyzers.evidence.families import parse_sizes
from analyzers.evidence.runs import tables_to_analyse
from logparse.ingest import ingest
from logparse.store import open_store

MOST = 1000
FEWEST_KNOWN = 0.8
"""The smallest fraction of left-out GEMMs or convolutions for which an estimate must exist.

Known times are left out and then estimated from the others, to test whether the estimates are good.
"""
MOST_ABOVE = 0.075
"""The largest fraction of left-out times that may be above the upper bound that was estimated for them.

The bound promises 5 %. A little more is allowed, because the fraction varies by some per cent if few times are left
out.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="without files, only calibrations are computed again")
    parser.add_argument("--source", help="name and version of the program that wrote the files")
    parser.add_argument("--out", required=True, type=Path, help="folder of the tables")
    parser.add_argument("--most", type=int, default=MOST, help="problems of one family")
    parser.add_argument(
        "--device",
        action="append",
        metavar="'ARCH CUS'",
        help=("write tables only for this device; may be given several times"),
    )
    given = parser.parse_args()
    if not given.files:
        renew_calibrations(given.out)
        return 0
    if not given.source:
        parser.error("--source is missing")
    for device, rows in best_of_files(given.files, given.source).groupby("device"):
        if given.device is not None and device not in given.device:
            continue
        kept = keep_predictable(thin_out_times(rows.reset_index(drop=True), given.most), str(device))
        print(f"{device}: {len(kept):,} of {len(rows):,} problems")
        path = given.out / file_name(str(device))
        if path.exists():
            others = pq.read_table(path).to_pandas()
            kept = pd.concat([others[(others["source"] != given.source).to_numpy(dtype=bool)], kept], ignore_index=True)
        if len(kept):
            print(f"{path.name}: {len(kept):,} problems, {write(kept, path):,} B")
    return 0


def renew_calibrations(folder: Path) -> None:
    """Compute the calibrations in a folder's files again. That is needed after a change of ``expected.py``."""
    for path in sorted(folder.glob("*.parquet")):
        print(f"{path.name}: {write(pq.read_table(path).to_pandas(), path):,} B")


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


def thin_out_times(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Reduce a table of times: of GEMMs or convolutions that differ only in sizes, at most ``most`` are kept.

    They are taken in turn from every group of similar sizes, so that all sizes stay covered.
    """
    kept: list[Ints] = []
    for kind in parse_sizes(rows["problem"].tolist()):
        for _, places in kind.by_family():
            groups = groups_of(kind.at[places])
            order = np.argsort(groups, kind="stable")
            first = np.searchsorted(groups[order], groups[order])
            turn = np.empty(len(places), dtype=np.intp)
            turn[order] = np.arange(len(places)) - first
            kept.append(kind.rows[places[np.argsort(turn, kind="stable")[:most]]])
    return rows.iloc[np.sort(np.concatenate(kept))] if kept else rows.iloc[:0]


def keep_predictable(rows: pd.DataFrame, device: str) -> pd.DataFrame:
    """Keep measured times that are good enough to estimate the times of other sizes.

    GEMMs or convolutions that differ only in their sizes are kept or left out together. A line about them is printed.
    """
    kept: list[Ints] = []
    for kind in parse_sizes(rows["problem"].tolist()):
        base_us = kind.base_us(device)
        for family, places in kind.by_family():
            time_us = rows["time_us"].to_numpy(dtype="float64")[kind.rows[places]]
            # The test is how well some of the times can be estimated from the rest.
            good, why = judge_predictability(Comparable(kind.at[places], base_us[places], time_us))
            print(f"{device}  {family}: {len(places):,} problems {'kept' if good else 'left out'}; {why}")
            if good:
                kept.append(kind.rows[places])
    return rows.iloc[np.sort(np.concatenate(kept))] if kept else rows.iloc[:0]


def judge_predictability(family: Comparable) -> tuple[bool, str]:
    """Test how well the times of some GEMMs or convolutions can be estimated from the others.

    Known times are left out and estimated from the rest: first in groups of similar sizes, then in series (for example
    all products with one weight matrix). Returns two things:

    * True if enough of them have an estimate (``FEWEST_KNOWN``) and few are above the estimated upper bound
      (``MOST_ABOVE``)
    * a sentence with these fractions
    """
    good, said = True, []
    for name, fold in zip(("groups", "lines"), family.folds, strict=True):
        high = np.full(len(fold), np.nan)
        for number in range(FOLDS):
            rest = fold != number
            if rest.any() and not rest.all():
                high[~rest] = _select_sizes(family, rest).estimates(family.at[~rest], family.base_us[~rest]).high_us
        known = np.isfinite(high)
        above = float((family.time_us > high)[known].mean()) if known.any() else 0.0
        good = good and float(known.mean()) >= FEWEST_KNOWN and above <= MOST_ABOVE
        said.append(f"without their {name} {known.mean():.0%} known, {above:.1%} above the bound")
    return good, "; ".join(said)


def _select_sizes(family: Comparable, rows: Bools) -> Comparable:
    return Comparable(family.at[rows], family.base_us[rows], family.time_us[rows])


def write(rows: pd.DataFrame, path: Path) -> int:
    """Write the best times of one GPU and their calibrations to a Parquet file. Return its size in bytes."""
    rows = rows.sort_values(["problem", "time_us", "source"]).drop_duplicates("problem")
    times = np.array([float(f"{x:.4g}") for x in rows["time_us"]], dtype=np.float32)
    columns = {"problem": pa.array(rows["problem"], pa.string()), "time_us": pa.array(times)}
    table = pa.table(columns | {"source": pa.array(rows["source"], pa.string()).dictionary_encode()})
    # They are computed from the table, because its times are rounded.
    known = {family: asdict(x) for family, x in calibrations(device_of_file(path.name), table.to_pandas()).items()}
    table = table.replace_schema_metadata({CALIBRATIONS: json.dumps(known)})
    pq.write_table(
        table, path, compression="zstd", compression_level=19, use_dictionary=["source"], write_statistics=False
    )
    return path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
