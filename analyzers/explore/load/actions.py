"""The recommendation as actions: what a person does once, what that saves, and the files for it."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.analyzer import Settings
from analyzers.explore.load.job import Action, ComparedTime, Verdict
from analyzers.explore.queries import only_row
from analyzers.recommend.apply_module import has_lines
from analyzers.recommend.files_action import OVERRIDES
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.verb import write
from analyzers.recommend.verdict import SEARCH, Todo, gain, verdict

if TYPE_CHECKING:
    import duckdb

    from analyzers.explore.load.analysis import Analysis

_TEXT_FILES = (".sh", ".md", ".json", ".py")


def verdict_of(con: duckdb.DuckDBPyConnection, analysis: Analysis, points: str) -> Verdict:
    """What page and report state of a run.  ``con`` has the store's views and ``means``; ``points`` names the table of
    problems with the analysis.
    """
    return Verdict(
        headline=analysis.headline,
        lines=analysis.lines,
        actions=tuple(cards(analysis.recommendation)),
        time=compared_time(con, analysis.run, points),
        objects=tuple(x.text for x in analysis.recommendation.object_calls),
    )


def cards(recommendation: Recommendation) -> list[Action]:
    """What to do, in the one order of ``recommend``'s list."""
    return [_action(x, recommendation) for x in verdict(recommendation).todo]


def _action(todo: Todo, recommendation: Recommendation) -> Action:
    result = next((x for x in recommendation.actions if x.action.name == todo.name), None)
    findings = [recommendation.findings[n - 1] for n in todo.findings]
    remarks = [x for x in recommendation.remarks if x.analyzer == todo.name]
    advice = next((x.advice for x in (*remarks, *findings) if x.advice), None)
    return Action(
        title=todo.name,
        detail=advice or todo.what if result is None else f"{todo.what}: {result.application.line}",
        gain=gain(todo) if todo.now_us is None else f"{gain(todo)} a {todo.unit}",
        evidence=todo.evidence,
        changes=todo.changes,
        files=todo.name in (OVERRIDES.name, SEARCH) or (result is not None and has_lines(result)),
    )


def archive(recommendation: Recommendation, settings: Settings, path: Path) -> None:
    """All files of the recommendation as one zip at ``path``.  Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="logparse-files-") as folder, zipfile.ZipFile(path, "w") as target:
        write(recommendation, settings, Path(folder))
        for file in sorted(x for x in Path(folder).rglob("*") if x.is_file()):
            data = file.read_bytes()
            if file.suffix in _TEXT_FILES:  # they are unpacked elsewhere
                data = data.replace(folder.encode(), b".")
            info = zipfile.ZipInfo(str(file.relative_to(folder)))
            info.external_attr = file.stat().st_mode << 16  # scripts stay executable
            target.writestr(info, data, zipfile.ZIP_DEFLATED)


_TIME = """
    with kernel_time as (
      select coalesce(m.other, nullif(k.problem, '')) as problem, sum(k.total_us) as us
      from kernels k left join means m on m.problem = k.problem where k.run = $run group by 1),
    known as (
      select problem, sum(total_us) as us,
             bool_or(solutions > 1 or pick_us is not null or finding is not null) as compared,
             sum(calls) filter (total_us is null) as untimed from {points} group by 1)
    select (select coalesce(sum(us), 0) from kernel_time),
           (select coalesce(sum(us), 0) from kernel_time where problem is not null),
           (select coalesce(sum(k.us), 0) from kernel_time k join known p using (problem) where compared),
           (select coalesce(sum(us), 0) from known), (select coalesce(sum(us), 0) from known where compared),
           (select coalesce(sum(untimed), 0) from known)"""


def compared_time(con: duckdb.DuckDBPyConnection, run: str, points: str) -> ComparedTime:
    """The time of a run.  ``con`` has the store's views and ``means``; ``points`` names the table of problems."""
    row = only_row(con.execute(_TIME.format(points=points), {"run": run})) or (0,) * 6
    total, of_problems, of_compared, counted, compared, untimed = (float(x) for x in row)
    if total > 0:
        return ComparedTime(of_compared, of_problems - of_compared, total - of_problems, True, int(untimed))
    return ComparedTime(compared, counted - compared, 0.0, False, int(untimed))
