"""Write ``kernel_candidates.json``: the kernels that take most of a run's GPU time, for tools that write kernels.

::

    {"run": "serve", "hot_kernels": [{"kernel_id": "k001", "name": "aten::mm", "device_kernel_name": "Cijk_…",
      "kind": "GEMM", "gpu_pct": 31.2, "step_pct": 24.0, "call_count": 640, "duration_us": 18211.4,
      "problem": "TN 4096×512×1024 bf16_r", "override": {"file": "tunableop_results0.csv", "line": 7,
      "solution": "hipblaslt:104377", "engaged": false}}]}

* Each entry has the names of the operator and of the kernel, because a list of operators and a list of kernels have no
  name in common (AMD-AGI/GEAK#337).
* ``gpu_pct``: the kernel's percentage of the time of all kernels that compute.
* ``step_pct``: the kernel's percentage of the wall time of the traced steps. Null if the traces mark no steps.
* ``override``: the row of the given override files that the library uses for this operator and these sizes. Null if no
  row of a file can choose the kernel.
* ``engaged``: true if the run's logs name the solution of this row. Null if the logs name no solution.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from analyzers.compare.verify import Effect, Outcome, verify
from analyzers.evidence.cells import text_of
from analyzers.evidence.tables import Settings, Tables
from analyzers.job.gpu_time import kernels_of_run, part_of, steps
from analyzers.overrides.lint import lint_files, same_calls
from analyzers.overrides.write import Made
from logparse.errors import InputError
from logparse.libraries.kinds.format import Emission
from logparse.model import problem_from_text
from logparse.quoting import Shell
from logparse.target import Facts
from logparse.text import pluralize

_ENGAGED: dict[Effect, bool] = {"applied": True, "as before": True, "not applied": False}
Candidate = dict[str, object]


def candidates(tables: Tables, paths: Sequence[str], target: Facts, n: int | None = None) -> Made:
    """List the kernels that take most of a job's GPU time, as a JSON file for tools that write faster kernels.

    * ``paths``: override files (lists of kernels that the user wants a library to use). If such a list already replaces
      a kernel, the entry says so and names the row.
    * ``n``: the largest number of kernels.

    Raises InputError if the job has no trace, or if a file cannot be read.
    """
    rows = kernels_of_run(tables)
    if not len(rows):
        raise InputError(f"run {tables.run} has no GPU kernels; `logparse capture --trace` records them")
    files, unread = lint_files(paths, target, tables) if paths else ([], [])
    names = [rows[name].map(text_of).fillna("") for name in ("op", "kernel", "problem")]
    sums = rows.groupby(names)[["calls", "total_us"]].sum().sort_values("total_us", ascending=False, kind="stable")
    outcomes = verify(tables, tables, files).outcomes if files else ()
    served = _served([text for _, _, text in sums.index if text], outcomes)
    total, (_, wall_us) = float(sums["total_us"].sum()), steps(tables, Settings())
    found: list[Candidate] = []
    for (op, kernel, text), calls, us in sums.head(n or len(sums)).itertuples():
        found.append(
            {
                "kernel_id": f"k{len(found) + 1:03d}",
                "name": op,
                "device_kernel_name": kernel,
                "kind": part_of(op, kernel, text),
                "gpu_pct": round(100 * us / total, 3),
                "step_pct": round(100 * us / wall_us, 3) if wall_us else None,
                "call_count": round(calls),
                "duration_us": round(us, 3),
                "problem": problem_from_text(text).label if text else None,
                "override": served.get(text),
            }
        )
    data = json.dumps({"run": tables.run, "hot_kernels": found}, indent=1, ensure_ascii=False).encode()
    made = Emission("kernel_candidates.json", data + b"\n", Shell(), shared=True)
    return Made((made,), len(found), {}, notes=(*_notes(found), *(f"  {x.path} {x.why}" for x in unread)))


def _served(texts: Sequence[str], outcomes: Sequence[Outcome]) -> dict[str, Candidate]:
    """For each operator in a trace, return the entry of the override files that the library uses for it, if any."""
    of: dict[str, Candidate] = {
        x.problem: {"file": x.file, "line": x.line, "solution": x.intended, "engaged": _ENGAGED.get(x.effect)}
        for x in outcomes
    }
    # A trace and the logs may name an operator by different texts, so texts that mean the same operator match.
    alike = same_calls([*texts, *of]).values()
    return {text: of[known] for same in alike for known in same if known in of for text in same}


def _notes(found: Sequence[Candidate]) -> Iterator[str]:
    share = sum(float(str(x["gpu_pct"])) for x in found)
    yield f"{pluralize(len(found), 'kernel')}, {share:.1f}% of the GPU time of computation"
    rows = [x["override"] for x in found if isinstance(x["override"], dict)]
    if rows:
        yield (
            f"  {len(rows):,} with an override row, of which {sum(row['engaged'] is True for row in rows):,} took "
            "effect"
        )
