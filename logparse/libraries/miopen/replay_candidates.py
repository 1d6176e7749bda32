"""List of every solver that applies to a convolution, made by MIOpen in a process of its own.

With the find-db switched off, immediate mode falls back to a list of all applicable dynamic solvers, with invented
times.  MIOpen reads the switches once per process.  With the switches the library's own pick would be lost, so the
process that measures must not have them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from logparse.libraries.kinds.backend import UnsupportedError
from logparse.libraries.kinds.device.torch_device import torch_device
from logparse.libraries.miopen.host_library import Convolution, Library, Offer
from logparse.model import ConvProblem, problem_from_text

_SWITCHES = {"MIOPEN_DEBUG_DISABLE_FIND_DB": "1", "MIOPEN_DEBUG_ENABLE_AI_IMMED_MODE_FALLBACK": "0"}


def candidates(problem: ConvProblem, device: str) -> list[Offer]:
    """Return every solver that applies to the problem.

    The other process takes seconds to import PyTorch.  That is little beside the minutes that it takes to build all
    solvers.  Raises RuntimeError if the other process fails.
    """
    ended = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()", problem.text, device],
        stdout=subprocess.PIPE,
        env=os.environ | _SWITCHES | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"the process that lists MIOpen's solvers ended with {ended.returncode}")
    return [Offer(*row) for row in json.loads(ended.stdout.splitlines()[-1])]


def main() -> None:
    text, device = sys.argv[1:]
    problem = problem_from_text(text)
    assert isinstance(problem, ConvProblem)
    opened, library = torch_device(device), Library()
    try:
        offers = Convolution(library, library.made("miopenCreateWithStream", 0), problem).offers()
    except (UnsupportedError, RuntimeError):
        offers = []  # the measuring process meets the same error and reports it
    print(json.dumps([(x.id, x.workspace_bytes, x.algorithm) for x in offers]))
    opened.synchronize()
