"""Find out why a problem (such as a matrix product) or a solution (a kernel for it) cannot be stored.

The reason is a number out of range, or a character that would make its stored text unreadable.
"""

# The store keeps a problem or a solution as a text, and parses this text later. A blank in a type, or a comma in a
# layout, would make a text that cannot be parsed.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Literal, get_args, get_origin, get_type_hints

from logparse.model.problems import ConvProblem, GemmProblem, OperatorProblem, Problem
from logparse.model.ranges import LIMIT, is_whole
from logparse.model.records import DEFAULT, Solution, solution_from_text
from logparse.model.texts import problem_from_text

_SHOWN = 80


def problem_fault(problem: Problem) -> str | None:
    """Explain why a matrix product, convolution or operator cannot be stored.  Return None if it can be.

    A problem can be stored if parsing its text gives the same object again.
    """
    if isinstance(problem, OperatorProblem):
        return _operator_fault(problem)
    of, values = _fields_of(type(problem).__name__), vars(problem)
    for name, value, least in zip(of.numbers, of.numbers_of(values), of.least, strict=True):
        if value is not None and not (type(value) is int and least <= value < LIMIT):
            return _number_fault(name, value, least)
    for member in values.get("members", ()):
        for name, value in vars(member).items():
            if value is not None and not is_whole(value):
                return _number_fault(f"{name} of a member", value, 0)
    return _texts_fault(type(problem).__name__, of.texts_of(values))


def _number_fault(name: str, value: object, least: int) -> str:
    if type(value) is not int:
        return f"{name} is {describe_value(value)}, which is not a whole number"
    why = "a number beyond 64 bits" if abs(value) >= LIMIT else f"at least {least} is required"
    return f"{name} is {describe_value(value)}: {why}"


@lru_cache(maxsize=4096)
def _texts_fault(kind: str, values: tuple[object, ...]) -> str | None:
    """Explain why the text fields of a matrix product or convolution cannot be stored. Return None if they can be.

    Results are cached, because files hold few combinations of such fields.
    """
    of = _fields_of(kind)
    for name, value in zip(of.texts, values, strict=True):
        allowed = of.allowed.get(name)
        if value is not None and (value not in allowed if allowed else not isinstance(value, str)):
            return f"{name} is {describe_value(value)}" + (
                f", not one of {', '.join(map(str, allowed))}" if allowed else ""
            )
    named = dict(zip(of.texts, values, strict=True))
    if _reads_back(kind, named):
        return None
    needed = {"direction": named["direction"]} if "direction" in named else {}
    name = next((x for x, value in named.items() if not _reads_back(kind, needed | {x: value})), "a field")
    return f"{name} is {describe_value(named.get(name))}, which a problem's text cannot hold"


def _reads_back(kind: str, values: Mapping[str, Any]) -> bool:
    problem = _CLASSES[kind](**values)
    try:
        return problem_from_text(problem.text) == problem.normal
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def _operator_fault(problem: OperatorProblem) -> str | None:
    try:
        same = problem_from_text(problem.text) == problem
    except ValueError:
        same = False
    numbers = (n for tensor in problem.tensors for n in (*tensor.sizes, *tensor.strides))
    if not all(map(is_whole, numbers)):
        return f"operator {describe_value(problem.name)}: a size or stride is not a number from 0 to 64 bits"
    return None if same else f"operator {describe_value(problem.name)}: its text could not be read back"


@dataclass(frozen=True)
class _Fields:
    """The rules for the fields of a matrix product or convolution.

    They are the least values of numbers and the allowed texts.
    """

    numbers: Sequence[str]
    least: Sequence[int]
    texts: Sequence[str]
    allowed: Mapping[str, Sequence[object]]
    numbers_of: Callable[[Mapping[str, Any]], tuple[object, ...]]
    texts_of: Callable[[Mapping[str, Any]], tuple[object, ...]]


@cache
def _fields_of(kind: str) -> _Fields:
    hints = get_type_hints(_CLASSES[kind])
    types = {x.name: hints[x.name] for x in fields(_CLASSES[kind]) if x.name != "members"}
    numbers = [name for name, type_ in types.items() if int in get_args(type_)]
    texts = [name for name in types if name not in numbers]
    return _Fields(
        numbers=numbers,
        least=[0 if name.startswith(_FROM_ZERO[kind]) else 1 for name in numbers],
        texts=texts,
        allowed={name: values for name in texts if (values := _list_allowed(types[name]))},
        numbers_of=itemgetter(*numbers),
        texts_of=itemgetter(*texts),
    )


_CLASSES: Mapping[str, type[GemmProblem | ConvProblem]] = {x.__name__: x for x in (GemmProblem, ConvProblem)}
_FROM_ZERO: Mapping[str, tuple[str, ...]] = {
    "GemmProblem": ("ld", "stride_", "sm_count"),
    "ConvProblem": ("pad_", "bias"),
}
"""For each class of problems, the beginnings of the names of the number fields that may be 0."""


def _list_allowed(type_: Any) -> Sequence[object]:
    """Return the values that a field may have, if its type is a Literal or a bool.

    The result is empty for any other type.
    """
    options = (type_, *get_args(type_))
    literals = [x for option in options if get_origin(option) is Literal for x in get_args(option)]
    return [*literals, *([False, True] if bool in options else [])]


def solution_fault(solution: Solution) -> str | None:
    """Explain why a kernel's name cannot be stored.  Return None if it can be stored.

    A name can be stored if its text can be parsed again into the same object.
    """
    if solution_from_text(solution.text) == solution:
        return None
    named = f"solution {describe_value(solution.id)} of library {describe_value(solution.library)}"
    if solution.id == DEFAULT.id:
        example = describe_value(f"{solution.library}:123")
        return (
            f"{named}: Default is what PyTorch runs without an override, so its library is torch; leave the library "
            f"empty, or name the solution that ran (such as {example})"
        )
    return f"{named}: its text {describe_value(solution.text)} could not be read back"


def describe_value(value: object) -> str:
    """Format a value from a file for a message, and shorten it if it is long.

    A huge number is only described, because Python prints no number of more than 4,300 digits.
    """
    if isinstance(value, int) and abs(value) >= 1 << 256:
        return "a number of more than 77 digits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
