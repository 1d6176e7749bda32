"""Lists of the small files in a store, so that the deletion of such a file is noticed later.

    STORE/sources/inventory-<id>.json    a sealed list (see ``digests``) of the items of ``Inventory``

| item | stands for |
|---|---|
| the first one, a number | the manifest |
| a ``ListedRow``, four items | a row file |
| a ``Forgotten``, three items | a file that records forgotten names; its names are listed, too |
| a path | another file that nothing removes: the findings |

A row file is the small file that commits the rows of one input file. Without these lists, a store with a deleted row
file looks like a store whose ingest was killed. So an ingest, a replay, ``compact``, ``forget`` and the first
``recommend`` write a list of the files that no other list contains.

Two kinds of deletions are not noticed: of a file that was written after the last list (by an ingest that was then
killed, for example), and of a list itself. ``sweep`` merges many lists into one. So a list may contain files that have
been merged or forgotten since then.
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
"""Number of inventories (lists of small files) in a store from which on they are merged into one."""


class ListedRow(NamedTuple):
    """An entry for a small file of the store which says that logparse has read an input file.

    ``file`` is the path of the small file, and ``path`` that of the input file.
    """

    file: str
    # This is the name of this reading of the input file.
    attempt: str
    # This is the label of the job's execution from which the input file comes.
    run: str
    path: str


Item = ListedRow | Forgotten | str
"""Type of an item in an inventory (a list of the store's small files).  The first item, a number, has another type."""


@dataclass(frozen=True)
class Inventory:
    """The small files that a store should contain, read from all its lists (inventories).

    * ``files`` are the paths of the lists.
    * ``rows`` are small files which say that an input file was read, ``forgotten`` are lists of data that the user had
      removed, and ``others`` are other files (their paths in the store).
    * ``manifest`` is the highest number of a manifest (a list of merged data) that the lists name.
    * ``damaged`` has a line for each list that cannot be read.
    """

    files: frozenset[str] = frozenset()
    rows: frozenset[ListedRow] = frozenset()
    forgotten: frozenset[Forgotten] = frozenset()
    others: frozenset[str] = frozenset()
    manifest: int = 0
    damaged: tuple[str, ...] = ()

    def missing_rows(self, present: Iterable[str], manifest: Manifest) -> list[ListedRow]:
        """Find the small files, one for each input file read, that have disappeared although they are still needed.

        ``present`` holds the paths of the existing small files, and ``manifest`` the merged data. No file is returned
        twice.
        """
        there = {*present, *manifest.row_files}
        forgotten = {*manifest.forgotten, *(name for one in self.forgotten for name in one.names)}
        # A small file is not needed if the data of its input file were merged with others or removed by the user.
        gone = (row for row in sorted(self.rows) if row.file not in there and row.attempt not in forgotten)
        return [*{row.file: row for row in gone}.values()]

    def missing_lists(self, attempts: Iterable[str], manifest: Manifest) -> list[Forgotten]:
        """Find lists of removed data that have disappeared from the store although they are still needed.

        ``attempts`` names the data that were not yet merged into larger files, and ``manifest`` the merged data.
        """
        # Without such a list, data that the user has removed (``logparse forget``) could appear again.
        known = {*attempts, *manifest.attempts, *manifest.parts}
        there = {one.file for one in manifest.told}
        return sorted(one for one in self.forgotten if one.file not in there and one.missed(known))

    def due(self, manifest: Manifest) -> bool:
        """Return True if all inventories (lists of the store's small files) should be merged into one now."""
        # There are three reasons: there are many inventories, one of them is damaged, or they name old lists of data
        # that the user had removed, which may be deleted now.
        return len(self.files) >= MANY or bool(self.damaged) or bool(self.files and manifest.spent)

    def without(self, manifest: Manifest) -> list[Item]:
        """Return which small files the store must still have after ``logparse compact`` has merged data.

        ``manifest`` lists the merged data.
        """
        there, spent = {one.file for one in manifest.told}, {one.file for one in manifest.spent}
        # The small file of an input file is not needed if its data were merged or removed by the user.
        rows = (
            row for row in self.rows if row.file not in manifest.row_files and row.attempt not in manifest.forgotten
        )
        # A file that lists removed data is not needed if it may be deleted now.
        lists = (x for x in self.forgotten if x.file not in spent and (x.file in there or x.missed(frozenset())))
        return [*rows, *lists, *self.others]

    def newer(self, manifest: Manifest) -> str:
        """Return the path of the newest manifest (list of merged files) if it is newer than the given one.

        Returns an empty text if ``manifest``, which the caller has, is the newest one. The path is relative to the
        store.
        """
        return manifest_file(self.manifest) if manifest.number < self.manifest else ""


def is_inventory(path: str) -> bool:
    """Return True if the file at this path in the store is an inventory (a list of the store's small files)."""
    return path.startswith(PREFIX) and path.endswith(".json")


def read_inventories(filesystem: pafs.FileSystem, files: Iterable[str]) -> Inventory:
    """Read several inventories (lists of the small files that should exist), and combine them into one object."""
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
    """Convert an entry of an inventory (a list of the store's small files) from JSON to an object.

    Raises TypeError if the entry has none of the known forms.
    """
    if isinstance(listed, str):
        return listed
    if len(listed) == len(ListedRow._fields):
        return ListedRow(*listed)
    file, names, at = listed
    return Forgotten(file, tuple(names), at)


def write_inventory(filesystem: pafs.FileSystem, root: str, items: Iterable[Item], manifest: int) -> None:
    """Write a new inventory: a list of small files that exist now, so that their deletion is noticed later.

    ``manifest`` is the number of the newest manifest (the list of merged data, made by ``logparse compact``).
    """
    make_folder(filesystem, f"{root}/sources")
    path = f"{root}/{PREFIX}{os.urandom(8).hex()}.json"
    replace_file(filesystem, path, seal_list([manifest, *sorted(items, key=str)]))
