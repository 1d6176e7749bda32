"""Inventories: which row files, and which manifest, were there, so that one that is deleted later is missed.

    STORE/sources/inventory-<id>.json    a sealed list (see ``digests``) of ``Row``s, and the manifest's number first

A row file that is gone leaves nothing else that tells it from an ingest that was killed.  An ingest writes an inventory
of the row files that no other one lists at its end, as do a replay and ``compact``; row files that came since then
(of a killed ingest, say) are in none, and their deletion is not found.  What is forgotten is told by the manifest
(``Manifest.forgotten``).  ``sweep`` makes one of many, so each may list what has been merged or forgotten meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow.fs as pafs

from logparse.location import make_folder, replace_file
from logparse.store.digests import read_bytes, sealed_list, unsealed_list
from logparse.store.manifest import Manifest, manifest_file

PREFIX = "sources/inventory-"
MANY = 8
"""From so many inventories on ``sweep`` makes one of them."""


class Row(NamedTuple):
    """A row file below the store, with the attempt, the run and the path of its source."""

    file: str
    attempt: str
    run: str
    path: str


@dataclass(frozen=True)
class Inventory:
    """All inventories of a store.

    ``files``: their paths; ``rows``: what they list; ``manifest``: the highest number that they know; ``damaged``: a
    line per file that cannot be read.
    """

    files: frozenset[str] = frozenset()
    rows: frozenset[Row] = frozenset()
    manifest: int = 0
    damaged: tuple[str, ...] = ()

    def missing_rows(self, present: Iterable[str], manifest: Manifest) -> list[Row]:
        """The row files that are neither present nor merged nor forgotten; several of one name count as one."""
        there = {*present, *manifest.row_files}
        gone = (row for row in sorted(self.rows) if row.file not in there and row.attempt not in manifest.forgotten)
        return [*{row.file: row for row in gone}.values()]

    def due(self, manifest: Manifest) -> bool:
        """Whether one is to be made of all: they are many, or what was forgotten long ago is about to be no more
        told.
        """
        return len(self.files) >= MANY or bool(self.damaged) or bool(self.files and manifest.spent)

    def newer(self, manifest: Manifest) -> str:
        """The path of the manifest that must be there below the store, or nothing where this one is as new."""
        return manifest_file(self.manifest) if manifest.number < self.manifest else ""


def is_one(path: str) -> bool:
    """Whether a path below the store is an inventory's."""
    return path.startswith(PREFIX) and path.endswith(".json")


def read(filesystem: pafs.FileSystem, files: Iterable[str]) -> Inventory:
    """The inventories in these files."""
    known, rows, manifest, damaged = set[str](), set[Row](), 0, list[str]()
    for path in files:
        try:
            with suppress(FileNotFoundError):  # another process has made one of several
                number, *listed = unsealed_list(read_bytes(filesystem, path))
                known.add(path)
                rows.update(Row(*row) for row in listed)
                manifest = max(manifest, number)
        except (ValueError, TypeError) as error:
            known.add(path)
            damaged.append(f"{PREFIX}{path.partition(PREFIX)[2]}: {error}; lost: nothing; the next ingest replaces it")
    return Inventory(frozenset(known), frozenset(rows), manifest, tuple(damaged))


def write(filesystem: pafs.FileSystem, root: str, rows: Iterable[Row], manifest: int) -> None:
    """Write one more inventory."""
    make_folder(filesystem, f"{root}/sources")
    path = f"{root}/{PREFIX}{os.urandom(8).hex()}.json"
    replace_file(filesystem, path, sealed_list([manifest, *sorted(rows)]))
