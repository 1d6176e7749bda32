"""Calls a function once a module has been executed, whoever imports it and however often it is looked up before."""

from __future__ import annotations

import importlib.abc
import sys
import threading
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Dict, Optional

from .importlib_bootstrap_frames import without_our_frame


class Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself.  It lets the other finders find, and replaces ``exec_module`` of the loader that they give.

    The replacement stands on the loader object alone and leaves with its first use, so the loader keeps its type.
    ``then`` maps the name of a module to the function that gets the module.
    """

    def __init__(self, then: Dict[str, Callable[[Any], None]]) -> None:
        self._then = then
        self._searching = threading.local()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if fullname not in self._then or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = self._found_by_others(fullname, path, target)
        finally:
            self._searching.now = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._replace(spec.loader, fullname)
        return spec

    def _found_by_others(self, fullname: str, path: Any, target: Any) -> Optional[ModuleSpec]:
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec: Optional[ModuleSpec] = find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _replace(self, loader: Any, fullname: str) -> None:
        original = loader.exec_module

        def executed(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            original(module)
            then = self._then.pop(fullname, None)
            if not self._then and self in sys.meta_path:
                sys.meta_path.remove(self)
            if then is not None:
                then(module)

        try:
            loader.exec_module = without_our_frame(executed)
        except AttributeError:  # a loader with slots, or one written in C
            return


def when_executed(then: Dict[str, Callable[[Any], None]]) -> None:
    """Call ``then[name](module)`` for modules that are there already, and for the others once they are executed."""
    waiting = dict(then)
    for name in then:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            waiting.pop(name)(module)
    if waiting:
        sys.meta_path.insert(0, Finder(waiting))
