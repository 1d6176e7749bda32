"""The commands that settle which find-db a job reads: capture the job again, with MIOpen's names of the solvers."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count

from logparse.libraries.miopen.find_db_choice import SETTLED_BY
from logparse.store.store import command_line


def settling(store: str | None, run: str, runs: Collection[str], verb: str = "recommend") -> tuple[str, str]:
    """Return two shell commands: one captures the job with its solvers, and the other answers again from that run.

    * ``store``: the folder or URL of the stored data.
    * ``run``: the run whose solvers are unknown. ``runs``: all stored runs. The new run gets another name.
    * ``verb``: the command that answers.
    """
    names = chain([f"{run}-solvers"], (f"{run}-solvers{n}" for n in count(2)))
    name = next(x for x in names if x not in runs)
    capture = f"{SETTLED_BY} {command_line(store, 'capture', '--run', name)} -- JOB"
    return capture, str(command_line(store, verb, "--run", name))
