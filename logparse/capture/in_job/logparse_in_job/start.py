"""Run the files named in ``LOGPARSE_WITH_TORCH`` in the job's own process, once the job has executed torch.

Every Python that the job starts runs this module and ``when_executed.py``, even if it does not use torch.  So at the
start these modules import only modules that Python has already loaded.  They import other modules where they need them.
"""

from __future__ import annotations

import os
import sys

from .when_executed import when_executed

TYPE_CHECKING = False  # ``typing`` takes longer to import than all the rest
if TYPE_CHECKING:
    from typing import Any


def watch() -> None:
    """Wait for torch, if there is a file to run with it."""
    if os.environ.get("LOGPARSE_WITH_TORCH"):
        when_executed({"torch": run_files})


def run_files(torch: Any) -> None:
    """Run each file as a module named ``__logparse__``, which is added to ``sys.modules``.

    The module must be in ``sys.modules``, because Dynamo imports the module of a function that it compiles by its name.
    If a file raises an error, the error is reported, and the job goes on.
    """
    for path in filter(None, os.environ.get("LOGPARSE_WITH_TORCH", "").split(os.pathsep)):
        try:
            _run(path)
        except Exception:
            import traceback

            _report(f"logparse: {path} failed, and the job continues without it\n{traceback.format_exc()}")


def _run(path: str) -> None:
    module = type(sys)("__logparse__")
    module.__file__ = path
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)


def _report(text: str) -> None:
    try:
        print(text, file=sys.stderr)
    except Exception:  # standard error is closed
        return
