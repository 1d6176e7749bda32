"""Check the files of a store (``logparse check``): which are damaged or missing, and which cannot be checked."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from logparse.errors import StoreError
from logparse.store.digests import Part
from logparse.store.findings import read_findings
from logparse.store.parts import attempt_of, writers_of
from logparse.store.recorded import Recorded
from logparse.store.schema import RECORDED, SCHEMAS
from logparse.store.store_files import StoreFiles
from logparse.text import pluralize


def find_damage(store: StoreFiles) -> list[str]:
    """Check all files of the store. Return a line for each missing or damaged file, with what is lost."""
    found = _look_once(store)
    # Every file is read. If there is damage, everything is checked again, because another process may just have
    # removed files. Only damage that was found both times is returned.
    return [line for line in _look_once(store) if line in found] if found else []


def _look_once(store: StoreFiles) -> list[str]:
    try:
        manifest = store.manifest()
    except StoreError as error:
        return [str(error)]
    commits = store.live_table(manifest=manifest)
    recorded, found = Recorded(commits, manifest), store.lost_commits(manifest)
    listed = {store.below(info.path): info for table in SCHEMAS for info in store.infos(table)}
    left = {attempt_of(path) for path in listed}
    for row in commits.to_pylist():
        units = sum(row[f"{unit}_lines"] or 0 for unit in ("call", "message", "measurement", "reject"))
        unrecorded = row[RECORDED] is None and row["attempt"] not in manifest.attempts
        if units and unrecorded and not writers_of([row["attempt"]]) & left:
            found.append(f"{row['path']}: all its parts are missing; `logparse forget` it and ingest it again")
    cut = [line for table in SCHEMAS for line in recorded.cut(table, listed)]
    named = {line.partition(": ")[0] for line in cut}
    for path in sorted(path for path in listed if path not in named and recorded.holds(path)):
        if why := why_not(store, path, recorded.parts.get(path)):
            found.append(recorded.line(path, why))
    try:
        read_findings(store)
    except StoreError as error:
        found.append(str(error))
    return [*found, *cut, *store.inventory.damaged]


def why_not(store: StoreFiles, path: str, part: Part | None) -> str:
    """Check a file of the store. Return a text that says what is wrong with it, or an empty text."""
    try:
        if part is not None:
            return part.why_not(store.filesystem, store.root)
        pq.ParquetFile(f"{store.root}/{path}", filesystem=store.filesystem).read()
    except (OSError, pa.ArrowException) as error:
        return str(error).partition("\n")[0]
    return ""


def find_weaknesses(store: StoreFiles) -> list[str]:
    """Return remarks about weaknesses of this store that are no damage, one line for each kind.

    For example, files of earlier versions have no checksums, so ``find_damage`` cannot check them.
    """
    manifest = store.manifest()
    recorded = Recorded(store.live_table(manifest=manifest), manifest)
    paths = (store.below(path) for table in SCHEMAS for path in store.files(table))
    old = sum(recorded.holds(path) and path not in recorded.parts for path in paths)
    new = len(store.unlisted(manifest)) + (manifest.number > store.inventory.manifest)
    out = []
    if old:
        out.append(
            f"{pluralize(old, 'part')} of an earlier version have no checksum, so a changed number in them is not found"
        )
    if new:
        why = "`logparse ingest` was killed, or an inventory file, which lists the commits, is missing"
        out.append(
            f"{pluralize(new, 'commit')} in no inventory ({why}), so their deletion is not found before the next ingest"
        )
    return out
