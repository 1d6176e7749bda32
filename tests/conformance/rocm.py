"""The unpacked ROCm libraries, and a Python in which ctypes finds them together with the virtual GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSIONS = {"libhipblaslt1": "7.2.4", "libmiopen1": "7.2.4", "librocblas5": "7.2.4"}
"""Debian's packages that these tests were written for, with the beginning of their versions."""


@dataclass(frozen=True)
class Rocm:
    """ROCm libraries that ``install.sh`` has unpacked into ``folder``.

    ``launcher`` is a program that starts this Python interpreter so that it loads these libraries.
    """

    folder: Path
    launcher: Path

    @classmethod
    def installed(cls, folder: Path, made: Path) -> Rocm:
        """Unpack and compile missing parts of the installation. Raises CalledProcessError if that fails."""
        subprocess.run([HERE / "install.sh", folder], check=True)
        return cls(folder.resolve(), _launcher(folder.resolve(), made))

    @property
    def libraries(self) -> Path:
        return self.folder / "root/usr/lib/x86_64-linux-gnu"

    def versions(self) -> dict[str, str]:
        """Return Debian's versions of the unpacked packages."""
        with open(self.folder / "versions", encoding="utf-8") as file:
            return dict(line.split() for line in file)

    def others(self) -> str:
        """Return the packages whose version differs from ``VERSIONS``, as text; "" if all versions are equal.

        They differ once Debian has newer packages.
        """
        found = self.versions()
        other = [name for name, version in VERSIONS.items() if not found.get(name, "").startswith(version)]
        return ", ".join(f"{name} {found.get(name, 'unknown')} instead of {VERSIONS[name]}" for name in other)

    def driver(self, name: str, environment: Mapping[str, str]) -> Driver:
        """Start a program of ``drivers/`` with these environment variables."""
        return Driver([str(self.launcher), str(HERE / "drivers" / f"{name}.py")], self.environment(environment))

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return this process's environment without the libraries' settings, plus ``more``."""
        prefixes = ("HIPBLASLT_", "ROCBLAS_", "MIOPEN_", "TENSILE_", "VGPU_")
        return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)} | dict(more)


class CrashError(Exception):
    """Raised if the library crashed the process that should answer."""


class Driver:
    """A process that reads questions and writes answers, each a JSON value on one line.

    Used as a context manager, it kills the process on exit.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, question: object) -> Any:
        """Ask a question and return the answer.

        Raises CrashError if the library ended the child process that should answer (``forked.py``). Raises RuntimeError
        if the whole process ends.
        """
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the driver ended with {self._process.wait()} at {str(question)[:200]}")
        answer = json.loads(line)
        if isinstance(answer, dict):
            raise CrashError(f"the library ended the process with {answer['ended']}")
        return answer


def _launcher(folder: Path, made: Path) -> Path:
    """Write a ``python3`` script that starts this interpreter with the libraries, and return its path.

    The script lies beside a link to this environment's packages. Python programs that it starts use the script, too.
    """
    libraries = folder / "root/usr/lib/x86_64-linux-gnu"
    script = made / "bin/python3"
    script.parent.mkdir(parents=True)
    prefix = Path(sys.prefix)
    if (prefix / "pyvenv.cfg").exists():
        (made / "pyvenv.cfg").write_bytes((prefix / "pyvenv.cfg").read_bytes())
    (made / "lib").symlink_to(prefix / "lib")
    loader = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, "--preload", folder / "virtual_gpu.so"]
    words = " ".join(map(str, [*loader, "--argv0", '"$0"', Path(sys.executable).resolve(), '"$@"']))
    script.write_text(f"#!/bin/sh\nexec {words}\n", encoding="utf-8")
    script.chmod(0o755)
    return script
