"""``units_PID.json`` of ``logparse capture --trace``: counts and times of each kind of unit of work in a process.

::

    {"logparse_units": "optimizer", "tracing": "settled", "windows": 3, "rank": 0, "ranks": 2,
     "kinds": {"float32[16, 3, 224, 224]": {"count": 200, "traced": 6, "us": [41230.1, 41260.9]}}}

* ``us``: times of units that ran without the profiler, µs (the last 2,000, in order).
* ``count``: number of all units of the kind.
* ``"alone": true``: the job ran without logs and without a profiler.  Its kinds may have ``host_us``: the host's time
  for units before which the device was idle.
* ``"settings": ["cudnn_benchmark"]``: PyTorch's settings that were in force.
* ``"notes": ["no trace: …"]``: texts that the user must see.  ``capture`` prints them after the job has ended.

``logparse/capture/in_job/logparse_in_job/record.py`` writes the file.  ``analyzers/evidence/units.py`` reads its facts:
``unit`` (the sort of unit), ``unit_tracing``, ``unit_alone``, ``rank``, ``job_settings``, ``unit_note``, and for each
kind ``unit:KIND`` with its object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from logparse.libraries.kinds.format import FileFormat, Outcome, Source, begins, parsed, read_facts
from logparse.model import MOST_CALLS, Fact, is_time, is_whole
from logparse.quoting import make_printable

UNIT, TRACING, ALONE, SETTINGS, KIND = "unit", "unit_tracing", "unit_alone", "job_settings", "unit:"
NOTE = "unit_note"
"""Name of the fact that holds a remark for the user.

The constants above it name the other facts about the steps of a job.  ``KIND`` is only the beginning of a name: the
description of a kind of step follows.
"""
UNITS_EACH = """
    with held as (
        select source_id, any_value(value) filter (name = 'unit') as sort, bool_or(name = 'unit_alone') as alone,
               sum(case when starts_with(name, 'unit:') then (value->>'count')::double end) as units,
               sum(case name when 'unit_kinds' then list_sum(map_values(value::json::map(varchar, double))) end) as n
        from facts where run = $run group by source_id)
    select coalesce((select sum(units) from held where units > 0 group by alone, sort order by alone, 1 desc limit 1)
                    / (select nullif(sum(n), 0) from held), 1) as each"""
"""SQL query for how many steps the job did for each step in its traces.

``$run`` names the execution of the job.  The result is 1 if the number is unknown.
"""
recognise = begins(rb'\s*\{\s*"logparse_units"\s*:')


def read(source: Source) -> Iterator[Outcome]:
    """Read the file in which a process of a job lists its steps, and yield its content as facts.

    If the file has another content, one error is reported.
    """
    return read_facts(source, "units of work", facts)


def facts(data: bytes) -> list[Fact]:
    """Read the file in which a process of a job lists its steps: their kinds, numbers and times.

    Raises ValueError if the file has another content.
    """
    found = parsed(data)
    kinds = found.get("kinds") if isinstance(found, dict) else None
    if not isinstance(kinds, dict) or not all(map(_is_kind, kinds.values())):
        raise ValueError(
            'the file lacks "kinds" (the job\'s kinds of steps), or a kind has an impossible number of steps ("count" '
            'or "traced") or an impossible time (in "us" or "host_us")'
        )
    made = [Fact(UNIT, str(found.get("logparse_units"))), Fact(TRACING, str(found.get("tracing", "")))]
    made += [Fact(name, str(found[name])) for name in ("rank", "ranks") if isinstance(found.get(name), int)]
    made += [Fact(ALONE, "1")] if found.get("alone") is True else []
    made += [Fact(SETTINGS, " ".join(map(str, found["settings"])))] if isinstance(found.get("settings"), list) else []
    notes = found.get("notes")
    made += [Fact(NOTE, make_printable(str(note))) for note in notes] if isinstance(notes, list) else []
    return made + [Fact(f"{KIND}{name}", json.dumps(kind)) for name, kind in kinds.items()]


def _is_kind(kind: Any) -> bool:
    if not isinstance(kind, Mapping):
        return False
    counted = all(is_whole(kind.get(name), 0, MOST_CALLS) for name in ("count", "traced"))
    times = (kind.get("us"), kind.get("host_us", []))
    return counted and all(isinstance(x, list) and all(map(is_time, x)) for x in times)


FORMAT = FileFormat(
    "job-units",
    "units_PID.json of `logparse capture --trace`: the number of a job's steps, and their times",
    recognise,
    read,
    job_log=True,
    order="the file is one JSON object, whose members have names, so their order means nothing",
    seen="logparse's own",
    example='{"logparse_units": "optimizer", …}',
    gives="facts",
)
