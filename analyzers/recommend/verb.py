"""A store to a recommendation, and a recommendation to files: what the verb ``recommend`` does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import ANALYZERS, host_bound
from analyzers.overrides.write import placed, write_placed
from analyzers.recommend import apply_module, apply_script, documents, screen
from analyzers.recommend.override_files import TargetFiles, emissions, targets
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.render import proposed, rows
from analyzers.recommend.verdict import hidden, waits_for_data
from logparse.libraries.kinds.format import Emission
from logparse.libraries.override_formats import writers_for
from logparse.output import Answer
from logparse.store import Store

STAGES = len(ANALYZERS) + 3
"""Stages of ``advise``: the store is read, each analyzer runs, findings are ranked, the step is simulated."""
_REPLACES = (
    "these files take the place of override files that the job reads now; --own FILE keeps the other rows of those"
)


def advise(
    store: Store, settings: Settings, run: str | None = None, begins: Callable[[str], None] = lambda stage: None
) -> Recommendation:
    """Analyse a run (default the latest) and keep its findings in the store, unless that cannot be written.

    ``begins`` is called with the name of each stage before it begins.  Raises StoreError for an unknown run.
    """
    begins("reading the store")
    tables = tables_to_analyse(store, run)
    recommendation = recommend(tables, settings, begins=begins)
    if recommendation.gpu_time is not None:
        begins("simulating the step")
        recommendation = with_step(recommendation, tables)
    found = rows(recommendation)
    found["solution"] = [proposed(finding) for finding in recommendation.findings]
    with suppress(OSError):  # a store to read only: what is found is printed and written all the same
        store.write_findings(found)
    return recommendation


def with_step(recommendation: Recommendation, tables: Tables) -> Recommendation:
    """The recommendation with the step under its actions, simulated from the traces of the tables' run."""
    from analyzers.recommend.step_times import StepTimes, step_times  # only of runs with traces

    step = step_times(tables, recommendation.actions)
    found = replace(recommendation, step=step if isinstance(step, StepTimes) else step.reason)
    if not waits_for_data(found):
        return found
    waits = (x.evidence.waits_for == "host" for x in found.remarks)
    remarks = (host_bound.of_data(x) if y else x for x, y in zip(found.remarks, waits, strict=True))
    return replace(found, remarks=tuple(remarks))


def write(
    recommendation: Recommendation, settings: Settings, out: Path, gpus: int = 1, own: Sequence[str] = ()
) -> tuple[list[Emission], list[str]]:
    """Write ``report.md`` and ``findings.json`` into ``out``, and every target's files into a folder of its own there.

    Also returns notes for the files' reader: what was not written and why, and which files of an earlier ``recommend``
    into ``out`` are not of this one: they get another name, so that they are not applied by mistake.
    ``own`` are override files that the user's job reads now, whose other rows are kept in the new ones.
    ``gpus`` is how many devices a process of the target sees: PyTorch reads one TunableOp file for each.

    All files change together, ``apply.sh`` after the files that it applies.  Raises OSError, and leaves all old files,
    where one cannot be written or a link leads out of ``out``.
    """
    if own:
        from analyzers.overrides.merge import with_own  # with all that reads input files

    writers = tuple(writers_for(recommendation.overrides))
    made: list[TargetFiles] = []
    for name, facts in targets(recommendation, settings).items():
        folder = (out / name).absolute()
        emitted = emissions(recommendation, facts, writers, settings, folder=str(folder), gpus=gpus)
        covered = any(file.name == apply_script.NAME for file in emitted.files)
        joined, kept = with_own(emitted.files, own, facts) if own else (emitted.files, [])
        files = [replace(file, applied=covered and bool(apply_script.settings_of(file))) for file in joined]
        files = placed(files, folder)
        notes_of = (*emitted.notes, *kept, *([_REPLACES] if covered and not own else []))
        made.append(TargetFiles(facts, files, notes_of, name))
    notes = [f"{target.name}: {note}" for target in made for note in target.notes]
    lines = apply_module.module(
        recommendation.actions,
        step_us=recommendation.step_us,
        hidden=hidden(recommendation),
        in_job=recommendation.in_job,
    )
    program = placed([] if lines is None else [lines], out)
    texts = documents.documents(recommendation, settings, made, "; ".join(lines.lines) if lines else "")
    written = [*(file for target in made for file in target.files), *program, *placed(texts, out)]
    earlier = documents.earlier_files(out)
    write_placed(sorted(written, key=lambda file: file.name == apply_script.NAME), out)
    return written, [*notes, *_set_aside(earlier, {file.path for file in written if file.path is not None})]


def answer(
    found: Recommendation,
    settings: Settings,
    out: Path,
    gpus: int,
    own: Sequence[str],
    *,
    n: int | None,
    explain: str | None,
    verbose: bool,
    store: str,
) -> Answer:
    """The list of what to do, with the files that ``write`` wrote; it is worth printing also where they cannot be
    written: ``n`` things, all about one (``explain``, its number or name; then nothing is written), or everything
    (``verbose``, the report).  ``store`` is the one that the printed commands name.
    """
    table = rows(found).head(n or len(found.findings))
    if explain is not None:
        return Answer(screen.explained(found, explain), table, "recommend")
    errors: list[str] = []
    made: list[Emission] = []
    try:
        made, _ = write(found, settings, out, gpus, own)
    except OSError as error:
        errors = [f"error: {error.filename or out}: {error.strerror or error}; the files were not written (--out)"]
    report = next((x.data.decode() for x in made if x.name == documents.REPORT_NAME), documents.report(found, []))
    brief = screen.screen(found, screen.Written(out, made, store), n)
    return Answer(report.splitlines() if verbose else brief, table, "recommend", errors=errors, code=int(bool(errors)))


def _set_aside(earlier: Sequence[Path], written: Collection[Path]) -> list[str]:
    """Rename files of an earlier ``recommend`` that were not written now."""
    notes = []
    for path in earlier:
        if path.absolute() not in written and path.is_file():
            path.replace(path.with_name(f"{path.name}.old"))
            notes.append(f"{path} is of an earlier recommend and no part of this one: now {path.name}.old")
    return notes
