"""Read the files in which the processes of a job report which settings and files they applied.

They are in the folder that the variable ``LOGPARSE_APPLIED`` names:

* ``applied_PID.json`` is written by ``apply.settings()`` and ``apply.model(model)`` of the generated ``apply.py``.
* ``applied_sh_PID`` is written by ``apply.sh``, with a line per script.
* ``asked.json`` is written by ``logparse run --with``.

::

    {"logparse_applied": 1, "pid": 4242, "settings": ["cudnn_benchmark"], "models": [
        {"action": "channels_last", "class": "torchvision.models.resnet.ResNet", "modules": 161, "changed": 53}],
        "at_end": {"in_force": ["cudnn_benchmark"], "lost": {}}}
    {"logparse_applied": 1, "variables": ["MIOPEN_USER_DB_PATH"], "files": ["gfx942130.HIP.fdb.txt"]}
    {"logparse_applied": 1, "asked": {"settings": ["cudnn_benchmark"], "scripts": ["gfx942-304"]}}

Each object is one line of its file.  ``changed`` is the number of modules that the action changed (type, parameters'
sizes and strides, hooks).

``at_end`` is what the process found when it ended.  ``lost`` maps each setting that was not in force any more to what
was set to another value, for example ``{"tf32": "torch.backends.cuda.matmul.allow_tf32"}``.  ``at_end`` is empty in two
cases: the process was killed, or it ended by ``os._exit``.  An ``apply.py`` of an older version does not write
``at_end``.  The lines become facts:

=====================  ================================================================================================
``applied:NAME``       an action; its value is ``{"setting": true, "at_end": "in force", "models": […]}``
``exported:NAME``      a variable that ``apply.sh`` exported; its value is the number of scripts that exported it
``applied_file:NAME``  a file that ``apply.sh`` applied
``applied_asked``      the object of ``asked.json``
=====================  ================================================================================================

In the value of ``applied:NAME``, ``at_end`` is ``in force``, ``lost`` or ``unknown``.  If it is ``lost``, ``undone`` is
what was set to another value.  Facts of older marks have no ``at_end``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from logparse.libraries.kinds.format import FileFormat, Outcome, Source, begins, read_facts
from logparse.model import Fact
from logparse.quoting import make_printable

APPLIED, EXPORTED, FILE, ASKED = "applied:", "exported:", "applied_file:", "applied_asked"
"""Names of the facts about applied settings and files.

The first three are only beginnings: the name of the setting or change, variable or file follows.
"""
IN_FORCE, LOST, UNKNOWN = "in force", "lost", "unknown"
"""Values of ``at_end``: whether a setting was still in force when the process that had made it ended."""
recognise = begins(rb'\s*\{\s*"logparse_applied"\s*:')


def read(source: Source) -> Iterator[Outcome]:
    """Read the file in which a process of the job reports which settings and override files it used.

    Yields one fact for each setting, change, variable and file.  If the file has another content, one error is
    reported.
    """
    return read_facts(source, "marks of what was applied", facts)


def facts(data: bytes) -> list[Fact]:
    """Read a report in which a process of the job lists the settings and override files that it used.

    Raises ValueError if ``data`` is not such a report.
    """
    actions: dict[str, dict[str, Any]] = {}
    variables: dict[str, int] = {}
    files: dict[str, int] = {}
    asked: list[Fact] = []
    for mark in _marks(data):
        for name in _texts(mark, "settings"):
            actions.setdefault(name, {}).update({"setting": True, **_at_end(mark, name)})
        for model in _list(mark, "models"):
            if not isinstance(model, Mapping) or not isinstance(model.get("action"), str):
                raise ValueError(
                    'an entry of the list "models" lacks "action", the name of the change that was made to the model'
                )
            of = {name: value for name, value in model.items() if name != "action"}
            actions.setdefault(model["action"], {}).setdefault("models", []).append(of)
        for name in _texts(mark, "variables"):
            variables[name] = variables.get(name, 0) + 1
        for name in _texts(mark, "files"):
            files[name] = files.get(name, 0) + 1
        if "asked" in mark:
            asked.append(Fact(ASKED, json.dumps(mark["asked"])))
    made = [Fact(APPLIED + name, json.dumps(what)) for name, what in actions.items()]
    made += [Fact(EXPORTED + name, str(count)) for name, count in variables.items()]
    return [*made, *(Fact(FILE + name, str(count)) for name, count in files.items()), *asked]


def _at_end(mark: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return whether a setting was still in force at the end of the process. Empty for marks of older versions."""
    if "at_end" not in mark:
        return {}
    found = mark["at_end"]
    if not isinstance(found, Mapping):
        raise ValueError('the member "at_end" is not a JSON object')
    lost = found.get("lost", {})
    if not isinstance(lost, Mapping) or not all(isinstance(x, str) for x in lost.values()):
        raise ValueError(
            'the member "lost" of "at_end" must be a JSON object with names of settings and their values as texts'
        )
    if name in lost:
        return {"at_end": LOST, "undone": lost[name]}
    return {"at_end": IN_FORCE if name in _texts(found, "in_force") else UNKNOWN}


def undone(name: str, what: Collection[str], of: str) -> str:
    """Return a sentence for the user about a setting that was not in force any more when a process ended.

    * ``name``: the action, for example ``tf32``.
    * ``what``: the settings of PyTorch that have another value, for example ``torch.backends.cuda.matmul.allow_tf32``.
    * ``of``: what ended, for example ``the job``.
    """
    name, sets = make_printable(name), " and ".join(sorted(map(make_printable, what)))
    return (
        f"{name} was set, but it was not in force any more when {of} ended: the job itself, or a library "
        f"that it uses, sets {sets}; remove that line, or call `apply.settings({name!r})` after it"
    )


def _marks(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in a file that the job wrote to tell which settings and override files it used.

    The file has one object per line.  Raises ValueError if a line is not such an object.
    """
    for line in data.decode("utf-8").splitlines():
        if line.strip():
            try:
                mark = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"not JSON: {error}") from error
            if not isinstance(mark, Mapping) or "logparse_applied" not in mark:
                raise ValueError(
                    "the line is not a report of apply.py or apply.sh (a JSON object with the member logparse_applied)"
                )
            yield mark


def _list(mark: Mapping[str, Any], name: str) -> list[Any]:
    found = mark.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f"{name} is not a list")
    return found


def _texts(mark: Mapping[str, Any], name: str) -> list[str]:
    found = _list(mark, name)
    if not all(isinstance(x, str) for x in found):
        raise ValueError(f"{name} contains a value that is not a text")
    return found


FORMAT = FileFormat(
    "applied",
    (
        "the changes that a process of the job applied (applied_PID.json of apply.py, applied_sh_PID of apply.sh), or "
        "should apply (asked.json of `logparse run --with`)"
    ),
    recognise,
    read,
    job_log=True,
    order="each line is one JSON object, whose members have names, so their order means nothing",
    seen="logparse's own",
    example='{"logparse_applied": 1, "settings": ["tf32"], …}',
    gives="facts",
)
