"""Runs the files named in ``LOGPARSE_WITH_TORCH`` right after the job has imported torch, in the job's own process.

Python imports a module of this name at its start; the folder of this file stands first in the job's ``PYTHONPATH``.  A
``sitecustomize`` of the job's own runs as well.  A file that fails is reported on standard error, and the job goes on.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from typing import Any


class Finder(importlib.abc.MetaPathFinder):
    """Calls a function with each of these modules, by name, once it is loaded."""

    def __init__(self, then: dict[str, Callable[[Any], None]]) -> None:
        self._then = then

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in self._then:
            return None
        then = self._then.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then calls the function."""

    def __init__(self, inner: Any, then: Callable[[Any], None]) -> None:
        self._inner, self._then = inner, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._inner.exec_module(module)
        self._then(module)


def _run_files(torch: Any) -> None:
    for path in filter(None, os.environ.get("LOGPARSE_WITH_TORCH", "").split(os.pathsep)):
        try:
            runpy.run_path(path, run_name="__logparse__")
        except Exception:
            print(f"logparse: {path} failed, the job goes on without it", file=sys.stderr)
            traceback.print_exc()


def _job_s_own() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, Finder({"torch": _run_files}))
_job_s_own()
