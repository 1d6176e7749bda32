"""Report which kernels the real rocBLAS launches for each call under different override files.

The calls are made through ``rocblas_gemm_ex``. The program runs in the ROCm Python (``rocm.Rocm``) on the virtual GPU,
which names the launched kernels. rocBLAS reads ``ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH`` once per process, together with
its kernels. So this process forks for each question.

Questions and answers are JSON values, one per line. The first question lists the calls, each as ``[trans_a, trans_b, m,
n, k, batch, [lda, ldb, ldc], [stride_a, stride_b, stride_c], beta, a_type, d_type, compute_type]``. Its answer is the
library's version. Then:

* ``["solutions"]`` asks for the indices of the kernels that the library lists per call.
* ``["launched", [[call, index], …]]`` asks what is launched for each index (0: the library's choice; the answer null
  means that the library refuses this kernel).
* ``["file", path]`` asks what is launched for each call under that override file.
* ``["plain", path]`` asks what is launched for each call through ``rocblas_sgemm``, ``_hgemm`` or ``_dgemm``, under
  that file.
"""

import json
import os
import sys

from forked import forked
from rocblas import Library


def main():
    library = Library()
    calls = json.loads(sys.stdin.readline())
    print(json.dumps(library.version()), flush=True)

    def answer(kind, about=None):
        if kind == "solutions":
            return [library.solutions(call) for call in calls]
        if kind == "launched":
            return [library.run(calls[number], index) for number, index in about]
        os.environ["ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH"] = about
        # a first round loads the kernels that calls need, because the library passes over an index that is not loaded
        for call in calls:
            library.run(call, 0)
        return [library.run_plain(call) if kind == "plain" else library.run(call, 0) for call in calls]

    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(forked(lambda question=question: answer(*question))), flush=True)


main()
