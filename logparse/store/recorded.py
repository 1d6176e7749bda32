"""Records about parts in commits and manifests, and the loss if a part differs from its record."""

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
    """Parts of live commits (rows of ``COMMIT_SCHEMA``) and of a manifest.

    ``parts`` holds the records, by path below the store.  Commits and manifests of earlier versions have no records.
    Their parts are found by the name of their writer, or in the manifest's list.  If such a part is gone, its absence
    is not noticed.
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
        """Tell whether the part may hold rows of the commits (a path below the store)."""
        return path in self.parts or path in self._manifest.parts or attempt_of(path) in self._writers

    def cut(self, table: str, infos: Mapping[str, pafs.FileInfo]) -> list[str]:
        """Return a line per part of a table that is gone or whose size differs from its record.

        ``infos`` are the existing files, by path.
        """
        found = []
        for path, part in self._by_table.get(table, {}).items():
            if path not in infos:
                found.append(self.line(path, "missing"))
            elif part is not None and infos[path].size != part.size:
                found.append(self.line(path, f"has {infos[path].size:,} of {part.size:,} bytes"))
        return found

    def line(self, path: str, why: str) -> str:
        """Return a line with the fault of a part (``why``), the data that is lost with it, and the remedy."""
        if path in self._manifest.parts or attempt_of(path).startswith(MERGED):
            return (
                f"{path}: {why}; {MERGED_LOST}, or run `logparse forget PART` with this name to read the other "
                "rows without these"
            )
        return f"{path}: {why}; {loss_and_remedy(self._sources.get(path) or self._of_writer(path))}"

    @cached_property
    def _by_table(self) -> dict[str, dict[str, Part | None]]:
        """Parts of each table, by path, with their records.  A merged part without a record has the value None."""
        out: dict[str, dict[str, Part | None]] = {}
        for path in sorted({*self.parts, *self._manifest.parts}):
            out.setdefault(path.partition("/")[0], {})[path] = self.parts.get(path)
        return out

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        """Paths of the sources whose rows each recorded part holds."""
        out: dict[str, list[str]] = {}
        for source, texts in zip(*(self._commits[name].to_pylist() for name in ("path", RECORDED)), strict=True):
            for text in texts or ():
                out.setdefault(part_from_text(text).path, []).append(source)
        return out

    def _of_writer(self, path: str) -> list[str]:
        """Return the paths of the sources that the part's writer read."""
        rows = zip(*(self._commits[name].to_pylist() for name in ("attempt", "path")), strict=True)
        mine = (source for attempt, source in rows if attempt not in self._manifest.attempts
                and attempt_of(path) in writers_of([attempt]))  # fmt: skip
        return [*mine]


def loss_and_remedy(sources: Iterable[str]) -> str:
    """Tell what is lost with the rows of ``sources``, and the remedy."""
    paths: Sequence[str] = sorted({*sources})
    more = f" and {len(paths) - _NAMED:,} more" * (len(paths) > _NAMED)
    them = "it" if len(paths) == 1 else "them"
    files = any(path.startswith("/") or "://" in path or path == "-" for path in paths)
    verb = "ingest" if files else "measure"  # records of a replay are in no file
    return f"lost: rows of {', '.join(paths[:_NAMED])}{more}; remedy: `logparse forget` {them} and {verb} {them} again"
