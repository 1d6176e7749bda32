"""The continuation lines of hipBLASLt's ``isSolutionSupported`` Info message, which bear no prefix.

Produced by ``HIPBLASLT_LOG_MASK=8``; the first line is read by ``log.py`` like any other, these follow it::

    [2025-11-20 10:00:00][HIPBLASLT][4242][Info][isSolutionSupported] Hardware match: Solution Index: 1
    Software match: 0
    Match [0]:
      FreeSizeAMultiple(8): 1

An empty line ends the message (ROCm/hipBLASLt ``tensile_host.cpp``, ``isSolutionSupported``).  Output of the
application that falls between cannot be distinguished and becomes part of the message.
"""

from __future__ import annotations

from collections.abc import Iterable

from logparse.formats.format import BlockFormat, Line, Outcome
from logparse.formats.ranks import ranked
from logparse.model import Message, Record

_MARKER = "][Info][isSolutionSupported]"


class _Reader:
    def __init__(self) -> None:
        self.awake = False

    def take(self, line: Line) -> Outcome | None:
        if _MARKER in line.text:
            self.awake = True
            return None
        if not self.awake:
            return None
        text = line.text.strip()
        if not text:
            self.awake = False
            return None
        return Outcome("message", (Message(category="info", function="isSolutionSupported", text=text),))

    def close(self) -> Iterable[Record]:
        if self.awake:
            self.awake = False
            yield Message(category="info", function="isSolutionSupported", text="(the log ends inside this message)")


def begin() -> _Reader:
    return _Reader()


_MARKERS = (_MARKER.encode(),)

FORMAT = BlockFormat(
    name="hipblaslt-info",
    about="continuation lines of hipBLASLt's isSolutionSupported (log mask 8)",
    markers=_MARKERS,
    begin=ranked(_MARKERS, begin, apart=False),
)
