"""Call a function as soon as a module, such as torch, has been imported.

It does not matter which part of the program imports the module. If the program only checks whether the module exists,
nothing is called.
"""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False  # ``start.py`` says why
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any, Callable, Dict, Optional, Set


class Finder:
    """An entry of ``sys.meta_path`` that calls a function as soon as a certain module has been imported.

    ``then`` maps the name of a module to the function, which gets the module.
    """

    def __init__(self, then: Dict[str, Callable[[Any], None]]) -> None:
        self._then = then
        self._searching: Set[int] = set()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        thread = get_ident()
        if fullname not in self._then or thread in self._searching:
            return None
        self._searching.add(thread)
        try:
            spec = self._found_by_others(fullname, path, target)
        finally:
            self._searching.discard(thread)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            # The other entries find the module as usual. For this one import, ``exec_module`` of its loader is
            # replaced. The loader keeps its type.
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
            from .importlib_bootstrap_frames import without_our_frame

            loader.exec_module = without_our_frame(executed)
        except (AttributeError, ImportError):  # a loader with slots, or one written in C; or our folder is gone
            return


def when_executed(then: Dict[str, Callable[[Any], None]]) -> None:
    """Call a function for each of some modules, once that module has been imported (at once if it already is).

    ``then`` maps a module's name to the function, which gets the module.
    """
    waiting = dict(then)
    for name in then:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            waiting.pop(name)(module)
    if waiting:
        sys.meta_path.insert(0, Finder(waiting))
