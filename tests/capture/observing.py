"""Runs a command plain and observed, each in a folder of its own, and compares what others see of it."""

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

ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
"""PyTorch's profiler prints lines of its own from 2.13 on (``USDT: … profiler_start``), but for this level."""


@dataclass(frozen=True)
class Behaviour:
    """Exit code as a shell states it, bytes of the outputs without lines of ours and times that a test framework
    prints, and the sizes of the files left.
    """

    code: int
    out: bytes
    err: bytes
    files: Mapping[str, int]
    ours: tuple[str, ...] = ()


def behaviour(
    command: Sequence[str], folder: Path, stdin: bytes = b"", environ: Mapping[str, str] = ENVIRON
) -> Behaviour:
    """What a command does in a new folder, in a process group of its own."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        command, cwd=folder, env=dict(environ), input=stdin, capture_output=True, start_new_session=True, check=False
    )
    lines = done.stderr.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith(BESIDE.encode())]
    return Behaviour(
        128 - done.returncode if done.returncode < 0 else done.returncode,
        done.stdout,
        re.sub(rb" in [\d.]+s\b", b" in TIME", b"".join(line for line in lines if line not in ours)),
        {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()},
        tuple(line.decode() for line in ours),
    )


def capturing(folder: Path, *options: str) -> list[str]:
    """The words of ``capture --trace 2`` before a job, whose logs and store stand outside of the job's folder."""
    places = ["--dir", str(folder / "logs"), "--store", str(folder / "store")]
    return [sys.executable, "-m", "logparse", "capture", "--trace", "2", *places, *options, "--"]


def both(
    command: Sequence[str], folder: Path, stdin: bytes = b"", environ: Mapping[str, str] = ENVIRON
) -> tuple[Behaviour, Behaviour]:
    """A command plain and under ``capture --trace 2``, in the same folder one after another."""
    plain = behaviour(command, folder / "here", stdin, environ)
    shutil.rmtree(folder / "here")
    return plain, behaviour([*capturing(folder), *command], folder / "here", stdin, environ)


def differences(plain: Behaviour, observed: Behaviour) -> list[str]:
    """What an observed command did otherwise; empty: nothing."""
    out = [
        f"{name}: {getattr(plain, name)!r} plain, {getattr(observed, name)!r} observed"
        for name in ("code", "out", "err")
        if getattr(plain, name) != getattr(observed, name)
    ]
    for path in sorted(plain.files.keys() | observed.files.keys()):
        one, other = plain.files.get(path), observed.files.get(path)
        if one != other:
            what = "has another size" if one is not None and other is not None else "is left by one alone"
            out.append(f"{path} {what}")
    return out
