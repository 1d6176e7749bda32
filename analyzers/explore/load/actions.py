"""Make the page's cards from the recommendation: what to do once, what that saves, and the files for it."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.evidence.tables import Settings
from analyzers.explore.load.job import Card, PageVerdict, TimeSplit
from analyzers.recommend.apply_module import has_lines
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.verb import write
from analyzers.recommend.verdict import Todo, change_text, gain, verdict
from logparse.lazy import duckdb
from logparse.model import Search, UseRows

if TYPE_CHECKING:
    from analyzers.explore.load.analysis import Analysis
    from analyzers.job.gpu_time import GpuTime

_TEXT_FILES = (".sh", ".md", ".json", ".py")


def verdict_of(
    con: duckdb.DuckDBPyConnection, analysis: Analysis, points: str, other: GpuTime | None = None
) -> PageVerdict:
    """Return what page and report show about a run.

    ``points`` is the name of the table of problems with the analysis in ``con``.  ``other`` is the GPU time of the run
    beside the shown run.
    """
    return PageVerdict(
        headline=analysis.headline,
        lines=analysis.lines,
        actions=tuple(cards(analysis.recommendation)),
        time=time_split(con, analysis.recommendation, points),
        beside=times_beside(analysis.recommendation.gpu_time, other),
        objects=tuple(x.text for x in analysis.recommendation.object_calls),
    )


def cards(recommendation: Recommendation) -> list[Card]:
    """Return the things to do, in the order of ``recommend``'s list."""
    return [_action(x, recommendation) for x in verdict(recommendation).todo]


def _action(todo: Todo, recommendation: Recommendation) -> Card:
    result = next((x for x in recommendation.actions if x.action.name == todo.name), None)
    findings = [recommendation.findings[n - 1] for n in todo.findings]
    remarks = [x for x in recommendation.remarks if x.analyzer == todo.name]
    word = recommendation.word if todo.unit == "step" else todo.unit
    advice = next((x.advice for x in (*remarks, *findings) if x.advice), None)
    return Card(
        title=todo.title,
        detail=advice or todo.what if result is None else f"{todo.what}: {result.application.line}",
        gain=gain(todo) if todo.now_us is None else f"{gain(todo)} a {word}",
        evidence=todo.certainty,
        changes=change_text(todo),
        files=isinstance(todo.remedy, UseRows | Search) or (result is not None and has_lines(result)),
    )


def archive(recommendation: Recommendation, settings: Settings, path: Path) -> None:
    """Write all files of the recommendation as one zip at ``path``.  Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="logparse-files-") as folder, zipfile.ZipFile(path, "w") as target:
        write(recommendation, settings, Path(folder))
        for file in sorted(x for x in Path(folder).rglob("*") if x.is_file()):
            data = file.read_bytes()
            if file.suffix in _TEXT_FILES:  # The files will be unpacked in another folder, so their paths are relative.
                data = data.replace(folder.encode(), b".")
            info = zipfile.ZipInfo(str(file.relative_to(folder)))
            info.external_attr = file.stat().st_mode << 16  # Scripts keep the right to be executed.
            target.writestr(info, data, zipfile.ZIP_DEFLATED)


_TIME = """
    with known as (
      select problem, sum(total_us) as us,
             bool_or(solutions > 1 or pick_us is not null or finding is not null) as compared,
             sum(calls) filter (total_us is null) as untimed from {points} group by 1)
    select coalesce(sum(us) filter (compared), 0), coalesce(sum(us) filter (not compared), 0), coalesce(sum(untimed), 0)
    from known"""


def time_split(con: duckdb.DuckDBPyConnection, found: Recommendation, points: str) -> TimeSplit:
    """Return where the time of the run goes.  ``points`` is the name of the table of problems in ``con``."""
    compared, alone, untimed = map(float, con.execute(_TIME.format(points=points)).fetchall()[0])
    of = verdict(found)
    if of.split:
        title = f"A {of.word}" if of.unit == "step" else "All traces"
        return TimeSplit(title, tuple((x.name, x.us) for x in of.split), int(untimed))
    parts = (("compared with another solution, or with a finding", compared), ("nothing to compare with", alone))
    return TimeSplit("Time of the problems (calls × time; other kernels are unknown)", parts, int(untimed))


def times_beside(here: GpuTime | None, there: GpuTime | None) -> tuple[tuple[str, float | None, float | None], ...]:
    """Return the times (µs) by name that two runs' traces state for one step.

    If one of the runs marks no steps, the times are sums over all its traces.  The result is empty unless both runs
    have traces.
    """
    if here is None or there is None:
        return ()
    marked = here.steps is not None and there.steps is not None

    def of(time: GpuTime) -> dict[str, float | None]:
        per = (time.steps or 1.0) if marked else 1.0
        exposed = time.alone_us if time.alone_us else None
        known = {"GPU time": time.busy_us or time.kernels_us, "exposed communication": exposed, "idle": time.idle_us}
        whole = {f"a {here.word}" if marked else "all traces": time.window_us}
        return {name: None if us is None else us / per for name, us in (whole | known).items()}

    mine, theirs = of(here), of(there)
    return tuple((name, us, theirs[name]) for name, us in mine.items() if us is not None or theirs[name] is not None)
