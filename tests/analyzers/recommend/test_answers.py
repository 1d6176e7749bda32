"""Tests of what a reader needs for a right answer: one unit on a screen, the surest saving first, names of wholes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.evidence.trials import Tried
from analyzers.findings import host_bound
from analyzers.job.gpu_time import gpu_time
from analyzers.job.step.answer import BESIDE_LOGS, Ceilings
from analyzers.recommend import screen
from analyzers.recommend.documents import report
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.step_times import StepTimes
from analyzers.recommend.todo import gain, granted, hosts_text, kernels_text
from analyzers.recommend.todo_from_findings import groups
from analyzers.recommend.verb import with_step
from analyzers.recommend.verdict import gains_text, verdict
from logparse.ingest import ingest
from logparse.model import Gain
from logparse.store import open_store
from tests.analyzers.evidence.test_trials import seen
from tests.analyzers.findings import (
    test_exposed_communication,
    test_host_bound,
    test_layout_transposes,
    test_odd_output,
)
from tests.analyzers.recommend.test_step_times import answer
from tests.conftest import CORPUS, SAMPLES, needs_corpus


def read(folder: Path, *files: Path, settings: Settings | None = None) -> Recommendation:
    store = open_store(folder / "store", create=True)
    ingest([str(x) for x in files], store, run="before", jobs=1)
    tables = tables_to_analyse(store)
    found = recommend(tables, settings or Settings())
    return found if found.gpu_time is None else with_step(found, tables)


@needs_corpus
def test_stated_steps_divide_every_number_of_the_screen(tmp_path: Path) -> None:
    """With ``--steps 2`` all times of a trace without marked steps are of one step.

    In an earlier version, only the savings of findings were divided, and the other rows still were of the whole trace.
    """
    trace = CORPUS / "h200" / "gpt2.trace.json.gz"
    whole = read(tmp_path / "whole", trace)
    half = read(tmp_path / "half", trace, settings=Settings(steps=2))
    one, two = verdict(whole), verdict(half)
    assert (one.unit, two.unit, one.whole) == ("run", "step", "the whole trace")
    assert "saves probably ≈ 5.91 of ≈ 26.3 ms (22%), or" in one.headline
    assert "saves probably ≈ 2.95 of ≈ 13.2 ms a step (22%), or" in two.headline
    assert one.hint == (
        "times are of the whole trace; an optimizer stepped 2 times, so for times of a step: `--steps 2`"
    )
    assert not two.hint
    assert two.whole_us == pytest.approx((one.whole_us or 0.0) / 2)
    assert [x.name for x in two.todo] == [x.name for x in one.todo]
    assert [x.gained_us for x in two.todo] == pytest.approx([x.gained_us / 2 for x in one.todo])
    assert {x.unit for x in two.todo} == {"step"}
    assert two.limit.startswith("a faster host probably saves little: at most 0.471 of ≈ 13.2 ms (4%), but ")
    [remark] = (x for x in half.remarks if x.analyzer == host_bound.NAME)
    assert "of 16.2 ms per step" in remark.message


@needs_corpus
def test_what_a_step_gains_of_faster_kernels_is_simulated(tmp_path: Path) -> None:
    """The list has what a step gains of faster kernels: less than the kernels save, if the host is the limit."""
    # In an earlier version, three matrix products of GPT-2 promised 6 ms, of which the step would gain 1 ms. But the
    # profiler slowed the host, which is the limit. So a step may gain anything between.
    conclusion = verdict(read(tmp_path, CORPUS / "h200" / "gpt2.trace.json.gz"))
    first, *bounds = conclusion.todo
    assert (first.title, first.slowed_by, first.at_most) == (
        "pad the output layer to 50,304 outputs",
        "the host",
        False,
    )
    assert gain(first) == "saves probably ≈ 5.91 ms (or 0.962)"
    assert screen.format_savings([first]) == ["≈ 5.91 ms (or 0.962)"]
    assert "saves, probably " in screen.heading(conclusion.todo, conclusion)
    assert kernels_text(first) == (
        "the changed kernels 7.93 → 1.92 ms (−6.01 ms), the job probably ≈ 26.3 → 20.4 ms without the profiler, 32.4 → "
        "31.4 ms if it did not slow the host, for which the GPU then waits"
    )
    [host] = [x for x in bounds if x.waits]
    assert screen.format_savings([host]) == ["≤ 0.942 ms (or ≤ 7)"]
    assert hosts_text(host) == (
        "probably ≤ 0.942 of ≈ 26.3 ms without the profiler, ≤ 7 of 32.4 ms if it did not slow the host"
    )
    # All savings are parts of one time.
    assert {x.usual and x.usual.now_us for x in conclusion.todo} == {first.usual and first.usual.now_us}
    assert granted(first) == "assumes that padded products reach 50% of the roofline"
    assert [x.certainty for x in bounds] == ["upper bound only"] * len(bounds)
    assert conclusion.headline == (
        "pad the output layer to 50,304 outputs: saves probably ≈ 5.91 of ≈ 26.3 ms (22%), or 0.962 of 32.4 ms "
        "(3%) if the profiler did not slow the host, estimated; 2 more things to do"
    )
    assert gains_text(conclusion).startswith("Do not add up the savings: several depend on what limits the job")


@needs_corpus
def test_a_change_that_saves_nothing_with_any_host_is_not_listed(tmp_path: Path) -> None:
    """Faster kernels do not help a ViT whose host is the limit even at twice its traced speed."""
    conclusion = verdict(read(tmp_path, CORPUS / "tracelens" / "mi300_vit.json.gz"))
    [measured] = [x for x in conclusion.unseen if x.title.startswith("measure 3 GEMMs and convolutions")]
    assert gain(measured) == "saves ≈ 0 ms"
    assert hosts_text(measured) == "", "nor does the step of the trace get shorter"


@needs_corpus
def test_what_limits_the_step_without_communication_is_stated(tmp_path: Path) -> None:
    conclusion = verdict(read(tmp_path, CORPUS / "tracelens" / "mi300_resnet_train.json.gz"))
    assert conclusion.limit == (
        "communication limits a step: for 11.8 of 18.8 ms (62%) the GPU only communicates or waits for a slower rank. "
        "Without communication, the host would limit it, which needs 15.9 ms to launch the work: hiding all of it "
        "saves only 2.85 ms (simulated; the profiler slowed the host, so without the profiler more may be saved)"
    )
    # The limit is the reason for the first thing to do.
    assert conclusion.headline == (
        "communication is the limit (the next one: the host); hide communication behind computation: ≈ 18.8 → "
        "15.9 ms a step (−15%), estimated; 1 more thing to do"
    )
    assert [x.name for x in conclusion.todo] == ["exposed-communication", "layout-transposes"]
    assert granted(conclusion.todo[1]) == "assumes that all transposes disappear and nothing else changes"
    assert "logparse try channels_last -- JOB" in "\n".join(
        screen.screen(
            read(tmp_path / "again", CORPUS / "tracelens" / "mi300_resnet_train.json.gz"), screen.Written(tmp_path)
        )
    )


def test_a_host_that_the_profiler_slowed_bounds_no_saving_of_communication() -> None:
    """If the next limit is a host that the profiler slowed, the saving may be larger, so it is no upper bound."""
    # The GPU only communicates for 150 of 500 µs. Without communication, the simulated step still takes 400 µs.
    ceilings = Ceilings(500, 500, 400, 500, next_limit="host")
    now = replace(answer(500, "communication"), now_us=500, host_factor=1.0, ceilings=ceilings)
    found = recommend(test_exposed_communication.planted(), Settings())
    slowed = replace(found, step=StepTimes(now, {}))
    [todo] = verdict(slowed).todo
    assert (gain(todo), todo.certainty, kernels_text(todo)) == ("≈ 500 → 400 µs", "estimated", "")
    assert granted(todo) == "assumes that all communication is hidden"
    assert verdict(slowed).limit.endswith(
        "(simulated; the profiler slowed the host, so without the profiler more may be saved)"
    )
    assert "upper bound" not in gains_text(verdict(slowed))
    # A host whose time without the profiler is known bounds the saving, and so do the kernels.
    assert found.gpu_time is not None
    timed = replace(slowed, gpu_time=replace(found.gpu_time, profiled=False))
    kernels = replace(now, ceilings=replace(ceilings, next_limit="kernels"))
    for bounded in (timed, replace(found, step=StepTimes(kernels, {}))):
        [todo] = verdict(bounded).todo
        assert (gain(todo), todo.certainty, granted(todo)) == ("up to 100 of 500 µs", "upper bound only", "")
        assert "may be larger" not in verdict(bounded).limit
    # While libraries write logs, the host is slower, too.
    logged = replace(now, notes=(BESIDE_LOGS,))
    [todo] = verdict(replace(timed, step=StepTimes(logged, {}))).todo
    assert todo.certainty == "estimated"


@pytest.mark.parametrize(("ratio", "listed"), [(1.1, None), (0.75, "measured in the job")])
def test_a_trial_in_the_job_says_more_than_an_estimate(ratio: float, listed: str | None) -> None:
    """If padding did not help in the running job, the estimate that it helps is not listed."""
    found = recommend(test_odd_output.planted(), Settings())
    [estimated] = [x for x in verdict(found).todo if x.name == "padded_output"]
    assert estimated.certainty == "estimated"
    processes = tuple(seen(ratio, noise=0.001, seed=seed) for seed in (0, 1))
    tried = replace(found, tried=(Tried("padded_output", processes),))
    shown = {x.name: x.certainty for x in verdict(tried).todo}
    assert shown.get("padded_output") == listed


@needs_corpus
def test_each_thing_to_do_is_on_the_screen(tmp_path: Path) -> None:
    """If the screen has no room for what to change, the last things to do have one line each, and none is left out."""
    found = read(tmp_path, CORPUS / "h200" / "gpt2.trace.json.gz")
    lines = screen.screen(found, screen.Written(tmp_path / "overrides"))
    assert len(lines) <= screen.LINES
    end = next(i for i, x in enumerate(lines) if " measure  " in x)
    assert [x[:3] for x in lines[:end] if x[:3] in (" 1 ", " 2 ", " 3 ")] == [" 1 ", " 2 ", " 3 "]
    # The first rows say how.
    assert any(x.startswith("     set the number of outputs (the vocabulary size) to 50,304") for x in lines)
    assert "--run before --explain N" in lines[-1]
    # The table of the report has 2.74 ms and more, and the list above it 0.962 ms.
    table = "The savings in this table are of the kernels alone. The list above states how much faster the job becomes."
    assert table in report(found, [])
    assert "of the whole trace; the changed kernels 7.93 → 1.92 ms (−6.01 ms), the job probably" in report(found, [])
    assert table not in report(replace(found, step=None), [])


def test_explain_names_the_places_in_the_program(tmp_path: Path) -> None:
    found = read(tmp_path, SAMPLES / "traces" / "stacks.trace.json")
    lines = [x for x in screen.explain_change(found, "below-roofline") if isinstance(x, str)]
    assert "NN 768×2048×3072 bf16_r: called from model.py:20 (attention), model.py:12 (forward)" in lines
    assert "TN 3072×2048×768 bf16_r: called from model.py:20 (attention)" in lines
    assert "* place in the program: called from model.py:20 (attention)" in report(found, [])
    assert not any(
        "called from" in x for x in screen.explain_change(replace(found, callers=()), "1") if isinstance(x, str)
    )


def test_a_small_estimate_does_not_come_before_a_large_bound(tmp_path: Path) -> None:
    """If the GPU is idle for 97 % of the trace, a saving of 1 % is not the first thing in the list."""
    found = read(tmp_path, SAMPLES / "graph" / "decode.trace.json")
    todo = verdict(replace(found, step=None)).todo
    assert [x.sureness for x in todo] == ["unknown", "estimated"]


def test_processes_whose_calls_are_added_up_are_named(tmp_path: Path) -> None:
    names = ("hipblaslt_rank0_4242.log", "hipblaslt_rank1_4243.log", "bench_output.txt")
    conclusion = verdict(read(tmp_path, *(SAMPLES / "hipblaslt" / x for x in names)))
    assert " ms a run (sum of 2 processes), measured alone" in conclusion.headline
    assert "saves (sum of 2 processes) " in screen.heading(conclusion.todo, conclusion)


@pytest.mark.parametrize(("log", "calls"), [("hipblaslt_rank0_4242.log", {6, 12, 18, 30}), ("hints_4242.log", {None})])
def test_a_log_is_from_the_device_of_its_process(log: str, calls: set[int | None], tmp_path: Path) -> None:
    """A log that names no GPU is taken to be from the GPU that another log of the same process names."""
    # The run also has a tuning file of another GPU. Without a log of the process that names the GPU, it is unknown on
    # which GPU the calls ran, so they are not multiplied by measured times.
    files = (
        f"hipblaslt/{log}",
        "hipblaslt/tuning_cache.txt",
        "miopen/miopen_cmd_4242.log",
        "miopen/gfx942130.HIP.fdb.txt",
    )
    found = read(tmp_path, *(SAMPLES / x for x in files))
    assert {x.calls for x in found.findings if x.analyzer == "slow-wrw"} == calls


def test_an_action_is_explained_by_the_name_on_the_screen() -> None:
    found = recommend(test_layout_transposes.planted(), Settings())
    by_number = screen.explain_change(found, "1")
    assert verdict(found).todo[0].title == "use channels_last"
    assert [screen.explain_change(found, x) for x in ("layout-transposes", "channels_last", "use channels_last")] == [
        by_number
    ] * 3


def test_what_a_faster_host_usually_saves_is_said_with_the_most_that_it_saves() -> None:
    tables = test_host_bound.make_trace_tables(540.0, profiler_steps="2", profiler_steps_us="1000.0")
    now = replace(answer(500), now_us=500, host_factor=1.0, ceilings=Ceilings(500, 320, 500, 450, half_host_us=400))
    found = replace(recommend(tables, Settings()), step=StepTimes(now, {}))
    assert verdict(found).limit == (
        "a faster host probably saves at most 80 of ≈ 400 µs (20%), but at most 180 of 500 µs (36%) if the profiler "
        "did not slow the host. In 11 measured jobs it slowed the host 1.4 to 3.6 times (here taken as 2); "
        "`logparse capture --trace 2 -- JOB` measures it"
    )
    # One long gap, which no faster host shortens.
    gap = replace(now, ceilings=Ceilings(500, 500, 500, 500, half_host_us=500))
    assert "usually" not in verdict(replace(found, step=StepTimes(gap, {}))).limit
    # Without a gain of a host twice as fast, the words about the other host have no words before them to lean on.
    kernels = replace(now, ceilings=Ceilings(450, 320, 500, 450, half_host_us=500))
    assert (
        "(10%); an infinitely fast host saves at most 180 of 500 µs (36%); 50 µs of idle time"
        in verdict(replace(found, step=StepTimes(kernels, {}))).limit
    )
    half = StepTimes(now, {}, {"x": Gain(500, 400)}).of_part(2)
    assert (half.now.now_us, half.now.ceilings.half_host_us, half.expected["x"]) == (250, 200, Gain(250, 200))


def test_stated_steps_are_not_of_a_trace_beside_logs(tmp_path: Path) -> None:
    """If a log counts the calls, the stated steps are of the log. The trace keeps its own number of steps."""
    store = open_store(tmp_path / "store", create=True)
    ingest([str(SAMPLES / "traces/job.trace.json")], store, run="trace", jobs=1)
    tables = tables_to_analyse(store)
    assert [x.steps for x in (gpu_time(tables), gpu_time(tables, 4)) if x is not None] == [2.0, 4.0]
    logged = replace(tables, workload=tables.workload.assign(calls_from="bench"))
    assert [x.steps for x in (gpu_time(logged), gpu_time(logged, 4)) if x is not None] == [2.0, 2.0]


def test_groups_have_the_name_of_the_thing_to_do_first(tmp_path: Path) -> None:
    found = read(tmp_path, SAMPLES / "traces" / "job.trace.json")
    assert {key.partition("\n")[0] for key in groups(found)} <= {
        x.name for x in (*verdict(found).todo, *verdict(found).unseen)
    }
