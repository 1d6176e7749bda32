"""The tables of a run: built here for every verb, so that no two can disagree."""

from __future__ import annotations

import tempfile
from pathlib import Path

from analyzers.analyzer import Tables
from logparse.errors import InputError, StoreError
from logparse.ingest import ingest
from logparse.store import Store, open_store


def tables_of(store: Store, run: str | None = None) -> Tables:
    """The tables of a run, by default the latest.  Raises StoreError."""
    run = store.latest_run(run)
    return Tables(run=run, **store.frames(run))


def tables_at(word: str, store: str | None = None) -> Tables:
    """The run that a word names: ``STORE`` (its latest run), ``STORE#RUN``, the label of a run in ``store``, or log
    files, which are read into a store that is forgotten afterwards.

    Raises InputError where it is none of these.
    """
    place, hash_, run = word.rpartition("#")
    if hash_:
        return tables_of(open_store(place), run)
    opened = _existing(word)
    if opened is not None:
        return tables_of(opened)
    here = _existing(store)
    if here is not None and word in here.runs():
        return tables_of(here, word)
    with tempfile.TemporaryDirectory(prefix="logparse-") as folder:
        read = open_store(folder, create=True)
        results = ingest([word], read, run=Path(word).name or word)
        if not any(result.recognised for result in results):
            raise InputError(f"{word}: no store, {_no_run(here)} and no log that can be read")
        return tables_of(read)


def _no_run(store: Store | None) -> str:
    return "no run" if store is None else f"no run of {store.url} (there is {', '.join(store.runs()) or 'none'})"


def _existing(store: str | None) -> Store | None:
    try:
        return open_store(store)
    except StoreError:
        return None
