"""The same time is saved once: findings of one problem, or of two texts that may be one call, share a claim.  Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analyzers.evidence.comparison import out_of_reach
from analyzers.evidence.joins import of_problems
from analyzers.evidence.ladders import LIBRARY, Race
from analyzers.findings import suboptimal_pick
from logparse.libraries.hipblaslt import tuning_file
from logparse.model import Advise, Finding, Override, Problem, fast_replace, problem_from_text, solution_from_text
from logparse.text import duration


def deduplicated(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    """The findings, each better solution of a problem once.

    A plain pick that another analyzer explains is left out, and the explanation takes over its override.  An inferred
    saving beside another one of the problem becomes a reason of that.  Of a problem whose calls no log counts and which
    may be a counted one (a TunableOp key beside the log's line), only findings are kept that the counted one does not
    have.
    """
    return _with_reasons(_without_uncounted(_explained(findings), links))


def rank(finding: Finding) -> tuple[bool, float, float, str, str]:
    """Sort key: known savings first and largest first, then the loss of one call, then the text."""
    saving = finding.saving_us
    return (saving is None, -(saving or 0.0), -(finding.per_call_us or 0.0), _text(finding), finding.message)


def one_claim_each(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    """Savings of one problem by several analyzers, or of problems that may be one: one of them keeps it, of the
    measured ones that of the override files, else the largest.  The others are made instead of it, not beside it: they
    state their worth, and save nothing.
    """
    same = _linked(links, {_text(x) for x in findings if x.saving_us}, both=True)
    claims: dict[str, str] = {}
    out = []
    for finding in sorted(findings, key=lambda x: (x.sureness == "estimated", x.override is None, rank(x))):
        text = _text(finding)
        if not text or not finding.saving_us or unreachable(finding):
            out.append(finding)
            continue
        by = {claims[x] for x in {text, *same.get(text, ())} if x in claims} - {finding.analyzer}
        claims.setdefault(text, finding.analyzer)
        out.append(_potential(finding, f"instead of what {min(by)} proposes") if by else finding)
    return out


def one_row_each(
    findings: Sequence[Finding], calls: Mapping[str, float], races: Callable[[], Mapping[str, Race]]
) -> list[Finding]:
    """Findings whose overrides compete for no row of hipBLASLt's tuning file, which has one for all calls that differ
    in β, bias or activation.

    That row gets the override that costs these calls least in all, each counted and timed for itself; the first one
    where a time is missing, and none where the library's own choices cost less.
    """
    rows: dict[tuple[str, str], list[Override]] = {}
    for x in findings:
        if x.override is not None and x.override.solution.library == LIBRARY:
            rows.setdefault(_row(x.override.problem, x.override.target), []).append(x.override)
    if not rows:
        return list(findings)
    targets = {place: found[0].target for (_, place), found in rows.items()}
    served: dict[tuple[str, str], dict[str, str]] = {}
    products = (text for text in calls if text.startswith("gemm "))  # a find-db has 100,000s of other calls
    for text in {*products, *(x.problem.text for found in rows.values() for x in found)}:
        problem = problem_from_text(text)
        for target in targets.values():
            served.setdefault(_row(problem, target), {})[text] = problem.label
    raced = races()
    best = {row: _cheapest([x.solution.text for x in found], served[row], calls, raced) for row, found in rows.items()}

    def judged(finding: Finding) -> Finding:
        override = finding.override
        row = ("", "") if override is None else _row(override.problem, override.target)
        others = [label for text, label in sorted(served.get(row, {}).items()) if text != _text(finding)]
        if override is None or row not in best or not others:
            return finding
        row_has = best[row] or "none, as its own choices cost less"
        message = f"{finding.message}; the library has one row for it and {' and '.join(others)}: {row_has}"
        return fast_replace(
            finding, message=message, remedy=finding.remedy if override.solution.text == best[row] else Advise()
        )

    return list(map(judged, findings))


def _row(problem: Problem, target: Mapping[str, str]) -> tuple[str, str]:
    """The row of a call in the file of a target; of a call without one the call itself."""
    return tuning_file.key(problem, target) or problem.text, repr(sorted(target.items()))


def _cheapest(
    solutions: Sequence[str], texts: Collection[str], calls: Mapping[str, float], races: Mapping[str, Race]
) -> str | None:
    """The solution that costs the calls least in all, None where the library's own choices cost no more; the first
    where a time is missing.
    """

    def cost(solution: str | None) -> float:
        known = (races.get(text, Race({})) for text in texts)
        times = (x.times.get(x.pick if solution is None else solution, math.inf) for x in known)
        return math.fsum(us * calls.get(text, 1.0) for text, us in zip(texts, times, strict=True))

    costs = {x: cost(x) for x in solutions}
    least = min(costs, key=costs.__getitem__)
    return solutions[0] if math.inf in costs.values() else None if cost(None) <= costs[least] else least


def reachable(finding: Finding) -> Finding:
    """The finding; one whose better solution nothing that a person does reaches states its worth, and saves nothing."""
    why = unreachable(finding)
    return finding if why is None or finding.saving_us is None else _potential(finding, why)


def unreachable(finding: Finding) -> str | None:
    """Why nothing that a person does for one problem reaches the better solution."""
    best = finding.evidence.best
    return None if best is None or finding.override is not None else out_of_reach(solution_from_text(best))


def without_saving(finding: Finding, **changes: object) -> Finding:
    """The finding of which no saving of the run is known."""
    return fast_replace(finding, saving_us=None, saving_low_us=None, saving_high_us=None, saving_share=None, **changes)


def _potential(finding: Finding, why: str) -> Finding:
    worth = f"potential, not a saving ({duration(finding.saving_us or 0.0)} per run): {why}"
    return without_saving(finding, message=f"{finding.message}; {worth}")


def _text(finding: Finding) -> str:
    return finding.problem.text if finding.problem is not None else ""


def _linked(links: pd.DataFrame, texts: set[str], *, both: bool) -> dict[str, set[str]]:
    """Problem → the problems that it may be, of these texts; with ``both`` these are among them, too."""
    rows = of_problems(links, texts)
    rows = rows[rows["other"].isin(texts)] if both else rows
    return {str(text): set(others) for text, others in rows.groupby("problem")["other"]}


def _explained(findings: Sequence[Finding]) -> list[Finding]:
    """Without the picks whose better solution another analyzer proposes, which takes over their overrides."""
    plain = {_better(x): x for x in findings if x.analyzer == suboptimal_pick.NAME}
    explained = {_better(x) for x in findings if x.analyzer != suboptimal_pick.NAME} - {None}
    out = []
    for finding in findings:
        key = _better(finding)
        if key in explained and finding.analyzer == suboptimal_pick.NAME:
            continue
        twin = plain.get(key) if key in explained else None
        takes_over = twin is not None and twin.override is not None and finding.override is None
        out.append(replace(finding, remedy=twin.remedy) if twin is not None and takes_over else finding)
    return out


def _better(finding: Finding) -> tuple[str, str] | None:
    """The problem and the better solution of which a finding claims a saving."""
    best = finding.evidence.best
    return None if finding.problem is None or best is None or finding.per_call_us is None else (_text(finding), best)


def _without_uncounted(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    """Without what repeats, for a text that no log counts, the finding of a counted problem that it may be."""
    counted = {(x.analyzer, _text(x)) for x in findings if x.calls is not None}
    may_be = _linked(links, {_text(x) for x in findings if x.calls is None}, both=False)

    def repeats(x: Finding) -> bool:
        others = may_be.get(_text(x), ())
        return x.calls is None and x.override is None and any((x.analyzer, other) in counted for other in others)

    return [x for x in findings if not repeats(x)]


def _with_reasons(findings: Sequence[Finding]) -> list[Finding]:
    """Of the findings that claim a saving of one problem the surest and then largest keeps it, and an inferred one
    beside it becomes a reason: the same time cannot be saved twice.
    """
    best: dict[str, Finding] = {}
    for x in sorted(
        findings, key=lambda x: (x.sureness == "estimated", -(x.per_call_us or 0.0), x.analyzer, x.message)
    ):
        if x.problem is not None and x.per_call_us is not None:
            best.setdefault(_text(x), x)
    reasons: dict[str, list[str]] = {}
    out = []
    for finding in findings:
        mine = best.get(_text(finding), finding)
        if finding is mine or finding.per_call_us is None or finding.sureness != "estimated":
            out.append(finding)
        else:
            reasons.setdefault(_text(finding), []).append(f"{finding.analyzer}: {finding.message}")
    return [
        fast_replace(x, reasons=(*x.reasons, *reasons[_text(x)]))
        if x is best.get(_text(x)) and _text(x) in reasons
        else x
        for x in out
    ]
