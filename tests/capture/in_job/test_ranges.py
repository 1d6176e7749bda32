"""Test of how logparse's code in a job finds the ranges that the job has opened with ``record_function``.

The test runs in a process of its own, because importing torch takes two seconds and tests need no torch otherwise.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.capture.in_job.observed import Server

pytest.importorskip("torch")

PROGRAM = """
    import sys
    import threading
    import torch
    from logparse_in_job import ranges

    kind = torch.autograd.profiler.record_function
    mine = [kind(name) for name in ("open before", "open", "ended", "not begun")]
    mine[0].__enter__()
    found = ranges.OpenRanges()
    for each in mine[1:3]:
        each.__enter__()
    mine[2].__exit__(None, None, None)
    records = [each.record for each in mine]
    found.end()
    assert [each.record is record for each, record in zip(mine, records)] == [True, False, False, True]
    assert not ranges._kept
    for each in mine[:2]:
        each.__exit__(None, None, None)

    ends, may_end, code = threading.Event(), threading.Event(), kind.__exit__.__code__
    kind.__exit__.__code__ = (lambda self, kind, value, trace: waits()).__code__

    def waits():
        ends.set()
        may_end.wait()

    vars(torch.autograd.profiler)["waits"] = waits
    found, other = ranges.OpenRanges(), kind("of another thread")
    other.__enter__()
    record = other.record
    thread = threading.Thread(target=other.__exit__, args=(None, None, None))
    thread.start()
    ends.wait()
    found.end()
    assert other.record is not record
    assert ranges._kept == [record], "the thread ends it"
    may_end.set()
    thread.join()
    kind.__exit__.__code__ = code

    tuple_of_another_thread, seen = tuple([object() for _ in range(3)]), []

    class Range:
        @property
        def record(self):
            seen.append(sys.getrefcount(tuple_of_another_thread))

    torch.autograd.profiler.record_function, one = Range, Range()
    before = sys.getrefcount(tuple_of_another_thread)
    ranges.OpenRanges()
    assert seen == [before], (seen, before)
"""


def test_no_unfinished_tuple_is_referred_to(job_server: Server, tmp_path: Path) -> None:
    """logparse does not disturb a thread of the job that is building a tuple."""
    # logparse searches the job's memory for ranges that the program has marked. If it held a reference to a tuple that
    # is still being built, tuple(generator) in the other thread would raise SystemError.
    assert job_server.output_of(textwrap.dedent(PROGRAM), tmp_path, {}) == ("", "")
