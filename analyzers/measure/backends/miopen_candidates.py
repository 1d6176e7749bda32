"""Every solver that applies to a convolution, asked of MIOpen in a process of its own.

With the find-db switched off, immediate mode falls back to a list of all applicable dynamic solvers, with made-up
times.  The switches are read once per process and would take the library's own pick away, so the process that measures
must not have them.  It is asked over its standard input, a problem's text a line, and answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref

from analyzers.measure.backend import UnsupportedError
from analyzers.measure.backends.miopen_library import Convolution, Library, Offer
from logparse.model import ConvProblem, problem_from_text

_SWITCHES = {"MIOPEN_DEBUG_DISABLE_FIND_DB": "1", "MIOPEN_DEBUG_ENABLE_AI_IMMED_MODE_FALLBACK": "0"}


class Candidates:
    """The other process; it ends with this one, whose pipe it reads."""

    def __init__(self, device: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; from {__name__} import serve; serve(sys.argv[1])", device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | _SWITCHES | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
        weakref.finalize(self, _end, self._process)

    def of(self, problem: ConvProblem) -> list[Offer]:
        """Raises RuntimeError where the process is gone."""
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        to.write(f"{problem.text}\n")
        to.flush()
        answer = back.readline()
        if not answer:
            raise RuntimeError(f"the process that lists MIOpen's solvers ended with {self._process.wait()}")
        return [Offer(*row) for row in json.loads(answer)]


def _end(process: subprocess.Popen[str]) -> None:
    """Its input ends, and so does it."""
    process.communicate()


def serve(device: str) -> None:
    """The other process."""
    from analyzers.measure.device.torch_device import torch_device

    opened = torch_device(device)
    library = Library()
    handle = library.made("miopenCreateWithStream", 0)
    for line in sys.stdin:
        problem = problem_from_text(line.rstrip("\n"))
        assert isinstance(problem, ConvProblem)
        try:
            offers = Convolution(library, handle, problem).offers()
        except (UnsupportedError, RuntimeError):
            offers = []  # the measuring process reports the reason when it meets the same
        print(json.dumps([(x.id, x.workspace_bytes, x.algorithm) for x in offers]), flush=True)
    opened.synchronize()
