"""Did a setting or a code change pay?  Two runs against the findings of the first, where no file was written.

cuDNN, and cuBLASLt before PyTorch 2.14, read no override file: what a finding proposes there is ``channels_last``,
benchmark mode or other code.  A layout is part of a problem, so a problem of the first run is looked up in the second
in any layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analyzers.analyzer import Tables
from analyzers.diff.diff import FAIL_ON
from analyzers.diff.timings import BASES, timings
from analyzers.overrides.lint import facts_of_run, lint
from analyzers.times.runs import existing, tables_at
from analyzers.verify.verify import (
    Effect,
    Move,
    Outcome,
    Ran,
    Verification,
    promises,
    run_us,
    same_solution,
    signs,
    verify,
)
from logparse.errors import InputError
from logparse.model import ConvProblem, problem_from_text, solution_from_text


def verify_at(
    before: str, after: str, files: Sequence[str] = (), store: str | None = None, fail_on: float = FAIL_ON
) -> Verification:
    """Compare the run that ``after`` names with that of ``before`` for the rows of override files, or, without files,
    for what the findings of ``before`` proposed; promises are those of ``before``'s store's last ``recommend``.
    """
    a, b = tables_at(before, store), tables_at(after, store)
    held = existing(before.rpartition("#")[0] or before) or existing(store)
    if files:
        promised = promises(held.findings()) if held is not None else {}
        return verify(a, b, [lint(path, None, b) for path in files], promised, fail_on)
    if held is None:
        raise InputError("without override files, verify needs a store with the findings of the run before")
    return verify_findings(a, b, held.findings(), fail_on)


def in_any_layout(text: str) -> str:
    """A problem's text without what ``channels_last`` changes: one text for a call before and after."""
    problem = problem_from_text(text)
    if not isinstance(problem, ConvProblem):
        return text
    return replace(problem, in_layout=None, weights_layout=None, out_layout=None).text


def verify_findings(before: Tables, after: Tables, findings: pd.DataFrame, fail_on: float = FAIL_ON) -> Verification:
    """Compare the run ``after`` with what the findings of ``before`` (view ``findings``) promised to save.

    Of several findings on one problem the largest saving is the promise.  Which of them the user acted on is not known:
    it fails when a problem got slower than ``fail_on`` allows, when no problem runs what was proposed (or, where no log
    names that, another kernel), and at what a log complains of.
    """
    promised = _promised(before, findings)
    one, two = _Side(before), _Side(after)
    outcomes = tuple(_outcome(text, row, one, two, fail_on) for text, row in promised.items())
    complaints = tuple(signs(after))
    return Verification(
        before.run,
        after.run,
        outcomes,
        (),
        complaints,
        tuple(_failures(outcomes, complaints, _without_promise(before.run, findings))),
        run_us=run_us(before, after, in_any_layout),
    )


def _promised(before: Tables, findings: pd.DataFrame) -> dict[str, Mapping[str, object]]:
    """Problem → the finding of the run that promises most for it, of those with a known saving."""
    rows = findings[(findings["run"] == before.run) & findings["saving_us"].notna() & findings["problem"].notna()]
    rows = rows.sort_values("saving_us", ascending=False).drop_duplicates("problem")
    return {str(row["problem"]): {str(k): v for k, v in row.items()} for row in rows.to_dict("records")}


class _Side:
    """What ran in a run, the times of its calls, and the texts that mean one call in any layout."""

    def __init__(self, tables: Tables) -> None:
        self.ran = Ran.of(tables)
        self.rocblas = facts_of_run(tables).get("rocblas_version", "")
        rows = timings(tables)
        columns = (rows["problem"], rows["basis"], rows["time_us"])
        self.times = {(str(p), str(b)): float(t) for p, b, t in zip(*columns, strict=True)}
        self.texts: dict[str, list[str]] = {}
        for text in sorted({*self.ran.calls, *self.ran.kernels, *self.ran.picks, *(p for p, _ in self.times)}):
            self.texts.setdefault(in_any_layout(text), []).append(text)

    def mean_us(self, texts: Sequence[str], basis: str) -> float | None:
        """Time of one call over all that the texts mean."""
        known = [(self.times[x, basis], self.ran.calls.get(x) or 0) for x in texts if (x, basis) in self.times]
        total = sum(count for _, count in known)
        if total:
            return sum(time * count for time, count in known) / total
        return known[0][0] if len(known) == 1 else None

    def names(self, texts: Sequence[str]) -> str | None:
        """The solutions or kernels of these texts."""
        known = {name for x in texts if (name := self.ran.picks.get(x) or self.ran.kernels.get(x))}
        return " | ".join(sorted(known)) or None

    def runs(self, texts: Sequence[str], intended: object) -> bool | None:
        """Whether the logs name this solution for all of the texts; None where they name none of its library."""
        solution = solution_from_text(intended) if isinstance(intended, str) and ":" in intended else None
        picks = [solution_from_text(self.ran.picks[text]) for text in texts if text in self.ran.picks]
        if solution is None or not picks:
            return None
        same = [same_solution(solution, pick, self.rocblas) for pick in picks]
        return all(same) if any(same) or all(x.library == solution.library for x in picks) else None


def _outcome(text: str, finding: Mapping[str, object], before: _Side, after: _Side, fail_on: float) -> Outcome:
    same = after.texts.get(in_any_layout(text), [])
    times = ((basis, before.times.get((text, basis)), after.mean_us(same, basis)) for basis in BASES)
    basis, old, new = next((x for x in times if x[1] is not None and x[2] is not None), (None, None, None))
    counted = [n for x in same if (n := after.ran.calls.get(x)) is not None]
    calls = sum(counted) if counted else None
    move: Move = "unknown"
    if old is not None and new is not None:
        move = "slower" if new > old * (1 + fail_on) else "faster" if new * (1 + fail_on) < old else "same"
    saving, each = float(str(finding["saving_us"])), finding["per_call_us"]
    was, ran = before.names([text]), after.names(same)
    return Outcome(
        problem=text,
        label=problem_from_text(text).label,
        file="",
        line=0,
        intended=_intended(finding),
        before=was,
        after=ran,
        effect=_effect(was, ran, bool(same), after.runs(same, finding.get("solution"))),
        move=move,
        basis=basis,
        before_us=old,
        after_us=new,
        calls=calls,
        promised_us=saving if calls is None or pd.isna(each) else float(str(each)) * calls,  # type: ignore[call-overload]
    )


def _intended(finding: Mapping[str, object]) -> str:
    """What the finding proposes; findings of earlier versions do not name a solution."""
    remedies = (finding.get(name) for name in ("solution", "advice", "analyzer"))
    return next((text for text in remedies if isinstance(text, str) and text), "")


def _effect(before: str | None, after: str | None, called: bool, proposed: bool | None) -> Effect:
    """``proposed``: whether the logs name the proposed solution after; None: they do not show it."""
    if not called:
        return "not called"
    if proposed:
        return "applied"
    if proposed is False and before != after:
        return "not applied"
    if before is None or after is None:
        return "unknown"
    return "changed kernel" if before != after else "unchanged kernel"


def _without_promise(run: str, findings: pd.DataFrame) -> str:
    """Why there is nothing to judge a run by: the store holds the findings of one ``recommend`` only."""
    others = sorted(set(findings["run"].dropna().astype(str)) - {run})
    if others and not (findings["run"] == run).any():
        return f"the store's last `logparse recommend` was of run {', '.join(others)}: repeat it with --run {run}"
    return "the run before has no findings of known worth (`logparse recommend` writes them)"


def _failures(outcomes: Sequence[Outcome], complaints: Sequence[str], unpromised: str) -> Iterator[str]:
    yield from complaints
    for outcome in outcomes:
        if outcome.move == "slower":
            yield f"{outcome.label}: slower, {outcome.before_us:.4g} to {outcome.after_us:.4g} µs"
    if not outcomes:
        yield f"nothing was promised: {unpromised}"
    elif not any(outcome.effect in ("applied", "changed kernel") for outcome in outcomes):
        other = any(outcome.effect == "not applied" for outcome in outcomes)
        what = "the solution that was proposed" if other else "another kernel than before"
        yield f"no problem of a finding runs {what}"
