"""What the real MIOpen's Find returns for a convolution under each user find-db.

Runs in the ROCm Python (``rocm.Rocm``) over the virtual GPU.  MIOpen reads its databases once per process, so the
process forks for each question.

Questions and answers are JSON values, one per line.  The first question is the convolution, as ``miopen.py`` describes
it; its answer is the library's version.  Then ``["folder", path]``: the algorithm and the time (ms) of each result of
``miopenFindConvolution…Algorithm`` with MIOPEN_USER_DB_PATH there.
"""

import json
import os
import sys

from forked import forked
from miopen import Convolution, Library


def main():
    library = Library()
    convolution = Convolution(library, json.loads(sys.stdin.readline()))
    print(json.dumps(library.version()), flush=True)

    def answer(folder):
        os.environ["MIOPEN_USER_DB_PATH"] = folder
        return library.find(convolution)

    for line in sys.stdin:
        _, folder = json.loads(line)
        print(json.dumps(forked(lambda folder=folder: answer(folder))), flush=True)


main()
