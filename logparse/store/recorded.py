"""Compare the Parquet files of a store with their recorded sizes and checksums, and say what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.fs as pafs

from logparse.store.digests import Part, part_from_text
from logparse.store.manifest import MERGED, MERGED_LOST, Manifest
from logparse.store.parts import attempt_of, writers_of
from logparse.store.schema import RECORDED

_NAMED = 3  # number of files that one line lists


class Recorded:
    """Tells which data files a store should contain, according to its records.

    The records are the commits (one for each input file that was read) and the manifest (the list of merged files).
    ``parts`` holds the sizes and checksums, by path in the store. Earlier versions recorded none. Files that they wrote
    are recognised by their names, or by the manifest's list. If such a file is missing, it is not noticed.
    """

    def __init__(self, commits: pa.Table, manifest: Manifest) -> None:
        self._manifest = manifest
        self._commits = commits
        self.parts: dict[str, Part] = {**manifest.records}
        unrecorded = set[str]()
        columns = (commits[name].to_pylist() for name in ("attempt", RECORDED))
        for attempt, texts in zip(*columns, strict=True):
            if attempt in manifest.attempts:
                continue
            if texts is None:
                unrecorded.add(attempt)
            for text in texts or ():
                part = part_from_text(text)
                self.parts[part.path] = part
        self._writers = writers_of(unrecorded)

    def holds(self, path: str) -> bool:
        """Return True if a Parquet file of the store must be read, because it may contain data that are still wanted.

        Other Parquet files are ignored: for example, their data were removed, or the reading of their input file was
        interrupted.
        """
        return path in self.parts or path in self._manifest.parts or attempt_of(path) in self._writers

    def cut(self, table: str, infos: Mapping[str, pafs.FileInfo]) -> list[str]:
        """Check that the Parquet files of a table exist and have the recorded sizes. Return a line for each fault.

        The lines are for the user. ``infos`` holds the existing files, by path.
        """
        found = []
        for path, part in self._by_table.get(table, {}).items():
            if path not in infos:
                found.append(self.line(path, "missing"))
            elif part is not None and infos[path].size != part.size:
                found.append(self.line(path, f"has {infos[path].size:,} of {part.size:,} bytes"))
        return found

    def line(self, path: str, why: str) -> str:
        """Return a line for the user: what is wrong with a file (``why``), what is lost with it, and what to do."""
        if path in self._manifest.parts or attempt_of(path).startswith(MERGED):
            return (
                f"{path}: {why}; {MERGED_LOST}, or run `logparse forget PART` with this name to read the other "
                "rows without these"
            )
        return f"{path}: {why}; {loss_and_remedy(self._sources.get(path) or self._of_writer(path))}"

    @cached_property
    def _by_table(self) -> dict[str, dict[str, Part | None]]:
        """The Parquet files that must exist for each table, according to what was noted when they were written.

        Each path comes with the file's size and checksum, or with None if these were not noted.
        """
        out: dict[str, dict[str, Part | None]] = {}
        for path in sorted({*self.parts, *self._manifest.parts}):
            out.setdefault(path.partition("/")[0], {})[path] = self.parts.get(path)
        return out

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        """Maps each data file of the store to the paths of the input files whose rows it contains."""
        out: dict[str, list[str]] = {}
        for source, texts in zip(*(self._commits[name].to_pylist() for name in ("path", RECORDED)), strict=True):
            for text in texts or ():
                out.setdefault(part_from_text(text).path, []).append(source)
        return out

    def _of_writer(self, path: str) -> list[str]:
        """Return the paths of the input files from which the rows of a damaged Parquet file may come."""
        rows = zip(*(self._commits[name].to_pylist() for name in ("attempt", "path")), strict=True)
        # The name of the Parquet file begins with the name of one reading of an input file, or of several input files
        # that were stored together.
        mine = (source for attempt, source in rows if attempt not in self._manifest.attempts
                and attempt_of(path) in writers_of([attempt]))  # fmt: skip
        return [*mine]


def loss_and_remedy(sources: Iterable[str]) -> str:
    """Return the end of an error message: which rows of the store are lost, and what the user can do.

    ``sources`` are the input files whose rows are lost.
    """
    paths: Sequence[str] = sorted({*sources})
    more = f" and {len(paths) - _NAMED:,} more" * (len(paths) > _NAMED)
    them = "it" if len(paths) == 1 else "them"
    files = any(path.startswith("/") or "://" in path or path == "-" for path in paths)
    verb = "ingest" if files else "measure"  # records of a replay are in no file
    return f"lost: rows of {', '.join(paths[:_NAMED])}{more}; remedy: `logparse forget` {them} and {verb} {them} again"
