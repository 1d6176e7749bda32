"""The action of applying the override files: what all of them together do to the job, from the findings behind them."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.actions import Action, ActionResult
from analyzers.actions.action import Application, Part
from analyzers.actions.totals import group_of
from analyzers.recommend.confidence import basis, pre_us
from logparse.model import Finding

OVERRIDES = Action(
    name="overrides",
    kind="files",
    about="rows in the override files of the target",
    change=lambda work, job: None,
    application=lambda job: None,
    needs="the program as it is: another layout or size makes other problems, which other rows serve",
)
_LINE = "source apply.sh of the target's folder in the shell that starts the job, or logparse run --with FOLDER -- …"


def files_action(findings: Sequence[Finding], now_us: float, steps: float | None) -> ActionResult | None:
    """The override files of the findings in a job of ``now_us`` GPU time; None where no file saves a known time.

    The interval adds those of the confirmed savings; of a saving that is not confirmed, anything down to nothing may
    remain, as the fastest of many times was lucky in part.
    """
    rows = [x for x in findings if x.override is not None and x.saving_us]
    if not rows:
        return None
    parts = tuple(map(_part, rows))
    changed = sum(x.now_us for x in parts)
    now_us = max(now_us, changed)
    confirmed = sum(basis(x) == "confirmed" for x in rows)
    return ActionResult(
        action=OVERRIDES,
        application=Application(
            line=f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}, {confirmed:,} confirmed: {_LINE}"
        ),
        now_us=now_us,
        then_us=now_us - sum(x.saving_us or 0.0 for x in rows),
        low_us=now_us - sum(x.saving_high_us or x.saving_us or 0.0 for x in rows),
        high_us=now_us - sum(x.saving_low_us or 0.0 for x in rows),
        changed_us=changed,
        measured_us=changed,
        parts=parts,
        steps=steps,
    )


def _part(finding: Finding) -> Part:
    saving = finding.saving_us or 0.0
    now = max((pre_us(finding) or 0.0) * (finding.calls or 1), saving)
    problem = finding.problem
    return Part(
        label="" if problem is None else problem.label,
        group="" if problem is None else group_of(problem),
        calls=finding.calls,
        now_us=now,
        then_us=now - saving,
    )
