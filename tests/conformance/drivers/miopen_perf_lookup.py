"""Report which parameters the real MIOpen uses for its solvers under different perf-dbs (files of tuned parameters).

The program runs in the ROCm Python (``rocm.Rocm``) on the virtual GPU. The virtual GPU's compiler (hiprtc) states the
options of each compilation, and the parameters are among them. MIOpen reads its files once per process, so this process
forks for each question.

Questions and answers are JSON values, one per line. The first question lists pairs of a convolution, as ``miopen.py``
describes it, and a solver's number. Its answer is the library's version. Then ``["folder", path]`` sets
MIOPEN_USER_DB_PATH and asks for a digest per pair of everything that is compiled for it (null: the solver is refused).
"""

import ctypes
import hashlib
import json
import os
import sys

from forked import forked
from miopen import Convolution, Library


def main():
    library = Library()
    pairs = [(Convolution(library, call), ctypes.c_uint64(number)) for call, number in json.loads(sys.stdin.readline())]
    compiled = ctypes.CDLL(None).vgpu_compiled
    compiled.restype = ctypes.c_char_p
    print(json.dumps(library.version()), flush=True)

    def digest(one, number):
        compiled()
        compile = library.miopen[f"miopenConvolution{one.word}CompileSolution"]
        if compile(library.handle, *one.described(), number):
            return None
        return hashlib.sha256(compiled()).hexdigest()

    def answer(folder):
        os.environ["MIOPEN_USER_DB_PATH"] = folder
        return [digest(*pair) for pair in pairs]

    for line in sys.stdin:
        _, folder = json.loads(line)
        print(json.dumps(forked(lambda folder=folder: answer(folder))), flush=True)


main()
