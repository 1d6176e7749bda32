"""Test logparse's predictions of which kernels a real library uses if it reads an override file.

An override file is the user's choice of kernels. The real library is asked, and the answers are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyzers.overrides.look_up import look_up
from logparse.libraries.kinds.override_format import OverrideFormat
from logparse.libraries.kinds.reading import Reading
from logparse.model import Problem, Solution
from tests.conformance.report import Difference
from tests.conformance.rocm import CrashError


@dataclass(frozen=True)
class Library:
    """A real library, with everything that is needed to compare it with logparse's predictions.

    - ``ask`` returns what the library uses for each of the ``calls`` under a file (an index or launched kernels). It
      raises CrashError if the library crashes.
    - ``plain`` makes a file from {call number: kernels}.
    - ``good`` has for each call a kernel that runs and is not the library's own choice (None: no such kernel).
    - ``name`` is the name of the file, if the name matters.
    - ``lazy`` is true if the library loads kernels only when a call needs them.
    - ``expected`` names the difference that is expected for a call, if any.

    If a ``lazy`` library finds a row whose kernel cannot compute the call, two results are right. If the kernel is not
    loaded, the library ignores the row and uses the next one. If the kernel is loaded, the library uses its own choice.
    """

    format: OverrideFormat
    target: Mapping[str, str]
    calls: Sequence[Problem]
    ask: Callable[[bytes], Sequence[Any]]
    plain: Callable[[Mapping[int, Sequence[Solution]]], bytes]
    good: Sequence[Solution | None]
    lazy: bool = False
    name: str = "file"
    expected: Callable[[Reading[Any], Problem], str | None] = lambda reading, call: None


@dataclass(frozen=True)
class Build:
    """The kernels that the real library was seen to use for one call, with different override files.

    - ``own``: without a file.
    - ``uses``: {kernel in the file: what is used}.
    - ``absent``: kernels that are ignored.
    """

    # In "uses", the file names only this kernel.

    # The kernels in absent are ignored if a later line of the file names another one.

    own: Any
    uses: dict[Solution, Any] = field(default_factory=dict)
    absent: set[Solution] = field(default_factory=set)

    @property
    def idle(self) -> set[Solution]:
        """Return the kernels that have no effect if a file names them: the library still uses its own choice."""
        return {solution for solution, used in self.uses.items() if used == self.own}


def differences(library: Library, files: Mapping[str, bytes]) -> tuple[list[Difference], int]:
    """Ask the real library and logparse which kernel each call gets with each file. Returns where they disagree.

    Also returns in how many cases a file changed the kernel that the library uses.
    """
    readings = {name: library.format.reader(library.name, data, library.target) for name, data in files.items()}
    builds = _probed(library, readings.values())
    found, hits = [], 0
    for name, data in files.items():
        try:
            answers = library.ask(data)
        except CrashError as crash:  # an override file must never cost a person the job
            found.append(Difference(name, data, "all calls", f"{crash}", "answers"))
            continue
        for call, build, used in zip(library.calls, builds, answers, strict=True):
            hits += used != build.own
            served = (readings[name], call, build)
            ours = _expected(library, *served, passed_over=build.idle if library.lazy else build.absent)
            if ours != used and not (library.lazy and used == _expected(library, *served, passed_over=set())):
                why = library.expected(readings[name], call)
                found.append(Difference(name, data, call.text, f"{used}", f"{ours}", why))
    return found, hits


def _expected(
    library: Library, reading: Reading[Any], call: Problem, build: Build, *, passed_over: set[Solution]
) -> Any:
    """Return the kernel that the library should use for a call, as logparse predicts from a file of kernel choices.

    Lines with a kernel in ``passed_over`` are skipped. If no line is left, the library uses its own choice.
    """
    # The prediction is the kernel in the first line for the call, even if the kernel cannot compute the call.
    answer = look_up(library.format, reading, call, has=lambda solution: solution not in passed_over)
    return build.own if answer.solution is None else build.uses[answer.solution]


def _probed(library: Library, readings: Iterable[Reading[Any]]) -> list[Build]:
    """Ask the real library, for each kernel, what it does if a file tells it to use this kernel for a call.

    The first file has only this kernel. A second file also has a line with a kernel that surely works. If the library
    then uses the second kernel, it ignores the first one. If the library loads kernels only when a call needs them
    (``lazy``), there is no second file.
    """
    builds = [Build(own) for own in library.ask(library.plain({}))]
    good = library.ask(library.plain({n: [x] for n, x in enumerate(library.good) if x is not None}))
    queues = [sorted(x, key=lambda solution: solution.id) for x in _offered(library, readings)]
    while any(queues):
        given = {number: queue.pop() for number, queue in enumerate(queues) if queue}
        alone = library.ask(library.plain({n: [x] for n, x in given.items()}))
        for number, solution in given.items():
            builds[number].uses[solution] = alone[number]
        if library.lazy:
            continue
        both = library.ask(library.plain({n: [x, y] for n, x in given.items() if (y := library.good[n]) is not None}))
        for number, solution in given.items():
            if alone[number] == builds[number].own != both[number] == good[number]:
                builds[number].absent.add(solution)
    return builds


def _offered(library: Library, readings: Iterable[Reading[Any]]) -> list[set[Solution]]:
    """Return for each call all kernels that the override files (the user's choices of kernels) name for it."""
    offered: list[set[Solution]] = [set() for _ in library.calls]
    for reading in readings:
        for call, solutions in zip(library.calls, offered, strict=True):
            rows = reading.by_key.get(library.format.key(call, reading.key_facts) or "", ())
            solutions.update(row.solution for row in rows if row.solution is not None)
    return offered
