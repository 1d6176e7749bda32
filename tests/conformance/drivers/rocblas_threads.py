"""A small job that calls the real rocBLAS in several threads at once.

``rocblas_threads.py CALLS TIMES`` starts a thread for each call (JSON, as ``rocblas.py`` describes it), which computes
it TIMES times.
"""

import json
import sys
import threading

from rocblas import Library


def run(call, times):
    library = Library()
    for _ in range(times):
        library.run(call, 0)


def main():
    calls, times = map(json.loads, sys.argv[1:])
    threads = [threading.Thread(target=run, args=(call, times)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
