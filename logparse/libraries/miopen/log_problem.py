"""Find the convolution that a line of MIOpen's log is about.  Earlier lines name it, but not the line itself.

One thread writes one of two sequences:

* a command and then the line of the call;
* ``Find Start: KEY``, times, ``Find Ended: KEY`` and ``Chosen Algorithm``.

Several threads or ranks may share a log without a prefix that names them.  Then several searches are open or several
commands wait, and the line's convolution is unknown.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from logparse.libraries.kinds.patterns import regex
from logparse.libraries.miopen.driver import readable_command
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.model import CONV_FIELDS, ConvProblem, Direction

# Unit: lines.  The line of a call follows its command within microseconds.  So if 1,000 lines pass, the call failed.
_LATEST = 1_000
_SIZES = [name for name in CONV_FIELDS if not name.endswith(("_type", "_cast", "_layout"))]
_LOGGED = regex(r"Command \[\w*\] ?\S*MIOpenDriver")

Named = tuple[ConvProblem, str | None]
"""A convolution, and its key in MIOpen's solver database if the log contains the key."""


@dataclass
class _Waiting:
    """Commands from a MIOpen log, each for a convolution, whose result has not been read yet.

    * ``commands``: the line number and the convolution of each.
    * ``ended``: the number of results for which the command is unknown.
    """

    # Either all commands in an object search for a solver, or none does. All have the same direction.
    commands: deque[tuple[int, ConvProblem]] = field(default_factory=deque)
    ended: int = 0

    def forget(self, before: int) -> None:
        while self.commands and self.commands[0][0] < before:
            self.commands.popleft()
            self.ended = max(0, self.ended - 1)

    def end(self, problems: int) -> None:
        """Note that the result of one of the waiting MIOpen commands was read.

        ``problems`` is the number of different convolutions in the commands.
        """
        self.ended += 1
        # If all commands are for one convolution, the oldest command is removed. Otherwise it is unknown which one has
        # ended, so all are removed when all have ended.
        if problems == 1:
            self.commands.popleft()
            self.ended -= 1
        elif self.ended >= len(self.commands):
            self.commands.clear()
            self.ended = 0


class Thread:
    """Remembers which convolutions a thread has named in MIOpen's log.

    A later line, for example with a time, does not name its convolution again.  ``shared`` becomes True if the lines
    come from several threads and no prefix tells them apart.
    """

    def __init__(self, typed: str | None = None) -> None:
        self.shared = False
        self._lines = 0
        self._started: Counter[str] = Counter()
        self._key: str | None = None
        self._typed = typed
        self._waiting: dict[tuple[bool, str], _Waiting] = {}

    def line(self) -> None:
        """Count one more line of the log.

        A command in the log whose result does not follow within 1,000 lines is dropped later, because its call has
        failed.
        """
        self._lines += 1

    def command(self, text: str) -> None:
        """Remember the convolution of a logged command line, because MIOpen's later lines do not name it again."""
        self._key = None
        logged = _LOGGED.search(text)
        command = None if logged is None else readable_command(f"MIOpen: {text[logged.start() :]}")
        for problem in command.problems if command else ():
            find = "Find" in (command.function or "")  # type: ignore[union-attr]
            waiting = self._waiting.setdefault((find, problem.direction), _Waiting())
            waiting.forget(self._lines - _LATEST)
            waiting.commands.append((self._lines, problem))

    def typed(self, text: str | None) -> None:
        """Remember a command line that a person or MIOpenDriver wrote, because later lines do not name its convolution.

        The next such line replaces it.
        """
        self._key = None
        self._typed = text

    def looked_up(self, key: str) -> None:
        self._key = key

    def started(self, key: str) -> None:
        self._key = key
        self._started[key] += 1

    def ended(self, key: str) -> None:
        self._key = None
        self._started[key] -= 1
        self._started = +self._started

    def finding(self, direction: Direction | None) -> Named | None:
        """Return the convolution for which MIOpen searches a solver, according to the lines before this one.

        Returns None if the convolution is unknown, or if it is not of this direction.
        """
        if len(self._started) > 1:
            self.shared = True
            return None
        for key in self._started:
            return _keyed(key, direction)
        return self._of_key(direction) or self._of_commands(direction, find=True) or self._of_typed(direction)

    def chosen(self, direction: Direction) -> Named | None:
        """Return the convolution for which MIOpen has just finished its search for a solver. None if it is unknown."""
        by_command = self._of_commands(direction, find=True, end=True)
        by_key = self._of_key(direction)
        if by_key is None or by_command is None:
            return by_key or by_command or self._of_typed(direction)
        if _sizes(by_key[0]) == _sizes(by_command[0]):
            return by_key
        self.shared = True
        return None

    def ran(self, direction: Direction) -> ConvProblem | None:
        """Return the convolution that MIOpen has just run, according to the current log line. None if it is unknown."""
        named = self._of_commands(direction, find=False, end=True)
        # If there is a key, the last lines are about a find, because only a find looks a key up.
        if named is None and self._key is None:
            named = self._of_typed(direction)
        return None if named is None else named[0]

    def _of_key(self, direction: Direction | None) -> Named | None:
        return None if self._key is None or self.shared else _keyed(self._key, direction)

    def _of_commands(self, direction: Direction | None, *, find: bool, end: bool = False) -> Named | None:
        """Find out from earlier commands in MIOpen's log which convolution a line without a name is about.

        Only commands for which no such line has been read yet are considered.

        * Returns None if there is no such command, or if the commands are about different convolutions.
        * ``find`` tells whether the line is about a search for a solver.
        * ``end`` is True if the line shows that a command's call has ended.  Then the command is forgotten.
        """
        problems: dict[str, ConvProblem] = {}
        for (of_find, of_direction), waiting in self._waiting.items():
            if of_find == find and direction in (None, of_direction):
                waiting.forget(self._lines - _LATEST)
                own = {problem.text: problem for _, problem in waiting.commands}
                problems |= own
                if end and own:
                    waiting.end(len(own))
        if len(problems) > 1:
            self.shared = True
            return None
        return next(((problem, None) for problem in problems.values()), None)

    def _of_typed(self, direction: Direction | None) -> Named | None:
        command = None if self._typed is None or self.shared else readable_command(self._typed)
        # A command that an old MIOpen logged was not typed. A thread can log one between two lines of another thread.
        problem = None if command is None or command.function else command.problem(direction)
        return None if problem is None else (problem, None)


def _keyed(key: str, direction: Direction | None) -> Named | None:
    problem = problem_from_key(key)
    return (problem, key) if direction in (None, problem.direction) else None


def _sizes(problem: ConvProblem) -> list[object]:
    """Return the sizes of a convolution, to check whether a logged command and a database entry are about the same one.

    Types and layouts are left out, because a command states few of them.
    """
    return [getattr(problem, name) for name in _SIZES]
