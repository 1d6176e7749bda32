"""Convert a recommendation to the cards of the web page: what to do, what it saves, and the files for it."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.actions import ACTIONS
from analyzers.evidence.tables import Settings
from analyzers.explore.load.job import Card, Command, PageVerdict, TimeSplit
from analyzers.explore.plain_text import capitalize_first
from analyzers.recommend import apply_script, next_commands
from analyzers.recommend.apply_module import calls, has_lines
from analyzers.recommend.override_files import make_files, names_of_scripts, targets
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import Todo, basis, change_text, gain, saving_texts
from analyzers.recommend.todo_order import name_order
from analyzers.recommend.verb import write
from analyzers.recommend.verdict import NOTHING_WORTH_DOING, gains_text, verdict
from logparse.libraries.override_formats import writers_for
from logparse.model import Advise, ChangeProgram, Replay, Search, Setting, UseRows
from logparse.quoting import file_name
from logparse.store import command_line
from logparse.store.settling import settling
from logparse.text import pluralize

if TYPE_CHECKING:
    from analyzers.actions import ActionResult
    from analyzers.explore.load.analysis import Analysis
    from analyzers.explore.load.beside import Beside
    from analyzers.job.gpu_time import GpuTime
    from logparse.model import Finding

_TEXT_FILES = (".sh", ".md", ".json", ".py")


def verdict_of(
    analysis: Analysis,
    store: str | None,
    other: Beside,
    runs: Sequence[str] = (),
    alike: Sequence[str] = (),
) -> PageVerdict:
    """Collect what the web page and the report show about a run, except its table of GEMMs and convolutions.

    * ``store``: URL of the Parquet folder, for the command lines that the user is shown.
    * ``other``: the comparison with another run.
    * ``runs``: all stored runs. Commands for a new run use another name.
    * ``alike``: runs that call the same GEMMs or convolutions (``beside.runs_alike``).
    """
    conclusion = verdict(analysis.recommendation)
    return PageVerdict(
        headline=analysis.headline,
        nothing_left=analysis.headline.startswith(NOTHING_WORTH_DOING),
        lines=analysis.lines,
        shows=dict(analysis.shows),
        about=dict(analysis.about),
        actions=tuple(cards(analysis.recommendation, store, runs)),
        order=name_order(conclusion.todo),
        together=gains_text(conclusion),
        time=time_split(analysis.recommendation),
        beside=times_beside(analysis.recommendation.gpu_time, other.gpu_time),
        objects=tuple(x.text for x in analysis.recommendation.object_calls),
        changed=tuple(other.changed.items()),
        calls=tuple(other.calls),
        proposed=other.proposed,
        alike=tuple(alike),
    )


def cards(recommendation: Recommendation, store: str | None = None, runs: Sequence[str] = ()) -> list[Card]:
    """Return the web page's cards about the changes that ``recommend`` proposes, in the same order.

    ``store`` and ``runs`` are described in ``verdict_of``.
    """
    conclusion = verdict(recommendation)
    return [_action(x, recommendation, store, runs, conclusion.per(x)) for x in conclusion.todo]


def _action(todo: Todo, recommendation: Recommendation, store: str | None, runs: Sequence[str], per: str) -> Card:
    results = [x for x in recommendation.actions if x.action.name in todo.names]
    result = next((x for x in results if x.action.name == todo.name), None)
    findings = [recommendation.findings[n - 1] for n in todo.findings]
    remarks = [x for x in recommendation.remarks if x.analyzer == todo.name]
    advice = next((x.advice for x in (*remarks, *findings) if x.advice), None)
    changes, detail = _settle(todo) if todo.assumes else change_text(todo), _detail(todo, result, advice)
    # Advice often says what to change, in more words.
    if detail and (isinstance(todo.remedy, Advise) or changes.partition(" and ")[0] in detail):
        changes = ""
    waits = next((x.evidence.waits_for for x in remarks if x.evidence.waits_for), None)
    commands, traced = _list_commands(todo, results, recommendation, store, runs), recommendation.gpu_time is not None
    labels = {label for label, _ in commands}
    note = [next_commands.explain_check(recommendation.run, traced=traced)] if next_commands.CHECK in labels else []
    if next_commands.SEARCH in labels:
        note += [f"write again adds the rows that run {recommendation.run}-search found to the same files"]
    return Card(
        name=todo.name,
        title=todo.title,
        detail=detail if detail not in changes else "",
        saves=saving_texts([todo], alone=True)[0],
        gain=gain(todo) if todo.gain is None else f"{gain(todo)} {per}" if todo.usual is None else per,
        evidence=todo.certainty,
        changes=changes,
        files=isinstance(todo.remedy, UseRows | Search) or any(map(has_lines, results)),
        commands=commands,
        note="; ".join(note),
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


_MARKS: Mapping[str, str] = {"communication": "communication", "host": "idle"}
"""Kind of work that the timeline marks for a proposal, by what the step waits for."""
"""Name of the folder for the recommendation's files, in the command lines that the user is shown."""


def _list_commands(
    todo: Todo, results: Sequence[ActionResult], found: Recommendation, store: str | None, runs: Sequence[str]
) -> tuple[Command, ...]:
    """Return the command lines with which the user can carry out one proposal of ``recommend``, and check it.

    Each has the label with which the terminal shows it.

    If no command line can do that, it is the command that tries the change in the job, or else the command that
    explains the proposal.
    """
    run, folder = found.run, f"overrides-{file_name(found.run)}"
    write = command_line(store, "recommend", "--run", run, "--out", folder)
    if isinstance(todo.remedy, UseRows):
        # ``settling`` gives commands that find out whether the condition holds. The last one is ``recommend``, which
        # writes rows if they save time.
        if todo.assumes:
            return tuple(("settle", line) for line in settling(store, run, runs))
        applied = f"{command_line(None, 'run', '--with', folder)} -- JOB"
        checked = next_commands.check_files(store, run, folder) if _writes_override_files(found) else None
        confirmed = None if todo.confirmed else next_commands.confirm(store, run)
        apply = next_commands.APPLY if checked else "apply"
        timed = checked and found.gpu_time is None and next_commands.time_files(store, runs, folder)
        proofs = (next_commands.CHECK, checked), (next_commands.TIME, timed)
        steps = ((next_commands.CONFIRM, confirmed), ("write", write), *proofs, (apply, applied))
        return tuple((label, str(line)) for label, line in steps if line)
    if isinstance(todo.remedy, Search):
        scripts = names_of_scripts(found.findings[n - 1].problem for n in todo.findings)
        places = " ".join(f"{folder}/*/{name}" for name in scripts)
        search = f'for S in {places}; do (cd "${{S%/*}}" && sh "${{S##*/}}"); done'
        # The last command lists the rows that use what the search has found.
        ingest = next_commands.ingest_found(store, run, f"{folder}/*", scripts)
        found_rows = ("write", write), (next_commands.SEARCH, search), ("ingest", ingest), ("write again", write)
        return *found_rows, (next_commands.CHECK, next_commands.check_files(store, run, folder))
    if results and all(map(has_lines, results)):
        made = "; ".join(map(calls, results))
        program = f"PYTHONPATH={folder} python YOUR_PROGRAM"
        return ("write", write), ("apply", program), ("", f"# in it: import apply; {made}")
    if isinstance(todo.remedy, Replay | Setting):
        only = ("--only", "actions") if isinstance(todo.remedy, Setting) else ()
        return (("measure", command_line(store, "replay", "--run", run, *only)),)
    if isinstance(todo.remedy, ChangeProgram) and todo.remedy.solution in {x.name for x in ACTIONS}:
        return (("try", f"{command_line(None, 'try', todo.remedy.solution)} -- JOB"),)
    if todo.waits_for == "host" and todo.usual is not None:
        # Without the profiler, the host may be so fast that nothing waits for it.
        return (("measure", f"{command_line(store, 'capture', '--trace', '2')} -- JOB"),)
    return (("explain", command_line(store, "recommend", "--run", run, "--explain", todo.name)),)


def _writes_override_files(found: Recommendation) -> bool:
    """Tell whether ``recommend`` would write a file with override rows, without writing it.

    That depends on the library and the machine only, so the first row of each of them is enough.
    """
    firsts: dict[object, Finding] = {}
    for finding in found.findings:
        if (row := finding.override) is not None:
            firsts.setdefault((row.solution.library, type(row.problem), frozenset(row.target.items())), finding)
    some, writers = replace(found, findings=tuple(firsts.values()), ladder=()), tuple(writers_for(found.overrides))
    made = [make_files(some, facts, writers, Settings()) for facts in targets(some, Settings()).values()]
    return any(x.name != apply_script.NAME and apply_script.settings_of(x) for of in made for x in of.files)


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
    mean = f", mean of {steps:,.0f}" if steps > 1 else ""
    by_step = of.unit == "step"
    stepped = found.gpu_time.optimizer_steps if found.gpu_time is not None else 0
    marked = f", {pluralize(stepped, 'optimizer step')}" if stepped else ""
    named = f"A {of.word}{mean}{of.profiled}" if by_step else f"{capitalize_first(of.whole)}{marked}{of.profiled}"
    return TimeSplit(named, tuple((x.name, x.us) for x in of.split), steps if by_step and steps > 1 else 0.0)


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
