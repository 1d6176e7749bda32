"""Proof that a job applied the requested settings and scripts, by marks that its processes leave.

``libraries/own/applied_marks.py`` describes the marks.  A setting acts only if Python imports torch with logparse's
folder on its path.  A script acts only on the machine for which its files were made.  If a setting or script left no
mark, the job ran without it.  Then the job's times say nothing about that setting or script.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logparse.libraries.own import applied_marks
from logparse.output.files import write_file
from logparse.text import printable

VARIABLE = "LOGPARSE_APPLIED"
"""Environment variable that names the folder of the marks.

Without the variable, or without the folder, no mark is left.
"""
FOLDER, ASKED_FILE = "applied", "asked.json"
"""Folder of marks within the folder of a capture, and the file beside the marks that lists what was requested."""
NOT_APPLIED = 125
"""Exit code of ``run`` and ``tune`` if a job ended well, but a requested setting or script left no mark.

``env``, ``timeout`` and ``docker run`` use 125 for errors of their own, beside 126 and 127.
"""


@dataclass(frozen=True)
class Asked:
    """Settings and scripts that a job is to apply.

    * ``settings``: the settings that the module ``apply.py`` lists.  None means that the module has no list, so any
      setting may act.
    * ``scripts``: the folders of the scripts.
    * ``marking``: True if the module leaves marks.
    """

    settings: tuple[str, ...] | None = ()
    scripts: tuple[str, ...] = ()
    marking: bool = True

    def write(self, folder: Path) -> None:
        """Write the requested settings and scripts beside the marks.

        An error, such as a full disk, is ignored, so that the job still runs.
        """
        asked = {"settings": list(self.settings or ()), "scripts": list(self.scripts)}
        text = json.dumps({"logparse_applied": 1, "asked": asked})
        with contextlib.suppress(OSError):
            write_file(folder / ASKED_FILE, text.encode(), within=folder)


def asked_of(overrides: Path) -> Asked:
    """Return the settings and scripts that ``run --with`` this folder is to apply."""
    scripts = tuple(path.parent.name for path in sorted(overrides.glob("*/apply.sh")))
    try:
        text = (overrides / "apply.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return Asked(scripts=scripts)
    return Asked(_alone(text), scripts, VARIABLE in text)


def _alone(text: str) -> tuple[str, ...] | None:
    """Return the list ``ALONE`` of a module: the settings that the module applies by itself.

    Return None if the module has no such list.
    """
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
    """Number of processes that applied each setting, made each change of a model, and exported each variable.

    ``unchanged`` lists the changes that changed no module of their model.
    """

    settings: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[str, int] = field(default_factory=dict)
    variables: Mapping[str, int] = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.settings or self.models or self.variables)

    def __str__(self) -> str:
        """Return one line: what was applied, and in how many processes."""
        parts = []
        for names, what in ((self.settings, ""), (self.models, " of the model")):
            for number in sorted(set(names.values()), reverse=True):
                listed = ", ".join(sorted(name for name, count in names.items() if count == number))
                parts.append(f"{listed}{what} in {processes(number)}")
        if self.variables:
            parts.append(f"{', '.join(sorted(self.variables))} by apply.sh")
        return "; ".join(parts)


def read_marks(folder: Path) -> Applied:
    """Read the marks in a folder.  A mark that cannot be read is ignored."""
    settings, models, variables = Counter[str](), Counter[str](), Counter[str]()
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
                settings[name] += bool(what.get("setting"))
                models[name] += bool(what.get("models"))
                if any(model.get("changed") != 0 for model in what.get("models", ())):
                    changed.add(name)
    return Applied(+settings, +models, +variables, tuple(sorted({*+models} - changed)))


def missing(asked: Asked, found: Applied, command: Sequence[str]) -> list[str]:
    """Return a line for the user per requested setting or script that left no mark, with the likely reason."""
    out = []
    names = [name for name in asked.settings or () if name not in found.settings]
    if names or (asked.settings is None and not found.settings and not found.models):
        out.append(f"not applied: {', '.join(names) or 'apply.py'}: {_why(asked, command)}")
    if asked.scripts and not found.variables:
        out.append(
            f"not applied: apply.sh of {', '.join(map(printable, asked.scripts))}: it refused this machine, as "
            "stated above, or could not be read"
        )
    return out


def processes(number: int) -> str:
    """Return a number of processes with its noun: ``1 process``, ``2 processes``."""
    return "1 process" if number == 1 else f"{number:,} processes"


def _why(asked: Asked, command: Sequence[str]) -> str:
    if not asked.marking:
        return "this apply.py does not report what it applies; write it again with `logparse recommend`"
    flags = "".join(flag for flag in _flags_of_python(command) if flag in "SIE")
    if flags:
        return f"Python was started with -{flags[0]}, which keeps logparse out of it; leave this option out"
    return (
        "no process of the job reported that it ran apply.py, because none imported torch or their Python did "
        "not get this command's environment (options -S, -I or -E, sudo, a container)"
    )


def _flags_of_python(command: Sequence[str]) -> Iterator[str]:
    """Yield the letters of the options without a value of each Python that the command starts."""
    words = iter(command)
    for word in words:
        if re.fullmatch(r"python[\d.]*", os.path.basename(word)):
            for option in words:
                letters = re.fullmatch(r"-([A-Za-z]*?)([cmWX].*)?", option)
                if letters is None:
                    break
                yield from letters[1]
                if letters[2] in ("W", "X"):
                    next(words, "")
                elif letters[2] and letters[2][0] in "cm":
                    break
