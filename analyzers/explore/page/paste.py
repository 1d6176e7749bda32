"""Two texts for the user to copy, to try the best known kernel for a GEMM or convolution.

* a command that measures the kernel with the library's own benchmark
* a line for the override file, the user's list of kernels
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzers.evidence.comparison import INCOMPARABLE
from analyzers.evidence.origins import TRACE
from analyzers.explore.load.job import PageVerdict
from analyzers.explore.plain_text import sentence
from analyzers.explore.tries import Row
from analyzers.overrides.write import make
from logparse.errors import EmissionError
from logparse.lazy import pd
from logparse.libraries.hipblaslt import bench, tuning_file
from logparse.libraries.hipblaslt.tuning_rules import with_objects
from logparse.libraries.miopen import driver
from logparse.libraries.override_formats import writers_for
from logparse.model import Override, Problem, Solution, problem_from_text
from logparse.text import duration


@dataclass(frozen=True)
class Paste:
    """A text that the user can copy, with a note. If there is no text, the note gives the reason."""

    text: str
    note: str = ""
    name: str = ""
    """Name of the file to which the text belongs."""


@dataclass(frozen=True)
class Advice:
    """Advice about one GEMM or convolution: a sentence, and two texts that the user can copy.

    * ``command``: for the library's benchmark.
    * ``override``: for the user's list of kernels (override file).
    """

    sentence: str
    command: Paste
    override: Paste


def advice(row: Row, facts: Mapping[str, str], verdict: PageVerdict | None = None) -> Advice:
    """Return what to do about one GEMM or convolution, and the texts to copy for it.

    * ``facts``: facts about the machine that runs the benchmark command.
    * The row of the override file is the one that ``recommend`` proposes. If the job makes the call through hipBLASLt's
      C++ object and such calls need a row of their own, there is a second row.
    * ``verdict``: the results of the analyzers. It is missing while they are still at work.
    """
    problem = problem_from_text(str(row["problem"]))
    return Advice(
        _sentence(row) + _in_the_run(row) + _in_another_file(row), _command(problem, facts), _override(row, verdict)
    )


def _sentence(row: Row) -> str:
    finding = row["finding"]
    if isinstance(finding, str) and finding:
        more = row["advice"]
        where = f" (In {row['file']}; no log states the device of this run's calls.)" if row["apart"] else ""
        return sentence(finding) + where + (f" {sentence(more)}" if isinstance(more, str) and more else "")
    if pd.isna(row["best_us"]):
        return (
            "No solution of this problem is timed. Run the command below and ingest its output, or run: logparse "
            "replay."
        )
    best = f"{row['best']} ({duration(row['best_us'])})"
    if row["apart"]:
        return (
            f"The best known solution is {best}, in {row['file']}. No log states the device of this run's calls, and "
            "the run's files name more than one, so this time counts in no sum and no gain is claimed. Next: ingest "
            "the files of the other device as a run of their own (ingest --run)."
        )
    if pd.isna(row["pick_us"]) and row["origin"] == TRACE:
        return (
            f"The trace times the library's own kernels: {duration(row['time_us'])} a call. No other solution is "
            "timed, so there is nothing to compare them with. To time other solutions: logparse replay."
        )
    if pd.isna(row["pick_us"]) and row["best"] == row["pick"] and row["basis"] != INCOMPARABLE:
        return (
            f"Only the pick (the solution that the library chose) is timed, {best}, so there is nothing to "
            "compare it with. To time other solutions: logparse replay."
        )
    if pd.isna(row["pick_us"]):
        return f"The best known solution is {best}. The library's pick is not timed, so no gain is claimed."
    if row["loss_us"] <= 0:
        return f"The job already runs the best known solution, {best}, so there is nothing to do."
    return f"{row['pick']} takes {duration(row['pick_us'])}; the best known solution is {best}."


def _in_the_run(row: Row) -> str:
    """Return a sentence that estimates how long a call of this run would take with the best kernel.

    It is empty if no saving is known, or if the times were measured in this run.
    """
    same = math.isclose(row["time_us"], row["pick_us"], rel_tol=1e-6)
    if pd.isna(row["pick_us"]) or not row["then_us"] < row["time_us"] or same:
        return ""
    return (
        # The best kernel was timed elsewhere, for example alone. So its ratio (best time) / (time of the library's
        # choice) is applied to the time of a call in this run.
        f" In this run a call takes {duration(row['time_us'])}; at the same ratio, the best known solution would "
        f"take {duration(row['then_us'])}."
    )


def _in_another_file(row: Row) -> str:
    """Return a sentence about a backward-weight pass (W) that is slow in one file and faster in another.

    The ratio W ÷ max(F, B) is of the first file. The text is empty if the two times are alike.
    """
    said = row["saving_from"] == "conditional"  # The finding names both files already.
    if said or pd.isna(row["w_us"]) or not row["best_us"] < _MUCH_FASTER * row["w_us"]:
        return ""
    return (
        f" W ÷ max(F, B) is of {row['passes_from']}, where the fastest W takes {duration(row['w_us'])}. The best known "
        f"solution in {row['file']} takes {duration(row['best_us'])}, which is "
        f"{row['best_us'] / row['sibling_us']:.3g} × the slower of F and B."
    )


_MUCH_FASTER = 0.8
"""A time that is less than this fraction of another one needs an explanation."""


def _command(problem: Problem, facts: Mapping[str, str]) -> Paste:
    if facts.get("arch", "").startswith("sm_"):
        return Paste(
            "",
            "there is no bench command, because NVIDIA's libraries have no bench tool; logparse replay measures "
            "this problem",
        )
    try:
        return Paste(driver.command(problem) if problem.kind == "conv" else bench.command(problem))
    except EmissionError as error:
        return Paste("", f"no bench command: {error}")


def _override(row: Row, verdict: PageVerdict | None) -> Paste:
    if verdict is None:
        return Paste("", "there is no override yet, because the analyzers are still running")
    if not isinstance(row["proposed"], str):
        return Paste("", f"None: {_none_proposed(row)}")
    known = json.loads(row["proposed"])
    nouns = {"problem": problem_from_text(known["problem"]), "solution": Solution(**known["solution"])}
    return _write_override_line(Override(**{**known, **nouns}), [problem_from_text(x) for x in verdict.objects])


def _none_proposed(row: Row) -> str:
    """Explain why no override (a kernel to use instead of the library's choice) is proposed for a call."""
    # The reason is found from one row of the page's table, so it is less precise than the reason that recommend gives.
    if pd.isna(row["best_us"]):
        return "nothing is measured"
    if row["aim_us"] < row["best_us"]:
        whose = f" ({row['then_is']})" if isinstance(row["then_is"], str) else ""
        todo = f": “{row['action']}”" if isinstance(row["action"], str) else ""
        return (
            f"an override row can only select a solution that is timed, and the fastest takes "
            f"{duration(row['best_us'])}. The expected {duration(row['aim_us'])}{whose} needs another change{todo}"
        )
    if row["best"] == row["pick"]:
        return (
            "only the solution that the job runs is timed"
            if pd.isna(row["pick_us"])
            else "the job already runs the fastest known solution"
        )
    return "the best known time is not a proven gain, so recommend writes no override"


def _write_override_line(override: Override, objects: Sequence[Problem]) -> Paste:
    """Return the line for the library's override file (the user's list of kernels) that selects a kernel.

    It is a note with the reason if no file format can name the kernel, or if the library would ignore the line.
    """
    facts, reasons = override.target, dict[str, list[str]]()
    for writer in writers_for([override]):
        if not writer.accepts(override):
            continue
        rows = with_objects([override], objects, facts) if writer is tuning_file.WRITER else [override]
        made = make(writer, rows, facts)
        if made.files:
            where = ", ".join(f"{facts[x]}{unit}" for x, unit in (("arch", ""), ("cu_count", " CUs")) if x in facts)
            also = (
                "; the second row is for calls through hipBLASLt's C++ class Gemm, which have a key of their own"
                if len(made.held) > 1
                else ""
            )
            text = made.files[0].data.decode("utf-8", "replace").strip()
            return Paste(text, f"for {where or 'an unknown device'}{also}", made.files[0].name)
        for reason in made.refused:
            reasons.setdefault(reason, []).append(writer.name)
    refused = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return Paste("", f"no override: {refused or f'no override file can hold {override.solution.text}'}")
