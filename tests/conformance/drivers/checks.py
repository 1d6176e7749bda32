"""Run kernels of a real GPU library, and check their results as ``logparse replay`` does.

``checks.py BACKEND PROBLEMS MOST`` checks the first MOST kernels of each product in PROBLEMS (a JSON list of texts).
"""

# A problem is a matrix product or convolution. A JSON value is printed for each, with the relative error of each kernel
# and a text that says what is wrong with its results (empty: nothing).

import json
import sys

from analyzers.replay.worker import backend_named
from logparse.libraries.kinds.backend import Conditions, Place
from logparse.model import problem_from_text


def main():
    name, texts, most = map(json.loads, sys.argv[1:])
    backend = backend_named(f"tests.conformance.virtual_device:{name.upper()}").open(Place(device="cpu"))
    for text in texts:
        problem = problem_from_text(text)
        found = []
        for solution in backend.solutions(problem, most):
            runnable = backend.prepare(problem, solution, Conditions())
            found.append([runnable.error(), runnable.fault()])
        print(json.dumps(found))
        backend.release()


main()
