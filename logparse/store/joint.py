"""Store several small input files together, so that their rows are in the same Parquet files.

A small input file gives only a few rows. If each had Parquet files of its own, writing these, and opening them for each
question, would take a hundred times as long. Each input file still has its own row file (the small file that makes its
rows valid).

The reading of such an input file is named ``<writer>.<number>``. The Parquet files with its rows are named after the
writer. A row is visible only if the reading to which it belongs has a row file. In merged files it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa

from logparse.errors import StoreError
from logparse.location import delete_file
from logparse.store.columns import table
from logparse.store.digests import Part, seal_table
from logparse.store.manifest import record_forgotten
from logparse.store.parts import JOINT, Attempt, Place, row_file
from logparse.store.pending import Pending, all_rows
from logparse.store.schema import COMMIT_SCHEMA, Commit, commit_row

_ROWS = 50_000
"""Number of rows in memory above which they are written to files."""
_PUT_TOGETHER = 16  # row files that are written at a time, because each waits for the disk or for another machine


class JointAttempt(Attempt):
    """Collects the data of one small input file while it is read.

    The data of many such files are stored together by ``JointAttempts``, so this object writes no file itself.
    """

    def __init__(self, name: str, group: JointAttempts) -> None:
        super().__init__(name, group.place)
        self._group = group

    def write(self, pending: Pending) -> None:
        self._group.take_pending(pending)

    def commit(self, row: Commit) -> bool:
        """Note that this small input file was read to its end. ``JointAttempts.commit`` makes its data visible later.

        ``row`` describes what was read. Always returns True.
        """
        self._group.take_row(self, row)
        # It is not known yet whether the store already has this input file.
        return True


class JointAttempts:
    """Stores the data of many small input files together, because separate Parquet files would be slow.

    * ``name`` begins the names of the Parquet files.
    * ``merged_attempts()`` returns which data ``logparse compact`` has merged meanwhile.
    """

    def __init__(self, name: str, place: Place, merged_attempts: Callable[[], Set[str]]) -> None:
        self.place = place
        self._writer = Attempt(name, place)
        self._merged_attempts = merged_attempts
        self._pending: list[Pending] = []
        self._taken: list[tuple[Attempt, Commit]] = []
        self._parts_of: dict[str, list[Part]] = {}  # joint parts that hold rows of each attempt
        self._number = self._row_count = 0
        self._error: OSError | None = None

    # The input files are read one after the other.
    def attempt(self) -> JointAttempt:
        """Begin to read the next small input file. Return the object that collects its data.

        Nobody can see the data before ``commit`` is called, which writes the data of all these input files together.
        """
        self._number += 1
        return JointAttempt(f"{self._writer.name}{JOINT}{self._number}", self)

    def take_pending(self, pending: Pending) -> None:
        """Keep the records of an input file in memory. Parquet files are written when there are enough records.

        Raises OSError if the files cannot be written.
        """
        self._pending.append(pending)
        self._row_count += pending.row_count
        if self._row_count > _ROWS:
            self._write()

    def take_row(self, attempt: Attempt, row: Commit) -> None:
        """Keep in memory the entry which says that an input file was read. ``commit`` writes the entries of all files.

        Readers of the store show the rows of an input file only after its entry was written.
        """
        self._taken.append((attempt, row))

    def commit(self) -> tuple[pa.Table, dict[str, str | bool]]:
        """Write all records that are still in memory, and then make the rows of each input file visible.

        A small file is written for each input file, which makes its rows visible. Returns a table with one row for each
        small file, and a result for each input file by its path:

        * True: its last small file is new.
        * False: the small file already existed.
        * A text: the reason why the rows of the input file are not visible.

        If an input file has several small files, they are written in their order. Raises OSError if the Parquet files
        cannot be written, and StoreError if they were removed meanwhile. After an error no rows become visible.
        """
        self._write()
        parts = [*self._writer.parts, *(part for attempt, _ in self._taken for part in attempt.parts)]
        self.place.flush_parts(parts)
        self.place.demand_parts(parts, f"{len(self._taken)} files")
        self._taken = [(attempt, replace(row, parts=self._texts(attempt))) for attempt, row in self._taken]
        rows = table([commit_row(row) for _, row in self._taken], COMMIT_SCHEMA)
        files = [seal_table(rows.slice(number, 1)) for number in range(len(rows))]
        by_path: dict[str, list[int]] = {}
        for number, (_, row) in enumerate(self._taken):
            by_path.setdefault(row.path, []).append(number)
        written = []

        def put(numbers: Sequence[int]) -> str | bool:
            new = False
            try:
                for number in numbers:
                    new = self.place.put_row(self._taken[number][1], files[number])
                    written.extend([number] if new else [])
            except OSError as error:
                return error.strerror or str(error)
            return new

        with ThreadPoolExecutor(_PUT_TOGETHER) as putting:
            states = dict(zip(by_path, putting.map(put, by_path.values()), strict=True))
        self.place.flush_rows(row for _, row in self._taken)
        self._demand_again(parts, [self._taken[number][1] for number in written])
        new = [rows.slice(number, 1) for number in sorted(written)]
        return rows if len(new) == len(rows) else pa.concat_tables([rows.slice(0, 0), *new]), states

    def _texts(self, attempt: Attempt) -> tuple[str, ...]:
        """Return the Parquet files that have rows of one input file, each as a text with its path, size and checksum.

        ``attempt`` is the reading of the input file.
        """
        return tuple(part.text for part in (*attempt.parts, *self._parts_of.get(attempt.name, ())))

    def _demand_again(self, parts: Sequence[Part], rows: Sequence[Commit]) -> None:
        """Check once more that the Parquet files just written still exist, after other programs could see their data.

        If a file is missing, the data are withdrawn, and StoreError is raised.
        """
        # Another process may have deleted the files: ``logparse forget``, or ``logparse compact --now``, which deletes
        # old files at once.
        try:
            self.place.demand_parts(parts, f"{len(rows)} files")
        except StoreError:
            merged = self._merged_attempts()
            back = [row for row in rows if row.attempt not in merged]
            with suppress(OSError):
                record_forgotten(self.place.filesystem, self.place.root, [row.attempt for row in back])
            for row in back:
                with suppress(OSError):
                    delete_file(self.place.filesystem, f"{self.place.root}/{row_file(row)}")
            raise

    def _write(self) -> None:
        """Write the data that were collected in memory to Parquet files.

        Raises OSError if that fails, and again in every later call. Then none of the collected input files is marked as
        read, so their data are ignored.
        """
        pending, self._pending, self._row_count = self._pending, [], 0
        if pending and self._error is None:
            try:
                for rows in all_rows(pending):
                    if part := self._writer.add(rows.table, rows.columns, rows.category):
                        for name in _distinct(rows.columns["attempt"]):
                            self._parts_of.setdefault(name, []).append(part)
            except OSError as error:
                self._error = error
        if self._error is not None:
            raise self._error


def _distinct(names: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the different texts in a column that has no nulls.

    ``pyarrow.compute`` is not used, because importing it takes 0.03 s.
    """
    found: dict[str, None] = {}
    for chunk in names.chunks if isinstance(names, pa.ChunkedArray) else [names]:
        indices = np.frombuffer(chunk.indices.buffers()[1], np.int32)[chunk.offset :][: len(chunk)]
        used = np.flatnonzero(np.bincount(indices))  # np.unique takes 0.01 s to import
        found |= dict.fromkeys(chunk.dictionary[number].as_py() for number in used.tolist())
    return [*found]
