"""Write GEMMs and convolutions of a job as input for the libraries' own benchmark and tuning tools.

==========  ==================================================  ==================================
``as``      file                                                read by
==========  ==================================================  ==================================
bench       ``hipblaslt-bench …`` lines                         a shell
driver      ``MIOpenDriver conv …`` lines                       a shell
untuned     TunableOp's untuned CSV, and a script that tunes    ``torch.cuda.tunable``
==========  ==================================================  ==================================
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from analyzers.evidence.cells import count_of
from analyzers.evidence.joins import calls_by_problem
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Tables
from analyzers.overrides.write import Made, left_out_lines, make
from logparse.errors import EmissionError, InputError
from logparse.libraries.hipblaslt import bench
from logparse.libraries.kinds.format import Emission
from logparse.libraries.miopen import driver
from logparse.libraries.tunableop import untuned
from logparse.lookup.left_out import count_damaged_lines
from logparse.model import DEFAULT, Override, Problem, problem_from_text
from logparse.quoting import Shell, join_code
from logparse.sql import query
from logparse.store import Store
from logparse.target import Facts
from logparse.text import pluralize

STAGES = 3


def of_store(
    store: Store,
    as_: str,
    *,
    run: str | None = None,
    kind: str | None = None,
    n: int | None = None,
    sql: str | None = None,
    target: Facts | None = None,
    begins: Callable[[str], None] = lambda stage: None,
) -> Made:
    """Write the GEMMs and convolutions of a job as input for a library's tool, by default those with the most calls.

    * ``sql``: an SQL SELECT with a column ``problem``. Raises InputError if they cannot be read.
    * ``begins``: called with the name of each stage before it begins. There are at most ``STAGES``.
    """
    begins("reading the store")
    if sql is None:
        tables = tables_of(store, run)
        begins("writing the problems")
        made = export(select(tables, kind or KINDS.get(as_), n), as_, target)
        begins("counting what is left out")
        left_out, lost = _other_kinds(tables, as_, kind), count_damaged_lines(store, tables.run)
        more = len(select(tables, kind or KINDS.get(as_))) - (n or math.inf)
    else:
        table = query(store.url, sql, run=run)
        if "problem" not in table.column_names:
            raise InputError("--sql must give a column problem, e.g. select problem from workload")
        texts = table["problem"].to_pylist()
        begins("writing the problems")
        made, left_out = export([_problem(text) for text in texts[:n]], as_, target), {}
        lost = ""
        more = len(texts) - (n or math.inf)
    left_out |= {"problems beyond the limit of -n": int(more)} if more > 0 else {}
    notes = (f"  left out {lost}",) if lost else ()
    return replace(made, refused=Counter(made.refused) + Counter(left_out), notes=(*made.notes, *notes))


def _other_kinds(tables: Tables, as_: str, kind: str | None) -> dict[str, int]:
    """Count the job's operators that cannot be exported to the chosen file format, by kind of operator.

    For example, a file for hipblaslt-bench has no convolutions. If the user asked for one kind of operator only,
    nothing is counted.
    """
    if kind is not None or as_ not in KINDS:
        return {}
    kinds = tables.workload.drop_duplicates("problem")["kind"].value_counts().to_dict()
    return {f"--to {as_} holds no {_NOUNS.get(str(x), x)}": int(n) for x, n in kinds.items() if x != KINDS[as_]}


_NOUNS = {"conv": "convolution", "grouped": "grouped GEMM", "gemm": "GEMM"}


def _problem(text: object) -> Problem:
    try:
        return problem_from_text(str(text))
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"--sql: {text!r} is not the text of a problem; select the column problem of a view"
        ) from error


def lines(made: Made) -> list[str]:
    """Return lines for the user: how many GEMMs and convolutions were written for the tool, and why others were not."""
    if not made.count and not made.refused:
        return [
            "nothing to export: this format cannot hold any of the chosen matrix products and convolutions",
            *made.notes,
        ]
    left_out = left_out_lines(made.refused, "  left out {count:,}: {reason}")
    return [pluralize(made.count, "problem"), *left_out, *made.notes]


def select(tables: Tables, kind: str | None = None, n: int | None = None) -> list[Problem]:
    """Return the job's GEMMs (``kind`` is ``gemm``) or convolutions (``conv``), the most called first, at most ``n``.

    Without a ``kind``, both are returned.
    """
    work = tables.workload if kind is None else tables.workload[tables.workload["kind"] == kind]
    calls = {str(text): count_of(count) or 0 for text, count in calls_by_problem(work).items()}
    return [problem_from_text(text) for text in sorted(calls, key=lambda text: (-calls[text], text))[:n]]


def export(problems: Sequence[Problem], as_: str, target: Facts | None = None) -> Made:
    """Write the given GEMMs and convolutions as input for a library's benchmark or tuning tool.

    * ``as_``: the format, for example ``bench``. Raises InputError if it is unknown.
    * ``target``: facts about the machine, for ``untuned``.
    """
    if as_ == "untuned":
        # This format depends on PyTorch's version.
        return _make_untuned_file(problems, target or {})
    if as_ not in _LINES:
        raise InputError(f"--to {as_}: must be one of {', '.join(NAMES)}")
    name, write = _LINES[as_]
    texts: dict[Shell, None] = {}
    refused = Counter[str]()
    for problem in problems:
        try:
            command = write(problem)
            refused["another matrix product or convolution has the same command, which is written once"] += (
                command in texts
            )
            texts.setdefault(command)
        except EmissionError as error:
            refused[str(error)] += 1
    made = Emission(name, join_code(Shell("\n"), [*texts, Shell()]).data, Shell("sh {path}"))
    return Made((made,) if texts else (), len(texts), +refused)


KINDS: Mapping[str, str] = {"bench": "gemm", "untuned": "gemm", "driver": "conv"}
"""The kind of operator that each tool runs."""
NAMES = (*KINDS, "bundle", "candidates")
"""The words that the user can give after ``export --to``.

Two of the files are made elsewhere: ``bundle`` by ``analyzers/replay/sharing.py``, and ``candidates`` by
``compare/candidates.py``.
"""

_LINES: Mapping[str, tuple[str, Callable[[Problem], Shell]]] = {
    "bench": ("bench.sh", bench.command),
    "driver": ("driver.sh", driver.command),
}


def _make_untuned_file(problems: Sequence[Problem], target: Facts) -> Made:
    rows = [Override(problem=problem, solution=DEFAULT, target=target) for problem in problems]
    made = make(untuned.WRITER, [x for x in rows if untuned.accepts(x)], target)
    refused = Counter(f"PyTorch's TunableOp does not handle {x.problem.label}" for x in rows if not untuned.accepts(x))
    count = sum(x.data.count(b"\n") for x in made.files[:1])
    return replace(made, count=count, refused=refused + Counter(made.refused))
