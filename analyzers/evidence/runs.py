"""Load the tables of one execution of a job (a run) from the Parquet folder to which ``ingest`` wrote them.

All commands use these functions, so that no two commands disagree.

| function | used by |
|---|---|
| ``tables_to_analyse`` | the analyzers of ``recommend``, ``explore`` and ``report`` |
| ``tables_to_check`` | ``coverage`` and ``lint --against`` |
| ``tables_of`` | ``verify``: all tables, nothing left out |
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from analyzers.evidence.origins import ACTION, CONFIRM, HOST, RACE
from analyzers.evidence.tables import Tables
from logparse.errors import InputError, StoreError
from logparse.libraries.aiter import tables as aiter_tables
from logparse.links import full_links_sql
from logparse.store import Store, open_store
from logparse.store.views import conv_problems_sql
from logparse.text import make_printable, sql_text

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
Read = Callable[[Store, str | None], T]
"""Type of a function that loads something about one run: ``(store, run) -> T``. Run None means the latest run."""


def tables_of(store: Store, run: str | None = None) -> Tables:
    """Return all tables of a run (default: the latest), and the measurements of all runs.

    Raises StoreError if the tables cannot be read.
    """
    run = store.latest_run(run)
    # Imported here because ``diff`` imports this module and does not need pandas.
    from analyzers.evidence.traces import of_the_job
    from analyzers.evidence.units import scale_to_average_unit

    frames: dict[str, Any] = store.frames(run)
    frames["copies"], frames["sources"] = _copies(frames["sources"])
    frames |= of_one_device_each(frames)
    return scale_to_average_unit(of_the_job(Tables(run=run, timeline=partial(_timeline, store), **frames)))


def tables_to_analyse(
    store: Store, run: str | None = None, limits: Sequence[str] = (), *, count_left_out: bool = False
) -> Tables:
    """Return the tables of a run (default: the latest), without measurements that no analyzer uses.

    * To save memory, most measurements of convolutions that the job never called are left out. MIOpen's own find-db
      (list of search results) alone has 200,000 of them, which would take two gigabytes.
    * ``limits``: DuckDB settings for this reading, for example ``threads = 2``.
    * ``count_left_out``: also count what the analyzers do not use of the run (``Tables.not_used``).
    * Raises StoreError if the tables cannot be read.
    """
    # Imported here because ``diff`` imports this module and needs none of the four.
    from analyzers.evidence.passes import read_passes
    from analyzers.evidence.traces import of_the_job
    from analyzers.evidence.units import scale_to_average_unit
    from logparse.lookup.left_out import LEFT_OUT, left_out

    run, needed = store.latest_run(run), f"{_READ} {LEFT_OUT}" if count_left_out else _READ
    # A DuckDB setting applies to the whole database, so the settings get a database of their own.
    with store.connect(sql=needed) if limits else store.reading(needed) as con:
        for setting in limits:
            con.execute(f"set {setting}")
        frames, passes = _near_the_calls(con, run, _LINKS), read_passes(con)
        not_used = left_out(con, run).text if count_left_out else ""
    timeline, find_dbs = partial(_timeline, store), partial(_find_dbs, store)
    tables = Tables(run=run, passes=passes, find_dbs=find_dbs, timeline=timeline, not_used=not_used, **frames)
    return scale_to_average_unit(of_the_job(tables))


def _find_dbs(store: Store) -> pa.Table:
    """Return a table with the best time of each convolution in each of MIOpen's find-dbs (its files of measured times).

    The columns are ``source_id, problem, time_us``.
    """
    sql = """
        select source_id, problem, min(time_us) as time_us from measurements
        where origin = 'find-db' and kind = 'conv' and status = 'ok' and time_us > 0 and isfinite(time_us)
        group by source_id, problem order by source_id, problem"""
    with store.reading(sql) as con:
        rows: pa.Table = con.sql(sql).to_arrow_table()
    return rows


def _timeline(store: Store, source_id: str) -> pa.Table | None:
    """Return the timeline of a trace. None if an early version of logparse read the trace and stored no timeline."""
    sql = f"select * exclude (source_id, run) from timelines where source_id = {sql_text(source_id)}"
    with store.reading(sql) as con:
        rows: pa.Table = con.sql(sql).to_arrow_table()
    return rows.slice(0, 1) if len(rows) else None


def tables_to_check(store: Store, run: str | None = None) -> Tables:
    """Return a job's data for checking whether its libraries can use the kernels that the user lists in override files.

    Without ``run``, the latest execution of the job is read. Raises StoreError if the data cannot be read.
    """
    run = store.latest_run(run)
    with store.reading(_READ) as con:
        frames, solvers = _near_the_calls(con, run, _LINKS_OF_CALLS), con.execute(_SOLVERS).df()
        # ``solvers`` has all kernels (solvers) that MIOpen's measurements name.
        return Tables(run=run, solvers=solvers, **frames)


def _near_the_calls(con: duckdb.DuckDBPyConnection, run: str, links: str) -> dict[str, Any]:
    """Read the stored tables of a job, but skip most search results of MIOpen, which would fill the memory.

    MIOpen ships long lists of such results (find-dbs). Only convolutions that the job calls are read from them, and in
    two cases others:

    * The convolution was also measured in another way, for example by the user's own search.
    * It may be a call of the job that a log writes differently. ``links`` is SQL that returns such pairs of texts.
    """
    con.execute("create temp table called as select distinct problem from workload where run = ?", [run])
    con.execute(f"create temp table linked as {links}")
    con.execute(_USERS)
    con.execute(_CLOSE)
    frames = {name: con.execute(f"select * from {name} where run = ?", [run]).df() for name in _OF_RUN}
    for name in _WHOLE:
        frames[name] = con.execute(f"select * from {name}").df()
    wanted = {"links": "from linked", "measurements": _MEASUREMENTS, "conv_problems": _CONVS}
    for name, sql in wanted.items():  # The detour over Arrow makes no Python object per text.
        frames[name] = con.sql(sql).to_arrow_table().to_pandas()
    frames["messages"] = frames.pop("process_messages")
    frames["copies"], frames["sources"] = _copies(frames["sources"])
    return of_one_device_each(frames)


def _copies(sources: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split a table of files in two: files with the same content as another file, and all other files.

    The rows of copies are in no SQL view, so that nothing is counted twice.
    """
    copied = sources["copy_of"].notna()
    return sources[copied].reset_index(drop=True), sources[~copied].reset_index(drop=True)


def of_one_device_each(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Split each file whose rows are from several GPUs, so that the times of two GPUs are never compared.

    aiter's tables are such files.
    """
    import pandas as pd

    facts, sources = frames["facts"], frames["sources"]
    placed = facts["name"].isin(["arch", "cu_count"])
    mixed = facts.loc[placed & facts["value"].astype(str).str.contains(" "), "source_id"]
    rows = frames["measurements"]
    rows = rows[rows["source_id"].isin(mixed) & (rows["origin"] == aiter_tables.ORIGIN)] if len(mixed) else rows[:0]
    if not len(rows):
        return frames
    columns = facts[facts["name"] == "columns"].set_index("source_id")["value"].to_dict()
    of_row = {}
    for place, source, key in rows[["source_id", "key_text"]].itertuples():
        stated = aiter_tables.device_of_key(str(key), str(columns.get(source, "")).split(","))
        of_row[place] = (source, tuple(stated.items()))
    made = {one: " ".join((one[0], *(value for _, value in one[1]))) for one in dict.fromkeys(of_row.values())}
    names = pd.Series({place: made[one] for place, one in of_row.items()})
    more_facts, more_sources = [facts[~(placed & facts["source_id"].isin(rows["source_id"]))]], [sources]
    # Facts that the file states are copied to each part.
    for (source, device), name in made.items():
        more_sources.append(sources[sources["source_id"] == source].assign(source_id=name))
        of_file = facts[facts["source_id"] == source]
        more_facts.append(of_file[~of_file["name"].isin(["arch", "cu_count"])].assign(source_id=name))
        run = of_file["run"].iloc[0]
        more_facts.append(pd.DataFrame([{"source_id": name, "run": run, "name": x, "value": y} for x, y in device]))
    measurements = frames["measurements"].copy()
    measurements["source_id"] = measurements["source_id"].astype(object)
    measurements.loc[names.index, "source_id"] = names
    return frames | {
        "measurements": measurements,
        "facts": pd.concat([x for x in more_facts if len(x)], ignore_index=True)[list(facts.columns)],
        "sources": pd.concat(more_sources, ignore_index=True),
    }


def split_by_device(con: duckdb.DuckDBPyConnection) -> None:
    """Do in the views ``measurements``, ``facts`` and ``sources`` of a connection what ``of_one_device_each`` does.

    Does nothing if no file has rows of several GPUs. A second call changes nothing.
    """
    import pyarrow as pa

    mixed = "select source_id from facts where name in ('arch', 'cu_count') and contains(value, ' ')"
    keys = con.execute(
        f"""select distinct source_id, origin, key_text from measurements
            where origin = '{aiter_tables.ORIGIN}' and source_id in ({mixed})"""
    ).df()
    if not len(keys):
        return
    frames = {name: con.execute(f"select * from {name}").df() for name in ("facts", "sources")}
    split = of_one_device_each({"measurements": keys, **frames})
    parts = keys.assign(part=split["measurements"]["source_id"])
    for name in ("facts", *_SPLIT):
        con.execute(f"alter view {name} rename to {name}_of_files")
    for name, frame in (("parts_", parts), ("facts", split["facts"])):
        con.register("given_", pa.Table.from_pandas(frame, preserve_index=False))
        con.execute(f"create table {name} as from given_")
        con.unregister("given_")
    for name, sql in _SPLIT.items():
        con.execute(f"create view {name} as {sql}")


_SPLIT = {
    "measurements": """
        select m.* replace (coalesce(p.part, m.source_id) as source_id)
        from measurements_of_files m left join parts_ p
            on p.source_id = m.source_id and p.origin = m.origin and p.key_text is not distinct from m.key_text""",
    "sources": """
        from sources_of_files union all by name
        select s.* replace (
            p.part as source_id, s.path || ' (' || substr(p.part, length(p.source_id) + 2) || ')' as path)
        from sources_of_files s join (select distinct source_id, part from parts_ where part <> source_id) p
            using (source_id)""",
}
"""SQL of the views in which each GPU of a file has an id of its own. The table ``parts_`` has these ids."""
_OF_RUN = ("calls", "workload", "process_messages")
_WHOLE = ("sources", "gemm_problems", "solutions", "kernels", "collectives", "facts")
_READ = " ".join((*_OF_RUN, *_WHOLE, "measurements", "gemm_rows", "conv_rows", "open_links"))
"""Names of the SQL views that are needed to load a run.

Other views are not created, because creating all of them would take a quarter longer.
"""
_CALLED = full_links_sql("""
    select problem from gemm_rows where problem in (from called)
    union all select problem from conv_rows where problem in (from called)""")
_LINKS = f"from open_links union all {_CALLED}"
"""SQL for all pairs of GEMMs or convolutions whose texts may mean the same call.

The pair of a text with itself is left out if the run does not call it and its text is complete. There may be 200,000
such pairs.
"""
_LINKS_OF_CALLS = f"""
    select * from open_links where problem in (from called) or other in (from called) union all {_CALLED}"""
_SOLVERS = "select distinct source_id, library, solution from measurements where library = 'miopen'"
_CLOSE = f"""
    create temp table close as
    select problem from measurements
    where solution = 'Default' or origin in ('{RACE}', '{CONFIRM}', '{ACTION}') or source_id in (from users)
    union select other from linked union select problem from called
    union select problem from kernels where problem is not null"""
_USERS = "create temp table users as select distinct source_id from facts where name = 'find_db' and value = 'user'"
_CONVS = f"""
    select problem, layer, direction, groups, dtype, flops
    from ({conv_problems_sql("select * from conv_rows where problem in (from close)")})"""
"""SQL for those columns of convolutions that the analyzers need.

A test checks that the findings are the same as with all columns.
"""
_MEASURED = f"""
    select source_id, run, origin, kind, problem, library, solution, raw, algorithm, status, time_us, min_us, max_us,
           std_us, if(origin in {(CONFIRM, ACTION, HOST)}, samples_us, null) as samples_us, workspace_bytes, error,
           ordinal, key_text, evidence, winner
    from measurements where """
_MEASUREMENTS = f"""
    {_MEASURED} origin <> 'find-db' or kind <> 'conv'
    union all {_MEASURED} origin = 'find-db' and kind = 'conv' and problem in (from close)"""
"""SQL for the measurements that the analyzers need. Two kinds of data are not loaded, to save memory:

* convolutions that only MIOpen's own find-dbs contain, because only the table ``passes`` needs them, and it is made
  separately
* the single times (``samples_us``), except for measurements of the kinds ``CONFIRM``, ``ACTION`` and ``HOST``
"""


def tables_at(word: str, store: str | None = None) -> Tables:
    return read_at(word, store, tables_of)


def read_at(word: str, store: str | None, read: Read[T]) -> T:
    """Find the run that the user named on the command line, and return what ``read`` returns for it.

    Raises InputError if ``word`` names no run.

    | word | run |
    |---|---|
    | ``STORE`` | the latest run in this Parquet folder |
    | ``STORE#RUN`` | that run in this Parquet folder |
    | a label | the run with this label in ``store`` |
    | log files | the files are read into a temporary folder, as a new run |
    """
    opened = existing(word)
    if opened is not None:
        return read(opened, None)
    here = existing(store)
    if here is not None and word in here.runs():
        return read(here, word)
    # Every ``#`` is tried, because a run's label or a log's name may contain one as well.
    for place, mark in enumerate(word):
        if place and mark == "#" and (there := existing(word[:place])) is not None:
            return read(there, word[place + 1 :])
    # Imported here because it imports all formats, which a question to a store does not need.
    from logparse.ingest import ingest

    fresh = open_store(folder := tempfile.mkdtemp(prefix="logparse-"), create=True)
    # The folder stays until the store object is gone, because the tables read a trace's timeline only when asked for
    # it.
    finalize(fresh, shutil.rmtree, folder, ignore_errors=True)
    results = ingest([word], fresh, run=make_printable(Path(word).name or word))
    if not any(result.recognised for result in results):
        known = "" if here is None else f" of {here.url} (there is {', '.join(here.runs()) or 'none'})"
        raise InputError(f"{word}: neither a store, nor a run{known}, nor a log file that can be read")
    return read(fresh, None)


def remarks_on_words(words: Sequence[str], store: str | None = None) -> list[str]:
    """Warn a user who compares two runs if the command line is probably a mistake.

    * A run is compared with itself.
    * A file is read again, although ``store`` already contains it as part of a run.
    """
    if len(set(words)) < len(words):
        return [f"note: {words[0]} is compared with itself"]
    here = existing(store)
    if here is None:
        return []
    runs, held = here.runs(), here.live_table().select(["path", "run"]).to_pydict()
    run_of = dict(zip(held["path"], held["run"], strict=True))
    out = []
    for word in words:
        run = run_of.get(str(Path(word).absolute()))
        if run is None or word in runs:
            continue
        out.append(f"note: {word} is read again from the file, without the rest of run {run} in the store")
        if run in words:
            out[-1] += ", which it is compared with"
    return out


def existing(store: str | None) -> Store | None:
    """Open the Parquet folder (a path or URL) to which ``ingest`` wrote. Return None if there is no such folder."""
    try:
        return open_store(store)
    except StoreError:
        return None
