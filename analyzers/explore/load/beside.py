"""Compare the run on the web page with another run, in the same way as ``logparse diff``.

The user names the other run after ``--compare``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.evidence.runs import existing
from logparse.errors import StoreError
from logparse.store import Store
from logparse.text import sql_text

if TYPE_CHECKING:
    import duckdb

    from analyzers.compare.diff import Diff
    from analyzers.explore.load.job import Calls
    from analyzers.job.gpu_time import GpuTime


@dataclass(frozen=True)
class Beside:
    """The results of a comparison with another run, for the page and the report. Without that run, all are empty.

    * ``times``: the file with the times of both runs (``keep``).
    * ``gpu_time``: how the GPU spent its time in the traces of the other run.
    * ``changed``: how many GEMMs and convolutions became faster, slower and so on.
    * ``calls``: the number of calls of each kind in the other run and in this run, and of their processes.
    * ``proposed``: a text about changed picks that ``recommend`` proposed for the other run.
    """

    times: Path | None = None
    gpu_time: GpuTime | None = None
    changed: Mapping[str, int] = field(default_factory=dict)
    calls: Sequence[Calls] = ()
    proposed: str = ""


def compare(store: Store, run: str, other: Store, other_run: str, folder: Path) -> Beside:
    """Compare a run with another one, and write the times of both into the folder.

    Raises StoreError if a run does not exist.
    """
    from analyzers.explore.load.analysis import load_gpu_time

    found = compare_runs(store, run, other, other_run)
    times, gpu_time = keep(found, folder), load_gpu_time(other, other_run)
    return Beside(times, gpu_time, changed(found), calls(found), proposed(found, other))


def find_run_to_compare(word: str, store: Store) -> tuple[Store, str]:
    """Find the run with which the user wants to compare. Returns its Parquet folder (``Store``) and its name.

    * ``word``: a Parquet folder, ``STORE#RUN``, ``STORE:RUN``, or a run in ``store``.

    Raises StoreError for any other text.
    """
    # A folder without a run means its latest run.
    if (whole := existing(word)) is not None:
        return whole, whole.latest_run()
    for place, mark in enumerate(word):  # Both parts may hold colons: a URL, and a run named by its time.
        if place and mark in ":#" and (found := existing(word[:place])) is not None:
            return found, found.latest_run(word[place + 1 :])
    if word in store.runs():
        return store, word
    known = ", ".join(store.runs()) or "none"
    raise StoreError(f"--compare {word}: neither a store nor a run of {store.url} ({known})")


def put_in_order(store: Store, run: str, other: Store, other_run: str) -> tuple[str, str]:
    """Return the two runs of a comparison as ``(later, earlier)``, by the order in which they were ingested.

    A comparison is shown from the earlier run to the later one, whichever the user named first. A run of another store
    counts as the earlier one.
    """
    return later_first(store.runs(), run, other_run) if other.url == store.url else (run, other_run)


def later_first(runs: Sequence[str], run: str, other: str) -> tuple[str, str]:
    """Return two runs as ``(later, earlier)``. ``runs`` are all runs of the store, the oldest first.

    If ``other`` is no run of the store, it counts as the earlier one.
    """
    swapped = run in runs and other in runs and runs.index(run) < runs.index(other)
    return (other, run) if swapped else (run, other)


def names(store: Store, run: str, other: Store, other_run: str) -> tuple[str, str]:
    """Return the names under which the user sees the two compared runs.

    If both runs are in one Parquet folder, these are the names of the runs. Otherwise they are the URLs of the folders.
    """
    return (run, other_run) if store.url == other.url else (store.url, other.url)


def compare_runs(store: Store, run: str, other: Store, other_run: str) -> Diff:
    """Compare two runs by the rules of ``logparse diff``, this run as A and the other run as B.

    Raises StoreError if a run does not exist.
    """
    from analyzers.compare.diff import diff
    from analyzers.compare.timings import times_of_run

    # In the result, a GEMM or convolution has the text that this run has. The functions below turn the result around:
    # they go from the other run to this run.
    return diff(times_of_run(store, run), times_of_run(other, other_run))


def changed(found: Diff) -> dict[str, int]:
    """Count the GEMMs and convolutions in each state of this run against the other run, for example ``slower``."""
    # If a run logs calls of a kind (GEMM or convolution), what it only measured of that kind is no part of the job. It
    # is neither new nor vanished.
    rows = found.con.execute(_CHANGED).fetchall()
    return {_TURNED.get(state, state): int(count) for state, count in rows}


def calls(found: Diff) -> list[Calls]:
    """Return the number of calls of each kind in the other run and in this run. None if no log counts them.

    The last two numbers are those of the processes that made the calls, 0 if they are unknown.
    """
    mine, others = found.processes_of
    return [(kind, there, here, others.get(kind, 0), mine.get(kind, 0)) for kind, here, there in found.calls]


def proposed(found: Diff, earlier: Store) -> str:
    """Say how many changed picks are solutions that ``recommend`` proposed for the other run. Empty if none is.

    * ``earlier``: the store of the other run.
    """
    from analyzers.compare.render import count_proposed, say_proposed

    count, (changed, *_) = count_proposed(found, earlier, earlier="b"), found.flips
    return say_proposed(count, changed, found.b) if count else ""


def runs_alike(con: duckdb.DuckDBPyConnection, run: str) -> list[str]:
    """Return the runs that call the same GEMMs or convolutions as this run, the run with the most of them first."""
    found = con.execute(
        """with called as (select distinct run, hash(problem) as h from workload)
           select o.run from called o join called m using (h) where m.run = $run and o.run <> $run
           group by o.run order by count(*) desc, o.run""",
        {"run": run},
    )
    return [str(name) for (name,) in found.fetchall()]


_TURNED = {"slower": "faster", "faster": "slower", "new": "vanished", "vanished": "new"}
"""The state of A against B, for each state of B against A that differs from it."""
_CHANGED = """
    with rows as (
        select state, if(state = 'new', calls_b, calls_a) as calls,
               count(calls_a) over (partition by split_part(problem, ' ', 1)) as known_a,
               count(calls_b) over (partition by split_part(problem, ' ', 1)) as known_b
        from compared)
    select state, count(*) from rows
    where state not in ('new', 'vanished') or calls is not null or if(state = 'new', known_b, known_a) = 0
    group by state order by state"""


def keep(found: Diff, folder: Path) -> Path:
    """Write the comparison of two runs to a Parquet file in the folder, and return the file's path.

    * Columns: ``problem, here_us, other_us, moved, pick_here, pick_there``
    * ``moved``: how this run differs from the other run
    """
    path = folder / "others.parquet"
    # A GEMM or convolution has a row if both runs have comparable times for it, or if it is known for both which kernel
    # the library chose.
    rows = """
        select problem, if(ratio is null, null, a_us) as here_us, if(ratio is null, null, b_us) as other_us,
               case when state = 'changed' then 'other pick' when state = 'unknown' and pick_a = pick_b then 'same pick'
                    when state = 'slower' then 'faster' when state = 'faster' then 'slower'
                    else state end as moved, pick_a as pick_here, pick_b as pick_there
        from compared where ratio is not null or (pick_a is not null and pick_b is not null)"""
    found.con.execute(f"copy ({rows}) to {sql_text(path)} (format parquet)")
    return path
