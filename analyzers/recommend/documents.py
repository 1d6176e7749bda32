"""Write a recommendation as two files: ``findings.json`` for programs, ``report.md`` for people.

``findings.json`` follows ``findings.schema.json`` in this folder. ``docs/findings.md`` explains it. ``version``
increases if a field changes its meaning or is removed. New fields may come within a version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.actions import ActionResult
from analyzers.actions.action import Part, row
from analyzers.evidence.tables import Settings
from analyzers.recommend import apply_module, render
from analyzers.recommend.override_files import TargetFiles
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import Todo, basis, change_text, gain
from analyzers.recommend.verdict import Verdict, gains_text, verdict
from logparse.libraries.kinds.format import Emission
from logparse.model import Finding
from logparse.output.files import is_within
from logparse.quoting import Shell, is_file_name, markdown_block, markdown_text

SCHEMA, VERSION = "logparse-findings", 4
JSON_NAME, REPORT_NAME = "findings.json", "report.md"
_LONG = 40


def documents(found: Recommendation, settings: Settings, targets: Sequence[TargetFiles], use: str) -> list[Emission]:
    """Return the files ``findings.json`` and ``report.md`` of a recommendation.

    ``use`` is the text that explains how to use ``apply.py``. It is empty if no ``apply.py`` is written.
    """
    texts = {REPORT_NAME: report(found, targets, use), JSON_NAME: document(found, settings, targets)}
    return [Emission(name, text.encode("utf-8", "backslashreplace"), Shell()) for name, text in texts.items()]


def run_of_files(out: Path) -> str | None:
    """Return the run for which an earlier ``recommend`` wrote files into the folder. None if that is unknown."""
    try:
        content = json.loads((out / JSON_NAME).read_text(encoding="utf-8"))
        return str(content["run"]) if content["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def earlier_files(out: Path) -> list[Path]:
    """Return the paths of files that an earlier ``recommend`` wrote into the folder.

    Empty if its ``findings.json`` cannot be read.
    """
    try:
        content = json.loads((out / JSON_NAME).read_text(encoding="utf-8"))
        targets = content["targets"] if content["schema"] == SCHEMA else []
        named = [(str(target["name"]), str(name)) for target in targets for name in target["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    # A listed path is returned only if it consists of plain file names and is inside the folder after links are
    # followed.
    places = [out / target / name for target, name in named if is_file_name(target) and is_file_name(name)]
    return [place for place in places if is_within(place, out)]


# ------------------------------------------------------------------------------------------------ for programs


def document(recommendation: Recommendation, settings: Settings, targets: Sequence[TargetFiles]) -> str:
    """Return the text of ``findings.json``. An unknown value is null."""
    judged = recommendation.judgement
    conclusion = verdict(recommendation)
    content: dict[str, object] = {
        "verdict": conclusion.headline,
        "todo": list(map(_todo_object, conclusion.todo)),
        "gains": [{"sureness": sureness, "us": us} for sureness, us in conclusion.gains],
        "split": {
            "unit": conclusion.unit,
            "us": conclusion.whole_us,
            "parts": list(map(asdict, conclusion.split)),
            "limit": conclusion.limit,
        },
        "schema": SCHEMA,
        "version": VERSION,
        "run": recommendation.run,
        "ceiling": asdict(recommendation.ceiling),
        "gpu_time": None if recommendation.gpu_time is None else asdict(recommendation.gpu_time),
        "tests": {"tested": judged.tested, "kept": judged.kept, "floor": judged.floor, "rate": judged.rate},
        "floor_share": settings.min_gain,
        "left_out": dict(recommendation.left_out),
        "remarks": [
            {name: getattr(x, name) for name in ("analyzer", "message", "saving_us", "advice")}
            | {"evidence": dict(x.evidence.shown)}
            for x in recommendation.remarks
        ],
        "actions": [_action(x) for x in recommendation.actions],
        "findings": list(map(_finding, recommendation.findings, recommendation.rows)),
        "targets": [
            {"name": x.name, "facts": dict(x.facts), "files": sorted(y.name for y in x.files), "notes": list(x.notes)}
            for x in targets
        ],
    }
    return json.dumps(_plain(content), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


_TODO = (
    "name",
    "title",
    "what",
    "unit",
    "sureness",
    "confirmed",
    "changes",
    "exact",
    "findings",
    "bounded",
    "most_us",
    "usual_us",
    "waits",
    "assumes",
)


def _todo_object(todo: Todo) -> dict[str, object]:
    gain, step = todo.gain, todo.step
    times = {
        "now_us": None if gain is None else gain.now_us,
        "then_us": None if gain is None else gain.then_us,
        "step_us": None if step is None else (step.now_us, step.then_us),
        "saves_us": None if gain is None else todo.gained_us,
    }
    known = {"remedy": type(todo.remedy).__name__, "certainty": todo.certainty}
    return known | times | {name: getattr(todo, name) for name in _TODO}


def _action(result: ActionResult) -> dict[str, object]:
    about = {"about": result.action.about, "needs": result.action.needs, "by_hand": result.application.by_hand}
    applied = {"settings": list(result.application.settings), "model": list(result.application.model)}
    environment = {"environment": dict(result.application.environment)}
    return {**row(result), **about, **applied, **environment, "parts": list(map(_convert_part, result.parts))}


def _convert_part(part: Part) -> dict[str, object]:
    names = ("of", "label", "group", "calls", "now_us", "then_us", "host_us")
    return {name: getattr(part, name) for name in names}


def _finding(finding: Finding, shown: Mapping[str, object]) -> dict[str, object]:
    override = finding.override
    workspace = None if override is None else override.workspace_bytes
    return {**shown, "workspace_bytes": workspace, "evidence": finding.evidence.shown}


def _plain(value: object) -> Any:
    """Convert a value to types that JSON has, for example numpy's numbers to Python's.

    Numbers that are not finite become null.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(name): _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return None if str(value) in ("<NA>", "NaT") else str(value)


# ------------------------------------------------------------------------------------------------ for people


def report(recommendation: Recommendation, targets: Sequence[TargetFiles], use: str = "") -> str:
    """Write the recommendation as a report for people, the text of ``report.md``.

    It has the verdict, the largest possible gain, a table of the possible savings (findings), details of each, and how
    to make the changes.
    """
    conclusion = verdict(recommendation)
    out = [
        f"# What to change in run {markdown_text(recommendation.run)}",
        "",
        f"**{markdown_text(conclusion.headline)}**",
        "",
    ]
    out += _todo(conclusion)
    out += [f"* {markdown_text(line)}" for line in (gains_text(conclusion), conclusion.limit, conclusion.hint) if line]
    known = [*render.gpu_time_lines(recommendation.gpu_time), *render.ceiling_lines(recommendation.ceiling)]
    known += [*render.confidence_lines(recommendation.judgement), render.counts(recommendation)]
    out += [f"* {markdown_text(line.strip())}" for line in known]
    actions = render.action_lines(recommendation.actions, recommendation.gpu_time)
    out += ["", "## Actions", "", *markdown_block("text", actions)] if actions else []
    out += ["", *_table(recommendation, conclusion), *_details(recommendation)]
    if recommendation.remarks:
        remarks = render.warnings_first(recommendation.remarks)
        out += ["## The run", "", *(f"* {x.analyzer}: {markdown_text(x.message)}" for x in remarks), ""]
    advice = render.advice(recommendation)
    if advice:
        out += ["## Advice", "", *(f"* {markdown_text(x)}" for x in advice), ""]
    out += [f"## To apply: `{apply_module.NAME}`", "", f"Beside this report; {use}", ""] if use else []
    out += _apply(targets)
    return "\n".join(out).rstrip() + "\n"


def _todo(conclusion: Verdict) -> list[str]:
    if not conclusion.todo:
        return []
    out = ["| | to do | now → then | certainty | changes | what |", "|---|---|---|---|---|---|"]
    for number, x in enumerate(conclusion.todo, 1):
        times = "; ".join(filter(None, [f"{gain(x)} {conclusion.per(x)}", basis(x)]))
        cells = (x.title, times, x.certainty, change_text(x), x.what)
        out.append(f"| {number} | {' | '.join(map(markdown_text, cells))} |")
    return [*out, ""]


def _table(recommendation: Recommendation, conclusion: Verdict) -> list[str]:
    frame = render.choose_columns(render.rows(recommendation), recommendation.steps, render.unit_of(recommendation))
    if not len(frame):
        return []
    out = [
        "## Findings",
        "",
        "| | " + " | ".join(map(markdown_text, frame.columns)) + " |",
        "|---" * (len(frame.columns) + 1) + "|",
    ]
    columns = [map(_cell, frame[name].tolist()) for name in frame.columns]
    out += (f"| {number} | {' | '.join(cells)} |" for number, cells in enumerate(zip(*columns, strict=True), 1))
    # A step that waits for the host gains less than its kernels, so the sum of the column is not the saving above.
    less = any(x.slowed_by for x in conclusion.todo)
    note = "The savings in this table are of the kernels alone. The list above states how much faster the job becomes."
    return [*out, "", *([note, ""] if less else [])]


def _details(recommendation: Recommendation) -> list[str]:
    out = []
    for number, finding in enumerate(recommendation.findings[:_LONG], 1):
        label = finding.problem.label if finding.problem else ""
        message = "; also ".join((finding.message, *finding.reasons))
        out += [f"### {number}. {markdown_text(label)}", "", markdown_text(message), ""]
        told = recommendation.called_from([finding.problem.text]) if finding.problem else ""
        known = [*_evidence(finding), *([("place in the program", told)] if told else [])]
        out += [f"* {name}: {markdown_text(str(value))}" for name, value in known]
        out.append("")
    if len(recommendation.findings) > _LONG:
        out += [f"The other {len(recommendation.findings) - _LONG:,} findings are in `{JSON_NAME}`.", ""]
    return out


def _evidence(finding: Finding) -> list[tuple[str, object]]:
    """Return details about a finding (a possible saving): where it was measured, and how certain it is.

    Each detail is a pair of a name and a value. Values that are already in the table of findings are left out.
    """
    versions = finding.evidence.versions
    known = [
        ("measured in", finding.evidence.file),
        ("versions", ", ".join(f"{k} {v}" for k, v in versions.items()) if versions else None),
        ("interval from", finding.interval_from),
        ("p", None if finding.p is None else f"{finding.p:.2g}"),
        ("calls and times matched by", finding.evidence.level),
        ("problem", f"`{finding.problem.text}`" if finding.problem else None),
    ]
    return [(name, value) for name, value in known if value]


def _apply(targets: Sequence[TargetFiles]) -> list[str]:
    out = []
    for target in targets:
        out += [f"## To apply: `{target.name}`", ""]
        facts = ", ".join(f"{name} {value}" for name, value in target.facts.items())
        out += [f"Facts of the target: {markdown_text(facts) or 'unknown'}", ""]
        for file in target.files:
            out += [f"`{file.name}`", ""] + ([*markdown_block("sh", file.lines), ""] if file.use else [])
        out += [*(f"* {markdown_text(note)}" for note in target.notes), ""] if target.notes else []
    return out


def _cell(value: object) -> str:
    if type(value) is str:  # Most values are texts.
        return markdown_text(value)
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    text = _plain(value)
    return "" if text is None else markdown_text(str(text))
