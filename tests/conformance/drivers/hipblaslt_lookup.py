"""Which solution the real hipBLASLt takes for each call under each tuning file, by its public heuristic.

Runs in the ROCm Python (``rocm.Rocm``), where ctypes finds the real library over the virtual GPU.  The library reads
``HIPBLASLT_TUNING_OVERRIDE_FILE`` once per process, at the first heuristic; so this process loads all kernels and then
forks for each question, which takes milliseconds.

Questions and answers are JSON values, one per line.  The first question lists the calls, each as ``[trans_a, trans_b,
m, n, k, batch, [hipDataType of a, b, c, d], compute, scale]``; its answer is the library's version.  Then:

* ``["solutions", N]``: per call the first N solutions of the heuristic, its own choice first
* ``["file", path]``: the solution taken for each call under that tuning file; null where there is none
"""

import ctypes
import json
import os
import sys

from forked import forked

OPERATIONS = {"N": 111, "T": 112}
TRANS_A, TRANS_B, WORKSPACE, BATCH_COUNT, BATCH_STRIDE = 0, 1, 1, 0, 1
RESULT_BYTES, WORKSPACE_BYTES = 56, 32 << 20
TYPES = "NS_8GemmTypeE18hipblasOperation_tS2_11hipDataTypeS3_S3_S3_20hipblasComputeType_t"
GET_ALL = f"_ZN13hipblaslt_ext11getAllAlgosEPv{TYPES}RSt6vectorI33_hipblasLtMatmulHeuristicResult_tSaIS6_EE"
"""hipblaslt_ext::getAllAlgos: loads the kernels of these types without reading the override file."""


class Library:
    """A handle, and what C calls return as Python values.  Raises RuntimeError with the status."""

    def __init__(self) -> None:
        self.lt = ctypes.CDLL("libhipblaslt.so.1")
        self.handle = ctypes.c_void_p()
        self.ask("hipblasLtCreate", ctypes.byref(self.handle))

    def ask(self, function, *arguments):
        status = self.lt[function](*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def load(self, call):
        """Load the kernels of these types; which of them fit the call is another question."""
        trans_a, trans_b, *_, types, compute, _ = call
        vector = (ctypes.c_void_p * 3)()  # an empty std::vector; what it gets is left to the process's end
        self.lt[GET_ALL](self.handle, 1, OPERATIONS[trans_a], OPERATIONS[trans_b], *types, compute, vector)

    def describe(self, call):
        """The call's descriptor, layouts and preference."""
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

    def found(self, described, most):
        """Indices of the heuristic's solutions."""
        results, count = (ctypes.c_uint8 * (RESULT_BYTES * most))(), ctypes.c_int()
        if self.lt.hipblasLtMatmulAlgoGetHeuristic(self.handle, *described, most, results, ctypes.byref(count)):
            return []
        starts = range(0, count.value * RESULT_BYTES, RESULT_BYTES)
        return [int.from_bytes(bytes(results[at : at + 4]), "little", signed=True) for at in starts]


def main():
    library = Library()
    version = ctypes.c_int()
    library.ask("hipblasLtGetVersion", library.handle, ctypes.byref(version))
    calls = json.loads(sys.stdin.readline())
    for call in {json.dumps(call[:2] + call[6:8]): call for call in calls}.values():
        library.load(call)
    described = [library.describe(call) for call in calls]
    print(version.value, flush=True)

    def answer(kind, about):
        if kind == "solutions":
            return [library.found(one, about) for one in described]
        os.environ["HIPBLASLT_TUNING_OVERRIDE_FILE"] = about
        return [next(iter(library.found(one, 1)), None) for one in described]

    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(forked(lambda question=question: answer(*question))), flush=True)


main()
