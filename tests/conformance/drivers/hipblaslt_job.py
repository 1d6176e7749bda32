"""A job that runs products through the real hipBLASLt, as a training step does.

``hipblaslt_job.py CALL TIMES [MOST]`` makes the call (JSON, as ``hipblaslt_lookup.py`` describes it) TIMES times with
each of the heuristic's first MOST solutions (default 1: the library's own choice). It prints a JSON value per solution:
its index and the launches of one product.
"""

import json
import sys

from hipblaslt import Library


def main():
    call, times, *most = map(json.loads, sys.argv[1:])
    for index, launches in Library().run(call, times, *most):
        print(json.dumps([index, launches[: len(launches) // times]]))


main()
