"""Format the changes between two runs as lines and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from analyzers.compare.diff import CHANGED, FAIL_ON, STATES, Diff, diff
from analyzers.compare.timings import times_of_run
from analyzers.evidence.runs import read_at, tables_to_analyse
from logparse.model import problem_from_text
from logparse.output import CHECK_FAILED, ROWS, Answer
from logparse.store.columns import column
from logparse.text import counted, duration

if TYPE_CHECKING:
    from analyzers.compare.upgrade import PlannedRow


def diff_lines(found: Diff) -> list[str]:
    counts = ", ".join(f"{found.count(state):,} {state}" for state in STATES if found.count(state))
    floor = f", {found.floor_us:g} µs" if found.floor_us else ""
    beyond = f"{counts} (beyond {found.fail_on:.1%}{floor} and noise)" if counts else "no problem in either run"
    out = [f"{found.a} → {found.b}: {beyond}"]
    if not found.compared:
        nothing = "no time was compared: no problem has one of the same kind in both runs"
        out.append(f"{nothing}, and a gate fails on that")
    if found.devices:
        out.append(f"the runs are of two devices ({' and '.join(found.devices)}): changes may be the devices' own")
    if found.builds:
        what = "an index may be another kernel there: measure old rows again (--overrides FILE lists them)"
        out.append(f"the runs are of two builds of {' and '.join(found.builds)}; {what}")
    flipped, picked, apart = found.flips
    if flipped:
        cost = "what that costs is unknown" if apart is None else f"the times differ there by {apart:.1%} in the median"
        rate = f"winner-flip rate {flipped / picked:.0%}"
        out.append(f"picks differ in {flipped:,} of {picked:,} problems ({rate}); {cost}")
    elif picked > found.several:
        same = counted(picked - found.several, "other problem" if found.several else "problem")
        out.append(f"picks are the same in all {same} that have one in both runs")
    if found.several:
        which = "which of them ran when is not compared, only the one that ran most often, or the fastest"
        out.append(f"of {counted(found.several, 'problem')} a run holds several solutions: {which}")
    known, delta_us = found.cost("slower", "faster")
    if known:
        word = "more" if delta_us > 0 else "less"
        out.append(f"slower and faster: in all {duration(abs(delta_us))} {word} per run where the calls are known")
    return [*out, *(_one_sided(found, state) for state in ("new", "vanished") if found.count(state))]


def _one_sided(found: Diff, state: Literal["new", "vanished"]) -> str:
    """Format ``new: 3 problems, 1.2 ms per run``, as far as their times and calls are known."""
    count, (known, cost) = found.count(state), found.cost(state)
    out = f"{state}: {counted(count, 'problem')}"
    if not known:
        return f"{out}, whose time per run is unknown"
    some = "" if known == count else f"{known:,} of them "
    rest = "" if known == count else "; the others' time or calls are unknown"
    return f"{out}, {some}{duration(abs(cost))} per run{rest}"


def diff_table(found: Diff, n: int | None = None) -> pa.Table:
    """Return the changes as a table, the most costly first.  ``n`` limits the number of rows.

    ``problem`` is the short name, ``text`` the key.  ``change`` is the ratio minus 1.
    """
    rows = found.table(CHANGED, n)
    texts, ratios = rows["problem"], rows["ratio"].to_pylist()
    made = {
        "problem": column([problem_from_text(text).label for text in texts.to_pylist()], pa.string()),
        "change": column([None if ratio is None else ratio - 1 for ratio in ratios], pa.float64()),
        "text": texts,
    }
    names = ["state", "problem", "a_us", "b_us", "change", "delta_us", "pick_a", "pick_b", "basis", "text"]
    return pa.Table.from_arrays([made[x] if x in made else rows[x] for x in names], names=names)


def diff_answer(found: Diff, plan: Sequence[PlannedRow], n: int | None) -> Answer:
    """Return the changes between two runs, and the upgrade plan with one row per row of the old files.

    A terminal shows ``n`` changes, or a few if ``n`` is None.  Other outputs contain ``n`` changes, or all.
    """
    brief = diff_table(found, n or ROWS).drop_columns(["text"])  # A terminal has no room for more.
    changes = column(["" if x is None else f"{x:+.1%}" for x in brief["change"].to_pylist()], pa.string())
    brief = brief.set_column(brief.column_names.index("change"), "change", changes)
    plans = [[{name: value for name, value in asdict(x).items() if name != "key"} for x in plan]] if plan else []
    text = [*([brief] if len(brief) else []), *diff_lines(found), *plans]
    return Answer(text, lambda: diff_table(found, n), "diff", code=0 if found.ok else CHECK_FAILED)


def compare(
    a: str,
    b: str,
    store: str | None = None,
    fail_on: float = FAIL_ON,
    overrides: Sequence[str] = (),
    floor_us: float = 0.0,
) -> tuple[Diff, list[PlannedRow]]:
    """Compare the run that ``a`` names with the run that ``b`` names, and plan the upgrade of old override files."""
    one = read_at(a, store, times_of_run)
    if not overrides:
        return diff(one, read_at(b, store, times_of_run), fail_on, floor_us), []
    # This import loads pandas, which a comparison of two runs does not need.
    from analyzers.compare.upgrade import upgrade_plan
    from analyzers.overrides.lint import lint

    two, tables = read_at(b, store, lambda held, run: (times_of_run(held, run), tables_to_analyse(held, run)))
    return diff(one, two, fail_on, floor_us), upgrade_plan([lint(path) for path in overrides], tables, fail_on)
