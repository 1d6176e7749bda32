"""Proposed solutions that compute less precisely than what they replace.

What is seen: the best known solution of a problem, which ``suboptimal-pick`` proposes, has a larger error than the
pick, or its name shows that k is split and partial sums are stored in between.  Why it matters: it costs digits, not
time; a training run that diverges two days after an override was applied is the costliest result of all.

Two signs, each from evidence only:

* *error*: a replay checked ‖out − ref‖ / ‖ref‖ against a double-precision reference for both solutions
  (``docs/measurement.md``); the proposed one's is more than ``WORSE`` times the pick's.  Rounding errors of equally
  careful kernels differ by less: the sum over k grows as √k for any order of random terms (Higham, "Accuracy and
  Stability of Numerical Algorithms", §2.8), so a factor is a narrower accumulator, not another order.
* *split-K*: several workgroups sum parts of one output and the parts are stored in between.  cuBLASLt logs it as
  ``splitk=``, with ``reduction=OUTPUT_TYPE`` where the parts are rounded to the output type first
  (``cublasLtReductionScheme_t``); Tensile in the kernel's name (``_GSU4_``; ``_GSUASB_`` single buffer: with atomics,
  so results also differ from run to run).

A narrower *compute type* needs no sign: it is a field of the problem, and a row that was measured with another one is
never linked to the call (``logparse/links.py``), so it is not proposed.  There is no finding where no error was
measured and the names contain no sign: that is no proof of equal precision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.times.comparison import BY_DEFAULT, MEASURED
from analyzers.times.joins import DEFAULT_TEXT
from analyzers.times.picks import compare
from logparse.model import Evidence, Finding, problem_from_text

NAME = "precision-risk"
WORSE = 4.0
"""A proposed solution whose error is more than this many times the pick's is a risk."""
ERROR = r"relative error ([0-9.eE+-]+)"
"""How a replay writes the checked error of a row (``measure/trial.py``)."""
_SPLIT = re.compile(r"(?:^|[:,])splitk=(\d+)|_GSU(\d+)(?=_|$|\s)")
_ROUNDED = re.compile(r"reduction=OUTPUT_TYPE")
_ATOMIC = re.compile(r"_GSUASB")


def errors(measurements: pd.DataFrame) -> dict[tuple[str, str], float]:
    """(problem, solution) → the largest relative error that a replay checked; failed rows are not in it."""
    rows = measurements[measurements["error"].notna() & (measurements["status"] == "ok")]
    found = rows["error"].astype(str).str.extract(ERROR, expand=False).astype("float64")
    rows = rows.assign(relative=found).dropna(subset=["relative"])
    largest = rows.groupby(["problem", "solution"])["relative"].max().reset_index()
    columns = (largest["problem"], largest["solution"], largest["relative"])
    return {(str(p), str(s)): float(x) for p, s, x in zip(*columns, strict=True)}


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per proposed solution that shows a sign, beside the finding that proposes it."""
    known, names = errors(tables.measurements), _names(tables)
    rows = compare(tables, settings)
    rows = rows[rows["problem"].isin(_suspicious(tables, known, names))]
    rows = rows[(rows["best"] != rows["pick"]) & rows["pick_us"].notna() & (rows["pick_us"] > rows["best_us"])]
    out = []
    for row in rows.sort_values(["problem", "pick"]).to_dict("records"):
        signs = _signs({str(key): value for key, value in row.items()}, known, names)
        if signs:
            out.append(_finding({str(key): value for key, value in row.items()}, signs))
    return out


def _names(tables: Tables) -> dict[str, str]:
    """Solution → all texts that name it: its own, and those that a library build gives it."""
    out: dict[str, str] = {}
    rows = tables.solutions[["solution", "name", "kernel_name"]].sort_values(["solution", "name", "kernel_name"])
    for solution, *texts in rows.itertuples(index=False):
        out[str(solution)] = " ".join([out.get(str(solution), ""), *(x for x in texts if isinstance(x, str))])
    return out


def _suspicious(tables: Tables, known: Mapping[tuple[str, str], float], names: Mapping[str, str]) -> set[str]:
    """The problems that any sign could be of: a find-db has hundreds of thousands of others."""
    rows = tables.measurements
    gemms = rows[(rows["kind"] == "gemm").to_numpy(dtype=bool)]
    split = [x for x in gemms["solution"].unique() if _parts(f"{x} {names.get(x, '')}") > 1]
    problems = {p for p, _ in known} | set(gemms.loc[gemms["solution"].isin(split), "problem"])
    return problems | set(tables.links.loc[tables.links["problem"].isin(problems), "other"])


def _signs(row: Mapping[str, object], known: Mapping[tuple[str, str], float], names: Mapping[str, str]) -> list[str]:
    best, pick, measured = str(row["best"]), str(row["pick"]), str(row["measured"])
    if row["basis"] not in (MEASURED, BY_DEFAULT):
        pick = DEFAULT_TEXT
    signs = []
    mine, theirs = known.get((measured, best)), known.get((measured, pick))
    if mine is not None and theirs is not None and mine > WORSE * theirs:
        times = f", {mine / theirs:.3g} times" if theirs else ","
        signs.append(f"its relative error is {mine:.1e}{times} that of {pick} ({theirs:.1e})")
    one, other = f"{best} {names.get(best, '')}", f"{pick} {names.get(pick, '')}"
    if _parts(one) > _parts(other):
        how = "rounded to the output type in between" if _ROUNDED.search(one) else "summed afterwards"
        atomic = "; by atomics, so results differ from run to run" if _ATOMIC.search(one) else ""
        signs.append(f"it splits k into {_parts(one)} parts, {how}{atomic}")
    return signs


def _parts(text: str) -> int:
    """The number of parts into which k is split by a solution's texts; 1 where they state none."""
    return max((int(x) for found in _SPLIT.findall(text) for x in found if x), default=1)


def _finding(row: Mapping[str, object], signs: Sequence[str]) -> Finding:
    problem = problem_from_text(str(row["problem"]))
    calls = None if pd.isna(row["calls"]) else round(float(str(row["calls"])))  # type: ignore[call-overload]
    return Finding(
        analyzer=NAME,
        problem=problem,
        message=f"before using {row['best']}: {'; '.join(signs)}",
        calls=calls,
        evidence=Evidence(
            pick=str(row["pick"]),
            best=str(row["best"]),
            source_id=str(row["source_id"]),
            measured=str(row["measured"]),
            details={"signs": tuple(signs)},
        ),
        advice="Compare a few steps of the loss with and without the override before a long run.",
    )


ANALYZER = Analyzer(name=NAME, about="proposed solutions that compute less precisely than what they replace", find=find)
