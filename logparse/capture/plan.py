"""Decide which environment variables switch on the logs of a job's math libraries (``logparse capture -- COMMAND…``).

Each library's folder in ``logparse/libraries`` states its variables (``CAPTURE``, see ``libraries/kinds/capture.py``).
Each library writes its own files into one new folder. The file ``facts.json`` there holds the GPU and the library
versions, which ``--target`` needs.

Some variables would switch these logs off again. If the command itself sets such a variable, logparse refuses to run
it. If the environment sets it, logparse corrects it and warns.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import socket
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logparse.capture import applied
from logparse.capture.with_overrides import UNITS_FILE, with_torch
from logparse.errors import InputError, UsageError
from logparse.libraries.all_captures import CAPTURES
from logparse.libraries.kinds.capture import CATEGORIES, Asked, Capture, Setting
from logparse.quoting import shell_comment, shell_word
from logparse.store import command_line

DEFAULT_MASKS = "32,64"
TRACES = "trace_*.json.gz"
"""File name pattern of the profiler's traces in the log folder.

There is one file for each process and each traced period (``in_job/logparse_in_job/``).
"""
UNITS = 2
"""Default number of steps (training steps or requests) that one trace covers. There are three or more traces per job.
"""


@dataclass(frozen=True)
class Trace:
    """The user's wishes for a recording of a job with PyTorch's profiler.

    A unit is a step of the job, for example a training step or a request. A window is a period in which the profiler
    runs.

    * ``units`` is the number of units in each window. 0 means that units are only timed, without the profiler.
    * ``seconds`` is the length of a window, if the user wants windows of a fixed length.
    * ``unit`` names the function whose calls are the units (``package.module:Class.method``).
    * ``expected`` is the number of units that an earlier run of the job had, or 0 if that is unknown.
    """

    units: int = UNITS
    seconds: float | None = None
    unit: str = ""
    expected: int = 0


def trace_of(text: str, unit: str = "") -> Trace | None:
    """Parse the value of ``--trace``: ``2`` (steps), ``2s`` (seconds) or ``0`` (no trace, returns None).

    ``unit`` is the value of ``--unit``, the function whose calls are the steps. Raises UsageError for any other value.
    """
    if unit and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", unit) is None:
        raise UsageError(f"--unit {unit}: must have the form package.module:Class.method")
    seconds = re.fullmatch(r"(\d+(?:\.\d*)?)\s*s", text)
    if seconds and 0 < float(seconds[1]) <= 60:
        return Trace(seconds=float(seconds[1]), unit=unit)
    if text.isdigit() and int(text) <= 1000:
        return Trace(int(text), unit=unit) if int(text) else None
    raise UsageError(
        f"--trace {text}: must be units of work per window, such as 2, or seconds, such as 2s (at most 60s)"
    )


@dataclass(frozen=True)
class Plan:
    """Says how to run a job so that its libraries write logs.

    * ``folder`` is the folder for the logs.
    * ``settings`` are the environment variables to set or to remove.
    * ``warnings`` are sentences for the user.
    * ``copy_stderr`` is True if a library logs to standard error, so that a copy of it is needed.
    * ``copy`` is a file that gets a copy of all that the job prints.
    """

    folder: Path
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    copy_stderr: bool
    copy: Path | None = None

    @property
    def traced(self) -> bool:
        """True if the profiler will record some of the job's steps."""
        return any(x.name == "LOGPARSE_TRACE_UNITS" and x.value != "0" for x in self.settings)

    @property
    def unit(self) -> str:
        """The function whose calls are the job's steps, as ``--unit`` names it. It is empty if none is named."""
        return next((x.value or "" for x in self.settings if x.name == "LOGPARSE_TRACE_UNIT"), "")

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        changed = {setting.name: setting.value for setting in self.settings}
        return {name: value for name, value in {**base, **changed}.items() if value is not None}


# ------------------------------------------------------------------------------------------------------- planning


def plan(
    command: Sequence[str],
    folder: Path | None = None,
    masks: str = DEFAULT_MASKS,
    *,
    markers: bool = False,
    leave_out: Container[str] = (),
    trace: Trace | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Return the settings (environment variables) that make a job's libraries write logs into ``folder``.

    * ``folder`` must be empty or missing. By default it is a new folder in the current one.
    * ``masks`` chooses the kinds of log lines: numbers (``96``, ``0x60``) or names from ``CATEGORIES``, joined by
      commas.
    * ``leave_out`` names the libraries whose logs stay off.
    * ``trace`` says what PyTorch's profiler records.

    Raises UsageError if ``masks`` is invalid. Raises InputError if the folder is not empty, or if the command itself
    sets a variable that switches the logs off.
    """
    gpus = _gpus(environ)
    asked = Asked(_folder(folder), read_masks(masks), environ, markers)
    logged = [x for x in CAPTURES if gpus & {*x.platforms} and x.library not in leave_out]
    _refuse_cancelling(command, [x for x in CAPTURES if x.library not in leave_out])
    settings = [setting for capture in logged for setting in capture.settings(asked)]
    warnings = [*_report_changed_variables(settings, environ), *_warn_of_launcher(command)]
    warnings += [doubt for capture in logged for doubt in capture.doubts(asked)]
    if trace is not None:  # The settings of a trace add to the job's PYTHONPATH, and replace nothing
        settings += _trace(asked.folder, trace, environ)
    copy_stderr = any(capture.on_stderr for capture in logged)
    return Plan(asked.folder, tuple(settings), tuple(warnings), copy_stderr)


def timing(folder: Path, unit: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a job whose steps are only counted and timed. No library writes a log.

    ``unit`` names the function whose calls are the steps. If it is empty, logparse finds the steps itself.
    """
    return Plan(folder, tuple(_trace(folder, Trace(0, unit=unit), environ)), (), copy_stderr=False).environ(environ)


def by_turns(folder: Path, unit: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a job that is compared with a second job. The two jobs run alternately.

    Each job does some steps, and then waits while the other one does some. See ``in_job/logparse_in_job/turns.py``.
    """
    return {**timing(folder, unit, environ), "LOGPARSE_TURNS": str(folder), "LOGPARSE_TURNS_BY": str(os.getpid())}


def make_trial_environment(folder: Path, unit: str, environ: Mapping[str, str], asked: Path) -> dict[str, str]:
    """Return the environment variables for a job in which changes are switched on and off while it runs.

    The job's steps are timed with and without each change (``in_job/logparse_in_job/trial.py``). The file ``asked``
    lists the changes.
    """
    return {**timing(folder, unit, environ), "LOGPARSE_TRY": str(asked)}


def read_masks(text: str) -> int:
    """Combine kinds of log lines into one bit mask: ``32,64``, ``bench,profile`` and ``0x60`` all give 96.

    Raises UsageError for other texts.
    """
    mask = 0
    for word in text.replace("+", ",").split(","):
        name = word.strip().lower()
        try:
            bits = CATEGORIES[name][0] if name in CATEGORIES else int(name, 0)
        except ValueError:
            bits = 0
        if not 0 < bits <= 255:
            known = ", ".join(f"{bit} {category}" for category, (bit, _) in CATEGORIES.items())
            raise UsageError(f"--masks {text}: {word.strip()!r} is not a log category; the categories are {known}")
        mask |= bits
    return mask


def _folder(folder: Path | None) -> Path:
    if folder is None:
        now = datetime.datetime.now().strftime("%Y%m%dT%H%M%S")
        folder = Path(f"capture-{now}-{socket.gethostname().partition('.')[0]}-{os.getpid()}")
    if "%" in str(folder):
        raise InputError(
            f"--out {folder}: must not contain %, because the libraries replace %i in a file's name by the "
            "process number"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"--out {folder}: must be empty, or logs of another job would be taken for logs of this one")
    return folder.absolute()


def _gpus(environ: Mapping[str, str]) -> set[str]:
    """Return the platforms that the job may use: ``rocm`` (AMD), ``cuda`` (NVIDIA), or both.

    If neither is found on this machine, both are returned, because settings for the wrong platform do no harm.
    """
    found = set()
    if os.path.exists("/dev/kfd") or os.path.isdir(environ.get("ROCM_PATH") or "/opt/rocm"):
        found.add("rocm")
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia") or shutil.which("nvidia-smi"):
        found.add("cuda")
    return found or {"rocm", "cuda"}


def _trace(folder: Path, trace: Trace, environ: Mapping[str, str]) -> Iterator[Setting]:
    why = "logparse counts and times the job's steps and traces a few of them, once the job has imported torch"
    for name, value in with_torch(environ, UNITS_FILE).items():
        if environ.get(name) != value:
            yield Setting(name, value, why)
    yield Setting("LOGPARSE_TRACE_DIR", str(folder), "the folder for the traces and counts of each process")
    yield Setting(
        applied.VARIABLE,
        str(folder / applied.FOLDER),
        "the folder in which the job's processes report which changes of apply.py and apply.sh they applied",
    )
    yield Setting("LOGPARSE_TRACE_UNITS", str(trace.units), "the number of steps (units of work) in a traced window")
    if trace.seconds:
        yield Setting("LOGPARSE_TRACE_SECONDS", f"{trace.seconds:g}", "the length of a traced window in seconds")
    if trace.unit:
        yield Setting(
            "LOGPARSE_TRACE_UNIT", trace.unit, "the function whose calls are the steps (units of work) of the job"
        )
    if trace.expected:
        yield Setting(
            "LOGPARSE_TRACE_EXPECTED",
            str(trace.expected),
            "the number of steps (units of work) that an earlier run of the job did",
        )


_NO_ENVIRONMENT = frozenset({"docker", "podman", "kubectl", "ssh", "sudo", "apptainer", "singularity"})
_SEVERAL_NODES = frozenset({"srun", "mpirun", "mpiexec", "mpiexec.hydra", "prun"})


def _refuse_cancelling(command: Sequence[str], captures: Iterable[Capture]) -> None:
    """Raise InputError if the user's command itself sets a variable that switches off logs that logparse needs."""
    cancels = {name: test for capture in captures for name, test in capture.cancels.items()}
    for word in command if cancels else ():
        for name, value in re.findall(rf"(?:^|[\s;=])({'|'.join(cancels)})=(\S*)", word):
            cancelling, why = cancels[name]
            if cancelling(value.strip("'\"")):
                raise InputError(f"the command sets {name}={value}: {why}; remove it from the command")


def _report_changed_variables(settings: Sequence[Setting], environ: Mapping[str, str]) -> Iterator[str]:
    for setting in settings:
        present = environ.get(setting.name)
        if setting.value is None and present is not None:
            yield f"{setting.name}={present} is removed from the job's environment: {setting.why}"
        elif present is not None and present != setting.value:
            yield f"{setting.name} is {setting.value} for this job instead of {present}"


def _warn_of_launcher(command: Sequence[str]) -> Iterator[str]:
    program = os.path.basename(command[0]) if command else ""
    if program in _NO_ENVIRONMENT:
        yield f"{program} does not pass its environment to the job; run logparse capture within it"
    if program in _SEVERAL_NODES:
        yield (
            f"{program}: on several nodes, processes with the same number overwrite each other's logs in one "
            f"folder; run `{program} … logparse capture -- …` instead"
        )


def exports(plan: Plan, store: str | None = None, run: str | None = None) -> str:
    """Write the settings that switch on logging as shell lines, for users who start their job without logparse.

    Comments name the command that reads the logs afterwards. ``store`` and ``run`` are options of that command.
    """
    # A setting becomes ``export NAME=VALUE`` or ``unset NAME``. Comments also explain what the numbers mean.
    lines, named = [], ["--run", run] if run else []
    for setting in plan.settings:
        value = setting.value
        command = f"unset {setting.name}" if value is None else f"export {setting.name}={shell_word(value)}"
        lines.append(f"{command}  # {shell_comment(setting.why)}")
    lines += [f"mkdir -p {shell_word(plan.folder)}", "# HIPBLASLT_LOG_MASK is a sum of:"]
    lines += [f"#   {bit:3}  {category}: {what}" for category, (bit, what) in CATEGORIES.items()]
    lines += [
        "# Example: 5 is error + hints. HIPBLASLT_LOG_LEVEL=5 is another variable, and never logs bench and "
        "profile lines.",
        f"# Afterwards: {shell_comment(command_line(store, 'ingest', str(plan.folder), *named))}",
        "# Logging costs time and fills disks. Switch it off again in production with",
        "#   unset " + " ".join(s.name for s in plan.settings if s.value is not None),
    ]
    return "\n".join(lines) + "\n"
