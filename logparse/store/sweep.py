"""Remove the files of a store that no reader needs any more: files of killed attempts, and merged files."""

from __future__ import annotations

import os
import time

from logparse.location import flush
from logparse.store.inventory import write_inventory
from logparse.store.manifest import MERGED, manifest_paths, restore_lists
from logparse.store.parts import attempt_of, row_files, writers_of
from logparse.store.schema import SCHEMAS
from logparse.store.store_files import StoreFiles


def sweep(store: StoreFiles, older_than_s: float = 3600, *, unread: bool = False) -> int:
    """Remove files that no reader of the store needs any more. Return how many were removed.

    The store consists of Parquet files. An attempt is one reading of an input file, and it is valid when its commit
    (a small file) is written.

    | file | removed |
    |---|---|
    | a Parquet file of an attempt without a commit | if the attempt wrote nothing for ``older_than_s`` seconds |
    | a file that was merged into another one | ``older_than_s`` seconds after the merge, or at once if ``unread`` |
    | any file, while a commit is lost | never: files of a lost commit look like files without a commit |

    If records of forgotten data are lost, they are written again. ``unread`` means that no other process reads the
    store. Only the caller can know that: a reader only has names of files, and takes no lock that other hosts or S3
    could show.
    """
    manifest, now = store.manifest(), time.time()
    commits = store.commit_table(manifest)
    if lost := store.lost_lists(manifest):
        restore_lists(store.filesystem, store.root, lost)
        manifest = store.manifest()
        commits = store.commit_table(manifest)
    if store.lost_commits(manifest):  # the attempts of lost commits are not known
        return 0
    # After this time no reader uses an older manifest.  If there is no manifest, a compaction may be writing the
    # first one.
    settled = unread or (manifest.number > 0 and now - manifest.written_at > older_than_s)
    committed = writers_of(set(commits["attempt"].to_pylist()) - manifest.attempts)
    merged = writers_of(manifest.attempts)
    kept = store.inventory
    if kept.due(manifest):
        write_inventory(store.filesystem, store.root, kept.without(manifest), max(kept.manifest, manifest.number))
        for path in kept.files:
            store.delete(path)
        flush(store.filesystem, store.root, folders=[f"{store.root}/sources"])  # before the spent lists are deleted
    attempts = zip(row_files(store.row_table), store.row_table["attempt"].to_pylist(), strict=True)
    back = [f"{store.root}/{file}" for file, attempt in attempts if attempt in manifest.forgotten]
    if back:  # a killed `forget` has left these files
        for path in back:
            store.delete(path)
        flush(store.filesystem, store.root, folders=map(os.path.dirname, back))
    doomed = [*(f"{store.root}/{one.file}" for one in manifest.spent)]
    doomed += [*(p for p in manifest_paths(store.filesystem, store.root)[:-1] if settled)]
    if settled:
        merged_rows = {f"{store.root}/{path}" for path in manifest.row_files}
        doomed += [p for p in store.files("sources") if p in merged_rows]
    loose: dict[str, list[str]] = {}
    touched: dict[str, float] = {}
    for table in SCHEMAS:
        for info in store.infos(table):
            attempt = attempt_of(info.path)
            if attempt in committed or info.path.removeprefix(f"{store.root}/") in manifest.parts:
                continue
            if attempt in merged or attempt.startswith(MERGED):
                doomed += [info.path] if settled else []
            else:  # an attempt with a recent part may still be running
                loose.setdefault(attempt, []).append(info.path)
                touched[attempt] = max(touched.get(attempt, 0.0), (info.mtime_ns or 0) / 1e9)
    doomed += [p for attempt, paths in loose.items() if now - touched[attempt] > older_than_s for p in paths]
    return sum(store.delete(path) for path in doomed)
