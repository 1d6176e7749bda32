"""Read MIOpen's performance log: a JSON object per timed solver, with its workspace, configurations and kernels.

::

    {"command":"MIOpenDriver conv -n 16 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 … -F 4 -t 1"}
    {"solution":"ConvHipImplicitGemmGroupWrwXdlops","solver_id":156,"workspace_bytes":147456,"phase":"solver_tuning",
     "performance_configs":[{"config_name":"DeviceGroupedConvBwdWeight…","config_descriptor":"…","exec_number":1,
     "time_executions_ms":[0.21,0.2],"time_ms":0.2,"time_std_ms":0.005,"time_min_ms":0.2,"time_max_ms":0.21,
     "number_of_transformations":2,"kernels":[…]}]}                                        (one line each)

MIOpen writes the log to standard error with ``MIOPEN_PERFORMANCE_LOGS``.  MIOpenDriver then prints its command as an
object, too.

=====  =========================================  =======
value  solvers                                    kernels
=====  =========================================  =======
1      solvers that MIOpenDriver executes         no
2      solvers that MIOpenDriver executes         yes
3      also solvers that Find and a search timed  no
4      also solvers that Find and a search timed  yes
=====  =========================================  =======

* A record is a measurement of origin ``miopen-performance-log``.  Its times belong to the configuration with the
  smallest ``time_ms``, which is the mean without two warm-up executions and without high outliers.
* A record names no convolution.  The convolution follows from the last MIOpenDriver command above the record, and from
  the direction in the solver's name.
* A record is read as a message if the command runs several directions and the solver's name states no direction.
* A record is read as a message if no MIOpenDriver command is above it.  A job prints a record only when it times the
  next solver, so the record may belong to an earlier convolution than the lines around it.
* ``ConvDirectNaiveConv*`` and the phase of Find (``unknown``) are missing before pull request 11166.

Source: ROCm/rocm-libraries ``projects/miopen/src/include/miopen/kernel_tuning_mode.hpp`` (``FlushJsonAccumulator``),
pull requests 5736 and 11166.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from logparse.libraries.kinds.format import BlockFormat, Line, Origin, Outcome
from logparse.libraries.kinds.line_prefixes import make_rank_readers
from logparse.libraries.miopen.driver import Command, readable_command
from logparse.libraries.miopen.solvers import algorithm_name, direction_of_solver, known_algorithm
from logparse.model import ConvProblem, Measurement, Message, Record, Reject, Solution, is_time

ORIGIN = "miopen-performance-log"
CATEGORY = "miopen_performance"
_RECORD = '{"solution":"'
_MOST_BYTES = 10**18


class Reader:
    """Reads MIOpen's performance log, in which solvers have times but convolutions are not named.

    So the reader remembers the last MIOpenDriver command, which describes the convolution.
    """

    awake = False  # Every line of this format has a marker, so the reader needs no other lines.

    def __init__(self) -> None:
        self._command: Command | None = None

    def take(self, line: Line) -> Outcome | None:
        text = line.text.strip()
        if "MIOpenDriver" in text:
            # Only a typed command counts, because a command that MIOpen logs in a job starts no driver.
            # Return None, because ``driver`` makes the call of this line.
            command = readable_command(text)
            self._command = command if command is not None and command.function is None else None
            return None
        return self._record(text) if text.startswith(_RECORD) else None

    def close(self) -> Iterable[Record]:
        return ()

    def _record(self, text: str) -> Outcome:
        try:
            values = json.loads(text)
            solver, space, configs = values["solution"], values["workspace_bytes"], values["performance_configs"]
            if type(solver) is not str or not solver or type(space) is not int or not 0 <= space < _MOST_BYTES:
                raise ValueError(
                    "the value of solution must be a solver's name, and workspace_bytes must be a number of bytes"
                )
            best = min((_time(x) for x in configs), key=lambda x: x["time_ms"] or float("inf"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return Outcome("reject", [Reject(f"this performance record of MIOpen cannot be read: {error!r:.200}")])
        problem = self._problem(solver)
        if problem is None:
            phase = values.get("phase", "unknown")
            text = f"{solver} of an unknown problem, {best['time_ms']:g} ms ({phase})"
            return Outcome("message", [Message(category=CATEGORY, text=text[:500])])
        return Outcome("measurement", [_measurement(problem, solver, space, best)])

    def _problem(self, solver: str) -> ConvProblem | None:
        if self._command is None:
            return None
        only = self._command.problem(None)
        stated = direction_of_solver(solver)
        return only if stated is None or only is not None else self._command.problem(stated)


def _time(config: Mapping[str, Any]) -> dict[str, float]:
    """Return the four times in ms of a solver in MIOpen's log, by name.

    A time is 0 if MIOpen timed no execution.  Raises ValueError, KeyError or TypeError if a time is missing, negative,
    too large or not a number.
    """
    names = ("time_ms", "time_std_ms", "time_min_ms", "time_max_ms")
    found = {name: float(config[name]) for name in names}
    if not all(is_time(x * 1e3) for x in found.values()):
        raise ValueError("a time in the record is negative, too large or not a number")
    return found


def _measurement(problem: ConvProblem, solver: str, space: int, best: Mapping[str, float]) -> Measurement:
    family = known_algorithm(solver)
    timed = best["time_ms"] > 0
    return Measurement(
        problem=problem,
        solution=Solution("miopen", solver, solver, algorithm_name(family, problem.direction) if family else None),
        origin=ORIGIN,
        status="ok" if timed else "no_time",
        time_us=best["time_ms"] * 1e3 if timed else None,
        min_us=best["time_min_ms"] * 1e3 if timed else None,
        max_us=best["time_max_ms"] * 1e3 if timed else None,
        std_us=best["time_std_ms"] * 1e3 if timed else None,
        workspace_bytes=space,
        error=None if timed else "MIOpen executed and timed nothing for this solver",
    )


_MARKERS = (_RECORD.encode(), b"MIOpenDriver")

FORMAT = BlockFormat(
    name=ORIGIN,
    about="MIOpen's performance log: JSON records of timed solvers (MIOPEN_PERFORMANCE_LOGS 1 to 4)",
    markers=_MARKERS,
    begin=make_rank_readers(_MARKERS, Reader, apart=False),
    origins=(Origin(ORIGIN, evidence=True),),
    order="a record belongs to the command in a line before the record",
    seen="source code of 2026 only",
    example='{"solution":"GemmFwdRest","solver_id":91,…}',
    gives="measurements",
    how=(
        "set `MIOPEN_PERFORMANCE_LOGS` to a number from `1` to `4`: `1` logs only the solvers that `MIOpenDriver` "
        "executes; `4` also logs the solvers that MIOpen's Find or a search timed, and their kernels"
    ),
)
