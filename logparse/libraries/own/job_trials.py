"""``try_PID.json`` of ``logparse try`` and ``tune``: results of one process about actions tried in the running job.

::

    {"logparse_try": 1, "pid": 4242, "over": true, "why": "", "on": "", "unit": "optimizer", "units": 412, "kinds": 1,
     "actions": [{"name": "channels_last", "ended": "decided", "why": "", "detail": "53 weights of convolutions",
                  "seconds": 6.2, "same": {"deviation": 2.1e-07, "allowed": 4e-06, "how": "output and gradients"},
                  "pairs": [[-0.274, 28500.1, 21670.4]], "control": [[0.002, 28510.0, 28567.1]], "unlike": 0}]}

* A pair is three numbers: the logarithm of the time ratio, the mean time of a unit without the action (µs), and the
  mean time with the action (µs).
* ``control``: pairs in which the action was not applied, so that they show the noise.
* ``ended``: ``decided``, ``units`` (the job ended), ``budget``, ``refused``, ``differs`` (another result) or
  ``broken``.
* ``on``: the action that was on when the file was written.  Empty if no action was on.

``logparse/capture/in_job/logparse_in_job/trial.py`` writes the file.  Each action is a fact ``trial:NAME``.  Its value
is the action's object with the unit.  ``analyzers/evidence/trials.py`` reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from logparse.libraries.kinds.format import FileFormat, Outcome, Source, begins, parsed, read_facts
from logparse.model import Fact, is_time, is_whole
from logparse.quoting import make_printable

TRIAL = "trial:"
"""Beginning of the names of facts about a tried change of the job.  The change's name follows."""
recognise = begins(rb'\s*\{\s*"logparse_try"\s*:')


@dataclass(frozen=True)
class Seen:
    """The measurements of one process about one change (action) that was tried in the running job.

    A change is a setting, such as TF32, or a change of the model.

    * ``ended`` tells how the trial ended, for example ``decided``.
    * ``pairs`` holds one triple per comparison: the logarithm of the time ratio, the µs without the change, and the µs
      with it.
    * ``control`` holds the logarithms for comparisons in which the change was never applied, so they show the noise.
    * ``same`` holds the deviation of the job's result, the deviation that rounding allows, and a description of the
      comparison.  It is missing (None) if the results were not compared.
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
    """The report of one process of a job about the changes that were tried while it ran.

    * ``sort`` names the kind of step that was timed, for example ``optimizer``.
    * ``units`` is the number of steps.
    * ``over`` is True if the trials had ended when the file was written.
    * ``on`` is the change that was in use at that time.
    * ``seen`` holds the results for each change that was tried.
    """

    sort: str
    units: int
    over: bool
    why: str
    on: str
    rank: int
    seen: tuple[Seen, ...]


def read(source: Source) -> Iterator[Outcome]:
    """Read the file in which a process of a job reports the changes that it has tried, one fact for each change.

    If the file has another content, one error is reported.
    """
    return read_facts(source, "actions tried in a job", lambda data: facts(record(data)))


def record(data: bytes) -> Record:
    """Parse the file in which a process reports the changes (actions) that it tried.

    Raises ValueError if the file has another content.
    """
    found = parsed(data)
    actions = found.get("actions") if isinstance(found, dict) else None
    if not isinstance(actions, list) or not is_whole(found.get("units")):
        raise ValueError(
            'the file lacks "actions" (the list of the changes that were tried) or "units" (the number of steps)'
        )
    return Record(
        sort=make_printable(str(found.get("unit", ""))),
        units=found["units"],
        over=found.get("over") is True,
        why=make_printable(str(found.get("why", ""))),
        on=make_printable(str(found.get("on", ""))),
        rank=found["rank"] if is_whole(found.get("rank")) else 0,
        seen=tuple(map(seen_of, actions)),
    )


def seen_of(found: Any) -> Seen:
    """Read from a parsed JSON object how the job behaved with one change that was tried.

    Raises ValueError if ``found`` is not an object of this form.
    """
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str):
        raise ValueError("an action in the file has no name")
    same = found.get("same")
    if same is not None and not (isinstance(same, Mapping) and _is_number(same.get("allowed"))):
        raise ValueError(
            'the member "same" (comparison of a change\'s results) lacks the allowed deviation as a number ("allowed")'
        )
    if not _is_number(found.get("seconds")):
        raise ValueError('for a change that was tried, the file does not state the duration of the trial ("seconds")')
    return Seen(
        name=make_printable(found["name"]),
        ended=make_printable(str(found.get("ended", ""))),
        why=make_printable(str(found.get("why", ""))),
        detail=make_printable(str(found.get("detail", ""))),
        pairs=_pairs(found.get("pairs", [])),
        control=tuple(log for log, _, _ in _pairs(found.get("control", []))),
        unlike=found["unlike"] if is_whole(found.get("unlike")) else 0,
        seconds=float(found["seconds"]),
        same=None
        if same is None
        else (_deviation(same), float(same["allowed"]), make_printable(str(same.get("how", "")))),
    )


def _pairs(found: Any) -> tuple[tuple[float, float, float], ...]:
    if not isinstance(found, list) or not all(map(_is_pair, found)):
        raise ValueError(
            'an entry of the list "pairs" or "control" is not a list of three numbers: the logarithm of the ratio of '
            "both times, the time without the change, the time with the change"
        )
    return tuple((float(log), float(before), float(after)) for log, before, after in found)


def _is_pair(found: Any) -> bool:
    return isinstance(found, list) and len(found) == 3 and _is_number(found[0]) and all(map(is_time, found[1:]))


def _is_number(found: Any) -> TypeGuard[float]:
    return type(found) in (int, float) and math.isfinite(found)


def _deviation(same: Mapping[str, Any]) -> float:
    """Return how much a change altered the job's result, as a process has reported it.

    The number is infinite if the report has NaN or no number.
    """
    found = same.get("deviation")
    return float(found) if _is_number(found) else math.inf


def facts(found: Record) -> list[Fact]:
    """Return one fact for each change that a process of the job has tried, with the results."""
    return [Fact(TRIAL + x.name, json.dumps(_plain(x, found.sort))) for x in found.seen]


def _plain(x: Seen, sort: str) -> dict[str, Any]:
    """Convert the results of one change that was tried in the running job to a JSON object.

    The object becomes a part of the job's report file.  ``seen_of`` converts it back.  ``sort`` is the kind of step
    that the job repeats.
    """
    made: dict[str, Any] = {**vars(x), "control": [[log, 0.0, 0.0] for log in x.control], "unit": sort}
    if x.same is None:
        return {name: value for name, value in made.items() if name != "same"}
    deviation = x.same[0] if math.isfinite(x.same[0]) else None
    return {**made, "same": {"deviation": deviation, "allowed": x.same[1], "how": x.same[2]}}


def dump(found: Record) -> bytes:
    """Write the report about the changes that a process of the job has tried, as the content of a file."""
    made = {**vars(found), "unit": found.sort, "actions": [_plain(x, found.sort) for x in found.seen]}
    kept = {name: value for name, value in made.items() if name not in ("seen", "sort")}
    return json.dumps({"logparse_try": 1, **kept}).encode()


FORMAT = FileFormat(
    "job-trials",
    "try_PID.json of `logparse try`: the actions that were tried in the running job",
    recognise,
    read,
    job_log=True,
    order="the file is one JSON object, whose members have names, so their order means nothing",
    seen="logparse's own",
    example='{"logparse_try": 1, "unit": "optimizer", …}',
    gives="facts",
)
