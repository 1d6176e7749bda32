"""The commands of the program as functions for notebooks and scripts.  They print nothing.

Most of these functions are names of ``logparse`` itself, too, for example ``logparse.recommend``.

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

A run has what a notebook asks for: ``store.run("job")`` (``Run``).  The figures (``roofline``, ``regret``,
``solutions``) are the functions of ``analyzers.explore``, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import logparse
from analyzers import explore
from logparse import lazy
from logparse.errors import InputError
from logparse.lazy import pd
from logparse.output import Answer
from logparse.output.answer import arrow
from logparse.output.terminal import Block, rows_of
from logparse.quoting import html_text
from logparse.store import Store
from logparse.text import make_printable, pluralize

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from analyzers.evidence.tables import Settings
    from analyzers.explore import *  # noqa: F403
    from analyzers.recommend.ranking import Recommendation
    from logparse.ingest import Ingested

Location: TypeAlias = Store | str | os.PathLike[str] | None
"""Argument that names a store (the folder with everything that logparse has read).

The value is an open store, or the folder or URL of a store.  Without a value (None) the default of ``open`` is used.
"""

__all__ = ["OpenStore", "Result", "Run", "run"]
__all__ += logparse.__all__


def open(location: str | os.PathLike[str] | None = None) -> OpenStore:
    """Open a store (the folder with everything that logparse has read) at a folder or URL.

    The default is ``$LOGPARSE_STORE`` or else ``logparse-store``. Raises StoreError if there is no store, or if another
    schema version wrote it.
    """
    from logparse.store import open_store

    held = open_store(location)
    return OpenStore(held.url, held.filesystem, held.root)


class OpenStore(Store):
    """An open store for notebooks and scripts.

    A run is what was read about one execution of a job, under one label.  ``run`` returns a run.  The SQL views are
    methods that return DataFrames, for example ``calls()``.
    """

    def run(self, label: str | None = None) -> Run:
        """Return the data of one execution of the job: the run with this label, or the latest run.

        Raises StoreError if it does not exist.
        """
        return Run(self, self.latest_run(label))

    def _repr_html_(self) -> str:
        """Return the store's contents as an HTML table, which a notebook shows."""
        return f"<p>{html_text(repr(self))}</p>{status(self).table.to_html(index=False)}"

    def __dir__(self) -> list[str]:
        views = ("calls", "conv_problems", "facts", "gemm_problems", "kernels", "measurements", "sources", "workload")
        return sorted((*views, "rejects", "run", "runs", "sql", "url"))


def ingest(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    store: Location = None,
    *,
    run: str | None = None,
    format: str | None = None,
    jobs: int = 1,
    engine: str = "local",
) -> list[Ingested]:
    """Read files, folders, globs and URLs into a store.  Return one result per input.

    If an input cannot be read, its result has the state ``failed`` and the reason in ``error``.

    * ``store``: an open store, its folder or its URL.  The default is the same as in ``open``.  A store that does not
      exist is made.
    * ``run``: the label of the job execution to which the inputs belong.  The default is the time of this call.
    * ``format``: the name of the inputs' format.  By default the format of each input is recognised.
    * ``jobs``: the number of processes that read at once.  0 means one per core.
    * ``engine``: how these processes are started, for example ``local``.

    Raises UsageError if the format or the engine does not exist.  Raises StoreError for the same reasons as ``open``.
    """
    from logparse.executors import open_executor
    from logparse.ingest import ingest as read
    from logparse.store import open_store

    held = store if isinstance(store, Store) else open_store(store, create=True)
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    names = [os.fspath(path) for path in several]
    with open_executor(engine, jobs) as executor:
        return read(names, held, run=run, format=format, executor=executor)


def recommend(
    store: Location = None,
    run: str | None = None,
    *,
    settings: Settings | None = None,
    out: str | os.PathLike[str] | None = None,
    gpus: int = 1,
    own: Sequence[str] = (),
) -> Recommendation:
    """Find what to change in a job, and rank the changes by the time that they save.

    The findings are also stored, as the view ``findings``.

    * ``run``: the label of the run (the data of one execution of the job).  The default is the latest run.
    * ``out``: a folder into which the override files (the kernels that the libraries should use) and ``report.md`` are
      written.  By default no file is written.
    * ``gpus``: the number of GPUs that each process of the job sees.
    * ``own``: override files that the job reads now.  Rows that the new files do not replace are copied into them.

    Raises StoreError if the store or the run does not exist.  Raises OSError if ``out`` cannot be written.
    """
    from analyzers.evidence.tables import Settings
    from analyzers.recommend.verb import advise, write

    chosen = settings or Settings()
    found = advise(store if isinstance(store, Store) else open(store), chosen, run)
    if out is not None:
        write(found, chosen, Path(out), gpus, own)
    return found


def run(label: str | None = None, store: Location = None) -> Run:
    """Return a run of a store: the data of one execution of a job.

    ``label`` names the run.  The default is the latest run.  Raises StoreError if the store or the run does not exist.
    """
    held = _open_if_needed(store)
    return Run(held, held.latest_run(label))


def _open_if_needed(store: Location) -> Store:
    return store if isinstance(store, Store) else open(store)


def diff(a: str, b: str, store: Location = None, *, fail_on: float = 0.03) -> Result:
    """Compare two executions of a job, and return which matrix products and convolutions became slower or faster.

    A run is what was read about one execution.  The command ``logparse diff`` gives the same answer.  ``a`` and ``b``
    are labels of runs, stores (their latest run), ``STORE#RUN``, or log files.  A product or convolution is slower if
    its calls take more than ``fail_on`` longer (0.03 is 3 %).  Raises InputError if ``a`` or ``b`` names no run.
    """
    from analyzers.compare import render

    found, plan, worth = render.compare(a, b, _open_if_needed(store).url, fail_on)
    return Result(render.diff_answer(found, plan, None, worth))


def verify(before: str, after: str, files: Sequence[str | os.PathLike[str]], store: Location = None) -> Result:
    """Check whether override files (lists of kernels to use) took effect, and how much time they saved.

    ``before`` and ``after`` name the runs without and with the files, as for ``diff``. Raises InputError if a name
    matches no run.
    """
    # The command ``logparse verify`` gives the same answer.
    from analyzers.compare import verify as overrides
    from analyzers.compare.diff import FAIL_ON

    names = [os.fspath(file) for file in files]
    return Result(
        overrides.answer(overrides.verify_at(before, after, names, _open_if_needed(store).url, FAIL_ON), False)
    )


def lint(files: Sequence[str | os.PathLike[str]], *, target: Mapping[str, str] | None = None) -> Result:
    """Check for each row of override files (lists of kernels to use) whether the library will use it.

    The command ``logparse lint`` gives the same answer.  ``target`` holds facts of the machine that will read the
    files, such as ``{"arch": "gfx942"}``.
    """
    from analyzers.overrides.lint import answer, lint_files

    return Result(answer(*lint_files([os.fspath(file) for file in files], target or {}, None, None), False))


def coverage(files: Sequence[str | os.PathLike[str]], run: str | None = None, store: Location = None) -> Result:
    """Return which calls of a job have a row in the override files (lists of kernels to use).

    ``run`` is the label of the job's execution (default: the latest). Raises StoreError if the store or the run does
    not exist.
    """
    # The command ``logparse coverage`` gives the same answer.
    from analyzers.evidence.runs import tables_to_check
    from analyzers.overrides.coverage import answer
    from analyzers.overrides.lint import lint_files

    tables = tables_to_check(_open_if_needed(store), run)
    return Result(answer(*lint_files([os.fspath(file) for file in files], {}, tables), tables))


def show(text: str, store: Location = None, run: str | None = None) -> Result:
    """Return all calls and times of one matrix product or convolution. ``run`` limits them to one run.

    ``text`` describes the product or convolution: it is a log line of any format, or a name from a table of logparse.
    Raises InputError if it is neither.
    """
    from logparse.lookup import one_problem

    held = _open_if_needed(store)
    known = one_problem.show(held, text, run)
    return Result(Answer(list(one_problem.known_lines(held, known, run)), one_problem.known_table(known), "show"))


def status(store: Location = None) -> Result:
    """Return a table of the store's contents, with one row per run and file format."""
    from logparse.lookup.contents import list_contents

    return Result(Answer(table=list_contents(_open_if_needed(store)), of="status"))


def report(
    store: Location = None,
    run: str | None = None,
    *,
    out: str | os.PathLike[str] = "report.html",
    compare: str | None = None,
    top: int = 500,
) -> Path:
    """Write the charts and tables of a run (one execution of a job) to one HTML file, and return the file's path.

    A browser shows the file without a network.  The command ``logparse report`` writes the same file.

    * ``run``: the label of the run.  The default is the latest run.
    * ``compare``: a run to compare with, named as for ``diff``.
    * ``top``: the number of matrix products and convolutions in the file, the costliest ones.

    Raises StoreError if the store or a run does not exist.  Raises OSError if ``out`` cannot be written.
    """
    from analyzers.explore.report import write_report

    write_report(_open_if_needed(store), out, run=run, compare=compare, top=top)
    return Path(out)


class Result:
    """The answer of a logparse command: its sentences (``lines``) and its table as a DataFrame (``table``).

    Python shows it as its first sentence (if there is one), the number of rows and the names of the columns:

    >>> status(folder)
    1 row: run, format, files, lines, call_lines, measurement_lines, message_lines, rejects, foreign_lines, bytes
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    @cached_property
    def _blocks(self) -> list[str | Block]:
        return [*self._answer.blocks]

    @property
    def lines(self) -> list[str]:
        """The sentences of the command's answer. The answer's tables are left out."""
        return [*(x for x in self._blocks if isinstance(x, str)), *self._answer.errors]

    @cached_property
    def table(self) -> pd.DataFrame:
        """The table of the command's answer as a DataFrame. docs/commands.md lists the columns."""
        frame: pd.DataFrame = arrow(self._answer.made, self._answer.of).to_pandas()
        return frame

    def __repr__(self) -> str:
        columns = f"{pluralize(len(self.table), 'row')}: {', '.join(self.table.columns)}"
        return "\n".join([*self.lines[:1], columns])

    def _repr_html_(self) -> str:
        """Return the sentences and the tables of the answer as HTML, which a notebook shows."""
        errors = "".join(f"<p>{html_text(line)}</p>" for line in self._answer.errors)
        return "".join(map(_html, self._blocks)) + errors

    def __dir__(self) -> list[str]:
        return ["lines", "table"]


def _html(block: str | Block) -> str:
    if isinstance(block, str):
        return f"<p>{html_text(block)}</p>"
    frame = pd.DataFrame(rows_of(block)).map(lambda x: make_printable(x) if isinstance(x, str) else x)
    html: str = frame.to_html(index=False, na_rep="")
    return html


class Run:
    """The data of one execution of a job, for notebooks: the changes worth making, its SQL views and its figures.

    Each of them is computed when it is first asked for.

    >>> job = run("job", folder)
    >>> job
    Run('job': use 4 faster GEMM solutions: ... ms a run, measured alone, not confirmed)
    >>> list(job.todo.columns)
    ['title', 'saves_us', 'unit', 'certainty', 'now_us', 'then_us', 'changes']
    """

    def __init__(self, store: Store, label: str) -> None:
        self.store, self.label = store, label

    @cached_property
    def recommendation(self) -> Recommendation:
        """Recommended changes to this job that make it faster, with the expected savings.

        ``logparse recommend`` with its default settings finds the same changes.
        """
        return recommend(self.store, self.label)

    @property
    def headline(self) -> str:
        """The sentence that sums up what to change in the job.  ``logparse recommend`` prints it as its first line."""
        from analyzers.recommend.verdict import verdict

        return verdict(self.recommendation).headline

    @property
    def todo(self) -> pd.DataFrame:
        """A table of the changes that are worth making, the best first.

        Times are µs per ``unit``, which is a step, the run, or one call.  If ``certainty`` is ``unknown``, ``saves_us``
        is the most that the change can save.
        """
        from analyzers.recommend.verdict import verdict

        names = ("title", "saves_us", "unit", "certainty", "now_us", "then_us", "changes")
        todo = verdict(self.recommendation).todo
        times = [(None, None) if x.gain is None else (x.gain.now_us, x.gain.then_us) for x in todo]
        rows = [(x.title, x.gained_us, x.unit, x.certainty, *us, x.changes) for x, us in zip(todo, times, strict=True)]
        return pd.DataFrame(rows, columns=names)

    @property
    def findings(self) -> pd.DataFrame:
        """A table of all findings, one row each, with the columns of ``recommend --format csv``."""
        from analyzers.recommend.render import rows

        return rows(self.recommendation)

    def top(self, n: int = 20, by: str = "calls") -> pd.DataFrame:
        """Return the ``n`` matrix products and convolutions with the most calls, or with the most time.

        ``by`` is ``"calls"`` or ``"time"``.
        """
        from logparse.lookup.ranking import rank_problems

        frame: pd.DataFrame = rank_problems(self.store, by=by, kind=None, n=n, run=self.label).rows.to_pandas()
        return frame

    def view(self, name: str) -> pd.DataFrame:
        """Return one of the store's SQL views (docs/sql.md) as a table, with the rows of this run only.

        A run is one execution of a job.
        """
        with self.store.connect(self.label) as con:
            return con.execute(f"select * from {name}").df()

    @cached_property
    def points(self) -> pd.DataFrame:
        """A table of the job's matrix products and convolutions with their times, from which the figures are drawn."""
        return explore.store_points(self.store, self.label)

    def roofline(self) -> Figure:
        """Draw a roofline chart, in which each matrix product and convolution is a point.

        Its x value is the arithmetic intensity (flop/byte), its y value the achieved TFLOP/s.
        """
        return explore.roofline(self.points)

    def regret(self) -> Figure:
        """Draw how much time the job loses because its libraries do not use the fastest known kernels.

        An override row makes a library use another kernel. The curve shows how much time the first N override rows
        would save.
        """
        return explore.regret(self.points)

    def backward_weights(self) -> Figure:
        """Draw a chart of the weight gradients (wgrad) of convolutions that shows which ones are unusually slow.

        The time of each weight gradient is compared with the time of the same layer's forward pass or input gradient
        (dgrad), whichever is slower.
        """
        return explore.backward_weights(self.points)

    def solutions(self, label: str) -> Figure:
        """Draw the times of all kernels that were measured for one matrix product or convolution of the job.

        ``label`` names the product or convolution, as in the column ``label`` of ``points``.  Raises InputError if the
        job has no such label.
        """
        rows = self.points[self.points["label"] == label]
        if not len(rows):
            raise InputError(
                f"{label}: run {self.label} has no matrix product or convolution of this name; the column label of "
                "`points` lists the names"
            )
        row = rows.iloc[0]
        return explore.solutions(self.store.measurements(), row["measured"], pick=row["pick"])

    def __repr__(self) -> str:
        return f"Run({self.label!r}: {self.headline})"

    def _repr_html_(self) -> str:
        """Return the headline and the table of changes as HTML, which a notebook shows."""
        return f"<p>{html_text(self.headline)}</p>{self.todo.to_html(index=False)}"

    def __dir__(self) -> list[str]:
        figures = ("backward_weights", "regret", "roofline", "solutions")
        return sorted((*figures, "findings", "headline", "label", "points", "recommendation", "todo", "top", "view"))


__getattr__ = lazy.members(__name__, dict.fromkeys(explore.__all__, "analyzers.explore"))


def __dir__() -> list[str]:
    return sorted(__all__)
