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
    import torch
    from logparse_in_job import ranges

    kind = torch.autograd.profiler.record_function
    mine = [kind(name) for name in ("open", "ended", "not begun")]
    for each in mine[:2]:
        each.__enter__()
    mine[1].__exit__(None, None, None)
    assert id(mine[0]) in ranges.open_ranges()
    assert id(mine[2]) not in ranges.open_ranges()
    record = mine[0].record
    ranges.cut_off(ranges.open_ranges())
    assert mine[0].record is record, "it began before"
    ranges.cut_off(set())
    assert mine[0].record is not record

    tuple_of_another_thread, seen = tuple([object() for _ in range(3)]), []

    class Range:
        @property
        def record(self):
            seen.append(sys.getrefcount(tuple_of_another_thread))

    torch.autograd.profiler.record_function, one = Range, Range()
    before = sys.getrefcount(tuple_of_another_thread)
    ranges.open_ranges()
    assert seen == [before], (seen, before)
"""


def test_no_unfinished_tuple_is_referred_to(job_server: Server, tmp_path: Path) -> None:
    """logparse does not disturb a thread of the job that is building a tuple."""
    # logparse searches the job's memory for ranges that the program has marked. If it held a reference to a tuple that
    # is still being built, tuple(generator) in the other thread would raise SystemError.
    assert job_server.output_of(textwrap.dedent(PROGRAM), tmp_path, {}) == ("", "")
