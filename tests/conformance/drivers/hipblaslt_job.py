"""A small job that computes one matrix product with the real hipBLASLt, again and again.

``hipblaslt_job.py CALL TIMES [MOST]`` computes the call (JSON) TIMES times with each of the first MOST kernels.
"""

# hipblaslt_lookup.py describes the JSON of a call. MOST is 1 by default: the library's own choice. The job prints a
# JSON value per kernel: its index, and what was launched for one product.

import json
import sys

from hipblaslt import Library


def main():
    call, times, *most = map(json.loads, sys.argv[1:])
    for index, launches in Library().run(call, times, *most):
        print(json.dumps([index, launches[: len(launches) // times]]))


main()
