"""Output of hipblaslt-bench: the build and the devices, one row per timed solution, and a Winner block.

Produced by ``hipblaslt-bench … --print_kernel_info`` (ROCm 7.2, shortened)::

    hipBLASLt version: 100200
    hipBLASLt git version: de5c1aebb6-dirty
    Query device success: there are 1 devices. (Target device ID is 0)
    Device ID 0 : AMD Instinct MI350X gfx950:sramecc+:xnack-
    Is supported 1 / Total solutions: 1
    [0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,…,hipblaslt-Gflops,hipblaslt-GB/s,us
        T,N,0,1,128256,32768,8192,1,8192,1050673152,0,…,1.2322e+06,184.053,55881.5
        --Solution index: 302128
        --Solution name:  Cijk_Alik_Bljk_…
        --kernel name:    Cijk_Alik_Bljk_…

* Columns are read by name.  All column sets from ROCm 5.5 on are read.
* The first lines, which launch scripts also put in front of logs, are facts.  Lines about devices are read only behind
  a version or the query of devices.
* **The Winner block repeats a row that already stands above.**  If that row has no solution index, the block adds its
  index to the row.  The block gives no measurement of its own, unless no such row was seen (an excerpt).
* People post one header with many rows below it, and lines with the marks of a diff or of a quotation (``+``, ``>``).
  Each such line is a row.  They also post tables of Markdown (cells between ``|``), and columns from a spreadsheet
  (``;`` or tabs).
* Adaptive timing (2026) adds the columns ``mean_us,min_us,cv,status``.  A status other than ``converged`` is kept
  beside the time.
* Rows without an index become ``hipblaslt:?``.  Their running number is kept in ``raw``.
* ``bench.py`` reads the ``$ command`` before a run.
* Times are µs, the mean over the iterations.

Source: ROCm/hipBLASLt ``clients/include/testing_matmul.hpp``, ``clients/include/argument_model.hpp``,
``clients/common/hipblaslt_arguments.cpp``, ``clients/common/utility.cpp``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from logparse.devices import too_fast
from logparse.libraries.hipblaslt.arguments import problem_of_row
from logparse.libraries.kinds.bad_cell import reason_of
from logparse.libraries.kinds.format import BlockFormat, Line, Origin, Outcome
from logparse.libraries.kinds.line_prefixes import make_rank_readers
from logparse.libraries.kinds.patterns import regex
from logparse.model import Fact, GemmProblem, Measurement, Message, Record, Reject, Solution, SolutionName, Status

_HEADER = regex(r"\s*(?:\[(\d+)\]:?\s*)?((?:function,)?transA,transB,\S*hipblaslt-Gflops\S*)\s*\Z")
_INDEX_ONLY = regex(r"\s*\[(\d+)\]:?\s*\Z")
_INFO = regex(r"\s*--(Solution index|Solution name|kernel name):\s*(\S*)\s*\Z")
_ROW = regex(r"\s*(?:\w+,)?[NTC],[NTC],")
_NO_TIME = regex(r"(?i)(?:[-+]?(?:nan|inf|infinity)(?:\(ind\))?|-*|n/a|none|invalid)\Z")
_QUOTED = regex(r"[+>] ?")
_BETWEEN = regex(r"[ \t]*[,;|\t][ \t]*")
_RULE = regex(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*\Z")
_MESSAGES = (
    "Is supported ",
    "Rotating buffer ",
    "Skip solution: ",
    "No Solution Found!!",
    "Initialize tuning file.",
    "HIPBLASLT_TUNING_FILE is the correct setting.",
    "The hipBLASLt git version and the tuning file git version are not the same.",
)
_VERSIONS: Mapping[str, str] = {
    "hipBLASLt version:": "hipblaslt_version",
    "hipBLASLt git version:": "hipblaslt_revision",
    "tuning file git version:": "hipblaslt_revision",
}
_DEVICE = regex(r"Device ID (\d+) : (.*\S)\s+(gfx\S+)\s*\Z")
_TARGET = regex(r"Query device success: there are \d+ devices\.?(?: \(Target device ID is (\d+)\))?")
_REST = regex(r"with [\d.]+ GB memory|maxGridDimX \d|-{10,}\Z")
_INDEX_COLUMNS = ("solution_index", "soulution_index")
_PATIENCE = 20
"""How many lines of other programs may come between a header and its row.

Such lines are printed by kernels, or come from standard error.
"""


@dataclass
class _Row:
    """One row of results that hipblaslt-bench printed.

    Later lines may add to the row: the lines about its kernel, and the block "Winner".  ``cells`` maps the names of the
    columns, in lower case, to texts.
    """

    problem: GemmProblem
    ordinal: str
    cells: Mapping[str, str]
    info: dict[str, str]

    @property
    def index(self) -> str | None:
        return self.info.get("Solution index")

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(value for name, value in self.cells.items() if name not in (*_INDEX_COLUMNS, "kernel_name"))

    @property
    def _not_converged(self) -> list[str]:
        """A list with a remark if the measured time is unsure, otherwise an empty list.

        The time is unsure if adaptive timing did not end with the status ``converged``.
        """
        status = self.cells.get("status", "-")
        return [f"adaptive timing: {status}"] if status not in ("-", "", "converged") else []

    def records(self) -> Iterable[Record]:
        solution = Solution("hipblaslt", self.index or "?", raw=self.index or (self.ordinal and f"[{self.ordinal}]"))
        time_us = _number(self.cells.get("us"))
        status: Status = "ok" if time_us is not None and time_us > 0 else "no_time"
        bad = [name for name in ("norm_error", "atol", "rtol") if self.cells.get(name, "").startswith("failed")]
        yield Measurement(
            problem=self.problem,
            solution=solution,
            origin="bench",
            status="wrong" if bad else status,
            time_us=time_us,
            min_us=_number(self.cells.get("min_us")),
            std_us=_product(_number(self.cells.get("cv")), _number(self.cells.get("mean_us"))),
            error=", ".join([*(f"{name} failed" for name in bad), *self._not_converged]) or None,
        )
        name, kernel = self.info.get("Solution name"), self.info.get("kernel name")
        if self.index and (name or kernel):
            yield SolutionName(solution=solution, name=name, kernel_name=kernel)


@dataclass
class _Reader:
    """Reads the output of hipblaslt-bench, line by line.

    The reader keeps the rows of the current matrix product, and the last header line, after which a row must come.
    """

    rows: list[_Row] = field(default_factory=list)
    # Row to which the next kernel info belongs.
    current: _Row | None = None
    # Columns of a header whose row has not come yet.
    names: tuple[str, ...] = ()
    # Columns of the last row, because further rows may follow.
    above: tuple[str, ...] = ()
    ordinal: str = ""
    winner: bool = False
    # True if another run of the tool has begun, so the rows are complete.
    ended: bool = False
    patience: int = 0
    # True if lines about devices may follow.
    devices: bool = False
    target: str = "0"
    device: Mapping[str, str] = field(default_factory=dict)
    known: set[Fact] = field(default_factory=set)

    @property
    def awake(self) -> bool:
        return bool(self.names or self.above) or self.devices

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip()
        quoted = _QUOTED.match(text)
        text = text[quoted.end() :] if quoted else text
        if not text:
            return None
        first = self._preamble(text)
        if first is not None:
            return first
        if self.names and _RULE.match(text):
            return Outcome("fact")
        text = self._with_commas(text)
        header = _HEADER.match(text)
        if header:
            return self._header(header)
        info = _INFO.match(text)
        if info:
            return self._info(info[1], info[2])
        if text.strip() == "Winner:":
            self.winner, self.current = True, None
            return Outcome("fact")
        if self.names:
            return self._row(text)
        if self.above and _ROW.match(text):
            self.names, self.ordinal, self.winner = self.above, "", False
            return self._row(text)
        found = self._message(text)
        self.patience -= found is None
        self.above = self.above if self.patience > 0 else ()
        return found

    def _with_commas(self, text: str) -> str:
        """Return a header or a row with commas between its cells. Any other line is returned unchanged."""
        if not (self.names or self.above or "hipblaslt-Gflops" in text):
            return text
        cells = text.strip()
        if cells.startswith("|"):
            cells = cells.removeprefix("|").removesuffix("|")
        cells = _BETWEEN.sub(",", cells.strip())
        return cells if _HEADER.match(cells) or _ROW.match(cells) else text

    def _preamble(self, text: str) -> Outcome | None:
        """Read a line of hipblaslt-bench's output that describes the library's build or the GPU that it uses.

        Returns None for any other line.
        """
        version = next((start for start in _VERSIONS if text.startswith(start)), None)
        if version is not None:
            # A version line shows that the tool was started again, so the rows before it are complete.
            self.ended, self.current = True, None
            self.devices = self.devices or version == "hipBLASLt version:"
            return self._facts(Fact(_VERSIONS[version], text[len(version) :].strip()))
        target = _TARGET.match(text)
        # Versions up to 6.0 print no version before this line.
        self.devices = self.devices or bool(target)
        device = _DEVICE.match(text) if self.devices else None
        if target:
            self.target = target[1] or "0"
        elif device and device[1] == self.target:
            self.device = {"device": device[2], "arch": device[3]}
            return self._facts(*(Fact(name, text) for name, text in self.device.items()))
        self.devices = self.devices and bool(device or target or _REST.match(text))
        return Outcome("fact") if self.devices else None

    def _facts(self, *facts: Fact) -> Outcome:
        """Record facts about the machine, but each of them only once.

        A script may run hipblaslt-bench hundreds of times, and each run prints the same facts.
        """
        new = [fact for fact in facts if fact.value and fact not in self.known]
        self.known.update(new)
        return Outcome("fact", new)

    def _header(self, match: re.Match[str]) -> Outcome:
        records = self._flush() if self.ended or (match[1] == "0" and not self.winner) else []
        self.names, self.above = tuple(match[2].split(",")), ()
        self.ordinal = match[1] or ""
        self.current, self.patience = None, _PATIENCE
        return Outcome("fact", records)

    def _row(self, text: str) -> Outcome | None:
        # Documentation prints the header before the index of its row.
        if _INDEX_ONLY.match(text):
            self.ordinal = text.strip("[]: \t")
            return Outcome("fact")
        if not _ROW.match(text):
            self.patience -= 1
            if self.patience <= 0:
                self.names = ()
            return self._message(text)
        values = [value.strip() for value in text.rstrip("` ").split(",")]  # Issues quote an output as `…`.
        names, self.names = self.names, ()
        self.above, self.patience = names, _PATIENCE
        if len(values) != len(names):
            reason = f"a row of hipblaslt-bench with {len(values)} values, but its header has {len(names)} names"
            return Outcome("reject", (Reject(reason),))
        cells = dict(zip(names, values, strict=True))
        try:
            gemm = problem_of_row(cells)
        except ValueError as error:
            return Outcome("reject", (Reject(f"hipblaslt-bench row: {reason_of(error, cells)}"),))
        if gemm is None:
            return Outcome("message")
        low = {name.lower(): value for name, value in cells.items()}
        if not _NO_TIME.match(low.get("us", "")) and _number(low["us"]) is None:
            return Outcome("reject", (Reject(f"hipblaslt-bench row: us has the value {low['us'][:60]!r}, no number"),))
        if wrong := too_fast(gemm.flops, _number(low.get("us")), self.device):
            return Outcome("reject", (Reject(wrong),))
        index = next((low[name] for name in _INDEX_COLUMNS if low.get(name, "").isdigit()), "")
        known = {"Solution index": index, "kernel name": low.get("kernel_name", "")}
        new = _Row(gemm, self.ordinal, low, {name: value for name, value in known.items() if value})
        return Outcome("measurement" if self._keep(new) else "fact")

    def _keep(self, new: _Row) -> bool:
        """Store a row of hipblaslt-bench's results, and return True. Return False if it only repeats an earlier row."""
        self.current = new
        # The block "Winner" repeats the fastest row and may add something, such as the kernel's number. The addition is
        # then stored in the earlier row.
        if self.winner:
            self.winner = False
            for old in self.rows:
                if old.identity == new.identity and (None in (old.index, new.index) or old.index == new.index):
                    old.info = {**new.info, **old.info}
                    self.current = old
                    return False
        self.rows.append(new)
        return True

    def _info(self, what: str, value: str) -> Outcome:
        if self.current is None:
            return Outcome("message")
        if value:
            self.current.info.setdefault(what, value)
        return Outcome("fact")

    def _message(self, text: str) -> Outcome | None:
        # TunableOp prints a line with the same beginning, which has "param copies".
        if not text.startswith(_MESSAGES) or "param copies" in text:
            return None
        # The support line begins a problem, so the rows above it are complete.
        records = self._flush() if text.startswith("Is supported ") else []
        return Outcome("message", records)

    def _flush(self) -> list[Record]:
        records = [record for held in self.rows for record in held.records()]
        self.rows, self.current, self.winner, self.ended = [], None, False, False
        return records

    def close(self) -> Iterable[Record]:
        yield from self._flush()
        if self.names:
            self.names = ()
            yield Message(
                category="bench_output", text=("(the output of hipblaslt-bench ends between a header and its row)")
            )


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


_MARKERS = (
    *(version.encode() for version in _VERSIONS),
    b"Query device success: there are ",
    *(b"hipblaslt-Gflops", b"--Solution index:", b"--Solution name:", b"--kernel name:", b"Winner:"),
    *(b"/ Total solutions:", b"Rotating buffer ", b"Skip solution: ", b"No Solution Found!!"),
    *(b"Initialize tuning file.", b"HIPBLASLT_TUNING_FILE is the correct", b"the tuning file git version are not"),
)

FORMAT = BlockFormat(
    name="hipblaslt-bench-output",
    about=(
        "output of hipblaslt-bench (every version): tables of times, names of kernels, and the block 'Winner:', which "
        "repeats the fastest row"
    ),
    markers=_MARKERS,
    begin=make_rank_readers(_MARKERS, _Reader),
    origins=(Origin("bench", evidence=True),),
    order="a row belongs to the last header before it; the row in a block 'Winner:' repeats an earlier row",
    seen="ROCm 5.5 to 7.2",
    example="T,N,0,1,128256,32768,8192,1,…,55881.5",
    gives="measurements, kernel names",
    how=(
        "save the standard output of `hipblaslt-bench` with `--print_kernel_info`. If a file holds only the first "
        "lines (build and devices), these lines are read, too"
    ),
    since="ROCm 5.5",
)
