"""What the verb diff does: two words that name runs in, what changed out; it imports no pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analyzers.diff.diff import FAIL_ON, Diff, diff
from analyzers.diff.timings import times_of_run
from analyzers.times.runs import read_at, tables_to_upgrade

if TYPE_CHECKING:
    from analyzers.diff.upgrade import Step


def compare(
    a: str,
    b: str,
    store: str | None = None,
    fail_on: float = FAIL_ON,
    overrides: Sequence[str] = (),
    floor_us: float = 0.0,
) -> tuple[Diff, list[Step]]:
    """What changed from run ``a`` to run ``b``, and what that means for old override files."""
    one = read_at(a, store, times_of_run)
    if not overrides:
        return diff(one, read_at(b, store, times_of_run), fail_on, floor_us), []
    from analyzers.diff.upgrade import upgrade_plan
    from analyzers.overrides.lint import lint

    two, tables = read_at(b, store, lambda held, run: (times_of_run(held, run), tables_to_upgrade(held, run)))
    return diff(one, two, fail_on, floor_us), upgrade_plan([lint(path) for path in overrides], tables, fail_on)
