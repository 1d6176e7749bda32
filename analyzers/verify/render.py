"""What files cover of a run, and whether overrides and actions took effect, as lines and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby, islice
from textwrap import shorten

import pandas as pd

from analyzers.analyzer import Tables
from analyzers.job.double_counts import remarks_on
from analyzers.overrides.coverage import Coverage
from analyzers.overrides.render import unread_lines
from analyzers.overrides.verbs import Unread
from analyzers.verify.actions import ActionProof
from analyzers.verify.verify import Verification
from logparse.output import CHECK_FAILED, ROWS, Answer
from logparse.text import counted, duration

_SHOWN, _WIDE = 8, 60


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
