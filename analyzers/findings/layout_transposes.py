"""Find convolutions in NCHW for which the library transposes the tensors in every call, because its kernels need NHWC.

The transposes are MIOpen's and CK's ``batched_transpose``, cuDNN's ``nchwToNhwcKernel`` and ``nhwcToNchwKernel``. They
run inside the operator, around the main kernel. The trace shows their time, which a model in channels_last would save.
The saving is still an estimate, because other operators change with the layout, and the main kernels may change, too.
Transposes of convolutions that are in NHWC already are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from analyzers.evidence.comparison import LAYOUT
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import RESTS_ON, Analyzer
from analyzers.job.gpu_time import TRANSPOSE, gpu_time, traced_us
from logparse.model import ChangeProgram, ConvProblem, Evidence, Finding, Gain, problem_from_text
from logparse.text import duration

NAME = "layout-transposes"
MEASURE = " `logparse replay` measures the convolutions in both layouts (torch:layout=NHWC)."
_CHANGES = "call model.to(memory_format=torch.channels_last)"
_ON_ROCM = " and set PYTORCH_MIOPEN_SUGGEST_NHWC=1"
_GRANTED = "all transposes disappear and nothing else changes"
_LEAST_SHARE = 0.01


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Report that transposes take much of the time of all convolutions. Another memory layout would avoid them.

    Much is at least the fraction ``min_gain``, and at least 1 % of the traced GPU time.
    """
    rows = _in_traces(tables)
    turned = _keep_transposes(rows)
    everything, lost = float(rows["total_us"].sum()), float(turned["total_us"].sum())
    if not lost or lost < max(settings.min_gain * everything, _LEAST_SHARE * (traced_us(tables) or 0.0)):
        # There is only one report, because the layout can only be changed for the whole model.
        return []
    whole, part = (x.groupby("direction")["total_us"].sum() for x in (rows, turned))
    time = gpu_time(tables, settings.steps)
    steps, step = (time.steps, f" per {time.word}") if time and time.steps else (1.0, "")
    each = ", ".join(f"{_format_part_of_whole(part[d] / steps, whole[d] / steps)} in {d}" for d in sorted(part.index))
    problems = int(turned["problem"].nunique())
    return [
        Finding(
            analyzer=NAME,
            message=(
                "transposes to NHWC and back take "
                f"{_format_part_of_whole(lost / steps, everything / steps)}{step} in the NCHW convolutions "
                f"({lost / everything:.0%}; by direction: {each}), because {problems} of {rows['problem'].nunique()} "
                "different convolutions run NHWC kernels"
            ),
            in_run=Gain(everything, everything - lost),
            evidence=Evidence(details={"transposes_us": lost, "convolutions_us": everything, RESTS_ON: _GRANTED}),
            remedy=ChangeProgram("channels_last", "use channels_last", _CHANGES + _ON_ROCM * _are_of_rocm(turned)),
            advice=LAYOUT + MEASURE,
        )
    ]


def transposed(tables: Tables) -> Mapping[str, float]:
    """Map the text of each convolution in NCHW whose calls transpose tensors to the time of its transposes, µs."""
    sums = _keep_transposes(_in_traces(tables)).groupby("problem")["total_us"].sum()
    return {str(text): float(us) for text, us in sums.sort_index().items()}


def _in_traces(tables: Tables) -> pd.DataFrame:
    """Return the kernels of all convolutions in NCHW in the run's traces, with the ``direction`` of each."""
    rows = tables.kernels[(tables.kernels["run"] == tables.run) & tables.kernels["problem"].notna()]
    # Sorted, so that sums do not depend on the order of rows.
    rows = rows.sort_values(["source_id", "problem", "kernel", "total_us"])
    directions = {text: _in_nchw(str(text)) for text in rows["problem"].unique()}
    rows = rows.assign(direction=rows["problem"].map(directions))
    return rows[rows["direction"].notna()]


def _keep_transposes(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["kernel"].astype(str).str.contains(TRANSPOSE)]


def _are_of_rocm(transposes: pd.DataFrame) -> bool:
    """Tell whether transposes were made by MIOpen or CK. cuDNN's have other names."""
    return bool(transposes["kernel"].astype(str).str.contains("batched_transpose", regex=False).any())


def _format_part_of_whole(part_us: float, whole_us: float) -> str:
    return f"{duration(float(part_us))} of {duration(float(whole_us))}"


def _in_nchw(text: str) -> str | None:
    """Return the direction (F, B or W) of a convolution whose tensors are in NCHW. None for all other operators."""
    problem = problem_from_text(text) if text.startswith("conv ") else None
    if isinstance(problem, ConvProblem) and problem.in_layout in ("NCHW", "NCDHW"):
        return problem.direction
    return None


ANALYZER = Analyzer(
    name=NAME,
    about="transposes of the memory layout within convolutions in NCHW (in traces)",
    worth="estimated as the time of the transposes, which channels_last removes",
    find=find,
    place=5,
)
