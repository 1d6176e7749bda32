"""MIOpen through its C API: the solutions of immediate mode for a convolution, the library's own pick first.

The list is the find-db's where that holds the problem (fastest first, by its recorded times), else the library's guess:
the first entry is what a user gets in both cases.  ``exhaustive`` adds every solver that applies, also those that the
find-db does not hold; MIOpen reads the switches for that once per process, so another process is asked
(``miopen_candidates``).  A solver runs with the parameters of the perf-db, or with its default ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyzers.measure.backend import Backend, BackendType, Conditions, Place, UnsupportedError
from analyzers.measure.backends.miopen_candidates import Candidates
from analyzers.measure.backends.miopen_library import TYPES, Convolution, Library, Offer
from analyzers.measure.backends.pytorch import OperandCache
from analyzers.measure.backends.torch_device import Tensor, TorchRunnable, marker_of, torch_device
from analyzers.measure.backends.torch_operands import ConvOperands, conv_shapes
from logparse.formats.miopen.solvers import ID_OF_CODE, SOLVERS, algorithm_name
from logparse.model import ConvProblem, Problem, Solution

_MOST = 200
"""More solvers than the registry has for one direction."""


class Miopen:
    """The backend."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._device = torch_device(place)  # loads torch, and with it torch's own MIOpen
        self._library = Library()
        torch = self._device.torch
        stream = torch.cuda.current_stream(self._device.device).cuda_stream if self._device.is_gpu else 0
        self._handle = self._library.made("miopenCreateWithStream", stream)
        self._candidates = Candidates(place.device) if place.exhaustive else None
        self._cache = OperandCache(self._device)
        self._convolutions: dict[str, Convolution] = {}
        self._offers: dict[str, dict[str, Offer]] = {}
        self._workspace: Any = None
        self.cache_bytes = self._device.cache_bytes

    def environment(self) -> Mapping[str, str]:
        """The device's facts and the library's version as it tells it itself."""
        return dict(self._device.facts) | {"miopen_version": self._library.version}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """Those that fit the workspace (None: whatever they need, as PyTorch gives it)."""
        conv = _conv(problem)
        return [
            _solution(conv, name, offer)
            for name, offer in self._offered(conv).items()
            if workspace_bytes is None or offer.workspace_bytes <= workspace_bytes
        ][:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        """Compile the solver's kernels and make it a call."""
        conv = _conv(problem)
        offer = self._offered(conv).get(solution.id)
        if offer is None:
            raise UnsupportedError("MIOpen does not offer this solver")
        convolution = self._convolution(conv)
        convolution.compile(offer.id)
        operands = self._cache.operands(conv, conditions)
        assert isinstance(operands, ConvOperands)
        need = offer.workspace_bytes
        with self._device.memory_errors(float(need)):
            workspace = self._reserve(need)
        tensors = [operands.tensors[name] for name in convolution.order]

        def call(i: int) -> Tensor:
            pointers = [held[i].data_ptr() for held in tensors]
            convolution.run(pointers, workspace.data_ptr(), need, offer.id)
            return tensors[-1][i]

        marker = marker_of(self._place, solution.text)
        return TorchRunnable(self._device, operands, call, marker=marker, workspace_bytes=need)

    def refresh(self, seed: int) -> None:
        """Other random data."""
        self._cache.fill(seed)

    def release(self) -> None:
        """Free operands, descriptors and workspace."""
        self._cache.clear()
        for convolution in self._convolutions.values():
            convolution.close()
        self._convolutions.clear()
        self._offers.clear()
        self._workspace = None
        self._device.empty_cache()

    def healthy(self) -> bool:
        """Whether the device still computes."""
        return self._device.healthy()

    def _reserve(self, need: int) -> Tensor:
        """One workspace serves all solutions of a problem: they never run at once."""
        if self._workspace is None or self._workspace.numel() < need:
            torch = self._device.torch
            self._workspace = torch.empty(max(need, 1), dtype=torch.uint8, device=self._device.device)
        return self._workspace

    def _convolution(self, conv: ConvProblem) -> Convolution:
        if conv.text not in self._convolutions:
            self._convolutions[conv.text] = Convolution(self._library, self._handle, conv)
        return self._convolutions[conv.text]

    def _offered(self, conv: ConvProblem) -> dict[str, Offer]:
        """Offers by solver name, in the library's order; what only the other process knows comes last."""
        if conv.text not in self._offers:
            offers = self._convolution(conv).offers(_MOST)
            offers += self._candidates.of(conv) if self._candidates else []
            held = self._offers[conv.text] = {}
            for offer in offers:
                held.setdefault(SOLVERS.get(offer.id, f"id={offer.id}"), offer)
        return self._offers[conv.text]


def _solution(conv: ConvProblem, name: str, offer: Offer) -> Solution:
    family = ID_OF_CODE.get(offer.algorithm)
    return Solution("miopen", name, name, algorithm_name(family, conv.direction) if family else None)


def _conv(problem: Problem) -> ConvProblem:
    """The problem, where this backend runs it.  Raises UnsupportedError."""
    if not isinstance(problem, ConvProblem):
        raise UnsupportedError(f"a {problem.kind}")
    conv_shapes(problem)
    if problem.in_type not in TYPES:
        raise UnsupportedError(f"type {problem.in_type}")
    return problem


def _open(place: Place) -> Backend:
    return Miopen(place)


BACKEND = BackendType("miopen", "immediate-mode solvers of MIOpen, on request all that apply (libMIOpen)", _open)
