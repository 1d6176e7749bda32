"""What changed between two runs as lines, a table, markdown for a pull request and JUnit XML for CI."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree

import pyarrow as pa

from analyzers.diff.diff import CHANGED, CHANGES, STATES, Diff
from logparse.model import problem_from_text
from logparse.output import CHECK_FAILED, ROWS, Answer
from logparse.store.columns import column
from logparse.text import counted, duration

if TYPE_CHECKING:
    import pandas as pd

    from analyzers.diff.upgrade import Step

_NO_XML = {i: f"\\x{i:02x}" for i in range(32) if i not in (9, 10, 13)}
_UNCOMPARED = "no time was compared: no problem has one of the same kind in both runs"


def diff_lines(found: Diff) -> list[str]:
    counts = ", ".join(f"{found.count(state):,} {state}" for state in STATES if found.count(state))
    floor = f", {found.floor_us:g} µs" if found.floor_us else ""
    beyond = f"{counts} (beyond {found.fail_on:.1%}{floor} and noise)" if counts else "no problem in either run"
    out = [f"{found.a} → {found.b}: {beyond}"]
    if not found.compared:
        out.append(f"{_UNCOMPARED}, and a gate fails on that")
    if found.devices:
        out.append(f"the runs are of two devices ({' and '.join(found.devices)}): changes may be the devices' own")
    known, delta_us = found.cost("slower", "faster")
    if known:
        word = "more" if delta_us > 0 else "less"
        out.append(f"slower and faster: in all {duration(abs(delta_us))} {word} per run where the calls are known")
    return [*out, *(_one_sided(found, state) for state in ("new", "vanished") if found.count(state))]


def _one_sided(found: Diff, state: Literal["new", "vanished"]) -> str:
    """``new: 3 problems, 1.2 ms per run``: as far as their times and calls are known."""
    count, (known, cost) = found.count(state), found.cost(state)
    out = f"{state}: {counted(count, 'problem')}"
    if not known:
        return f"{out}, whose time per run is unknown"
    some = "" if known == count else f"{known:,} of them "
    rest = "" if known == count else "; the others' time or calls are unknown"
    return f"{out}, {some}{duration(abs(cost))} per run{rest}"


def diff_table(found: Diff, n: int | None = None) -> pa.Table:
    """The changes, all or the first ``n``, what costs most first; ``problem`` is the short name, ``text`` the key and
    ``change`` the ratio minus 1.
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


def _brief(table: pa.Table) -> pa.Table:
    """The table as a terminal has room for."""
    changes = column([_percent(x) for x in table["change"].to_pylist()], pa.string())
    return table.set_column(table.column_names.index("change"), "change", changes).drop_columns(["text"])


def _percent(change: float | None) -> str:
    return "" if change is None else f"{change:+.1%}"


def diff_markdown(found: Diff, n: int = 50) -> str:
    """A section for a pull request: verdict and one table of the first ``n`` changes."""
    verdict = f"none of {found.compared:,} compared problems got slower" if found.compared else "no time was compared"
    slower = found.count("slower")
    verdict = f"**{slower:,} problem{'s' * (slower != 1)} got slower**" if slower else verdict
    lines = [f"### {_cell(found.a)} → {_cell(found.b)}: {verdict}", "", *diff_lines(found), ""]
    rows = diff_table(found, n).to_pylist()
    if rows:
        lines += ["| | problem | A µs | B µs | change | picks |", "|---|---|--:|--:|--:|---|"]
    for row in rows:
        times = ["" if row[name] is None else f"{row[name]:.4g}" for name in ("a_us", "b_us")]
        picks = [row[name] for name in ("pick_a", "pick_b") if row[name] is not None]
        named = " → ".join(f"`{_cell(pick)}`" for pick in picks) if len(set(picks)) > 1 else ""
        cells = [row["state"], _cell(row["problem"]), *times, _percent(row["change"]), named]
        lines.append(f"| {' | '.join(cells)} |")
    left = found.count(*CHANGES) - len(rows)
    return "\n".join([*lines, *([f"\n… and {left:,} more"] if left > 0 else [])]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


def diff_junit(found: Diff, every: bool = False) -> str:
    """JUnit XML: a failure per problem that got slower, or one where no time was compared; with ``every`` a case per
    problem, skipped where nothing can be compared.

    The elements and attributes are those that CI servers read, not all that Ant's strict schema asks for (no timestamp,
    host name or output); ``time`` is of one call of run B, in seconds (0 where it is not known).
    """
    rows = found.table("true" if every else "state = 'slower'").to_pylist()
    seconds = [(row["b_us"] or 0.0) / 1e6 for row in rows]
    suite = ElementTree.Element(
        "testsuite",
        name="logparse diff",
        tests=str(len(rows) + (not found.compared)),
        failures=str(found.count("slower") + (not found.compared)),
        errors="0",
        skipped=str(found.count("unknown", "new", "vanished") if every else 0),
        time=f"{math.fsum(seconds):.9f}",
    )
    for row, time in zip(rows, seconds, strict=True):
        name = _text(row["problem"])
        case = ElementTree.SubElement(suite, "testcase", classname="logparse.diff", name=name, time=f"{time:.9f}")
        if row["state"] == "slower":
            times = f"{row['a_us']:.4g} µs → {row['b_us']:.4g} µs ({_percent(row['ratio'] - 1)})"
            message = f"{times}, {row['pick_a']} → {row['pick_b']}"
            ElementTree.SubElement(case, "failure", type="slower", message=_text(message))
        elif row["state"] in ("unknown", "new", "vanished"):
            ElementTree.SubElement(case, "skipped", message=row["state"])
    if not found.compared:
        name = _text(f"{found.a} → {found.b}")
        case = ElementTree.SubElement(suite, "testcase", classname="logparse.diff", name=name, time="0.000000000")
        ElementTree.SubElement(case, "failure", type="uncompared", message=_UNCOMPARED)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _text(value: str) -> str:
    """Characters that XML cannot hold made visible."""
    return value.translate(_NO_XML)


def plan_frame(steps: Sequence[Step]) -> pd.DataFrame:
    """The upgrade plan: one row per row of the old files."""
    import pandas as pd

    return pd.DataFrame([asdict(x) for x in steps], columns=["file", "line", "key", "solution", "action", "reason"])


def write_diff(found: Diff, markdown: Path | None, junit: Path | None, every: bool) -> None:
    """Write the section for a pull request and the JUnit XML (with ``every`` a case per problem), where asked for."""
    if markdown:
        markdown.write_text(diff_markdown(found), encoding="utf-8")
    if junit:
        junit.write_text(diff_junit(found, every), encoding="utf-8")


def diff_answer(found: Diff, plan: Sequence[Step], n: int | None) -> Answer:
    """What changed between two runs: on a terminal ``n`` changes of it or a few, else ``n`` or all."""
    brief = _brief(diff_table(found, n or ROWS))
    plans = [plan_frame(plan).drop(columns="key")] if plan else []
    text = [*([brief] if len(brief) else []), *diff_lines(found), *plans]
    return Answer(text, lambda: diff_table(found, n), "diff", code=0 if found.ok else CHECK_FAILED)
