"""The recommendation as actions: what a person does once, what that saves, and the files for it."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from analyzers.analyzer import Settings
from analyzers.explore.load.job import Action, ComparedTime, Verdict
from analyzers.explore.queries import only_row
from analyzers.recommend.confidence import basis
from analyzers.recommend.files_action import OVERRIDES
from analyzers.recommend.ranking import Recommendation, remedy
from analyzers.recommend.verb import write
from logparse.formats.override_formats import WRITERS
from logparse.model import Finding
from logparse.text import duration

if TYPE_CHECKING:
    import duckdb

    from analyzers.explore.load.analysis import Analysis

_SavingOf: TypeAlias = Literal["run", "estimate", "call"]
_TEXT_FILES = (".sh", ".md", ".json", ".py")


_WEIGHED = """
    select problem, analyzer, sum(saving_us) from {points}
    where finding is not null and pick_us is null and saving_us is not null group by all"""


def verdict_of(con: duckdb.DuckDBPyConnection, analysis: Analysis, points: str) -> Verdict:
    """What page and report state of a run.  ``con`` has the store's views and ``means``; ``points`` names the table of
    problems with the analysis.
    """
    weighed = {
        (problem, analyzer): us for problem, analyzer, us in con.execute(_WEIGHED.format(points=points)).fetchall()
    }
    return Verdict(
        headline=analysis.headline,
        lines=analysis.lines,
        actions=tuple(cards(analysis.recommendation, weighed)),
        time=compared_time(con, analysis.run, points),
        objects=tuple(x.text for x in analysis.recommendation.object_calls),
    )


def cards(
    recommendation: Recommendation, weighed: Mapping[tuple[str, str], float] = MappingProxyType({})
) -> list[Action]:
    """What to do: first the whole job's actions that surely pay, as ``recommend`` has them, then the findings.

    ``weighed``: (problem, analyzer) → the saving (µs) that the page's table states of a problem for its finding, where
    no pick is timed.
    """
    whole = [
        Action(
            title=x.action.name,
            detail=f"{x.action.about}: {x.application.line}",
            problems=len(x.parts),
            saving_us=x.saving_us,
            confidence=(
                f"{duration(x.now_us)} → {duration(x.then_us)} [{', '.join(map(duration, x.interval_us))}] of the "
                "job's GPU time, replayed"
            ),
            files=bool(x.application.settings or x.application.model or x.application.environment),
        )
        for x in recommendation.actions
        if x.pays and x.action is not OVERRIDES  # the findings' own card has the files
    ]
    return whole + actions(recommendation.findings, weighed)


def actions(
    findings: Sequence[Finding], weighed: Mapping[tuple[str, str], float] = MappingProxyType({})
) -> list[Action]:
    """The findings about problems grouped by what a person does about them, the largest saving first."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.problem is not None:
            groups.setdefault(_title(finding), []).append(finding)
    made = [_action(title, group, weighed) for title, group in groups.items()]
    return sorted(made, key=lambda x: -(x.saving_us or 0.0))


_APPLY, _SEARCH = "Apply the override files", "Search for faster solutions"


def _title(finding: Finding) -> str:
    if finding.override is not None:
        return _APPLY
    what = remedy(finding)
    if what == "tune":
        return _SEARCH
    if what.startswith("by hand: "):
        return f"Change the program: {what.removeprefix('by hand: ')}"
    first, _, _ = (finding.advice or "").partition(". ")
    return first.partition(": ")[0].rstrip(".") or "Measure on the target (logparse replay)"


def _action(title: str, group: Sequence[Finding], weighed: Mapping[tuple[str, str], float]) -> Action:
    # What is inferred is never added to what was measured: the sum would pass the ceiling.
    timed = [x for x in group if basis(x) != "inferred"]
    sums: Sequence[tuple[_SavingOf, float | None]] = (
        ("run", _sum((x, x.saving_us) for x in timed)),
        ("estimate", _sum((x, x.saving_us) for x in group)),
        ("estimate", _sum((x, weighed.get((x.problem.text, x.analyzer))) for x in group if x.problem is not None)),
        ("call", _sum((x, x.per_call_us) for x in group)),
    )
    saving_of, saving_us = next((x for x in sums if x[1] is not None), ("run", None))
    advice = next((x.advice for x in group if x.advice), "") or ""
    detail = "Unpack, then source apply.sh in the shell that starts the job." if title == _APPLY else advice
    return Action(
        title=title,
        detail=detail.removeprefix(title).lstrip(".: "),
        problems=len({x.problem.text for x in group if x.problem is not None}),
        saving_us=saving_us,
        confidence=_confidence(group),
        files=title in (_APPLY, _SEARCH),
        saving_of=saving_of,
    )


def _sum(savings: Iterable[tuple[Finding, float | None]]) -> float | None:
    """The sum of the problems' largest savings, µs; None where no finding has any."""
    largest: dict[str, float] = {}
    for finding, saving in savings:
        if finding.problem is not None and saving is not None:
            largest[finding.problem.text] = max(largest.get(finding.problem.text, 0.0), saving)
    return sum(largest.values()) if largest else None


def _confidence(group: Sequence[Finding]) -> str:
    counts: dict[str, int] = {}
    for finding in group:
        counts[basis(finding)] = counts.get(basis(finding), 0) + 1
    return ", ".join(f"{count:,} {word}" for word, count in counts.items())


def archive(recommendation: Recommendation, settings: Settings, path: Path) -> None:
    """All files of the recommendation as one zip at ``path``.  Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="logparse-files-") as folder, zipfile.ZipFile(path, "w") as target:
        write(recommendation, settings, WRITERS, Path(folder))
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
