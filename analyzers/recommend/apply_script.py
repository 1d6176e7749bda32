"""``apply.sh``: one script that makes a shell's jobs use a target's override files, after it has looked at the machine.

It exports what each file's own ``use`` contains (lines that begin with ``export`` or ``unset``).  Before, it reads
the machine's arch, CU count and library builds as far as a shell can: ``rocminfo``, ``nvidia-smi``, PyTorch itself (its
version, its devices, TunableOp's validators), and the version headers of ROCm where there is no PyTorch that would
bring libraries of its own.  Where one of them differs from the files' target nothing is exported.  It is plain POSIX
shell for sh, dash and bash, also under ``set -eu``.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from logparse.formats.format import Emission
from logparse.formats.tunableop.results import FILE_NAME as TUNABLEOP
from logparse.model import Override
from logparse.target import BUILD, Facts, arch
from logparse.text import filled

NAME = "apply.sh"
_TEMPLATE = Path(__file__).with_name("assets") / NAME
_DEVICE = ("arch", "cu_count")


def guards(overrides: Iterable[Override], files: Sequence[Emission], target: Facts) -> dict[str, str]:
    """The facts that must hold where the files are used: the device, and the builds that give their rows a meaning."""
    tunable = any(file.name.startswith(TUNABLEOP) for file in files)
    libraries = {x.solution.library for x in overrides} - {"torch"} | ({"torch"} if tunable else set())
    names = [*_DEVICE, *(name for library in sorted(libraries) for name in BUILD.get(library, ()))]
    names += [name for name in sorted(target) if tunable and name.startswith("validator:")]
    out = {name: target[name] for name in dict.fromkeys(names) if target.get(name)}
    if "arch" in out:
        out["arch"] = arch(target) or out["arch"]
    return out


def script(
    overrides: Sequence[Override], files: Sequence[Emission], target: Facts, folder: str = ".", caution: str = ""
) -> Emission | None:
    """The script for these files, which lie in ``folder``; None where there is nothing to export.

    ``caution`` is a warning about the rows to whoever sources the script; it is printed on standard error too.
    """
    settings = [line for file in files for line in settings_of(file)]
    if not settings:
        return None
    wanted = guards(overrides, files, target)
    names = [file.name for file in files if settings_of(file)]
    values = {
        "target": ", ".join(f"{name} {value}" for name, value in wanted.items()) or "not known",
        "files": " ".join(map(shlex.quote, dict.fromkeys(names))),
        "checks": "\n    ".join(f"guard {shlex.quote(name)} {shlex.quote(value)}" for name, value in wanted.items()),
        "settings": "\n".join(dict.fromkeys(settings)),
        "mark": shlex.quote(json.dumps({"logparse_applied": 1, "variables": _variables(settings), "files": names})),
        "caution": f"echo {shlex.quote(f'apply.sh: {caution}')} >&2" if caution else "",
        "folder": shlex.quote(folder),
    }
    return Emission(
        NAME,
        filled(_TEMPLATE.read_text(encoding="utf-8"), values).encode(),
        "source it in the shell that starts the job:  . {path}",
    )


def _variables(settings: Iterable[str]) -> list[str]:
    """The variables that the settings export."""
    found = (re.match(r"\s*export\s+(\w+)", line) for line in settings)
    return [*dict.fromkeys(x[1] for x in found if x)]


def settings_of(file: Emission) -> list[str]:
    """The settings that the file's ``use`` requires, with the folder as the script finds it."""
    here = '"$_logparse_folder"'
    placed = file.use.replace("{folder}", here).replace("{path}", f"{here}/{shlex.quote(file.name)}")
    return replace(file, use=placed).settings
