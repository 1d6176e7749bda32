"""Run a job with the recommended files and settings (``logparse run --with overrides -- COMMAND…``).

* Every script ``apply.sh`` below the folder ``overrides`` is run by the shell that starts the job. The script exports
  environment variables.
* ``apply.settings()`` in ``overrides/apply.py`` is called once the job has imported torch.
* Recommended changes of the model (``apply.model``) are not made: the user's program must call that function itself.

Scripts and settings report that they were applied, as files in the folder that the variable ``LOGPARSE_APPLIED`` names.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logparse.capture import applied as marks
from logparse.capture import job
from logparse.capture.in_job import __file__ as _in_job
from logparse.errors import InputError
from logparse.quoting import Shell, fill_template, join_code, shell_word

FOLDER = Path(_in_job).parent
"""Folder that comes first on the job's ``PYTHONPATH``. Its ``sitecustomize.py`` starts logparse's code in the job."""
UNITS_FILE = FOLDER / "trace_units.py"
WITH_TORCH = "LOGPARSE_WITH_TORCH"


@dataclass(frozen=True)
class Ran:
    """Result of a job that ran with recommended settings.

    * ``ended`` says how the job ended.
    * ``found`` says which settings its processes applied.
    * ``missing`` holds lines for the user about what was not applied or did not stay in force, with the reason.
    """

    ended: job.Ended
    found: marks.Applied
    missing: tuple[str, ...]

    @property
    def code(self) -> int:
        """The job's exit code. If the job succeeded but a setting was not applied, it is ``NOT_APPLIED`` (125).

        A setting that was not in force any more when the job ended counts as not applied.
        """
        return self.ended.code or (marks.NOT_APPLIED if self.missing else 0)

    @property
    def lines(self) -> list[str]:
        """Lines for the user that say what was applied and what was not, with the reasons."""
        if self.ended.not_run:
            return []
        nothing = [f"{x} changed nothing in the model" for x in self.found.unchanged]
        return [*([f"applied {self.found}"] if self.found else []), *nothing, *self.found.notes, *self.missing]


def run(command: Sequence[str], overrides: Path, environ: Mapping[str, str] = os.environ) -> Ran:
    """Run the user's job with the recommended settings in the folder ``overrides``.

    Returns what was applied and how the job ended. Raises InputError if the folder holds no ``apply.sh`` and no
    ``apply.py`` that works by itself.
    """
    asked = marks.asked_of(overrides)
    words, made = applied(command, overrides, environ)
    if asked.settings == () and not asked.scripts:
        # The folder's ``apply.py`` does nothing unless the user's program calls it, and there is no ``apply.sh``.
        raise InputError(
            f"--with {overrides}: apply.py does nothing unless the program calls it. Add these lines to the "
            "program: `import apply; apply.settings(); model = apply.model(model)`"
        )
    with _marks_folder(environ) as folder:
        asked.write(folder)
        ended = job.run(words, {**made, marks.VARIABLE: str(folder)})
        found = marks.read_marks(folder)
    return Ran(ended, found, tuple(marks.missing(asked, found, command)))


@contextlib.contextmanager
def _marks_folder(environ: Mapping[str, str]) -> Iterator[Path]:
    """Context that yields a folder in which the job reports which settings it has applied. Usually it is temporary."""
    around = environ.get(marks.VARIABLE)
    if around and os.path.isdir(around):
        # A ``logparse capture`` runs around this command. The folder is inside that command's folder, so that it reads
        # the reports, too.
        yield Path(tempfile.mkdtemp(prefix="run-", dir=around))
        return
    with tempfile.TemporaryDirectory(prefix="logparse-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def applied(command: Sequence[str], overrides: Path, environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return a command and environment variables that run the user's job with the recommended settings.

    Raises InputError if the folder ``overrides`` holds neither ``apply.sh`` nor ``apply.py``.
    """
    scripts, module = marks.scripts_of(overrides), overrides.absolute() / "apply.py"
    if not scripts and not module.is_file():
        raise InputError(
            f"--with {overrides}: holds neither apply.py nor a folder with apply.sh; name the folder that "
            "`logparse recommend` wrote"
        )
    made = with_torch(environ, module) if module.is_file() else dict(environ)
    if not scripts:
        return list(command), made
    sourced = [fill_template(Shell(". @path@ || :; "), {"path": shell_word(path)}) for path in scripts]
    return ["sh", "-c", join_code(Shell(), [*sourced, Shell('exec "$@"')]), "sh", *command], made


def with_torch(environ: Mapping[str, str], *files: Path) -> dict[str, str]:
    """Return environment variables with which a job runs the Python files ``files`` after it has imported torch."""
    listed = [*map(str, files), environ.get(WITH_TORCH, "")]
    paths = [str(FOLDER), environ.get("PYTHONPATH", "")]
    return {
        **environ,
        WITH_TORCH: os.pathsep.join(filter(None, listed)),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
