"""hipBLASLt's grouped GEMM, which the library offers as a C++ object alone: ``hipblaslt_ext::GroupedGemm``.

The object is made and asked through the library's exported symbols, in the C++ ABI of Linux (Itanium's; a vector of
libstdc++ is three pointers), so that neither a compiler nor headers are needed.  Of its constructors the one is used
that takes the descriptors of the C interface.  Source: ``hipblaslt-ext.hpp`` of hipBLASLt 1.2.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

from analyzers.measure.backend import UnsupportedError
from analyzers.measure.device.loaded_library import loaded_library

RESULT_BYTES = 56
"""Size of a ``hipblasLtMatmulHeuristicResult_t``, whose first 24 bytes are the algorithm."""

_EXT = "_ZN13hipblaslt_ext"
_VECTORS = (
    "RSt6vectorIP27hipblasLtMatmulDescOpaque_tSaIS4_EERS2_IS1_SaIS1_EESA_RS2_IP29hipblasLtMatrixLayoutOpaque_tSaISC_EE"
    "SA_SF_SA_SA_SF_SA_SF_"
)
_CONSTRUCT = f"{_EXT}11GroupedGemmC1EPv{_VECTORS}"
_RESULTS = "RSt6vectorI33_hipblasLtMatmulHeuristicResult_tSaIS5_EE"
_GET_HEURISTIC = f"{_EXT}12GemmInstance16algoGetHeuristicEiRKNS_14GemmPreferenceE{_RESULTS}"
_IS_SUPPORTED = f"{_EXT}12GemmInstance15isAlgoSupportedER22_hipblasLtMatmulAlgo_tRm"
_SET_WORKSPACE = f"{_EXT}12GemmInstance20setMaxWorkspaceBytesEm"
_INITIALIZE = f"{_EXT}12GemmInstance10initializeERK22_hipblasLtMatmulAlgo_tPvbP12ihipStream_t"
_RUN = f"{_EXT}12GemmInstance3runEP12ihipStream_tP11ihipEvent_tS4_"
_PREFER = f"{_EXT}14GemmPreferenceC1Ev"
_PREFER_WORKSPACE = f"{_EXT}14GemmPreference20setMaxWorkspaceBytesEm"
_PREFER_NO_MORE = f"{_EXT}14GemmPreferenceD1Ev"
_DELETE = "_ZdlPv"

_P, _I, _Z, _B = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_bool
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # the result's type, then those of the arguments, the object first
    _CONSTRUCT: (None, *[_P] * 13),
    _GET_HEURISTIC: (_I, _P, _I, _P, _P),
    _IS_SUPPORTED: (_I, _P, _P, _P),
    _SET_WORKSPACE: (None, _P, _Z),
    _INITIALIZE: (_I, _P, _P, _P, _B, _P),
    _RUN: (_I, _P, _P, _P, _P),
    _PREFER: (None, _P),
    _PREFER_WORKSPACE: (None, _P, _Z),
    _PREFER_NO_MORE: (None, _P),
    _DELETE: (None, _P),
}
_OBJECT_BYTES = 1024
"""More than either object has: in hipBLASLt 1.2, 80 and 8."""


class GroupedGemm:
    """A group over given memory.  Raises UnsupportedError where the library has no such object.

    ``gemms`` are the eleven addresses of each GEMM in the constructor's order: descriptor, alpha, A and its layout, B
    and its layout, beta, C and its layout, D and its layout.  The descriptors are read at once, the scalars later.
    """

    def __init__(self, handle: int, gemms: Sequence[Sequence[int]]) -> None:
        self._c = _functions()
        self._object = ctypes.create_string_buffer(_OBJECT_BYTES)
        columns = [_Vector(column) for column in zip(*gemms, strict=True)]
        self._c[_CONSTRUCT](self._object, handle, *(column.header for column in columns))
        weakref.finalize(self, _destroy, self._object)

    def heuristic(self, most: int, workspace_bytes: int) -> list[bytes]:
        """The heuristic's results, the library's own choice first.

        Raises RuntimeError with the status.
        """
        preference, found = ctypes.create_string_buffer(_OBJECT_BYTES), (_P * 3)()
        self._c[_PREFER](preference)
        self._c[_PREFER_WORKSPACE](preference, workspace_bytes)
        status = self._c[_GET_HEURISTIC](self._object, most, preference, found)
        begin, end, _ = (x or 0 for x in found)
        data = ctypes.string_at(begin, end - begin) if end > begin else b""
        self._c[_DELETE](begin)
        self._c[_PREFER_NO_MORE](preference)
        if status:
            raise RuntimeError(f"GroupedGemm::algoGetHeuristic: status {status}")
        return [data[at : at + RESULT_BYTES] for at in range(0, len(data), RESULT_BYTES)]

    def workspace_bytes(self, result: bytes) -> int:
        """What the algorithm of a heuristic's result needs, which includes the kernels' arguments.

        Raises UnsupportedError where it does not run this group.
        """
        algorithm, need = ctypes.create_string_buffer(result, RESULT_BYTES), _Z()
        if status := self._c[_IS_SUPPORTED](self._object, algorithm, ctypes.byref(need)):
            raise UnsupportedError(f"GroupedGemm::isAlgoSupported: status {status}")
        return need.value

    def initialize(self, result: bytes, workspace: int, workspace_bytes: int, stream: int) -> None:
        """Write the kernels' arguments to the workspace, which from now on belongs to this object.

        Raises RuntimeError with the status.
        """
        algorithm = ctypes.create_string_buffer(result, RESULT_BYTES)
        self._c[_SET_WORKSPACE](self._object, workspace_bytes)
        if status := self._c[_INITIALIZE](self._object, algorithm, workspace, False, stream):
            raise RuntimeError(f"GroupedGemm::initialize: status {status}")

    def run(self, stream: int) -> None:
        """Enqueue it.  Raises RuntimeError with the status."""
        if status := self._c[_RUN](self._object, stream, None, None):
            raise RuntimeError(f"GroupedGemm::run: status {status}")


class _Vector:
    """A ``std::vector`` of pointers, to be read: pointers to its begin, its end and the end of its memory."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = (_P * len(values))(*values)
        begin, end = ctypes.addressof(self._values), ctypes.addressof(self._values) + ctypes.sizeof(self._values)
        self.header = (_P * 3)(begin, end, end)


def _destroy(held: ctypes.Array[ctypes.c_char]) -> None:
    """The destructor, which is the first function of the table that the object begins with."""
    table = _P.from_buffer(held).value
    if table:
        ctypes.CFUNCTYPE(None, _P)(_P.from_address(table).value or 0)(ctypes.addressof(held))


@cache
def _functions() -> dict[str, Any]:
    """The library's functions, declared.  Raises UnsupportedError where it lacks one."""
    library = loaded_library("libhipblaslt", "libhipblaslt.so.1", "libhipblaslt.so")
    found = {}
    for name, (result, *arguments) in _SIGNATURES.items():
        try:
            found[name] = library[name]
        except AttributeError as error:
            raise UnsupportedError("this hipBLASLt has no grouped GEMM of the form known here") from error
        found[name].restype, found[name].argtypes = result, arguments
    return found
