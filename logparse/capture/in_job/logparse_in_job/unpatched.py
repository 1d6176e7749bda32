"""Python's functions as they were when logparse started in the job.

A job may replace such a function later: a test patches ``time.monotonic`` or ``open`` with ``unittest.mock``, or stops
the clock with ``freezegun``. If logparse called the replacement, the job would count logparse's calls among its own.
"""

from __future__ import annotations

import json
import os
import time


class Python:
    """Functions of Python that the job cannot replace for logparse.

    They are attributes of a class, because ``freezegun`` replaces functions of the clock that it finds in modules.
    """

    monotonic = time.monotonic
    perf_counter = time.perf_counter
    sleep = time.sleep
    open = open
    replace = os.replace
    remove = os.remove
    makedirs = os.makedirs
    exists = os.path.exists
    getpid = os.getpid
    dumps = json.dumps
    loads = json.loads
