"""Check that a job really applied the recommended settings and scripts.

Each process of the job that applies one of them writes a small file, a mark (format:
``libraries/own/applied_marks.py``). If there is no mark for a setting or script, the job ran without it, and the job's
times say nothing about it. For example:

* A setting is not applied if the job's Python never imports torch, or ignores ``PYTHONPATH``.
* A script is not applied on another machine than the one for which it was made.

At its end, each process adds to its mark whether the settings are still in force, because the job, a library or PyTorch
itself may have set them to other values.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logparse.capture import kept_out
from logparse.libraries.own import applied_marks
from logparse.output.files import write_file
from logparse.text import make_printable, pluralize

VARIABLE = "LOGPARSE_APPLIED"
"""Environment variable with the folder into which the job's processes write which settings they applied.

Without the variable or the folder they write nothing.
"""
FOLDER, ASKED_FILE = "applied", "asked.json"
"""Subfolder of the log folder in which a job reports what it applied, and file there with the requests."""
NOT_APPLIED = 125
"""Exit code of ``run`` and ``tune`` if the job succeeded, but a requested setting or script was not applied.

It is also the exit code if a setting was not in force any more when the job ended.

``env``, ``timeout`` and ``docker run`` also use 125 for errors of their own, as distinct from 126 and 127.
"""


@dataclass(frozen=True)
class Asked:
    """The settings and scripts that the user wants to apply to a job.

    * ``settings``: made by ``apply.py`` itself. None means any.
    * ``scripts``: the folders that hold an ``apply.sh``.
    * ``marking``: True if ``apply.py`` reports what it has applied.
    """

    # None if ``apply.py`` has no list of the settings that it makes by itself.
    settings: tuple[str, ...] | None = ()
    scripts: tuple[str, ...] = ()
    # False for an ``apply.py`` of an older version.
    marking: bool = True

    def write(self, folder: Path) -> None:
        """Write the settings and scripts that the user wants to apply to the file ``asked.json`` in ``folder``.

        An error, such as a full disk, is ignored, so that the job still runs.
        """
        asked = {"settings": list(self.settings or ()), "scripts": list(self.scripts)}
        text = json.dumps({"logparse_applied": 1, "asked": asked})
        with contextlib.suppress(OSError):
            write_file(folder / ASKED_FILE, text.encode(), within=folder)


def scripts_of(overrides: Path) -> list[Path]:
    """Return the scripts ``apply.sh`` of the folder that ``recommend`` wrote, or of the folder of one machine in it."""
    folder = overrides.absolute()
    return sorted(folder.glob("*/apply.sh")) or sorted(folder.glob("apply.sh"))


def files_of(overrides: Path) -> list[Path]:
    """Return the override files that the scripts ``apply.sh`` of a folder make a job read.

    Each script lists them, one per line, after the word ``file``.
    """
    texts = ((x.parent, x.read_text(encoding="utf-8", errors="surrogateescape")) for x in scripts_of(overrides))
    lines = ((folder, line) for folder, text in texts for line in text.split("\n") if line.startswith("file "))
    return [folder / line.removeprefix("file ") for folder, line in lines]


def asked_of(overrides: Path) -> Asked:
    """Return which settings and scripts ``logparse run --with FOLDER`` should apply to the job.

    They are found in ``apply.py`` in the folder, and by the names of the folders that hold an ``apply.sh``.
    """
    scripts = tuple(path.parent.name for path in scripts_of(overrides))
    try:
        text = (overrides / "apply.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return Asked(scripts=scripts)
    return Asked(_read_settings(text), scripts, VARIABLE in text)


def _read_settings(text: str) -> tuple[str, ...] | None:
    """Return the PyTorch settings that a generated script ``apply.py`` changes without further calls.

    ``text`` is the script's source text. Returns None if the script does not list these settings.
    """
    # The script lists these settings in ``ALONE``. For its other changes, the user's program must call a function.
    try:
        found = [
            ast.literal_eval(node.value)
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and [*map(ast.unparse, node.targets)] == ["ALONE"]
        ]
    except (SyntaxError, ValueError):
        return None
    return tuple(map(str, found[-1])) if found and isinstance(found[-1], (tuple, list)) else None


@dataclass(frozen=True)
class Applied:
    """Changes that the processes of a job have applied: settings, changes of models, and environment variables.

    * ``settings`` maps each setting to the number of processes that made it and kept it until they ended. Processes
      with an ``apply.py`` of an older version are counted, although they do not say how they ended.
    * ``lost`` maps each setting to the number of processes that made it, but in which it was not in force any more when
      they ended. ``undone`` maps the setting to the PyTorch settings that have another value.
    * ``unknown`` maps each setting to the number of processes that made it, but did not say whether they kept it.
    * ``models`` maps each change of a model to the number of processes that made it.
    * ``variables`` maps each exported environment variable to the number of reports about it.
    * ``unchanged`` lists the changes of a model that found nothing to change.
    """

    settings: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[str, int] = field(default_factory=dict)
    variables: Mapping[str, int] = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    undone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.settings or self.models or self.variables)

    def __str__(self) -> str:
        """Return a line for the user: the changes that were applied, and the number of processes that applied them."""
        parts = []
        for names, what in ((self.settings, ""), (self.models, " of the model")):
            for number in sorted(set(names.values()), reverse=True):
                listed = ", ".join(sorted(name for name, count in names.items() if count == number))
                parts.append(f"{listed}{what} in {pluralize(number, 'process')}")
        if self.variables:
            parts.append(f"{', '.join(sorted(self.variables))} by apply.sh")
        return "; ".join(parts)

    @property
    def notes(self) -> list[str]:
        """Lines for the user about settings of which it is not known whether they were in force until the end."""
        return [
            f"{make_printable(name)} was set in {pluralize(count, 'process')}, but it is not known whether it was "
            "still in force at the end: a process that is killed or ends by os._exit cannot report it"
            for name, count in sorted(self.unknown.items())
        ]

    def made(self, name: str) -> int:
        """Return the number of processes that made a setting, whether or not they kept it."""
        return sum(x.get(name, 0) for x in (self.settings, self.lost, self.unknown))


def read_marks(folder: Path) -> Applied:
    """Read what the job's processes reported about the settings and scripts that they applied.

    The reports are the files ``applied_*`` in ``folder``. A file that cannot be read is ignored.
    """
    settings, models, variables = Counter[str](), Counter[str](), Counter[str]()
    lost, unknown = Counter[str](), Counter[str]()
    undone: dict[str, frozenset[str]] = {}
    changed: set[str] = set()
    for path in sorted(folder.glob("applied_*")):
        try:
            facts = applied_marks.facts(path.read_bytes())
        except (OSError, ValueError):
            continue
        for fact in facts:
            kind, _, name = fact.name.partition(":")
            if kind + ":" == applied_marks.EXPORTED:
                variables[name] += 1
            elif kind + ":" == applied_marks.APPLIED:
                what = json.loads(fact.value)
                at_end = {applied_marks.LOST: lost, applied_marks.UNKNOWN: unknown}.get(what.get("at_end"), settings)
                at_end[name] += bool(what.get("setting"))
                if at_end is lost:
                    undone[name] = undone.get(name, frozenset()) | {what["undone"]}
                models[name] += bool(what.get("models"))
                if any(model.get("changed") != 0 for model in what.get("models", ())):
                    changed.add(name)
    unchanged = tuple(sorted({*+models} - changed))
    return Applied(+settings, +models, +variables, unchanged, +lost, undone, +unknown)


def missing(asked: Asked, found: Applied, command: Sequence[str]) -> list[str]:
    """Return lines about settings and scripts that were requested but not applied, with the reason.

    The reason is only the likely one, for example that no process of the job imported torch. There is also a line for
    each setting that was not in force any more when a process ended. The list is empty if all were applied.
    """
    out = []
    for name, count in sorted(found.lost.items()):
        of = "the job" if count == found.made(name) else f"{count:,} of {pluralize(found.made(name), 'process')}"
        out.append(applied_marks.undone(name, found.undone[name], of))
    names = [name for name in asked.settings or () if not found.made(name)]
    if names or (asked.settings is None and not any((found.settings, found.lost, found.unknown, found.models))):
        out.append(f"not applied: {', '.join(names) or 'apply.py'}: {_explain_silence(asked, command)}")
    if asked.scripts and not found.variables:
        out.append(
            f"not applied: apply.sh of {', '.join(map(make_printable, asked.scripts))}: it refused this machine, as "
            "stated above, or could not be read"
        )
    return out


def _explain_silence(asked: Asked, command: Sequence[str]) -> str:
    if not asked.marking:
        return "this apply.py does not report which changes it applies; write apply.py again with `logparse recommend`"
    return kept_out.reason(command) or f"no process of the job reported that it ran apply.py: {kept_out.NO_TORCH}"
