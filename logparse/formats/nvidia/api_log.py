"""What the logs of cuBLAS and cuDNN share: one block per call of the API, its arguments line by line.

::

    I! cuBLAS (v13.1.0) function cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, …) called:
    i!  transa: type=cublasOperation_t; val=CUBLAS_OP_N(0)
    i!  m: type=int; val=640
    i! Time: 2026-11-22T01:25:17 elapsed from start 0.050000 minutes or 3.000000 seconds
    i!Process=445; Thread=140236256330048; GPU=0; Handle=POINTER (IN HEX:0x0x3b5201a0); …; MathMode=CUBLAS_DEFAULT_MATH
    i! COMPILED WITH: GNU GCC/G++ / 8.5.0 20210514 (Red Hat 8.5.0-26)

A block of level W or E holds warnings or errors instead of arguments, each of which is a message.  Arguments of cuDNN
are nested by indentation; here the path to one is joined by dots (``executionPlan.engcfg.engine.engine_id``).
A call that a format reads is counted at the last line of its block; all other lines are messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from logparse.formats.format import BlockReader, Line, Outcome
from logparse.formats.patterns import regex
from logparse.model import Call, Message, Record, Reject

_ENTRY = regex(r"( +)(\w[^:]*?|\[\d+\]): (?:type=[^;]*?(?:; val=(.*?);?|:)|(.*))\s*\Z")
_PROCESS = regex(r" ?Process=(\d+); Thread=\d+; GPU=(\d+|NULL);.*?(?:; MathMode=(\w+))?\.?\s*\Z")
_REST_OF_A_WARNING = " at: "
_PATIENCE = 50
"""Lines of other writers that may stand inside a block."""


@dataclass
class Block:
    """One call of the API: its function, its arguments, and which process called it on which device."""

    function: str
    level: str
    values: dict[str, str] = field(default_factory=dict)
    repeated: bool = False
    """Whether a path stood twice: a list of descriptors, or two blocks in one another."""
    pid: int | None = None
    gpu: int | None = None
    math_mode: str | None = None
    _path: list[tuple[int, str]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Take an argument's line, without its mark."""
        entry = _ENTRY.match(text)
        if entry is None:
            return
        depth, name, value, other = len(entry[1]), entry[2], entry[3], entry[4]
        while self._path and self._path[-1][0] >= depth:
            self._path.pop()
        self._path.append((depth, name))
        path = ".".join(part for _, part in self._path)
        self.repeated |= path in self.values
        self.values[path] = value if value is not None else other or ""


@dataclass(frozen=True)
class ApiLog:
    """How one library writes its log: how a block begins (groups ``level``, ``version``, ``function``) and ends, which
    functions are calls, and what such a call is.  ``read`` raises ValueError on arguments that do not fit.
    """

    category: str
    opening: re.Pattern[str]
    last: str
    is_call: Callable[[str], bool]
    read: Callable[[Block], Call | None]
    facts: Callable[[str], Iterable[Record]]


class Reader(BlockReader):
    """State of one library's log in one stream."""

    def __init__(self, log: ApiLog) -> None:
        self._log = log
        self._block: Block | None = None
        self._patience = 0
        self._version: str | None = None
        self._lost: list[Record] = []

    @property
    def awake(self) -> bool:
        return self._block is not None

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip("\r")
        opening = self._log.opening.match(text)
        if opening is not None:
            return self._open(opening, text)
        block = self._block
        if block is None:
            return None
        if text.startswith(_REST_OF_A_WARNING):
            return Outcome("message")
        if not text.startswith(block.level.lower() + "!"):
            self._patience -= bool(text)
            if self._patience <= 0:
                self._lose()
            return None
        body = text[2:]
        if body.startswith((" Time: ", " Process=", "Process=", " COMPILED WITH")):
            self._note(block, body)
        elif block.level != "I":
            warning = Message(category=self._log.category, function=block.function, text=body.strip())
            return Outcome("message", [warning])
        elif self._log.is_call(block.function):
            block.add(body)
        if not body.startswith(self._log.last):
            return Outcome("message")
        self._block = None
        return self._closed(block)

    def close(self) -> Iterable[Record]:
        self._lose()
        return self._lost

    def _open(self, opening: re.Match[str], text: str) -> Outcome:
        self._lose()
        records, self._lost = self._lost, []
        function, version = opening["function"], opening["version"]
        self._block, self._patience = Block(function, opening["level"]), _PATIENCE
        if version != self._version:
            self._version = version
            records += self._log.facts(version)
        if opening["level"] == "I" and not self._log.is_call(function):
            records.append(Message(category=self._log.category, function=function, text=text[2:].strip()))
        return Outcome("message", records)

    def _note(self, block: Block, body: str) -> None:
        match = _PROCESS.match(body)
        if match is not None:
            block.pid = int(match[1])
            block.gpu = int(match[2]) if match[2].isdecimal() else None
            block.math_mode = match[3]

    def _closed(self, block: Block) -> Outcome:
        if block.level != "I" or not self._log.is_call(block.function):
            return Outcome("message")
        try:
            call = self._log.read(block)
        except ValueError as error:
            return Outcome("reject", [Reject(f"{block.function}: {error}")])
        if call is not None:
            return Outcome("call", [call])
        text = "no single product or convolution"
        return Outcome("message", [Message(category=self._log.category, function=block.function, text=text)])

    def _lose(self) -> None:
        """Give up a block that is open."""
        if self._block is not None:
            text = "a call whose block has no end"
            self._lost.append(Message(category=self._log.category, function=self._block.function, text=text))
            self._block = None
