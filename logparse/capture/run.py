"""Run a job with its logs switched on, find out the GPU and the library versions, and store the logs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from logparse.capture import applied, job, machine
from logparse.capture.kept_input import KeptInput
from logparse.capture.plan import Plan
from logparse.errors import InputError, LogparseError
from logparse.libraries.own.machine_facts import FILE_NAME, STDERR_NAME, dump
from logparse.output.files import write_file
from logparse.text import make_printable

Say: TypeAlias = Callable[[str], None]
"""Function that shows one line to the user.

The line goes to standard error, because standard output belongs to the job.
"""

if TYPE_CHECKING:
    from logparse.ingest import Ingested
    from logparse.store import Store

_PROBE_SECONDS = 120
_LOGGING = ("HIPBLASLT_LOG", "CUBLASLT_LOG", "MIOPEN_LOG", "MIOPEN_ENABLE_LOGGING", "PYTORCH_TUNABLEOP_")


def capture(
    command: Sequence[str],
    plan: Plan,
    open_store: Callable[[], Store],
    say: Say,
    *,
    run: str | None = None,
    environ: Mapping[str, str] = os.environ,
    stdin: KeptInput | None = None,
    asked: applied.Asked | None = None,
) -> tuple[int, list[Ingested]]:
    """Run the job, find out the GPU and the library versions, and read the job's logs into the store.

    Returns the job's exit code and one result for each log file.

    * ``stdin`` is the job's standard input, if the job runs several times.
    * ``asked`` lists the settings and scripts that the job should apply and report.

    If something goes wrong with the logs, the exit code is still the job's. The error is shown, and the logs stay in
    their folder.
    """
    if refused := job.why_not_startable(command[0], environ):  # Checked before a store and a folder are made
        say(f"error: {make_printable(command[0])}: {refused.not_run}")
        return refused.code, []
    store = open_store()  # The store is opened before the job, because an error here must not come hours later
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        made = _with_marks(plan, plan.environ(environ), asked)
    except OSError as error:
        raise InputError(f"--out {plan.folder}: {error.strerror}") from error
    for warning in plan.warnings:
        say(f"warning: {make_printable(warning)}")
    say(f"the logs go to {make_printable(str(plan.folder))}")
    errors = plan.folder / STDERR_NAME if plan.copy_stderr else None
    ended = job.run(command, made, errors, plan.copy, stdin)
    if ended.not_run:
        say(f"error: {make_printable(command[0])}: {ended.not_run}")
        return ended.code, []
    for line in _report_losses(plan, ended):
        say(f"warning: {make_printable(line)}")
    for line in _observation(plan, command, ended):
        say(make_printable(line))
    try:
        return ended.code, _read(command, plan, store, say, run, environ)
    except (OSError, LogparseError) as error:
        say(f"error: {make_printable(str(error))}")
        say(f"the logs are in {make_printable(str(plan.folder))}; `logparse ingest` reads them")
        return ended.code, []


def _read(
    command: Sequence[str], plan: Plan, store: Store, say: Say, run: str | None, environ: Mapping[str, str]
) -> list[Ingested]:
    from logparse.ingest import ingest

    facts = facts_of_job(command, environ)
    write_file(plan.folder / FILE_NAME, dump(facts).encode(), within=plan.folder)
    results = ingest([str(plan.folder)], store, run=run)
    for result in results:
        if result.state == "failed":
            say(f"error: {result.error}")
    if not any(result.calls for result in results):
        say(f"warning: no call of a GPU library was counted: {_without_calls(facts)}")
    return results


def _without_calls(facts: Mapping[str, str]) -> str:
    """Return a likely reason why the job's logs contain no call of a GPU library, for example that there is no GPU."""
    if not facts.get("arch") and not facts.get("device"):
        return "logparse found no GPU on this machine"
    return (
        "check that the job uses the GPU, that it runs with this command's environment, and that it does not run in "
        "a container"
    )


def _with_marks(plan: Plan, environ: dict[str, str], asked: applied.Asked | None) -> dict[str, str]:
    """Return the job's environment, and make a folder in which the job can report which settings it has applied.

    An error, such as a full disk, is ignored: then the job runs without a report.
    """
    if asked is not None or plan.traced:
        folder = plan.folder / applied.FOLDER
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
        (asked or applied.Asked()).write(folder)
        environ = {**environ, applied.VARIABLE: str(folder)}
    return environ


def _observation(plan: Plan, command: Sequence[str], ended: job.Ended) -> Iterator[str]:
    """Yield the lines that tell the user what was seen of the job while it ran.

    If traces were wanted but none was written, a line states the reason. A failure of the job is named first, because
    the job may have lacked steps only because it failed.
    """
    from logparse.capture import notes

    found = notes.read_observed_steps(plan.folder)
    # No reason is given if the job's steps were counted.
    missing = notes.explain_missing_trace(plan.folder, found, command) if plan.traced else ""
    if ended.code and not ended.killed_by and (missing or found.lacks_trace):
        yield f"the job failed with exit code {ended.code}, so it may have ended before a trace was possible"
    yield from found.lines()
    yield from filter(None, (notes.never_called(found, plan.unit), missing))


def _report_losses(plan: Plan, ended: job.Ended) -> Iterator[str]:
    if ended.lost_copy:
        yield f"standard error was not copied to its end, so some of MIOpen's calls are missing: {ended.lost_copy}"
    empty = sorted(path.name for path in plan.folder.glob("hipblaslt_*.log") if not path.stat().st_size)
    if empty:
        yield (
            f"{', '.join(empty)}: empty, because a process that is killed or ends with os._exit loses its profile "
            "records"
        )
    if ended.killed_by:
        yield f"the job was ended by {ended.killed_by}; what is written at exit (profile records) may be missing"


def facts_of_job(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the facts of the machine (GPU, driver) and of the libraries that the job uses, by name.

    The facts are collected in the Python that runs the job, because that Python has the job's torch.
    """
    from logparse.libraries.tunableop import validators

    quiet = {name: value for name, value in environ.items() if not name.startswith(_LOGGING)}
    out: dict[str, str] = {}
    for line in _probe(interpreter(command), quiet).splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue  # The line was printed by a library
        if isinstance(found, dict):
            out |= {str(name): str(value) for name, value in found.items()}
    out = {name: value for name, value in out.items() if value}
    return out | {fact.name: fact.value for fact in validators.facts(validators.of_target(out))}


def _probe(python: str, environ: Mapping[str, str]) -> str:
    try:
        return subprocess.run(
            [python, machine.__file__],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:  # A GPU hangs, so only the facts printed until then are kept
        return error.stdout.decode("utf-8", "replace") if isinstance(error.stdout, bytes) else error.stdout or ""
    except OSError:
        return ""


def interpreter(command: Sequence[str]) -> str:
    """Return the path of the Python that runs a command.

    It is the command itself, or the Python in the first line of a script (torchrun …), or else the Python of logparse.
    """
    program = shutil.which(command[0]) if command else None
    if program is None:
        return sys.executable
    if re.fullmatch(r"python[\d.]*", os.path.basename(program)):
        return program
    try:
        with open(program, "rb") as script:
            first = script.readline(512)
    except OSError:
        return sys.executable
    named = re.match(rb"#!\s*(\S*/python[\d.]*)\s", first)
    return os.fsdecode(named[1]) if named else sys.executable
