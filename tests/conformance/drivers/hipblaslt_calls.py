"""Compute matrix products of any kind with the real hipBLASLt, one after the other.

The program prints the kernels that the library's heuristic offers. The library's own log names each call.

``hipblaslt_calls.py MOST`` reads calls (JSON) from standard input. Each call is an object with these keys:

- ``trans``, ``m``, ``n``, ``k``, ``batch``, ``compute``, ``scale``, ``beta``.
- ``types``: the types of A, B, C and D.
- ``workspace``: the workspace in bytes.
- ``pads``: how much larger each leading dimension is than the smallest possible one.
- ``broadcast``: if true, A's batch stride is 0.
- ``attributes`` and ``pointers`` of the descriptor.
- ``algorithm``: if false, the product is given no algorithm.

The output has a JSON value per call: the first MOST kernels of the heuristic, each with the workspace in bytes that it
needs. The list is empty if the call was refused.
"""

import ctypes
import json
import sys

from hipblaslt import BATCH_COUNT, BATCH_STRIDE, OPERATIONS, RESULT_BYTES, TRANS_A, TRANS_B, WORKSPACE, Library

MEMORY = (ctypes.c_uint8 * (1 << 20))()
NUMBERS = {
    kind: {value: number(bits if kind == 2 else value) for value, bits in ((0, 0), (1, 0x3C00))}
    for kind, number in ((0, ctypes.c_float), (1, ctypes.c_double), (2, ctypes.c_uint16), (10, ctypes.c_int32))
}


def described(library, call):
    operation, preference, layouts = ctypes.c_void_p(), ctypes.c_void_p(), []
    library.ask("hipblasLtMatmulDescCreate", ctypes.byref(operation), call["compute"], call["scale"])
    trans = [(place, OPERATIONS[x]) for place, x in zip((TRANS_A, TRANS_B), call["trans"], strict=True)]
    values = [(name, ctypes.c_int32(value)) for name, value in (*trans, *call["attributes"])]
    values += [(name, ctypes.c_void_p(ctypes.addressof(MEMORY))) for name in call["pointers"]]
    for name, value in values:
        library.ask("hipblasLtMatmulDescSetAttribute", operation, name, ctypes.byref(value), ctypes.sizeof(value))
    m, n, k, batch = (call[x] for x in ("m", "n", "k", "batch"))
    shapes = ((m, k) if call["trans"][0] == "N" else (k, m), (k, n) if call["trans"][1] == "N" else (n, k), (m, n))
    each = zip(call["types"], (*shapes, (m, n)), call["pads"], strict=True)
    for number, (kind, (rows, columns), pad) in enumerate(each):
        layout = ctypes.c_void_p()
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows + pad))
        library.ask("hipblasLtMatrixLayoutCreate", ctypes.byref(layout), kind, *sizes)
        if batch > 1:
            stride = 0 if call["broadcast"] and not number else (rows + pad) * columns
            for name, value in ((BATCH_COUNT, ctypes.c_int32(batch)), (BATCH_STRIDE, ctypes.c_int64(stride))):
                size = ctypes.sizeof(value)
                library.ask("hipblasLtMatrixLayoutSetAttribute", layout, name, ctypes.byref(value), size)
        layouts.append(layout)
    library.ask("hipblasLtMatmulPreferenceCreate", ctypes.byref(preference))
    size = ctypes.c_uint64(call["workspace"])
    library.ask("hipblasLtMatmulPreferenceSetAttribute", preference, WORKSPACE, ctypes.byref(size), 8)
    return operation, *layouts, preference


def run(library, call, most):
    operation, of_a, of_b, of_c, of_d, preference = described(library, call)
    found = library.heuristic((operation, of_a, of_b, of_c, of_d, preference), most)
    if found:
        numbers = NUMBERS[call["scale"]]
        inputs = (ctypes.byref(numbers[1]), MEMORY, of_a, MEMORY, of_b, ctypes.byref(numbers[call["beta"]]))
        algorithm = (ctypes.c_uint8 * RESULT_BYTES)(*found[0]) if call.get("algorithm", True) else None
        tail = (MEMORY, of_c, MEMORY, of_d, algorithm, MEMORY, ctypes.c_size_t(call["workspace"]), None)
        library.ask("hipblasLtMatmul", library.handle, operation, *inputs, *tail)
    return [
        [int.from_bytes(x[:4], "little", signed=True), int.from_bytes(x[24:32], "little")] for x in map(bytes, found)
    ]


def main():
    library, most = Library(), int(sys.argv[1])
    for call in json.load(sys.stdin):
        try:
            print(json.dumps(run(library, call, most)), flush=True)
        except RuntimeError:
            print("[]", flush=True)


main()
