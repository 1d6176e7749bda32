"""Find the row of an override file that a library would use for a call. The search follows the library's own rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from logparse.libraries.kinds.override_format import OverrideFormat
from logparse.libraries.kinds.reading import Reading, Row
from logparse.links import may_be
from logparse.model import Problem, Solution

_NO_ROW = "no row matches the call"

State = Literal["hit", "miss", "unknown"]
Has: TypeAlias = Callable[[Solution], bool]


@dataclass(frozen=True)
class LookUp:
    """The row of an override file that the library would use for a call, or why there is no row.

    * ``miss``: no row can match.
    * ``unknown``: the log states too little. The rows in lines ``maybe`` may match.
    """

    key: str | None
    row: Row | None
    state: State
    reason: str = ""
    maybe: tuple[int, ...] = ()

    @property
    def solution(self) -> Solution | None:
        """The kernel that the override file selects for the call. None if it selects none."""
        return None if self.row is None else self.row.solution


def look_up(
    format: OverrideFormat, reading: Reading[Any], call: Problem, *, has: Has | None = None, key: str | None = None
) -> LookUp:
    """Return the row of an override file that the library would use for a call, or the reason why it uses no row.

    * ``reading``: the file as the library has read it.
    * ``has``: a function that tells whether the library's build contains a kernel. Without it, every kernel is assumed
      to exist.
    * ``key``: the call's key (the text by which the library finds a row), if a log states it.
    """
    key = key or format.key(call, reading.key_facts)
    if key is None:
        return _look_up_without_key(reading, call)
    tries = [
        row
        for x in (key, *format.fallback_keys(key))
        if x in reading.by_key
        for row in _sort_by_probe_order(format, reading, x)
    ]
    row = next((x for x in tries if has is None or x.solution is None or has(x.solution)), None)
    if row is not None and (why := format.other_product(row.problem, call)):
        return LookUp(key, None, "miss", f"line {row.line}: {why}, so the library takes its own choice")
    if row is not None:
        assumed = (
            f"the row is used only if the target machine has {format.accepted_if}" if reading.accepted is None else ""
        )
        return LookUp(key, row, "hit", assumed)
    return LookUp(key, None, "miss", _why_not(format, reading, key, tries))


def _sort_by_probe_order(format: OverrideFormat, reading: Reading[Any], key: str) -> Sequence[Row]:
    rows = [row for row in reading.by_key[key] if row.live]
    return format.probe_order(rows, reading.key_facts) if len(rows) > 1 else rows


def _why_not(format: OverrideFormat, reading: Reading[Any], key: str, tries: Sequence[Row]) -> str:
    if tries:
        named = ", ".join(dict.fromkeys(row.solution.text for row in tries if row.solution is not None))
        return f"line {tries[0].line}: the target's build lacks {named}"
    bad = next((row for row in reading.by_key.get(key, ()) if not row.live), None)
    if bad is not None:
        return f"line {bad.line}: {bad.verdicts.why}"
    if reading.accepted is False:
        return "the file is not accepted"
    others = [_difference(key, other) for other in format.fallback_keys(key)]
    return (
        f"no row matches the call (a row with {' or '.join(others)} would also be used for it)" if others else _NO_ROW
    )


def _difference(key: str, other: str) -> str:
    """Describe how a row's key differs from the call's key, for example ``bf16 instead of f16``."""
    pairs = zip(key.split(","), other.split(","), strict=False)
    return ", ".join(f"{theirs} instead of {mine}" for mine, theirs in pairs if mine != theirs)


def _look_up_without_key(reading: Reading[Any], call: Problem) -> LookUp:
    near = reading.by_shape.get(call.shape, ())
    maybe = tuple(sorted({row.line for row in near if may_be(row.problem, call)}))
    if not maybe:
        return LookUp(None, None, "miss", _NO_ROW)
    lines = " or ".join(map(str, maybe[:3]))
    return LookUp(
        None,
        None,
        "unknown",
        (
            f"the library may use line {lines} for the call, but the log does not state all values by which the "
            "library finds a row"
        ),
        maybe,
    )
