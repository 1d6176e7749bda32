"""The verbs as functions for notebooks and scripts: what the program does, without its printing.

They are not names of ``logparse`` itself, as ``logparse.ingest`` is a package: importing it anywhere would replace a
function of that name.

>>> from logparse import api
>>> folder_of_logs = "sample_logs/hipblaslt"
>>> names = ("hipblaslt_rank0_4242.log", "bench_output.txt")
>>> results = api.ingest([f"{folder_of_logs}/{name}" for name in names], folder, run="job")
>>> [(result.state, result.problems) for result in results]
[('new', 17), ('new', 17)]
>>> store = api.open(folder)
>>> found = api.recommend(store)
>>> len(found.findings) == len(store.findings()) > 0      # kept in the store, as by `logparse recommend`
True
>>> api.roofline(api.store_points(store)).layout.yaxis.title.text
'achieved TFLOP/s'

The figures (``roofline``, ``regret``, ``solutions``) are those of ``analyzers.explore``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers import explore
from logparse import lazy, open

if TYPE_CHECKING:
    from analyzers.evidence.tables import Settings
    from analyzers.explore import *  # noqa: F403
    from analyzers.recommend.ranking import Recommendation
    from logparse.ingest import Ingested
    from logparse.store import Store

__all__ = ["ingest", "open", "recommend"]


def ingest(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    store: Store | str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    format: str | None = None,
    jobs: int = 1,
    engine: str = "local",
) -> list[Ingested]:
    """Read files, folders, globs and URLs into a store; one that does not exist is made.

    Returns one result per input; one that could not be read has the state ``failed`` and its reason in ``error``.
    ``store`` is a store, its folder or URL (default as for ``open``); ``run`` labels the inputs (default: the time of
    this call); ``format`` names their format instead of recognising it; ``jobs`` processes of ``engine`` read at once
    (0: one per core).  Raises UsageError for a format or engine that does not exist, StoreError as ``open`` does.
    """
    from logparse.executors import open_executor
    from logparse.ingest import ingest as read
    from logparse.store import Store, open_store

    held = store if isinstance(store, Store) else open_store(store, create=True)
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    names = [os.fspath(path) for path in several]
    with open_executor(engine, jobs) as executor:
        return read(names, held, run=run, format=format, executor=executor)


def recommend(
    store: Store | str | os.PathLike[str] | None = None,
    run: str | None = None,
    *,
    settings: Settings | None = None,
    out: str | os.PathLike[str] | None = None,
    gpus: int = 1,
    own: Sequence[str] = (),
) -> Recommendation:
    """Rank what is worth changing in a run (default the latest), and keep it as the view ``findings``.

    With ``out`` the override files and ``report.md`` are written into that folder, for targets with ``gpus`` devices
    per process, and with the other rows of ``own``, override files that the job reads now.  Raises StoreError for a
    store or run that does not exist, OSError where ``out`` cannot be written.
    """
    from analyzers.evidence.tables import Settings
    from analyzers.recommend.verb import advise, write
    from logparse.store import Store

    chosen = settings or Settings()
    found = advise(store if isinstance(store, Store) else open(store), chosen, run)
    if out is not None:
        write(found, chosen, Path(out), gpus, own)
    return found


__getattr__ = lazy.members(__name__, dict.fromkeys(explore.__all__, "analyzers.explore"))


def __dir__() -> list[str]:
    return sorted([*__all__, *explore.__all__])
