"""Judge whether changes to a job gained the time that a replay had promised.

``verify --action`` and ``tune`` begin here. ``proof.py`` has the rules of the judgement.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.actions import ACTIONS, ActionResult
from analyzers.actions.action import with_job_interval
from analyzers.actions.totals import factors_of, results
from analyzers.compare.both_runs import BothRuns
from analyzers.compare.doubts import describe_unproven, find_doubts, find_lost, find_notes, find_unapplied
from analyzers.compare.proof import ActionProof
from analyzers.compare.unit_time import SideBySide, Times
from analyzers.evidence.tables import Settings, Tables
from analyzers.job.step.answer import BESIDE_LOGS, StepAnswer, beside_logs, step_of
from logparse.errors import InputError
from logparse.model import Gain


def verify_actions(
    before: Tables,
    after: Tables,
    names: Sequence[str],
    files: ActionResult | None = None,
    times: Times | SideBySide | None = None,
) -> ActionProof:
    """Compare a run without and a run with changes, and judge whether the changes gained what was promised.

    * ``before``, ``after``: the tables of the two runs, from ``tables_of``.
    * ``names``: the changes that were made in the second run.
    * ``files``: the effect of override files that were also used in the second run.
    * ``times``: step times from further runs that took turns. If they are given, the wall time comes from them.

    Raises InputError if no replay of the first run timed a named change.
    """
    settings = Settings()
    known = [x.action.name for x in results(before, ACTIONS, settings)]
    unknown = [name for name in names if name not in known]
    if unknown:
        there = (
            f"the timed actions are {', '.join(known)}"
            if known
            else "no change to the job was timed yet (`logparse replay` times such changes, called actions)"
        )
        there += (
            "; to judge override files instead, run `logparse verify BEFORE AFTER FILE…` with the names of the runs "
            "without and with these files"
        )
        raise InputError(f"no replay of run {before.run} timed the action {', '.join(unknown)}: {there}")
    both = BothRuns(before, after, settings)
    chosen = [x for x in results(both.before, ACTIONS, settings) if x.action.name in names]
    now, then = both.us
    by_turns = both.wall(times) if times else None
    wall = by_turns or both.wall(both.timed)
    doubts = [*find_doubts(both), *find_unapplied(both, names, files is not None)]
    given = [x for y in (*chosen, *([files] if files else [])) for x in factors_of(y).items()]
    # If several actions have a factor for a call, a factor that is not 1 is preferred.
    under = dict(sorted(given, key=lambda x: x[1].value != 1.0))
    step = step_of(both.alike, under)
    return ActionProof(
        before=before.run,
        after=after.run,
        actions=(*names, *([files.action.name] if files else [])),
        unit=both.unit,
        promised=with_job_interval(_sum_predicted_gains(chosen, files, now)).per(both.per[0]),
        measured=Gain(now / both.per[0], then / both.per[1]),
        groups=both.groups(chosen, files),
        wall=None if doubts else wall,
        share=both.share,
        collectives_us=both.collectives_us,
        step=step if isinstance(step, StepAnswer) else None,
        launched=both.launched,
        host_us=sum(x.host_us for x in under.values()),
        same=both.same,
        doubts=tuple(doubts),
        lost=tuple(find_lost(both, names)),
        unproven=describe_unproven(both, names),
        notes=(
            *(x.in_part for x in chosen if x.in_part),
            *find_notes(both, wall, names),
            *[BESIDE_LOGS] * (wall is not by_turns and any(map(beside_logs, both.runs))),
        ),
    )


def _sum_predicted_gains(chosen: Sequence[ActionResult], files: ActionResult | None, now_us: float) -> Gain:
    """Add up the predicted gains of several changes, for a job whose kernels take ``now_us`` now.

    ``files`` are override files (lists of kernels for a library).
    """
    ends = ([us - x.now_us for us in (x.then_us, *x.widened.ends_us)] for x in chosen)
    change, low, high = (sum(x) for x in zip((0.0, 0.0, 0.0), *ends, strict=True))
    if files is not None and files.now_us:
        apart = {x.of for x in files.parts}.isdisjoint(x.of for y in chosen for x in y.parts)
        share = now_us / files.now_us  # The files' times are of the whole run, with units of all kinds.
        more = [share * (x - files.now_us) for x in (files.then_us, *files.ends_us)]
        # If the files and another change concern the same call, the files' gain is not added, because the other change
        # may leave nothing for the files to gain.
        change, low, high = change + more[0] * apart, low + more[1], high + more[2] * apart
    return Gain(now_us, now_us + change, now_us + low, now_us + high)
