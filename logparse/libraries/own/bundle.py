"""``record-….json`` and ``workload.json`` of ``logparse export --to bundle``: one machine's measurements for another.

::

    {"logparse_bundle": 1,
     "facts": {"arch": "gfx942", "cu_count": "304", "hipblaslt_version": "100200", "environment": "5f0c…", …},
     "times": [{"problem": "gemm trans=T,N mnk=…", "solution": "hipblaslt:104377", "origin": "replay", "status": "ok",
                "time_us": 23.6, "samples_us": [23.5, 23.6, 23.8], …}, …],
     "calls": {"gemm trans=T,N mnk=…": 16, …}}

One record is one race or one confirmation of a replay.  Its facts are facts of the replay and facts with a name in
``FACTS``.  Its name is the hash of its content.  So machines that write into one folder never overwrite each other's
records.  A record that is copied twice is ingested once.  The workload's file has calls only.  No file contains paths,
names of hosts, processes or users, clocks, or the order of calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, get_args

from logparse.libraries.kinds.format import FileFormat, Origin, Outcome, Source, Unit, begins, content, parsed
from logparse.model import (
    FACTS,
    Call,
    Fact,
    Measurement,
    Problem,
    Record,
    Reject,
    Status,
    problem_from_text,
    solution_from_text,
)

VERSION = 1
RECORD = "record-"
"""Beginning of the names of files with measurements that ``logparse export --to bundle`` writes."""
PRIVATE = frozenset({"pid", "kernels_of"})
"""Facts that are never exported, because they only have a meaning within one job."""
_REPLAY = frozenset({"environment", "confirmation", "pick", "threads"})
_PREFIXES = ("replay_", "validator:")
"""Beginnings of the names of facts that are exported with measured times.

These facts tell which times can be compared, and how the times were measured.
"""
_ROW = tuple(x.name for x in fields(Measurement) if x.name not in ("problem", "solution", "key_text"))
recognise = begins(rb'\s*\{\s*"logparse_bundle"\s*:')


def dump(facts: Mapping[str, str], times: Sequence[Measurement], calls: Mapping[str, int | None]) -> tuple[str, bytes]:
    """Return the name and content of a file that exports a machine's measured times, calls and facts.

    Facts that others should not see are left out.
    """
    import hashlib  # imported here, because every ingest imports this module

    public = {*FACTS, *_REPLAY} - PRIVATE
    kept = {name: x for name, x in sorted(facts.items()) if name in public or name.startswith(_PREFIXES)}
    rows = [
        {"problem": x.problem.text, "solution": x.solution.text}
        | {name: value for name in _ROW if (value := getattr(x, name)) not in (None, ())}
        for x in times
    ]
    data = json.dumps({"logparse_bundle": VERSION, "facts": kept, "times": rows, "calls": dict(sorted(calls.items()))})
    name = f"{RECORD}{hashlib.sha256(data.encode()).hexdigest()[:16]}.json" if times else "workload.json"
    return name, data.encode() + b"\n"


def read(source: Source) -> Iterator[Outcome]:
    """Read a file that logparse exported on another machine: facts, measured times and calls.

    An item that cannot be read is reported as an error.
    """
    data = content(source)
    try:
        found = parsed(data)
        if not isinstance(found, dict) or found.get("logparse_bundle") != VERSION:
            raise ValueError(
                f"the file was written by another version of logparse (the file's format is not {VERSION}); update "
                "logparse"
            )
    except ValueError as error:
        yield Outcome("reject", [Reject(f"bundle: {error}", 0, len(data))])
        return
    facts, times, calls = (found.get(name) for name in ("facts", "times", "calls"))
    for name, value in facts.items() if isinstance(facts, dict) else ():
        yield Outcome("fact", [Fact(name, str(value))])
    for row in times if isinstance(times, list) else ():
        yield _checked("measurement", partial(_time, row), len(data))
    for text, count in calls.items() if isinstance(calls, dict) else ():
        yield _checked("call", partial(_call, text, count), len(data))


def _checked(unit: Unit, made: Callable[[], Record], length: int) -> Outcome:
    try:
        return Outcome(unit, [made()])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Outcome("reject", [Reject(f"bundle: {error}", 0, length)])


def _time(row: Mapping[str, Any]) -> Record:
    values = {name: row[name] for name in _ROW if row.get(name) is not None}
    if values.get("status", "ok") not in get_args(Status):
        raise ValueError(f"the row has an unknown status {values['status']!r}")
    numbers = [values[name] for name in ("time_us", "min_us", "max_us", "std_us") if name in values]
    samples = tuple(values.pop("samples_us", ()))
    if not all(isinstance(x, int | float) for x in (*numbers, *samples)) or not isinstance(values.get("origin"), str):
        raise ValueError(
            "a time of the row is not a number, or the row's member origin (what kind of measurement it was) is missing"
        )
    problem, solution = _problem(row["problem"]), solution_from_text(row["solution"])
    return Measurement(problem=problem, solution=solution, samples_us=samples, **values)


def _call(text: str, count: Any) -> Record:
    if type(count) is not int or count < 1:
        raise ValueError(f"{count!r} calls")
    return Call(category="bundle", problem=_problem(text), count=count)


def _problem(text: str) -> Problem:
    """Parse the text of a matrix product or convolution in an exported file, for example ``gemm trans=T,N mnk=…``.

    Raises ValueError if the parsed object would not be written as the same text again.
    """
    problem = problem_from_text(text)
    # A damaged text may be readable but give wrong fields.
    if problem.text != text:
        raise ValueError(f"{text[:80]!r} is not the text of a problem")
    return problem


FORMAT = FileFormat(
    "bundle",
    (
        "files that `logparse export --to bundle` wrote on another machine: measured times, facts about the "
        "machine, and the calls of a job"
    ),
    recognise,
    read,
    origins=(Origin("replay-confirm", True), *(Origin(x, False) for x in ("replay", "replay-action", "replay-host"))),
    job_log=True,
    order="the file is one JSON object, whose members have names, so their order means nothing",
    seen="logparse's own",
    example='{"logparse_bundle": 1, "facts": {…}, "times": […], …}',
    gives="calls, measurements, facts",
)
