"""Find in a job's command what keeps logparse's code out of the job's Python."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

NO_TORCH = (
    "no process imported torch, or its Python did not get this command's environment (because of options -S, -I or "
    "-E, another PYTHONPATH, `env -i`, sudo or a container)"
)
"""Possible reasons if no process of a job was seen, and the command's words name no reason."""
_SET_ANEW = re.compile(r"(?:^|[\s;&(])PYTHONPATH=(\S*)")


def reason(command: Sequence[str]) -> str:
    """Return what in the command keeps logparse out of the job's Python, and what to do.

    Returns an empty text if the command's words name no such reason. These words do:

    * ``python -S``, ``-I`` and ``-E``
    * ``PYTHONPATH=src`` without the old value, for ``env`` or within ``sh -c``
    * ``env -i``
    """
    flags = "".join(flag for flag in _flags_of_python(command) if flag in "SIE")
    if flags:
        return f"Python was started with -{flags[0]}, which keeps logparse out of it; leave this option out"
    values = (found[1] for word in command for found in _SET_ANEW.finditer(word))
    if any("$PYTHONPATH" not in value and "${PYTHONPATH" not in value for value in values):
        return (
            "the command sets PYTHONPATH anew, which keeps logparse out of Python; set PYTHONPATH before `logparse`, "
            "or keep its old value in a shell with `PYTHONPATH=src:$PYTHONPATH`"
        )
    if _clears_environment(command):
        return "`env -i` removes PYTHONPATH, which keeps logparse out of Python; name the variables to remove with -u"
    return ""


def _clears_environment(command: Sequence[str]) -> bool:
    for number, word in enumerate(command):
        if os.path.basename(word) == "env":
            for option in command[number + 1 :]:
                if option in ("-", "-i", "--ignore-environment"):
                    return True
                if not option.startswith("-"):
                    break
    return False


def _flags_of_python(command: Sequence[str]) -> Iterator[str]:
    """Yield the one-letter options of Python in the command: ``E`` and ``s`` for ``python -Es train.py``.

    Options with a value, such as ``-W ignore`` or ``-m pytest``, are left out.
    """
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
