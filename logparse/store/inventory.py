"""Inventories: lists of the small files that existed, so that a later deletion of such a file is found.

    STORE/sources/inventory-<id>.json    a sealed list (see ``digests``) of the items of ``Inventory``

| item | stands for |
|---|---|
| the first one, a number | the manifest |
| a ``ListedRow``, four items | a row file |
| a ``Forgotten``, three items | a file that records forgotten names; its names are listed, too |
| a path | another file that nothing removes: the findings |

Without an inventory, a store with a deleted row file looks like a store whose ingest was killed.  So an ingest, a
replay, ``compact``, ``forget`` and the first ``recommend`` write an inventory of the files that no other inventory
lists.

Two kinds of deletions are not found: the deletion of a file that was written after the last inventory (by an ingest
that was then killed, for example), and the deletion of an inventory itself.
``sweep`` merges many inventories into one.  So an inventory may list files that have been merged or forgotten since
then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow.fs as pafs

from logparse.location import make_folder, replace_file
from logparse.store.digests import read_bytes, seal_list, unseal_list
from logparse.store.manifest import Forgotten, Manifest, manifest_file

PREFIX = "sources/inventory-"
MANY = 8
"""Least number of inventories that ``sweep`` merges into one."""


class ListedRow(NamedTuple):
    """Entry of a row file: its path below the store, with the attempt, the run and the path of its source."""

    file: str
    attempt: str
    run: str
    path: str


Item = ListedRow | Forgotten | str
"""Type of the items that follow the manifest's number in an inventory."""


@dataclass(frozen=True)
class Inventory:
    """All inventories of a store.

    * ``files``: their paths.
    * ``rows``, ``forgotten``, ``others``: the items that the inventories list.  ``others`` are paths below the store.
    * ``manifest``: the highest number of a manifest in these inventories.
    * ``damaged``: a line per file that cannot be read.
    """

    files: frozenset[str] = frozenset()
    rows: frozenset[ListedRow] = frozenset()
    forgotten: frozenset[Forgotten] = frozenset()
    others: frozenset[str] = frozenset()
    manifest: int = 0
    damaged: tuple[str, ...] = ()

    def missing_rows(self, present: Iterable[str], manifest: Manifest) -> list[ListedRow]:
        """Return the row files that are neither present nor merged nor forgotten.

        Several items with one name count as one.
        """
        there = {*present, *manifest.row_files}
        forgotten = {*manifest.forgotten, *(name for one in self.forgotten for name in one.names)}
        gone = (row for row in sorted(self.rows) if row.file not in there and row.attempt not in forgotten)
        return [*{row.file: row for row in gone}.values()]

    def missing_lists(self, attempts: Iterable[str], manifest: Manifest) -> list[Forgotten]:
        """Return the files of forgotten names that should exist but were missing when the manifest was read.

        ``attempts`` are the names of attempts that have row files.
        """
        known = {*attempts, *manifest.attempts, *manifest.parts}
        there = {one.file for one in manifest.told}
        return sorted(one for one in self.forgotten if one.file not in there and one.missed(known))

    def due(self, manifest: Manifest) -> bool:
        """Tell whether all inventories should be merged into one.

        They should be merged in three cases: there are many inventories, an inventory is damaged, or files of names
        that were forgotten long ago are about to be removed.
        """
        return len(self.files) >= MANY or bool(self.damaged) or bool(self.files and manifest.spent)

    def without(self, manifest: Manifest) -> list[Item]:
        """Return the items that are still needed.

        These are all items except merged row files, forgotten row files, and files of forgotten names that may be
        removed.
        """
        there, spent = {one.file for one in manifest.told}, {one.file for one in manifest.spent}
        rows = (
            row for row in self.rows if row.file not in manifest.row_files and row.attempt not in manifest.forgotten
        )
        lists = (x for x in self.forgotten if x.file not in spent and (x.file in there or x.missed(frozenset())))
        return [*rows, *lists, *self.others]

    def newer(self, manifest: Manifest) -> str:
        """Return the path below the store of a manifest that must exist because it is newer than ``manifest``.

        Return an empty text if ``manifest`` is the newest one.
        """
        return manifest_file(self.manifest) if manifest.number < self.manifest else ""


def is_inventory(path: str) -> bool:
    """Tell whether a path below the store is an inventory."""
    return path.startswith(PREFIX) and path.endswith(".json")


def read_inventories(filesystem: pafs.FileSystem, files: Iterable[str]) -> Inventory:
    """Read the inventories in these files."""
    known, items, manifest, damaged = set[str](), set[Item](), 0, list[str]()
    for path in files:
        try:
            with suppress(FileNotFoundError):  # another process has merged the inventory with others
                number, *listed = unseal_list(read_bytes(filesystem, path))
                known.add(path)
                items.update(map(_item, listed))
                manifest = max(manifest, number)
        except (ValueError, TypeError) as error:
            known.add(path)
            damaged.append(
                f"{PREFIX}{path.partition(PREFIX)[2]}: {error}; nothing is lost, and the next ingest replaces this file"
            )
    return Inventory(
        frozenset(known),
        frozenset(one for one in items if isinstance(one, ListedRow)),
        frozenset(one for one in items if isinstance(one, Forgotten)),
        frozenset(one for one in items if isinstance(one, str)),
        manifest,
        tuple(damaged),
    )


def _item(listed: Any) -> Item:
    """Read an item from JSON.  Raises TypeError if the JSON has no form of an item."""
    if isinstance(listed, str):
        return listed
    if len(listed) == len(ListedRow._fields):
        return ListedRow(*listed)
    file, names, at = listed
    return Forgotten(file, tuple(names), at)


def write_inventory(filesystem: pafs.FileSystem, root: str, items: Iterable[Item], manifest: int) -> None:
    """Write one more inventory."""
    make_folder(filesystem, f"{root}/sources")
    path = f"{root}/{PREFIX}{os.urandom(8).hex()}.json"
    replace_file(filesystem, path, seal_list([manifest, *sorted(items, key=str)]))
