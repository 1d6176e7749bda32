"""The smallest set of rows for problems that differ only in M or in N, where the library's file has wildcards.  Pure.

TunableOp (PyTorch 2.15 and later, ``PYTORCH_TUNABLEOP_WILDCARD_FALLBACK=1``, tuning off) takes a row with ``*`` for a
call that has no exact row; a leading dimension is ``*`` if it is tight and follows the free dimension; of several
matching rows any may win (pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp).  Therefore

* a file's wildcard rows are all free in M or all in N, and members are tight: then no call matches two of them;
* a problem that would be hit and is not known to gain gets an exact row: its own best, or ``Default``.

Sizes that no log has called are hit too; that is what a family is for, and a note states it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from logparse.model import (
    DEFAULT,
    Family,
    GemmProblem,
    Override,
    Problem,
    kind_of,
    problem_from_text,
    solution_from_text,
)

Dimension: TypeAlias = Literal["m", "n"]
Key: TypeAlias = Callable[[Problem], str | None]
Times: TypeAlias = Mapping[str, Mapping[str, float]]
"""Problem text → solution text → µs, of one file per problem."""


@dataclass(frozen=True)
class Rows:
    """Rows that are written together or not at all, and what they save per run of the workload (µs)."""

    rows: tuple[Override, ...]
    saving_us: float


def family_of(problem: Problem, free: Dimension) -> Family | None:
    """The wildcard row that serves this problem; None where it is no plain GEMM or a size is unknown or padded."""
    if not isinstance(problem, GemmProblem) or problem.members or getattr(problem, free) is None:
        return None
    follow = (
        {"lda": problem.trans_a == "N", "ldc": True, "ldd": True} if free == "m" else {"ldb": problem.trans_b != "N"}
    )
    names = {name for name, follows in follow.items() if follows}
    size = getattr(problem, free)
    if any(getattr(problem, name) not in (size, None) for name in names):
        return None
    gone: dict[str, Any] = dict.fromkeys((free, *names, "stride_a", "stride_b", "stride_c", "stride_d"))
    return Family(problem=replace(problem, **gone), free=frozenset({free, *names}))


def exact(overrides: Iterable[Override], calls: Mapping[str, float]) -> list[Rows]:
    """One row per problem."""
    return [Rows((x,), _saving(x, calls)) for x in overrides]


def smallest(
    overrides: Sequence[Override],
    calls: Mapping[str, float],
    times: Times,
    key: Key,
    regret: float,
) -> list[Rows]:
    """The fewest rows that lose at most ``regret`` of a family's time against the best row of each member.

    ``calls`` is the workload by problem text, problems without an override included; ``key`` the library's own key.
    """
    problems = {x.problem.text: x.problem for x in overrides}
    found = [_with_free(dimension, overrides, problems, calls, times, key, regret) for dimension in _DIMENSIONS]
    plain = exact(overrides, calls)
    return min((plain, *found), key=lambda groups: sum(len(x.rows) for x in groups))


_DIMENSIONS: tuple[Dimension, ...] = ("n", "m")


def first(groups: Sequence[Rows], limit: int | None) -> tuple[list[Override], float]:
    """The rows of the most valuable groups that fit ``limit``, and the saving (µs per run) of those left out."""
    taken: list[Override] = []
    lost = 0.0
    for group in sorted(groups, key=lambda x: -x.saving_us):
        if limit is None or len(taken) + len(group.rows) <= limit:
            taken += group.rows
        else:
            lost += group.saving_us
    return taken, lost


# ------------------------------------------------------------------------------------------------ one dimension free


@dataclass(frozen=True)
class _Member:
    """A problem that a wildcard row would hit.  ``override`` None: nothing better than now is known of it."""

    problem: Problem
    calls: float
    times: Mapping[str, float]
    override: Override | None

    def loss_us(self, solution: str) -> float | None:
        """What this solution loses per run against the member's best row; None where it must not be hit by it."""
        time, best = self.times.get(solution), self.times.get(DEFAULT.text)
        now = self.override.default_us if self.override else best
        if self.override is not None:
            best = self.override.time_us
        if time is None or best is None or now is None or time > now:
            return None
        return self.calls * max(0.0, time - best)


def _with_free(
    free: Dimension,
    overrides: Sequence[Override],
    problems: Mapping[str, Problem],
    calls: Mapping[str, float],
    times: Times,
    key: Key,
    regret: float,
) -> list[Rows]:
    by_text = {x.problem.text: x for x in overrides}
    families: dict[str, tuple[Family, list[_Member]]] = {}
    left = dict(by_text)
    for text in (*problems, *(x for x in calls if x not in problems and kind_of(x) == "gemm")):
        problem = problems.get(text) or problem_from_text(text)
        family = family_of(problem, free)
        name = key(family) if family is not None and key(problem) is not None else None
        if family is None or name is None:
            continue
        member = _Member(problem, calls.get(text, 1.0), times.get(text, {}), by_text.get(text))
        families.setdefault(name, (family, []))[1].append(member)
    out = []
    for name in sorted(families):
        family, members = families[name]
        rows = _best(family, members, calls, regret)
        if rows is not None:
            out.append(rows)
            left = {text: x for text, x in left.items() if text not in {m.problem.text for m in members}}
    return [*out, *exact(left.values(), calls)]


def _best(family: Family, members: Sequence[_Member], calls: Mapping[str, float], regret: float) -> Rows | None:
    """The family's row with the exact rows that it needs; None where the exact rows alone are no more."""
    mine = [x.override for x in members if x.override is not None]
    candidates = [
        rows
        for solution in sorted({x.solution.text for x in mine})
        if len(rows := _served(family, members, solution, mine[0].target, regret)) < len(mine)
    ]
    if not candidates:
        return None
    return Rows(min(candidates, key=len), sum(_saving(x, calls) for x in mine))


def _served(
    family: Family, members: Sequence[_Member], solution: str, target: Mapping[str, str], regret: float
) -> tuple[Override, ...]:
    """The wildcard row of one solution, and exact rows for those that must not or should not be hit by it.

    Of the others those that lose most come first, until the rest loses no more than ``regret`` of the family's time.
    """
    losses = [(x.loss_us(solution), x) for x in members]
    alone = [x for loss, x in losses if loss is None]
    rest = sorted(((loss, x) for loss, x in losses if loss is not None), key=lambda pair: -pair[0])
    lost = sum(loss for loss, _ in rest)
    allowed = regret * sum(x.calls * (x.override.time_us or 0.0) for _, x in rest if x.override)
    while rest and lost > allowed:
        loss, member = rest.pop(0)
        lost -= loss
        alone.append(member)
    row = Override(problem=family, solution=solution_from_text(solution), target=target)
    own = [x.override or Override(problem=x.problem, solution=DEFAULT, target=target) for x in alone]
    return (row, *own)


def _saving(override: Override, calls: Mapping[str, float]) -> float:
    if override.time_us is None or override.default_us is None:
        return 0.0
    return calls.get(override.problem.text, 1.0) * (override.default_us - override.time_us)
