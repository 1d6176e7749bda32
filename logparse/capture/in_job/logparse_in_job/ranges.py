"""End open ranges of ``torch.profiler.record_function`` in logparse's trace before the profiler stops.

* If another profiler is on when such a range ends later, PyTorch writes to memory that was freed.
* If two ranges of one thread are open within a step when the profiler stops, PyTorch prints a warning. Usually one of
  them is ``Optimizer.step#…``, and the job has begun the other one: ``with record_function("update"):
  optimizer.step()``.
"""

# An open range holds the memory address of a record of the profiler that was on when the range began.

from __future__ import annotations

import gc
import sys
import threading
from typing import Any, List

import torch

_kept: List[Any] = []
"""Records that were taken from ``record_function`` ranges and could not be ended.

They are kept here, because PyTorch would end a record once its handle is freed.
"""


class OpenRanges:
    """Ends those ranges of the job in a trace that began within the window and are still open when it ends.

    It is made before the profiler starts.
    """

    def __init__(self) -> None:
        # An id alone would not do: a later range may get the id of one that the job has dropped.
        self._before = {id(each): each.record for each in _ranges()}
        # No profiler is on, so no profiler knows this record.
        with torch._C.DisableTorchFunction():
            self._unknown = torch.ops.profiler._record_function_enter_new("", None)

    def end(self) -> None:
        """End the open ranges for the profiler, which is about to stop.

        The job notices no difference: it ends each range later, with a record that no profiler knows.
        """
        began = [each for each in _ranges() if each.record is not self._before.get(id(each))]
        found = [each for each in began if each.run_callbacks_on_exit]
        ended = []
        for each in found:
            ended.append(each.record)
            each.record = self._unknown
        # A thread that ends a range at this moment may have taken its record before the exchange.
        if _another_thread_ends_one():
            _kept.extend(ended)
            return
        with torch._C.DisableTorchFunction():
            for record in ended:
                torch.ops.profiler._record_function_exit._RecordFunction(record)


def _another_thread_ends_one() -> bool:
    code, frames = torch.autograd.profiler.record_function.__exit__.__code__, sys._current_frames()
    del frames[threading.get_ident()]  # A reference to the frame of this call would be garbage for the job's collector
    while frames:
        inner: Any = frames.popitem()[1]
        while inner is not None:
            if inner.f_code is code:
                return True
            inner = inner.f_back
    return False


def _ranges() -> List[Any]:
    """Return all ``torch.profiler.record_function`` objects of this process that were begun (``with`` was entered).

    A range that has ended may be included, if an object still refers to it.
    """
    # Only objects that refer to the class are searched. A list of all objects would contain tuples that other threads
    # are still building. If another object refers to such a tuple, Python cannot finish the tuple, and raises
    # SystemError in the job's code.
    kind = torch.autograd.profiler.record_function
    found = gc.get_referrers(kind) if sys.version_info >= (3, 9) else gc.get_objects()  # 3.8: objects name no class
    return [each for each in found if type(each) is kind and each.record is not None]
