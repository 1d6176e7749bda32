"""hipBLASLt through AMD's own bindings (package ``rocm-bindings-libraries``): the heuristic list, pick first.

Asked for very many solutions, the heuristic returns nearly all kernels that fit the problem: ``exhaustive`` does that.
A solution's id is the index that logs and tuning files use, the first int32 of ``hipblasLtMatmulAlgo_t`` (read in the
library's source).  The bindings return tuples, status first, and take pointers as plain integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from analyzers.measure.backend import BackendType, Conditions, Place, UnsupportedError
from analyzers.measure.backends.blas_gemms import EPILOGUES, TYPES, epilogue, scalar, scale_type, supported_gemm
from analyzers.measure.device.device_backend import DeviceBackend
from analyzers.measure.device.operands import GemmOperands, Matrix, matrices, vectors
from analyzers.measure.device.torch_device import Call, TorchRunnable
from logparse.model import GemmProblem, Problem, Solution

_TYPES = TYPES | {"f8_fnuz_r": 1000, "bf8_fnuz_r": 1001}
"""hipDataType (library_types.h)."""
_COMPUTE = {"f16_r": 0, "f32_r": 2, "f32_f16_r": 4, "f32_bf16_r": 5, "xf32_r": 6, "f64_r": 7}
"""hipblasComputeType_t (hipblas-common.h)."""
_EPILOGUES = EPILOGUES | {
    "RELU_AUX": 130,
    "RELU_AUX_BIAS": 134,
    "GELU_AUX": 160,
    "GELU_AUX_BIAS": 164,
    "DGELU": 192,
    "DGELU_BGRAD": 208,
    "BGRADA": 256,
    "BGRADB": 512,
}
"""hipblasLtEpilogue_t (hipblaslt.h); the aux matrix of RELU_AUX holds values, where cuBLASLt's holds bits."""
_POINTERS = {"bias": "BIAS_POINTER", "aux": "EPILOGUE_AUX_POINTER"}
_POINTERS |= {f"scale_{x}": f"{x.upper()}_SCALE_POINTER" for x in "abcd"}
_OUTER_VECTOR = 3
"""HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F: a factor per row of op(A) or column of op(B)."""
_ALPHA_VECTOR = 4
"""HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST: alpha is a vector in the device's memory."""
_RESULT_BYTES, _WORKSPACE_AT, _STATE_AT = 56, 24, 32
"""Size of a hipblasLtMatmulHeuristicResult_t, and where behind the algorithm its workspace and state are."""
_MOST = 20_000
_WORKSPACE_BYTES = 76 << 20
"""PyTorch's workspace for hipBLASLt on gfx94x; also what its logs show."""


class HipblasLt(DeviceBackend):
    """The backend."""

    def __init__(self, place: Place) -> None:
        from rocm.bindings import hip, hipblas, hipblaslt

        self._lt: Any = hipblaslt
        self._data, self._compute = hip.hipDataType, hipblas.hipblasComputeType_t  # plain integers are refused
        super().__init__(place)
        (self._handle,) = self._ask("hipblasLtCreate")
        self._results: dict[tuple[str, int], dict[str, Any]] = {}

    def environment(self) -> Mapping[str, str]:
        """The device's facts and the library's version and revision."""
        (version,) = self._ask("hipblasLtGetVersion", self._handle)
        revision = ctypes.create_string_buffer(128)
        self._ask("hipblasLtGetGitRevision", self._handle, ctypes.addressof(revision))
        facts = {"hipblaslt_version": str(version), "hipblaslt_revision": revision.value.decode("ascii", "replace")}
        return dict(self._device.facts) | facts

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """The heuristic's list, its first entry first; all of it if ``exhaustive``."""
        found = list(self._found(_gemm(problem), workspace_bytes, limit))
        return [Solution("hipblaslt", index) for index in (found if self._place.exhaustive else found[:limit])]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        """Descriptors for this problem and a call with this algorithm."""
        gemm = _gemm(problem)
        entry = self._found(gemm, conditions.workspace_bytes, _MOST if self._place.exhaustive else 200).get(solution.id)
        if entry is None:
            raise UnsupportedError("the heuristic does not offer it")
        operands = self._cache.operands(gemm, conditions)
        assert isinstance(operands, GemmOperands)
        need = int.from_bytes(entry[_WORKSPACE_AT : _WORKSPACE_AT + 8], "little")
        with self._device.memory_errors(float(need)):
            call = self._call(gemm, operands, entry, need)
        return TorchRunnable(self._device, operands, call, workspace_bytes=need)

    def release(self) -> None:
        """Free heuristic results, operands and workspace."""
        self._results.clear()
        super().release()

    def _ask(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call the library; what it returns behind the status.  Raises RuntimeError naming function and status."""
        returned = getattr(self._lt, function)(*arguments)
        status, *values = returned if isinstance(returned, tuple) else (returned,)
        if int(status) != 0:
            raise RuntimeError(f"{function}: {getattr(status, 'name', status)}")
        return tuple(values)

    def _found(self, gemm: GemmProblem, workspace_bytes: int | None, limit: int) -> dict[str, Any]:
        """Heuristic results by solution index, in the library's order."""
        offered = _WORKSPACE_BYTES if workspace_bytes is None else workspace_bytes
        key = (gemm.text, offered)
        if key not in self._results:
            wanted = _MOST if self._place.exhaustive else limit
            held = self._results[key] = {}
            for row in self._heuristic(gemm, wanted, offered):
                if int.from_bytes(row[_STATE_AT : _STATE_AT + 4], "little") == 0:
                    held.setdefault(str(int.from_bytes(row[:4], "little", signed=True)), row)
        return self._results[key]

    def _heuristic(self, gemm: GemmProblem, wanted: int, offered: int) -> list[bytes]:
        """The heuristic's results, the library's own choice first."""
        operation, layouts = self._described(gemm)
        (preference,) = self._ask("hipblasLtMatmulPreferenceCreate")
        size = ctypes.c_uint64(offered)
        name = self._lt.hipblasLtMatmulPreferenceAttributes_t.HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
        self._ask("hipblasLtMatmulPreferenceSetAttribute", preference, name, ctypes.addressof(size), 8)
        results = (ctypes.c_uint8 * (_RESULT_BYTES * wanted))()
        order = [layouts[x] for x in "abcd"]
        ask = (self._handle, operation, *order, preference, wanted, ctypes.addressof(results))
        (count,) = self._ask("hipblasLtMatmulAlgoGetHeuristic", *ask)
        self._ask("hipblasLtMatmulPreferenceDestroy", preference)
        return [bytes(results[at * _RESULT_BYTES : (at + 1) * _RESULT_BYTES]) for at in range(int(count))]

    def _described(self, gemm: GemmProblem) -> tuple[Any, dict[str, Any]]:
        """The operation and the layouts.  Which kernels fit depends on which pointers are set, wherever they point."""
        compute = self._compute(_COMPUTE[gemm.compute_type or "f32_r"])
        (operation,) = self._ask("hipblasLtMatmulDescCreate", compute, self._data(scale_type(gemm)))
        for name, trans in (("TRANSA", gemm.trans_a), ("TRANSB", gemm.trans_b)):
            self._attribute(operation, name, ctypes.c_int32(111 if trans == "N" else 112))  # HIPBLAS_OP_N, _T
        self._attribute(operation, "EPILOGUE", ctypes.c_int32(_EPILOGUES[epilogue(gemm)]))
        batch = gemm.batch_count or 1
        if gemm.bias and gemm.bias_type in _TYPES:
            self._attribute(operation, "BIAS_DATA_TYPE", ctypes.c_int32(_TYPES[gemm.bias_type]))
        if gemm.scale_alpha_vector:
            self._attribute(operation, "POINTER_MODE", ctypes.c_int32(_ALPHA_VECTOR))
        for name, (_, kind) in _pointed(gemm).items():
            self._attribute(operation, _POINTERS[name], ctypes.c_void_p(self._reserve(1).data_ptr()))
            if name == "aux":
                self._attribute(operation, "EPILOGUE_AUX_DATA_TYPE", ctypes.c_int32(_TYPES[kind]))
                self._attribute(operation, "EPILOGUE_AUX_LD", ctypes.c_int64(gemm.m or 0))
                self._attribute(operation, "EPILOGUE_AUX_BATCH_STRIDE", ctypes.c_int64((gemm.m or 0) * (gemm.n or 0)))
            if name.startswith("scale_") and getattr(gemm, name) == "row":
                self._attribute(operation, f"{name[-1].upper()}_SCALE_MODE", ctypes.c_int32(_OUTER_VECTOR))
        return operation, {name: self._layout(matrix, batch) for name, matrix in matrices(gemm).items()}

    def _attribute(self, operation: Any, name: str, value: Any) -> None:
        attribute = getattr(self._lt.hipblasLtMatmulDescAttributes_t, f"HIPBLASLT_MATMUL_DESC_{name}")
        self._ask(
            "hipblasLtMatmulDescSetAttribute", operation, attribute, ctypes.addressof(value), ctypes.sizeof(value)
        )

    def _layout(self, matrix: Matrix, batch: int) -> Any:
        kind = self._data(_TYPES[matrix.dtype])
        (layout,) = self._ask("hipblasLtMatrixLayoutCreate", kind, matrix.rows, matrix.cols, matrix.ld)
        if batch > 1:
            names = self._lt.hipblasLtMatrixLayoutAttribute_t
            count, stride = ctypes.c_int32(batch), ctypes.c_int64(matrix.stride)
            for name, value in (("BATCH_COUNT", count), ("STRIDED_BATCH_OFFSET", stride)):
                attribute = getattr(names, f"HIPBLASLT_MATRIX_LAYOUT_{name}")
                where = (ctypes.addressof(value), ctypes.sizeof(value))
                self._ask("hipblasLtMatrixLayoutSetAttribute", layout, attribute, *where)
        return layout

    def _call(self, gemm: GemmProblem, operands: GemmOperands, entry: bytes, need: int) -> Call:
        operation, layouts = self._described(gemm)
        memory, stream = operands.memory, self._device.stream
        workspace, algo = self._reserve(need), ctypes.create_string_buffer(entry, _RESULT_BYTES)
        a, b, c, d = (layouts[x] for x in "abcd")

        def call(i: int) -> Any:
            for name in _pointed(gemm):
                self._attribute(operation, _POINTERS[name], ctypes.c_void_p(memory[name][i].data_ptr()))
            alpha, beta = _scalars(gemm, operands, i)
            at = {name: held[i].data_ptr() for name, held in memory.items() if held}
            inputs = (alpha, at["a"], a, at["b"], b, beta, at.get("c", at["d"]), c, at["d"], d)
            tail = (ctypes.addressof(algo), workspace.data_ptr(), need, stream)
            self._ask("hipblasLtMatmul", self._handle, operation, *inputs, *tail)
            return operands.d[i]

        return call


def _pointed(gemm: GemmProblem) -> dict[str, tuple[int, str]]:
    """What a descriptor points to, of ``vectors``: alpha is an argument of the call."""
    return {name: x for name, x in vectors(gemm, gemm.batch_count or 1).items() if name in _POINTERS}


def _scalars(gemm: GemmProblem, operands: GemmOperands, i: int) -> tuple[int, int]:
    """Addresses of alpha (with a vector of them, its own) and beta."""
    alphas = operands.memory.get("scale_alpha")
    alpha = alphas[i].data_ptr() if alphas else scalar(gemm, one=True)
    return alpha, scalar(gemm, one=gemm.beta == "nonzero")


def _gemm(problem: Problem) -> GemmProblem:
    """The problem, where this backend runs it.  Raises UnsupportedError."""
    scales = (None, "none", "scalar", "row")
    return supported_gemm(problem, _TYPES, _COMPUTE, scales, _EPILOGUES, alpha_vector=True)


BACKEND = BackendType(
    "hipblaslt",
    "hipBLASLt's heuristic list, on request nearly all kernels (AMD's bindings)",
    HipblasLt,
    imports=("torch",),
)
