"""Did a setting or a code change pay?  Two runs against the findings of the first, where no file was written.

cuDNN, and cuBLASLt before PyTorch 2.14, read no override file: what a finding proposes there is ``channels_last``,
benchmark mode or other code.  A layout is part of a problem, so both runs are compared in no layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analyzers.analyzer import Tables
from analyzers.diff.diff import FAIL_ON
from analyzers.overrides.lint import lint
from analyzers.times.runs import existing, tables_at
from analyzers.verify.verify import (
    Evidence,
    Outcome,
    Verification,
    outcome,
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
    rows = findings[(findings["run"] == before.run) & findings["saving_us"].notna() & findings["problem"].notna()]
    rows = rows.sort_values("saving_us", ascending=False).drop_duplicates("problem")
    one, two = (_without_layouts(x) for x in (before, after))
    evidence = Evidence.of(one, two, fail_on)
    outcomes = tuple(_outcome({str(k): v for k, v in row.items()}, evidence) for row in rows.to_dict("records"))
    complaints = tuple(signs(after))
    return Verification(
        before.run,
        after.run,
        outcomes,
        (),
        complaints,
        tuple(_failures(outcomes, complaints, _without_promise(before.run, findings))),
        run_us=run_us(one, two),
    )


def _without_layouts(tables: Tables) -> Tables:
    """The tables with each convolution's problem in no layout."""
    frames = {name: getattr(tables, name) for name in ("calls", "workload", "measurements", "kernels")}
    names = {x: in_any_layout(str(x)) for frame in frames.values() for x in frame["problem"].dropna().unique()}
    return replace(
        tables, **{name: x.assign(problem=x["problem"].astype("object").map(names)) for name, x in frames.items()}
    )


def _outcome(finding: Mapping[str, object], evidence: Evidence) -> Outcome:
    text, each, named = str(finding["problem"]), finding["per_call_us"], finding.get("solution")
    bare = in_any_layout(text)
    intended = solution_from_text(named) if isinstance(named, str) and ":" in named else None
    picked = solution_from_text(evidence.after.picks.get(bare, "Default"))
    if intended is not None and picked.library != intended.library:
        intended = picked if same_solution(intended, picked, evidence.rocblas) else None  # no log names its library's
    # Findings of earlier versions do not name a solution.
    proposals = (finding.get(name) for name in ("solution", "advice", "analyzer"))
    return replace(
        outcome(bare, [bare], intended, evidence, {} if pd.isna(each) else {bare: float(str(each))}),  # type: ignore[call-overload]
        problem=text,
        label=problem_from_text(text).label,
        intended=next((x for x in proposals if isinstance(x, str) and x), ""),
    )


def _without_promise(run: str, findings: pd.DataFrame) -> str:
    """Why there is nothing to judge a run by: the store holds the findings of one ``recommend`` only."""
    others = sorted(set(findings["run"].dropna().astype(str)) - {run})
    if others and not (findings["run"] == run).any():
        return f"the store's last `logparse recommend` was of run {', '.join(others)}: repeat it with --run {run}"
    return "the run before has no findings of known worth (`logparse recommend` writes them)"


def _failures(outcomes: Sequence[Outcome], complaints: Sequence[str], unpromised: str) -> Iterator[str]:
    yield from complaints
    for one in outcomes:
        if one.move == "slower":
            yield f"{one.label}: slower, {one.before_us:.4g} to {one.after_us:.4g} µs"
    if not outcomes:
        yield f"nothing was promised: {unpromised}"
    elif not any(one.effect in ("applied", "changed kernel") for one in outcomes):
        other = any(one.effect in ("not applied", "as before") for one in outcomes)
        what = "the solution that was proposed" if other else "another kernel than before"
        yield f"no problem of a finding runs {what}"
