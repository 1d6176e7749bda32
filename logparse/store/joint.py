"""Several small sources at a time: joint parts hold their rows, and each is committed by a row file of its own.

A small file is a few rows: parts of its own take a hundred times as long to write, and to open for each question.  The
attempts of such sources are named ``<writer>.<number>``, and the parts that hold their rows after the writer.  As in a
merged part, a row counts only if its own attempt is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from logparse.errors import StoreError
from logparse.location import delete_file
from logparse.store.columns import table
from logparse.store.digests import Part, sealed
from logparse.store.held import Held, write
from logparse.store.manifest import forget
from logparse.store.parts import JOINT, Attempt, row_file
from logparse.store.schema import COMMIT_SCHEMA, Commit, commit_row
from logparse.store.store import Store

_ROWS = 50_000
"""Rows in memory from which on joint parts are written."""
_PUT_TOGETHER = 16  # row files written at a time: each waits for the disk, or is a request to another machine


class JointAttempts:
    """The attempts of several sources."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writer = store.attempt()
        self._held: list[Held] = []
        self._taken: list[tuple[Attempt, Commit]] = []
        self._number = self._rows = 0
        self._error: OSError | None = None

    def attempt(self) -> Attempt:
        """A fresh attempt, which ``commit`` commits."""
        self._number += 1
        name = f"{self._writer.name}{JOINT}{self._number}"
        return Attempt(self._store.filesystem, self._store.root, name, self._store.put, self)

    def hold(self, held: Held) -> None:
        self._held.append(held)
        self._rows += held.rows_held
        if self._rows > _ROWS:
            self._write()

    def take(self, attempt: Attempt, row: Commit) -> None:
        self._taken.append((attempt, row))

    def commit(self) -> tuple[pa.Table, dict[str, str | bool]]:
        """Write all that is held, then the row file of each attempt; those of one source in their order.

        Returns the rows written, and for each source's path whether its last row was new, or the reason why it is not
        committed.  Raises OSError where the parts cannot be written, and StoreError where they were removed: then
        nothing is committed.
        """
        self._write()
        parts = [*self._writer.parts, *(part for attempt, _ in self._taken for part in attempt.parts)]
        self._writer.flush(parts)
        self._writer.demand(f"{len(self._taken)} files", parts)
        self._taken = [(attempt, replace(row, parts=self._texts(attempt))) for attempt, row in self._taken]
        rows = table([commit_row(row) for _, row in self._taken], COMMIT_SCHEMA)
        files = [sealed(rows.slice(number, 1)) for number in range(len(rows))]
        by_path: dict[str, list[int]] = {}
        for number, (_, row) in enumerate(self._taken):
            by_path.setdefault(row.path, []).append(number)
        written = []

        def put(numbers: Sequence[int]) -> str | bool:
            new = False
            try:
                for number in numbers:
                    new = self._writer.put(self._taken[number][1], files[number])
                    written.extend([number] if new else [])
            except OSError as error:
                return error.strerror or str(error)
            return new

        with ThreadPoolExecutor(_PUT_TOGETHER) as putting:
            states = dict(zip(by_path, putting.map(put, by_path.values()), strict=True))
        self._writer.flush_rows(row for _, row in self._taken)
        self._demand_again(parts, [self._taken[number][1] for number in written])
        new = [rows.slice(number, 1) for number in sorted(written)]
        return rows if len(new) == len(rows) else pa.concat_tables([rows.slice(0, 0), *new]), states

    def _texts(self, attempt: Attempt) -> tuple[str, ...]:
        """The record of the parts that hold rows of an attempt."""
        return tuple(part.text for part in (*attempt.parts, *self._writer.parts_of.get(attempt.name, ())))

    def _demand_again(self, parts: Sequence[Part], rows: Sequence[Commit]) -> None:
        """Take commits back where parts were removed meanwhile: by a ``forget``, or a compaction without readers
        that saw only some of the commits.  Raises StoreError.
        """
        try:
            self._writer.demand(f"{len(rows)} files", parts)
        except StoreError:
            merged = self._store.manifest().attempts
            back = [row for row in rows if row.attempt not in merged]
            with suppress(OSError):
                forget(self._store.filesystem, self._store.root, [row.attempt for row in back])
            for row in back:
                with suppress(OSError):
                    delete_file(self._store.filesystem, f"{self._store.root}/{row_file(row)}")
            raise

    def _write(self) -> None:
        """Write what is held, once: after an error none of these attempts can be committed."""
        held, self._held, self._rows = self._held, [], 0
        if held and self._error is None:
            try:
                write(held, self._writer)
            except OSError as error:
                self._error = error
        if self._error is not None:
            raise self._error
