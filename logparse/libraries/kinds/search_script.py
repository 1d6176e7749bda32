"""The kind of a script that lets a library search for solutions of problems on the GPU.

Such a script writes into a database or tuning file of its own, never into the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from logparse.model import Problem
from logparse.quoting import Shell, asset, filled, joined, shell_word

Command: TypeAlias = Callable[[Problem], Shell]

_TRIED = Shell("@command@ >&3 2>&3 || echo 'failed: @n@ of @count@' >&2")


@dataclass(frozen=True)
class SearchScript:
    """Search script of one library.  A module of the library's room offers it as ``SEARCH_SCRIPT``.

    * ``name``: name of the script's file.
    * ``problems``: the class of the problems that the library searches for.
    * ``command``: a function that returns the command of the library's own tool for one problem.  It raises
      EmissionError if a field that the tool needs is unknown.
    * ``template``: file of the program with places ``@count@`` and ``@lines@``.  File descriptor 3 is the script's log.
    """

    name: str
    problems: type[Problem]
    command: Command
    template: Path

    def text(self, commands: Sequence[Shell]) -> Shell:
        """Return the script that runs commands, each of which may fail."""
        count = shell_word(str(len(commands)))
        tried = [
            filled(_TRIED, {"command": command, "n": shell_word(str(n)), "count": count})
            for n, command in enumerate(commands, 1)
        ]
        return filled(Shell(asset(self.template)), {"count": count, "lines": joined(Shell("\n"), tried)})
