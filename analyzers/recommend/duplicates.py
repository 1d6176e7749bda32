"""Remove duplicates among the findings (possible savings): the saving of a call is counted only once.

The functions do no input or output.
"""

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
    """Remove or join findings that propose the same thing, so that each better kernel is proposed once.

    * The same kernel may be proposed by ``suboptimal_pick`` and by another analyzer. Then only the other analyzer's
      finding is kept. It gets the override.
    * If an operator (with sizes) has an estimated saving and another saving, the estimate becomes a reason in the other
      finding.
    * Two texts may mean the same operator, for example a key of TunableOp and the log line of the same call. If an
      analyzer has a finding for both, and no log counts the calls of one text, the finding about this text is left out.
    """
    return _with_reasons(_without_uncounted(_drop_explained(findings), links))


def rank(finding: Finding) -> tuple[bool, float, float, str, str]:
    """Return a sort key for findings (possible savings): the largest known saving first.

    Findings with an unknown saving follow, the largest loss of one call first. Equal ones are sorted by text.
    """
    saving = finding.saving_us
    return (saving is None, -(saving or 0.0), -(finding.per_call_us or 0.0), _text(finding), finding.message)


def one_claim_each(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    """If several findings state a saving for the same calls, let only the best one keep its saving.

    Otherwise the time would be counted twice.
    """
    same = _find_linked_texts(links, {_text(x) for x in findings if x.saving_us}, both=True)
    claims: dict[str, str] = {}
    out = []
    # Measured savings are preferred to estimated savings, then findings with an override to findings without one, then
    # larger savings.
    for finding in sorted(findings, key=lambda x: (x.sureness == "estimated", x.override is None, rank(x))):
        text = _text(finding)
        if not text or not finding.saving_us or unreachable(finding):
            out.append(finding)
            continue
        by = {claims[x] for x in {text, *same.get(text, ())} if x in claims} - {finding.analyzer}
        claims.setdefault(text, finding.analyzer)
        # The message of each other finding states its own saving.
        out.append(_potential(finding, f"{min(by)} proposes another change for the same calls") if by else finding)
    return out


def one_row_each(
    findings: Sequence[Finding], calls: Mapping[str, float], races: Callable[[], Mapping[str, Race]]
) -> list[Finding]:
    """Decide which kernel a row of hipBLASLt's tuning file gets if several findings propose different ones.

    hipBLASLt uses one row for all calls that differ only in β, bias or activation.

    * The row gets the kernel with which these calls take the least time in total.
    * If a time is missing, it gets the kernel of the first finding.
    * If the library's own choices take no more time, there is no row.

    Findings whose kernel gets no row lose their override.
    """
    rows: dict[tuple[str, str], list[Override]] = {}
    for x in findings:
        if x.override is not None and x.override.solution.library == LIBRARY:
            rows.setdefault(_row(x.override.problem, x.override.target), []).append(x.override)
    if not rows:
        return list(findings)
    targets = {place: found[0].target for (_, place), found in rows.items()}
    served: dict[tuple[str, str], dict[str, str]] = {}
    # A find-db has 100,000s of other calls, so only products are considered.
    products = (text for text in calls if text.startswith("gemm "))
    for text in {*products, *(x.problem.text for found in rows.values() for x in found)}:
        problem = problem_from_text(text)
        for target in targets.values():
            served.setdefault(_row(problem, target), {})[text] = problem.label
    raced = races()
    best = {
        row: _choose_one_kernel([x.solution.text for x in found], served[row], calls, raced)
        for row, found in rows.items()
    }

    def judged(finding: Finding) -> Finding:
        override = finding.override
        row = ("", "") if override is None else _row(override.problem, override.target)
        others = [label for text, label in sorted(served.get(row, {}).items()) if text != _text(finding)]
        if override is None or row not in best or not others:
            return finding
        row_has = (
            best[row] or "no row is written, because these calls take less time in total with the library's own choices"
        )
        message = f"{finding.message}; the library uses one row for this call and for {' and '.join(others)}: {row_has}"
        return fast_replace(
            finding, message=message, remedy=finding.remedy if override.solution.text == best[row] else Advise()
        )

    return list(map(judged, findings))


def _row(problem: Problem, target: Mapping[str, str]) -> tuple[str, str]:
    """Return a key that says which row of hipBLASLt's tuning file a call uses.

    Calls that share a row have the same key. If no row can apply to a call, its key is the call's own text.
    """
    return tuning_file.key(problem, target) or problem.text, repr(sorted(target.items()))


def _choose_one_kernel(
    solutions: Sequence[str], texts: Collection[str], calls: Mapping[str, float], races: Mapping[str, Race]
) -> str | None:
    """Return the kernel with the least total time for all calls that share one row of a tuning file.

    Returns None if the library's own choices take no more time. Returns the first kernel if a time is missing.
    """

    def cost(solution: str | None) -> float:
        known = (races.get(text, Race({})) for text in texts)
        times = (x.times.get(x.pick if solution is None else solution, math.inf) for x in known)
        return math.fsum(us * calls.get(text, 1.0) for text, us in zip(texts, times, strict=True))

    costs = {x: cost(x) for x in solutions}
    least = min(costs, key=costs.__getitem__)
    return solutions[0] if math.inf in costs.values() else None if cost(None) <= costs[least] else least


def drop_unreachable_saving(finding: Finding) -> Finding:
    """Remove a finding's saving if the user has no way to make the library use the better kernel for this call alone.

    The message then tells how much the kernel would save. Other findings are returned as they are.
    """
    why = unreachable(finding)
    return finding if why is None or finding.saving_us is None else _potential(finding, why)


def unreachable(finding: Finding) -> str | None:
    """Explain why the user has no way to make the library use the better kernel for this call alone.

    Returns None if there is a way.
    """
    best = finding.evidence.best
    return None if best is None or finding.override is not None else out_of_reach(solution_from_text(best))


def without_saving(finding: Finding, **changes: object) -> Finding:
    """Return a copy of the finding in which the saving in the whole job is unknown (None)."""
    return fast_replace(finding, in_run=None, saving_share=None, **changes)


def _potential(finding: Finding, why: str) -> Finding:
    worth = f"not added to the savings ({duration(finding.saving_us or 0.0)} per run): {why}"
    return without_saving(finding, message=f"{finding.message}; {worth}")


def _text(finding: Finding) -> str:
    return finding.problem.text if finding.problem is not None else ""


def _find_linked_texts(links: pd.DataFrame, texts: set[str], *, both: bool) -> dict[str, set[str]]:
    """For each operator text, return all texts that may describe the same operator.

    If ``both`` is True, only texts that are themselves in ``texts`` are listed.
    """
    rows = of_problems(links, texts)
    rows = rows[rows["other"].isin(texts)] if both else rows
    return {str(text): set(others) for text, others in rows.groupby("problem")["other"]}


def _drop_explained(findings: Sequence[Finding]) -> list[Finding]:
    """Remove findings that only report a slow kernel, if another finding about the same kernel also explains why.

    ``suboptimal_pick`` makes findings without an explanation. The explaining finding gets the override (the kernel to
    use instead) of the removed one.
    """
    plain = {_find_better_kernel(x): x for x in findings if x.analyzer == suboptimal_pick.NAME}
    explained = {_find_better_kernel(x) for x in findings if x.analyzer != suboptimal_pick.NAME} - {None}
    out = []
    for finding in findings:
        key = _find_better_kernel(finding)
        if key in explained and finding.analyzer == suboptimal_pick.NAME:
            continue
        twin = plain.get(key) if key in explained else None
        takes_over = twin is not None and twin.override is not None and finding.override is None
        out.append(replace(finding, remedy=twin.remedy) if twin is not None and takes_over else finding)
    return out


def _find_better_kernel(finding: Finding) -> tuple[str, str] | None:
    """Return the operator (with sizes) and the better kernel that a finding proposes. None if it claims no saving."""
    best = finding.evidence.best
    return None if finding.problem is None or best is None or finding.per_call_us is None else (_text(finding), best)


def _without_uncounted(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    """Remove possible savings that are listed twice: once with a known number of calls, and once without."""
    counted = {(x.analyzer, _text(x)) for x in findings if x.calls is not None}
    may_be = _find_linked_texts(links, {_text(x) for x in findings if x.calls is None}, both=False)

    def repeats(x: Finding) -> bool:
        others = may_be.get(_text(x), ())
        # Logs may write the same call in two ways. A saving without a number of calls is removed if the same analyzer
        # also reported the saving with a number. But it is kept if it proposes a row for an override file (the user's
        # list of kernels for a library).
        return x.calls is None and x.override is None and any((x.analyzer, other) in counted for other in others)

    return [x for x in findings if not repeats(x)]


def _with_reasons(findings: Sequence[Finding]) -> list[Finding]:
    """Remove estimated findings about a call for which there is a better finding, so that no saving is counted twice.

    The removed findings become reasons of the best one.
    """
    best: dict[str, Finding] = {}
    # Measured findings are better than estimated ones. Otherwise the larger saving per call decides.
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
