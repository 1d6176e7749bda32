"""Run the files named in ``LOGPARSE_WITH_TORCH`` in the job's own process, once the job has imported torch.

Every Python that the job starts runs this module and ``when_executed.py``, even without torch.
"""

# Every Python runs these two modules, so they import at their top only modules that Python has already loaded, and
# others only where they need them.

from __future__ import annotations

import os
import sys

from .when_executed import when_executed

TYPE_CHECKING = False  # ``typing`` takes longer to import than all the rest
if TYPE_CHECKING:
    from typing import Any


def watch() -> None:
    """Arrange that the files named in ``LOGPARSE_WITH_TORCH`` are run as soon as torch is imported.

    Nothing is done if the variable is empty or missing.
    """
    if os.environ.get("LOGPARSE_WITH_TORCH"):
        when_executed({"torch": run_files})


def run_files(torch: Any) -> None:
    """Run each file named in ``LOGPARSE_WITH_TORCH`` as a module named ``__logparse__``.

    If a file raises an error, the error is printed to standard error, and the job goes on.
    """
    # The module is added to ``sys.modules``, because Dynamo, when it compiles a function, imports the function's module
    # by its name.
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
