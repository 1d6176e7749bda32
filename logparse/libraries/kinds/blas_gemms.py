"""Matrix products as BLAS libraries describe them, with the code that the cuBLASLt and hipBLASLt backends share.

hipBLASLt's interface is a copy of cuBLASLt's.  It has the same functions and attributes, and mostly the same numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

from logparse.libraries.kinds.backend import Conditions, Place, UnsupportedError
from logparse.libraries.kinds.device.device_backend import DeviceBackend
from logparse.libraries.kinds.device.operands import GemmOperands, Matrix, matrices, vectors
from logparse.libraries.kinds.device.torch_device import Call, TorchRunnable
from logparse.model import GemmProblem, Problem, Solution

TYPES = {"f32_r": 0, "xf32_r": 0, "f64_r": 1, "f16_r": 2, "bf16_r": 14, "f8_r": 28, "bf8_r": 29}
"""The number of each data type in cudaDataType_t and hipDataType (library_types.h)."""
EPILOGUES = {"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36}
"""The number of each epilogue in cublasLtEpilogue_t (cublasLt.h) and hipblasLtEpilogue_t (hipblaslt.h)."""


def epilogue(gemm: GemmProblem) -> str:
    """Return the library's name for the operations after a matrix product, for example ``RELU_BIAS`` or ``DEFAULT``.

    An activation or bias that is not known is taken as absent.
    """
    return replace(gemm, activation=gemm.activation or "none", bias=bool(gemm.bias)).epilogue or "DEFAULT"


def scalar(gemm: GemmProblem, *, one: bool) -> int:
    """Return the memory address of the number 1 or 0 in the compute type of a matrix product.

    BLAS libraries take alpha and beta by address.  The number is never freed, so the address stays valid.
    """
    return ctypes.addressof(_number(gemm.compute_type, one))


@cache
def _number(compute_type: str | None, one: bool) -> Any:
    if compute_type == "f16_r":
        return ctypes.c_uint16(0x3C00 if one else 0)  # 1.0 in half precision
    return (ctypes.c_double if compute_type == "f64_r" else ctypes.c_float)(1 if one else 0)


def supported_gemm(
    problem: Problem,
    types: Collection[str],
    compute_types: Collection[str],
    scales: Collection[str | None],
    epilogues: Collection[str] = EPILOGUES,
    *,
    alpha_vector: bool = False,
) -> GemmProblem:
    """Return a matrix product if a library can run it. Raise UnsupportedError with the reason if it cannot.

    The arguments after ``problem`` say what the library can do.  With ``alpha_vector`` it accepts a vector of alphas.
    """
    if not isinstance(problem, GemmProblem):
        raise UnsupportedError(f"this library cannot run a {problem.kind}")
    if problem.members:
        raise UnsupportedError("this library cannot run a grouped GEMM")
    if epilogue(problem) not in epilogues:
        raise UnsupportedError(f"the library cannot run epilogue {problem.epilogue}")
    used = (problem.scale_a, problem.scale_b, problem.scale_c, problem.scale_d)
    if any(x not in scales for x in used) or (problem.scale_alpha_vector and not alpha_vector):
        raise UnsupportedError(
            "the library does not support the scales of this product (scales of A, B, C or D, or a vector as alpha)"
        )
    if problem.swizzle_a or problem.swizzle_b:
        raise UnsupportedError(
            "the product's operands have a swizzled memory layout (reordered blocks), which cannot be measured"
        )
    if problem.converted:
        raise UnsupportedError("the product converts its operands to another type, which cannot be measured")
    if (problem.compute_type or "f32_r") not in compute_types:
        raise UnsupportedError(f"the library does not support compute type {problem.compute_type}")
    if any(matrix.dtype not in types for matrix in matrices(problem).values()):
        raise UnsupportedError("the product has an operand of a type that the library does not support")
    return problem


Described: TypeAlias = Literal["matmul_desc", "matrix_layout", "matmul_preference"]
"""The kinds of objects of the library (such as the descriptor of a matrix product) that have attributes to set."""


class LtBackend(DeviceBackend):
    """Base class for timing kernels of cuBLASLt and of hipBLASLt, whose interfaces are nearly the same.

    Kernels are offered in the order of the library's heuristic.  A subclass defines the library's constants and the
    calls to its bindings (``_ask`` and ``_attribute``).
    """

    library: str
    types: ClassVar[Mapping[str, int]] = TYPES
    compute_types: ClassVar[Mapping[str, int]]
    epilogues: ClassVar[Mapping[str, int]] = EPILOGUES
    operations: tuple[int, int]
    """The library's numbers for an operand that is not transposed and for a transposed operand, in this order."""
    pointers: ClassVar[Mapping[str, str]]
    """For each vector (such as the bias), the attribute of the GEMM descriptor that holds the vector's address.

    The vectors have the names that the function ``vectors`` gives them.
    """
    result_bytes: int
    """The size of one result of the heuristic, in bytes.  A result begins with the algorithm."""
    workspace_at: int
    state_at: int
    most: int
    """The number of kernels that the heuristic is asked for if all are wanted."""
    _data_type: Any = int
    _compute_type: Any = int
    """Functions that turn a number into the type that the library's Python bindings take.

    One is for data types and one for compute types.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._handle = self._ask("create")
        self._results: dict[tuple[str, int], dict[str, bytes]] = {}

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call one function of the library, for example ``matmul_desc_create``, and return its result.

        If the function writes its result to its first pointer, this value is returned.  Raises an error if the function
        fails.
        """
        raise NotImplementedError

    def _attribute(self, of: Described, name: str) -> Any:
        """Return the library's constant for an attribute of one of its objects, for example for ``EPILOGUE``.

        The constant has the type that the library's Python bindings expect.
        """
        raise NotImplementedError

    def _listed(self, *arguments: Any) -> int:
        """Ask the library which kernels it proposes for a matrix product, without timing them. Return their number.

        The library writes the kernels to the memory address in the last argument.
        """
        raise NotImplementedError

    def _gemm(self, problem: Problem) -> GemmProblem:
        """Return the problem as a matrix product, if the library can run it. Otherwise raise UnsupportedError."""
        raise NotImplementedError

    def _id(self, result: bytes) -> str:
        """Return the name or number that the library's logs print for a kernel.

        ``result`` is one of the kernels that the library's heuristic proposed.
        """
        raise NotImplementedError

    def _default_workspace_bytes(self) -> int:
        """Return the size of the workspace that PyTorch gives this library, in bytes."""
        raise NotImplementedError

    def _describe_more(self, operation: Any, gemm: GemmProblem) -> None:
        """Add attributes that only this library has to the description of a matrix product.

        Subclasses override this method, which adds nothing.
        """

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        found = list(self._found(self._gemm(problem), workspace_bytes, limit))
        return [Solution(self.library, x) for x in (found if self._place.exhaustive else found[:limit])]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        gemm = self._gemm(problem)
        result = self._found(gemm, conditions.workspace_bytes, 200).get(solution.id)
        if result is None:
            raise UnsupportedError("the library's heuristic does not offer this kernel for a workspace of this size")
        operands = self.operands(gemm, conditions)
        assert isinstance(operands, GemmOperands)
        need = int.from_bytes(result[self.workspace_at : self.workspace_at + 8], "little")
        call = self._call(gemm, operands, result, need)
        return TorchRunnable(self._device, operands, call, workspace_bytes=need)

    def release(self) -> None:
        self._results.clear()
        super().release()

    def _found(self, gemm: GemmProblem, workspace_bytes: int | None, limit: int) -> dict[str, bytes]:
        offered = self._default_workspace_bytes() if workspace_bytes is None else workspace_bytes
        key = (gemm.text, offered)
        if key not in self._results:
            held = self._results[key] = {}
            for result in self._heuristic(gemm, self.most if self._place.exhaustive else limit, offered):
                if int.from_bytes(result[self.state_at : self.state_at + 4], "little") == 0:
                    held.setdefault(self._id(result), result)
        return self._results[key]

    def _heuristic(self, gemm: GemmProblem, wanted: int, offered: int) -> list[bytes]:
        operation, layouts = self._described(gemm)
        preference = self._ask("matmul_preference_create")
        self._set("matmul_preference", preference, "MAX_WORKSPACE_BYTES", ctypes.c_uint64(offered))
        size, results = self.result_bytes, (ctypes.c_uint8 * (self.result_bytes * wanted))()
        order = [layouts[x] for x in "abcd"]
        try:
            count = self._listed(self._handle, operation, *order, preference, wanted, ctypes.addressof(results))
        finally:
            self._ask("matmul_preference_destroy", preference)
        return [bytes(results[at * size : (at + 1) * size]) for at in range(count)]

    def _described(self, gemm: GemmProblem) -> tuple[Any, dict[str, Any]]:
        """Describe a matrix product in the library's own objects, so that the library can propose kernels for it.

        Returns a descriptor of the product, and the layout of each matrix by name.
        """
        compute = self._compute_type(self.compute_types[gemm.compute_type or "f32_r"])
        scale = self._data_type({"f64_r": 1, "f16_r": 2}.get(gemm.compute_type or "", 0))
        # Descriptors take a few hundred bytes of the host's memory.  They are freed when the worker process ends.
        operation = self._ask("matmul_desc_create", compute, scale)
        for name, trans in (("TRANSA", gemm.trans_a), ("TRANSB", gemm.trans_b)):
            self._set("matmul_desc", operation, name, ctypes.c_int32(self.operations[trans != "N"]))
        self._set("matmul_desc", operation, "EPILOGUE", ctypes.c_int32(self.epilogues[epilogue(gemm)]))
        bias_type = self.types.get(gemm.bias_type or "") if gemm.bias else None
        if bias_type is not None:
            self._set("matmul_desc", operation, "BIAS_DATA_TYPE", ctypes.c_int32(bias_type))
        for name in self._pointed(gemm):
            # The heuristic only reads whether a vector such as the bias has an address, because this decides which
            # kernels fit. So any valid address is set.
            anywhere = ctypes.c_void_p(self._reserve(1).data_ptr())
            self._set("matmul_desc", operation, self.pointers[name], anywhere)
        self._describe_more(operation, gemm)
        batch = gemm.batch_count or 1
        return operation, {name: self._layout(matrix, batch) for name, matrix in matrices(gemm).items()}

    def _pointed(self, gemm: GemmProblem) -> dict[str, tuple[int, str]]:
        """Return the vectors (such as the bias) whose addresses the library gets in the descriptor of a matrix product.

        The result maps a vector's name to its number of elements and its type.
        """
        # A vector of alphas is not included, because alpha is an argument of the call.
        return {name: x for name, x in vectors(gemm, gemm.batch_count or 1).items() if name in self.pointers}

    def _layout(self, matrix: Matrix, batch: int) -> Any:
        kind = self._data_type(self.types[matrix.dtype])
        layout = self._ask("matrix_layout_create", kind, matrix.rows, matrix.cols, matrix.ld)
        if batch > 1:
            self._set("matrix_layout", layout, "BATCH_COUNT", ctypes.c_int32(batch))
            self._set("matrix_layout", layout, "STRIDED_BATCH_OFFSET", ctypes.c_int64(matrix.stride))
        return layout

    def _set(self, of: Described, target: Any, name: str, value: Any) -> None:
        attribute, where = self._attribute(of, name), (ctypes.addressof(value), ctypes.sizeof(value))
        self._ask(f"{of}_set_attribute", target, attribute, *where)

    def _call(self, gemm: GemmProblem, operands: GemmOperands, result: bytes, need: int) -> Call:
        operation, layouts = self._described(gemm)
        memory, stream, pointed = operands.memory, self._device.stream, list(self._pointed(gemm))
        workspace, algorithm = self._reserve(need), ctypes.create_string_buffer(result, self.result_bytes)
        alphas, one, beta = memory.get("scale_alpha"), scalar(gemm, one=True), scalar(gemm, one=gemm.beta == "nonzero")
        a, b, c, d = (layouts[x] for x in "abcd")
        sets = [{name: held[i].data_ptr() for name, held in memory.items() if held} for i in range(operands.sets)]

        def call(i: int) -> Any:
            at = sets[i]
            for name in pointed:
                self._set("matmul_desc", operation, self.pointers[name], ctypes.c_void_p(at[name]))
            alpha = at["scale_alpha"] if alphas else one
            inputs = (alpha, at["a"], a, at["b"], b, beta, at.get("c", at["d"]), c, at["d"], d)
            tail = (ctypes.addressof(algorithm), workspace.data_ptr(), need, stream)
            self._ask("matmul", self._handle, operation, *inputs, *tail)
            return operands.d[i]

        return call
