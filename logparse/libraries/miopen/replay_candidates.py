"""List every solver that can run a convolution.  A separate process asks MIOpen for the list.

MIOpen can choose a solver without a search (immediate mode).  It then looks into the find-db, its database of measured
solvers.  Without the find-db it lists all applicable dynamic solvers (whose kernels do not depend on the sizes), and
makes up their times.

Environment variables switch the find-db off for a whole process.  The process that measures must keep the find-db,
because without it MIOpen's own choice of a solver is unknown.
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
    """List every solver of MIOpen that can run a convolution.  A separate process asks MIOpen for the list.

    Raises RuntimeError if the process fails.
    """
    # The process needs some seconds to import PyTorch. This matters little, because it takes minutes to build all the
    # solvers.
    ended = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()", problem.text, device],
        stdout=subprocess.PIPE,
        env=os.environ | _SWITCHES | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"the process that lists MIOpen's solvers ended with exit code {ended.returncode}")
    return [Offer(*row) for row in json.loads(ended.stdout.splitlines()[-1])]


def main() -> None:
    text, device = sys.argv[1:]
    problem = problem_from_text(text)
    assert isinstance(problem, ConvProblem)
    opened, library = torch_device(device), Library()
    try:
        offers = Convolution(library, library.made("miopenCreateWithStream", 0), problem).offers()
    except (UnsupportedError, RuntimeError):
        offers = []  # The measuring process gets the same error and reports it.
    print(json.dumps([(x.id, x.workspace_bytes, x.algorithm) for x in offers]))
    opened.synchronize()
