"""Proof as lines, tables, markdown for a pull request and JUnit XML for CI.  Nothing is computed that is not shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby, islice
from pathlib import Path
from textwrap import shorten
from typing import Literal
from xml.etree import ElementTree

import pandas as pd

from analyzers.analyzer import Tables
from analyzers.evidence.double_counts import remarks_on
from analyzers.overrides.render import unread_lines
from analyzers.overrides.verbs import Unread
from analyzers.proof.coverage import Coverage
from analyzers.proof.diff import STATES, Diff, Step
from analyzers.proof.verify import Verification
from analyzers.proof.verify_actions import ActionProof
from logparse.model import problem_from_text
from logparse.output import CHECK_FAILED, ROWS, Answer
from logparse.text import counted, duration

_SHOWN, _WIDE = 8, 60
_NO_XML = {i: f"\\x{i:02x}" for i in range(32) if i not in (9, 10, 13)}


# ----------------------------------------------------------------------------------------------------------- coverage


def coverage_lines(found: Coverage) -> list[str]:
    """``covers 83 % of calls, 91 % of GEMM time; 12 rows can never hit, because …``."""
    if not found.format.kinds:
        return [*_of_look_ups(found), *_idle_lines(found)]
    what = "convolution" if found.format.convolutions else "GEMM"
    calls, time = found.share("calls"), found.share("time_us")
    parts = ["an unknown share of calls (no log counts them)" if calls is None else f"{calls:.1%} of calls"]
    parts.append(f"{what} time: unknown" if time is None else f"{time:.1%} of the known {what} time")
    unknown = found.share("calls", "unknown")
    if unknown:
        parts.append(f"a further {unknown:.1%} of calls are unknown")
    hits = sum(use.state == "hit" for use in found.uses)
    out = [f"{found.file} covers {', '.join(parts)} ({hits:,} of {len(found.uses):,} problems of run {found.run})"]
    if not found.uses:
        out = [f"{found.file}: run {found.run} has no call of a {what}, so nothing can be covered"]
    return [*out, *_idle_lines(found)]


def _of_look_ups(found: Coverage) -> list[str]:
    """Of a table that a server finds by its name: whether the run's servers looked for it, and the names they lack."""
    if not found.uses:
        return [f"{found.file}: no line of run {found.run} is about such a table, so nothing can be covered"]
    hits = sum(use.state == "hit" for use in found.uses)
    out = [f"{found.file} serves {hits:,} of the {len(found.uses):,} tables that run {found.run} looked up"]
    others = [use.label for use in found.uses if use.state != "hit"]
    out += [f"  not this one: {label}" for label in others[:_SHOWN]]
    return [*out, *([f"  and {len(others) - _SHOWN:,} more"] if len(others) > _SHOWN else [])]


def _idle_lines(found: Coverage) -> list[str]:
    """Why rows hit nothing, the most frequent reasons first."""
    out = []
    for never, text in ((True, "can never hit"), (False, "hit nothing in this run")):
        reasons = {idle.reason: idle.lines for idle in found.idle if idle.never is never}
        count = sum(map(len, reasons.values()))
        if count:
            out.append(f"{count:,} {'row' if count == 1 else 'rows'} {text}:")
        for reason, lines in sorted(reasons.items(), key=lambda entry: (-len(entry[1]), entry[0]))[:_SHOWN]:
            first = [line for line, _ in islice(groupby(lines), 6)]  # a line of a find-db has several rows
            more = " …" if len(first) > 5 else ""
            out.append(f"  {len(lines):,} (line {', '.join(map(str, first[:5]))}{more}): {reason}")
    return out


def count_lines(tables: Tables, found: Sequence[Coverage]) -> list[str]:
    """Where the numbers of calls that files are compared with may be too large or too small."""
    rows = tables.calls
    rows = rows[(rows["kind"] == "conv").isin({x.format.convolutions for x in found})]
    return [f"note: {remark}" for remark in remarks_on(rows, tables.sources)]


def coverage_frame(found: Coverage) -> pd.DataFrame:
    """One row per problem of the run, what costs most first."""
    columns = ["problem", "calls", "time_us", "state", "line", "reason", "key", "text"]
    rows = [{**asdict(use), "text": use.problem, "problem": use.label} for use in found.uses]
    frame = pd.DataFrame(rows, columns=columns).astype({"calls": "Int64", "line": "Int64", "time_us": "float64"})
    return frame.sort_values(["time_us", "calls", "text"], ascending=[False, False, True], ignore_index=True)


# ------------------------------------------------------------------------------------------------------ verify, merge


def verify_lines(found: Verification) -> list[str]:
    """What was applied, what it gained, what hit nothing, and the verdict last."""
    effects: dict[str, int] = {}
    for outcome in found.outcomes:
        effects[outcome.effect] = effects.get(outcome.effect, 0) + 1
    counts = ", ".join(f"{count:,} {effect}" for effect, count in sorted(effects.items())) or "none"
    which = "problems served by the files" if found.by_file else "problems of the findings"
    out = [f"{found.before} → {found.after}: {which}: {counts}"]
    timed = [x for x in found.outcomes if x.gained_us is not None]
    if timed:
        promise = "" if found.promised_us is None else f", {_signed(found.promised_us)} were promised for these"
        out.append(f"gained {_signed(found.gained_us)} per run on {counted(len(timed), 'problem')}{promise}")
    inside, judged = found.predicted
    if judged:
        out.append(f"{inside:,} of {judged:,} gains are in the interval predicted for a job (95 %)")
    if found.run_us is not None:
        a, b = found.run_us
        out.append(
            f"end to end: {duration(a)} → {duration(b)} of GPU time, gained {_signed(a - b)} ({(a - b) / a:+.1%})"
        )
    if found.idle:
        count, never = (sum(len(x.lines) for _, x in found.idle if x.never or every) for every in (True, False))
        out.append(f"{count:,} rows were never hit, {never:,} of them never can be")
    lines = ((name, line, idle.reason) for name, idle in found.idle for line in idle.lines)
    out += [f"  {name}, line {line}: {reason}" for name, line, reason in islice(lines, _SHOWN)]
    out += [f"  failed: {failure}" for failure in found.failures]
    return [*out, "verified" if found.ok else "not verified"]


def verify_frame(found: Verification) -> pd.DataFrame:
    """One row per problem that a file serves."""
    columns = ["problem", "intended", "before", "after", "effect", "before_us", "after_us", "move", "calls"]
    columns += ["gained_us", "promised_us", "basis", "file", "line", "text", "expected_low_us", "expected_high_us"]
    rows = [
        {
            **asdict(x),
            "text": x.problem,
            "problem": x.label,
            "intended": shorten(x.intended, _WIDE, placeholder=" …"),
            **dict(zip(columns[-2:], x.expected_us or (None, None), strict=True)),
        }
        for x in found.outcomes
    ]
    floats = dict.fromkeys(("before_us", "after_us", "gained_us", "promised_us", *columns[-2:]), "float64")
    return pd.DataFrame(rows, columns=columns).astype({"calls": "Int64", "line": "Int64", **floats}).round(6)


def _signed(us: float) -> str:
    us = round(us, 3)
    return duration(us) if us >= 0 else f"-{duration(-us)}"


# --------------------------------------------------------------------------------------------------------------- diff


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
    if len(found.costs("slower", "faster")):
        word = "more" if found.delta_us > 0 else "less"
        out.append(
            f"slower and faster: in all {duration(abs(found.delta_us))} {word} per run where the calls are known"
        )
    return [*out, *(_one_sided(found, state) for state in ("new", "vanished") if found.count(state))]


def _one_sided(found: Diff, state: Literal["new", "vanished"]) -> str:
    """``new: 3 problems, 1.2 ms per run``: as far as their times and calls are known."""
    costs, count = found.costs(state), found.count(state)
    out = f"{state}: {counted(count, 'problem')}"
    if not len(costs):
        return f"{out}, whose time per run is unknown"
    known = "" if len(costs) == count else f"{len(costs):,} of them "
    rest = "" if len(costs) == count else "; the others' time or calls are unknown"
    return f"{out}, {known}{duration(abs(float(costs.sum())))} per run{rest}"


def diff_frame(found: Diff, n: int | None = None) -> pd.DataFrame:
    """The changes as a terminal has room for, costs first; ``problem`` is the short name, ``text`` the key."""
    rows = found.changes.head(n) if n is not None else found.changes
    labels = [problem_from_text(text).label for text in rows["problem"]]
    out = rows.assign(text=rows["problem"], problem=labels, change=[_percent(x) for x in rows["ratio"]])
    names = ["state", "problem", "a_us", "b_us", "change", "delta_us", "pick_a", "pick_b", "basis", "text"]
    return out[names].reset_index(drop=True)


def _percent(ratio: float) -> str:
    return "" if pd.isna(ratio) else f"{ratio - 1:+.1%}"


def diff_markdown(found: Diff, n: int = 50) -> str:
    """A section for a pull request: verdict and one table of the first ``n`` changes."""
    verdict = f"none of {found.compared:,} compared problems got slower" if found.compared else "no time was compared"
    slower = found.count("slower")
    verdict = f"**{slower:,} problem{'s' * (slower != 1)} got slower**" if slower else verdict
    lines = [f"### {_cell(found.a)} → {_cell(found.b)}: {verdict}", "", *diff_lines(found), ""]
    frame = diff_frame(found, n)
    if len(frame):
        lines += ["| | problem | A µs | B µs | change | picks |", "|---|---|--:|--:|--:|---|"]
    for row in frame.to_dict("records"):
        times = [_number(row[name]) for name in ("a_us", "b_us")]
        picks = [row[name] for name in ("pick_a", "pick_b") if isinstance(row[name], str)]
        named = " → ".join(f"`{_cell(pick)}`" for pick in picks) if len(set(picks)) > 1 else ""
        cells = [row["state"], _cell(row["problem"]), *times, row["change"], named]
        lines.append(f"| {' | '.join(cells)} |")
    left = len(found.changes) - len(frame)
    return "\n".join([*lines, *([f"\n… and {left:,} more"] if left > 0 else [])]) + "\n"


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.4g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


def diff_junit(found: Diff, every: bool = False) -> str:
    """JUnit XML: a failure per problem that got slower, or one where no time was compared; with ``every`` a case per
    problem, skipped where nothing can be compared.

    The elements and attributes are those that CI servers read, not all that Ant's strict schema asks for (no timestamp,
    host name or output); ``time`` is of one call of run B, in seconds (0 where it is not known).
    """
    rows = found.rows if every else found.rows[found.rows["state"] == "slower"]
    seconds = (rows["b_us"].astype("float64") / 1e6).fillna(0.0)
    suite = ElementTree.Element(
        "testsuite",
        name="logparse diff",
        tests=str(len(rows) + (not found.compared)),
        failures=str(found.count("slower") + (not found.compared)),
        errors="0",
        skipped=str(int(rows["state"].isin(["unknown", "new", "vanished"]).sum())),
        time=f"{seconds.sum():.9f}",
    )
    for row, time in zip(rows.to_dict("records"), seconds, strict=True):
        name = _text(row["problem"])
        case = ElementTree.SubElement(suite, "testcase", classname="logparse.diff", name=name, time=f"{time:.9f}")
        if row["state"] == "slower":
            times = f"{row['a_us']:.4g} µs → {row['b_us']:.4g} µs ({_percent(row['ratio'])})"
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
    return pd.DataFrame([asdict(x) for x in steps], columns=["file", "line", "key", "solution", "action", "reason"])


# ------------------------------------------------------------------------------------------------------------ answers


def coverage_answer(tables: Tables, found: Sequence[Coverage], unread: Sequence[Unread]) -> Answer:
    """What files cover of a run."""
    frames = [coverage_frame(x).assign(file=x.file) for x in found]
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    lines = [*(line for x in found for line in coverage_lines(x)), *count_lines(tables, found)]
    code = CHECK_FAILED if not all(x.hits for x in found) else int(bool(unread))
    return Answer(lines, table, "coverage", errors=unread_lines(unread), code=code)


def action_lines(found: ActionProof) -> list[str]:
    """What was promised and what was gained, what lost, and the verdict last."""
    promised, low, high = (found.before_us - x for x in (found.promised_us, found.high_us, found.low_us))
    head = f"{found.before} → {found.after}: {' and '.join(found.actions)}"
    out = [
        f"{head}: {duration(found.before_us)} → {duration(found.after_us)} of GPU time per {found.unit}",
        f"gained {_signed(found.gained_us)} ({found.gained_us / found.before_us:+.1%}), promised {_signed(promised)} "
        f"[{_signed(low)}, {_signed(high)}]",
    ]
    if found.step_us is not None and found.busy is not None:
        a, b = found.step_us
        out.append(
            f"the step: {duration(a)} → {duration(b)}; the GPU computes {found.busy[0]:.0%} → {found.busy[1]:.0%}"
        )
    if found.host_bound:
        out.append("host-bound: the GPU waits for the host, so less GPU time may not show in the step")
    out += [f"  loses: {x.name} ({duration(x.before_us)} → {duration(x.after_us)})" for x in found.losers[:_SHOWN]]
    out += [f"  failed: {failure}" for failure in found.failures]
    return [*out, "verified" if found.ok else "not verified"]


def action_frame(found: ActionProof) -> pd.DataFrame:
    """One row per kind of operator, those that changed most first; µs per step or run."""
    columns = ["name", "before_us", "promised_us", "after_us"]
    frame = pd.DataFrame([asdict(x) for x in found.groups], columns=columns).rename(columns={"name": "operators"})
    return frame.assign(gained_us=frame["before_us"] - frame["after_us"]).round(3)


def verify_answer(found: Verification | ActionProof) -> Answer:
    """Whether overrides took effect, or actions did what they promised."""
    if isinstance(found, ActionProof):
        table = action_frame(found)
        text = [table.head(ROWS), *action_lines(found)]
        return Answer(text, table, "verify --action", code=0 if found.ok else CHECK_FAILED)
    frame = verify_frame(found)
    text = [*([frame.drop(columns="text")] if len(frame) else []), *verify_lines(found)]
    return Answer(text, frame, "verify", code=0 if found.ok else CHECK_FAILED)


def write_diff(found: Diff, markdown: Path | None, junit: Path | None, every: bool) -> None:
    """Write the section for a pull request and the JUnit XML (with ``every`` a case per problem), where asked for."""
    if markdown:
        markdown.write_text(diff_markdown(found), encoding="utf-8")
    if junit:
        junit.write_text(diff_junit(found, every), encoding="utf-8")


def diff_answer(found: Diff, plan: Sequence[Step], n: int | None) -> Answer:
    """What changed between two runs, ``n`` changes of it; its table has ``change`` as a ratio minus 1."""
    brief = diff_frame(found, n or ROWS).drop(columns="text")
    plans = [plan_frame(plan).drop(columns="key")] if plan else []
    text = [*([brief] if len(brief) else []), *diff_lines(found), *plans]

    def table() -> pd.DataFrame:
        ratios = found.changes["ratio"].head(n or len(found.changes))
        return diff_frame(found, n).assign(change=ratios.to_numpy() - 1)

    return Answer(text, table, "diff", code=0 if found.ok else CHECK_FAILED)
