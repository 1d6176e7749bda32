"""Products for which torch.compile timed a kernel of its own against the library's, and the library's was slower.

Inductor's autotuning times PyTorch's operator (the *extern kernel*: what cuBLASLt, hipBLASLt, rocBLAS or MIOpen picks)
beside Triton, Composable Kernel and CUTLASS.  The loss of a call is the time of the fastest extern kernel less that of
the fastest other one, both of one table: one process, one device, one method (``AUTOTUNE`` rows, pytorch/pytorch
torch/_inductor/select_algorithm.py).  Of several files the least loss counts.  A job that is compiled so has the faster
kernel already; one that runs the product eagerly does not, and a library that loses to a generated kernel is worth a
search.

A table prints its ten fastest rows: where no extern kernel is among them its time is unknown, and the product is only
counted (``TORCHINDUCTOR_AUTOTUNE_NUM_CHOICES_DISPLAYED=100`` shows it).

No saving is claimed: a log of the process that tuned also counts the calls that the tuning made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.times.joins import calls_of, timed
from logparse.model import Evidence, Finding, problem_from_text
from logparse.text import counted

NAME = "extern-kernel"
ORIGIN = "inductor"
"""Origin of the tables' times (``logparse/formats/inductor.py``)."""
_EXTERN = "aten"
_NAMES: Mapping[str, str] = {"triton": "a Triton kernel", "ck": "a kernel of CK", "cutlass": "a kernel of CUTLASS"}
_RESOLUTION_US = 0.1
"""Times are printed in ms with four digits, so a difference of one of the last may be none."""


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """How often the library won, and each product for which it lost."""
    rows = _of_the_run(timed(tables.measurements[tables.measurements["origin"] == ORIGIN]), tables)
    if not len(rows):
        return []
    both = _compared(rows)
    lost = both[both["loss"] > _RESOLUTION_US]
    least = lost.sort_values(["problem", "loss", "source_id"]).drop_duplicates("problem")
    calls = calls_of(tables, least["problem"])
    without = len(rows[["source_id", "problem"]].drop_duplicates()) - len(both)
    return [_distribution(both, lost, without), *_findings(least, calls)]


def _of_the_run(rows: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """What the run timed itself, and what any run timed of its calls."""
    called = set(tables.workload["problem"])
    called |= set(tables.links.loc[tables.links["problem"].isin(called), "other"])
    return rows[(rows["run"] == tables.run) | rows["problem"].isin(called)]


def _compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Of every source and problem the fastest extern kernel (``extern``, ``extern_us``) beside the fastest other one
    (``own``, ``own_us``), and the ``loss``; only where both were timed.
    """
    keys = ["source_id", "problem"]
    rows = rows.sort_values([*keys, "time_us", "solution"])
    extern = rows["library"] == _EXTERN
    sides = []
    for mask, name in ((extern, "extern"), (~extern, "own")):
        first = rows[mask].drop_duplicates(keys)[[*keys, "solution", "library", "time_us"]]
        sides.append(first.rename(columns={"solution": name, "library": f"{name}_library", "time_us": f"{name}_us"}))
    both = sides[0].merge(sides[1], on=keys)
    return both.assign(loss=both["extern_us"].astype("float64") - both["own_us"].astype("float64"))


def _distribution(both: pd.DataFrame, lost: pd.DataFrame, without: int) -> Finding:
    won = int((both["loss"] <= 0).sum())
    details: dict[str, object] = {"products": len(both), "extern_won": won, "extern_lost": len(lost), "alone": without}
    words = [f"torch.compile timed {counted(len(both), 'product')} beside the library's kernel, which won {won:,}"]
    if len(lost):
        ratio = lost["extern_us"].astype("float64") / lost["own_us"].astype("float64") - 1
        details |= {"median_loss": float(ratio.median()), "largest_loss": float(ratio.max())}
        by = ", ".join(f"{name} {n:,}" for name, n in sorted(lost["own_library"].value_counts().items()))
        took = f"it took {ratio.median():.1%} longer (median), at most {ratio.max():.1%}"
        words.append(f"it lost {len(lost):,} ({by}): {took}")
    if without:
        words.append(f"of {without:,} more one side is not among the rows that the tables print")
    return Finding(analyzer=NAME, message="; ".join(words) + ".", evidence=Evidence(details=details))


def _findings(lost: pd.DataFrame, calls: Mapping[str, int]) -> Iterator[Finding]:
    for row in lost.to_dict("records"):
        text, extern_us, own_us = str(row["problem"]), float(row["extern_us"]), float(row["own_us"])
        whose = _NAMES.get(str(row["own_library"]), f"a kernel of {row['own_library']}")
        yield Finding(
            analyzer=NAME,
            problem=problem_from_text(text),
            message=f"the library's {row['extern']} takes {extern_us:.4g} µs, {whose} of torch.compile {own_us:.4g} µs",
            per_call_us=extern_us - own_us,
            calls=calls.get(text),
            evidence=Evidence(
                certainty="measured",
                now_us=extern_us,
                pick=str(row["extern"]),
                best=str(row["own"]),
                best_us=own_us,
                source_id=str(row["source_id"]),
                origin=ORIGIN,
            ),
            advice=_ADVICE,
        )


_ADVICE = (
    'Where the product runs eagerly, torch.compile(mode="max-autotune") takes the faster kernel; and the library is '
    "worth a search for it (TunableOp, logparse replay)."
)

ANALYZER = Analyzer(
    name=NAME, about="products whose library kernel torch.compile timed as slower than its own", find=find
)
