"""MIOpen's perf-db: a database of the tuned parameters with which solvers run, shipped or written by a search.

::

    2x1000x13x13x1x1x1x1x512x16x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xW=ConvBinWinogradRxSf3x2:257;ConvAsm…:wrw,nhwc,…

    spatial_dim x in_channels x in_h x in_w x in_d x fil_h x fil_w x fil_d x out_channels x batchsize
    x pad_h x pad_w x pad_d x conv_stride_h x conv_stride_w x conv_stride_d x dilation_h x dilation_w x dilation_d
    x bias x group_count x layout x data_type x direction

Shipped files are named ``<base>.db.txt``.  Any run that tunes (``MIOPEN_FIND_ENFORCE=3``) writes
``<base>.HIP.<version>_<tweak>.udb.txt``.  MIOpen before 3.2 (ROCm 6.2) has sqlite instead, which is not read.  Grammar:
ROCm/MIOpen ``tools/sqlite2txt``, ``src/include/miopen/sqlite_db.hpp``.

A row states *that* a solver is tuned for a convolution, but not how fast it is.  So it is a measurement with status
``no_time``.  ``raw`` holds the parameters, whose meaning only the solver knows.  ``key_text`` holds the key.

The key holds only the sizes and the layout of the first tensor (x for F, dy for B and W).  So the sizes of the other
tensor are unknown.  To compare a whole convolution with a row, compare its ``perf_key_of`` with the key.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import Emission, FileFormat, Head, Origin, Outcome, Source, Writer
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.miopen.db_names import facts_of_name, file_name, recognised
from logparse.libraries.miopen.find_db import count_unread_lines
from logparse.libraries.miopen.perf_db_items import KEY, ORIGIN, perf_key_of, read_record
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.model import ConvProblem, Fact, Override, Problem
from logparse.quoting import Shell

_FIRST_TEXT = [3, 2]
"""The first MIOpen version (ROCm 6.2) that reads perf-dbs (databases of tuned parameters) as text."""
_SYSTEM = regex(r"(?P<base>gfx\w+?)\.db\.txt")


def of_batch_norms(name: str) -> bool:
    """Return True if a MIOpen database of this name holds the parameters of batch normalisations.

    Keys of batch normalisations have another form than keys of convolutions.
    """
    return name.startswith("batchnorm_")


# ---------------------------------------------------------------------------------------------------- reading


def recognise(head: Head) -> bool:
    return recognised(head, r"(?<![fk])\.u?db\.txt$", lambda text: KEY.fullmatch(text) is not None)


def facts_of_file(name: str) -> list[Fact]:
    """Return the facts in the file name of a perf-db (MIOpen's database of tuned parameters).

    The name states the GPU, and sometimes the build of MIOpen.
    """
    system = _SYSTEM.fullmatch(name)
    # MIOpen uses the same word for the device in all its names.  A find-db's name also holds the backend.
    facts = facts_of_name(name if system is None else f"{system['base']}.HIP.fdb.txt")
    return facts if system is None else [x for x in facts if x.name != "backend"]


def read(source: Source) -> Iterator[Outcome]:
    """Read a perf-db (MIOpen's database of tuned parameters): the facts in its file name, and then every line.

    Lines about batch normalisations are counted but not used.
    """
    if of_batch_norms(source.name):
        with source.open() as stream:
            yield from count_unread_lines(stream)
        return
    facts = facts_of_file(source.name)
    kind = re.search(r"(u?)db\.txt$", source.name)
    facts += [Fact("perf_db", "user" if kind[1] else "system")] if kind else []
    if facts:
        yield Outcome("fact", facts, lines=0)
    offset, first = 0, dict[str, int]()
    with source.open() as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.removesuffix(b"\n").decode("utf-8", "backslashreplace")
            earlier = first.setdefault(line.partition("=")[0], number)
            yield replace(read_record(line, number, earlier), at=offset)
            offset += len(raw)


# ---------------------------------------------------------------------------------------------------- writing


def accepts(override: Override) -> bool:
    """Return True if tuned parameters of the override's solver are known, so that they can be written to a perf-db."""
    miopen = isinstance(override.problem, ConvProblem) and override.solution.library == "miopen"
    # Parameters of the wanted solver or of the second solver in reserve must be known.
    return miopen and any(x.parameters is not None for x in _with_fallback(override))


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """Return the key of a convolution in MIOpen's perf-db, its database of tuned parameters.

    Returns None for other operations, or if a field that the key needs is unknown.
    """
    return perf_key_of(problem) if isinstance(problem, ConvProblem) else None


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> Sequence[Emission]:
    """Write a user perf-db (MIOpen's database of tuned parameters), so that solvers run with the measured parameters.

    This database goes with a user find-db (database of solvers), which chooses the solvers.  Parameters are copied from
    measured rows and never invented.  If several overrides (chosen solvers) have the same key and solver, the
    parameters of the fastest are written.

    Raises EmissionError in these cases:

    * A fact that the file's name needs is unknown.
    * MIOpen is older than 3.2 (ROCm 6.2).  Its user perf-db is sqlite, and it would not read a text file.
    * The key of a convolution is unknown.
    * The parameters hold a semicolon or a line end, which no row can hold.
    """
    version = [int(x) for x in target.get("miopen_version", "").split(".")[:2] if x.isdigit()]
    if version and version < _FIRST_TEXT:
        raise EmissionError(
            f"perf-db: logparse writes text, but MIOpen {target['miopen_version']} reads only sqlite (text since "
            "MIOpen 3.2, ROCm 6.2); instead tune the solver on the target machine with MIOPEN_FIND_ENFORCE=3"
        )
    by_key: dict[str, dict[str, str]] = {}
    every = (x for override in overrides for x in _with_fallback(override))
    for override in sorted(every, key=lambda x: math.inf if x.time_us is None else x.time_us):
        if override.parameters is None:
            continue
        text = own_key(override, target)
        if text is None or any(x in override.parameters for x in ";\n\r"):
            what = f"perf-db key for {override.problem.text}" if text is None else "row can hold these parameters"
            raise EmissionError(f"no {what}: {override.solution.text}")
        by_key.setdefault(text, {}).setdefault(override.solution.id, override.parameters)
    if not by_key:
        return []
    name = file_name(target, "udb")
    rows = ((text, ";".join(map(":".join, solvers.items()))) for text, solvers in sorted(by_key.items()))
    lines = [f"{text}={row}\n" for text, row in rows]
    return [Emission(name, "".join(lines).encode(), _USE)]


def _with_fallback(override: Override) -> Sequence[Override]:
    return (override,) if override.fallback is None else (override, override.fallback)


def own_key(override: Override, target: Mapping[str, str]) -> str | None:
    """Return the text under which MIOpen's perf-db (file of tuned parameters) stores a convolution.

    ``override`` names the convolution and the wanted solver.
    """
    # If the convolution was read from MIOpen's find-db, the text is made from the one that MIOpen itself wrote there.
    # Otherwise it is made from the convolution.
    with contextlib.suppress(ValueError):
        return perf_key_of(problem_from_key(override.key_text or ""))
    return key(override.problem, target)


_USE = Shell("""\
# MIOpen user perf-db {name}
# This file holds tuned parameters for solvers of the user find-db (the .ufdb.txt file) in the same folder.
# If a solver has no parameters here, MIOpen takes its parameters from the system's perf-db.
# If MIOpen cannot use the parameters of a solver, it warns "Invalid config loaded from Perf Db".
export MIOPEN_USER_DB_PATH={folder}
""")


FORMAT = FileFormat(
    name="miopen-perf-db",
    about="MIOpen's perf-db (*.db.txt, *.udb.txt): tuned parameters of solvers, without times",
    recognise=recognise,
    read=read,
    origins=(Origin(ORIGIN, evidence=False),),
    named=True,
    order="if several records have the same key, the first record is used",
    seen="shipped for gfx942",
    example="2x1000x13x13x…xNCHWxFP16xW=ConvBinWinograd…:257",
    gives="which solvers are tuned",
    how="MIOpen's own files are `*.db.txt`, yours are `*.udb.txt` after a job with `MIOPEN_FIND_ENFORCE=3`",
)
WRITER = Writer(
    name="miopen-perf-db",
    about="MIOpen's user perf-db (*.udb.txt): tuned parameters for the solvers of the user find-db",
    accepts=accepts,
    key=key,
    write=write,
    file="`gfx942130.HIP.<version>.udb.txt`",
    read_when=(
        "the conditions in the row `miopen-find-db` hold (folder, name, `MIOPEN_FIND_MODE`), because MIOpen reads this "
        "perf-db together with the user find-db. Some solvers in the find-db need the parameters in the perf-db"
    ),
)
