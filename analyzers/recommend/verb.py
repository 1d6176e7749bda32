"""The command ``recommend``: find out what would make a job faster, and write it to files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import ANALYZERS, host_bound
from analyzers.job.gpu_time import gpu_time
from analyzers.overrides.write import placed, write_placed
from analyzers.recommend import apply_module, apply_script, documents, screen
from analyzers.recommend.limit import DATA, waits_for_data
from analyzers.recommend.override_files import TargetFiles, make_files, searches_of, targets
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.render import name_proposal, rows
from analyzers.recommend.todo_from_actions import find_hidden_changes
from analyzers.recommend.verdict import verdict
from logparse.libraries.kinds.format import Emission
from logparse.libraries.override_formats import writers_for
from logparse.model import Finding
from logparse.output import Answer
from logparse.quoting import file_name
from logparse.store import Store
from logparse.text import pluralize, short_path

STAGES = len(ANALYZERS) + 3
"""The number of stages of ``advise``: load the data, run each analyzer, rank the findings, simulate the step."""
FOLDER = Path("overrides")
"""The folder for the files of a recommendation, unless the user names another."""
_REPLACES = (
    "these files replace the override files that the job reads now; to keep the other rows of those files, add "
    "--own FILE"
)


def advise(
    store: Store,
    settings: Settings,
    run: str | None = None,
    begins: Callable[[str], None] = lambda stage: None,
    *,
    count_left_out: bool = False,
) -> Recommendation:
    """Analyse a run (by default the latest), and return and store what is recommended.

    * ``begins``: called with each stage's name before it begins.
    * ``count_left_out``: also count what no finding uses (``Recommendation.not_used``).

    Raises StoreError for an unknown run.
    """
    begins("reading the store")
    tables = tables_to_analyse(store, run, count_left_out=count_left_out)
    recommendation = replace(recommend(tables, settings, begins=begins), not_used=tables.not_used)
    if recommendation.gpu_time is not None:
        begins("simulating the step")
        recommendation = with_step(recommendation, tables)
    found = rows(recommendation)
    found["solution"] = [name_proposal(finding) for finding in recommendation.findings]
    found["comparable"] = [_read_comparable(finding) for finding in recommendation.findings]
    with suppress(OSError):  # A store may be read-only. The findings are printed and written to files all the same.
        store.write_findings(found, tables.run)
    return recommendation


def _read_comparable(finding: Finding) -> str | None:
    """Return the list of measured operators and times from which a finding's time is estimated, as text."""
    named = finding.evidence.details.get("comparable")
    return named if isinstance(named, str) else None


def with_step(recommendation: Recommendation, tables: Tables) -> Recommendation:
    """Add to a recommendation the time of a step with each change, simulated from the job's traces."""
    from analyzers.recommend.step_times import StepTimes, step_times, with_expected  # Only runs with traces need this.

    step = step_times(tables, recommendation.actions)
    if isinstance(step, StepTimes):
        marked, time = gpu_time(tables), recommendation.gpu_time
        step = with_expected(step, replace(recommendation, gpu_time=marked), tables)
        if marked is not None and time is not None and time.steps != marked.steps:  # The user states the steps.
            step = step.of_part((time.steps or 1.0) / (marked.steps or 1.0))
    found = replace(recommendation, step=step if isinstance(step, StepTimes) else step.reason)
    now, time = found.now, found.gpu_time
    if now is None or not waits_for_data(found):
        return found
    waits = (x.evidence.waits_for == "host" for x in found.remarks)
    share = now.shares[DATA]
    remarks = (host_bound.of_data(x, time, share) if y else x for x, y in zip(found.remarks, waits, strict=True))
    return replace(found, remarks=tuple(remarks))


def job_module(found: Recommendation) -> Emission | None:
    """Return the file ``apply.py`` of a recommendation, or None if lines of Python can make none of its changes."""
    return apply_module.module(
        found.actions,
        step_gain=found.step_gain,
        hidden=find_hidden_changes(found),
        in_job=found.in_job,
        combination=found.combination,
    )


def write(
    recommendation: Recommendation, settings: Settings, out: Path, gpus: int = 1, own: Sequence[str] = ()
) -> tuple[list[Emission], list[str]]:
    """Write ``report.md`` and ``findings.json`` into ``out``, and the files for each machine into subfolders.

    * ``own``: override files that the user's job reads now. Their other rows are kept in the new files.
    * ``gpus``: the number of devices that a process on the machine sees, because PyTorch reads one TunableOp file for
      each.

    Returns the written files, and notes for the user. The notes state what was not written and why, and which files an
    earlier ``recommend`` left in ``out``. Such old files are renamed, so that they are not applied by mistake.

    All files change together, ``apply.sh`` after the files that it applies. Raises OSError, and leaves all old files,
    if a file cannot be written or a link leads out of ``out``.
    """
    if own:
        from analyzers.overrides.merge import with_own  # This import loads all code that reads input files.

    writers = tuple(writers_for(recommendation.overrides))
    made: list[TargetFiles] = []
    machines = targets(recommendation, settings)
    for name, facts in machines.items():
        folder = (out / name).absolute()
        searches = searches_of(facts, machines.values())
        emitted = make_files(recommendation, facts, writers, settings, folder=str(folder), gpus=gpus, searches=searches)
        covered = any(file.name == apply_script.NAME for file in emitted.files)
        joined, kept = with_own(emitted.files, own, facts) if own else (emitted.files, [])
        files = [replace(file, applied=covered and bool(apply_script.settings_of(file))) for file in joined]
        files = placed(files, folder)
        notes_of = (*emitted.notes, *kept, *([_REPLACES] if covered and not own else []))
        made.append(TargetFiles(facts, files, notes_of, name))
    notes = [f"{target.name}: {note}" for target in made for note in target.notes]
    lines = job_module(recommendation)
    program = placed([] if lines is None else [lines], out)
    texts = documents.documents(recommendation, settings, made, "; ".join(lines.lines) if lines else "")
    written = [*(file for target in made for file in target.files), *program, *placed(texts, out)]
    earlier = documents.earlier_files(out)
    write_placed(sorted(written, key=lambda file: file.name == apply_script.NAME), out)
    return written, [*notes, *_set_aside(earlier, {file.path for file in written if file.path is not None})]


def choose_folder(run: str) -> Path:
    """Return the folder for the files of a run.

    It is ``overrides``. If ``overrides`` has the files of another run, it is ``overrides-RUN``. So the printed commands
    of the other run still work.
    """
    earlier = documents.run_of_files(FOLDER)
    return FOLDER if earlier in (None, run) else FOLDER.with_name(f"{FOLDER.name}-{file_name(run)}")


def has_content(found: Recommendation) -> bool:
    """Tell whether there is something to apply, to search, to do or to read, so that its files are worth a folder."""
    return bool(found.findings or found.actions or verdict(found).todo)


def answer(
    found: Recommendation,
    settings: Settings,
    out: Path | None,
    gpus: int,
    own: Sequence[str],
    *,
    n: int | None,
    explain: str | None,
    verbose: bool,
    store: Store,
) -> Answer:
    """Write the files of a recommendation, and return what the terminal shows.

    The list of things to do is returned even if the files cannot be written.

    * ``out`` is the folder for the files. None: ``choose_folder`` chooses it. Then nothing is written if there is
      nothing to do and the folder has no files of this run.
    * ``n`` limits the number of things to do.
    * ``explain`` is the number or name of one thing to do. Then everything about it is returned, and nothing is
      written.
    * ``verbose`` returns the whole report.
    * ``store`` is the Parquet folder that the printed commands name.
    """
    table = rows(found).head(n or len(found.findings))
    if explain is not None:
        return Answer(screen.explain_change(found, explain), table, "recommend")
    chosen = choose_folder(found.run) if out is None else out
    has_files = has_content(found)
    # Files of an earlier answer about this run are replaced, so that nobody applies them by mistake.
    writes = has_files or out is not None or documents.run_of_files(chosen) == found.run
    own_folder, out = out is None and chosen != FOLDER and has_files, chosen
    errors: list[str] = []
    made: list[Emission] = []
    renamed: list[str] = []
    told: list[str] = []
    try:
        made, told = write(found, settings, out, gpus, own) if writes else ([], [])
        renamed = [x for x in told if x.endswith(".old")]
    except OSError as error:
        errors = [f"error: {error.filename or out}: {error.strerror or error}; the files were not written (--out)"]
    notes = [f"not used: {found.not_used}"] if found.not_used and not verbose else []
    if renamed:
        notes.append(
            f"{pluralize(len(renamed), 'file')} of an earlier recommend in {short_path(str(out))} got the ending .old, "
            "so that they are not applied by mistake; to keep the files of several runs, use --out"
        )
    if own_folder and made:
        notes.append(f"the files are in {out}, because {FOLDER} has the files of another run")
    if verbose:
        written = (x.data.decode() for x in made if x.name == documents.REPORT_NAME)
        text = (next(written, None) or documents.report(found, [])).splitlines()
    else:
        text = screen.screen(found, screen.Written(out, made, store.url, store.runs(), told), n)
    return Answer(text, table, "recommend", errors=errors, code=int(bool(errors)), notes=lambda: notes)


def _set_aside(earlier: Sequence[Path], written: Collection[Path]) -> list[str]:
    """Rename files of an earlier ``recommend`` that are not part of this one to ``….old``.

    Returns a note about each.
    """
    notes = []
    for path in earlier:
        if path.absolute() not in written and path.is_file():
            path.replace(path.with_name(f"{path.name}.old"))
            notes.append(
                f"{path} is from an earlier recommend and not part of this one, so it was renamed to {path.name}.old"
            )
    return notes
