"""Run programs in child processes, with or without logparse's observer (its code in a user's job).

The children are forked from this process, which has imported torch once. It reads a list of requests per line from
standard input, runs their programs at the same time, and answers with the list of their exit codes. A request is::

    {"program": "…/p.py", "words": ["…"], "folder": "…", "observer": "…/in_job", "environ": {"LOGPARSE_TRY": "…"}}

A child runs in ``folder/cwd``. Its output goes to ``folder/stdout`` and ``folder/stderr``.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
import torch
import torch._dynamo
import torch._inductor
import torch.distributed.fsdp
import torch.export
import torch.fx.experimental.proxy_tensor

for name in (
    "torch._dynamo.backends.debugging",
    "torch._dynamo.repro.after_dynamo",
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch.nn.attention.flex_attention",
):  # torch.compile and torch.export import them at their first use, for half a second
    with contextlib.suppress(ImportError):  # other versions of torch name them otherwise
        importlib.import_module(name)

_LIMIT_S = 300.0
"""Longest time in seconds that a program may run. Every program ends earlier, even on a busy machine."""


def started(request: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    folder = request["folder"]
    os.chdir(folder + "/cwd")
    for output, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT, 0o644), output)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    os._exit(exit_code(request))


def exit_code(request: dict[str, Any]) -> int:
    """Run the requested program in this process, as Python would run it, and return its exit code.

    The function waits for the program's threads and exit functions.
    """
    program = request["program"]
    sys.argv, sys.path[0] = [program, *request["words"]], os.path.dirname(program)
    os.environ.update(request["environ"])
    if request["observer"]:
        sys.path.insert(1, request["observer"])
        sys.modules.pop("sitecustomize", None)
        __import__("sitecustomize")
    code = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        code = 1
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    return code


def ended(child: int) -> int | str:
    """Wait for a child process and return its exit code. A negative number is the signal that killed it.

    If the child takes too long, it is killed, and the result is "timeout".
    """
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


if __name__ == "__main__":
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        children = [started(request) for request in json.loads(line)]
        print(json.dumps([ended(child) for child in children]), flush=True)
