"""Read several small sources at a time.  Their rows share joint parts, but each source has its own row file.

A small file gives only a few rows.  If each small file had its own parts, writing these parts, and opening them for
each question, would take a hundred times as long.
The attempts of such sources are named ``<writer>.<number>``.  The parts with their rows are named after the writer.  As
in a merged part, a row counts only if its own attempt is committed.
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
"""Number of rows in memory from which on they are written as joint parts."""
_PUT_TOGETHER = 16  # row files that are written at a time, because each waits for the disk or for another machine


class JointAttempt(Attempt):
    """Attempt that reads one of several sources.  It hands its pending records and its commit to the group."""

    def __init__(self, name: str, group: JointAttempts) -> None:
        super().__init__(name, group.place)
        self._group = group

    def write(self, pending: Pending) -> None:
        self._group.take_pending(pending)

    def commit(self, row: Commit) -> bool:
        """Give the row that commits this attempt to the group, which writes the rows of all its attempts later.

        Return True in any case, because it is known only at the group's commit whether the row is new.
        """
        self._group.take_row(self, row)
        return True


class JointAttempts:
    """Attempts of several sources.

    ``name`` is the name of the writer of their joint parts.  ``merged_attempts`` returns the attempts whose rows a
    compaction has merged by now.
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

    def attempt(self) -> JointAttempt:
        """Begin an attempt.  The ``commit`` of the group commits it, too."""
        self._number += 1
        return JointAttempt(f"{self._writer.name}{JOINT}{self._number}", self)

    def take_pending(self, pending: Pending) -> None:
        """Keep pending records until there are enough rows for joint parts.

        Raises OSError if parts cannot be written.
        """
        self._pending.append(pending)
        self._row_count += pending.row_count
        if self._row_count > _ROWS:
            self._write()

    def take_row(self, attempt: Attempt, row: Commit) -> None:
        """Keep the row that the group will write to commit an attempt."""
        self._taken.append((attempt, row))

    def commit(self) -> tuple[pa.Table, dict[str, str | bool]]:
        """Write all pending records, then the row file of each attempt.

        Row files of one source are written in their order.  Return the rows that were written, and a state per path of
        a source.  The state is True if the source's last row was new, False if the row existed already, or a text with
        the reason if the source is not committed.  Raises OSError if the parts cannot be written, and StoreError if
        parts were removed.  After an error nothing is committed.
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
        """Return the path, size and digest of each file that contains rows of the attempt."""
        return tuple(part.text for part in (*attempt.parts, *self._parts_of.get(attempt.name, ())))

    def _demand_again(self, parts: Sequence[Part], rows: Sequence[Commit]) -> None:
        """Take commits back and raise StoreError if parts have been removed since they were written.

        There are two causes: a ``forget``, or a compaction that was told that there are no readers and saw only some of
        the commits.
        """
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
        """Write the pending records, once.  After an error no attempt of the group can be committed."""
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
    """Return the distinct texts of a column without nulls.

    The function does not use pyarrow.compute, because importing it takes 0.03 s.
    """
    found: dict[str, None] = {}
    for chunk in names.chunks if isinstance(names, pa.ChunkedArray) else [names]:
        indices = np.frombuffer(chunk.indices.buffers()[1], np.int32)[chunk.offset :][: len(chunk)]
        used = np.flatnonzero(np.bincount(indices))  # np.unique takes 0.01 s to import
        found |= dict.fromkeys(chunk.dictionary[number].as_py() for number in used.tolist())
    return [*found]
