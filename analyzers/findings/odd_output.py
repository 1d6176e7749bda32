"""Find slow matrix products of an output layer whose number of outputs is not aligned, such as a vocabulary of 50,257.

The number of outputs is the leading dimension of an operand of each of these products. If its bytes are no multiple of
16, most columns of the operand begin at unaligned addresses, and the library cannot use the kernels that load 16 bytes
at once. A vocabulary of 50,304 is aligned.

* Seen: products of the output layer in a trace that take more than ``efficiency.FAR`` times as long as seems possible.
* Saving: estimated. The padded products are assumed to reach the efficiency that ``below-roofline`` assumes.
* Remedy: a change of the program. A search does not help, because the cause is the size. So ``below-roofline`` and
  ``slower-than-comparable`` leave these calls out.
* Once a replay has timed several kernels for a product, it is not reported here. The action ``padded_output`` then
  states the measured saving.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from analyzers.evidence.joins import calls_of
from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.tables import Settings, Tables, cached_per_run
from analyzers.findings.finding import RESTS_ON, Analyzer
from analyzers.job.efficiency import efficiencies
from analyzers.job.gpu_time import kernels_of_run
from analyzers.job.output_layer import odd_output, round_up_size
from logparse.model import TYPE_BYTES, ChangeProgram, Evidence, Finding, Gain, GemmProblem, problem_from_text

NAME = "odd-output"
ACTION = "padded_output"
"""Name of the action that measures the remedy."""
_ALIGNED = 16
_OPERANDS = {"lda": "a_type", "ldb": "b_type", "ldc": "c_type", "ldd": "d_type"}
_ADVICE = (
    "Any multiple of 64 outputs is aligned. logparse takes {size:,} for the number of outputs of a layer, for example "
    "the size of a vocabulary. If your program has no such layer, {size:,} is another size of your tensors, such as a "
    "number of samples: pad the tensors to {padded:,} there. The action padded_output of `logparse try` pads the layer "
    "in the running job, and times the steps with and without it. `logparse replay` times the padded products alone."
)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Report each slow product of an output layer with an unaligned number of outputs."""
    size, rows = _output_of(tables), _slow_products(tables, settings)
    if size is None or not len(rows):
        return []
    calls = calls_of(tables, rows["problem"])
    return [_finding(row, size, calls.get(str(row["problem"]), int(row["calls"]))) for row in rows.to_dict("records")]


def explained(tables: Tables, settings: Settings) -> frozenset[str]:
    """Return the texts of the products that are slow because of the number of outputs."""
    return frozenset(map(str, _slow_products(tables, settings)["problem"]))


@cached_per_run
def _slow_products(tables: Tables, settings: Settings) -> pd.DataFrame:
    """Return the rows of ``efficiencies`` for the slow products of the output layer, sorted by problem."""
    size = _output_of(tables)
    rows = efficiencies(tables.kernels, tables.calls, tables.facts)
    rows = rows[rows["far"]]
    if size is None or not len(rows):
        return rows.iloc[:0]
    known = picks_vs_best(tables, settings)
    rows = rows[~rows["problem"].isin(known.loc[known["tried"] > 1, "problem"])]
    unaligned = [x for x in rows["problem"].unique() if _is_unaligned(str(x), size)]
    return rows[rows["problem"].isin(unaligned)].sort_values("problem")


@cached_per_run
def _output_of(tables: Tables) -> int | None:
    """Return the number of outputs of the traced job's output layer if it is no multiple of 64. Else None."""
    kernels = kernels_of_run(tables)
    known = [name for name in ("problem", "operator") if name in kernels]
    times = [kernels.groupby(name)["total_us"].sum() for name in known]
    return odd_output([(problem_from_text(str(x)), None, float(us)) for found in times for x, us in found.items()])


def _is_unaligned(text: str, size: int) -> bool:
    """Tell whether ``size`` is the leading dimension of an operand, and its bytes are no multiple of 16."""
    problem = problem_from_text(text)
    if not isinstance(problem, GemmProblem) or problem.members or size not in (problem.m, problem.n, problem.k):
        return False
    found = [x for x in _OPERANDS if x not in problem.irrelevant and getattr(problem, x) == size]
    return any(size * TYPE_BYTES.get(getattr(problem, _OPERANDS[x]) or "", _ALIGNED) % _ALIGNED for x in found)


def _finding(row: Mapping[Hashable, Any], size: int, calls: int) -> Finding:
    gain, padded = Gain(float(row["now_us"]), float(row["within_us"])), round_up_size(size)
    return Finding(
        analyzer=NAME,
        problem=problem_from_text(str(row["problem"])),
        message=(
            f"takes {gain.now_us:,.1f} µs per call, {float(row['least_us']) / gain.now_us:.1%} of the roofline of "
            f"{row['device']}. Rows of {size:,} outputs are not aligned to {_ALIGNED} bytes, so the library cannot use "
            f"its wide kernels; rows of {padded:,} are"
        ),
        per_call=gain,
        calls=calls,
        in_run=gain.times(calls),
        evidence=Evidence(
            source_id=str(row["source_id"]),
            details={RESTS_ON: f"padded products reach {row['reach']:.0%} of the roofline"},
        ),
        remedy=ChangeProgram(
            ACTION,
            f"pad the output layer to {padded:,} outputs",
            f"set the number of outputs (the vocabulary size) to {padded:,}; targets stay below {size:,}",
        ),
        advice=_ADVICE.format(size=size, padded=padded),
    )


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "slow GEMMs of an output layer whose number of outputs is not aligned (in traces), such as a vocabulary of "
        "50,257. The layer can be padded to a multiple of 64"
    ),
    worth=(
        "estimated as the call's time minus the time that the device should need. The action padded_output of "
        "`logparse try` measures the saving in the job"
    ),
    find=find,
)
