"""A job: convolutions through the real MIOpen, as a training step of PyTorch makes them.

``miopen_job.py CALLS TIMES``: each call (JSON, as ``miopen.py`` describes them) so often with the solver that
immediate mode takes.  ``miopen_job.py CALLS 0``: MIOpen's Find of each, as with ``torch.backends.cudnn.benchmark``: it
writes the user find-db.  Prints a JSON value per call: the solver's number and the launches of one convolution, or what
Find timed.
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
