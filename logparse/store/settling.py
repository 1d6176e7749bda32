"""The commands that settle which find-db a job reads: capture the job again, with MIOpen's names of the solvers."""

from __future__ import annotations

from collections.abc import Collection

from logparse.libraries.miopen.find_db_choice import SETTLED_BY
from logparse.store.store import command_line, new_label


def settling(store: str | None, run: str, runs: Collection[str], verb: str = "recommend") -> tuple[str, str]:
    """Return two shell commands: one captures the job with its solvers, and the other answers again from that run.

    * ``store``: the folder or URL of the stored data.
    * ``run``: the run whose solvers are unknown. ``runs``: all stored runs. The new run gets another name.
    * ``verb``: the command that answers.
    """
    name = new_label(f"{run}-solvers", runs)
    capture = f"{SETTLED_BY} {command_line(store, 'capture', '--run', name)} -- JOB"
    return capture, str(command_line(store, verb, "--run", name))
