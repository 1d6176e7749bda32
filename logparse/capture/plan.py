"""``logparse capture -- COMMAND…``: the settings that switch on the logs of a job's math libraries.

These logs are switched on.  Each writes files of its own into one new folder:

* hipBLASLt: bench lines (every launch) and profile records (exact counts at exit), or the chosen categories;
* cuBLASLt, which has neither: trace lines (also of the classic calls of cuBLAS), hints and errors;
* MIOpen: one ``MIOpenDriver`` command per convolution call.  It writes only to standard error, which is copied;
* TunableOp: the keys that it has no tuned row for;
* ``facts.json``: the machine and the library builds, which ``--target`` needs.

Some settings would cancel these logs.  If the command itself makes such a setting, it is refused.  If the environment
makes it, it is corrected, with a warning.

Sources: ROCm/hipBLASLt library/src/amd_detail/rocblaslt/src/include/logging.h, the cuBLAS documentation (cuBLASLt
Logging), pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp.

Costs were measured on an H200 (``benchmarks/results/nvidia-logs-…``).  A Trace line takes at most 0.01 ms and 0.6 KB.
cuBLAS's own log takes 0.16 ms and 5 KB a call.  It adds no information, so it stays off.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logparse.capture import applied
from logparse.capture.with_overrides import UNITS_FILE, with_torch
from logparse.errors import InputError, UsageError
from logparse.quoting import shell_comment, shell_word
from logparse.store import command_line

CATEGORIES: Mapping[str, tuple[int, str]] = {
    "error": (1, "errors of arguments, handles and solutions"),
    "trace": (2, "one line per matmul call"),
    "hints": (4, "advice (hipBLASLt never writes any, cuBLASLt does)"),
    "info": (8, "why a solution was taken, which files were read"),
    "api": (16, "every call of the API: very many lines"),
    "bench": (32, "one hipblaslt-bench command per GEMM launch, flushed line by line (ROCm 6.1 and later)"),
    "profile": (64, "each distinct GEMM with its count, when a process ends (ROCm 6.4 and later)"),
    "extended_profile": (128, "the same with the solution's name (ROCm 6.4 and later)"),
}
"""Bits of HIPBLASLT_LOG_MASK, by category.

cuBLASLt has the first five categories as well.  The mask 5 means error + hints, not "level 5".
"""

DEFAULT_MASKS = "32,64"
TRACES = "trace_*.json.gz"
"""Pattern of the traces in the folder of a capture.

There is one per process and window (``in_job/logparse_in_job/``).
"""
UNITS = 2
"""Number of units in one window.  A job has three or more windows."""
_CUBLASLT_BITS, _BENCH, _AT_EXIT, _LAUNCHES = 31, 32, 64 | 128, 32 | 64 | 128
_CUBLASLT_CALLS = 1 | 2 | 4  # cuBLASLt has neither bench nor profile; these bits replace them


@dataclass(frozen=True)
class Trace:
    """Request to record the job with PyTorch's profiler.

    * ``units``: number of units per window.  0 means that units are only timed, without a profiler.
    * ``seconds``: length of a window, if the user asked for windows of a fixed time.
    * ``unit``: the name of the callable whose calls are units (``package.module:Class.method``).
    * ``expected``: the number of units that the job made in an earlier run (0: unknown).
    """

    units: int = UNITS
    seconds: float | None = None
    unit: str = ""
    expected: int = 0


def trace_of(text: str, unit: str = "") -> Trace | None:
    """Parse ``--trace``: a number of units per window, ``2s``, or 0 for no trace.  Raises UsageError for other
    texts.
    """
    if unit and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", unit) is None:
        raise UsageError(f"--unit {unit}: a callable is named as package.module:Class.method")
    if unit.startswith("__main__:"):
        raise UsageError(f"--unit {unit}: a script's own callables are made before they can be counted: name a module")
    seconds = re.fullmatch(r"(\d+(?:\.\d*)?)\s*s", text)
    if seconds and 0 < float(seconds[1]) <= 60:
        return Trace(seconds=float(seconds[1]), unit=unit)
    if text.isdigit() and int(text) <= 1000:
        return Trace(int(text), unit=unit) if int(text) else None
    raise UsageError(f"--trace {text}: units per window (2), or seconds (2s, at most 60s)")


@dataclass(frozen=True)
class Setting:
    """One variable for the job.  A ``value`` of None removes it from the environment."""

    name: str
    value: str | None
    why: str


@dataclass(frozen=True)
class Plan:
    """Settings of a job.

    ``folder`` gets the logs.  ``copy`` is a file beside them with a copy of the job's output.
    """

    folder: Path
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    copy_stderr: bool
    copy: Path | None = None

    @property
    def traced(self) -> bool:
        """True if the job's units of work are to be traced."""
        return any(x.name == "LOGPARSE_TRACE_UNITS" and x.value != "0" for x in self.settings)

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
    tunableop: bool = True,
    trace: Trace | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Return the settings for a job whose logs are written into ``folder`` (default: a new one below the current
    folder).

    ``masks`` holds numbers (``96``, ``0x60``) and names of ``CATEGORIES``, joined by commas.  ``trace`` states what
    PyTorch's profiler records.  Raises UsageError for invalid masks.  Raises InputError if the folder is not empty, or
    if the command cancels the settings.
    """
    folder = _folder(folder)
    mask, gpus = read_masks(masks), _gpus(environ)
    _refuse_cancelling(command, tunableop)
    settings: list[Setting] = []
    if "rocm" in gpus:
        settings += _rocm(folder, mask, markers)
    if "cuda" in gpus:
        settings += _cuda(folder, mask)
    if tunableop:
        settings += _tunableop(folder, environ)
    warnings = [*_mended(settings, environ), *_doubtful(command, mask, gpus, environ if tunableop else {})]
    if trace is not None:  # The settings of a trace add to the job's PYTHONPATH, and replace nothing
        settings += _trace(folder, trace, environ)
    return Plan(folder, tuple(settings), tuple(warnings), copy_stderr="rocm" in gpus)


def timing(folder: Path, unit: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job whose units of work are counted and timed into ``folder``.

    Nothing else is logged.
    """
    return Plan(folder, tuple(_trace(folder, Trace(0, unit=unit), environ)), (), copy_stderr=False).environ(environ)


def by_turns(folder: Path, unit: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of ``timing`` for a job whose units alternate with another job's units.

    See ``in_job/logparse_in_job/turns.py``.
    """
    return {**timing(folder, unit, environ), "LOGPARSE_TURNS": str(folder), "LOGPARSE_TURNS_BY": str(os.getpid())}


def trying(folder: Path, unit: str, environ: Mapping[str, str], asked: Path) -> dict[str, str]:
    """Return the environment of a job that tries actions between its units (``in_job/logparse_in_job/trial.py``).

    ``asked`` is the file that states these actions.
    """
    return {**timing(folder, unit, environ), "LOGPARSE_TRY": str(asked)}


def read_masks(text: str) -> int:
    """Parse ``32,64``, ``bench,profile`` or ``0x60`` as one mask.  Raises UsageError for other texts."""
    mask = 0
    for word in text.replace("+", ",").split(","):
        name = word.strip().lower()
        try:
            bits = CATEGORIES[name][0] if name in CATEGORIES else int(name, 0)
        except ValueError:
            bits = 0
        if not 0 < bits <= 255:
            known = ", ".join(f"{bit} {category}" for category, (bit, _) in CATEGORIES.items())
            raise UsageError(f"--masks {text}: {word.strip()!r} is no category; there is {known}")
        mask |= bits
    return mask


def _folder(folder: Path | None) -> Path:
    if folder is None:
        now = datetime.datetime.now().strftime("%Y%m%dT%H%M%S")
        folder = Path(f"capture-{now}-{socket.gethostname().partition('.')[0]}-{os.getpid()}")
    if "%" in str(folder):
        raise InputError(f"--dir {folder}: the libraries put the process where a name has %i, so a folder must not")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"--dir {folder}: not empty; logs of another job would be taken for this one's")
    return folder.absolute()


def _gpus(environ: Mapping[str, str]) -> set[str]:
    """Return the platforms (``rocm``, ``cuda``) that the job may use.

    If that is unclear, return both, because variables for the other platform have no effect.
    """
    found = set()
    if os.path.exists("/dev/kfd") or os.path.isdir(environ.get("ROCM_PATH") or "/opt/rocm"):
        found.add("rocm")
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia") or shutil.which("nvidia-smi"):
        found.add("cuda")
    return found or {"rocm", "cuda"}


def _rocm(folder: Path, mask: int, markers: bool) -> Iterator[Setting]:
    yield Setting("HIPBLASLT_LOG_LEVEL", None, "beats the mask, even when it is empty")
    yield Setting("HIPBLASLT_LOG_MASK", str(mask), " + ".join(_names(mask)))
    yield Setting("HIPBLASLT_LOG_FILE", f"{folder}/hipblaslt_%i.log", "%i: a file per process (default: stderr)")
    if markers:
        yield Setting("HIPBLASLT_ENABLE_MARKER", "1", "roctx ranges, for rocprofv3 --marker-trace")
    yield Setting("MIOPEN_ENABLE_LOGGING_CMD", "1", "one MIOpenDriver command per convolution, on stderr")


def _cuda(folder: Path, mask: int) -> Iterator[Setting]:
    bits = mask & _CUBLASLT_BITS | (_CUBLASLT_CALLS if mask & _LAUNCHES else 0)
    yield Setting("CUBLASLT_LOG_LEVEL", None, "a level beside a mask")
    yield Setting("CUBLASLT_LOG_MASK", str(bits), " + ".join(_names(bits)) + " (cuBLASLt has no bench and profile)")
    yield Setting("CUBLASLT_LOG_FILE", f"{folder}/cublaslt_%i.log", "%i: a file per process (default: stdout)")


def _tunableop(folder: Path, environ: Mapping[str, str]) -> Iterator[Setting]:
    on = environ.get("PYTORCH_TUNABLEOP_ENABLED") == "1"
    if on and environ.get("PYTORCH_TUNABLEOP_TUNING") != "0":
        raise InputError(
            "PYTORCH_TUNABLEOP_ENABLED=1 tunes unless PYTORCH_TUNABLEOP_TUNING=0, and a job that tunes records nothing "
            "untuned: set PYTORCH_TUNABLEOP_TUNING=0, or capture with --no-tunableop"
        )
    yield Setting("PYTORCH_TUNABLEOP_ENABLED", "1", "GEMMs pass through TunableOp …")
    yield Setting("PYTORCH_TUNABLEOP_TUNING", "0", "… which tunes nothing: together with recording, nothing is written")
    yield Setting("PYTORCH_TUNABLEOP_RECORD_UNTUNED", "1", "and writes the keys that it has no row for (PyTorch 2.6)")
    yield Setting(
        "PYTORCH_TUNABLEOP_UNTUNED_FILENAME", f"{folder}/tunableop_untuned.csv", "the device is put before .csv"
    )
    if not on:
        why = "no results file of the working folder changes this job"
        yield Setting("PYTORCH_TUNABLEOP_FILENAME", f"{folder}/tunableop_results.csv", why)


def _trace(folder: Path, trace: Trace, environ: Mapping[str, str]) -> Iterator[Setting]:
    why = "units of work are counted and timed, and a few traced, once the job has imported torch"
    for name, value in with_torch(environ, UNITS_FILE).items():
        if environ.get(name) != value:
            yield Setting(name, value, why)
    yield Setting("LOGPARSE_TRACE_DIR", str(folder), "traces and counts per process")
    yield Setting(applied.VARIABLE, str(folder / applied.FOLDER), "marks of what the job applies (apply.py, apply.sh)")
    yield Setting("LOGPARSE_TRACE_UNITS", str(trace.units), "units of one window")
    if trace.seconds:
        yield Setting("LOGPARSE_TRACE_SECONDS", f"{trace.seconds:g}", "windows of time")
    if trace.unit:
        yield Setting("LOGPARSE_TRACE_UNIT", trace.unit, "the callable whose calls are units")
    if trace.expected:
        yield Setting("LOGPARSE_TRACE_EXPECTED", str(trace.expected), "units of an earlier run")


_CANCELS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "HIPBLASLT_LOG_LEVEL": (lambda value: True, "beats HIPBLASLT_LOG_MASK, even when empty: no bench or profile lines"),
    "HIPBLASLT_LOG_FILE": (lambda value: "%i" not in value, "without %i processes truncate each other's file"),
    "CUBLASLT_LOG_FILE": (lambda value: "%i" not in value, "without %i processes overwrite each other's file"),
    "PYTORCH_TUNABLEOP_TUNING": (lambda value: value != "0", "a job that tunes records nothing untuned"),
}
"""Variables that a command may set (``env NAME=…``, ``mpirun -x NAME=…``).

Each has a test for values that cancel the settings of logparse, and the reason.
"""

_ASSIGNED = re.compile(r"(?:^|[\s;=])(" + "|".join(_CANCELS) + r")=(\S*)")
_NO_ENVIRONMENT = frozenset({"docker", "podman", "kubectl", "ssh", "sudo", "apptainer", "singularity"})
_SEVERAL_NODES = frozenset({"srun", "mpirun", "mpiexec", "mpiexec.hydra", "prun"})


def _refuse_cancelling(command: Sequence[str], tunableop: bool) -> None:
    for word in command:
        for name, value in _ASSIGNED.findall(word):
            cancels, why = _CANCELS[name]
            if cancels(value.strip("'\"")) and (tunableop or not name.startswith("PYTORCH")):
                raise InputError(f"the command sets {name}={value}: {why}; take it out of the command")


def _mended(settings: Sequence[Setting], environ: Mapping[str, str]) -> Iterator[str]:
    for setting in settings:
        present = environ.get(setting.name)
        if setting.value is None and present is not None:
            yield f"{setting.name}={present} is taken out of the job's environment: {setting.why}"
        elif present is not None and present != setting.value:
            yield f"{setting.name} was {present} and is {setting.value} for this job"


def _doubtful(command: Sequence[str], mask: int, gpus: set[str], environ: Mapping[str, str]) -> Iterator[str]:
    if "rocm" in gpus and mask & _AT_EXIT and not mask & _BENCH:
        yield (
            "profile records are written when a process ends by itself: those of a killed worker, or of one that "
            "leaves by os._exit, are lost; add 32 (bench), which is written line by line"
        )
    program = os.path.basename(command[0]) if command else ""
    if program in _NO_ENVIRONMENT:
        yield f"{program} does not hand on the environment by itself: run logparse capture inside of it"
    if program in _SEVERAL_NODES:
        yield (
            f"{program}: on several nodes process numbers meet in one folder, and logs overwrite each other; "
            f"there run `{program} … logparse capture -- …`"
        )
    if "PYTORCH_TUNABLEOP_FILENAME" in environ and environ.get("PYTORCH_TUNABLEOP_ENABLED") == "1":
        yield "PyTorch 2.10 and later do not read the tuned rows of PYTORCH_TUNABLEOP_FILENAME while they record"


def _names(mask: int) -> list[str]:
    return [category for category, (bit, _) in CATEGORIES.items() if mask & bit]


def exports(plan: Plan, store: str | None = None, run: str | None = None) -> str:
    """Return the settings as lines for a shell, with a comment that explains the mask.

    ``store`` and ``run`` are options of the command that ingests the logs.
    """
    lines, named = [], ["--run", run] if run else []
    for setting in plan.settings:
        value = setting.value
        command = f"unset {setting.name}" if value is None else f"export {setting.name}={shell_word(value)}"
        lines.append(f"{command}  # {shell_comment(setting.why)}")
    lines += [f"mkdir -p {shell_word(plan.folder)}", "# The mask is a sum of:"]
    lines += [f"#   {bit:3}  {category}: {what}" for category, (bit, what) in CATEGORIES.items()]
    lines += [
        "# So 5 is error + hints; the *level* 5 is another variable, and never holds bench and profile lines.",
        "# Without a file hipBLASLt and MIOpen write to standard error, cuBLASLt to standard output.",
        f"# Afterwards: {shell_comment(command_line(store, 'ingest', str(plan.folder), *named))}",
        "# Logging costs time and fills disks: switch it off again in production, with",
        "#   unset " + " ".join(s.name for s in plan.settings if s.value is not None),
    ]
    return "\n".join(lines) + "\n"
