"""How the replay's backend judges the real hipBLASLt's solutions of products with epilogues and scales.

``hipblaslt_checks.py PROBLEMS MOST``: of each problem (texts, a JSON list) the first so many solutions.  Prints a JSON
value per problem: of each solution its relative error and what is wrong with its results (empty: nothing).
"""

import json
import sys

from analyzers.measure.backend import Conditions, Place
from analyzers.measure.backends.hipblaslt import BACKEND
from logparse.model import problem_from_text


def main():
    texts, most = map(json.loads, sys.argv[1:])
    backend = BACKEND.open(Place(device="cpu"))
    for text in texts:
        problem = problem_from_text(text)
        found = []
        for solution in backend.solutions(problem, most):
            runnable = backend.prepare(problem, solution, Conditions())
            found.append([runnable.error(), runnable.fault()])
        print(json.dumps(found))
        backend.release()


main()
