"""Python's functions as they were when logparse started in the job.

A job may replace such a function later: a test patches ``time.monotonic`` or ``open`` with ``unittest.mock``. If
logparse called the replacement, the job would count logparse's calls among its own. A clock of ``freezegun`` that ticks
with each reading (``auto_tick_seconds``) ticks all the same while logparse traces: 16 times in one job, four times in
each of four windows. PyTorch's own profiler reads ``perf_counter_ns`` when it starts (``torch/autograd/profiler.py``).
"""

from __future__ import annotations

import json
import os
import time


class Python:
    """Functions of Python that the job cannot replace for logparse, because no module has them as attributes."""

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
