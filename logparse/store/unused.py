"""A store that this process made, and in which nothing was recognised: its folder is removed again.

Another process may have opened it meanwhile.  That one announces itself, and then marks the folder as a store where the
mark is gone (see ``announcements``); here the mark goes first, and is put back where anybody else's file is in the
folder.  So whatever the order of these four steps, one of the two sees what the other did, and the store stays whole.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from logparse.location import META
from logparse.store.parts import row_file
from logparse.store.store import Store


def remove_unused(store: Store, paths: Collection[str] = ()) -> bool:
    """Remove the store if this process made it, on this machine, and it holds nothing but sources at these ``paths`` of
    which no part was written.  Returns whether it did.
    """
    root, made = store.folder, store.made
    if root is None or made is None:
        return False
    mark, own = root / META, {root / row_file(row) for row in store.commits() if row.path in paths}
    if _files(root) != {mark, *own}:
        return False
    mark.unlink()
    if _files(root) != own:
        store.mark()
        return False
    for path in own:
        path.unlink()
    below = sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True)
    for folder in (*below, *made):
        with suppress(OSError):  # another process has just begun to use it
            folder.rmdir()
    return True


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.is_dir()}
