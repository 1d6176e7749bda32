"""Another run beside the one that is looked at: which one ``--compare`` names, and what ``logparse diff`` finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.evidence.runs import existing
from logparse.errors import StoreError
from logparse.store import Store
from logparse.text import sql_text

if TYPE_CHECKING:
    from analyzers.compare.diff import Diff


def beside(word: str, store: Store) -> tuple[Store, str]:
    """The store and the run that a word names: ``STORE`` (its latest run), ``STORE#RUN`` (also ``STORE:RUN``), or a run
    of ``store``.  Raises StoreError for any other word.
    """
    if (whole := existing(word)) is not None:
        return whole, whole.latest_run()
    for place, mark in enumerate(word):  # both may hold colons: a URL, and a run that is named by its time
        if place and mark in ":#" and (found := existing(word[:place])) is not None:
            return found, found.latest_run(word[place + 1 :])
    if word in store.runs():
        return store, word
    known = ", ".join(store.runs()) or "none"
    raise StoreError(f"--compare {word}: neither a store nor a run of {store.url} ({known})")


def names(store: Store, run: str, other: Store, other_run: str) -> tuple[str, str]:
    """How the two are called: by their runs where they are of one store, else by their stores."""
    return (run, other_run) if store.url == other.url else (store.url, other.url)


def compared(store: Store, run: str, other: Store, other_run: str) -> Diff:
    """The same comparison as ``logparse diff``.  Raises StoreError for a run that does not exist."""
    from analyzers.compare.diff import diff
    from analyzers.compare.timings import times_of_run

    return diff(times_of_run(store, run), times_of_run(other, other_run))


def keep(found: Diff, folder: Path) -> Path:
    """The file in the folder that holds the comparison: ``problem, here_us, other_us, moved`` where both have times."""
    path = folder / "others.parquet"
    rows = "select problem, a_us as here_us, b_us as other_us, state as moved from compared where ratio is not null"
    found.con.execute(f"copy ({rows}) to {sql_text(path)} (format parquet)")
    return path
