"""List the files of a store, and read its small files. They list the content of the store.

* A row file holds a commit. It tells that an input file was read.
* The manifest lists the commits and parts that a compaction has merged.
* Inventories list the small files that must exist, so that a missing one is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from logparse.location import delete_file
from logparse.store.columns import column, conform
from logparse.store.columns import table as arrow_table
from logparse.store.digests import UNSEALED, read_bytes, unseal_table
from logparse.store.inventory import Inventory, Item, ListedRow, is_inventory, read_inventories, write_inventory
from logparse.store.manifest import MERGED_LOST, RESTORED, Forgotten, Manifest, manifest_files, read_latest
from logparse.store.parts import path_folder, row_file, row_files
from logparse.store.recorded import loss_and_remedy
from logparse.store.schema import COMMIT_SCHEMA, RECORDED, Commit, commit_from_row, live_commits

READ_TOGETHER = 16
"""Number of files that are read at a time, because each may be a request to another machine."""
COMBINED = 256
"""Number of files whose tables are combined at a time."""
FINDINGS = "findings/findings.parquet"
"""Path of the findings in the store (see ``findings``)."""


class StoreFiles:
    """The files of a store. The small ones are kept in memory, and only changed files are read again.

    * ``row_table`` has the commits that no compaction has merged.
    * ``inventory`` has the small files that must exist.
    """

    def __init__(self, filesystem: pafs.FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root
        self.row_table = arrow_table([], COMMIT_SCHEMA)
        self.inventory = Inventory()
        self._row_files: dict[str, int | None] = {}
        self._damaged: dict[str, str] = {}  # row files that cannot be read, with the reasons
        self._manifest: tuple[Mapping[str, int | None], Manifest] = {}, Manifest()

    def manifest(self) -> Manifest:
        """Return the manifest: the list of the data that were merged into large files (``logparse compact``).

        The manifest is kept in memory, and is read again only if it has changed.
        """
        if (now := manifest_files(self.filesystem, self.root)) != self._manifest[0]:
            self._manifest = now, read_latest(self.filesystem, now)
        return self._manifest[1]

    def commits(self) -> list[Commit]:
        """Return the valid entries for input files that were read, in the order in which the files were read.

        An input file that was read in several pieces has several entries. Entries that a later one replaces are left
        out.
        """
        return live_commits(map(commit_from_row, self.commit_table().to_pylist()))

    def commits_of(self, path: str, known: Sequence[Commit] = ()) -> list[Commit]:
        """Return the entries for one input file, which say which parts of it were read and stored.

        Entries that other processes have just written are included. ``known`` are entries that the caller already has,
        so they are not read again.
        """
        read = {f"{self.root}/{row_file(row)}" for row in known}
        files = [p for p in self.files(f"sources/{path_folder(path)}") if p.endswith(".parquet") and p not in read]
        rows = self._read_rows(files)[0].to_pylist() if files else []
        found = [commit_from_row(row) for row in rows if row["path"] == path]
        return live_commits({row.attempt: row for row in (*known, *found)}.values())

    def known(self) -> Callable[[str], Sequence[Commit]]:
        """Return a function that takes the path of an input file, and returns which parts of it are already stored.

        The entries for all input files are kept as a table, which takes little memory.
        """
        table = self.commit_table()
        rows: dict[str, list[int]] = {}
        for number, path in enumerate(table["path"].to_pylist()):
            rows.setdefault(path, []).append(number)
        return lambda path: live_commits(commit_from_row(table.slice(n, 1).to_pylist()[0]) for n in rows.get(path, ()))

    def live_table(self, run: str | None = None, manifest: Manifest | None = None) -> pa.Table:
        """Return the valid entries for input files that were read, as an Arrow table. Replaced entries are left out.

        If ``run`` (the label of one execution of a job) is given, only its files are included.
        """
        table = self.commit_table(manifest)
        # An entry may replace earlier entries for its file. The result is a table, because very many Python objects
        # would take too much memory.
        gone = {attempt for attempts in table["replaces"].to_pylist() for attempt in attempts or ()}
        rows = zip(table["attempt"].to_pylist(), table["run"].to_pylist(), strict=True)
        wanted = [attempt not in gone and run in (None, its) for attempt, its in rows]
        return table if all(wanted) else table.filter(column(wanted, pa.bool_()))

    def commit_table(self, manifest: Manifest | None = None) -> pa.Table:
        manifest = manifest or self.manifest()
        merged = {f"{self.root}/{path}" for path in manifest.row_files}
        infos = {info.path: info.mtime_ns for info in self.infos("sources")}
        now = {path: at for path, at in infos.items() if path.endswith(".parquet") and path not in merged}
        if any(path not in now or at not in (None, now[path]) for path, at in self._row_files.items()):
            # A row file was forgotten or merged, so all row files are read again.
            self._row_files, self.row_table, self._damaged = {}, arrow_table([], COMMIT_SCHEMA), {}
        if fresh := [path for path in now if path not in self._row_files]:
            rows, damaged = self._read_rows(fresh)
            self.row_table = pa.concat_tables([self.row_table, rows])
            self._damaged |= damaged
        self._row_files = now
        listed = frozenset(path for path in infos if is_inventory(self.below(path)))
        if listed != self.inventory.files:
            self.inventory = read_inventories(self.filesystem, listed)
        rows = self.row_table
        told = [attempt not in manifest.forgotten for attempt in rows["attempt"].to_pylist()]
        if not all(told):  # `forget` is about to delete their files, or was killed before it deleted them
            rows = rows.filter(column(told, pa.bool_()))
        return pa.concat_tables([manifest.commits, rows])

    def _read_rows(self, paths: Sequence[str]) -> tuple[pa.Table, dict[str, str]]:
        """Read several row files: small files which say that an input file was read.

        Returns two results: the content of the files as a table, and for each file that cannot be read the reason.
        """

        def read(path: str) -> pa.Table | str:
            try:
                table, whole = unseal_table(read_bytes(self.filesystem, path))
            except FileNotFoundError:  # another process has forgotten the file
                return arrow_table([], COMMIT_SCHEMA)
            except (OSError, pa.ArrowException) as error:
                if self.folder is None and not isinstance(error, pa.ArrowException):
                    raise  # the network fails, or a permission is missing
                return str(error).partition("\n")[0]
            return conform(table, COMMIT_SCHEMA) if whole or RECORDED not in table.column_names else UNSEALED

        found, damaged = [arrow_table([], COMMIT_SCHEMA)], dict[str, str]()
        with ThreadPoolExecutor(READ_TOGETHER) as reading:
            for start in range(0, len(paths), COMBINED):  # a table of one row takes far more memory than the row
                some = paths[start : start + COMBINED]
                read_ones = [*zip(some, reading.map(read, some), strict=True)]
                damaged |= {path: one for path, one in read_ones if isinstance(one, str)}
                tables = [one for _, one in read_ones if not isinstance(one, str)]
                found.append(pa.concat_tables([found[0], *tables]).combine_chunks())
        return pa.concat_tables(found), damaged

    def learn(self, rows: pa.Table) -> None:
        """Note which input files this process and its workers have just stored, to avoid reading it from the store.

        ``rows`` is a table with the entries for these files.
        """
        self._row_files |= dict.fromkeys(f"{self.root}/{path}" for path in row_files(rows))
        self.row_table = pa.concat_tables([self.row_table, rows])

    @property
    def unmerged(self) -> int:
        """Number of small files that were read one by one to open the store, because they are not merged yet.

        ``compact`` merges such files.
        """
        return len(self._row_files)

    def unmerged_small(self, size: int) -> int:
        """Return how many small input files have Parquet files of their own, which ``logparse compact`` could merge.

        An input file is small if at most ``size`` bytes of it were read.
        """
        return sum(read <= size for read in self.row_table["bytes"].to_pylist())

    def lost_commits(self, manifest: Manifest) -> list[str]:
        """Return a line for the user for each small file of the store that is missing or damaged.

        Call ``commit_table`` first.
        """
        # There are three sorts of such files: files which say that an input file was read, lists of data that the user
        # had removed, and the list of merged data.
        of = {row.file: row.path for row in self.inventory.rows} if self._damaged else {}
        found = [f"{row.file}: missing; {loss_and_remedy([row.path])}" for row in self._missing(manifest)]
        for path, why in sorted(self._damaged.items()):
            file = self.below(path)
            unknown = (
                "lost: the rows of one input file, but its name cannot be read from the damaged file; remedy: delete "
                "the damaged file, and ingest all logs again"
            )
            found.append(f"{file}: {why}; {loss_and_remedy([of[file]]) if file in of else unknown}")
        found += [
            f"{one.file}: missing, so what it forgot may come back; {RESTORED}" for one in self.lost_lists(manifest)
        ]
        newer = self.inventory.newer(manifest)
        if newer and not self.is_file(newer):  # another process may just have written the file
            found.insert(0, f"{newer}: missing; {MERGED_LOST}")
        return found

    def _missing(self, manifest: Manifest) -> list[ListedRow]:
        return self.inventory.missing_rows(map(self.below, self._row_files), manifest)

    def lost_lists(self, manifest: Manifest) -> list[Forgotten]:
        """Find lists of removed data that have disappeared from the store although they are still needed.

        A list names data that the user has removed (``logparse forget``). Call ``commit_table`` first, because it
        finds out which input files the store contains.
        """
        gone = self.inventory.missing_lists(self.row_table["attempt"].to_pylist(), manifest)
        return [one for one in gone if not self.is_file(one.file)]  # another process may just have written the file

    def take_inventory(self) -> None:
        """Write a list of the small files that were added to the store, so that their deletion is noticed later."""
        # If the list cannot be written, the next list will contain these files. No answer of the store depends on a
        # list.
        with suppress(OSError):
            manifest = self.manifest()
            new = self.unlisted(manifest)
            if new or manifest.number > self.inventory.manifest:
                write_inventory(self.filesystem, self.root, new, manifest.number)

    def unlisted(self, manifest: Manifest) -> set[Item]:
        """Return the store's small files that are not yet in an inventory (a list of the files that should exist)."""
        self.commit_table(manifest)
        columns = (self.row_table[name].to_pylist() for name in ("attempt", "run", "path"))
        rows = {ListedRow(*row) for row in zip(row_files(self.row_table), *columns, strict=True)}
        new = (row for row in rows - self.inventory.rows if row.attempt not in manifest.forgotten)
        out: set[Item] = {row for row in new if f"{self.root}/{row.file}" in self._row_files}
        listed = {one.file for one in self.inventory.forgotten}
        out |= {one for one in manifest.told if one.file not in listed and one not in manifest.spent}
        if FINDINGS not in self.inventory.others and self.is_file(FINDINGS):
            out.add(FINDINGS)
        return out

    def files(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder of the store, and in its subfolders."""
        return [info.path for info in self.infos(folder)]

    def infos(self, folder: str) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(f"{self.root}/{folder}", recursive=True, allow_not_found=True)
        # Folders have no size.  ``is_file`` would make an enum member of each entry, which takes ten times as long.
        return [info for info in self.filesystem.get_file_info(selector) if info.size is not None]

    def is_file(self, path: str) -> bool:
        """Return True if a file exists at this path in the store."""
        return bool(self.filesystem.get_file_info(f"{self.root}/{path}").is_file)

    def below(self, path: str) -> str:
        """Convert a path of the file system into a path relative to the store."""
        return path.removeprefix(f"{self.root}/")

    def delete(self, path: str) -> bool:
        """Delete a file of the store. Return False if another process has already deleted it."""
        try:
            delete_file(self.filesystem, path)
        except FileNotFoundError:
            return False
        return True

    @property
    def folder(self) -> Path | None:
        """The store's folder on this machine, or None if the store is at a URL."""
        return Path(self.root) if isinstance(self.filesystem, pafs.LocalFileSystem) else None
