"""Runs the files named in ``LOGPARSE_WITH_TORCH`` once the job has executed torch, in the job's own process."""

from __future__ import annotations

import os
import sys
import traceback
import types
from typing import Any

from .when_executed import when_executed


def watch() -> None:
    """Wait for torch, if there is a file to run with it."""
    if os.environ.get("LOGPARSE_WITH_TORCH"):
        when_executed({"torch": run_files})


def run_files(torch: Any) -> None:
    """Run each file as a module named ``__logparse__``, which stands in ``sys.modules``.

    Dynamo imports the module of a function that it compiles, by its name.  An error is reported, and the job goes on.
    """
    for path in filter(None, os.environ.get("LOGPARSE_WITH_TORCH", "").split(os.pathsep)):
        try:
            _run(path)
        except Exception:
            _report(f"logparse: {path} failed, the job goes on without it\n{traceback.format_exc()}")


def _run(path: str) -> None:
    module = types.ModuleType("__logparse__")
    module.__file__ = path
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)


def _report(text: str) -> None:
    try:
        print(text, file=sys.stderr)
    except Exception:  # a closed standard error
        return
