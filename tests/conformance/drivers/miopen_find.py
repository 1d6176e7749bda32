"""Report what the real MIOpen's Find returns for a convolution under different user find-dbs (files of solver times).

The program runs in the ROCm Python (``rocm.Rocm``) on the virtual GPU. MIOpen reads its files once per process, so this
process forks for each question.

Questions and answers are JSON values, one per line. The first question is the convolution, as ``miopen.py`` describes
it. Its answer is the library's version. Then ``["folder", path, settings]`` asks for the algorithm and the time (ms) of
each result of ``miopenFindConvolution…Algorithm``. MIOPEN_USER_DB_PATH is then that folder, and ``settings`` are
further environment variables.
"""

import json
import os
import sys

from forked import forked
from miopen import Convolution, Library


def main():
    library = Library()
    call = json.loads(sys.stdin.readline())
    print(json.dumps(library.version()), flush=True)

    def answer(folder, settings):
        os.environ.update(settings, MIOPEN_USER_DB_PATH=folder)
        # made here, because the convolution's descriptor reads MIOPEN_FIND_MODE
        return library.find(Convolution(library, call))

    for line in sys.stdin:
        _, *asked = json.loads(line)
        print(json.dumps(forked(lambda asked=asked: answer(*asked))), flush=True)


main()
