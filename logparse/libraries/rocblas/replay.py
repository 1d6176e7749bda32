"""Time matrix products with rocBLAS through its C API: with its own choice, and with every kernel that it lists.

A kernel's id is rocBLAS's own number, as its logs print it.  The numbers of Tensile's kernels are negative.  An
override file can name only Tensile's kernels.  The list has no order and does not state which kernel rocBLAS itself
would choose.  So the library's own choice has the id ``Default``.  rocBLAS takes workspace from its handle, so replay
provides no workspace.

Signatures: ROCm/rocBLAS ``library/include/internal/rocblas-functions.h``, ``rocblas-types.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from logparse.libraries.kinds.backend import BackendType, Conditions, Place, UnsupportedError
from logparse.libraries.kinds.blas_gemms import epilogue, scalar, supported_gemm
from logparse.libraries.kinds.device.device_backend import DeviceBackend
from logparse.libraries.kinds.device.loaded_library import loaded_library
from logparse.libraries.kinds.device.operands import GemmOperands, matrices
from logparse.libraries.kinds.device.torch_device import Tensor, TorchRunnable
from logparse.model import DEFAULT, GemmProblem, Problem, Solution

_TYPES = {"f16_r": 150, "f32_r": 151, "f64_r": 152, "bf16_r": 168}
"""rocBLAS's number for each data type of the operands (``rocblas_datatype``)."""
_COMPUTE = ("f16_r", "f32_r", "f64_r")
_OPERATIONS = {"N": 111, "T": 112, "C": 113}
_STANDARD, _BY_INDEX, _NO_FLAGS = 0, 1, 0
_NOT_IMPLEMENTED = 2
_NAMES = ("librocblas.so.5", "librocblas.so.4", "librocblas.so")


class RocBlas(DeviceBackend):
    """Times matrix products with the kernels of rocBLAS.  Raises OSError if rocBLAS is not installed."""

    def __init__(self, place: Place) -> None:
        # Called first, because it loads torch, and with torch its own copy of rocBLAS.
        super().__init__(place)
        self._library = loaded_library("librocblas", *_NAMES)
        self._handle = ctypes.c_void_p()
        self._ask("rocblas_create_handle", ctypes.byref(self._handle))
        self._ask("rocblas_set_stream", self._handle, ctypes.c_void_p(self._device.stream))

    def environment(self) -> Mapping[str, str]:
        text = ctypes.create_string_buffer(128)
        self._ask("rocblas_get_version_string", text, ctypes.c_size_t(len(text)))
        return dict(self._device.facts) | {"rocblas_version": text.value.decode("ascii", "replace")}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """List the kernels for a matrix product: rocBLAS's own choice (``Default``) first, then all others by number.

        At most ``limit`` kernels are returned, or all of them if the user asked for an exhaustive search.
        """
        gemm = _gemm(problem)
        unread = dict.fromkeys("abcd", self._reserve(1).data_ptr())  # rocBLAS does not read the operands here.
        arguments, function = _arguments(self._handle, gemm, unread), _function(gemm) + "_get_solutions"
        count = ctypes.c_int()
        self._ask(function, *arguments, _BY_INDEX, _NO_FLAGS, None, ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._ask(function, *arguments, _BY_INDEX, _NO_FLAGS, found, ctypes.byref(count))
        listed = [Solution("rocblas", str(index)) for index in sorted(found[: count.value])]
        return [DEFAULT, *(listed if self._place.exhaustive else listed[: limit - 1])]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        """Return a call of one of rocBLAS's kernels that is ready to run.

        When the call runs, rocBLAS itself checks whether the kernel fits the product.
        """
        gemm = _gemm(problem)
        operands = self.operands(gemm, conditions)
        assert isinstance(operands, GemmOperands)
        function, index = _function(gemm), 0 if solution == DEFAULT else int(solution.id)
        algorithm = (_BY_INDEX if index else _STANDARD, ctypes.c_int32(index), ctypes.c_uint32(_NO_FLAGS))
        sets = []
        for i in range(operands.sets):
            memory = {name: tensors[i].data_ptr() for name, tensors in operands.memory.items() if tensors}
            sets.append((*_arguments(self._handle, gemm, {"c": memory["d"], **memory}), *algorithm))

        def call(i: int) -> Tensor:
            self._ask(function, *sets[i])
            return operands.d[i]

        return TorchRunnable(self._device, operands, call)

    def _ask(self, function: str, *arguments: Any) -> None:
        """Call a function of rocBLAS, and raise an error if it fails.

        The error is UnsupportedError if rocBLAS answers ``not implemented``.  Otherwise it is RuntimeError, with the
        function and the status.
        """
        # getattr is used, because ctypes caches attributes but not items (``library[name]``).
        status = getattr(self._library, function)(*arguments)
        if status:
            error = UnsupportedError if status == _NOT_IMPLEMENTED else RuntimeError
            raise error(f"{function}: rocblas_status {status}")


def _function(gemm: GemmProblem) -> str:
    return "rocblas_gemm_strided_batched_ex" if (gemm.batch_count or 1) > 1 else "rocblas_gemm_ex"


def _arguments(handle: ctypes.c_void_p, gemm: GemmProblem, memory: Mapping[str, int]) -> list[Any]:
    """Return the arguments with which rocBLAS's gemm function is called, from the handle to the compute type."""
    batched = (gemm.batch_count or 1) > 1
    operands: dict[str, list[Any]] = {}
    for name, matrix in matrices(gemm).items():
        stride = [ctypes.c_int64(matrix.stride)] if batched else []
        operands[name] = [ctypes.c_void_p(memory[name]), _TYPES[matrix.dtype], ctypes.c_int(matrix.ld), *stride]
    operations = [_OPERATIONS[gemm.trans_a or "N"], _OPERATIONS[gemm.trans_b or "N"]]
    sizes = [ctypes.c_int(x or 0) for x in (gemm.m, gemm.n, gemm.k)]
    compute = gemm.compute_type or "f32_r"
    alpha, beta = (ctypes.c_void_p(scalar(gemm, one=x)) for x in (True, gemm.beta == "nonzero"))
    inputs = [handle, *operations, *sizes, alpha, *operands["a"], *operands["b"], beta]
    count = [ctypes.c_int(gemm.batch_count or 1)] if batched else []
    return [*inputs, *operands["c"], *operands["d"], *count, _TYPES[compute]]


def _gemm(problem: Problem) -> GemmProblem:
    """Check that rocBLAS can run a call, and return the call as a matrix product.

    Raises UnsupportedError if rocBLAS cannot run it.
    """
    gemm = supported_gemm(problem, _TYPES, _COMPUTE, (None, "none"))
    if epilogue(gemm) != "DEFAULT":
        raise UnsupportedError(f"epilogue {gemm.epilogue}")
    return gemm


BACKEND = BackendType(
    "rocblas",
    (
        "rocBLAS: the kernel that rocBLAS chooses by itself, and all kernels that it offers for the call (library "
        "librocblas)"
    ),
    RocBlas,
    imports=("torch",),
    needs={"torch": "torch"},
)
