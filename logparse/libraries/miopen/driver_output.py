"""Read the output of ``MIOpenDriver``: the solver that it ran, the time, and the verification of the result.

::

    MIOpenDriver convfp16 -n 32 -c 64 -H 256 -W 256 -k 64 -y 3 -x 3 -p 1 -q 1 … -F 1 -t 1
    PRNG seed: 12345678
    Timestamp: 2026-03-23 11:04:12 UTC; … ROCm: 7.12.60700; MIOpen Driver: 3.5.1; … GPU Model: 1 x AMD …; …
    Forward Conv solutions available: 2
    - id: 16 algo: 1, time: 4.07983 ms, ws: 0, name: ConvAsmBwdWrW3x3
    MIOpen Forward Conv. Algorithm: 3, Solution: 139/ConvWinoFuryRxS<2-3>
    GPU Kernel Time Forward Conv. Elapsed: 10.839644 ms (average)
    stats: name, n, c, ho, wo, y, x, k, flopCnt, bytesRead, bytesWritten, GFLOPs, GB/s, timeMs
    stats: fwd-conv3x3u1, 32, 64, 256, 256, 3, 3, 64, 154618822656, 268509184, 268435456, 14264, 50, 10.839644
    Forward Convolution Verifies OK on GPU reference (0.000307883 < 0.0082)

``MIOpenDriver conv`` prints the times with ``-t 1``, the list of immediate mode (MIOpen's choices without a search)
with ``-S 0``, and the verification with ``-V 1``.  Source: ROCm/MIOpen ``driver/conv_driver.hpp``.  The lines of one
direction are one measurement.  The command before them, which ``driver`` reads, states the convolution.

* The time is the mean over all iterations except the first.  ``stats`` lines repeat it.
* A result that failed verification has the status ``wrong``.
* The list of immediate mode is not a measurement.  Its times come from the find-db if the find-db has a record.
  Otherwise they are estimates: 10, 20, 30 … from TunaNet, or 10/WTI.  The list does not state which.  So solvers of the
  list have status ``no_time`` and origin ``driver-list``, and ``error`` quotes the printed time.
* Before ROCm 3 no solver is printed.  The algorithm's name is then used instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from logparse.libraries.kinds.decimals import from_milliseconds
from logparse.libraries.kinds.format import BlockFormat, Line, Origin, Outcome
from logparse.libraries.kinds.line_prefixes import make_rank_readers
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.miopen.driver import Command, readable_command
from logparse.libraries.miopen.solvers import ID_OF_CODE, algorithm_name
from logparse.model import ConvProblem, Direction, Fact, Measurement, Message, Record, Solution

ORIGIN = "driver"
LIST_ORIGIN = "driver-list"

_DIRECTION: dict[str, Direction] = {"Forward": "F", "Backward Data": "B", "Backward Weights": "W"}
_WHICH = r"(?P<which>Forward|Backward Data|Backward Weights)"
_FLOAT = r"[-+.\deE]+|nan|inf|-nan"
_PICK = regex(
    rf"^MIOpen {_WHICH} Conv\. Algorithm: (?P<code>-?\d{{1,9}})(?:, Solution: (?P<id>\d+)/(?P<solver>.*?))?\s*$"
)
_TIME = regex(rf"^GPU Kernel Time {_WHICH} Conv\. Elapsed: (?P<ms>{_FLOAT}) ms\b")
_AVAILABLE = regex(rf"^{_WHICH} Conv solutions available: \d+")
_ITEM = regex(
    rf"^- id: (?P<id>\d+),? +algo: (?P<code>\d{{1,9}}), +time: +(?P<ms>{_FLOAT})(?: ms)?, +ws: +(?P<ws>\d{{1,18}}), "
    r"+name: (?P<solver>\S+)"
)
_VERIFY = regex(
    r"^(?P<pass>Forward|Backward) Convolution(?P<of> Data| Weights)? (?P<verdict>Verifies|FAILED|Failed)\b(?P<rest>.*)$"
)
_STATS = ("stats: fwd-conv", "stats: bwdd-conv", "stats: bwdw-conv")
_NOTE = regex(r"^(?:PRNG seed: |stats: name, |Warm-up: Wall-clock |Wall-clock Time )")
_MACHINE = regex(r"^Timestamp: .*; ")
_FACTS = (
    ("rocm_version", regex(r"; ROCm: ([^;]+)")),
    ("miopen_version", regex(r"; MIOpen Driver: ([^;]+)")),
    ("device", regex(r"; GPU Model: (?:\d+ x )?([^;]*)")),
    ("driver", regex(r"; AMDGPU Driver: ([^;]+)")),
)


@dataclass
class _Run:
    """The results of solvers that MIOpenDriver has printed so far for one convolution in one direction."""

    direction: Direction
    problem: ConvProblem | None
    solution: Solution | None = None
    time_us: float | None = None
    error: str | None = None
    wrong: bool = False
    listed: dict[Solution, tuple[str, int]] = field(default_factory=dict)
    """The solvers that immediate mode lists, each with its milliseconds and workspace.

    (In immediate mode MIOpen chooses without a search.)
    """

    def records(self) -> list[Record]:
        if self.problem is None:
            names = ", ".join(x.id for x in filter(None, (self.solution, *self.listed)))
            text = f"{self.direction} of an unknown problem: {names}"
            return [Message(category="miopen_driver", text=text)] if names else []
        out: list[Record] = [
            Measurement(
                problem=self.problem,
                solution=solution,
                origin=LIST_ORIGIN,
                status="no_time",
                workspace_bytes=workspace,
                error=f"MIOpenDriver lists {milliseconds} ms, but does not say whether this is measured or estimated",
            )
            for solution, (milliseconds, workspace) in self.listed.items()
        ]
        if self.solution is not None:
            row = Measurement(
                problem=self.problem,
                solution=self.solution,
                origin=ORIGIN,
                status="wrong" if self.wrong else "ok" if self.time_us is not None else "no_time",
                time_us=self.time_us,
                workspace_bytes=self.listed.get(self.solution, (None, None))[1],
                error=self.error,
            )
            out.append(row)
        return out


class Reader:
    """Reads the output of MIOpenDriver, which is MIOpen's benchmark program."""

    awake = False  # Every line of this format has a marker, so the reader needs no other lines.

    def __init__(self) -> None:
        self._command: Command | None = None
        self._run: _Run | None = None
        self._done: list[Record] = []

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip()
        # ``driver`` reads the command as a call.  Here it only names the problem of the lines behind it.
        if "MIOpenDriver" in text:
            self._finish()
            self._command = readable_command(text)
            return None
        return self._result(text) or self._note(text)

    def close(self) -> Iterable[Record]:
        self._finish()
        done, self._done = self._done, []
        return done

    def _finish(self) -> None:
        if self._run is not None:
            self._done += self._run.records()
            self._run = None

    def _running(self, which: str, *, fresh: bool = False) -> _Run:
        direction = _DIRECTION[which]
        run = self._run
        if run is None or run.direction != direction or (fresh and run.solution is not None):
            self._finish()
            run = self._run = _Run(direction, self._command.problem(direction) if self._command else None)
        return run

    def _outcome(self, unit: str, *records: Record) -> Outcome:
        done, self._done = self._done, []
        return Outcome(unit, [*done, *records])  # type: ignore[arg-type]

    def _result(self, text: str) -> Outcome | None:
        if match := _PICK.match(text):
            run = self._running(match["which"], fresh=True)
            run.solution = _solution(match["solver"] if match["id"] != "0" else None, match["code"], run.direction)
        elif match := _TIME.match(text):
            run = self._running(match["which"])
            run.time_us = from_milliseconds(match["ms"])
            if run.time_us is None:
                run.error = f"time is {match['ms']} ms"
        elif match := _AVAILABLE.match(text):
            self._running(match["which"], fresh=True)
        elif (match := _ITEM.match(text)) and self._run is not None:
            solution = _solution(match["solver"], match["code"], self._run.direction)
            if solution is not None:
                self._run.listed[solution] = match["ms"], int(match["ws"])
        elif match := _VERIFY.match(text):
            run = self._running(match["pass"] + (match["of"] or ""))
            if match["verdict"] != "Verifies":
                run.wrong, run.error = True, f"verification failed{match['rest'].rstrip()}"
        elif not text.startswith(_STATS):
            return None
        return self._outcome("measurement")

    def _note(self, text: str) -> Outcome | None:
        if _MACHINE.match(text):
            found = [(name, match[1].strip()) for name, pattern in _FACTS if (match := pattern.search(text))]
            return self._outcome("fact", *(Fact(name, value) for name, value in found if value))
        if _NOTE.match(text):
            return self._outcome("message", Message(category="miopen_driver", text=text))
        return None


def _solution(solver: str | None, code: str, direction: Direction) -> Solution | None:
    family = ID_OF_CODE.get(int(code))
    algorithm = algorithm_name(family, direction) if family else None
    name = solver or algorithm
    return Solution("miopen", name, solver or f"Algorithm: {code}", algorithm) if name else None


_MARKERS = (
    b"MIOpenDriver",
    b" Conv. Algorithm: ",
    b"GPU Kernel Time ",
    b" Conv solutions available: ",
    b"- id: ",
    b"stats: name, ",
    b"stats: fwd-conv",
    b"stats: bwdd-conv",
    b"stats: bwdw-conv",
    b"Forward Convolution ",
    b"Backward Convolution ",
    b"PRNG seed: ",
    b"Timestamp: ",
    b"Wall-clock T",
)

FORMAT = BlockFormat(
    name="miopen-driver-output",
    about=(
        "what MIOpenDriver prints: the solutions of a convolution, times of kernels, and whether the results are "
        "correct"
    ),
    markers=_MARKERS,
    begin=make_rank_readers(_MARKERS, Reader, apart=False),
    origins=(Origin(ORIGIN, evidence=True), Origin(LIST_ORIGIN, evidence=False)),
    order="a time belongs to the command and the solution that were printed before it",
    seen="ROCm 3.7 to 7.2, Windows",
    example="GPU Kernel Time Forward Conv. Elapsed: 10.84 ms (average)",
    gives="measurements, verification",
    how="standard output of `MIOpenDriver conv … -t 1`",
)
