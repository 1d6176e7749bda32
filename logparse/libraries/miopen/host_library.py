"""Call MIOpen's C functions: describe a convolution, list the solvers that can compute it, and run them.

MIOpen lists the solvers without a search (immediate mode).  Source of the functions' signatures and structures:
ROCm/MIOpen ``include/miopen/miopen.h`` (LP64).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from logparse.libraries.kinds.backend import UnsupportedError
from logparse.libraries.kinds.device.loaded_library import loaded_library
from logparse.libraries.kinds.device.operands import conv_shapes, geometry, strides
from logparse.model import ConvProblem

TYPES = {"FP16": 0, "FP32": 1, "BF16": 5}
"""The number in ``miopenDataType_t`` of each data type with which convolutions can be run."""

DIRECTIONS = {
    "F": ("Forward", ("w", "x", "dy")),
    "B": ("BackwardData", ("dy", "w", "x")),
    "W": ("BackwardWeights", ("dy", "x", "w")),
}
"""For each direction, the word in MIOpen's function names, and the tensors in the order of the arguments.

The last tensor is the output.
"""

_STATUS = (
    *("Success", "NotInitialized", "InvalidValue", "BadParm", "AllocFailed", "InternalError", "NotImplemented"),
    *("UnknownError", "UnsupportedOp", "GpuOperationsSkipped", "VersionMismatch"),
)
_LETTERS: dict[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int, "z": ctypes.c_size_t, "u": ctypes.c_uint64}
_CONVOLUTION = {"GetSolutionCount": "p", "GetSolution": "zpp", "CompileSolution": "u"}
"""For each function, the types of the arguments that follow the handle and the four descriptors."""
_SIGNATURES = {
    "miopenGetVersion": "ppp",
    "miopenCreateWithStream": "pp",
    "miopenCreateTensorDescriptor": "p",
    "miopenSetTensorDescriptor": "piipp",
    "miopenCreateConvolutionDescriptor": "p",
    "miopenInitConvolutionNdDescriptor": "pipppi",
    "miopenSetConvolutionGroupCount": "pi",
    **{f"miopenConvolution{word}Immediate": "pppppppppzu" for word, _ in DIRECTIONS.values()},
    **{
        f"miopenConvolution{word}{name}": f"ppppp{more}"
        for word, _ in DIRECTIONS.values()
        for name, more in _CONVOLUTION.items()
    },
}


class ConvSolution(ctypes.Structure):
    """MIOpen's C struct ``miopenConvSolution_t``: a solver that MIOpen offers without a search.

    ``time`` is in ms.  It comes from the find-db (MIOpen's database of solvers), or MIOpen makes it up.
    """

    _fields_ = (
        ("time", ctypes.c_float),
        ("workspace_size", ctypes.c_size_t),
        ("solution_id", ctypes.c_uint64),
        ("algorithm", ctypes.c_int),
    )


@dataclass(frozen=True)
class Offer:
    """A solver that MIOpen offers for a convolution.

    ``id`` is its number in MIOpen's registry, ``algorithm`` its ``miopenConvAlgorithm_t``.
    """

    id: int
    workspace_bytes: int
    algorithm: int


class Library:
    """The loaded MIOpen library.  Raises OSError if it is not installed."""

    def __init__(self) -> None:
        self._c = _loaded()

    def ask(self, function: str, *arguments: Any) -> None:
        """Call one of MIOpen's functions and check the status that it returns.

        Raises UnsupportedError for the status NotImplemented or UnsupportedOp, and RuntimeError for any other error.
        Both name the function and the status.
        """
        status = getattr(self._c, function)(*arguments)
        if status:
            word = _STATUS[status] if 0 < status < len(_STATUS) else status
            error = UnsupportedError if word in ("NotImplemented", "UnsupportedOp") else RuntimeError
            raise error(f"{function}: {word}")

    def made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function of MIOpen that creates an object, and return the object.

        The function writes the object's address to the pointer in its first argument.
        """
        out = ctypes.c_void_p()
        self.ask(function, ctypes.byref(out), *arguments)
        return out

    @property
    def version(self) -> str:
        """The version of the loaded library, for example ``3.4.0``."""
        numbers = [ctypes.c_size_t() for _ in range(3)]
        self.ask("miopenGetVersion", *map(ctypes.byref, numbers))
        return ".".join(str(number.value) for number in numbers)


class Convolution:
    """A convolution in MIOpen's own objects (descriptors), with the solvers that MIOpen offers for it.

    The descriptors are freed when the process ends.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p, problem: ConvProblem) -> None:
        self._library, self._handle = library, handle
        self._word, self.order = DIRECTIONS[problem.direction]
        tensors: list[ctypes.c_void_p] = []
        shapes = conv_shapes(problem)
        layouts = {"x": problem.in_layout, "w": problem.weights_layout, "dy": problem.out_layout}
        for name in self.order:
            tensors.append(library.made("miopenCreateTensorDescriptor"))
            lengths, steps = _ints(shapes[name]), _ints(strides(shapes[name], layouts[name]))
            kind = TYPES[problem.in_type or ""]
            library.ask("miopenSetTensorDescriptor", tensors[-1], kind, len(lengths), lengths, steps)
        convolution = library.made("miopenCreateConvolutionDescriptor")
        stride, pad, dilation = (_ints(x) for x in geometry(problem))
        init = (convolution, problem.spatial, pad, stride, dilation, 0)  # 0: miopenConvolution
        library.ask("miopenInitConvolutionNdDescriptor", *init)
        library.ask("miopenSetConvolutionGroupCount", convolution, problem.groups)
        self._described = (*tensors[:2], convolution, tensors[2])

    def offers(self) -> list[Offer]:
        count = ctypes.c_size_t()
        self._ask("GetSolutionCount", ctypes.byref(count))
        found = (ConvSolution * count.value)()
        if found:
            self._ask("GetSolution", len(found), ctypes.byref(count), found)
        return [Offer(x.solution_id, x.workspace_size, x.algorithm) for x in found[: count.value]]

    def compile(self, solution_id: int) -> None:
        """Build the kernels of one of MIOpen's solvers for this convolution.

        ``solution_id`` must come from ``offers``, because the library does not check it.
        """
        self._ask("CompileSolution", solution_id)

    def run(self, pointers: Sequence[int], workspace: int, workspace_bytes: int, solution_id: int) -> None:
        """Run a convolution once with one of MIOpen's solvers.

        ``pointers`` are the addresses of the tensors, in the order that ``order`` states.
        """
        first, second, convolution, last = self._described
        inputs = (first, pointers[0], second, pointers[1])
        tail = (last, pointers[2], workspace, workspace_bytes, solution_id)
        self._library.ask(f"miopenConvolution{self._word}Immediate", self._handle, *inputs, convolution, *tail)

    def _ask(self, name: str, *more: Any) -> None:
        self._library.ask(f"miopenConvolution{self._word}{name}", self._handle, *self._described, *more)


@cache
def _loaded() -> Any:
    """Load MIOpen's shared library, and declare the argument types of its functions for ctypes.

    Without the declarations ctypes would pass a 64-bit pointer as an int.
    """
    library = loaded_library("libMIOpen", "libMIOpen.so.1")
    for name, letters in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_int, [_LETTERS[letter] for letter in letters]
    return library


def _ints(values: Sequence[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)
