"""Use real ROCm libraries without a GPU: the libraries come from Debian packages, and the GPU is a virtual one.

A script starts a Python that loads both.
"""

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
"""The versions of Debian's packages for which these tests were written: {package: beginning of the version}."""


@dataclass(frozen=True)
class Rocm:
    """The real ROCm libraries, which ``install.sh`` has unpacked into ``folder``.

    ``launcher`` is a program that starts this Python interpreter so that it loads these libraries.
    """

    folder: Path
    launcher: Path

    @classmethod
    def installed(cls, folder: Path, made: Path) -> Rocm:
        """Unpack and compile the ROCm libraries, unless this has been done. Raises CalledProcessError if it fails."""
        subprocess.run([HERE / "install.sh", folder], check=True)
        return cls(folder.resolve(), _launcher(folder.resolve(), made))

    @property
    def libraries(self) -> Path:
        return self.folder / "root/usr/lib/x86_64-linux-gnu"

    def versions(self) -> dict[str, str]:
        """Return the versions of the unpacked Debian packages: {package: version}."""
        with open(self.folder / "versions", encoding="utf-8") as file:
            return dict(line.split() for line in file)

    def others(self) -> str:
        """Return which packages have another version than the tests were written for, as text. Returns "" if none has.

        This happens when Debian gets newer packages.
        """
        found = self.versions()
        other = [name for name, version in VERSIONS.items() if not found.get(name, "").startswith(version)]
        return ", ".join(f"{name} {found.get(name, 'unknown')} instead of {VERSIONS[name]}" for name in other)

    def driver(self, name: str, environment: Mapping[str, str]) -> Driver:
        """Start a program of the folder ``drivers`` with the ROCm libraries and these environment variables."""
        return Driver([str(self.launcher), str(HERE / "drivers" / f"{name}.py")], self.environment(environment))

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return this process's environment with the variables in ``more``, but without settings of the libraries."""
        prefixes = ("HIPBLASLT_", "ROCBLAS_", "MIOPEN_", "TENSILE_", "VGPU_")
        return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)} | dict(more)


class CrashError(Exception):
    """Raised if a GPU library crashed the child process in which a test had called it."""


class Driver:
    """A process that calls the real library. It reads questions and writes answers, each as a JSON value on one line.

    As a context manager, it kills the process at the end.
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
        """Send a question to the process and return its answer.

        Raises CrashError if the library crashed the child process that should answer (see ``forked.py``). Raises
        RuntimeError if the process itself ended.
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
    """Write a script ``python3`` that starts Python with the unpacked ROCm libraries. Returns the script's path.

    Beside the script is a link to this environment's packages, so that Python programs which the script starts use
    them, too.
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
