"""TunableOp's verbose log: every candidate's time, the default's included, so a speed-up over it is known.

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

Produced by ``PYTORCH_TUNABLEOP_VERBOSE=3`` (1: files and validators, 2: winners) on stderr, or in the one file that
``PYTORCH_TUNABLEOP_VERBOSE_FILENAME`` names.  Milliseconds.  There is no clock, no process and no device in a line.
Source: pytorch/pytorch aten/src/ATen/cuda/tunable/{Tunable.cpp,TunableOp.h}, torch 2.3 to 2.15.

``found better|slower`` names only the candidate's number and solution: the key comes from the ``tuning using`` line
before it.  Where several processes share the stream and two keys are being tuned by the same number and solution, the
line is a reject.  A candidate that was skipped has a lower bound only, which is in ``error``.  From 2.7 on ``Default``
is tried first and last: two measurements of one thing.  Up to 2.6 a candidate that was timed and slower than the best
leaves no time.  Every dispatch looks its key up once, at level 3 that is one line, which is read as one call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from logparse.formats.decimals import MS_TO_US, shifted
from logparse.formats.format import BlockFormat, Line, Origin, Outcome
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.formats.tunableop import results, signature, validators
from logparse.formats.tunableop.solutions import solution
from logparse.model import Call, GemmProblem, Measurement, Message, Record, Reject, Status

ORIGIN = "tunableop-verbose"
CATEGORY = "tunableop"

_OP = r"(?P<op>(?:ScaledGemm|Gemm(?:StridedBatched|AndBias)?)TunableOp_[^(,\s]+)"
_KEY = rf"{_OP}\((?P<params>[^)\s]*)\)"
_ID = r"id=(?P<id>\d+)"
_MS = r"(?:[-+]?(?:nan|inf)|[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)"
_CANDIDATE = rf"{_ID}, {_KEY} (?P<sol>\S+)"


@dataclass
class _Block:
    """The tuning of one key, from ``finding fastest`` to ``found fastest``."""

    key: str
    problem: GemmProblem
    candidates: str
    best_us: float | None = None
    last: str = ""
    timed: set[str] = field(default_factory=set)


class _Reader:
    """The tunings under way in one stream, by key."""

    def __init__(self) -> None:
        self._open: dict[str, _Block] = {}
        self._done: dict[str, set[str]] = {}
        self._pending: dict[tuple[str, str], list[_Block]] = {}
        self._loading = False
        self._top_five = False
        self._seen = False

    @property
    def awake(self) -> bool:
        return bool(self._open) or self._loading or self._top_five

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip("\r")
        self._top_five = self._top_five and _TOP.match(text) is not None
        if self._top_five:
            return _message(text)
        for pattern, reader in _PATTERNS:
            match = pattern.match(text)
            if match:
                try:
                    outcome = reader(self, match)
                except signature.SignatureError as error:
                    part = "params" if error.part else "op"
                    outcome = _reject(str(error), text[: match.start(part)], match[part])
                self._seen = self._seen or outcome is not None
                return outcome
        # Trees and tables are drawn with the same characters: a line of them is ours only while a key is being tuned.
        if text.startswith("finding fastest for ") or (self._open and text.startswith(("├──", "└──"))):
            return _reject("not a line of TunableOp's verbose log as far as known", "", text)
        return None

    def close(self) -> Iterable[Record]:
        for key in list(self._open):
            yield from self._cut(key, "is cut off")
        self._pending.clear()

    # -- one method per kind of line

    def finding(self, match: re.Match[str]) -> Outcome:
        problem, key = _problem(match)
        records = list(self._cut(key, "begins again before it ended"))
        self._loading = False
        self._open[key] = _Block(key, problem, match["n"])
        return Outcome("measurement", records)

    def tuning(self, match: re.Match[str]) -> Outcome:
        block = self._block(match)
        records = list(self._without_time(block))
        block.last = match["sol"]
        self._pending.setdefault((match["id"], match["sol"]), []).append(block)
        return Outcome("measurement", records)

    def found(self, match: re.Match[str]) -> Outcome:
        """``found better|slower instance``."""
        waiting = self._pending.get((match["id"], match["sol"]), [])
        if len({block.key for block in waiting}) != 1:
            why = "that two tunings under way could own" if waiting else "without its candidate's line"
            return _reject(f"a time {why}", "", match[0])
        block = waiting.pop(0)
        if not waiting:
            del self._pending[match["id"], match["sol"]]
        given = {name: _us(match[name]) for name in ("ms", "min", "max", "std")}
        time_us = given.pop("ms")
        if match["verdict"] == "better":
            block.best_us = time_us
        block.timed.add(match["sol"])
        status: Status = "ok" if time_us is not None else "no_time"
        more = {f"{name}_us": value for name, value in given.items()}
        return Outcome("measurement", [_measured(block, match["sol"], status, None, time_us, **more)])

    def screened(self, match: re.Match[str]) -> Outcome:
        """``unsupported``, ``skip slow``, ``2nd skip slow``, ``numerics check failed``: no time."""
        block = self._block(match)
        status, why = _screening(match["why"], block)
        records = [*self._without_time(block), _measured(block, match["sol"], status, why)]
        block.last = match["sol"]
        return Outcome("measurement", records)

    def fastest(self, match: re.Match[str]) -> Outcome:
        key = f"{match['op']},{match['params']}"
        block = self._open.pop(key, None)
        if block is None:
            return _message(f"found fastest for a tuning not begun here: {key}")
        records = list(self._without_time(block))
        self._done[key] = block.timed
        return Outcome("measurement", records)

    def top_five(self, match: re.Match[str]) -> Outcome:
        self._top_five = True
        return _message(match[0])

    def winner(self, match: re.Match[str]) -> Outcome:
        """``op(params) -> solution,ms``: a row loaded from a file, or a winner (repeated when each was timed above)."""
        problem, key = _problem(match)
        if match["sol"] in self._done.get(key, ()):
            return _message(f"{match['op']}({match['params']}) -> {match['sol']}")
        time_us = _us(match["ms"])
        failed = match["ms"].lstrip("+-") == "inf"
        record = Measurement(
            problem=problem,
            solution=solution(match["sol"]),
            origin=ORIGIN if key in self._done and not self._loading else results.ORIGIN,
            status="failed" if failed else "ok" if time_us else "no_time",
            time_us=time_us or None,
            error="every candidate failed or was skipped" if failed else None,
            key_text=key,
        )
        return Outcome("measurement", [record])

    def lookup(self, match: re.Match[str]) -> Outcome:
        self._loading = False
        return Outcome("call", [Call(problem=_problem(match)[0], category=CATEGORY)])

    def untuned(self, match: re.Match[str]) -> Outcome:
        return Outcome("call", [Call(problem=_problem(match)[0], category="untuned", count=None)])

    def loading(self, match: re.Match[str]) -> Outcome:
        self._loading = match[0].startswith(("reading", "Loading"))
        return _message(match[0])

    def validator(self, match: re.Match[str]) -> Outcome:
        return Outcome("fact") if self._loading else _message(match[0])

    def running(self, match: re.Match[str]) -> Outcome:
        """``KEY validation: expect FILE to match RUNNING``: the running side is a fact of this log."""
        return Outcome("fact", validators.facts({match["key"]: match["running"]}))

    def writing(self, match: re.Match[str]) -> Outcome | None:
        """``writing file F`` (up to 2.9): anyone's words, ours only behind lines that are."""
        return _message(match[0]) if self._seen else None

    def other(self, match: re.Match[str]) -> Outcome:
        return _message(match[0])

    # -- what they share

    def _block(self, match: re.Match[str]) -> _Block:
        problem, key = _problem(match)
        # The log may begin in the middle, and rocBLAS blogs quote it with lines left out: the line names its key.
        return self._open.setdefault(key, _Block(key, problem, "? candidates"))

    def _without_time(self, block: _Block, cut: bool = False) -> Iterable[Measurement]:
        """Candidates of this tuning whose timing began and left no line."""
        for place in [place for place, blocks in self._pending.items() if block in blocks]:
            self._pending[place].remove(block)
            if not self._pending[place]:
                del self._pending[place]
            best = "" if block.best_us is None else f" ({block.best_us:.6g} us)"
            why = "the log ends while it is timed" if cut else f"timed, not better than the best so far{best}"
            yield _measured(block, place[1], "no_time", why)

    def _cut(self, key: str, how: str) -> Iterable[Record]:
        """What is known of a tuning that does not end."""
        block = self._open.pop(key, None)
        if block is not None:
            last = f", last candidate {block.last}" if block.last else ""
            yield Message(category="partial", text=f"tuning of {key} out of {block.candidates} {how}{last}")
            yield from self._without_time(block, cut=True)


def _reject(reason: str, before: str, wrong: str) -> Outcome:
    return Outcome("reject", [Reject(reason, len(before.encode()), len(wrong.encode()))])


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


def _screening(word: str, block: _Block) -> tuple[Status, str]:
    if word == "unsupported":
        return "unsupported", "the backend refuses this call"
    if word == "numerics check failed for":
        return "wrong", "numerics check failed"
    # 3 runs against 1.5 times the best (2 times up to 2.6, whose keys have no leading dimensions), then 10 against 1.15
    factor = 1.15 if word.startswith("2nd") else 1.5 if "_ld_" in block.key else 2.0
    bound = "" if block.best_us is None else f", more than {factor * block.best_us:.6g} us"
    return "skipped", f"slower than {factor:g} times the best so far{bound}"


def _us(text: str | None) -> float | None:
    value = math.nan if text is None else shifted(text, MS_TO_US)
    return value if math.isfinite(value) else None


def _problem(match: re.Match[str]) -> tuple[GemmProblem, str]:
    """The problem that a line names, and its key.  Raises SignatureError."""
    return signature.problem(match["op"], match["params"]), f"{match['op']},{match['params']}"


_NUMBERS = regex(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\()")


def _message(text: str) -> Outcome:
    """A line without information about a candidate; its numbers are left out so that equal lines are one."""
    return Outcome("message", [Message(category=CATEGORY, text=_NUMBERS.sub("#", text.strip()))])


_TOP = regex(rf" {{2,3}}{_MS} \S+\Z")  # a launcher may have put one of three spaces behind its mark
_LINES: tuple[tuple[str, Callable[[_Reader, re.Match[str]], Outcome | None]], ...] = (
    (rf"├──tuning using warmup iters .* instance {_CANDIDATE}", _Reader.tuning),
    (
        rf"├──found (?P<verdict>better|slower) instance {_ID}\. (?P<ms>{_MS})ms\. (?P<sol>\S+)"
        rf"(?: min (?P<min>{_MS}) max (?P<max>{_MS}) mean {_MS} std (?P<std>{_MS}))?",
        _Reader.found,
    ),
    (
        r"├──(?P<why>unsupported|skip slow instance|2nd skip slow instance|numerics check failed for) " + _CANDIDATE,
        _Reader.screened,
    ),
    (r"├──(?:offset at \d+|verify numerics: .*)", _Reader.other),
    (rf"missing (?:op|params)_signature, returning null ResultEntry for {_OP},(?P<params>\S*)", _Reader.lookup),
    (rf"ResultEntry found for {_OP},(?P<params>\S*)", _Reader.lookup),
    (rf"finding fastest for {_KEY} out of (?P<n>\d+ candidates)", _Reader.finding),
    (rf"└──found fastest for {_KEY} (?P<sol>\S+)", _Reader.fastest),
    (rf"└──top five solutions for {_KEY}", _Reader.top_five),
    (rf"{_KEY} -> (?P<sol>[^,\s]+),(?P<ms>{_MS})", _Reader.winner),
    (rf"Realtime append: {_KEY} -> .*", _Reader.other),
    (rf"{_KEY} already has a best kernel id=.*", _Reader.other),
    (rf"Untuned,{_OP},(?P<params>[^,\s]*)(?:,BLAS_PARAMS:.*)?", _Reader.untuned),
    (r"reading tuning results from .*", _Reader.loading),
    (r"could not open .* for reading tuning results", _Reader.loading),
    (r"Validator \w+=.*", _Reader.validator),
    (r"(?P<key>[A-Z][A-Z_]+) validation: expect .* to match (?P<running>.*)", _Reader.running),
    (r"Loading results", _Reader.loading),
    (r"results validator check failed", _Reader.loading),
    (r'key="\w+" is not provided for validation\.', _Reader.other),
    (r"could not parse line: .*", _Reader.other),
    (r"missing (?:op|params)_signature, returning null ResultEntry", _Reader.other),
    (r"Rotating buffer -?\d+ MiB\. Needed Size: .*", _Reader.other),
    (r"no result, using default", _Reader.other),
    (r"missing candidate .*, using default", _Reader.other),
    (r"writing file .*", _Reader.writing),
    (r"additional tuning results available, rewriting file .*", _Reader.other),
    (r"(?:Enable|Disable) (?:[\w ]+ for )?TunableOp", _Reader.other),
    (r"Wrote validators to realtime output file", _Reader.other),
)
_PATTERNS = tuple((regex(text + r"\s*\Z"), reader) for text, reader in _LINES)
_MARKERS = (
    "├──".encode(),
    "└──".encode(),
    b"TunableOp_",
    b"reading tuning results",
    b" validation: expect ",
    b"results validator check failed",
    b"returning null ResultEntry",
    b"Needed number of param copies",
    b"to realtime output file",
    b" is not provided for validation",
    b"no result, using default",
    b"missing candidate ",
    b"writing file ",
    b"additional tuning results available",
    b"able TunableOp",
    b" for TunableOp",
)

FORMAT = BlockFormat(
    name="tunableop-verbose",
    about="PyTorch TunableOp verbose log: every candidate's time",
    markers=_MARKERS,
    begin=ranked(_MARKERS, _Reader),
    origins=(
        Origin(ORIGIN, evidence=True),
        Origin(results.ORIGIN, evidence=True),
    ),
)
