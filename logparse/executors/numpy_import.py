"""The first import of NumPy in a process: the program's own, and those that it starts."""

from __future__ import annotations

import os
import sys


def import_numpy() -> None:
    """Import NumPy, which nearly every verb needs, so that the threads of its OpenBLAS sleep until they have work.

    There is one per core, and each waits busily for a tenth of a second once it is made: that costs a short command on
    two cores a fifth of its time.  OpenBLAS reads the setting when it is loaded; jobs that this process starts do not
    inherit it.
    """
    setting = "OPENBLAS_THREAD_TIMEOUT"  # 2 to its power in cycles, at least 4
    if "numpy" in sys.modules or setting in os.environ:
        return
    os.environ[setting] = "4"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[setting]
