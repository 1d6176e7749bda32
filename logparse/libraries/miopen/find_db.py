"""MIOpen's find-db: a database of the fastest solvers for each convolution, shipped or written by a search.

Shipped files are named ``*.fdb.txt``, and files of this machine ``*.ufdb.txt``::

    256-56-56-1x1-512-28-28-256-0x0-2x2-1x1-0-NCHW-FP16-F=GemmFwd1x1_0_2:0.66529,0,miopenConvolutionFwdAlgoGEMM;Conv…
    2-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-W=miopenConvolutionBwdWeightsAlgoGEMM:GemmWrwUniversal,0.02,72,rocBlas,…

A line is one convolution, ``key=item;item``.  An item (one solver) has one of two forms, and each item is recognised by
itself, as MIOpen does:

===================================  ==============================
form                                 version
===================================  ==============================
``solver:ms,workspace,algorithm``    v2, since ROCm 5.6
``algorithm:solver,ms,workspace,…``  v1, and v0 with one value less
===================================  ==============================

System files are in ``share/miopen/db`` of an installation.  User files are in ``~/.config/miopen`` (or
``MIOPEN_USER_DB_PATH``) after any run with ``MIOPEN_FIND_MODE=1``.  Only the file's name states the arch, the number of
compute units, the backend and the library build.

Times of user files are not comparable between MIOpen versions.  Times of MIOpen 3.3.0 are biased (fact
``times_biased``).  ``find_db_items`` turns an item into a measurement, a skipped measurement or a reject.
``find_db_columns`` reads whole files at hundreds of MB/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import FOREIGN, Emission, FileFormat, Head, Origin, Outcome, Source, Writer
from logparse.libraries.miopen.db_names import facts_of_name, file_name, of_fusions, recognised
from logparse.libraries.miopen.problem_key import is_key, key_direction, key_of
from logparse.libraries.miopen.solvers import ALGORITHMS, algorithm_name, explain_overflow, known_algorithm
from logparse.model import ConvProblem, Fact, Override, Problem
from logparse.quoting import Shell

BIASED = (
    "MIOpen 3.3.0 wrote this user find-db: times are too low or negative, and slower solvers are missing "
    "(ROCm/MIOpen PR 3460)"
)


# ---------------------------------------------------------------------------------------------------- reading


def recognise(head: Head) -> bool:
    return recognised(head, r"\.u?fdb\.txt$", is_key)


def _file_facts(name: str) -> list[Fact]:
    facts = facts_of_name(name)
    kind = re.search(r"\.(u?)fdb\.txt$", name)
    if kind:
        facts.append(Fact("find_db", "user" if kind[1] else "system"))
        if kind[1] and Fact("miopen_version", "3.3.0") in facts:
            facts.append(Fact("times_biased", BIASED))
    return facts


def read(source: Source) -> Iterator[Outcome]:
    """Read a find-db (MIOpen's database of the fastest solvers): the facts in its file name, and then every line."""
    # Imported here, because the import is slow and only databases need it.
    from logparse.libraries.miopen.find_db_columns import read_columns

    facts = _file_facts(source.name)
    if facts:
        yield Outcome("fact", facts, lines=0)
    # The lines are read a few MB at a time, and each part becomes a table. A file for fused operations has no
    # convolutions, so its lines are counted but not used.
    with source.open() as stream:
        yield from (
            count_unread_lines(stream)
            if of_fusions(source.name)
            else read_columns(stream, {x.name: x.value for x in facts})
        )


def count_unread_lines(stream: Iterable[bytes]) -> Iterator[Outcome]:
    """Count the lines of a MIOpen database that logparse does not use, because they describe no convolutions."""
    return (FOREIGN if line.strip() else Outcome("blank") for line in stream)


# ---------------------------------------------------------------------------------------------------- writing


def accepts(override: Override) -> bool:
    return isinstance(override.problem, ConvProblem) and override.solution.library == "miopen"


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """Return the key under which MIOpen's find-db (its database of the fastest solvers) holds a convolution.

    Returns None if the problem is not a convolution, or if a field that the key needs is unknown.
    """
    return key_of(problem) if isinstance(problem, ConvProblem) else None


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> Sequence[Emission]:
    """Write a user find-db (MIOpen's database of the fastest solvers), so that MIOpen runs the chosen solvers.

    The database has one record per convolution.  A record holds the fastest solver and a slower one.  If MIOpen cannot
    run the first, it takes the second instead of searching again.  The two are the fastest of all overrides (chosen
    solvers) for the convolution and of their ``fallback`` solvers.

    MIOpen matches or checks every field, so no field can be left out or guessed.  Time and workspace are written as
    measured: a solver with too small a workspace fails at run time, and MIOpen skips a solver with too large a
    workspace.  The name of the algorithm contains the direction of the key.

    Raises EmissionError in two cases:

    * A field is unknown.  The error names it.
    * A solver may return wrong results for the convolution (see ``solvers.explain_overflow``).
    """
    by_key: dict[str, list[Override]] = {}
    for override in overrides:
        text = override.key_text if override.key_text and is_key(override.key_text) else key(override.problem, target)
        if text is None:
            raise EmissionError(
                f"no find-db line can be written for {override.problem.text}, because a size, type or layout is "
                "unknown. A find-db or a MIOpen log (level 6) with this convolution would state it"
            )
        if why := _overflows(override):
            raise EmissionError(why)
        rows = by_key.setdefault(text, [])
        rows.append(override)
        if override.fallback is not None and _can_stand_in(override.fallback):
            rows.append(override.fallback)
    if not by_key:
        return []
    name = file_name(target)
    lines = [f"{text}={';'.join(_items(rows))}\n" for text, rows in sorted(by_key.items())]
    return [Emission(name, "".join(lines).encode(), USE)]


def _overflows(row: Override) -> str | None:
    """Explain why MIOpen may compute wrong results with the chosen solver.

    Returns None if no reason is known.
    """
    return explain_overflow(row.solution.id, row.problem) if isinstance(row.problem, ConvProblem) else None


def _can_stand_in(row: Override) -> bool:
    """Return True if a second solver can be written into MIOpen's database, in case the chosen one cannot run.

    Its time, workspace and algorithm must be known, and it must not overflow for this convolution.
    """
    timed = row.time_us is not None and 0 < row.time_us < math.inf and row.workspace_bytes is not None
    return (
        timed
        and _overflows(row) is None
        and (row.solution.algorithm is not None or known_algorithm(row.solution.id) is not None)
    )


def _items(rows: Sequence[Override]) -> list[str]:
    for row in rows:
        if row.time_us is None or not 0 < row.time_us < math.inf:
            raise EmissionError(
                f"the time of {row.solution.text} is unknown, but MIOpen ranks solvers by time; measure this solver"
            )
        if row.workspace_bytes is None:
            raise EmissionError(
                f"the workspace of {row.solution.text} is unknown, but MIOpen checks it; a find-db, MIOpen log or "
                "driver list of this problem states it"
            )
    fastest = {row.solution: row for row in sorted(rows, key=lambda row: -(row.time_us or 0.0))}
    best = sorted(fastest.values(), key=lambda row: row.time_us or 0.0)[:2]
    return [_item(row) for row in best]


def _item(row: Override) -> str:
    direction = key_direction(row.problem) if isinstance(row.problem, ConvProblem) else ""
    algorithm = row.solution.algorithm
    if algorithm is None or ALGORITHMS.get(algorithm) != direction:
        family = known_algorithm(row.solution.id)
        if family is None:
            raise EmissionError(
                f"the algorithm of solver {row.solution.id} is unknown; a find-db that lists the solver states it"
            )
        algorithm = algorithm_name(family, direction)
    milliseconds = repr(round((row.time_us or 0.0) / 1000.0, 9))
    return f"{row.solution.raw or row.solution.id}:{milliseconds},{row.workspace_bytes},{algorithm}"


USE = Shell("""\
# MIOpen user find-db {name}
# Found by its name: only this library build on this GPU reads it. Your own database is not changed;
# to keep its rows in use, copy your .ufdb.txt rows and your .udb.txt into the same folder.
export MIOPEN_USER_DB_PATH={folder}
unset MIOPEN_FIND_ENFORCE  # 2 to 5 force a new search, which ignores and overwrites these rows
unset MIOPEN_FIND_MODE     # the default (5) looks up first, as do 2 and 3; 1 (NORMAL) measures again and overwrites
# FIND_MODE=3 (HYBRID) does not tune; FIND_ENFORCE=3 (SEARCH) tunes what has no entry, it does not force tuned results.
# PyTorch: torch.backends.cudnn.benchmark = False (from 2.7 on, True searches again).
# Verify: MIOPEN_LOG_LEVEL=5 prints "Chosen Algorithm: <solver> , <workspace>, <ms>",
# MIOpenDriver prints "Solution: <id>/<solver>".
# Tunable solvers run at their default parameters unless a perf-db (the .udb.txt beside this file, or the system's) has
# a row for the problem too; they may then be several times slower than measured.
""")

FORMAT = FileFormat(
    name="miopen-find-db",
    about=(
        "MIOpen's find-db, of the system (*.fdb.txt) and of the user (*.ufdb.txt), in the forms of old and new "
        "MIOpen versions"
    ),
    recognise=recognise,
    read=read,
    origins=(Origin("find-db", evidence=True, winners=True),),
    named=True,
    order="if several records have the same key, the first record is used",
    seen=(
        "files that AMD ships for gfx90a and gfx942; files that MIOpen 3.5.1 wrote; files for gfx1201; files of the "
        "oldest MIOpen versions (source code only)"
    ),
    example="256-56-56-1x1-512-…-FP16-F=GemmFwd1x1_0_2:0.66529,…",
    gives="measurements",
    how=(
        "MIOpen's own files are in `share/miopen/db` (`*.fdb.txt`), yours are in `~/.config/miopen` (`*.ufdb.txt`) "
        "after a job with `MIOPEN_FIND_MODE=1`"
    ),
)
WRITER = Writer(
    "miopen-find-db",
    "MIOpen's user find-db (*.ufdb.txt)",
    accepts,
    key,
    write,
    file="`gfx942130.HIP.<version>.ufdb.txt`",
    read_when=(
        "the file is in the folder `MIOPEN_USER_DB_PATH`, its name states the arch, CU count and version of the "
        "library, and `MIOPEN_FIND_MODE` is not 1"
    ),
)
