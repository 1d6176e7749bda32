"""``logparse replay --script``: the plan as the libraries' own tools' commands, for a machine without logparse.

Each command measures one problem: hipblaslt-bench tries all of its solutions, MIOpenDriver lets MIOpen find.  What they
print is ingested back (formats ``hipblaslt-bench-output`` and ``miopen-driver``).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from analyzers.measure.plan import Item
from logparse.errors import EmissionError
from logparse.formats.hipblaslt import bench
from logparse.formats.miopen import driver
from logparse.model import ConvProblem, GemmProblem, Problem

_HEAD = """\
#!/bin/sh
# Measures {count} problem(s), the most valuable first; stop when you like.
# Then `logparse ingest` reads {log}.
set -u
# HIPBLASLT_LOG_LEVEL, even empty, would disable the mask; an active override would be measured instead of the library.
unset HIPBLASLT_LOG_LEVEL HIPBLASLT_LOG_MASK HIPBLASLT_TUNING_OVERRIDE_FILE HIPBLASLT_TUNING_FILE
: > {log}

"""
_BENCH_WORDS = (
    *("--algo_method", "all", "--initialization", "norm_dist", "--use_gpu_timer", "--print_kernel_info"),
    *("--rotating", "512", "--cold_iters", "20", "--iters", "20"),
)
"""All solutions, random normal data, operands rotated over 512 MiB (twice the Infinity Cache of an MI300X)."""


def script(plan: Sequence[Item], log: str = "logparse-tune.log") -> str:
    """A shell script with one command per problem; what a tool cannot state is a comment with the reason."""
    lines, count = [], 0
    quoted = shlex.quote(log)
    for item in plan:
        try:
            command = _command(item.problem)
        except EmissionError as error:
            lines.append(f"# left out: {str(error).splitlines()[0]}")
            continue
        count += 1
        lines.append(f"# {item.problem.label}: {_expected(item)}")
        lines.append(f"echo {shlex.quote(command)} >> {quoted}")
        lines.append(f"{command} >> {quoted} 2>&1 || echo 'failed: command {count}' >&2")
    return _HEAD.format(count=count, log=quoted) + "\n".join(lines) + "\n"


def _expected(item: Item) -> str:
    """What is expected of an item: no saving where its time is no measured one."""
    if item.basis == "measured":
        return f"about {item.saving_us:,.0f} µs per run to save"
    return f"not measured on this device; assumed: {item.time_us:,.0f} µs per call"


def _command(problem: Problem) -> str:
    if isinstance(problem, GemmProblem):
        return bench.command(problem, extra=_BENCH_WORDS)
    if isinstance(problem, ConvProblem):
        return driver.command(problem).removeprefix("./bin/")  # from the PATH
    raise EmissionError(f"no tool runs {problem.label}")
