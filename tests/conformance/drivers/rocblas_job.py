"""A job that runs products through the real rocBLAS, as a training step does.

``rocblas_job.py CALL TIMES`` makes the call (JSON, as ``rocblas.py`` describes it) TIMES times with the library's own
choice. ``rocblas_job.py CALL 0`` makes it once with the library's own choice (index 0), and then once with each
solution that the library lists. It prints a JSON value per solution: its index and the launches of one product.
"""

import json
import sys

from rocblas import Library


def main():
    call, times = map(json.loads, sys.argv[1:])
    library = Library()
    for index in [0] if times else [0, *library.solutions(call)]:
        launches = [library.run(call, index) for _ in range(times or 1)]
        if launches[0] is not None:
            print(json.dumps([index, launches[0].splitlines()]))


main()
