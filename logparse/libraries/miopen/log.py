"""Read MIOpen's own log: times that Find (its search) measured, solvers that it chose, and warnings.

::

    MIOpen(HIP): Info [get_device_name] Raw device name: gfx942:sramecc+:xnack-
    MIOpen(HIP)   0.028: Info [AmdRocmMetadataVersionDetect] ROCm MD version …, HIP version 7.2.26043, MIOpen version …
    MIOpen(HIP): Info2 [FindRecordUnsafe] Looking for key 64-56-…-FP16-W in cache for file "/…/gfx942130.HIP.….ufdb.txt"
    MIOpen(HIP): Info [EvaluateInvokers] GemmWrwUniversal: : 8.56064 < 3.40282e+38
    MIOpen(HIP): Info [EvaluateInvokers] Selected: GemmWrwUniversal: : 8.56064, workspace_sz = 442368
    MIOpen(HIP)   0.095: Info [FillFindReturnParameters] BWrW Chosen Algorithm: GemmWrwUniversal , 442368, 8.56064
    MIOpen(HIP): Info [ConvolutionWrwImmediate] solver_id = GemmWrwUniversal, workspace = 442368
    MIOpen(HIP): Warning [GetSolutions] Solver <GemmFwdRest>, workspace required: 96, provided ptr: 0 size: 0

MIOpen prints the log to stderr with ``MIOPEN_LOG_LEVEL`` 4 (warnings), 5 (Info), 6 (Info2) or 7 (Trace).
``MIOPEN_ENABLE_LOGGING=1`` adds a block per API call.  Source of the prefix: ROCm/MIOpen ``src/logger.cpp``.  Source of
the texts: ``src/convolution_api.cpp``, ``src/ocl/convolutionocl.cpp``, ``src/include/miopen/find_solution.hpp``,
``src/find_db.cpp``.

* ``EvaluateInvokers`` and ``SetValues`` lines are measurements of origin ``miopen-log``.  They name no problem.  The
  problem is the key in the last ``Find Start``, ``FindRecordUnsafe`` or ``SetValues`` line before them.  Without such a
  line it is the problem of the file's last MIOpenDriver command.  Without either, the lines are messages.
* ``Chosen Algorithm`` is a measurement of origin ``miopen-chosen``.  Its time comes from the find-db record or from the
  search that just ended.  If the lines before it report a fallback, the time is an estimate.  The status is then
  ``no_time``.
* ``Convolution…Immediate`` lines name the solver that a call of immediate mode (without a search) runs.  PyTorch uses
  immediate mode unless ``benchmark`` is on.  If the call's MIOpenDriver command precedes such a line, the line is a
  measurement without a time, of origin ``miopen-chosen`` too.
* Every other line is a message of category ``miopen_error`` … ``miopen_trace``, with masked addresses.
* Lines without a level (in API blocks) are messages of category ``miopen_api``.
* ``driver`` reads the command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from logparse.libraries.kinds.decimals import from_milliseconds
from logparse.libraries.kinds.format import BlockFormat, Line, Origin, Outcome
from logparse.libraries.kinds.line_prefixes import SHARED, make_rank_readers
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.miopen.db_names import facts_of_name
from logparse.libraries.miopen.driver import PREFIX, plain_command
from logparse.libraries.miopen.find_db_items import items, read_time
from logparse.libraries.miopen.log_problem import Named, Thread
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.libraries.miopen.records import problem_or_none
from logparse.libraries.miopen.solvers import algorithm_name, direction_of_solver, known_algorithm
from logparse.model import Direction, Fact, Measurement, Message, Record, Solution

ORIGIN = "miopen-log"
PICKED = CHOSEN_ORIGIN = "miopen-chosen"

_LINE = regex(
    rf"(?:^|(?<=\s)|(?<=#)){PREFIX}"
    r"(?:(?P<level>Fatal|Error|Warning|Info2?|Trace|MIOpenDriver Info2) \[(?P<function>[^\]]*)\] ?)?(?P<text>.*)$"
)
_PREFIX = regex(PREFIX)
_BARE = regex(
    r"^\[(?P<function>GetSolutionsFallback|FillFindReturnParameters|GetSolutions|EvaluateInvokers)\] (?P<text>.*)$"
)
_AGAIN = regex(r"(?<=\S)(?=MIOpen\((?:HIP|OpenCL)\)(?:\s*\d+\.\d{3})?(?: \([^)]+\))?: \w+ \[)")
_ADDRESS = regex(r"0[xX](?=0*[1-9a-fA-F])[0-9a-fA-F]{5,16}\b")
_FLOAT = r"[-+.\deE]+"
_CHOSEN = regex(rf"^(?P<which>FW|BWD|BWrW) Chosen Algorithm: (?P<solver>\S+) , (?P<ws>\d{{1,18}}), (?P<ms>{_FLOAT})$")
_TIMED = regex(
    rf"^(?:solution\(current vs best\):)?\s*(?P<solver>[\w<>-]+): (?P<kernels>.*): (?P<ms>{_FLOAT}) (?:<|>=) {_FLOAT}$"
)
_RUN = regex(r"^solver_id = (?P<solver>\S+), workspace = (?P<ws>\d{1,18})$")
_SELECTED = regex(rf"^Selected: (?P<solver>\S+): .*: (?P<ms>{_FLOAT}), works?pa?ce_sz = (?P<ws>\d{{1,18}})$")
_SET_VALUES = regex(r"^(?P<key>\S+), content (?:inserted|overwritten): (?P<item>.+)$")
_FIND = regex(r"^Find (?P<edge>Start|Ended): (?P<key>[^\s,]+)")
_LOOK_UP = regex(r'^Looking for key (?P<key>\S+) in cache for file "')
_FILE = regex(r'"(?:[^"]*[/\\])?(?P<name>[^"/\\]+\.u?[fk]?db(?:\.txt)?)"')
_LOST = regex(r"^(?:\[[^\]]*\] )?Solver <(?P<solver>.+?)>, workspace required: (?P<ws>\d{1,18}), provided")
_VERSIONS = regex(r"HIP version (?P<hip>\d[\w.]*), MIOpen version (?P<version>\d+\.\d+\.\d+)(?:\.(?P<tweak>[\w-]*))?")
_DEVICE = regex(r"^Raw device name: (?P<arch>gfx\S+)")
_WHICH: dict[str, Direction] = {"FW": "F", "BWD": "B", "BWrW": "W"}
_RAN: dict[str, Direction] = {
    "ConvolutionForward": "F",
    "ConvolutionBackwardData": "B",
    "ConvolutionBackwardWeights": "W",
    "ConvolutionForwardImmediate": "F",
    "ConvolutionBackwardImmediate": "B",
    "ConvolutionWrwImmediate": "W",
}
"""MIOpen's API functions that run a convolution, each with the direction of the convolution.

When such a function is called, MIOpen logs one more line after the line with the command.  Only the functions of
immediate mode name the solver there.
"""


@dataclass
class _Find:
    """The convolutions and measurements read so far from one thread's lines in MIOpen's log.

    A measurement may be incomplete, because its workspace is in a later line than its time.
    """

    thread: Thread = field(default_factory=Thread)
    fallback: bool = False
    timed: list[Measurement] = field(default_factory=list)


class Reader:
    """Reads MIOpen's log.  If the prefix of the lines names threads, each thread is followed separately."""

    awake = False  # Every line has the prefix, so the reader needs no other lines.

    def __init__(self) -> None:
        self._finds: dict[str, _Find] = {}
        self._typed: str | None = None

    def take(self, line: Line) -> Outcome | None:
        # ``driver`` reads the command as a call.  Here it only names the problem of the lines behind it.
        if "MIOpenDriver " in line.text and "Info2" not in line.text:
            self._command(plain_command(line.text.rstrip()))
            return None
        outcomes = [self._part(part) for part in _AGAIN.split(line.text.rstrip())]
        ours = [outcome for outcome in outcomes if outcome is not None]
        if not ours:
            return None
        return replace(ours[0], records=[record for outcome in ours for record in outcome.records])

    def close(self) -> Iterable[Record]:
        out = [record for find in self._finds.values() for record in find.timed]
        self._finds = {}
        return out

    def _part(self, text: str) -> Outcome | None:
        match = _LINE.search(text)
        bare = None if match else _BARE.match(text)
        if match is None and bare is None:
            return None
        find = self._find(match)
        if match is not None and match["level"] is None:
            return Outcome("message", [Message(category="miopen_api", text=_mask_addresses(match["text"]))])
        level = match["level"] if match else "Info"
        function, body = (match or bare)["function"], (match or bare)["text"].strip()  # type: ignore[index]
        outcome = _timing(find, function, body)
        if outcome is not None:
            return outcome
        records, find.timed = list(find.timed), []
        if (look_up := _LOOK_UP.match(body)) and problem_or_none(problem_from_key, look_up["key"]):
            find.thread.looked_up(look_up["key"])
            find.fallback = False
        outcome = _chosen(find, function, body) or _immediate(find, function, body)
        outcome = outcome or _row(find, body) or _fact(level, function, body)
        if outcome is None:
            outcome = Outcome("message", _messages(find, level, function, body))
        return replace(outcome, records=[*records, *outcome.records])

    def _command(self, text: str) -> None:
        prefix = _PREFIX.match(text)
        if prefix is not None:
            self._find(prefix).thread.command(text)
            return
        self._typed = text
        for find in self._finds.values():
            find.thread.typed(text)

    def _find(self, prefix: re.Match[str] | None) -> _Find:
        """Return the object that collects what one thread has logged so far about its search for a solver.

        The lines of several threads may be mixed in one log.  The prefix of a line names its thread.
        """
        name = f"{prefix['host']} {prefix['tid']}" if prefix else "None None"
        find = self._finds.get(name)
        if find is None:
            find = self._finds[name] = _Find(Thread(self._typed))
        find.thread.line()
        return find


def _mask_addresses(text: str) -> str:
    return _ADDRESS.sub("0x@", text)


def _keep_as_message(find: _Find, function: str, text: str) -> Outcome:
    """Keep a log line as a message, because it is unknown which convolution the line is about.

    If the reason is that several threads write to the same log, a second message states this.
    """
    why = [Message(category="miopen_info", text=SHARED)] if find.thread.shared else []
    return Outcome("message", [Message(category="miopen_info", function=function, text=_mask_addresses(text)), *why])


def _measurement(
    named: Named, solver: str, origin: str, ms: str = "", workspace: str | None = None, why: str = ""
) -> Measurement:
    """Return the time of one solver, read from a log line, as a measurement.  Without a time, ``why`` is the reason."""
    problem, key = named
    family = known_algorithm(solver)
    time_us = None if why else from_milliseconds(ms)
    return Measurement(
        problem=problem,
        solution=Solution("miopen", solver, solver, algorithm_name(family, problem.direction) if family else None),
        origin=origin,
        status="ok" if time_us is not None else "no_time",
        time_us=time_us,
        workspace_bytes=None if workspace is None else int(workspace),
        error=why or (None if time_us is not None else f"time is {ms} ms"),
        key_text=key,
    )


def _timing(find: _Find, function: str, text: str) -> Outcome | None:
    """Read a line that MIOpen logs while it tries solvers in order to find the fastest one.

    Returns None for a line with neither a solver's time nor the solver that was selected.
    """
    if function != "EvaluateInvokers":
        return None
    if match := _SELECTED.match(text):
        # The line names the fastest solver so far and its workspace in bytes, which is added to its measurement.
        for place, one in enumerate(find.timed):
            if one.solution.id == match["solver"]:
                find.timed[place] = replace(one, workspace_bytes=int(match["ws"]))
        return Outcome("message", [Message(category="miopen_info", function=function, text=_mask_addresses(text))])
    match = _TIMED.match(text)
    if match is None:
        return None
    named = find.thread.finding(direction_of_solver(match["solver"]))
    if named is None:
        return _keep_as_message(find, function, text)
    find.timed.append(_measurement(named, match["solver"], ORIGIN, match["ms"]))
    return Outcome("measurement")


def _chosen(find: _Find, function: str, text: str) -> Outcome | None:
    match = _CHOSEN.match(text)
    if match is None:
        return None
    named = find.thread.chosen(_WHICH[match["which"]])
    estimate, find.fallback = find.fallback, False
    if named is None:
        return _keep_as_message(find, function, text)
    why = f"estimate of MIOpen's fallback: {match['ms']} ms" if estimate else ""
    chosen = _measurement(named, match["solver"], CHOSEN_ORIGIN, match["ms"], match["ws"], why)
    return Outcome("measurement", [chosen])


def _immediate(find: _Find, function: str, text: str) -> Outcome | None:
    """Read the log line of a call for which MIOpen chose a solver without timing several (immediate mode).

    Returns None if the line is of another kind or names no solver.
    """
    direction = _RAN.get(function)
    if direction is None:
        return None
    match, problem = _RUN.match(text), find.thread.ran(direction)  # also for a call whose line names no solver
    if match is None:
        return None
    if problem is None:
        return _keep_as_message(find, function, text)
    why = "immediate mode prints no time"
    ran = _measurement((problem, None), match["solver"], CHOSEN_ORIGIN, workspace=match["ws"], why=why)
    return Outcome("measurement", [ran])


def _row(find: _Find, text: str) -> Outcome | None:
    """Read a log line ``SetValues``, which MIOpen prints when it saves a result in the user's solver database.

    Returns None for other lines.
    """
    match = _SET_VALUES.match(text)
    problem = problem_or_none(problem_from_key, match["key"]) if match else None
    if match is None or problem is None:
        return None
    find.thread.looked_up(match["key"])
    [item, *_] = items(match["key"], match["item"], problem)
    record = read_time(item, problem, ORIGIN)
    return Outcome("measurement" if isinstance(record, Measurement) else "reject", [record])


def _fact(level: str, function: str, text: str) -> Outcome | None:
    facts: list[Record] = []
    if match := _VERSIONS.search(text):
        facts += [Fact("hip_version", match["hip"]), Fact("miopen_version", match["version"])]
        facts += [Fact("miopen_tweak", match["tweak"])] if match["tweak"] is not None else []
    elif match := _DEVICE.match(text):
        facts.append(Fact("arch", match["arch"]))
    elif (match := _FILE.search(text)) and not text.startswith("Ill-formed"):
        # Only the CU count and the backend are taken from the database's name.  The version in the name is the version
        # of the library that *wrote* the file; other lines state the version of the running library.
        facts += [fact for fact in facts_of_name(match["name"]) if fact.name in ("cu_count", "backend")]
        if facts:
            category = "miopen_info" if level.startswith("Info") else _category(level)
            facts.append(Message(category=category, function=function, text=_mask_addresses(text)))
    return Outcome("fact", facts) if facts else None


def _category(level: str) -> str:
    return f"miopen_{level.rsplit(' ', 1)[-1].lower()}"


def _messages(find: _Find, level: str, function: str, text: str) -> list[Record]:
    if match := _FIND.match(text):
        if problem_or_none(problem_from_key, match["key"]):
            (find.thread.started if match["edge"] == "Start" else find.thread.ended)(match["key"])
        find.fallback = False
    if function == "GetSolutionsFallback" or "Fallback" in text:
        find.fallback = True
    elif function == "EvaluateInvokers" or "Find-db regenerating" in text:
        find.fallback = False
    records: list[Record] = [Message(category=_category(level), function=function, text=_mask_addresses(text))]
    if match := _LOST.match(text):
        named = find.thread.finding(direction_of_solver(match["solver"]))
        if named is not None:
            why = f"too little workspace: {_mask_addresses(text)}"
            lost = _measurement(named, match["solver"], ORIGIN, workspace=match["ws"], why=why)
            records.insert(0, replace(lost, status="skipped"))
    return records


_MARKERS = (
    *(b"MIOpen(HIP)", b"MIOpen(OpenCL)", b"MIOpen: ", b"MIOpenDriver "),
    *(b"[GetSolutionsFallback] ", b"[FillFindReturnParameters] "),
)

FORMAT = BlockFormat(
    name="miopen-log",
    about="MIOpen's log (MIOPEN_LOG_LEVEL 4 to 7, MIOPEN_ENABLE_LOGGING=1): times of searches, choices, warnings",
    markers=_MARKERS,
    begin=make_rank_readers(_MARKERS, Reader),
    origins=(Origin(ORIGIN, evidence=True), Origin(CHOSEN_ORIGIN, evidence=False)),
    order="a call, its times and the solver that MIOpen chose are in different lines, one after another",
    seen="ROCm 3.9 to 7.2, TheRock, Windows",
    example="MIOpen(HIP): Info [EvaluateInvokers] GemmWrwUniversal: …",
    gives="Find's times, choices, messages",
    how="set `MIOPEN_LOG_LEVEL=5` or `6`; set also `MIOPEN_ENABLE_LOGGING=1` to log the arguments of each call",
)
