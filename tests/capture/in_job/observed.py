"""Runs of a program, plain and observed, and the one function that compares them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logparse.capture.with_overrides import FOLDER, UNITS_FILE

_OWN_LOG = re.compile(rb"^(USDT|STAGE):[^\n]*\n|^\[?W\d{4} [^\n]*\n", re.MULTILINE)
"""Lines of PyTorch's own log about a profiler of the job's, which hold the time and the process."""
_ADDRESS = re.compile(rb"0x[0-9a-f]{6,}")


@dataclass(frozen=True)
class Ran:
    """How a program ended, what it printed, and the files that it left, by name."""

    code: int | str
    stdout: bytes
    stderr: bytes
    files: dict[str, bytes]
    units: list[dict[str, Any]] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many units of each sort the process made."""
        return {x["logparse_units"]: sum(kind["count"] for kind in x["kinds"].values()) for x in self.units}

    @property
    def notes(self) -> list[str]:
        return [note for x in self.units for note in x.get("notes", [])]


def differences(plain: Ran, observed: Ran) -> list[str]:
    """What observing has changed: exit code, bytes of both outputs, files and their bytes."""
    out = [f"exit code {plain.code} -> {observed.code}"] if plain.code != observed.code else []
    for name in ("stdout", "stderr"):
        before, after = (_lasting(getattr(x, name)) for x in (plain, observed))
        if before != after:
            out.append(f"{name}: {before[-400:]!r} -> {after[-400:]!r}")
    if plain.files.keys() != observed.files.keys():
        out.append(f"files {sorted(plain.files)} -> {sorted(observed.files)}")
    return out + [f"bytes of {name}" for name in plain.files if observed.files.get(name) != plain.files[name]]


def _lasting(output: bytes) -> bytes:
    """Output without what differs from run to run."""
    return _ADDRESS.sub(b"0x", _OWN_LOG.sub(b"", output))


class Server:
    """A process that has imported torch, and runs programs in children of its own."""

    def __init__(self) -> None:
        program = str(Path(__file__).with_name("fork_server.py"))
        self._process = subprocess.Popen(
            [sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, program: Path, folder: Path, observed: bool, environ: dict[str, str]) -> Ran:
        """Run it in a folder of its own below ``folder``."""
        here = folder / ("observed" if observed else "plain")
        (here / "cwd").mkdir(parents=True)
        logs = here / "logs"
        logs.mkdir()
        ours = {
            "LOGPARSE_TRACE_DIR": str(logs),
            "LOGPARSE_TRACE_UNITS": "2",
            "LOGPARSE_WITH_TORCH": str(UNITS_FILE),
            **environ,
        }
        request = {
            "program": str(program),
            "folder": str(here),
            "observer": str(FOLDER) if observed else "",
            "environ": ours if observed else {},
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._answer())
        cwd = here / "cwd"
        files = {str(x.relative_to(cwd)): x.read_bytes() for x in sorted(cwd.rglob("*")) if x.is_file()}
        units = [json.loads(x.read_text()) for x in sorted(logs.glob("units_*.json"))] if logs.is_dir() else []
        traces = sorted(logs.glob("trace_*.json.gz"))
        return Ran(code, (here / "stdout").read_bytes(), (here / "stderr").read_bytes(), files, units, traces)

    def both(self, program: Path, folder: Path, **environ: str) -> tuple[Ran, Ran]:
        """A plain run and an observed one."""
        return self.run(program, folder, False, environ), self.run(program, folder, True, environ)

    def close(self) -> None:
        self._process.communicate()
