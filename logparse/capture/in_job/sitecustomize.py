"""Start logparse's code inside a job, and then the job's own ``sitecustomize``.

Python imports a module of this name when it starts.  The folder of this file is the first in the job's ``PYTHONPATH``.
Every Python version that the job starts reads this file, even Python 2.  So the file uses only syntax that all versions
know, without annotations and functions.  In a Python older than 3.8 it runs only the job's own ``sitecustomize``.
"""

import os
import sys

_run_files = None
if sys.version_info >= (3, 8):  # noqa: UP036
    try:
        from logparse_in_job import start  # type: ignore[import-not-found]

        _run_files = start.run_files
        start.watch()
    except Exception:  # the job must run even if its observation fails
        pass

_here = os.path.dirname(os.path.abspath(__file__))
_ours = [path for path in sys.path if os.path.abspath(path or ".") == _here]
_at = sys.path.index(_ours[0]) if _ours else 0
_this = sys.modules.pop("sitecustomize", None)
for _path in _ours:
    sys.path.remove(_path)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # the job's own module replaces this one
except ImportError:
    if not str(sys.exc_info()[1]).endswith(("sitecustomize", "'sitecustomize'")):
        raise
    if _this is not None:
        sys.modules["sitecustomize"] = _this
finally:
    sys.path[_at:_at] = _ours
