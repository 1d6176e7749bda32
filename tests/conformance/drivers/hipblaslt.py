"""Call the real hipBLASLt from Python (ctypes): create handles and descriptors, list kernels, compute products."""

import ctypes
import struct

OPERATIONS = {"N": 111, "T": 112}
TRANS_A, TRANS_B, WORKSPACE, BATCH_COUNT, BATCH_STRIDE = 0, 1, 1, 0, 1
RESULT_BYTES, WORKSPACE_BYTES = 56, 32 << 20
TYPES = "NS_8GemmTypeE18hipblasOperation_tS2_11hipDataTypeS3_S3_S3_20hipblasComputeType_t"
GET_ALL = f"_ZN13hipblaslt_ext11getAllAlgosEPv{TYPES}RSt6vectorI33_hipblasLtMatmulHeuristicResult_tSaIS6_EE"
"""Mangled C++ name of hipblaslt_ext::getAllAlgos.

This function loads the kernels for some types without reading the override file (the user's choice of kernels).
"""
POINTERS = "PvP27hipblasLtMatmulDescOpaque_tPKvS5_P29hipblasLtMatrixLayoutOpaque_tS5_S7_S5_S5_S7_S1_S7_"
CONSTRUCT = f"_ZN13hipblaslt_ext4GemmC1E{POINTERS}"
RESULTS = "RSt6vectorI33_hipblasLtMatmulHeuristicResult_tSaIS5_EE"
GET_HEURISTIC = f"_ZN13hipblaslt_ext12GemmInstance16algoGetHeuristicEiRKNS_14GemmPreferenceE{RESULTS}"
PREFERENCE = "_ZN13hipblaslt_ext14GemmPreferenceC1Ev"
SET_WORKSPACE = "_ZN13hipblaslt_ext14GemmPreference20setMaxWorkspaceBytesEm"
OBJECT_BYTES = 1024
"""Bytes to reserve for an object of a C++ class.

The two classes used here need less than 100 bytes in hipBLASLt 1.2.
"""


class Gemm:
    """hipBLASLt's C++ class ``hipblaslt_ext::Gemm``, through which rocBLAS calls hipBLASLt.

    Here it only lists kernels.
    """

    def __init__(self, library, described):
        self.lt = library.lt
        self.object = ctypes.create_string_buffer(OBJECT_BYTES)
        operation, of_a, of_b, of_c, of_d, _ = described
        one, any_ = ctypes.addressof(ONE), ctypes.addressof(MEMORY)
        words = (one, any_, of_a, any_, of_b, one, any_, of_c, any_, of_d)
        arguments = (self.object, library.handle, operation, *map(ctypes.c_void_p, map(value_of, words)))
        library.lt[CONSTRUCT](*arguments)

    def heuristic(self, most):
        """Return the kernels that hipBLASLt offers for this product, at most ``most``.

        Neither the C++ object nor the results are freed before the process ends.
        """
        preference, found = ctypes.create_string_buffer(OBJECT_BYTES), (ctypes.c_void_p * 3)()
        self.lt[PREFERENCE](preference)
        self.lt[SET_WORKSPACE](preference, ctypes.c_size_t(WORKSPACE_BYTES))
        if status := self.lt[GET_HEURISTIC](self.object, most, preference, found):
            raise RuntimeError(f"{GET_HEURISTIC} returned {status}")
        begin, end, _ = (x or 0 for x in found)
        return [ctypes.string_at(at, RESULT_BYTES) for at in range(begin, end, RESULT_BYTES)]


ONE, MEMORY = ctypes.create_string_buffer(struct.pack("<fI", 1, 0x3FF00000)), ctypes.create_string_buffer(16)
"""ONE is a scalar that is 1 as a float, about 1 as a double, and not 0 as an integer. No function reads MEMORY."""


def value_of(word):
    return getattr(word, "value", word)


class Library:
    """The real hipBLASLt. Its methods call C functions and return the results as Python values.

    Methods raise RuntimeError with the status if a call fails.
    """

    def __init__(self) -> None:
        self.lt = ctypes.CDLL("libhipblaslt.so.1")
        self.handle = ctypes.c_void_p()
        self.ask("hipblasLtCreate", ctypes.byref(self.handle))

    def ask(self, function, *arguments):
        status = self.lt[function](*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def load(self, call):
        """Load all kernels for the data types of a call, even kernels that do not fit its sizes."""
        trans_a, trans_b, *_, types, compute, _ = call
        vector = (ctypes.c_void_p * 3)()  # an empty std::vector, whose contents are not freed before the process ends
        self.lt[GET_ALL](self.handle, 1, OPERATIONS[trans_a], OPERATIONS[trans_b], *types, compute, vector)

    def describe(self, call):
        """Convert a call to the arguments of hipBLASLt's C functions: descriptor, layouts and preference."""
        trans_a, trans_b, m, n, k, batch, types, compute, scale = call
        operation = ctypes.c_void_p()
        self.ask("hipblasLtMatmulDescCreate", ctypes.byref(operation), compute, scale)
        for attribute, trans in ((TRANS_A, trans_a), (TRANS_B, trans_b)):
            value = ctypes.c_int32(OPERATIONS[trans])
            self.ask("hipblasLtMatmulDescSetAttribute", operation, attribute, ctypes.byref(value), 4)
        layouts = []
        shapes = ((m, k) if trans_a == "N" else (k, m), (k, n) if trans_b == "N" else (n, k), (m, n), (m, n))
        for kind, (rows, columns) in zip(types, shapes, strict=False):
            layout = ctypes.c_void_p()
            sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
            self.ask("hipblasLtMatrixLayoutCreate", ctypes.byref(layout), kind, *sizes)
            if batch > 1:
                count, stride = ctypes.c_int32(batch), ctypes.c_int64(rows * columns)
                self.ask("hipblasLtMatrixLayoutSetAttribute", layout, BATCH_COUNT, ctypes.byref(count), 4)
                self.ask("hipblasLtMatrixLayoutSetAttribute", layout, BATCH_STRIDE, ctypes.byref(stride), 8)
            layouts.append(layout)
        preference = ctypes.c_void_p()
        self.ask("hipblasLtMatmulPreferenceCreate", ctypes.byref(preference))
        size = ctypes.c_uint64(WORKSPACE_BYTES)
        self.ask("hipblasLtMatmulPreferenceSetAttribute", preference, WORKSPACE, ctypes.byref(size), 8)
        return operation, *layouts, preference

    def found(self, described, most, through="functions"):
        """Return the indices of the kernels that the heuristic offers for a call, at most ``most``.

        ``through`` is "functions" for the C functions, or "object" for the C++ class. Returns an empty list if the
        library refuses the call.
        """
        try:
            results = Gemm(self, described).heuristic(most) if through == "object" else self.heuristic(described, most)
            return [int.from_bytes(bytes(x[:4]), "little", signed=True) for x in results]
        except RuntimeError:
            return []

    def heuristic(self, described, most):
        """Return the kernels that hipBLASLt offers for a call, as C structures for a later call.

        The library's own choice is first.
        """
        results, count = (ctypes.c_uint8 * (RESULT_BYTES * most))(), ctypes.c_int()
        arguments = (self.handle, *described, most, results, ctypes.byref(count))
        self.ask("hipblasLtMatmulAlgoGetHeuristic", *arguments)
        return [results[at * RESULT_BYTES : (at + 1) * RESULT_BYTES] for at in range(count.value)]

    def run(self, call, times, most=1):
        """Compute a matrix product ``times`` times with each of the first ``most`` kernels that hipBLASLt offers.

        A job uses only the first kernel, the library's own choice. Yields the index of each kernel, and what was
        launched.
        """
        m, n, k, batch = call[2:6]
        operation, *layouts, preference = self.describe(call)
        a, b, c = ((ctypes.c_uint8 * (8 * batch * size))() for size in (m * k, k * n, m * n))
        space = (ctypes.c_uint8 * WORKSPACE_BYTES)()
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        of_a, of_b, of_c, of_d = layouts
        inputs = (ctypes.byref(one), a, of_a, b, of_b, ctypes.byref(zero), c, of_c, c, of_d)
        launched = ctypes.CDLL(None).vgpu_launched
        launched.restype = ctypes.c_char_p
        for result in self.heuristic((operation, *layouts, preference), most):
            launched()
            algorithm = (ctypes.c_uint8 * RESULT_BYTES)(*result)
            for _ in range(times):
                tail = (algorithm, space, ctypes.c_size_t(WORKSPACE_BYTES), None)
                self.ask("hipblasLtMatmul", self.handle, operation, *inputs, *tail)
            yield int.from_bytes(bytes(result[:4]), "little", signed=True), launched().decode().splitlines()
