"""``logparse run --with overrides -- COMMAND…``: a job with the recommended files and settings, else unchanged.

Every ``apply.sh`` below the folder is sourced in the shell that starts the job, and ``apply.settings()`` of the
``apply.py`` in it runs once the job has imported torch.  Changes of the program (``apply.model``) are not made.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from logparse.capture import job
from logparse.capture.in_job import __file__ as _in_job
from logparse.errors import InputError

FOLDER = Path(_in_job).parent
"""Stands first on the job's PYTHONPATH; see ``in_job/sitecustomize.py``."""
UNITS_FILE = FOLDER / "trace_units.py"
WITH_TORCH = "LOGPARSE_WITH_TORCH"


def run(command: Sequence[str], overrides: Path, environ: Mapping[str, str] = os.environ) -> job.Ended:
    """Run the job.  Raises InputError where the folder holds neither of the two files."""
    return job.run(*applied(command, overrides, environ))


def applied(command: Sequence[str], overrides: Path, environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command and the environment by which the job runs.  Raises InputError as ``run``."""
    scripts, module = sorted(overrides.absolute().glob("*/apply.sh")), overrides.absolute() / "apply.py"
    if not scripts and not module.is_file():
        raise InputError(f"--with {overrides}: no apply.sh below it and no apply.py in it (`logparse recommend`)")
    made = with_torch(environ, module) if module.is_file() else dict(environ)
    if not scripts:
        return list(command), made
    sourced = "".join(f". {shlex.quote(str(path))} || :; " for path in scripts)
    return ["sh", "-c", f'{sourced}exec "$@"', "sh", *command], made


def with_torch(environ: Mapping[str, str], *files: Path) -> dict[str, str]:
    """The environment in which a job runs these Python files right after it has imported torch."""
    listed = [*map(str, files), environ.get(WITH_TORCH, "")]
    paths = [str(FOLDER), environ.get("PYTHONPATH", "")]
    return {
        **environ,
        WITH_TORCH: os.pathsep.join(filter(None, listed)),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
