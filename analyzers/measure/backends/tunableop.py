"""PyTorch's TunableOp: its default call, and the winner that its own tuning finds, measured as everything else is.

TunableOp times its candidates itself and can only run the winner again: a key that it holds is never replaced.  So the
winner races and is confirmed here; every other candidate is a row without our time, whose reason is TunableOp's own
(from its verbose log, which ``logparse ingest`` reads as measurements too).  Solutions have the names of the libraries
that they come from, as everywhere: ``hipblaslt:477479``, ``rocblas:-9``, ``cublaslt:id=66,…``.

Tuning exists on ROCm, and on CUDA from PyTorch 2.14 on (before, ``Default`` is the only candidate there).
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzers.measure.backend import Backend, BackendType, Conditions, Place, UnsupportedError
from analyzers.measure.backends.torch_gemms import gemm_ways
from analyzers.measure.device.device_backend import DeviceBackend
from analyzers.measure.device.torch_device import TorchRunnable
from logparse.formats.format import Line
from logparse.formats.tunableop import verbose
from logparse.model import DEFAULT, Call, GemmProblem, Measurement, Problem, Record, Solution


class TunableOp(DeviceBackend):
    """The backend.  Raises UnsupportedError where this PyTorch is built without TunableOp."""

    def __init__(self, place: Place) -> None:
        import torch

        if not hasattr(torch._C, "_cuda_tunableop_enable"):
            raise UnsupportedError(f"PyTorch {torch.__version__} is built without TunableOp")
        self._folder = tempfile.TemporaryDirectory(prefix="logparse-tunableop-")
        self._log = Path(self._folder.name) / "verbose.log"
        # Read once, at TunableOp's first use in this process.
        os.environ["PYTORCH_TUNABLEOP_VERBOSE"] = "3"
        os.environ["PYTORCH_TUNABLEOP_VERBOSE_FILENAME"] = str(self._log)
        super().__init__(place)
        self._tunable: Any = self._device.torch.cuda.tunable
        self._tunable.write_file_on_exit(False)
        self._tunable.set_filename(str(Path(self._folder.name) / "results.csv"))
        self._known: dict[str, dict[str, Measurement]] = {}
        self._tuned: dict[str, dict[str, Measurement]] = {}

    def environment(self) -> Mapping[str, str]:
        """The device's facts."""
        return self._device.facts

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """Tunes at the first question.  ``Default`` first, then the winner, then what TunableOp alone has timed."""
        rows = self._candidates(_gemm(problem))
        rest = [row.solution for row in by_time(rows.values()) if row.solution != DEFAULT]
        return [DEFAULT, *rest][:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        """``Default`` without TunableOp, or its winner."""
        gemm = _gemm(problem)
        rows = self._candidates(gemm)
        if solution != DEFAULT:
            winner = by_time(rows.values())[0].solution
            if solution != winner:
                raise UnsupportedError(_why_not(rows.get(solution.text)))
        operands = self._cache.operands(gemm, conditions)
        default = gemm_ways(self._device, gemm, self._place)[0]
        enabled = solution != DEFAULT

        @contextlib.contextmanager
        def around() -> Iterator[None]:
            with default.around(), self._switched(enabled=enabled, tuning=False):
                yield

        return TorchRunnable(self._device, operands, default.make(operands), around=around)

    @contextlib.contextmanager
    def _switched(self, *, enabled: bool, tuning: bool) -> Iterator[None]:
        before = self._tunable.is_enabled(), self._tunable.tuning_is_enabled()
        self._tunable.enable(enabled)
        self._tunable.tuning_enable(tuning)
        try:
            yield
        finally:
            self._tunable.enable(before[0])
            self._tunable.tuning_enable(before[1])

    def _candidates(self, gemm: GemmProblem) -> dict[str, Measurement]:
        """What TunableOp tried for this problem's key, by solution text; tuned once, as in a job."""
        if gemm.text not in self._tuned:
            operands = self._cache.operands(gemm, Conditions())
            way = gemm_ways(self._device, gemm, self._place)[0]
            call, read_to = way.make(operands), self._log.stat().st_size if self._log.exists() else 0
            with way.around(), self._switched(enabled=True, tuning=True):
                call(0)
                self._device.synchronize()
            if not self._log.exists():
                raise UnsupportedError("this PyTorch's TunableOp writes no verbose log")
            with self._log.open("rb") as stream:
                stream.seek(read_to)
                text = stream.read().decode("utf-8", "replace")
            self._tuned[gemm.text] = candidates(text, self._known)
            self._cache.clear()
        return self._tuned[gemm.text]


def candidates(log: str, known: dict[str, dict[str, Measurement]]) -> dict[str, Measurement]:
    """The candidates of the one key that a stretch of verbose log is about, by solution text.

    ``known`` holds earlier tunings by the key's problem and is added to: a key that was tuned before, for another
    problem of the same key, is only looked up.  Raises UnsupportedError where the log names no key.
    """
    key = None
    fresh: dict[str, dict[str, Measurement]] = {}
    for record in _records(log):
        if isinstance(record, Call):
            key = record.problem.text
        elif isinstance(record, Measurement) and record.origin == verbose.ORIGIN:
            key = record.problem.text
            fresh.setdefault(key, {}).setdefault(record.solution.text, record)
    known |= fresh
    if key is None or key not in known:
        raise UnsupportedError("TunableOp did not tune this call")
    return known[key]


def by_time(rows: Iterable[Measurement]) -> list[Measurement]:
    """The fastest first, those without a time last."""
    return sorted(rows, key=lambda row: math.inf if row.time_us is None else row.time_us)


def _records(log: str) -> Iterator[Record]:
    reader, offset = verbose.FORMAT.begin(), 0
    for text in log.split("\n"):
        outcome = reader.take(Line(text, offset))
        if outcome is not None:
            yield from outcome.records
        offset += len(text.encode()) + 1
    yield from reader.close()


def _why_not(row: Measurement | None) -> str:
    if row is None:
        return "TunableOp did not try it"
    if row.time_us is None:
        return f"TunableOp: {row.error or row.status}"
    return f"TunableOp runs only its winner again; it timed this one itself, {row.time_us:.3f} µs"


def _gemm(problem: Problem) -> GemmProblem:
    if not isinstance(problem, GemmProblem):
        raise UnsupportedError(f"a {problem.kind}")
    return problem


def _open(place: Place) -> Backend:
    return TunableOp(place)


BACKEND = BackendType(
    "tunableop", "PyTorch's TunableOp: its winner against the default, its own times beside", _open, imports=("torch",)
)
