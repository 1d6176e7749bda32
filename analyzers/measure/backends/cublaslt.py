"""cuBLASLt through NVIDIA's own bindings (package ``nvmath-python``): the heuristic list in its order, pick first.

``cublasLtMatmulAlgoGetHeuristic`` orders by estimated time; what it puts at index 0 is what PyTorch runs.
Solutions are named as the Trace line names them (``logparse.formats.cublaslt_names``), so a logged pick and an offered
solution are the same text.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyzers.measure.backend import BackendType, Conditions, Place, UnsupportedError
from analyzers.measure.backends.blas_gemms import EPILOGUES, TYPES, epilogue, scalar, scale_type, supported_gemm
from analyzers.measure.device.device_backend import DeviceBackend
from analyzers.measure.device.operands import GemmOperands, Matrix, matrices
from analyzers.measure.device.torch_device import Call, TorchRunnable
from logparse.formats.cublaslt_names import algorithm_text
from logparse.model import GemmProblem, Problem, Solution

_COMPUTE = {"f16_r": 64, "f32_r": 68, "f64_r": 70, "f32_f16_r": 74, "f32_bf16_r": 75, "xf32_r": 77}
"""cublasComputeType_t (cublas_api.h)."""
_CONFIG = (
    ("id", "ID", 4),
    ("tile", "TILE_ID", 4),
    ("stages", "STAGES_ID", 4),
    ("splitk", "SPLITK_NUM", 4),
    ("reduction", "REDUCTION_SCHEME", 4),
    ("swizzle", "CTA_SWIZZLING", 4),
    ("custom", "CUSTOM_OPTION", 4),
    ("inner", "INNER_SHAPE_ID", 2),
    ("cluster", "CLUSTER_SHAPE_ID", 2),
)
"""Our word, ``cublasLtMatmulAlgoConfigAttributes_t`` and its size in bytes."""
_ALGO_BYTES, _RESULT_BYTES = 64, 96
_WORKSPACE = {9: 32 << 20}
"""PyTorch's workspace by compute capability (32 MiB on Hopper); 1 MiB elsewhere, as its cuBLASLt path had at first."""


@dataclass(frozen=True)
class _Algorithm:
    """The library's opaque algorithm and the workspace that it needs."""

    data: bytes
    workspace_bytes: int


class CublasLt(DeviceBackend):
    """The backend."""

    def __init__(self, place: Place) -> None:
        from nvmath.bindings import cublasLt

        self._lt: Any = cublasLt
        super().__init__(place)
        self._handle = cublasLt.create()
        self._algorithms: dict[tuple[str, int], dict[str, _Algorithm]] = {}

    def environment(self) -> Mapping[str, str]:
        """The device's facts and the library's version."""
        return dict(self._device.facts) | {"cublaslt_version": str(self._lt.get_version())}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """The heuristic's list, its first entry first."""
        found = self._found(_gemm(problem), self._workspace_bytes(workspace_bytes), limit)
        return [Solution("cublaslt", text) for text in list(found)[:limit]]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        """Descriptors for this problem and a call with this algorithm."""
        gemm = _gemm(problem)
        limit_bytes = self._workspace_bytes(conditions.workspace_bytes)
        algorithm = self._found(gemm, limit_bytes, 200).get(solution.id)
        if algorithm is None:
            raise UnsupportedError(f"not offered with {limit_bytes} bytes of workspace")
        operands = self._cache.operands(gemm, conditions)
        assert isinstance(operands, GemmOperands)
        with self._device.memory_errors(None):
            call = self._call(gemm, operands, algorithm, limit_bytes)
        return TorchRunnable(
            self._device,
            operands,
            call,
            workspace_bytes=algorithm.workspace_bytes,
        )

    def release(self) -> None:
        """Free algorithms, operands and workspace."""
        self._algorithms.clear()
        super().release()

    def _workspace_bytes(self, given: int | None) -> int:
        major = self._device.torch.cuda.get_device_properties(self._device.device).major
        return given if given is not None else _WORKSPACE.get(major, 1 << 20)

    def _call(self, gemm: GemmProblem, operands: GemmOperands, algorithm: _Algorithm, limit_bytes: int) -> Call:
        lt, memory = self._lt, operands.memory
        described = _Description(lt, gemm)
        workspace, algo = self._reserve(limit_bytes), ctypes.create_string_buffer(algorithm.data, _ALGO_BYTES)
        stream = self._device.torch.cuda.current_stream(self._device.device).cuda_stream
        c_memory = memory.get("c", memory["d"])
        layouts = described.layouts

        def call(i: int) -> Any:
            if operands.bias:
                described.set_bias(operands.bias[i].data_ptr())
            lt.matmul(
                self._handle,
                described.operation,
                described.alpha,
                memory["a"][i].data_ptr(),
                layouts["a"],
                memory["b"][i].data_ptr(),
                layouts["b"],
                described.beta,
                c_memory[i].data_ptr(),
                layouts["c"],
                memory["d"][i].data_ptr(),
                layouts["d"],
                ctypes.addressof(algo),
                workspace.data_ptr(),
                limit_bytes,
                stream,
            )
            return operands.d[i]

        return call

    # ------------------------------------------------------------------ what the library offers

    def _found(self, gemm: GemmProblem, workspace_bytes: int, limit: int) -> dict[str, _Algorithm]:
        key = (gemm.text, workspace_bytes)
        if key not in self._algorithms:
            described = _Description(self._lt, gemm)
            held = self._algorithms[key] = {}
            for algorithm in self._heuristic(described, workspace_bytes, limit):
                held.setdefault(self._text(algorithm.data), algorithm)
        return self._algorithms[key]

    def _heuristic(self, described: _Description, workspace_bytes: int, limit: int) -> list[_Algorithm]:
        lt = self._lt
        preference = lt.matmul_preference_create()
        name = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        _set(lt.matmul_preference_set_attribute, preference, name, ctypes.c_uint64(workspace_bytes))
        results = (ctypes.c_uint8 * (_RESULT_BYTES * limit))()
        count = ctypes.c_int(0)
        order = [described.layouts[x] for x in "abcd"]
        try:
            lt.matmul_algo_get_heuristic(
                self._handle,
                described.operation,
                *order,
                preference,
                limit,
                ctypes.addressof(results),
                ctypes.addressof(count),
            )
        except lt.cuBLASLtError as error:
            raise UnsupportedError(f"the heuristic answers {error}") from error
        finally:
            lt.matmul_preference_destroy(preference)
        found = []
        for index in range(count.value):
            row = bytes(results[index * _RESULT_BYTES : (index + 1) * _RESULT_BYTES])
            if int.from_bytes(row[72:76], "little") == 0:  # cublasLtMatmulHeuristicResult_t.state
                found.append(_Algorithm(row[:_ALGO_BYTES], int.from_bytes(row[64:72], "little")))
        return found

    def _text(self, algo: bytes) -> str:
        held = ctypes.create_string_buffer(algo, _ALGO_BYTES)
        values = {}
        for word, name, size in _CONFIG:
            buffer, written = ctypes.c_uint32(0), ctypes.c_size_t(0)
            self._lt.matmul_algo_config_get_attribute(
                ctypes.addressof(held),
                getattr(self._lt.MatmulAlgoConfigAttribute, name),
                ctypes.addressof(buffer),
                size,
                ctypes.addressof(written),
            )
            values[word] = buffer.value
        return algorithm_text(values)


class _Description:
    """Descriptors of a GEMM; destroyed with this object."""

    def __init__(self, lt: Any, gemm: GemmProblem) -> None:
        self._lt = lt
        self.layouts: dict[str, int] = {}
        self.alpha, self.beta = scalar(gemm, one=True), scalar(gemm, one=gemm.beta == "nonzero")
        self.operation = lt.matmul_desc_create(_COMPUTE[gemm.compute_type or "f32_r"], scale_type(gemm))
        for side, trans in (("TRANSA", gemm.trans_a), ("TRANSB", gemm.trans_b)):
            self._attribute(side, ctypes.c_int32(0 if trans == "N" else 1))
        self._attribute("EPILOGUE", ctypes.c_uint32(EPILOGUES[epilogue(gemm)]))
        if gemm.bias and gemm.bias_type in TYPES:
            self._attribute("BIAS_DATA_TYPE", ctypes.c_int32(TYPES[gemm.bias_type]))
        for name, matrix in matrices(gemm).items():
            self.layouts[name] = self._layout(matrix, gemm.batch_count or 1)

    def set_bias(self, pointer: int) -> None:
        """Where this call's bias lies."""
        self._attribute("BIAS_POINTER", ctypes.c_void_p(pointer))

    def _attribute(self, name: str, value: Any) -> None:
        _set(self._lt.matmul_desc_set_attribute, self.operation, getattr(self._lt.MatmulDescAttribute, name), value)

    def _layout(self, matrix: Matrix, batch: int) -> int:
        lt = self._lt
        layout: int = lt.matrix_layout_create(TYPES[matrix.dtype], matrix.rows, matrix.cols, matrix.ld)
        if batch > 1:
            names = lt.MatrixLayoutAttribute
            _set(lt.matrix_layout_set_attribute, layout, names.BATCH_COUNT, ctypes.c_int32(batch))
            _set(lt.matrix_layout_set_attribute, layout, names.STRIDED_BATCH_OFFSET, ctypes.c_int64(matrix.stride))
        return layout

    def __del__(self) -> None:
        for layout in self.layouts.values():
            self._lt.matrix_layout_destroy(layout)
        self._lt.matmul_desc_destroy(self.operation)


def _set(function: Any, target: int, attribute: Any, value: Any) -> None:
    function(target, int(attribute), ctypes.addressof(value), ctypes.sizeof(value))


def _gemm(problem: Problem) -> GemmProblem:
    """The problem, where this backend runs it.  Raises UnsupportedError.

    Scalar factors stay at 1, as they are without a pointer.
    """
    gemm = supported_gemm(problem, TYPES, _COMPUTE, (None, "none", "scalar"))
    return replace(gemm, scale_a=None, scale_b=None, scale_c=None, scale_d=None)


BACKEND = BackendType("cublaslt", "cuBLASLt's heuristic list (nvmath-python)", CublasLt, imports=("torch",))
