"""MIOpen through its C API: the solutions of immediate mode for a convolution, the library's own pick first.

The list is the find-db's where that holds the problem (fastest first, by its recorded times), else the library's guess:
the first entry is what a user gets in both cases.  ``exhaustive`` adds every solver that applies, also those that the
find-db does not hold; MIOpen reads the switches for that once per process, so another process is asked
(``miopen_candidates``).  A solver runs with the parameters of the perf-db, or with its default ones.  ``exhaustive``
also asks Find 2.0.  Solvers that only it offers stand last, as ``miopen-find:SOLVER`` (``miopen_find``): no find-db row
is made of them.  A solver that both offer is the same kernel with the same parameters, so it is listed once.

A bias is a call of its own behind the convolution (as MIOpenDriver makes it), and part of the time of each solution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from analyzers.measure.backend import Backend, BackendType, Conditions, Place, UnsupportedError
from analyzers.measure.backends.miopen_candidates import Candidates
from analyzers.measure.backends.miopen_find import Found
from analyzers.measure.backends.miopen_library import TYPES, Convolution, Library, Offer
from analyzers.measure.device.device_backend import DeviceBackend
from analyzers.measure.device.operands import ConvOperands, conv_of
from analyzers.measure.device.torch_device import Tensor, TorchRunnable
from logparse.formats.miopen.solvers import ID_OF_CODE, SOLVERS, algorithm_name
from logparse.model import ConvProblem, Problem, Solution

FIND = "miopen-find"
"""The library's word in solutions of Find 2.0."""
_MOST = 200
"""More solvers than the registry has for one direction."""

Run: TypeAlias = Callable[[Sequence[int], int, int], None]
"""Enqueues an execution: pointers of the tensors, of the workspace, and its size in bytes."""


class Miopen(DeviceBackend):
    """The backend."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)  # loads torch, and with it torch's own MIOpen
        self._library = Library()
        self._handle = self._library.made("miopenCreateWithStream", self._device.stream)
        self._candidates = Candidates(place.device) if place.exhaustive else None
        self._convolutions: dict[str, Convolution] = {}
        self._offers: dict[str, dict[str, Offer]] = {}
        self._found: dict[tuple[str, int | None], Found | None] = {}

    def environment(self) -> Mapping[str, str]:
        """The device's facts and the version that the library itself reports."""
        return dict(self._device.facts) | {"miopen_version": self._library.version}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """Those that fit the workspace (None: whatever they need, as PyTorch gives it)."""
        conv = conv_of(problem, TYPES, with_bias=True)
        offered = {
            name: offer
            for name, offer in self._offered(conv).items()
            if workspace_bytes is None or offer.workspace_bytes <= workspace_bytes
        }
        out = [_solution(conv, "miopen", name, offer) for name, offer in offered.items()]
        found = self._find(conv, workspace_bytes)
        more = [offer for offer in found.offers if _name(offer) not in offered] if found else []
        return [*out, *(_solution(conv, FIND, _name(offer), offer) for offer in more)][:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        """Compile the solver's kernels (a find has done so) and make it a call."""
        conv = conv_of(problem, TYPES, with_bias=True)
        convolution = self._convolution(conv)
        if solution.library == FIND:
            need, run = self._found_run(conv, solution, conditions)
        else:
            need, run = self._immediate_run(conv, solution)
        operands = self._cache.operands(conv, conditions)
        assert isinstance(operands, ConvOperands)
        with self._device.memory_errors(float(need)):
            workspace = self._reserve(need)
        tensors = [operands.tensors[name] for name in convolution.order]

        def call(i: int) -> Tensor:
            run([held[i].data_ptr() for held in tensors], workspace.data_ptr(), need)
            if operands.bias:
                convolution.run_bias(operands.bias[i].data_ptr(), operands.dy[i].data_ptr())
            return tensors[-1][i]

        return TorchRunnable(self._device, operands, call, workspace_bytes=need)

    def _immediate_run(self, conv: ConvProblem, solution: Solution) -> tuple[int, Run]:
        offer = self._offered(conv).get(solution.id)
        if offer is None:
            raise UnsupportedError("MIOpen does not offer this solver")
        convolution, number = self._convolution(conv), offer.id
        convolution.compile(number)
        return offer.workspace_bytes, lambda pointers, at, size: convolution.run(pointers, at, size, number)

    def _found_run(self, conv: ConvProblem, solution: Solution, conditions: Conditions) -> tuple[int, Run]:
        found = self._find(conv, conditions.workspace_bytes)
        names = [_name(offer) for offer in found.offers] if found else []
        if found is None or solution.id not in names:
            raise UnsupportedError("Find 2.0 does not offer this solver")
        index = names.index(solution.id)
        return found.offers[index].workspace_bytes, lambda pointers, at, size: found.run(index, pointers, at, size)

    def release(self) -> None:
        """Free descriptors, operands and workspace."""
        for found in self._found.values():
            if found:
                found.close()
        self._found.clear()
        for convolution in self._convolutions.values():
            convolution.close()
        self._convolutions.clear()
        self._offers.clear()
        super().release()

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
                held.setdefault(_name(offer), offer)
        return self._offers[conv.text]

    def _find(self, conv: ConvProblem, workspace_bytes: int | None) -> Found | None:
        """Once per problem and workspace; None unless ``exhaustive``, and where MIOpen has no Find 2.0 for this."""
        if not self._place.exhaustive:
            return None
        key = (conv.text, workspace_bytes)
        if key not in self._found:
            convolution = self._convolution(conv)
            try:
                self._found[key] = Found(self._library, self._handle, convolution, conv.direction, workspace_bytes)
            except UnsupportedError:
                self._found[key] = None
        return self._found[key]


def _name(offer: Offer) -> str:
    return SOLVERS.get(offer.id, f"id={offer.id}")


def _solution(conv: ConvProblem, library: str, name: str, offer: Offer) -> Solution:
    family = ID_OF_CODE.get(offer.algorithm)
    return Solution(library, name, name, algorithm_name(family, conv.direction) if family else None)


def _open(place: Place) -> Backend:
    return Miopen(place)


BACKEND = BackendType(
    "miopen",
    "immediate-mode solvers of MIOpen, on request all that apply and Find 2.0 (libMIOpen)",
    _open,
    imports=("torch",),
)
