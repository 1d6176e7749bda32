"""Write ``apply.sh``, a script that makes the jobs of a shell use the override files for one machine (the target).

The script sets and unsets the environment variables that the files need (the lines of each file's ``use`` that begin
with ``export`` or ``unset``). First it compares the machine with the target: architecture, CU count and library builds,
as far as a shell can read them. It reads these sources:

* ``rocminfo`` and ``nvidia-smi``;
* PyTorch: its version, its devices, and the validators of TunableOp (facts that it compares before it uses a file);
* the version headers of ROCm, unless there is a PyTorch, because PyTorch may bring libraries of its own.

If a fact differs from the target, the script exports nothing. The script is plain POSIX shell for sh, dash, bash and
zsh, also under ``set -eu``.

The facts and names to compare are in a quoted here-document, because a shell interprets nothing in such a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from logparse.libraries.builds import facts_of_build
from logparse.libraries.kinds.format import Emission, settings
from logparse.libraries.tunableop.results import FILE_NAME as TUNABLEOP
from logparse.model import Override
from logparse.quoting import (
    Shell,
    asset,
    fill_template,
    join_code,
    make_printable,
    shell_comment,
    shell_data,
    shell_word,
)
from logparse.target import Facts, arch

NAME = "apply.sh"
_TEMPLATE = Path(__file__).with_name("assets") / f"{NAME}.in"
_DEVICE = ("arch", "cu_count")


def guards(overrides: Iterable[Override], files: Sequence[Emission], target: Facts) -> dict[str, str]:
    """Return what must be true of a machine on which the override files are used: its GPU and its library versions."""
    tunable = any(file.name.startswith(TUNABLEOP) for file in files)
    libraries = {x.solution.library for x in overrides} - {"torch"} | ({"torch"} if tunable else set())
    # On another GPU or with another version, an entry of the files may select another kernel. Only libraries whose
    # kernels occur in the files are included.
    names = [*_DEVICE, *(name for library in sorted(libraries) for name in facts_of_build(library))]
    names += [name for name in sorted(target) if tunable and name.startswith("validator:")]
    out = {name: target[name] for name in dict.fromkeys(names) if target.get(name)}
    if "arch" in out:
        out["arch"] = arch(target) or out["arch"]
    return out


def script(
    overrides: Sequence[Override], files: Sequence[Emission], target: Facts, folder: str = ".", caution: str = ""
) -> Emission | None:
    """Return the shell script ``apply.sh``, which makes libraries use the recommended kernels. None if not needed.

    * ``files``: the override files (lists of kernels for a library) in ``folder``.
    * ``caution``: a warning about their entries, printed on standard error.
    """
    # The script sets environment variables.
    lines = [line for file in files for line in settings_of(file)]
    if not lines:
        return None
    wanted = guards(overrides, files, target)
    names = [file.name for file in files if settings_of(file)]
    facts = [f"{name} {value}" for name, value in wanted.items()]
    data = [*(("file", name) for name in dict.fromkeys(names)), *(("fact", fact) for fact in facts)]
    said = {"text": shell_word(make_printable(f"apply.sh: {caution}"))}
    values = {
        "target": shell_comment(", ".join(facts) or "not known"),
        "wanted": shell_data(data),
        "settings": join_code(Shell("\n"), dict.fromkeys(lines)),
        "mark": shell_word(json.dumps({"logparse_applied": 1, "variables": _variables(lines), "files": names})),
        "caution": fill_template(Shell("printf '%s\\n' @text@ >&2"), said) if caution else Shell(),
        "folder": shell_word(folder),
    }
    return Emission(NAME, fill_template(Shell(asset(_TEMPLATE)), values).data, _USE)


def _variables(lines: Iterable[str]) -> list[str]:
    """Return the names of the environment variables that shell lines export."""
    found = (re.match(r"\s*export\s+(\w+)", line) for line in lines)
    return [*dict.fromkeys(x[1] for x in found if x)]


_USE = Shell("# source this script in the shell that starts the job:\n. {path}\n")
_HERE = Shell('"$_logparse_folder"')


def settings_of(file: Emission) -> list[Shell]:
    """Return the shell lines that set the environment variables for an override file.

    The values contain the script's own folder, which the script finds out when it runs.
    """
    return settings(file.lines_at(_HERE, join_code(Shell("/"), [_HERE, shell_word(file.name)])))
