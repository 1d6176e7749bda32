"""Call a function as soon as the job's script has defined a certain function or class.

``--unit __main__:step`` names a function of the script itself. Often the script imports torch, and so starts logparse,
before it defines this function.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Optional


def is_script(module: str) -> bool:
    """Return True if this name is a name of the running script: ``__main__``, ``train`` for ``python train.py``.

    For ``python -m package.train``, ``package.train`` is also one.
    """
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    by_file = os.path.splitext(os.path.basename(file))[0] if spec is None and isinstance(file, str) else None
    return module in ("__main__", getattr(spec, "name", None), by_file)


def when_defined(name: str, then: Callable[[], None]) -> str:
    """Call ``then`` once the script has the attribute ``name``, at the latest before its next line runs.

    Returns a reason if this cannot be noticed: no line of the script defines the name, or a debugger traces its lines.
    """
    main = sys.modules["__main__"]
    if name in vars(main):
        then()
        return ""
    frame: Any = sys._getframe(1)
    while frame is not None and not (frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    if frame is None or name not in frame.f_code.co_names:
        return f"the script defines no {name}"
    if sys.gettrace() is not None:
        return f"a debugger or a coverage tool runs, so the definition of {name} cannot be awaited"

    # Python reports lines only of frames with a trace function of their own, while the thread has one, too.
    def no_lines(frame: Any, event: str, value: Any) -> None: ...

    def line(frame: Any, event: str, value: Any) -> Optional[Callable[..., Any]]:
        if name not in frame.f_globals and event != "return":
            return line
        if sys.gettrace() is no_lines:
            sys.settrace(None)
        if name in frame.f_globals:
            then()
        return None

    frame.f_trace = line
    sys.settrace(no_lines)
    return ""
