"""Time convolutions with the solvers of MIOpen, through its C API.  The first one is MIOpen's own choice.

The solvers are from immediate mode, in which MIOpen chooses without a search.  If the find-db holds the convolution,
MIOpen lists the solvers of the find-db record, sorted by their recorded times (fastest first).  Otherwise MIOpen
guesses the list.  In both cases an application runs the first entry.  ``exhaustive`` adds every other solver that
applies, also if the find-db does not hold it.  A list of all solvers needs other environment variables, and MIOpen
reads these once per process.  So another process makes that list (``replay_candidates``).

A solver runs with the parameters of the perf-db, or with its default parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logparse.libraries.kinds.backend import BackendType, Conditions, Place, UnsupportedError
from logparse.libraries.kinds.device.device_backend import DeviceBackend
from logparse.libraries.kinds.device.operands import ConvOperands, conv_of
from logparse.libraries.kinds.device.torch_device import Tensor, TorchRunnable
from logparse.libraries.miopen.host_library import TYPES, Convolution, Library, Offer
from logparse.libraries.miopen.replay_candidates import candidates
from logparse.libraries.miopen.solvers import ID_OF_CODE, SOLVERS, algorithm_name
from logparse.model import ConvProblem, Problem, Solution


class Miopen(DeviceBackend):
    def __init__(self, place: Place) -> None:
        # Called first, because it loads torch, and with torch its own copy of MIOpen.
        super().__init__(place)
        self._library = Library()
        self._handle = self._library.made("miopenCreateWithStream", self._device.stream)
        self._described: dict[str, tuple[Convolution, dict[str, Offer]]] = {}

    def environment(self) -> Mapping[str, str]:
        return dict(self._device.facts) | {"miopen_version": self._library.version}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """Return the solvers that MIOpen offers for a convolution, if they fit into the workspace.

        Without ``workspace_bytes`` all of them fit, because PyTorch also gives each solver the workspace that it needs.
        """
        conv = conv_of(problem, TYPES)
        out = [
            _solution(conv, name, offer)
            for name, offer in self._offered(conv)[1].items()
            if workspace_bytes is None or offer.workspace_bytes <= workspace_bytes
        ]
        return out[:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        conv = conv_of(problem, TYPES)
        convolution, offered = self._offered(conv)
        offer = offered.get(solution.id)
        if offer is None:
            raise UnsupportedError("MIOpen does not offer this solver for this convolution")
        number, need = offer.id, offer.workspace_bytes
        convolution.compile(number)
        operands = self.operands(conv, conditions)
        assert isinstance(operands, ConvOperands)
        workspace = self._reserve(need)
        tensors = [operands.tensors[name] for name in convolution.order]

        def call(i: int) -> Tensor:
            convolution.run([held[i].data_ptr() for held in tensors], workspace.data_ptr(), need, number)
            return tensors[-1][i]

        return TorchRunnable(self._device, operands, call, workspace_bytes=need)

    def release(self) -> None:
        self._described.clear()
        super().release()

    def _offered(self, conv: ConvProblem) -> tuple[Convolution, dict[str, Offer]]:
        """Return MIOpen's object for a convolution, and the solvers that MIOpen offers for it, by name."""
        if conv.text not in self._described:
            convolution = Convolution(self._library, self._handle, conv)
            named: dict[str, Offer] = {}
            # The solvers are in the order of MIOpen's list. If the user asked for an exhaustive search, a second
            # process finds more solvers, which come last.
            more = candidates(conv, self._place.device) if self._place.exhaustive else []
            for offer in [*convolution.offers(), *more]:
                named.setdefault(SOLVERS.get(offer.id, f"id={offer.id}"), offer)
            self._described[conv.text] = convolution, named
        return self._described[conv.text]


def _solution(conv: ConvProblem, name: str, offer: Offer) -> Solution:
    family = ID_OF_CODE.get(offer.algorithm)
    return Solution("miopen", name, name, algorithm_name(family, conv.direction) if family else None)


BACKEND = BackendType(
    "miopen",
    "MIOpen: the solvers that its immediate mode offers, or with --exhaustive all that apply (library libMIOpen)",
    Miopen,
    imports=("torch",),
    needs={"torch": "torch"},
)
