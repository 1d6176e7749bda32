"""Report which solver the real MIOpen uses for each convolution under different user find-dbs (files of solver times).

The program asks MIOpen's immediate mode. It runs in the ROCm Python (``rocm.Rocm``) on the virtual GPU. MIOpen reads
its files once per process, so this process forks for each question.

Questions and answers are JSON values, one per line. The first question lists the convolutions, as ``miopen.py``
describes them. Its answer is the library's version. Then ``["folder", path]`` sets MIOPEN_USER_DB_PATH and asks for the
first solution of ``miopenConvolution…GetSolution`` per convolution: the solver's number and the time (ms), or null if
there is no solution.
"""

import json
import os
import sys

from forked import forked
from miopen import Convolution, Library


def main():
    library = Library()
    convolutions = [Convolution(library, call) for call in json.loads(sys.stdin.readline())]
    print(json.dumps(library.version()), flush=True)

    def answer(folder):
        os.environ["MIOPEN_USER_DB_PATH"] = folder
        found = [library.solutions(one) for one in convolutions]
        return [(solutions[0].solver, solutions[0].time) if solutions else None for solutions in found]

    for line in sys.stdin:
        _, folder = json.loads(line)
        print(json.dumps(forked(lambda folder=folder: answer(folder))), flush=True)


main()
