"""Find out where each record of a find-db (MIOpen's solver database) begins, and collect the numbers in it as columns.

A module in C does this for records of the usual form.  Without it all records are read one by one, which takes about
twenty times longer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

VERSION = 6
"""Version of the functions in the C module.  A module that has another version is not used."""
SIZES = ("n", "c", "d", "h", "w", "k", "filter_d", "filter_h", "filter_w", "out_d", "out_h", "out_w")
"""The sizes at the beginning of a key in MIOpen's solver database, in the order of the rows of ``Index.sizes``."""


def native_reader() -> ModuleType | None:
    """Return the module in C that reads MIOpen's solver databases (find-dbs) fast, or None if it cannot be used.

    It cannot be used if it was not built, has another VERSION, or is switched off with LOGPARSE_NATIVE=0.
    """
    if os.environ.get("LOGPARSE_NATIVE", "1") == "0":
        return None
    try:
        from logparse.libraries.miopen import _find_db
    except ImportError:
        return None
    return _find_db if getattr(_find_db, "VERSION", None) == VERSION else None


@dataclass(frozen=True, eq=False)
class Index:
    """An index of MIOpen's solver database, as columns: one value per line, or one per entry (a solver).

    Lines are counted from 0.  Columns with a value per line:

    * ``starts``: the offset of the line in bytes.  One more value at the end says where a next line would begin.
    * ``equals``: the length of the key in bytes.  It is -1 or 0 if the line has no key.
    * ``first``: the line number of the first record with this key.
    * ``tail``: the index of the key's end in ``tails``.  It is -1 if the record does not have the usual form.  The
      entries of such a record are not in the index.
    * ``begins``: the index of the line's first entry.  One more value at the end is the number of all entries.
    * ``hash``: a hash of the key.  It differs from process to process.
    * ``sizes``: one row per name in ``SIZES``.  Input and output sizes have been swapped back (see ``problem_key``).

    Columns with a value per entry:

    * ``solver`` and ``algorithm``: indices in ``solvers`` and ``algorithms``.
    * ``at``: the offset of the entry in the file, in bytes.
    * ``time_us``: the time in µs.  It is 0 if the file has a 0.
    * ``workspace_bytes``: the workspace in bytes.

    A record has the usual form if it meets these conditions:

    * It is the first record of its key.
    * The flops of the key's sizes fit into 64 bits.
    * Its entries have the form ``solver:ms,workspace,algorithm``, and their solvers differ.

    ``tails`` holds the distinct ends of keys: the number of dimensions (2 or 3) and the text behind the batch size. The
    index does not check whether MIOpen knows the tails, solvers and algorithms.
    """

    starts: npt.NDArray[np.int64]
    equals: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    tail: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int32]
    hash: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int64]
    solver: npt.NDArray[np.int32]
    algorithm: npt.NDArray[np.int32]
    at: npt.NDArray[np.int64]
    time_us: npt.NDArray[np.float64]
    workspace_bytes: npt.NDArray[np.int64]
    solvers: Sequence[str]
    algorithms: Sequence[str]
    tails: Sequence[tuple[int, str]]

    @cached_property
    def line(self) -> npt.NDArray[np.int32]:
        """For each entry of the database, the number of its line.  Lines are counted from 0."""
        return np.repeat(np.arange(len(self.tail), dtype=np.int32), np.diff(self.begins))


_TYPES = (np.int64, *(np.int32,) * 4, np.uint64, np.int64, np.int32, np.int32, np.int64, np.float64, np.int64)


def index_of(data: bytes, *, whole: bool = True) -> Index:
    """Build the index of a find-db (MIOpen's solver database): where its records are, and the numbers in them.

    * A file of 2 GiB − 1 byte or more is too large for the module in C.  All its records are then read one by one.
    * If ``whole`` is False, ``data`` is only a piece of a file.  Each record is then taken as the first of its key, and
      the caller has to look for earlier records.
    """
    reader = native_reader()
    if reader is None or len(data) >= (1 << 31) - 1:
        return _without_records(data)
    *columns, solvers, algorithms, tails = reader.index(data, whole)
    fields: list[Any] = [*map(np.frombuffer, columns, _TYPES), solvers, algorithms, tails]
    fields[6] = fields[6].reshape(len(SIZES), -1)
    return Index(*fields)


def _without_records(data: bytes) -> Index:
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    split = [line.partition(b"=") for line in lines]
    firsts: dict[bytes, int] = {}
    first = [firsts.setdefault(key, at) if equals and key else at for at, (key, equals, _) in enumerate(split)]
    return Index(
        starts=np.cumsum([0, *(len(line) + 1 for line in lines)]),
        equals=np.array([len(key) if equals else -1 for key, equals, _ in split], np.int32),
        first=np.array(first, np.int32),
        tail=np.full(len(lines), -1, np.int32),
        begins=np.zeros(len(lines) + 1, np.int32),
        hash=np.array([hash(key) for key, _, _ in split], np.int64).view(np.uint64),
        sizes=np.zeros((len(SIZES), len(lines)), np.int64),
        **{name: np.zeros(0, np.int32) for name in ("solver", "algorithm")},
        at=np.zeros(0, np.int64),
        time_us=np.zeros(0, np.float64),
        workspace_bytes=np.zeros(0, np.int64),
        solvers=[],
        algorithms=[],
        tails=[],
    )
