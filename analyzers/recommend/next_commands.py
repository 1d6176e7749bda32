"""The shell commands that follow a recommendation, as the terminal and the web page show them: confirm, check, ingest.

``screen`` shows them below the list of things to do, the web page on the card of each thing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count

from logparse.libraries.all_search_scripts import SEARCH_SCRIPTS
from logparse.quoting import Shell
from logparse.store import command_line


def name_next_run(runs: Iterable[str]) -> str:
    """Return a new name for the run that the user will make with the changes: ``after``, ``after2``, …

    ``runs`` are the stored runs.
    """
    known = set(runs)
    numbered = (f"after{n}" for n in count(2))
    return next(x for x in chain(["after"], numbered) if x not in known)


def confirm(store: str | None, run: str) -> Shell:
    """Return the command that times the listed solutions again, beside the library's choices."""
    return command_line(store, "replay", "--run", run)


def check(
    store: str | None,
    run: str,
    runs: Iterable[str],
    job: str,
    files: str = "",
    actions: Sequence[str] = (),
    *,
    traced: bool = False,
) -> str:
    """Return the command that runs the job with the changes, and compares the new run with the old one.

    * ``run``: the run without the changes. ``runs``: all stored runs. The new run gets another name.
    * ``traced``: True if the run has a trace. Then the new run gets one, too, and their times are compared.
    * ``job``: the command of the job with the changes.
    * ``files``: the folder with the override files that the job reads, as a word of a shell command. Empty without
      such files. A check of override files needs no ``actions``, the names of changes to the job.
    """
    later = name_next_run(runs)
    by_action = [] if files else [word for name in actions for word in ("--action", name)]
    made = command_line(store, "capture", *(["--trace", "2"] if by_action or traced else []), "--run", later)
    compared = command_line(store, "verify", run, later, *by_action)
    return f"{made} -- {job} && {compared}{f' {files}' if files else ''}"


def ingest_found(store: str | None, run: str, folder: str, scripts: Iterable[str]) -> str:
    """Return the command that reads what search scripts have found for a run, into a run of its own.

    * ``folder``: the folder with the scripts, as a word of a shell command. ``scripts``: their names.
    """
    results = [f"{folder}/{x}" for search in SEARCH_SCRIPTS if search.name in set(scripts) for x in search.results]
    return " ".join([command_line(store, "ingest", "--run", f"{run}-search"), *results])
