"""MIOpen's Find 2.0 through ctypes: a find that measures, and its solutions run as it found them.

A find obeys ``MIOPEN_FIND_MODE`` and gives the best solver of each algorithm only; tuning is left off, for it takes
minutes.  Signatures and structures: ROCm/MIOpen ``include/miopen/miopen.h`` (since 2.19).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from analyzers.measure.backends.miopen_library import Convolution, Library, Offer
from logparse.model import Direction

_SIGNATURES = {
    "miopenCreateConvProblem": "ppi",
    "miopenSetProblemTensorDescriptor": "pip",
    "miopenDestroyProblem": "p",
    "miopenCreateFindOptions": "p",
    "miopenSetFindOptionTuning": "pi",
    "miopenSetFindOptionWorkspaceLimit": "pz",
    "miopenDestroyFindOptions": "p",
    "miopenFindSolutions": "pppppz",
    "miopenGetSolutionWorkspaceSize": "pp",
    "miopenGetSolutionSolverId": "pp",
    "miopenGetSolverIdConvAlgorithm": "up",
    "miopenRunSolution": "ppzppz",
    "miopenDestroySolution": "p",
}
_DIRECTIONS: dict[Direction, int] = {"F": 0, "B": 1, "W": 2}
"""miopenProblemDirection_t."""
_TENSORS = {"x": 1, "w": 2, "dy": 3}
"""miopenTensorArgumentId_t: ConvolutionX, W and Y."""
_MOST = 16
"""More than there are algorithms."""


class TensorArgument(ctypes.Structure):
    """``miopenTensorArgument_t``."""

    _fields_ = (("id", ctypes.c_int), ("descriptor", ctypes.c_void_p), ("buffer", ctypes.c_void_p))


class Found:
    """What a find gave for one convolution.  Raises UnsupportedError where this MIOpen has no Find 2.0."""

    def __init__(
        self,
        library: Library,
        handle: ctypes.c_void_p,
        convolution: Convolution,
        direction: Direction,
        workspace_bytes: int | None,
    ) -> None:
        library.declare(_SIGNATURES)
        self._library, self._handle, self._convolution = library, handle, convolution
        self._solutions: list[ctypes.c_void_p] = []
        with self._problem(direction) as problem, self._options(workspace_bytes) as options:
            room, count = (ctypes.c_void_p * _MOST)(), ctypes.c_size_t()
            library.ask("miopenFindSolutions", handle, problem, options, room, ctypes.byref(count), _MOST)
            self._solutions = [ctypes.c_void_p(room[index]) for index in range(count.value)]
        self.offers = [self._offer(solution) for solution in self._solutions]
        """In the find's order, the fastest first."""

    def run(self, index: int, pointers: Sequence[int], workspace: int, workspace_bytes: int) -> None:
        """Enqueue one execution of ``offers[index]``; ``pointers`` in the order of the convolution's ``order``."""
        arguments = (TensorArgument * len(pointers))()
        for argument, name, pointer in zip(arguments, self._convolution.order, pointers, strict=True):
            descriptor = ctypes.pointer(self._convolution.tensor(name))
            argument.id, argument.buffer = _TENSORS[name], pointer
            argument.descriptor = ctypes.cast(descriptor, ctypes.c_void_p)
        arguments_of = (len(arguments), arguments, workspace, workspace_bytes)
        self._library.ask("miopenRunSolution", self._handle, self._solutions[index], *arguments_of)

    def close(self) -> None:
        """Free the solutions."""
        for solution in self._solutions:
            self._library.ask("miopenDestroySolution", solution)
        self._solutions.clear()

    @contextlib.contextmanager
    def _problem(self, direction: Direction) -> Iterator[ctypes.c_void_p]:
        made = self._library.made("miopenCreateConvProblem", self._convolution.descriptor, _DIRECTIONS[direction])
        try:
            for name, number in _TENSORS.items():
                self._library.ask("miopenSetProblemTensorDescriptor", made, number, self._convolution.tensor(name))
            yield made
        finally:
            self._library.ask("miopenDestroyProblem", made)

    @contextlib.contextmanager
    def _options(self, workspace_bytes: int | None) -> Iterator[ctypes.c_void_p]:
        made = self._library.made("miopenCreateFindOptions")
        try:
            self._library.ask("miopenSetFindOptionTuning", made, 0)
            if workspace_bytes is not None:
                self._library.ask("miopenSetFindOptionWorkspaceLimit", made, workspace_bytes)
            yield made
        finally:
            self._library.ask("miopenDestroyFindOptions", made)

    def _offer(self, solution: ctypes.c_void_p) -> Offer:
        number, need, algorithm = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_int()
        asked: tuple[tuple[str, Any, Any], ...] = (
            ("miopenGetSolutionSolverId", solution, number),
            ("miopenGetSolutionWorkspaceSize", solution, need),
        )
        for function, of, out in asked:
            self._library.ask(function, of, ctypes.byref(out))
        self._library.ask("miopenGetSolverIdConvAlgorithm", number.value, ctypes.byref(algorithm))
        return Offer(number.value, need.value, algorithm.value)
