"""Tell all that the store knows of one matrix product or convolution: its calls and times (``logparse show``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from logparse.libraries.miopen import find_db_choice
from logparse.libraries.torch_profiler import places
from logparse.lookup.problems_in_text import find_by_label, problems_in
from logparse.lookup.ranking import rank_problems
from logparse.lookup.ranking_sql import DEVICE, PLACED, PLACES, STAGES, make_tables
from logparse.model import ConvProblem, GemmProblem, Problem, problem_from_text
from logparse.output.terminal import Rows
from logparse.store import Store
from logparse.store.columns import column
from logparse.target import several_devices
from logparse.text import duration, pluralize


@dataclass(frozen=True)
class Known:
    """Everything that was recorded about one matrix product or convolution: its calls and its measured times.

    The tables' column ``level`` tells how certain each row is about this product (see ``links.find_link_level``).
    """

    problem: Problem
    # Sometimes a log does not state all fields of a product. So the tables also contain rows that may be about it.
    calls: pa.Table
    measurements: pa.Table


_CANDIDATES = """
    select distinct problem from (select problem from gemm_rows union all select problem from conv_rows)
    where starts_with(problem, $kind) and contains(problem, $sizes)"""
_KNOWN_CALLS = """
    select level, run, category, pid, solution, cast(sum(count) as bigint) as count, min(first_seen) as first_seen,
           max(last_seen) as last_seen, by_tool, problem from calls join levels using (problem)
    group by all order by count desc nulls last, run, category, pid, solution, problem, level"""
_KNOWN_TIMES = f"""
    select level, run, origin, {DEVICE} as device, solution, status, time_us, workspace_bytes,
           error, key_text, problem, arch, cu_count
    from ({PLACED}) join levels using (problem) where origin <> 'replay-host'
    order by time_us nulls last, solution, origin, run, problem, key_text"""
"""SQL for the measured times of a matrix product or convolution.

The time that the host needs to start a call is left out, because a call's time is the time on the GPU.
"""


def show(store: Store, text: str, run: str | None = None) -> list[Known]:
    """Return all that the store knows of the matrix products and convolutions that a pasted text names.

    ``text`` is a line of a log or of a table of logparse. ``run`` limits the answer to one run. Raises InputError if
    the text names no product, and StoreError for an unknown run.
    """
    from logparse.links import find_link_level

    problems = find_by_label(store, text) or problems_in(text)
    only, out = None if run is None else store.latest_run(run), []
    needed = " ".join([_CANDIDATES, _KNOWN_CALLS, _KNOWN_TIMES, *(STAGES[name] for name in PLACES)])
    with store.reading(needed, only) as con:
        make_tables(con, only or "", PLACES)
        for problem in problems:
            wanted = {"kind": problem.kind, "sizes": _sizes(problem)}
            candidates = [text for (text,) in con.execute(_CANDIDATES, wanted).fetchall()]
            levels = {text: at for text in candidates if (at := find_link_level(problem, problem_from_text(text)))}
            names, found = (column(x, pa.string()) for x in (list(levels), list(levels.values())))
            con.register("levels", pa.Table.from_arrays([names, found], names=["problem", "level"]))
            calls, times = (con.sql(sql).to_arrow_table() for sql in (_KNOWN_CALLS, _KNOWN_TIMES))
            con.unregister("levels")
            out.append(Known(problem, calls, times))
    return out


def _sizes(problem: Problem) -> str:
    """Return the part of a product's text that states the sizes, for example `` mnk=4096,512,1024 `` for a GEMM."""
    # Every product or convolution with these sizes has this part in its text. So a search for the same call needs to
    # parse only texts with this part.
    if isinstance(problem, GemmProblem) and not problem.members:
        return f" mnk={problem.m},{problem.n},{problem.k} "
    if isinstance(problem, ConvProblem):
        text = problem.text
        return text[text.index(" in=") : text.index(" pad=") + 1]
    return ""


def known_lines(
    store: Store, known: Sequence[Known], run: str | None = None, verbose: bool = False
) -> Iterator[str | Rows]:
    """Yield what ``logparse show`` prints about some matrix products and convolutions.

    For each of them there is a sentence about the kernel that ran, and a table with one row per time. ``verbose`` adds
    the logs with its calls, and all fields of it.
    """
    for label in dict.fromkeys(entry.problem.label for entry in known):
        same = [entry for entry in known if entry.problem.label == label]
        calls = _distinct(entry.calls.to_pylist() for entry in same)
        times = _distinct(entry.measurements.to_pylist() for entry in same)
        yield f"{label}: {_sentence(store, calls, times, run)}"
        if calls or times:
            yield _one_table(calls, times)
        texts = {entry.problem.text for entry in same} | {str(x["problem"]) for x in calls}
        if told := _called_from(store, texts, run):
            yield told
        if not verbose:
            continue
        if logs := sorted({str(row["category"]) for row in calls}):
            yield f"logged as: {', '.join(logs)}"
        if len(same) == 1:
            yield same[0].problem.text
        else:
            yield f"problems of this name: {len(same):,}, which differ in"
            yield from (f"  {words}" for words in _drop_common_words([entry.problem.text for entry in same]))


def _called_from(store: Store, texts: Collection[str], run: str | None) -> str:
    """Say from where in the program these problems are called, as the latest run with such a trace shows it.

    The result is empty if no trace has stacks.
    """
    sql = "select run, value from facts where name = $name"
    values: dict[str, list[str]] = {}
    with store.reading(sql, run) as con:
        for each, value in con.execute(sql, {"name": places.FACT}).fetchall():
            values.setdefault(each, []).append(value)
    told = (places.sentence(values[each], texts) for each in reversed(store.runs()) if each in values)
    return next(filter(None, told), "")


def _drop_common_words(texts: Sequence[str]) -> list[str]:
    """Remove from each text the words that all texts have in common, and return the results."""
    words = [text.split(" ") for text in texts]
    common = set(words[0]).intersection(*words)
    return [" ".join(word for word in x if word not in common) for x in words]


def _distinct(several: Iterable[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Join the rows of several tables, and drop duplicates.

    Rows that differ only in the column ``level`` are duplicates.
    """
    rows = {
        tuple(str(value) for name, value in row.items() if name != "level"): row for table in several for row in table
    }
    return list(rows.values())


def _called(calls: Iterable[Mapping[str, Any]]) -> Mapping[tuple[str, str | None], int]:
    """Return how often each kernel was called, by run (one execution of the job).

    Calls of a benchmark tool are left out.
    """
    logs: dict[tuple[str, int | None], dict[str, Counter[str | None]]] = {}
    for row in calls:
        if not row["by_tool"]:
            log = logs.setdefault((row["run"], row["pid"]), {}).setdefault(row["category"], Counter())
            log[row["solution"]] += row["count"] or 0
    out: Counter[tuple[str, str | None]] = Counter()
    # Several logs of one process may record the same calls, so only the log with the most calls is used.
    for (run, _), by_log in logs.items():
        for solution, count in max(by_log.values(), key=lambda log: sum(log.values())).items():
            out[run, solution] += count
    return out


def _one_table(calls: Iterable[Mapping[str, Any]], times: Iterable[Mapping[str, Any]]) -> Rows:
    """Return a table of the kernels of one matrix product or convolution, with their times and calls.

    * There is one row per time, the fastest first.  The row also has the number of calls of that kernel in that run
      (one execution of the job).
    * Then come rows for calls of kernels without a time, and of a kernel that is ``not logged``.
    * The column ``slower`` compares a time with the fastest time of the same run, the same tool and the same device.
    * The column ``device`` is shown if the times are of several devices.
    """
    left: dict[tuple[str, str | None], int | None] = dict(_called(calls))
    several = bool(_devices(times))

    def measured_with(row: Mapping[str, Any]) -> tuple[str, ...]:
        return row["run"], row["origin"], row["device"] * several

    fastest: dict[tuple[str, ...], float] = {}
    for row in times:
        if row["time_us"]:
            of = measured_with(row)
            fastest[of] = min(row["time_us"], fastest.get(of, row["time_us"]))
    out: list[dict[str, object]] = []
    for row in times:
        us, least = row["time_us"], fastest.get(measured_with(row))
        if row["origin"] == "trace" and (row["run"], row["solution"]) not in left:
            left[row["run"], row["solution"]] = left.pop((row["run"], None), None)
        out.append(
            {
                "solution": row["solution"],
                "calls": left.pop((row["run"], row["solution"]), None),
                "time_us": us,
                "slower": f"{us / least:.2f} ×" if us and least and us > least else "",
                "device": row["device"] * several,
                "from": row["origin"],
                "run": row["run"],
                "status": "" if row["status"] == "ok" else row["status"],
                "error": row["error"],
            }
        )
    empty = dict.fromkeys(("time_us", "slower", "device", "from", "status", "error"))
    out += [{"solution": x or "not logged", "calls": n, **empty, "run": run} for (run, x), n in left.items()]
    names = ("solution", "calls", "time_us", "slower", "device", "from", "run", "status", "error")
    filled = [name for name in names if any(row[name] not in (None, "") for row in out)]
    return [{name: row[name] for name in filled} for row in out]


def _sentence(
    store: Store, calls: Iterable[Mapping[str, Any]], times: Sequence[Mapping[str, Any]], only: str | None
) -> str:
    """Return a sentence about one matrix product or convolution: which kernel the job uses, and how slow it is.

    The kernel is compared with the best known one. ``only`` is the run to which the rows are limited, if there is one.
    """
    texts = sorted({str(row["problem"]) for row in (*calls, *times)})
    if not texts:
        holder = "the store" if only is None else f"run {only}"
        return f"{holder} has neither calls nor times of this matrix product or convolution"
    called = {run for run, _ in _called(calls)}
    runs = [run for run in store.runs() if run in called]
    said = [
        _describe_pick(run, rank_problems(store, by="time", n=1, run=run, texts=texts).rows.to_pylist())
        for run in runs[-_RUNS:]
    ]
    if said:
        earlier = len(runs) - len(said)
        return "; ".join([*said, *([f"{pluralize(earlier, 'earlier run')} in the table"] if earlier else [])])
    timed = [row for row in times if row["time_us"]]
    if not timed:
        return "no run calls this matrix product or convolution, and its time is unknown"
    devices = _devices(timed)
    if not devices:
        best = f"{timed[0]['solution']} ({duration(timed[0]['time_us'])})"
        return f"no run calls this matrix product or convolution; its fastest known solution is {best}"
    # The rows are sorted by time, so the first one of each device is its fastest.
    first = [next(row for row in timed if row["device"] == device) for device in devices]
    told = (f"{row['solution']} on {row['device']}: {duration(row['time_us'])}" for row in first)
    return f"no run calls this matrix product or convolution; its fastest known solutions are {'; '.join(told)}"


def _devices(times: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the known devices of some times, in the order of the times. Empty if the times may be of one device."""
    facts = {row["device"]: {x: row[x] for x in ("arch", "cu_count") if row[x]} for row in times if row["device"]}
    return list(facts) if several_devices(facts.values()) else []


_RUNS = 3  # maximum number of runs in the sentence of ``show``


def _describe_pick(run: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which kernel one execution of the job used for a product or convolution, and how slow it is against the best.

    ``rows`` has the row of ``logparse top``, if there is one. The result is a part of a sentence.
    """
    row = (
        rows[0] if rows else dict.fromkeys(("calls", "pick", "best", "pick_us", "best_us", "total_us", "saves_only_if"))
    )
    pick, best, pick_us, best_us = (row[x] for x in ("pick", "best", "pick_us", "best_us"))
    if row["saves_only_if"] and pick_us and best_us:
        return (
            f"the pick of run {run} is not logged; {pick} of the system find-db takes {duration(pick_us)} a call, and "
            f"{best} of the user find-db {duration(best_us)} ({pick_us / best_us:.3g} × faster, if the job reads that "
            f"file; a log with {find_db_choice.SETTLED_BY} names the solver)"
        )
    named = f"run {run} picks {pick}" if pick else f"the pick of run {run} is not logged"
    if best_us is None and row["total_us"]:
        us = row["total_us"] / (row["calls"] or 1)
        return f"a call of run {run} takes {duration(us)}, and no other time on its device is known"
    if best_us is None:
        return f"{named}, and no time of it is known"
    if pick_us is None and pick != best:
        return f"{named}; the fastest known solution is {best} ({duration(best_us)} a call)"
    if pick_us is None or pick_us <= best_us:
        return (
            f"{named}, which is the fastest known" if pick else f"{named}; the library's default is the fastest known"
        )
    slower = f"{pick_us / best_us:.3g} × slower than {best}: {duration(pick_us)} and {duration(best_us)} a call"
    return f"{named}, {slower}" if pick else f"{named}; the library's default is {slower}"


def found_about(store: Store, known: Sequence[Known], run: str | None = None) -> list[str]:
    """Return warnings that these matrix products or convolutions are slower than similar ones.

    The warnings were stored by the last ``logparse recommend`` for each run, or for ``run``, and each is one line of
    text.  They also cover calls with unknown fields that may be the same.
    """
    sql = (
        "select distinct run, message || coalesce('; compared with ' || comparable, '') from findings"
        " where analyzer = 'slower-than-comparable' and list_contains(?, problem)"
    )
    texts = {x.problem.text for x in known}
    texts |= {text for x in known for rows in (x.calls, x.measurements) for text in rows["problem"].to_pylist()}
    with store.reading(sql, run) as con:
        found = sorted((str(run), str(message)) for run, message in con.execute(sql, [sorted(texts)]).fetchall())
    several = len({run for run, _ in found}) > 1
    return [f"run {run}: {message}" if several else message for run, message in found]


def known_table(known: Sequence[Known]) -> pa.Table:
    """Return one table with all calls and all measured times of some matrix products or convolutions.

    The column ``what`` tells whether a row is a ``call`` or a ``time``.
    """
    tables = [
        rows.append_column("what", column([what] * len(rows), pa.string()))
        for k in known
        for what, rows in (("call", k.calls), ("time", k.measurements))
    ]
    return pa.concat_tables(tables, promote_options="default")
