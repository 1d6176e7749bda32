"""Convert a recommendation to the cards of the web page: what to do, what it saves, and the files for it."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from analyzers.actions import ACTIONS
from analyzers.evidence.tables import Settings
from analyzers.explore.load.job import Calls, Card, PageVerdict, TimeSplit
from analyzers.explore.plain_text import capitalize_first
from analyzers.recommend.apply_module import calls, has_lines
from analyzers.recommend.override_files import names_of_scripts
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import Todo, basis, change_text, gain, mark
from analyzers.recommend.verb import write
from analyzers.recommend.verdict import verdict
from logparse.model import ChangeProgram, Replay, Search, Setting, UseRows
from logparse.store import command_line
from logparse.store.settling import settling
from logparse.text import duration, pluralize

if TYPE_CHECKING:
    from analyzers.actions import ActionResult
    from analyzers.explore.load.analysis import Analysis
    from analyzers.job.gpu_time import GpuTime

_TEXT_FILES = (".sh", ".md", ".json", ".py")


def verdict_of(
    analysis: Analysis,
    store: str | None,
    other: GpuTime | None = None,
    changed: Mapping[str, int] = MappingProxyType({}),
    calls: Sequence[Calls] = (),
) -> PageVerdict:
    """Collect what the web page and the report show about a run, except its table of GEMMs and convolutions.

    * ``store``: URL of the Parquet folder, for the command lines that the user is shown.
    * ``other``: GPU time of the run with which this run is compared.
    * ``changed``: how many GEMMs and convolutions became faster, slower and so on in the comparison.
    * ``calls``: the number of calls of each kind in the other run and in this run, and of their processes.
    """
    return PageVerdict(
        headline=analysis.headline,
        lines=analysis.lines,
        shows=dict(analysis.shows),
        actions=tuple(cards(analysis.recommendation, store)),
        time=time_split(analysis.recommendation),
        beside=times_beside(analysis.recommendation.gpu_time, other),
        objects=tuple(x.text for x in analysis.recommendation.object_calls),
        changed=tuple(changed.items()),
        calls=tuple(calls),
    )


def cards(recommendation: Recommendation, store: str | None = None) -> list[Card]:
    """Return the web page's cards about the changes that ``recommend`` proposes, in the same order."""
    conclusion = verdict(recommendation)
    return [_action(x, recommendation, store, conclusion.per(x)) for x in conclusion.todo]


def _action(todo: Todo, recommendation: Recommendation, store: str | None, per: str) -> Card:
    results = [x for x in recommendation.actions if x.action.name in todo.names]
    result = next((x for x in results if x.action.name == todo.name), None)
    findings = [recommendation.findings[n - 1] for n in todo.findings]
    remarks = [x for x in recommendation.remarks if x.analyzer == todo.name]
    advice = next((x.advice for x in (*remarks, *findings) if x.advice), None)
    waits = next((x.evidence.waits_for for x in remarks if x.evidence.waits_for), None)
    return Card(
        name=todo.name,
        title=todo.title,
        detail=_detail(todo, result, advice),
        saves=_format_saving(todo),
        gain=gain(todo) if todo.gain is None else f"{gain(todo)} {per}",
        evidence=todo.certainty,
        changes=_settle(todo) if todo.assumes else change_text(todo),
        files=isinstance(todo.remedy, UseRows | Search) or any(map(has_lines, results)),
        lines=_lines(todo, results, recommendation.run, store, names_of_scripts(x.problem for x in findings)),
        mark=_MARKS.get(waits or "", ""),
        basis=basis(todo),
    )


def _settle(todo: Todo) -> str:
    """Say what the commands of a saving with a condition do: they find out whether the condition holds."""
    rows = pluralize(len(todo.findings), "row")
    return f"find out which find-db the job reads. `recommend` then lists {rows} or none"


def _detail(todo: Todo, result: ActionResult | None, advice: str | None) -> str:
    if isinstance(todo.remedy, Search) or todo.assumes:
        return ""  # The card's commands say it
    if result is None:
        return advice or todo.what
    # The commands of the card say how override files are applied.
    return "" if isinstance(todo.remedy, UseRows) else f"{todo.what}: {result.application.line}"


def _format_saving(todo: Todo) -> str:
    """Return how much time a proposal of ``recommend`` saves, as text.

    For example ``110 ms``, ``≈ 6 ms`` if it is estimated, ``up to 8.5 ms`` if only a bound is known, or ``0 or 9 ms``
    if it rests on a condition.
    """
    if todo.shown is None:
        return "unknown"
    return f"{mark(todo)}{duration(todo.gained_us)}"


_MARKS: Mapping[str, str] = {"communication": "communication", "host": "idle"}
"""Kind of work that the timeline marks for a proposal, by what the step waits for."""
_FOLDER = "overrides"
"""Name of the folder for the recommendation's files, in the command lines that the user is shown."""


def _lines(
    todo: Todo, results: Sequence[ActionResult], run: str, store: str | None, scripts: Sequence[str]
) -> tuple[str, ...]:
    """Return the command lines with which the user can carry out one proposal of ``recommend``.

    * ``scripts``: names of the scripts that search for the problems of the proposal.

    If no command line can do that, it is the command that tries the change in the job, or else the command that
    explains the proposal.
    """
    write = command_line(store, "recommend", "--run", run, "--out", _FOLDER)
    if isinstance(todo.remedy, UseRows):
        # ``settling`` gives commands that find out whether the condition holds. The last one is ``recommend``, which
        # writes rows if they save time.
        applied = f"{command_line(None, 'run', '--with', _FOLDER)} -- JOB"
        return settling(store, run, ()) if todo.assumes else (write, applied)
    if isinstance(todo.remedy, Search):
        found = " ".join(f"{_FOLDER}/*/{name}" for name in scripts)
        return write, f'for S in {found}; do (cd "${{S%/*}}" && sh "${{S##*/}}"); done'
    if results and all(map(has_lines, results)):
        made = "; ".join(map(calls, results))
        return write, f"PYTHONPATH={_FOLDER} python YOUR_PROGRAM", f"# in it: import apply; {made}"
    if isinstance(todo.remedy, Replay | Setting):
        only = ("--only", "actions") if isinstance(todo.remedy, Setting) else ()
        return (command_line(store, "replay", "--run", run, *only),)
    if isinstance(todo.remedy, ChangeProgram) and todo.remedy.solution in {x.name for x in ACTIONS}:
        return (f"{command_line(None, 'try', todo.remedy.solution)} -- JOB",)
    return (command_line(store, "recommend", "--run", run, "--explain", todo.name),)


def archive(recommendation: Recommendation, settings: Settings, path: Path) -> None:
    """Write all files of the recommendation into a zip file at ``path``. Raises OSError if that fails."""
    with tempfile.TemporaryDirectory(prefix="logparse-files-") as folder, zipfile.ZipFile(path, "w") as target:
        write(recommendation, settings, Path(folder))
        for file in sorted(x for x in Path(folder).rglob("*") if x.is_file()):
            data = file.read_bytes()
            if file.suffix in _TEXT_FILES:  # The files will be unpacked in another folder, so their paths are relative.
                data = data.replace(folder.encode(), b".")
            info = zipfile.ZipInfo(str(file.relative_to(folder)))
            info.external_attr = file.stat().st_mode << 16  # Scripts keep the right to be executed.
            target.writestr(info, data, zipfile.ZIP_DEFLATED)


def time_split(found: Recommendation) -> TimeSplit | None:
    """Return how the time of a step is divided among kinds of work, or None if the run has no trace."""
    of = verdict(found)
    if not of.split:
        return None
    steps = (found.gpu_time.steps if found.gpu_time is not None else None) or 0.0
    mean = f" (mean of {steps:,.0f})" if steps > 1 else ""
    title = f"A {of.word}{mean}" if of.unit == "step" else capitalize_first(of.whole)
    return TimeSplit(title, tuple((x.name, x.us) for x in of.split))


def times_beside(here: GpuTime | None, there: GpuTime | None) -> tuple[tuple[str, float | None, float | None], ...]:
    """List the GPU times of a step in two runs: the whole step, GPU time, exposed communication and idle time.

    Each entry is (name, time in the first run, time in the second), µs. Empty unless both runs have traces.
    """
    if here is None or there is None:
        return ()
    marked = here.steps is not None and there.steps is not None

    def of(time: GpuTime) -> dict[str, float | None]:
        # If one of the runs marks no steps, the times are sums over all its traces.
        per = (time.steps or 1.0) if marked else 1.0
        exposed = time.alone_us if time.alone_us else None
        known = {"GPU time": time.busy_us or time.kernels_us, "exposed communication": exposed, "idle": time.idle_us}
        whole = {f"a {here.word}" if marked else "all traces": time.window_us}
        return {name: None if us is None else us / per for name, us in (whole | known).items()}

    mine, theirs = of(here), of(there)
    return tuple((name, us, theirs[name]) for name, us in mine.items() if us is not None or theirs[name] is not None)
