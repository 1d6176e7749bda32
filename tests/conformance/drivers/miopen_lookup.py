"""Which solver the real MIOpen takes for each convolution under each user find-db, by its immediate mode.

Runs in the ROCm Python (``rocm.Rocm``) over the virtual GPU.  MIOpen reads its databases once per process, so the
process forks for each question.

Questions and answers are JSON values, one per line.  The first question lists the convolutions, each as ``[direction,
type, [n, c, h, w, k, y, x], pad, stride, groups]``; its answer is the library's version.  Then ``["folder", path]``:
per convolution the solver's number and the time (ms) of the first of ``miopenConvolution…GetSolution`` with
MIOPEN_USER_DB_PATH there; null where there is none.
"""

import ctypes
import json
import os
import sys

from forked import forked

TYPES = {"f16_r": 0, "f32_r": 1, "bf16_r": 5}
FUNCTIONS = {"F": "Forward", "B": "BackwardData", "W": "BackwardWeights"}
MOST = 16


class Solution(ctypes.Structure):
    """miopenConvSolution_t"""

    _fields_ = (
        ("time", ctypes.c_float),
        ("workspace", ctypes.c_size_t),
        ("solver", ctypes.c_uint64),
        ("algorithm", ctypes.c_int),
    )


class Library:
    def __init__(self) -> None:
        self.miopen = ctypes.CDLL("libMIOpen.so.1")
        self.handle = self.made("miopenCreate")

    def ask(self, function, *arguments):
        status = self.miopen[function](*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def made(self, function):
        pointer = ctypes.c_void_p()
        self.ask(function, ctypes.byref(pointer))
        return pointer

    def version(self):
        numbers = [ctypes.c_size_t() for _ in range(3)]
        self.ask("miopenGetVersion", *map(ctypes.byref, numbers))
        return ".".join(str(x.value) for x in numbers)

    def tensor(self, kind, *sizes):
        tensor = self.made("miopenCreateTensorDescriptor")
        self.ask("miopenSet4dTensorDescriptor", tensor, TYPES[kind], *sizes)
        return tensor

    def describe(self, call):
        """The function's name and its descriptors in order."""
        direction, kind, (n, c, h, w, k, y, x), pad, stride, groups = call
        convolution = self.made("miopenCreateConvolutionDescriptor")
        self.ask("miopenInitConvolutionDescriptor", convolution, 0, pad, pad, stride, stride, 1, 1)
        self.ask("miopenSetConvolutionGroupCount", convolution, groups)
        image, weights = self.tensor(kind, n, c, h, w), self.tensor(kind, k, c // groups, y, x)
        out = self.tensor(kind, n, k, (h + 2 * pad - y) // stride + 1, (w + 2 * pad - x) // stride + 1)
        order = {"F": (weights, image, convolution, out), "B": (out, weights, convolution, image)}
        tensors = order.get(direction, (out, image, convolution, weights))
        return f"miopenConvolution{FUNCTIONS[direction]}GetSolution", tensors

    def first(self, described):
        function, tensors = described
        solutions, count = (Solution * MOST)(), ctypes.c_size_t()
        arguments = (self.handle, *tensors, ctypes.c_size_t(MOST), ctypes.byref(count), solutions)
        if self.miopen[function](*arguments) or not count.value:
            return None
        return solutions[0].solver, solutions[0].time


def main():
    library = Library()
    described = [library.describe(call) for call in json.loads(sys.stdin.readline())]
    print(json.dumps(library.version()), flush=True)

    def answer(folder):
        os.environ["MIOPEN_USER_DB_PATH"] = folder
        return [library.first(one) for one in described]

    for line in sys.stdin:
        _, folder = json.loads(line)
        print(json.dumps(forked(lambda folder=folder: answer(folder))), flush=True)


main()
