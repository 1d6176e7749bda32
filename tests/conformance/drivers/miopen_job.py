"""A job that runs convolutions with the real MIOpen, as a training step of PyTorch does.

* ``miopen_job.py CALLS TIMES`` runs each call TIMES times, with the solver that MIOpen's immediate mode chooses. It
  prints a JSON value per call: the solver's number, and what was launched for one convolution.
* ``miopen_job.py CALLS 0`` runs MIOpen's Find for each call, as with ``torch.backends.cudnn.benchmark``. Find writes
  the user find-db (MIOpen's file of solver times). It prints a JSON value per call with Find's times.

CALLS is JSON, as ``miopen.py`` describes it.
"""

import json
import sys

from miopen import Convolution, Library


def main():
    calls, times = map(json.loads, sys.argv[1:])
    library = Library()
    for call in calls:
        convolution = Convolution(library, call)
        if times:
            solver, launches = library.run(convolution, times)
            print(json.dumps([solver, launches[: len(launches) // times]]))
        else:
            print(json.dumps(library.find(convolution)))


main()
