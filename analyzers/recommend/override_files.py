"""Make the files for each machine: override files, their ``apply.sh``, and scripts that search for faster kernels.

An override row is written into every file whose format can express it. If it is not written, a note states the reason.
For calls without a known better kernel there are scripts that search on the GPU. Such a script writes into a database
or tuning file of its own, never into the user's. The user ingests its output afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analyzers.evidence.tables import Settings
from analyzers.overrides.write import make
from analyzers.recommend.apply_script import script as apply_script
from analyzers.recommend.files_action import to_write
from analyzers.recommend.ranking import Recommendation, to_search
from logparse.errors import EmissionError
from logparse.libraries.all_search_scripts import SEARCH_SCRIPTS
from logparse.libraries.builds import BUILDS, can_decide_for, facts_of_build, folder
from logparse.libraries.kinds.format import Emission, Writer
from logparse.libraries.kinds.search_script import SearchScript
from logparse.model import Finding, Override, Problem, Replay
from logparse.quoting import Shell
from logparse.target import Facts, arch, same_device, seen_by
from logparse.text import pluralize


@dataclass(frozen=True)
class TargetFiles:
    """The files for one machine, and notes about what was not written and why."""

    facts: Facts
    files: Sequence[Emission]
    notes: Sequence[str]
    name: str = ""


def targets(recommendation: Recommendation, settings: Settings) -> Mapping[str, Facts]:
    """Return the machines for which files are made, by the name of the folder for the files.

    If the user described a machine, it is the only one.
    """
    named = [settings.target] if settings.target else [dict(x.target) for x in recommendation.overrides]
    out: dict[str, Facts] = {}
    # Otherwise each machine on which better kernels were measured gets a folder of its own, even if two machines differ
    # only in a fact that the folder's name does not show.
    for facts in sorted({tuple(sorted(x.items())) for x in named}) or [()]:
        name, number = folder(dict(facts)), 2
        while name in out:
            name, number = f"{folder(dict(facts))}-{number}", number + 1
        out[name] = dict(facts)
    return out


def searches_of(
    target: Facts, every: Iterable[Facts], searches: Sequence[SearchScript] = SEARCH_SCRIPTS
) -> tuple[SearchScript, ...]:
    """Return the scripts that search on one of the machines for which files are made.

    Several entries of ``every`` may be one machine, each with the build of another library. A script is left out if
    another entry states the build of the script's library, and this entry states the build of other libraries only.
    """

    def states(facts: Facts, library: str) -> bool:
        return any(name in facts for name in facts_of_build(library))

    def elsewhere(search: SearchScript) -> bool:
        others = (x for x in every if same_device(x, target) is not False)
        return not states(target, search.library) and any(states(x, search.library) for x in others)

    known = any(states(target, library) for library in BUILDS)
    return tuple(x for x in searches if not (known and elsewhere(x)))


def make_files(
    recommendation: Recommendation,
    target: Facts,
    writers: Sequence[Writer],
    settings: Settings,
    *,
    folder: str = ".",
    gpus: int = 1,
    searches: Sequence[SearchScript] = SEARCH_SCRIPTS,
) -> TargetFiles:
    """Return the files for one machine: override files, scripts that search, and ``apply.sh``.

    Override files make a library use other kernels. Notes state which overrides were left out, and why.

    * ``folder``: where the files will be.
    """
    offered = [(x, x.override) for x in recommendation.findings if x.override is not None]
    # An override for another device or build is left out. An override whose facts equal the target's never is.
    known = [
        x for x, y in offered if dict(y.target) == dict(target) or can_decide_for(y.target, target, y.solution.library)
    ]
    mine = [x.override for x in to_write(known, settings) if x.override is not None]
    files: list[Emission] = []
    ladder = [x for x in recommendation.ladder if x.override in mine]
    notes = [x.line for x in ladder]
    own = {x.problem.text for x in mine}
    between = [row for rung in ladder for row in rung.rows if row.problem.text not in own]
    mine += between if settings.max_rows is None else between[: max(settings.max_rows - len(mine), 0)]
    rows: list[Override] = []
    for writer in writers:
        accepted = list(filter(writer.accepts, mine))
        if recommendation.object_calls and writer.name == "hipblaslt-tuning-file":
            from logparse.libraries.hipblaslt.tuning_rules import with_objects

            accepted = with_objects(accepted, recommendation.object_calls, target)
        made = make(writer, accepted, seen_by(gpus, target))
        files += made.files
        rows += made.held
        # An override is left out if a value that its library checks is unknown. The note then states what is missing.
        refused = ((pluralize(count, "override"), why) for why, count in made.refused.items())
        notes += [f"{writer.name}: {count} not written: {why}" for count, why in refused]
    unwritten = [x for x in mine if not any(writer.accepts(x) for writer in writers)]
    notes += [f"no override file format can hold {x.solution.text} for {x.problem.label}" for x in unwritten]
    held = {x.problem.text for x in rows}
    written = [x for x in known if x.override is not None and x.override.problem.text in held]
    caution = _warn_of_unconfirmed(known if settings.confirmed_only else written, settings)
    notes = [*([caution] if caution else []), *notes]
    apply = apply_script(rows, files, target, folder, "" if settings.confirmed_only else caution)
    tuning, left_out = _searches(recommendation, target, searches)
    return TargetFiles(target, (*files, *([apply] if apply else []), *tuning), (*notes, *left_out))


def _searches(of: Recommendation, target: Facts, searches: Sequence[SearchScript]) -> tuple[list[Emission], list[str]]:
    """Return scripts that let the user search for faster kernels on a machine, and notes.

    NVIDIA's libraries have no tool that searches, so no scripts are made for them.
    """
    concerned = [x for x in of.findings if _is_about_target(x, target)]
    if (arch(target) or "").startswith("sm_") or (of.cuda and arch(target) is None):
        replayed = (x for x in concerned if isinstance(x.remedy, Replay) and x.problem is not None)
        count = len({x.problem for x in (*to_search(concerned), *replayed)})
        note = (
            f"NVIDIA has no tool that searches solutions for {count:,} problem(s); measure them with `logparse replay`"
        )
        return [], [note] if count else []
    made, notes = scripts(concerned, searches)
    if of.aiter_misses:
        from logparse.libraries.aiter.log import write_untuned_shapes

        missed = write_untuned_shapes(of.aiter_misses)
        made += missed.files
        notes += missed.notes
    return made, notes


def _warn_of_unconfirmed(known: Sequence[Finding], settings: Settings) -> str:
    """Return a warning that states how many replacement kernels (overrides) are not confirmed by a test.

    The text is empty if all are confirmed.
    """
    doubtful = sum(not x.confirmed for x in known)
    if not doubtful:
        return ""
    if settings.confirmed_only:
        return (
            f"{doubtful:,} of {len(known):,} overrides are not written, because no replay confirmed them: {UNCONFIRMED}"
        )
    return f"{doubtful:,} of {len(known):,} overrides are not confirmed (--confirmed leaves them out): {UNCONFIRMED}"


UNCONFIRMED = (
    "the fastest of many measured times is partly chance, so the true gain is smaller and may be zero (`logparse "
    "replay` on the target tests it)"
)
"""Warning that an override's gain may be chance, because it was chosen as the fastest of many single measurements."""


def _is_about_target(finding: Finding, target: Facts) -> bool:
    """Tell whether a finding (a possible saving) may be about this machine.

    Returns False only if the finding is known to be from another device.
    """
    known = {"arch": finding.evidence.arch, "cu_count": finding.evidence.cu_count}
    place = {name: value for name, value in known.items() if value is not None}
    return same_device(place, target) is not False


# ------------------------------------------------------------ scripts that search

_USE = Shell("""\
# Run this script on the GPU. It takes hours, begins with the most valuable problem, and can be stopped at any time.
(cd {folder} && sh {path})
# Then ingest its files and recommend again, as it prints.
""")


def scripts(
    findings: Sequence[Finding], searches: Sequence[SearchScript] = SEARCH_SCRIPTS
) -> tuple[list[Emission], list[str]]:
    """Return shell scripts that search for faster kernels (``tune_miopen.sh`` …), and notes about calls left out."""
    # A search is needed for calls that seem too slow, but for which no faster kernel was measured. The calls keep the
    # order of the findings. The script that contains the first of them comes first.
    problems = list(dict.fromkeys(x.problem for x in to_search(findings)))
    concerned = [(search, [x for x in problems if isinstance(x, search.problems)]) for search in searches]
    made, notes = [], []
    for search, own in sorted(concerned, key=lambda pair: problems.index(pair[1][0]) if pair[1] else 0):
        commands, refused = _commands(own, search)
        if commands:
            made.append(Emission(search.name, search.text(commands).data, _USE))
        if refused:
            notes.append(f"{search.name}: {pluralize(len(refused), 'problem')} left out: {refused[0]}")
    return made, notes


def names_of_scripts(
    problems: Iterable[Problem | None], searches: Sequence[SearchScript] = SEARCH_SCRIPTS
) -> tuple[str, ...]:
    """Return the names of the scripts that search for faster kernels for these operators, such as ``tune_miopen.sh``.

    The script of the first operator comes first.
    """
    names = (search.name for problem in problems for search in searches if isinstance(problem, search.problems))
    return tuple(dict.fromkeys(names))


def _commands(problems: Sequence[Problem], search: SearchScript) -> tuple[list[Shell], list[str]]:
    """Return the commands that search for faster kernels for these operators, each command once.

    The second result says why there is no command for some of the operators.
    """
    commands: dict[Shell, None] = {}
    refused: list[str] = []
    for problem in problems:
        try:
            commands.setdefault(search.command(problem))
        except EmissionError as error:
            refused.append(str(error))
    return list(commands), refused
