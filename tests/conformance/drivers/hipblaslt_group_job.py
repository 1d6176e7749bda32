"""A job: a grouped product through the real hipBLASLt's C++ object, as a mixture of experts makes it.

``hipblaslt_group_job.py CALLS TIMES [MOST]``: the calls (JSON, as ``hipblaslt_lookup.py`` describes them) as one group
so often, with each of the heuristic's first MOST solutions (default 1: the library's own choice).  Prints a JSON value
per solution: its index and the launches of one group.
"""

import ctypes
import json
import sys

from hipblaslt import Library

from analyzers.measure.backends.hipblaslt_grouped import GroupedGemm

WORKSPACE_BYTES = 32 << 20


def main():
    calls, times, *most = map(json.loads, sys.argv[1:])
    library, rows, held = Library(), [], []
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    for call in calls:
        operation, *layouts, _ = library.describe(call)
        m, n, k, batch = call[2:6]
        a, b, d = ((ctypes.c_uint8 * (8 * batch * size))() for size in (m * k, k * n, m * n))
        held += [a, b, d]
        of_a, of_b, of_c, of_d = (layout.value for layout in layouts)
        at_a, at_b, at_d, alpha, beta = map(ctypes.addressof, (a, b, d, one, zero))
        rows.append((operation.value, alpha, at_a, of_a, at_b, of_b, beta, at_d, of_c, at_d, of_d))
    group = GroupedGemm(library.handle.value, rows)
    workspace = (ctypes.c_uint8 * WORKSPACE_BYTES)()
    launched = ctypes.CDLL(None).vgpu_launched
    launched.restype = ctypes.c_char_p
    for result in group.heuristic(*most or [1], WORKSPACE_BYTES):
        launched()
        group.initialize(result, ctypes.addressof(workspace), WORKSPACE_BYTES, 0)
        for _ in range(times):
            group.run(0)
        launches = launched().decode().splitlines()
        print(json.dumps([int.from_bytes(result[:4], "little", signed=True), launches[: len(launches) // times]]))


main()
