"""The shell commands that follow a recommendation, as the terminal and the web page show them: confirm, check, ingest.

``screen`` shows them below the list of things to do, the web page on the card of each thing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logparse.libraries.all_search_scripts import SEARCH_SCRIPTS
from logparse.quoting import Shell, make_printable, shell_word
from logparse.store import command_line, new_label

CONFIRM, CHECK, APPLY, SEARCH = "confirm (advised)", "apply, prove (once)", "apply (later runs)", "search (hours)"
TIME = "or prove, time (once)"
"""Labels of commands, which also say when to run them."""


def confirm(store: str | None, run: str) -> Shell:
    """Return the command that times the listed solutions again, beside the library's choices."""
    return command_line(store, "replay", "--run", run)


def check_files(store: str | None, run: str, folder: str) -> str:
    """Return the command that runs the job with override files, and verifies that its libraries use them.

    * ``run``: the run without the files. ``folder``: the folder with the files, as a word of a shell command.
    """
    return f"{command_line(store, 'run')} --with {folder} --verify {shell_word(run)} -- JOB"


def time_files(store: str | None, runs: Iterable[str], folder: str) -> str:
    """Return the commands that trace the job without and with override files, prove their use and compare the calls.

    * ``runs``: all stored runs. The new runs get other names. ``folder``: as in ``check_files``.
    """
    timed = new_label("timed", runs)
    traced = command_line(store, "capture", "--trace", "2", "--run", timed)
    return f"{traced} -- JOB && {check_files(store, timed, folder)}"


def explain_check(run: str, *, traced: bool) -> str:
    """Explain the command of ``check_files``. ``traced``: the run without the files has a trace."""
    times = f"times are compared with run {make_printable(run)}" if traced else "time: traced calls are compared too"
    return f"prove: the libraries use the files; {times}"


EXPLAIN_CHECK = "after apply, check runs it with logs, proves that the changes are in use, and compares the times"
"""Explanation of the command of ``check_actions``."""


def check_actions(store: str | None, run: str, runs: Iterable[str], actions: Sequence[str]) -> str:
    """Return the command that runs the changed program, and compares the new run with the old one.

    * ``run``: the run without the changes. ``runs``: all stored runs. The new run gets another name.
    * ``actions``: the names of the changes.
    """
    later, named = new_label("after", runs), [word for name in actions for word in ("--action", name)]
    made = command_line(store, "capture", "--trace", "2", "--run", later)
    return f"{made} -- JOB && {command_line(store, 'verify', run, later, *named)}"


def ingest_found(store: str | None, run: str, folder: str, scripts: Iterable[str]) -> str:
    """Return the command that reads what search scripts have found for a run, into a run of its own.

    * ``folder``: the folder with the scripts, as a word of a shell command. ``scripts``: their names.
    """
    results = [f"{folder}/{x}" for search in SEARCH_SCRIPTS if search.name in set(scripts) for x in search.results]
    return " ".join([command_line(store, "ingest", "--run", f"{run}-search"), *results])
