"""Check which texts the fields of records and problems may contain.  Each kind of field has a vocabulary or a pattern.

================  ==========================================================================================
kind              fields
================  ==========================================================================================
vocabulary        fields of a few fixed words: transposes, directions, modes, statuses
``TYPE``          data types, activations, kinds of scales, casts
``LAYOUT``        orders of a tensor's axes
``LIBRARY``       libraries of solutions
``SOLUTION``      ids and spellings of solutions, algorithms; of kernels ``LINE``
``NAME``          categories, origins, names of facts and of validators
``VALUE``         facts of ``FACTS`` and validators: versions, architectures
``LINE``          names of kernels, operators and functions, other facts, library keys: one printable line
any text          texts of messages and errors, which are shown and nothing else
================  ==========================================================================================

``fault`` tests every record of a reader before it is stored (``store/storable.py``), and every fact of a ``--target``.
A record with a text outside of its grammar becomes a counted reject.  No kind but the last one may hold a line end or a
control character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from logparse.model.problems import ConvProblem, GemmProblem, Operand, OperatorProblem, Problem
from logparse.model.records import (
    FACTS,
    Call,
    Collective,
    Fact,
    Kernel,
    Measurement,
    Message,
    Record,
    Solution,
    SolutionName,
)

TYPE = re.compile(r"[A-Za-z0-9_]{1,40}")
LAYOUT = re.compile(r"[A-Za-z][A-Za-z0-9]{0,15}")
LIBRARY = re.compile(r"[A-Za-z0-9_.-]{1,40}")
SOLUTION = re.compile(r"[\w .,=?+:*/()<>\[\]@%-]*", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
VALUE = re.compile(r"[\w .:+,()/@~=-]*", re.ASCII)
WORD = re.compile(r"[\w?]+", re.ASCII)
VALIDATOR = "validator:"
KERNEL = "kernel"
"""Library name of solutions that are known only as kernels.  Their id is the kernel's signature."""

Test: TypeAlias = Callable[[str], bool]


def line(text: str) -> bool:
    """Return True if a text has only printable characters and no line end.

    Halves of surrogate pairs are allowed, because the store keeps them as escapes.
    """
    return text.isprintable() or all(x.isprintable() or "\ud800" <= x <= "\udfff" for x in text)


Wrong: TypeAlias = Iterable[tuple[str, str]]
"""Fields whose text is not allowed.  Each is a pair of the field's name and the text."""


def fault(noun: Record | Problem | Solution) -> str | None:
    """Explain why a record, matrix product, convolution or kernel cannot be stored. Return None if it can be.

    The result names the first field whose text is not allowed.  A text is never allowed in a field for numbers.
    """
    check = _CHECKS.get(type(noun))
    for name, text in check(noun) if check is not None else ():
        return f"{name} cannot have the value {text[:60]!r}"
    return None


def _of_call(x: Call) -> Wrong:
    wrong = _of_problem(x.problem)
    if x.solution is not None:
        wrong = (*wrong, *_of_solution(x.solution))
    return wrong or (() if _NAME(x.category) else (("category", x.category),))


def _of_measurement(x: Measurement) -> Wrong:
    own = _texts((("origin", x.origin, _NAME), ("key", x.key_text, line)))
    return (*_of_problem(x.problem), *_of_solution(x.solution), *own)


def _of_fact(x: Fact) -> Wrong:
    kind, colon, of = x.name.partition(":")
    own = x.name.startswith(VALIDATOR)
    known = own or (x.name in FACTS and x.name != "device")
    names = ("fact", kind, _NAME), ("fact", of if colon else None, _NAME if own else line)
    return _texts((*names, (x.name, x.value, _VALUE if known else line)))


def _of_message(x: Message) -> Wrong:
    return _texts((("category", x.category, _NAME), ("function", x.function, line)))


def _of_name(x: SolutionName) -> Wrong:
    return (*_of_solution(x.solution), *_texts((("name", x.name, line), ("kernel", x.kernel_name, line))))


def _of_kernel(x: Kernel) -> Wrong:
    own = _texts((("operator", x.op, line), ("kernel", x.kernel, line), ("unit", x.unit, line)))
    return (*own, *(wrong for noun in (x.problem, x.operator) if noun for wrong in _CHECKS[type(noun)](noun)))


def _of_collective(x: Collective) -> Wrong:
    return _texts((("kernel", x.kernel, line), ("ranks", x.ranks, line)))


def _of_solution(x: Solution) -> Wrong:
    spelled = line if x.library == KERNEL else _SOLUTION
    own = ("solution", x.id, spelled), ("solution", x.raw, spelled), ("algorithm", x.algorithm, spelled)
    return _texts((("library", x.library, _LIBRARY), *own))


def _of_operator(problem: OperatorProblem) -> Wrong:
    each = [x for value in problem.inputs for x in (value if isinstance(value, tuple) else (value,))]
    types = _texts([("type", x.dtype, _WORD) for x in each if isinstance(x, Operand)])
    arguments = _texts([("argument", x, line) for x in each if isinstance(x, str)])
    return (*_texts((("operator", problem.name, line),)), *types, *arguments)


def _texts(rows: Iterable[tuple[str, str | None, Test]]) -> Wrong:
    return [(name, text) for name, text, holds in rows if text is not None and not holds(text)]


# ------------------------------------------------------------------------------------- products and convolutions

_fine: set[tuple[type, tuple[object, ...]]] = set()
"""Combinations of texts in the fields of problems (such as matrix products) that have passed the tests.

Hundreds of thousands of problems have only a few different combinations, so each combination is tested once.
"""
_FINE = 4096


def _of_problem(problem: Problem) -> Wrong:
    if isinstance(problem, OperatorProblem):
        return _of_operator(problem)
    kind, values = type(problem), vars(problem)
    texts, numbers = _getters(kind)
    key = kind, texts(values)
    if key in _fine and str not in set(map(type, numbers(values))) and not values.get("members"):
        return ()
    wrong = [(name, values[name]) for name, holds in _tests(kind).items() if _is_wrong(values[name], holds)]
    members = (x for member in values.get("members", ()) for x in vars(member).items())
    wrong += [(name, x) for name, x in members if isinstance(x, str)]
    if not wrong and len(_fine) < _FINE:
        _fine.add(key)
    return wrong


def _is_wrong(value: object, holds: Test | None) -> bool:
    return isinstance(value, str) and not (holds is not None and holds(value))


def _getters_of(kind: Any) -> tuple[Getter, Getter]:
    """Return two functions that read the fields of a matrix product or convolution.

    The first one returns the fields that are texts, the second one returns the fields that are numbers.
    """
    tests = _tests(kind)
    texts, numbers = ([name for name, test in tests.items() if (test is None) == bare] for bare in (False, True))
    return itemgetter(*texts), itemgetter(*numbers)


Getter: TypeAlias = Callable[[Mapping[str, Any]], tuple[object, ...]]


def _tests_of(kind: Any) -> Mapping[str, Test | None]:
    """Return a function for each field of a matrix product or convolution, which checks the field's text.

    A field that does not hold a text has no function (None).
    """
    types = get_type_hints(kind)
    return {x.name: _test(x.name, types[x.name]) for x in fields(kind) if x.name != "members"}


def _test(name: str, kind: Any) -> Test | None:
    options = get_args(kind) if get_origin(kind) is not Literal else (kind,)
    words = {word for x in options if get_origin(x) is Literal for word in get_args(x) if isinstance(word, str)}
    if words:
        return words.__contains__
    if str not in options and kind is not str:
        return None
    return _LAYOUT if name.endswith("_layout") else _TYPE


def _make_cached_test(pattern: re.Pattern[str]) -> Test:
    """Return a function that tests whether a text matches a pattern.  It caches its answers.

    The cache helps because the same few words occur in every record.
    """
    return lru_cache(maxsize=4096)(lambda text: pattern.fullmatch(text) is not None)


_CHECKS: Mapping[type, Callable[[Any], Wrong]] = {
    Call: _of_call,
    Measurement: _of_measurement,
    Fact: _of_fact,
    Message: _of_message,
    SolutionName: _of_name,
    Kernel: _of_kernel,
    Collective: _of_collective,
    GemmProblem: _of_problem,
    ConvProblem: _of_problem,
    OperatorProblem: _of_operator,
    Solution: _of_solution,
}
_getters: Callable[[Any], tuple[Getter, Getter]] = lru_cache(_getters_of)
_tests: Callable[[Any], Mapping[str, Test | None]] = lru_cache(_tests_of)
_TYPE, _LAYOUT, _LIBRARY, _SOLUTION, _NAME, _VALUE, _WORD = map(
    _make_cached_test, (TYPE, LAYOUT, LIBRARY, SOLUTION, NAME, VALUE, WORD)
)
