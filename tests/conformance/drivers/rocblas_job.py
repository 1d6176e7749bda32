"""A job that computes a matrix product with the real rocBLAS, as a training step would do.

* ``rocblas_job.py CALL TIMES`` computes it TIMES times with the kernel that the library chooses.
* ``rocblas_job.py CALL 0`` computes it once with the library's choice (index 0), and then once with each kernel that
  the library lists.

CALL is JSON, as ``rocblas.py`` describes it. For each kernel the job prints a JSON value: the kernel's index, and what
was launched for one product.
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
