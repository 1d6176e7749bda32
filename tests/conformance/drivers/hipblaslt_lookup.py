"""Report which kernel the real hipBLASLt chooses for each call under different tuning files.

It asks the library's public heuristic. The program runs in the ROCm Python (``rocm.Rocm``), where ctypes finds the real
library on the virtual GPU. The library reads ``HIPBLASLT_TUNING_OVERRIDE_FILE`` once per process, at the first
heuristic. So this process loads all kernels and then forks for each question, which takes milliseconds.

Questions and answers are JSON values, one per line. The first question lists the calls, each as ``[trans_a, trans_b, m,
n, k, batch, [hipDataType of a, b, c, d], compute, scale]``. Its answer is the library's version. Then:

* ``["solutions", N, through]`` asks for the first N kernels that the heuristic offers per call, the library's own
  choice first. ``through`` is ``functions`` for the C functions, or ``object`` for the C++ class.
* ``["file", path, through]`` asks for the kernel that each call gets under that tuning file (null: no kernel).
"""

import ctypes
import json
import os
import sys

from forked import forked
from hipblaslt import Library


def main():
    library = Library()
    version = ctypes.c_int()
    library.ask("hipblasLtGetVersion", library.handle, ctypes.byref(version))
    calls = json.loads(sys.stdin.readline())
    for call in {json.dumps(call[:2] + call[6:8]): call for call in calls}.values():
        library.load(call)
    described = [library.describe(call) for call in calls]
    print(version.value, flush=True)

    def answer(kind, about, through):
        if kind == "solutions":
            return [library.found(one, about, through) for one in described]
        os.environ["HIPBLASLT_TUNING_OVERRIDE_FILE"] = about
        return [next(iter(library.found(one, 1, through)), None) for one in described]

    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(forked(lambda question=question: answer(*question))), flush=True)


main()
