"""``try_PID.json`` of ``logparse try`` and ``tune``: what a process found of actions tried in the running job.

::

    {"logparse_try": 1, "pid": 4242, "over": true, "why": "", "on": "", "unit": "optimizer", "units": 412, "kinds": 1,
     "actions": [{"name": "channels_last", "ended": "decided", "why": "", "detail": "53 weights of convolutions",
                  "seconds": 6.2, "same": {"deviation": 2.1e-07, "allowed": 4e-06, "how": "output and gradients"},
                  "pairs": [[-0.274, 28500.1, 21670.4]], "control": [[0.002, 28510.0, 28567.1]], "unlike": 0}]}

A pair is the logarithm of a ratio and the mean time (µs) of a unit as it is and with the action; ``control`` are pairs
in which the action did not act.  ``ended`` is ``decided``, ``units`` (the job ended), ``budget``, ``refused``,
``differs`` (another result) or ``broken``; ``on`` is the action that was on when the file was written, if one was.
Written by ``logparse/capture/in_job/logparse_in_job/trial.py``.  Each action is a fact ``trial:NAME``, whose value is
its object with the unit; ``analyzers/evidence/trials.py`` reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from logparse.libraries.kinds.format import FileFormat, Outcome, Source, begins, content, parsed
from logparse.model import Fact, Reject, is_time, is_whole
from logparse.quoting import printable

TRIAL = "trial:"
"""How the name of a fact begins."""
recognise = begins(rb'\s*\{\s*"logparse_try"\s*:')


@dataclass(frozen=True)
class Seen:
    """What one process says of one action: how its trial ended, pairs as (log ratio, µs as it is, µs on), controls.

    ``same``: by how much its result deviated, how much rounding may, and what was compared; None: it was not.
    """

    name: str
    ended: str
    why: str = ""
    detail: str = ""
    pairs: tuple[tuple[float, float, float], ...] = ()
    control: tuple[float, ...] = ()
    unlike: int = 0
    seconds: float = 0.0
    same: tuple[float, float, str] | None = None


@dataclass(frozen=True)
class Record:
    """One process: its unit of work, how many it made, what was on when it wrote last, and what it tried."""

    sort: str
    units: int
    over: bool
    why: str
    on: str
    rank: int
    seen: tuple[Seen, ...]


def read(source: Source) -> Iterator[Outcome]:
    """One fact per action; any other file is one reject."""
    data = content(source)
    try:
        yield Outcome("fact", facts(record(data)))
    except ValueError as error:
        yield Outcome("reject", [Reject(f"actions tried in a job: {error}", 0, len(data))])


def record(data: bytes) -> Record:
    """The content of one file.  Raises ValueError for what is no such file."""
    found = parsed(data)
    actions = found.get("actions") if isinstance(found, dict) else None
    if not isinstance(actions, list) or not is_whole(found.get("units")):
        raise ValueError("no list of actions, or no number of units")
    return Record(
        sort=printable(str(found.get("unit", ""))),
        units=found["units"],
        over=found.get("over") is True,
        why=printable(str(found.get("why", ""))),
        on=printable(str(found.get("on", ""))),
        rank=found["rank"] if is_whole(found.get("rank")) else 0,
        seen=tuple(map(seen_of, actions)),
    )


def seen_of(found: Any) -> Seen:
    """One action of a file, or of a fact.  Raises ValueError."""
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str):
        raise ValueError("an action without a name")
    same = found.get("same")
    if same is not None and not (isinstance(same, Mapping) and _is_number(same.get("allowed"))):
        raise ValueError("a comparison of results without numbers")
    if not _is_number(found.get("seconds")):
        raise ValueError("an action without its seconds")
    return Seen(
        name=printable(found["name"]),
        ended=printable(str(found.get("ended", ""))),
        why=printable(str(found.get("why", ""))),
        detail=printable(str(found.get("detail", ""))),
        pairs=_pairs(found.get("pairs", [])),
        control=tuple(log for log, _, _ in _pairs(found.get("control", []))),
        unlike=found["unlike"] if is_whole(found.get("unlike")) else 0,
        seconds=float(found["seconds"]),
        same=None if same is None else (_deviation(same), float(same["allowed"]), printable(str(same.get("how", "")))),
    )


def _pairs(found: Any) -> tuple[tuple[float, float, float], ...]:
    if not isinstance(found, list) or not all(map(_is_pair, found)):
        raise ValueError("pairs that are no three numbers")
    return tuple((float(log), float(before), float(after)) for log, before, after in found)


def _is_pair(found: Any) -> bool:
    return isinstance(found, list) and len(found) == 3 and _is_number(found[0]) and all(map(is_time, found[1:]))


def _is_number(found: Any) -> TypeGuard[float]:
    return type(found) in (int, float) and math.isfinite(found)


def _deviation(same: Mapping[str, Any]) -> float:
    """How much a result deviated; infinite for NaN and what was no number."""
    found = same.get("deviation")
    return float(found) if _is_number(found) else math.inf


def facts(found: Record) -> list[Fact]:
    """One fact per action."""
    return [Fact(TRIAL + x.name, json.dumps(_plain(x, found.sort))) for x in found.seen]


def _plain(x: Seen, sort: str) -> dict[str, Any]:
    """The object of a fact, which ``seen_of`` reads again."""
    made: dict[str, Any] = {**vars(x), "control": [[log, 0.0, 0.0] for log in x.control], "unit": sort}
    if x.same is None:
        return {name: value for name, value in made.items() if name != "same"}
    deviation = x.same[0] if math.isfinite(x.same[0]) else None
    return {**made, "same": {"deviation": deviation, "allowed": x.same[1], "how": x.same[2]}}


def dump(found: Record) -> bytes:
    """The record as a file of this format."""
    made = {**vars(found), "unit": found.sort, "actions": [_plain(x, found.sort) for x in found.seen]}
    kept = {name: value for name, value in made.items() if name not in ("seen", "sort")}
    return json.dumps({"logparse_try": 1, **kept}).encode()


FORMAT = FileFormat(
    "job-trials",
    "try_PID.json of `logparse try`: actions tried in the running job",
    recognise,
    read,
    job_log=True,
    order="one object, whose members have names",
    seen="logparse's own",
    example='{"logparse_try": 1, "unit": "optimizer", …}',
    gives="facts",
)
