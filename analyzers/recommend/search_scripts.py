"""Scripts for what no override file can improve yet: searches to run on the GPU.

A search writes into a database or tuning file of its own, never into the user's.  Its output is ingested back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from analyzers import below_roofline
from analyzers.overrides.commands import COMMANDS
from logparse.errors import EmissionError
from logparse.formats.format import Emission
from logparse.model import ConvProblem, Finding, GemmProblem, Problem
from logparse.text import counted, printable

_MIOPEN = """\
#!/bin/sh
# Lets MIOpen search for solutions of {count} problem(s), the most valuable first.
# Everything goes into a user db of its own; your own is neither read nor written.
# Then `logparse ingest` reads "$LOGPARSE_TUNING_DB"/*.ufdb.txt and "$LOGPARSE_TUNING_DB"/tune.log.
set -eu
LOGPARSE_TUNING_DB="${{LOGPARSE_TUNING_DB:-$PWD/miopen-tuning-db}}"
mkdir -p "$LOGPARSE_TUNING_DB"
export LOGPARSE_TUNING_DB
export MIOPEN_USER_DB_PATH="$LOGPARSE_TUNING_DB"
# 3 (SEARCH): tune solvers that have no tuned parameters yet, and measure all of them.  This forces a Normal find.
export MIOPEN_FIND_ENFORCE=3
export MIOPEN_FIND_MODE=1
export MIOPEN_LOG_LEVEL=5
exec 3>> "$LOGPARSE_TUNING_DB/tune.log"

"""

_HIPBLASLT = """\
#!/bin/sh
# Lets hipblaslt-bench try every solution of {count} problem(s), the most valuable first; winners go into a tuning file.
# Then `logparse ingest` reads "$HIPBLASLT_TUNING_FILE" and hipblaslt-tuning.log.
# To use it: export HIPBLASLT_TUNING_OVERRIDE_FILE="$HIPBLASLT_TUNING_FILE" (same library build and GPU only).
set -eu
# HIPBLASLT_LOG_LEVEL, even empty, would disable the mask; an active override would be tuned instead of the library.
unset HIPBLASLT_LOG_LEVEL HIPBLASLT_LOG_MASK HIPBLASLT_TUNING_OVERRIDE_FILE
HIPBLASLT_TUNING_FILE="${{LOGPARSE_TUNING_FILE:-$PWD/hipblaslt-tuning.txt}}"
export HIPBLASLT_TUNING_FILE
exec 3>> hipblaslt-tuning.log

"""

FIND_SETTINGS = """\
MIOPEN_FIND_MODE sets what a Find does, not whether anything is tuned:

* 1 NORMAL: measure all applicable solvers, write the user find-db (an existing user record is measured again)
* 2 FAST: find-db hit: its fastest solver; miss: a guess. Never measures
* 3 HYBRID: hit as FAST, miss as NORMAL. It does not tune
* 5 DYNAMIC_HYBRID, the default: hit as FAST; miss: measure only solvers that need no compiling per shape

MIOPEN_FIND_ENFORCE sets when solvers are tuned:

* 1 NONE, the default: tuned parameters that exist are used, nothing is searched
* 3 SEARCH: search for solvers without tuned parameters; it does not "force tuned results"
* 4 SEARCH_DB_UPDATE: search again on every Find

Any ENFORCE from 2 to 5 forces FIND_MODE to NORMAL (up to ROCm 7), which ignores and overwrites override rows. A job
that shall use override rows needs both unset, and in PyTorch 2.7 and later torch.backends.cudnn.benchmark=False.
"""
"""What MIOpen's two find settings do; they are often described wrongly."""


def to_tune(findings: Sequence[Finding]) -> list[Finding]:
    """The findings about a problem of which no measured better solution is known: a search may find one.

    An efficiency alone is no reason for a search of hours: a replay comes first.
    """
    found = [x for x in findings if x.problem is not None and x.evidence.certainty != "measured"]
    found = [x for x in found if x.analyzer != below_roofline.NAME]
    # A finding that names a solution and no time of it is a warning about that solution: there is nothing to search.
    return [x for x in found if x.evidence.best is None or x.evidence.best_us is not None]


def scripts(
    findings: Sequence[Finding], commands: Mapping[str, Callable[[Problem], str]] = COMMANDS
) -> tuple[list[Emission], list[str]]:
    """``tune_miopen.sh`` and ``tune_hipblaslt.sh`` for the findings without a measured better solution, in their order,
    and notes on the problems for which no command could be made.
    """
    first: dict[Problem, Finding] = {}
    for finding in to_tune(findings):
        if finding.problem is not None:
            first.setdefault(finding.problem, finding)
    made, notes = [], []
    for library, head, kind in (("miopen", _MIOPEN, ConvProblem), ("hipblaslt", _HIPBLASLT, GemmProblem)):
        name = f"tune_{library}.sh"
        lines, refused = _lines([x for x in first if isinstance(x, kind)], commands.get(library))
        if lines:
            body = "".join(
                f"{_worth(first[problem])}{line} >&3 2>&3 || echo 'failed: {n} of {len(lines)}' >&2\n"
                for n, (line, problem) in enumerate(lines.items(), 1)
            )
            text = head.format(count=len(lines)) + body
            use = "run it on the GPU (hours, most valuable first; stop when you like), then ingest what it wrote"
            made.append(Emission(name, text.encode(), use))
        if refused:
            notes.append(f"{name}: {counted(len(refused), 'problem')} left out: {refused[0]}")
    return made, notes


def _worth(finding: Finding) -> str:
    """A comment line on what its problem is expected to save; empty where the finding has no number."""
    label = printable(finding.problem.label) if finding.problem else ""
    if finding.saving_us is not None:
        return f"# {label}: about {finding.saving_us:,.0f} µs per run to save\n"
    if finding.per_call_us is not None:  # of how many calls is not known
        return f"# {label}: about {finding.per_call_us:,.0f} µs per call to save\n"
    return ""


def _lines(
    problems: Sequence[Problem], command: Callable[[Problem], str] | None
) -> tuple[dict[str, Problem], list[str]]:
    """The distinct commands, first come first, with their problems, and the reasons of the problems without one."""
    lines: dict[str, Problem] = {}
    refused: list[str] = []
    for problem in problems:
        try:
            if command is None:
                raise EmissionError("its tool is not known")
            lines.setdefault(command(problem), problem)
        except EmissionError as error:
            refused.append(str(error))
    return lines, refused
