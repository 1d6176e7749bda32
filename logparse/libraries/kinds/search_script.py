"""The interface for shell scripts that let a library search for its fastest kernels on the GPU.

A script writes its results into a database or tuning file of its own, never into the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from logparse.model import Problem
from logparse.quoting import Shell, asset, fill_template, join_code, shell_word

Command: TypeAlias = Callable[[Problem], Shell]

_TRIED = Shell("@command@ >&3 2>&3 || echo 'search @n@ of @count@ failed; the log of this script says why' >&2")


@dataclass(frozen=True)
class SearchScript:
    """Makes a shell script that lets a library's own tool search for faster kernels.

    A module in the library's folder defines it as ``SEARCH_SCRIPT``.

    * ``name``: the name of the script's file.
    * ``library``: the library that searches, for example ``miopen``.
    * ``problems``: the class of the calls for which the library can search, for example ``GemmProblem``.
    * ``command``: a function that returns the shell command that searches for one call, with the library's own tool. It
      raises EmissionError if a field is unknown that the tool needs.
    * ``template``: the file with the script's text.  It has the places ``@count@`` and ``@lines@``.  In the script,
      file descriptor 3 is its log.
    * ``results``: the files to ingest after the search, as patterns relative to the script's folder.
    """

    name: str
    library: str
    problems: type[Problem]
    command: Command
    template: Path
    results: Sequence[str]

    def text(self, commands: Sequence[Shell]) -> Shell:
        """Return the shell script that runs the search commands one after the other.

        If a command fails, the script goes on with the next one.
        """
        count = shell_word(str(len(commands)))
        tried = [
            fill_template(_TRIED, {"command": command, "n": shell_word(str(n)), "count": count})
            for n, command in enumerate(commands, 1)
        ]
        return fill_template(Shell(asset(self.template)), {"count": count, "lines": join_code(Shell("\n"), tried)})
