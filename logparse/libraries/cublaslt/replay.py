"""Time matrix products with the kernels of cuBLASLt, through NVIDIA's own bindings (package ``nvmath-python``).

Kernels have the same names as in cuBLASLt's log (``logparse.libraries.cublaslt.names``), so a logged kernel and a timed
one can be compared.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from logparse.libraries.cublaslt.names import algorithm_text
from logparse.libraries.kinds.backend import BackendType, Place, UnsupportedError
from logparse.libraries.kinds.blas_gemms import Described, LtBackend, supported_gemm
from logparse.model import GemmProblem, Problem

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
"""Attributes of a cuBLASLt algorithm: logparse's word, the name in the API and the size in bytes.

The names in the API are members of ``cublasLtMatmulAlgoConfigAttributes_t``.
"""
_WORKSPACE = {9: 32 << 20}
"""Workspace in bytes that PyTorch gives cuBLASLt, by compute capability (32 MiB on Hopper).

On any other GPU it is 1 MiB, as in PyTorch's first versions with cuBLASLt.
"""


class CublasLt(LtBackend):
    library = "cublaslt"
    compute_types: ClassVar[Mapping[str, int]] = {
        "f16_r": 64,
        "f32_r": 68,
        "f64_r": 70,
        "f32_f16_r": 74,
        "f32_bf16_r": 75,
        "xf32_r": 77,
    }
    """cuBLASLt's number for each compute type (``cublasComputeType_t`` in cublas_api.h)."""
    operations = 0, 1
    pointers: ClassVar[Mapping[str, str]] = {"bias": "BIAS_POINTER"}
    result_bytes, workspace_at, state_at = 96, 64, 72
    """Size of a ``cublasLtMatmulHeuristicResult_t`` and the offsets of two of its members, in bytes."""
    most = 200

    def __init__(self, place: Place) -> None:
        from nvmath.bindings import cublasLt

        self._lt: Any = cublasLt
        super().__init__(place)

    def environment(self) -> Mapping[str, str]:
        return dict(self._device.facts) | {"cublaslt_version": str(self._lt.get_version())}

    def _ask(self, function: str, *arguments: Any) -> Any:
        return getattr(self._lt, function)(*arguments)

    def _attribute(self, of: Described, name: str) -> int:
        return int(getattr(getattr(self._lt, f"{of.title().replace('_', '')}Attribute"), name))

    def _listed(self, *arguments: Any) -> int:
        count = ctypes.c_int(0)
        try:
            # cuBLASLt sorts its kernels by estimated time.  PyTorch runs the first one.
            self._lt.matmul_algo_get_heuristic(*arguments, ctypes.addressof(count))
        except self._lt.cuBLASLtError as error:
            raise UnsupportedError(f"cuBLASLt's heuristic failed: {error}") from error
        return count.value

    def _default_workspace_bytes(self) -> int:
        major = self._device.torch.cuda.get_device_properties(self._device.device).major
        return _WORKSPACE.get(major, 1 << 20)

    def _gemm(self, problem: Problem) -> GemmProblem:
        """Remove the scale factors from a matrix product before its kernels are timed.

        A single factor does not change the kernel, and without a factor the library uses 1.  Raises UnsupportedError if
        cuBLASLt cannot run the product.
        """
        gemm = supported_gemm(problem, self.types, self.compute_types, (None, "none", "scalar"))
        return replace(gemm, scale_a=None, scale_b=None, scale_c=None, scale_d=None)

    def _id(self, result: bytes) -> str:
        held = ctypes.create_string_buffer(result, self.result_bytes)
        values = {}
        for word, name, size in _CONFIG:
            buffer, written = ctypes.c_uint32(0), ctypes.c_size_t(0)
            attribute = getattr(self._lt.MatmulAlgoConfigAttribute, name)
            where = (ctypes.addressof(buffer), size, ctypes.addressof(written))
            self._lt.matmul_algo_config_get_attribute(ctypes.addressof(held), attribute, *where)
            values[word] = buffer.value
        return algorithm_text(values)


BACKEND = BackendType(
    "cublaslt",
    "cuBLASLt's heuristic list (nvmath-python)",
    CublasLt,
    imports=("torch",),
    needs={"torch": "torch", "nvmath": "nvmath-python"},
)
