"""cuBLASLt through NVIDIA's own bindings (package ``nvmath-python``): the heuristic list in its order, pick first.

``cublasLtMatmulAlgoGetHeuristic`` orders by estimated time; what it puts at index 0 is what PyTorch runs.  With
``exhaustive`` the algorithm ids and their capabilities are enumerated too.  Solutions are named as the Trace line names
them (``logparse.formats.cublaslt_names``), so a logged pick and an offered solution are the same text.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyzers.measure.backend import Backend, BackendType, Conditions, Place, UnsupportedError
from analyzers.measure.backends.blas_gemms import EPILOGUES, epilogue, scale_type, supported_gemm
from analyzers.measure.device.device_backend import DeviceBackend
from analyzers.measure.device.operands import GemmOperands, Matrix, matrices
from analyzers.measure.device.torch_device import Call, TorchRunnable
from logparse.formats.cublaslt_names import algorithm_text
from logparse.model import GemmProblem, Problem, Solution

_TYPES = {"f32_r": 0, "xf32_r": 0, "f64_r": 1, "f16_r": 2, "bf16_r": 14, "f8_r": 28, "bf8_r": 29}
"""cudaDataType_t (library_types.h)."""
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
        """The heuristic's list, its first entry first; the enumeration behind it."""
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
            more = self._enumerated(gemm, described) if self._place.exhaustive else ()
            for algorithm in itertools.chain(self._heuristic(described, workspace_bytes, limit), more):
                held.setdefault(self._text(algorithm.data), algorithm)
                if len(held) >= limit:
                    break
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

    def _enumerated(self, gemm: GemmProblem, described: _Description) -> Iterator[_Algorithm]:
        """Every algorithm id with every tile, stages and custom option that passes the library's own check."""
        lt = self._lt
        types = [_TYPES[matrix.dtype] for matrix in matrices(gemm).values()]
        compute = _COMPUTE[gemm.compute_type or "f32_r"]
        scale = scale_type(gemm)
        order = [described.layouts[x] for x in "abcd"]
        for algo_id in lt.matmul_algo_get_ids(self._handle, compute, scale, *types, 200):
            algo = ctypes.create_string_buffer(_ALGO_BYTES)
            try:
                lt.matmul_algo_init(self._handle, compute, scale, *types, int(algo_id), ctypes.addressof(algo))
            except lt.cuBLASLtError:
                continue
            tiles, stages = self._capability(algo, "TILE_IDS"), self._capability(algo, "STAGES_IDS")
            customs = range((self._capability(algo, "CUSTOM_OPTION_MAX") or [0])[0] + 1)
            for tile, stage, custom in itertools.product(tiles or [0], stages or [0], customs):
                for name, value in (("TILE_ID", tile), ("STAGES_ID", stage), ("CUSTOM_OPTION", custom)):
                    attribute = getattr(lt.MatmulAlgoConfigAttribute, name)
                    _set(lt.matmul_algo_config_set_attribute, ctypes.addressof(algo), attribute, ctypes.c_int32(value))
                result = ctypes.create_string_buffer(_RESULT_BYTES)
                try:
                    lt.matmul_algo_check(
                        self._handle, described.operation, *order, ctypes.addressof(algo), ctypes.addressof(result)
                    )
                except lt.cuBLASLtError:
                    continue
                need = int.from_bytes(result.raw[64:72], "little")
                if need <= self._workspace_bytes(None):
                    yield _Algorithm(algo.raw, need)

    def _capability(self, algo: Any, name: str) -> list[int]:
        buffer, written = (ctypes.c_int32 * 1024)(), ctypes.c_size_t(0)
        attribute = getattr(self._lt.MatmulAlgoCapAttribute, name)
        self._lt.matmul_algo_cap_get_attribute(
            ctypes.addressof(algo),
            attribute,
            ctypes.addressof(buffer),
            ctypes.sizeof(buffer) if name.endswith("IDS") else 4,
            ctypes.addressof(written),
        )
        return list(buffer[: written.value // 4])

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
        wide = gemm.compute_type == "f64_r"
        number = ctypes.c_double if wide else ctypes.c_uint16 if gemm.compute_type == "f16_r" else ctypes.c_float
        one = 0x3C00 if gemm.compute_type == "f16_r" else 1  # 1.0 in half precision
        self._one, self._zero = number(one), number(0)
        self.alpha = ctypes.addressof(self._one)
        self.beta = ctypes.addressof(self._one if gemm.beta == "nonzero" else self._zero)
        self.operation = lt.matmul_desc_create(_COMPUTE[gemm.compute_type or "f32_r"], scale_type(gemm))
        for side, trans in (("TRANSA", gemm.trans_a), ("TRANSB", gemm.trans_b)):
            self._attribute(side, ctypes.c_int32(0 if trans == "N" else 1))
        self._attribute("EPILOGUE", ctypes.c_uint32(EPILOGUES[epilogue(gemm)]))
        if gemm.bias and gemm.bias_type in _TYPES:
            self._attribute("BIAS_DATA_TYPE", ctypes.c_int32(_TYPES[gemm.bias_type]))
        for name, matrix in matrices(gemm).items():
            self.layouts[name] = self._layout(matrix, gemm.batch_count or 1)

    def set_bias(self, pointer: int) -> None:
        """Where this call's bias lies."""
        self._attribute("BIAS_POINTER", ctypes.c_void_p(pointer))

    def _attribute(self, name: str, value: Any) -> None:
        _set(self._lt.matmul_desc_set_attribute, self.operation, getattr(self._lt.MatmulDescAttribute, name), value)

    def _layout(self, matrix: Matrix, batch: int) -> int:
        lt = self._lt
        layout: int = lt.matrix_layout_create(_TYPES[matrix.dtype], matrix.rows, matrix.cols, matrix.ld)
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
    gemm = supported_gemm(problem, _TYPES, _COMPUTE, (None, "none", "scalar"))
    return replace(gemm, scale_a=None, scale_b=None, scale_c=None, scale_d=None)


def _open(place: Place) -> Backend:
    return CublasLt(place)


BACKEND = BackendType(
    "cublaslt", "cuBLASLt's heuristic list, and on request its enumeration (nvmath-python)", _open, imports=("torch",)
)
