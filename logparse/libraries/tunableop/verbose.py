"""TunableOp's verbose log, which states the time of every kernel that was tried.

The default is a candidate too, so the log shows the speed-up of a kernel over the default.

::

    reading tuning results from tunableop_results0.csv
    Validator PT_VERSION=2.9.1
    PT_VERSION validation: expect 2.9.1 to match 2.9.1
    finding fastest for GemmTunableOp_BFloat16_TN(tn_96_100_64_ld_64_64_96) out of 546 candidates
    Rotating buffer 8 MiB. Needed Size: 0 MiB. Needed number of param copies: 1421
    ├──tuning using warmup iters 0 [0 ms] and tuning iters 5 [0.28 ms] instance id=0, GemmTunableOp_…(tn_…) Default
    ├──offset at 17
    ├──found better instance id=0. 0.056288ms. Default min 0.055168 max 0.057088 mean 0.056288 std 0.000980841
    ├──2nd skip slow instance id=2, GemmTunableOp_BFloat16_TN(tn_96_100_64_ld_64_64_96) Gemm_Rocblas_-62
    └──found fastest for GemmTunableOp_BFloat16_TN(tn_96_100_64_ld_64_64_96) Gemm_Hipblaslt_477479
    └──top five solutions for GemmTunableOp_BFloat16_TN(tn_96_100_64_ld_64_64_96)
       0.055866 Gemm_Hipblaslt_477479
    GemmTunableOp_BFloat16_TN(tn_96_100_64_ld_64_64_96) -> Gemm_Hipblaslt_477479,0.055866

PyTorch writes the log with ``PYTORCH_TUNABLEOP_VERBOSE=3`` (1: files and validators, 2: winners) to stderr, or to the
one file that ``PYTORCH_TUNABLEOP_VERBOSE_FILENAME`` names.  Times are milliseconds.  A line has no clock, no process
and no device.  Source: pytorch/pytorch aten/src/ATen/cuda/tunable/{Tunable.cpp,TunableOp.h}, torch 2.3 to 2.15.

* ``found better|slower`` names only the candidate's number and kernel.  The key comes from the ``tuning using`` line
  before it.  If several processes share the stream and two keys are being tuned by the same number and kernel, the line
  is a reject.
* From 2.7 on ``Default`` is tried first and last.  It then has two measurements.
* Up to 2.6 a candidate that was timed and slower than the best leaves no time.
* Only a line with the result of a candidate is a measurement.  So each timing of a candidate is one line.
* Every dispatch looks up its key once.  At level 3 PyTorch prints one line per look-up, which is read as one call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from logparse.libraries.kinds.decimals import microseconds
from logparse.libraries.kinds.format import BlockFormat, Line, Origin, Outcome
from logparse.libraries.kinds.line_prefixes import make_rank_readers
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.tunableop import results, signature, validators
from logparse.libraries.tunableop.solutions import solution
from logparse.model import Call, GemmProblem, Measurement, Message, Record, Reject, Status

ORIGIN = "tunableop-verbose"
CATEGORY = "tunableop"

_OP = rf"(?P<op>{signature.OP_TEXT}[^(,\s]+)"
_KEY = rf"{_OP}\((?P<params>[^)\s]*)\)"
_ID = r"id=(?P<id>\d+)"
_MS = r"(?:[-+]?(?:nan|inf)|[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)"
_CANDIDATE = rf"{_ID}, {_KEY} (?P<sol>\S+)"


@dataclass
class _Block:
    """The lines read so far about the tuning of one matrix product in a TunableOp log.

    They begin with ``finding fastest`` and end with ``found fastest``.  ``timed`` holds the names of the kernels that
    have a time.
    """

    key: str
    problem: GemmProblem
    timed: set[str] = field(default_factory=set)


class _Reader:
    """Reads TunableOp's verbose log (TunableOp is PyTorch's GEMM tuner).

    It remembers the tunings whose end has not been read yet, by the text that identifies the matrix product.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Block] = {}
        self._done: dict[str, set[str]] = {}
        self._pending: dict[tuple[str, str], list[_Block]] = {}
        self._loading = False
        self._top_five = False

    @property
    def awake(self) -> bool:
        return bool(self._open) or self._loading or self._top_five

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip("\r")
        self._top_five = self._top_five and _TOP.match(text) is not None
        if self._top_five or text.startswith(_OTHERS):
            return Outcome("message")
        for pattern, reader in _PATTERNS:
            match = pattern.match(text)
            if match:
                try:
                    return reader(self, match)
                except signature.SignatureError as error:
                    part = "params" if error.part else "op"
                    return _reject(str(error), text[: match.start(part)], match[part])
        # Other programs draw trees and tables with the same characters.  So an unknown line of this kind belongs to
        # TunableOp only while a key is being tuned.
        if text.startswith("finding fastest for ") or (self._open and text.startswith(("├──", "└──"))):
            return _reject("logparse does not know this kind of line in TunableOp's verbose log", "", text)
        return None

    def close(self) -> Iterable[Record]:
        for block in self._open.values():
            yield from self._cut(block, "is cut off")
        self._open.clear()
        self._pending.clear()

    # -- one method per kind of line

    def finding(self, match: re.Match[str]) -> Outcome:
        problem, key = _problem(match)
        before = self._open.get(key)
        self._loading = False
        self._open[key] = _Block(key, problem)
        return _counted(list(self._cut(before, "begins again before it ended")) if before else [])

    def tuning(self, match: re.Match[str]) -> Outcome:
        block = self._block(match)
        records = self._without_time(block)
        self._pending.setdefault((match["id"], match["sol"]), []).append(block)
        return _counted(records)

    def found(self, match: re.Match[str]) -> Outcome:
        """Read the time of a kernel from a log line that TunableOp prints while it tunes a product.

        The line is ``found better|slower instance``.
        """
        waiting = self._pending.get((match["id"], match["sol"]), [])
        if len({block.key for block in waiting}) != 1:
            two = "the time could belong to either of two matrix products that are tuned at the same time"
            none = "the time does not follow a line that names its candidate (the kernel that was timed)"
            return _reject(two if waiting else none, "", match[0])
        block = waiting.pop(0)
        given = {name: _us(match[name]) for name in ("ms", "min", "max", "std")}
        time_us = given.pop("ms")
        block.timed.add(match["sol"])
        status: Status = "ok" if time_us is not None else "no_time"
        more = {f"{name}_us": value for name, value in given.items()}
        return _counted([_measured(block, match["sol"], status, None, time_us, **more)])

    def screened(self, match: re.Match[str]) -> Outcome:
        """Read a log line about a kernel that PyTorch rejected in a tuning before it measured the kernel's time."""
        block, (status, why) = self._block(match), _SCREENED[match["why"]]
        records = self._without_time(block)
        return _counted([*records, _measured(block, match["sol"], status, why)])

    def fastest(self, match: re.Match[str]) -> Outcome:
        block = self._open.pop(f"{match['op']},{match['params']}", None)
        if block is None:
            return Outcome("message")
        self._done[block.key] = block.timed
        return _counted(self._without_time(block))

    def top_five(self, match: re.Match[str]) -> Outcome:
        self._top_five = True
        return Outcome("message")

    def winner(self, match: re.Match[str]) -> Outcome:
        """Read a log line with the fastest kernel of a matrix product: ``op(params) -> solution,ms``."""
        problem, key = _problem(match)
        # PyTorch prints such a line after a tuning, and for each row that it loads from a file. A time that an earlier
        # line states is not recorded again.
        if match["sol"] in self._done.get(key, ()):
            return Outcome("message")
        time_us = _us(match["ms"])
        failed = match["ms"].lstrip("+-") == "inf"
        record = Measurement(
            problem=problem,
            solution=solution(match["sol"]),
            origin=ORIGIN if key in self._done and not self._loading else results.ORIGIN,
            status="failed" if failed else "ok" if time_us else "no_time",
            time_us=time_us or None,
            error=("TunableOp found no kernel for this matrix product: each candidate failed or was skipped")
            if failed
            else None,
            key_text=key,
        )
        return _counted([record])

    def lookup(self, match: re.Match[str]) -> Outcome:
        self._loading = False
        return Outcome("call", [Call(problem=_problem(match)[0], category=CATEGORY)])

    def untuned(self, match: re.Match[str]) -> Outcome:
        return Outcome("call", [Call(problem=_problem(match)[0], category="untuned", count=None)])

    def loading(self, match: re.Match[str]) -> Outcome:
        self._loading = True
        return Outcome("message")

    def running(self, match: re.Match[str]) -> Outcome:
        """Read a log line in which PyTorch compares the version in a results file with its own.

        The line is ``KEY validation: expect FILE to match RUNNING``.  RUNNING is recorded, because it is the version of
        the PyTorch that runs.
        """
        return Outcome("fact", validators.facts({match["key"]: match["running"]}))

    def reported(self, match: re.Match[str]) -> Outcome:
        """Read a log line in which PyTorch says that it ignored a results file or one of its rows."""
        self._loading = False
        return Outcome("message", [Message(category=CATEGORY, text=match[0].strip())])

    # -- shared by the methods above

    def _block(self, match: re.Match[str]) -> _Block:
        problem, key = _problem(match)
        # The log may begin in the middle of a tuning, and rocBLAS blogs quote it with lines left out.  The line itself
        # names its key, so a missing beginning does no harm.
        return self._open.setdefault(key, _Block(key, problem))

    def _without_time(
        self,
        block: _Block,
        why: str = "PyTorch timed this kernel, but the kernel was not faster than the best kernel so far",
    ) -> list[Measurement]:
        """Return the kernels that PyTorch began to time in this tuning, but whose time is missing in the log."""
        out = []
        for (_, name), blocks in self._pending.items():
            if block in blocks:
                blocks.remove(block)
                out.append(_measured(block, name, "no_time", why))
        return out

    def _cut(self, block: _Block, how: str) -> Iterable[Record]:
        """Return what is known of a TunableOp tuning whose last line is missing in the log.

        The process may have crashed in the kernel that PyTorch was timing.
        """
        yield Message(category="partial", text=f"tuning of {block.key} {how}")
        yield from self._without_time(block, "the log ends while PyTorch times this kernel")


def _reject(reason: str, before: str, wrong: str) -> Outcome:
    return Outcome("reject", [Reject(reason, len(before.encode()), len(wrong.encode()))])


def _counted(records: Sequence[Record]) -> Outcome:
    return Outcome("measurement" if any(isinstance(x, Measurement) for x in records) else "message", records)


def _measured(
    block: _Block, name: str, status: Status, error: str | None, time_us: float | None = None, **more: float | None
) -> Measurement:
    return Measurement(
        problem=block.problem,
        solution=solution(name),
        origin=ORIGIN,
        status=status,
        error=error,
        time_us=time_us,
        key_text=block.key,
        **more,  # type: ignore[arg-type]
    )


def _us(text: str | None) -> float | None:
    value = math.nan if text is None else microseconds(text)
    return value if math.isfinite(value) else None


def _problem(match: re.Match[str]) -> tuple[GemmProblem, str]:
    """Return the matrix product that a log line names, and the text by which the line names it.

    Raises SignatureError if this text cannot be read.
    """
    return signature.problem(match["op"], match["params"]), f"{match['op']},{match['params']}"


_SCREENED: dict[str, tuple[Status, str]] = {
    "unsupported": ("unsupported", "the library cannot run this kernel for this call"),
    "numerics check failed for": ("wrong", "the result of this kernel failed PyTorch's numerics check"),
    "skip slow instance": ("skipped", "a few runs of this kernel were slower than the best kernel so far"),
    "2nd skip slow instance": ("skipped", "ten runs of this kernel were slower than the best kernel so far"),
}
_TOP = regex(rf" {{2,3}}{_MS} \S+\Z")  # A launcher's prefix may include one of the three spaces.
_LINES: tuple[tuple[str, Callable[[_Reader, re.Match[str]], Outcome]], ...] = (
    (rf"├──tuning using warmup iters .* instance {_CANDIDATE}", _Reader.tuning),
    (
        rf"├──found (?:better|slower) instance {_ID}\. (?P<ms>{_MS})ms\. (?P<sol>\S+)"
        rf"(?: min (?P<min>{_MS}) max (?P<max>{_MS}) mean {_MS} std (?P<std>{_MS}))?",
        _Reader.found,
    ),
    (rf"├──(?P<why>{'|'.join(_SCREENED)}) {_CANDIDATE}", _Reader.screened),
    (rf"missing (?:op|params)_signature, returning null ResultEntry for {_OP},(?P<params>\S*)", _Reader.lookup),
    (rf"ResultEntry found for {_OP},(?P<params>\S*)", _Reader.lookup),
    (rf"finding fastest for {_KEY} out of \d+ candidates", _Reader.finding),
    (rf"└──found fastest for {_KEY} \S+", _Reader.fastest),
    (rf"└──top five solutions for {_KEY}", _Reader.top_five),
    (rf"{_KEY} -> (?P<sol>[^,\s]+),(?P<ms>{_MS})", _Reader.winner),
    (rf"Untuned,{_OP},(?P<params>[^,\s]*)(?:,BLAS_PARAMS:.*)?", _Reader.untuned),
    (r"reading tuning results from .*|Loading results", _Reader.loading),
    (r"Validator \w+=.*", lambda reader, match: Outcome("fact")),
    (r"(?P<key>[A-Z][A-Z_]+) validation: expect .* to match (?P<running>.*)", _Reader.running),
    (r"could not open .* for reading tuning results|results validator check failed", _Reader.reported),
    (r'key="\w+" is not provided for validation\.|missing candidate .*, using default', _Reader.reported),
    (
        rf"missing (?:op|params)_signature, returning null ResultEntry|{_KEY} already has a best .*",
        lambda reader, match: Outcome("message"),
    ),
)
_PATTERNS = tuple((regex(text + r"\s*\Z"), reader) for text, reader in _LINES)
_OTHERS = (
    *("├──offset at ", "├──verify numerics: ", "Realtime append: ", "could not parse line: "),
    *("no result, using default", "Rotating buffer ", "Wrote validators to realtime output file"),
)
_MARKERS = (
    *("├──".encode(), "└──".encode(), b"TunableOp_", b"reading tuning results", b" validation: expect "),
    *(b"results validator check failed", b"returning null ResultEntry", b"Needed number of param copies"),
    *(b"to realtime output file", b" is not provided for validation", b"no result, using default"),
    b"missing candidate ",
)

FORMAT = BlockFormat(
    name="tunableop-verbose",
    about="PyTorch's verbose log of TunableOp: the time of every candidate",
    markers=_MARKERS,
    begin=make_rank_readers(_MARKERS, _Reader),
    origins=(Origin(ORIGIN, evidence=True), Origin(results.ORIGIN, evidence=True, winners=True)),
    order="a line with a time states only its candidate's number, and the line before it names the candidate",
    seen="PyTorch 2.3, 2.11 (CUDA) and TheRock (AMD's builds of ROCm); other versions (source code only)",
    example="├──tuning using warmup iters 0 …",
    gives="measurements of every candidate",
    how=(
        "set `PYTORCH_TUNABLEOP_VERBOSE=3`; PyTorch then writes the log to standard error, or to the file that "
        "`PYTORCH_TUNABLEOP_VERBOSE_FILENAME` names"
    ),
)
