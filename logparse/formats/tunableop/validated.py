"""What PyTorch's TunableOp makes of the bytes of a results file: accepted or not, its rows, and what a call does.

This is PyTorch's own reader transcribed to Python; ``tunableop`` adds the explanations.
``benchmarks/gpu_tunableop.py`` compares it with ``torch.cuda.tunable.read_file`` on a GPU.

Source: pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp (``TuningContext::ReadFile``,
``TuningResultsValidator::ValidateAll``), torch 2.3 to 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

MANDATORY = "PT_VERSION"
MISSING_CANDIDATE_FALLS_BACK = (2, 14)
"""From this version on a row whose solution is unknown runs the default; before, the call raises."""

_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*(?:(?P<inf>[-+]?inf(?:inity)?)|(?P<nan>[-+]?nan)|(?P<hex>[-+]?0x(?:[0-9a-f]+\.?[0-9a-f]*|"
    r"\.[0-9a-f]+)(?:p[-+]?\d+)?)|(?P<dec>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?))",
    re.IGNORECASE,
)

Result = Literal["hit", "miss", "default", "raises"]


@dataclass(frozen=True)
class Entry:
    """One line that PyTorch takes for a result; ``shadowed_by`` is the line whose row has the same key and wins."""

    line: int
    op: str
    params: str
    solution: str
    time_ms: float
    fields: int
    shadowed_by: int | None = None

    @property
    def key(self) -> str:
        return f"{self.op},{self.params}"


@dataclass(frozen=True)
class Reading:
    """The lines of a file as PyTorch splits them, before anything is validated."""

    validators: Mapping[str, str]
    entries: tuple[Entry, ...]
    ignored: tuple[int, ...]


@dataclass(frozen=True)
class Prediction:
    """Whether ``read_file`` returns True, why not, and the rows that are then in memory."""

    accepted: bool
    reason: str
    rows: tuple[Entry, ...]


def read(data: bytes) -> Reading:
    """Split as ``std::getline`` does: lines at LF only, fields at every comma, an empty last field is dropped."""
    validators: dict[str, str] = {}
    entries: list[Entry] = []
    ignored: list[int] = []
    first: dict[tuple[str, str], int] = {}
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        parts = line.split(",")
        if not parts[-1] and len(parts) > 1:
            parts.pop()
        if parts[0] == "Validator" and len(parts) >= 3:
            validators[parts[1]] = parts[2]
        elif len(parts) >= 3:
            time = atof(parts[3]) if len(parts) > 3 else 0.0
            winner = first.setdefault((parts[0], parts[1]), number)
            shadow = winner if winner != number else None
            entries.append(Entry(number, parts[0], parts[1], parts[2], time, len(parts), shadow))
        else:
            ignored.append(number)
    return Reading(validators, tuple(entries), tuple(ignored))


def predict(data: bytes, running: Mapping[str, str]) -> Prediction:
    """What ``read_file`` does in a process with these validators (``torch.cuda.tunable.get_validators()``)."""
    reading = read(data)
    reason = rejection(reading.validators, running)
    rows = () if reason else tuple(entry for entry in reading.entries if entry.shadowed_by is None)
    return Prediction(reason is None, reason or "", rows)


def rejection(given: Mapping[str, str], running: Mapping[str, str]) -> str | None:
    """Why a file with these validators is rejected as a whole; None when it is accepted."""
    if MANDATORY not in given:
        return f"{MANDATORY} is not in the file (rejected without a warning)"
    for name in sorted(set(given) | set(running)):
        if name not in running:
            return f"validator {name} is not one of this PyTorch"
        if name not in given:
            return f"validator {name} is missing"
    wrong = [name for name in given if given[name] != running[name]]
    if wrong:
        return "; ".join(f"{name} is {given[name]!r}, running is {running[name]!r}" for name in wrong)
    return None


def lookup(
    prediction: Prediction, op: str, params: str, known: Collection[str], torch: tuple[int, int] | None
) -> Result:
    """What a call of this key does: ``known`` are the solution names that the op has in the process."""
    row = next((x for x in prediction.rows if (x.op, x.params) == (op, params)), None)
    if row is None:
        return "miss"
    if row.solution in known:
        return "hit"
    return "default" if torch is not None and torch >= MISSING_CANDIDATE_FALLS_BACK else "raises"


def atof(text: str) -> float:
    """C's atof: the longest number at the start, 0 without one."""
    match = _NUMBER.match(text)
    if match is None:
        return 0.0
    if match["hex"]:
        return float.fromhex(match["hex"])
    return float(match["inf"] or match["nan"] or match["dec"])
