"""What was prepared for the page, kept beside the store, so that the next look at the same store starts at once.

    STORE/explore/<key>/judged.duckdb, tries.parquet, run.json, verdict.json

``<key>`` hashes everything that the files were made from: the store's commits, the run, the one beside
it, and this program's own files.  So nothing here can be stale; what no key names any more is removed.  A folder
appears whole, by a rename: a kill at any moment leaves a folder under another name, which is never read and is swept
later.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import xxhash

import analyzers
import logparse
from logparse.store import Store

FOLDER = "explore"
KEPT = 2
"""Folders that stay, the latest ones: a run with and without another one beside it."""
_NEW = ".new-"
_ABANDONED_S = 3600.0


def place(
    store: Store, run: str, other: tuple[Store, str] | None, target: Mapping[str, str] = MappingProxyType({})
) -> Path | None:
    """Where what is made from these is kept; None for a store that is not on this machine's disk."""
    if store.folder is None:
        return None
    facts = [f"{name}={value}" for name, value in sorted(target.items())]
    parts = [
        run,
        *facts,
        "",
        *_commits(store),
        "",
        *([other[1], *_commits(other[0])] if other else ()),
        "",
        *_program(),
    ]
    return store.folder / FOLDER / xxhash.xxh3_128_hexdigest("\0".join(parts).encode())


def restore(kept: Path | None, folder: Path) -> bool:
    """Copy what is kept into ``folder``, so that removing it does not disturb a reader.  False if there is none."""
    if kept is None or not kept.is_dir():
        return False
    try:
        shutil.copytree(kept, folder, copy_function=_linked, dirs_exist_ok=True)
    except OSError:  # swept meanwhile, or no room
        return False
    return True


def keep(folder: Path, kept: Path) -> None:
    """Keep what is in ``folder``, and sweep what is old.  Where that cannot be written nothing is kept."""
    with contextlib.suppress(OSError):
        kept.parent.mkdir(exist_ok=True)
        fresh = kept.parent / f"{_NEW}{secrets.token_hex(8)}"
        shutil.copytree(folder, fresh, copy_function=_linked)
        try:
            fresh.rename(kept)
        except OSError:  # another page kept the same
            shutil.rmtree(fresh, ignore_errors=True)
        _sweep(kept)


def _linked(source: str, target: str) -> None:
    """The same file under another name, as none is ever changed: a page that ends while hundreds of megabytes are
    copied keeps nothing, and the next look would wait for another copy.  A copy where there can be no link.
    """
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def _sweep(newest: Path) -> None:
    others = [path for path in newest.parent.iterdir() if path != newest]
    whole = sorted((x for x in others if not x.name.startswith(_NEW)), key=lambda x: x.stat().st_mtime, reverse=True)
    torn = [x for x in others if x.name.startswith(_NEW) and time.time() - x.stat().st_mtime > _ABANDONED_S]
    for path in (*whole[KEPT - 1 :], *torn):
        shutil.rmtree(path, ignore_errors=True)


def _commits(store: Store) -> list[str]:
    return [x for row in store.commits() for x in (row.attempt, row.run, row.path)]


def _program() -> Iterator[str]:
    """Names, sizes and times of the files of both packages: an edited analyzer is run again."""
    yield version("duckdb")  # of whose files one is kept
    for package in (logparse, analyzers):
        root = Path(str(package.__file__)).parent
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                if name.endswith((".py", ".csv")):
                    known = os.stat(os.path.join(folder, name))
                    yield f"{folder[len(str(root)) :]}/{name} {known.st_size} {known.st_mtime_ns}"
