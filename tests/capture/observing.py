"""Run a command without and with ``logparse capture``, and compare what can be seen of the two runs.

Each run gets a new folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logparse.output.answer import BESIDE

ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1"}
SET_OBSERVERS_CLOCK = """
unpatched = __import__("sys").modules.get("logparse_in_job.unpatched")
if unpatched: unpatched.Python.perf_counter, unpatched.Python.sleep = time.perf_counter, time.sleep
"""
"""Lines of a job that make the observer use the job's clock, which the job has replaced before."""
CLOCK = f"""
import threading, time
now, really_sleep = [0.0], time.sleep
def sleep(seconds):
    really_sleep(seconds)
    if threading.current_thread() is threading.main_thread():
        now[0] += seconds
time.perf_counter, time.sleep = lambda: now[0], sleep
{SET_OBSERVERS_CLOCK}
"""
"""First lines of a job that replace its clock and the observer's.

The new clock advances only while the main thread sleeps. So a busy machine does not change the times that the job
measures.
"""
_VARIES = (
    (re.compile(rb"^((?:\[rank\d+\]:)?\[?[VDIWEF])\d{4} \d\d:\d\d:\d\d\.\d+(?: \d+)? ", re.MULTILINE), rb"\1TIME "),
    (re.compile(rb"^([A-Z]+):\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ ", re.MULTILINE), rb"\1:TIME "),
    (re.compile(rb"^ERROR:[^\n]* gpuGetDeviceCount failed [^\n]*\n", re.MULTILINE), b""),
    (re.compile(rb"0x[0-9a-f]{6,}"), b"0x"),
    (re.compile(rb" in [\d.]+s\b"), b" in TIME"),
)
"""Patterns of output that differs between any two runs of a program, and the text that replaces each of them.

Of a line of PyTorch's log, only the time and the numbers of the process and thread are replaced. The message stays, so
that a warning that appears in one run alone is a difference. There are two forms of such lines::

    [W1128 12:00:00.123456789 Module.cpp:12] Warning: …      and W1128 12:00:00.123000 4711 torch/…/frame.py:12] …
    STAGE:2026-11-28 12:00:00 4711:4711 Controller.cpp:12] …

The other patterns are addresses, the time that a test took, and one warning of a CUDA build of PyTorch without a GPU,
which is missing if logparse traces some steps (docs/measurement.md).
"""


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a program in one run: its exit code, its printed bytes, and the files that it left.

    Lines of logparse itself are left out of the printed bytes, and so is text that differs between any two runs.
    """

    code: int | str
    out: bytes
    err: bytes
    files: Mapping[str, bytes]
    ours: tuple[str, ...] = ()


def behaviour_of(code: int | str, out: bytes, err: bytes, folder: Path) -> Behaviour:
    """Return the visible behaviour of a run with this exit code, these outputs and these files in ``folder``."""
    lines = err.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith(BESIDE.encode())]
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    rest = b"".join(line for line in lines if line not in ours)
    return Behaviour(code, _lasting(out), _lasting(rest), files, tuple(line.decode() for line in ours))


def _lasting(output: bytes) -> bytes:
    for pattern, text in _VARIES:
        output = pattern.sub(text, output)
    return output


def behaviour(
    command: Sequence[str], folder: Path, stdin: bytes = b"", environ: Mapping[str, str] = ENVIRON
) -> Behaviour:
    """Run a command in a new folder and a new process group. Returns its exit code, its output and its files."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        command, cwd=folder, env=dict(environ), input=stdin, capture_output=True, start_new_session=True, check=False
    )
    code = 128 - done.returncode if done.returncode < 0 else done.returncode  # exit code as a shell states it
    return behaviour_of(code, done.stdout, done.stderr, folder)


_PROGRAM = """
import logparse.capture.run
from logparse.__main__ import program
logparse.capture.run.facts_of_job = lambda command, environ: {}
program()
"""
"""The program ``logparse``, but ``capture`` does not ask the job's PyTorch for facts, which takes two seconds.

``test_capture.py`` tests these facts.
"""


def capturing(folder: Path, *options: str) -> list[str]:
    """Return the words ``logparse capture --trace 2 … --``, to be put before the command of a job.

    Logs and store (Parquet folder) are written outside of the job's own folder.
    """
    places = ["--out", str(folder / "logs"), "--store", str(folder / "store")]
    return [sys.executable, "-c", _PROGRAM, "capture", "--trace", "2", *places, *options, "--"]


def both(
    command: Sequence[str], folder: Path, stdin: bytes = b"", environ: Mapping[str, str] = ENVIRON
) -> tuple[Behaviour, Behaviour]:
    """Run a command alone and then under ``logparse capture --trace 2``. Return how it behaved each time.

    Both runs start in an empty folder with the same path, so that all differences come from ``capture``.
    """
    plain = behaviour(command, folder / "here", stdin, environ)
    shutil.rmtree(folder / "here")
    return plain, behaviour([*capturing(folder), *command], folder / "here", stdin, environ)


def differences(plain: Behaviour, observed: Behaviour) -> list[str]:
    """List what differs between a run without logparse and a run with it: exit code, output, files and their bytes."""
    out = [
        f"{name}: {getattr(plain, name)!r} plain, {getattr(observed, name)!r} observed"
        for name in ("code", "out", "err")
        if getattr(plain, name) != getattr(observed, name)
    ]
    for path in sorted(plain.files.keys() | observed.files.keys()):
        one, other = plain.files.get(path), observed.files.get(path)
        if one != other:
            what = "has other bytes" if one is not None and other is not None else "is left by one alone"
            out.append(f"{path} {what}")
    return out
