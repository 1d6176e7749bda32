"""Write ``units_PID.json``, the file in which a process of the job lists its steps, their times, and remarks.

The name is ``units_PID-2.json`` and so on if the process has replaced its program (``os.execv``).

The file is written every few seconds, because a job may kill its worker processes at any time.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, List, Optional

import torch

from .changes.tf32 import computes_in_tf32
from .units import Series
from .unpatched import Python

_EVERY_S = 5.0


class Record:
    """Writes the file ``units_PID.json``, in which a process of the job lists its steps. Also names the trace files.

    * ``alone``: True if nothing is traced.
    * ``process``: the name of this process in the names of its files.
    * ``due_s``: the moment from which the file must be written again (``time.monotonic``).
    * ``notes``: the remarks for the user.
    """

    def __init__(self, folder: str, alone: bool) -> None:
        self._folder, self._alone, self.process = folder, alone, _name_process(folder)
        self.due_s = Python.monotonic() + _EVERY_S
        self.notes: List[str] = []
        self._ranks: Dict[str, int] = {}  # The last known ones, because a job may end its group of ranks

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def trace_path(self, window: int) -> str:
        return os.path.join(self._folder, f"trace_{self.process}_{window}.json.gz")

    def capture_path(self, graph: str) -> str:
        """Return the path of the trace file for the capture of a CUDA graph. The folder is made if it is missing."""
        folder = os.path.join(self._folder, "capture_traces")
        Python.makedirs(folder, exist_ok=True)
        return os.path.join(folder, f"trace_{self.process}_g{graph}.json.gz")

    @property
    def is_due(self) -> bool:
        return Python.monotonic() >= self.due_s

    def write(self, sort: Optional[str], series: Optional[Series], tracing: str, windows: int) -> None:
        """Write the file ``units_PID.json``, which lists this process's steps, with the present counts and times.

        An older version of the file is replaced. Raises OSError if that fails.

        * ``sort`` says how the steps were recognised (``optimizer``, ``request`` …), or is ``time`` if fixed periods
          are traced.
        * ``series`` holds the counts and times of the steps.
        * ``tracing`` says whether the times were steady before the traces.
        * ``windows`` is the number of traces.
        """
        self.due_s = Python.monotonic() + _EVERY_S
        kinds = series.kinds if series is not None else {}
        found: Dict[str, Any] = {
            "logparse_units": sort or "time",
            "tracing": tracing,
            "windows": windows,
            "kinds": {name: kind.record() for name, kind in kinds.items()},
            "alone": self._alone,
            "settings": list(_settings()),
        }
        if self.notes:
            found["notes"] = self.notes
        now = rank_of_job()
        self._ranks = now if "ranks" in now or not self._ranks else self._ranks
        found.update(self._ranks)
        write_whole(os.path.join(self._folder, f"units_{self.process}.json"), found)


def _name_process(folder: str) -> str:
    """Return a name for this process in the names of its files: its number, such as ``394``, or ``394-2``.

    The second form is used if the process has written files before it replaced its program (``os.execv``).
    """
    name, programs = str(Python.getpid()), 1
    while Python.exists(os.path.join(folder, f"units_{name}.json")):
        programs += 1
        name = f"{Python.getpid()}-{programs}"
    return name


def write_whole(path: str, found: Dict[str, Any]) -> None:
    """Write ``found`` as a JSON file, so that another process never sees only a part of it.

    The other process sees the old file or the whole new file. Raises OSError if writing fails.
    """
    with Python.open(path + ".part", "w", encoding="utf-8") as file:
        file.write(Python.dumps(found))  # ``json.dump`` would leave cycles for the job's garbage collector
    Python.replace(path + ".part", path)


def rank_of_job() -> Dict[str, int]:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return {"rank": distributed.get_rank(), "ranks": distributed.get_world_size()}
    rank = os.environ.get("RANK", "")
    return {"rank": int(rank)} if rank.isdigit() else {}


def _settings() -> Iterator[str]:
    """Yield the settings of PyTorch that the job uses and that matter for its speed, such as ``tf32``.

    The names are the same as in ``analyzers/actions/job.py``.
    """
    with contextlib.suppress(AttributeError, RuntimeError):
        if torch.backends.cudnn.enabled and torch.backends.cudnn.benchmark:
            yield "cudnn_benchmark"
        if computes_in_tf32():
            yield "tf32"
        if torch.cuda.is_initialized():
            yield "blas=" + str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2].lower()
