"""The verbs as functions for notebooks and scripts.  They do what the program does, but print nothing.

These functions are not names of ``logparse`` itself.  Because ``logparse.ingest`` is a package, importing that package
anywhere would replace a function ``logparse.ingest``.

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

The figures (``roofline``, ``regret``, ``solutions``) are the functions of ``analyzers.explore``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers import explore
from logparse import lazy, open
from logparse.lazy import pd
from logparse.quoting import html_text

if TYPE_CHECKING:
    from analyzers.evidence.tables import Settings
    from analyzers.explore import *  # noqa: F403
    from analyzers.recommend.ranking import Recommendation
    from logparse.ingest import Ingested
    from logparse.store import Store

__all__ = ["Run", "ingest", "open", "recommend", "run"]


def ingest(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    store: Store | str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    format: str | None = None,
    jobs: int = 1,
    engine: str = "local",
) -> list[Ingested]:
    """Read files, folders, globs and URLs into a store.  Return one result per input.

    A result of an input that could not be read has the state ``failed`` and the reason in ``error``.

    * ``store``: a store, its folder or its URL. The default is as for ``open``.  A store that does not exist is made.
    * ``run``: the label of the inputs.  The default is the time of this call.
    * ``format``: the name of the inputs' format.  Without a name each format is recognised.
    * ``jobs``: the number of processes of ``engine`` that read at once.  0 means one per core.

    Raises UsageError if the format or the engine does not exist.  Raises StoreError as ``open`` does.
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
    """Rank what is worth changing in a run.  Keep the findings in the store, as the view ``findings``.

    The default run is the latest one.  If ``out`` is given, the override files and ``report.md`` are written into that
    folder.  The files are for targets with ``gpus`` devices per process.  ``own`` names override files that the job
    reads now; their other rows are written as well.  Raises StoreError if the store or the run does not exist.  Raises
    OSError if ``out`` cannot be written.
    """
    from analyzers.evidence.tables import Settings
    from analyzers.recommend.verb import advise, write
    from logparse.store import Store

    chosen = settings or Settings()
    found = advise(store if isinstance(store, Store) else open(store), chosen, run)
    if out is not None:
        write(found, chosen, Path(out), gpus, own)
    return found


def run(label: str | None = None, store: Store | str | os.PathLike[str] | None = None) -> Run:
    """Return a run of a store, by its label (default the latest).

    Raises StoreError for a store or run that does not exist.
    """
    from logparse.store import Store

    held = store if isinstance(store, Store) else open(store)
    return Run(held, held.latest_run(label))


class Run:
    """Run of a store, for notebooks: what to do about it, its views and its figures.

    Each of them is computed when it is first asked for.

    >>> job = run("job", folder)
    >>> job
    Run('job': use 4 faster solutions: ... ms a run, measured alone, not confirmed)
    >>> list(job.todo.columns)
    ['title', 'now_us', 'then_us', 'unit', 'certainty', 'changes']
    """

    def __init__(self, store: Store, label: str) -> None:
        self.store, self.label = store, label

    @cached_property
    def recommendation(self) -> Recommendation:
        """The answer of ``recommend`` with its usual settings."""
        return recommend(self.store, self.label)

    @property
    def headline(self) -> str:
        """The first line of ``recommend``."""
        from analyzers.recommend.verdict import verdict

        return verdict(self.recommendation).headline

    @property
    def todo(self) -> pd.DataFrame:
        """Things worth doing, the best first.  Times are µs of a ``unit``: a step, the run, or one call."""
        from analyzers.recommend.verdict import verdict

        names = ("title", "now_us", "then_us", "unit", "certainty", "changes")
        return pd.DataFrame(
            [{n: getattr(x, n) for n in names} for x in verdict(self.recommendation).todo], columns=names
        )

    @property
    def findings(self) -> pd.DataFrame:
        """One row per finding, with the columns of ``recommend --format csv``."""
        from analyzers.recommend.render import rows

        return rows(self.recommendation)

    def top(self, n: int = 20, by: str = "calls") -> pd.DataFrame:
        """The ``n`` problems with the most calls, or with the most time (``by="time"``)."""
        from logparse.lookup import ranked

        frame: pd.DataFrame = ranked(self.store, by=by, kind=None, n=n, run=self.label).rows.to_pandas()
        return frame

    def view(self, name: str) -> pd.DataFrame:
        """A SQL view (docs/sql.md), limited to this run."""
        with self.store.connect(self.label) as con:
            return con.execute(f"select * from {name}").df()

    def points(self) -> pd.DataFrame:
        """Problems of the run in the form that the figures take: ``api.roofline(job.points())``."""
        return explore.store_points(self.store, self.label)

    def __repr__(self) -> str:
        return f"Run({self.label!r}: {self.headline})"

    def _repr_html_(self) -> str:
        """Return the headline and the list as HTML, which a notebook shows."""
        return f"<p>{html_text(self.headline)}</p>{self.todo.to_html(index=False)}"

    def __dir__(self) -> list[str]:
        return ["findings", "headline", "label", "points", "recommendation", "store", "todo", "top", "view"]


__getattr__ = lazy.members(__name__, dict.fromkeys(explore.__all__, "analyzers.explore"))


def __dir__() -> list[str]:
    return sorted([*__all__, *explore.__all__])
