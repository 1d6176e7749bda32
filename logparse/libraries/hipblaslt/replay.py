"""Time matrix products with the kernels of hipBLASLt, through AMD's bindings (package ``rocm-bindings-libraries``).

The first kernel of the list is the library's choice.  If the heuristic is asked for very many kernels, it returns
nearly all that fit the product.  ``exhaustive`` asks for so many.  A kernel's id is the index that logs and tuning
files use.  It is the first int32 of ``hipblasLtMatmulAlgo_t`` (read in the library's source).  The bindings return
tuples with the status first, and take pointers as integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, ClassVar

from logparse.libraries.kinds.backend import BackendType, Place
from logparse.libraries.kinds.blas_gemms import EPILOGUES, TYPES, Described, LtBackend, supported_gemm
from logparse.model import GemmProblem, Problem

_OUTER_VECTOR = 3
"""hipBLASLt's number for a scale with one factor per row of op(A) or per column of op(B).

Its name is HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F.
"""
_ALPHA_VECTOR = 4
"""hipBLASLt's number for an alpha that is a vector in device memory.

Its name is HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST.
"""
_ATTRIBUTES: Mapping[Described, tuple[str, str]] = {
    "matmul_desc": ("hipblasLtMatmulDescAttributes_t", "HIPBLASLT_MATMUL_DESC_"),
    "matrix_layout": ("hipblasLtMatrixLayoutAttribute_t", "HIPBLASLT_MATRIX_LAYOUT_"),
    "matmul_preference": ("hipblasLtMatmulPreferenceAttributes_t", "HIPBLASLT_MATMUL_PREF_"),
}


class HipblasLt(LtBackend):
    library = "hipblaslt"
    types: ClassVar[Mapping[str, int]] = TYPES | {"f8_fnuz_r": 1000, "bf8_fnuz_r": 1001}
    compute_types: ClassVar[Mapping[str, int]] = {
        "f16_r": 0,
        "f32_r": 2,
        "f32_f16_r": 4,
        "f32_bf16_r": 5,
        "xf32_r": 6,
        "f64_r": 7,
    }
    """hipBLASLt's number for each compute type (``hipblasComputeType_t`` in hipblas-common.h)."""
    epilogues: ClassVar[Mapping[str, int]] = EPILOGUES | {
        "RELU_AUX": 130,
        "RELU_AUX_BIAS": 134,
        "GELU_AUX": 160,
        "GELU_AUX_BIAS": 164,
        "DGELU": 192,
        "DGELU_BGRAD": 208,
        "BGRADA": 256,
        "BGRADB": 512,
    }
    """hipBLASLt's number for each epilogue (``hipblasLtEpilogue_t`` in hipblaslt.h).

    The auxiliary matrix of RELU_AUX holds values in hipBLASLt, but bits in cuBLASLt.
    """
    operations = 111, 112
    pointers: ClassVar[Mapping[str, str]] = {"bias": "BIAS_POINTER", "aux": "EPILOGUE_AUX_POINTER"} | {
        f"scale_{x}": f"{x.upper()}_SCALE_POINTER" for x in "abcd"
    }
    result_bytes, workspace_at, state_at = 56, 24, 32
    """Size of a hipblasLtMatmulHeuristicResult_t, and the offsets of its workspace and state, in bytes."""
    most = 20_000

    def __init__(self, place: Place) -> None:
        from rocm.bindings import hip, hipblas, hipblaslt

        self._lt: Any = hipblaslt
        # The bindings take members of their enumerations and refuse numbers.
        self._data_type, self._compute_type = hip.hipDataType, hipblas.hipblasComputeType_t
        super().__init__(place)

    def environment(self) -> Mapping[str, str]:
        revision = ctypes.create_string_buffer(128)
        self._ask("get_git_revision", self._handle, ctypes.addressof(revision))
        facts = {"hipblaslt_revision": revision.value.decode("ascii", "replace")}
        return dict(self._device.facts) | facts | {"hipblaslt_version": str(self._ask("get_version", self._handle))}

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of hipBLASLt and return its results without the status.

        Raises RuntimeError with the function's name and the status if the call fails.
        """
        name = f"hipblasLt{function.title().replace('_', '')}"
        returned = getattr(self._lt, name)(*arguments)
        status, *values = returned if isinstance(returned, tuple) else (returned,)
        if int(status) != 0:
            raise RuntimeError(f"{name}: {getattr(status, 'name', status)}")
        return values[0] if values else None

    def _attribute(self, of: Described, name: str) -> Any:
        kind, prefix = _ATTRIBUTES[of]
        return getattr(getattr(self._lt, kind), prefix + name)

    def _listed(self, *arguments: Any) -> int:
        return int(self._ask("matmul_algo_get_heuristic", *arguments))

    def _default_workspace_bytes(self) -> int:
        """Return the size in bytes of the workspace that a matrix product gets if none is given.

        It is the default of gfx94x GPUs.  PyTorch's logs show the same size.
        """
        return 76 << 20

    def _describe_more(self, operation: Any, gemm: GemmProblem) -> None:
        if gemm.scale_alpha_vector:
            self._set("matmul_desc", operation, "POINTER_MODE", ctypes.c_int32(_ALPHA_VECTOR))
        for name, (_, kind) in self._pointed(gemm).items():
            if name == "aux":
                m, n = gemm.m or 0, gemm.n or 0
                self._set("matmul_desc", operation, "EPILOGUE_AUX_DATA_TYPE", ctypes.c_int32(self.types[kind]))
                self._set("matmul_desc", operation, "EPILOGUE_AUX_LD", ctypes.c_int64(m))
                self._set("matmul_desc", operation, "EPILOGUE_AUX_BATCH_STRIDE", ctypes.c_int64(m * n))
            if name.startswith("scale_") and getattr(gemm, name) == "row":
                mode = f"{name[-1].upper()}_SCALE_MODE"
                self._set("matmul_desc", operation, mode, ctypes.c_int32(_OUTER_VECTOR))

    def _gemm(self, problem: Problem) -> GemmProblem:
        scales = (None, "none", "scalar", "row")
        return supported_gemm(problem, self.types, self.compute_types, scales, self.epilogues, alpha_vector=True)

    def _id(self, result: bytes) -> str:
        return str(int.from_bytes(result[:4], "little", signed=True))


BACKEND = BackendType(
    "hipblaslt",
    "hipBLASLt: the kernels that its heuristic lists, or with --exhaustive nearly all (through AMD's Python bindings)",
    HipblasLt,
    imports=("torch",),
    needs={"torch": "torch", "rocm.bindings": "rocm-bindings-libraries"},
)
