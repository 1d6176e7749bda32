"""What hipblaslt-bench prints first: the library's build and the devices; launch scripts put it in front of logs.

::

    hipBLASLt version: 100200
    hipBLASLt git version: de5c1aebb6-dirty
    Query device success: there are 1 devices. (Target device ID is 0)
    -------------------------------------------------------------------------------
    Device ID 0 : AMD Instinct MI350X gfx950:sramecc+:xnack-
    with 309.2 GB memory, max. SCLK 2200 MHz, max. MCLK 1900 MHz, compute capability 9.5
    maxGridDimX 2147483647, sharedMemPerBlock 65.5 KB, maxThreadsPerBlock 1024, warpSize 64

Every line is a fact; those of devices are read behind a version only.  The device is that which the tool used.  Source:
ROCm/hipBLASLt ``clients/common/hipblaslt_arguments.cpp``, ``clients/common/utility.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logparse.formats.format import BlockFormat, Line, Outcome
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.model import Fact, Record

VERSIONS: Mapping[str, str] = {
    "hipBLASLt version:": "hipblaslt_version",
    "hipBLASLt git version:": "hipblaslt_revision",
    "tuning file git version:": "hipblaslt_revision",
}
_DEVICE = regex(r"Device ID (\d+) : (.*\S)\s+(gfx\S+)\s*\Z")
_TARGET = regex(r"Query device success: there are \d+ devices\.(?: \(Target device ID is (\d+)\))?")
_REST = regex(r"with [\d.]+ GB memory|maxGridDimX \d|-{10,}\Z")


class _Reader:
    def __init__(self) -> None:
        self.awake = False
        self._target = "0"
        self._known: set[Fact] = set()

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip()
        if not text:
            return None
        outcome = self._version(text) or (self._device(text) if self.awake else None)
        self.awake = self.awake and outcome is not None
        return outcome

    def close(self) -> Iterable[Record]:
        return ()

    def _version(self, text: str) -> Outcome | None:
        for start, name in VERSIONS.items():
            if text.startswith(start):
                self.awake = start == "hipBLASLt version:" or self.awake
                return Outcome("fact", self._new(Fact(name, text[len(start) :].strip())))
        return None

    def _device(self, text: str) -> Outcome | None:
        target = _TARGET.match(text)
        if target:
            self._target = target[1] or "0"
            return Outcome("fact")
        device = _DEVICE.match(text)
        if device:
            facts = [Fact("device", device[2]), Fact("arch", device[3])] if device[1] == self._target else []
            return Outcome("fact", [new for fact in facts for new in self._new(fact)])
        return Outcome("fact") if _REST.match(text) else None

    def _new(self, fact: Fact) -> list[Record]:
        """A fact once per stream: a script runs the tool hundreds of times and each run prints all of this."""
        if fact in self._known or not fact.value:
            return []
        self._known.add(fact)
        return [fact]


_MARKERS = tuple(text.encode() for text in VERSIONS)
FORMAT = BlockFormat(
    name="hipblaslt-preamble",
    about="the build and the devices, as hipblaslt-bench prints them first",
    markers=_MARKERS,
    begin=ranked(_MARKERS, _Reader),
)
