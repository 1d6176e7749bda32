"""Tests of the printed lines about a step: what limits it, how fast it could be, and what a change would gain."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analyzers.actions.job import job_of
from analyzers.evidence.tables import Settings
from analyzers.findings import host_bound
from analyzers.job.step.answer import Ceilings, StepAnswer, StepUnknown
from analyzers.recommend.apply_module import module
from analyzers.recommend.documents import report
from analyzers.recommend.ranking import recommend
from analyzers.recommend.render import action_lines, explain_todo
from analyzers.recommend.screen import LINES, Written, explain_change, screen, split_lines
from analyzers.recommend.step_times import StepTimes, step_times
from analyzers.recommend.todo import Todo, gain, kernels_text
from analyzers.recommend.verb import with_step
from analyzers.recommend.verdict import Verdict, verdict
from analyzers.recommend.whole import Share
from logparse.model import ChangeProgram, Gain
from tests.analyzers import build
from tests.analyzers.example import everything
from tests.analyzers.findings import test_host_bound, test_missed_fusion
from tests.analyzers.ingested import product
from tests.analyzers.recommend.test_apply_module import padded


def answer(then_us: float, limit: str = "host", waits: float = 0.04) -> StepAnswer:
    """Return the result of simulating a change that shortens a step from 54.9 ms to ``then_us``.

    * ``waits`` is the fraction of the step that waits for kernels.
    * ``limit`` says what limits the step.
    """
    # With an infinitely fast host, the step would take 30.9 ms. If limit is "data loading", 80 % of the step waits for
    # data.
    data = 0.8 if limit == "data loading" else 0.0
    return StepAnswer(
        now_us=54_900,
        then_us=then_us,
        low_us=then_us,
        high_us=then_us,
        limit=limit,
        host_factor=0.64,
        launch_us=4.0,
        rough=True,
        shares={"host": 1 - waits - data, "kernels": waits, "communication": 0.0, "data loading": data},
        ceilings=Ceilings(54_900, 30_900, 54_900, 54_900 * (1 - waits)),
    )


def test_what_limits_the_step_is_a_line_of_its_own() -> None:
    found = replace(recommend(everything(), Settings()), step=StepTimes(answer(54_900), {}))
    limit = "the host limits a step; an infinitely fast host saves 24 of 54.9 ms (44%)"
    assert verdict(found).limit == f"{limit} (simulated, roughly, host time × 0.64)"
    lines = screen(found, Written(Path("overrides")))
    assert sum("the host limits a step" in x for x in lines) == 1
    assert len(lines) <= LINES


def test_why_the_step_is_unknown_stands_where_its_limit_would() -> None:
    assert verdict(recommend(everything(), Settings())).limit == ""
    assert isinstance(step_times(everything(), ()), StepUnknown)
    found = replace(recommend(everything(), Settings()), step="trace.json: no calls of the runtime")
    lines = screen(found, Written(Path("overrides")))
    assert "  a step is not simulated: trace.json: no calls of the runtime" in lines


TODO = Todo(
    name="padded_output",
    title="use padded_output",
    what="",
    gain=Gain(0, 0),
    unit="step",
    sureness="measured alone",
    remedy=ChangeProgram("padded_output", "use padded_output"),
    changes="",
)


def test_the_step_now_and_then_stands_beside_the_gpu_time() -> None:
    todo = replace(TODO, gain=Gain(27_500, 24_100), step=Gain(54_900, 54_900))
    assert (gain(todo), kernels_text(todo), todo.gained_us) == (
        "54.9 → 54.9 ms",
        "the changed kernels 27.5 → 24.1 ms",
        0,
    )
    todo = replace(todo, step=None)
    assert (gain(todo), kernels_text(todo), todo.gained_us) == ("27.5 → 24.1 ms", "", 3_400)


def test_a_gain_is_at_most_the_time_of_all_kernels() -> None:
    """logparse never promises more for faster kernels than what a step gains if all kernels take no time."""
    # Faster kernels would save 15.7 ms of kernel time. But even if kernels took no time, the step of 54.9 ms would
    # become only 4 % shorter, so at most 4 % is promised. If it would become only 0.4 % shorter, nothing is proposed.
    found = recommend(everything(), Settings(steps=1))
    held = replace(found, step=StepTimes(answer(54_900), {}))
    (search,) = (x for x in verdict(held).todo if x.name == "search")
    assert (gain(search), kernels_text(search)) == (
        "up to 2.2 of 54.9 ms",
        "the changed kernels 16.4 ms → 657 µs (−15.7 ms), of which the job gains at most 2.2 ms, because the host is "
        "the limit",
    )
    assert dict(verdict(held).gains)["unknown"] == search.gained_us, "how much of that comes true is not known"
    hidden = verdict(replace(found, step=StepTimes(answer(54_900, waits=0.004), {})))
    assert ([x.name for x in hidden.unseen], [x.name for x in hidden.todo]) == (["search"], ["overrides"])
    lines = screen(replace(found, step=StepTimes(answer(54_900, waits=0.004), {})), Written(Path("overrides")))
    assert lines[-1].startswith("rest     1 with too small an effect on the step · ")
    small = replace(answer(54_900, "kernels", waits=1.0), now_us=2e6, ceilings=Ceilings(2e6, 2e6, 2e6, 0.0))
    assert "search" in [x.name for x in verdict(replace(found, step=StepTimes(small, {}))).todo], "it waits for kernels"


def test_a_step_that_waits_for_data_needs_faster_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a step waits for its data, the advice is to load them sooner, not to speed up the host."""
    # The GPU idles for 230 of 500 µs. An infinitely fast host would gain less of them than data that arrive in time.
    tables = test_host_bound.make_trace_tables(
        540.0, profiler_steps="2", profiler_steps_us="1000.0", untraced_step_us="500.0"
    )
    found = recommend(tables, Settings())
    assert verdict(found).headline.startswith("the host is the limit; ")
    waits = replace(answer(500, "data loading"), now_us=500, ceilings=Ceilings(500, 490, 500, 500))
    conclusion = verdict(replace(found, step=StepTimes(waits, {})))
    assert conclusion.headline == (
        "data loading is the limit; relieve the host (CPU): up to 230 of 500 µs a step, how much of it can really be "
        "saved is not known"
    )
    assert [x.name for x in conclusion.todo] == ["host-bound"]
    monkeypatch.setattr("analyzers.recommend.step_times.step_times", lambda *_: StepTimes(waits, {}))
    found = with_step(found, tables)
    for text in (report(found, ()), "\n".join(map(str, explain_change(found, "host-bound")))):
        assert "and waits for data in the rest" in text
        assert host_bound.LOADER in text
        assert not re.search("waits for the host|CUDA graphs", text)
    assert "feed the GPU with data sooner: up to 230 of 500 µs a step" in verdict(found).headline


def test_only_the_time_under_the_loader_is_claimed_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """If data loading explains only a part of the idle time, the remark and its bound claim only this part."""
    # The GPU idles for 230 of 500 µs, and the step waits for data in 20 % of the step: 100 µs.
    tables = test_host_bound.make_trace_tables(
        540.0, profiler_steps="2", profiler_steps_us="1000.0", untraced_step_us="500.0"
    )
    shares = {"host": 0.15, "kernels": 0.65, "communication": 0.0, "data loading": 0.2}
    waits = replace(answer(500, "data loading"), now_us=500, shares=shares, ceilings=Ceilings(500, 260, 500, 500))
    monkeypatch.setattr("analyzers.recommend.step_times.step_times", lambda *_: StepTimes(waits, {}))
    found = with_step(recommend(tables, Settings()), tables)
    (remark,) = (x for x in found.remarks if x.evidence.waits_for == "host")
    assert "and is idle in the rest, 100 µs per step of it because it waits for data: " in remark.message
    assert remark.evidence.at_most_us == 200, "of two steps"
    assert "feed the GPU with data sooner: up to 100 of 500 µs a step" in verdict(found).headline


def test_a_saving_is_a_part_of_the_step_without_the_profiler() -> None:
    """A saving is compared with the step's time without the profiler, not with the longer step in the trace."""
    # The step takes 500 µs under the profiler and 450 µs without, as a simulation shows. A saving of 131 µs is
    # simulated for the step without the profiler, so it is stated as "131 of 450 µs".
    tables = test_host_bound.make_trace_tables(540.0, profiler_steps="2", profiler_steps_us="1000.0")
    now = replace(answer(450), now_us=450, ceilings=Ceilings(450, 319, 450, 450))
    found = verdict(replace(recommend(tables, Settings()), step=StepTimes(now, {})))
    assert "up to 131 of 450 µs a step" in found.headline
    assert "an infinitely fast host saves 131 of 450 µs (29%) (simulated as 450 µs, roughly" in found.limit


def test_headline_and_limit_name_the_same_gain() -> None:
    """If the GPU waits for the host (CPU), two lines of the output promise the same gain.

    One line is the headline ("relieve the host (CPU)"), the other says what limits the step.
    """
    # In an earlier version, they promised 8.5 ms and 7 ms for the same trace of GPT-2, in which no step is marked.
    now = replace(answer(1_000), now_us=1_000, ceilings=Ceilings(1_000, 700, 1_000, 540))
    found = replace(recommend(test_host_bound.make_trace_tables(540.0), Settings()), step=StepTimes(now, {}))
    conclusion = verdict(found)
    assert "relieve the host (CPU): up to 300 µs of 1 ms for the whole trace" in conclusion.headline
    assert "an infinitely fast host saves 300" in conclusion.limit
    other = replace(found, step=StepTimes(replace(now, now_us=500, ceilings=Ceilings(500, 350, 500, 270)), {}))
    assert "460" in verdict(other).headline, "the simulation is of another time than that of all traces"


@pytest.mark.parametrize(
    ("gap_us", "row", "rest"),
    [
        (800.0, "up to 100 µs of 1 ms for the whole trace", "at most 100 µs"),
        (895.0, "worth unknown, because the GPU was idle in one long gap", "nearly nothing"),
        (400.0, "up to 890 µs of 1 ms for the whole trace", ""),
    ],
)
@pytest.mark.parametrize("factor", [0.64, 1.0])
def test_the_limit_names_the_gap_that_the_thing_to_do_leaves_out(
    gap_us: float, row: str, rest: str, factor: float
) -> None:
    """If most idle time is one gap, the line about the limit also says what a faster host saves without it.

    The thing to do leaves the gap out, because it may not happen again. The simulated host has it.
    """
    idle = {"gpu_idle_us": '{"nothing": 900.0}', "gpu_gaps": f'[{{"us": {gap_us}, "why": "nothing"}}]'}
    ceilings = Ceilings(1_000, 110, 1_000, 900, half_host_us=555 if factor == 1 else None)
    now = replace(answer(1_000), now_us=1_000, host_factor=factor, ceilings=ceilings)
    found = recommend(test_host_bound.make_trace_tables(100.0, **idle), Settings())
    conclusion = verdict(replace(found, step=StepTimes(now, {})))
    says = f"; without one gap of {gap_us:.0f} µs, which may not happen again, a faster host saves {rest}"
    assert says in conclusion.limit if rest else "gap" not in conclusion.limit
    if factor != 1:  # Else the headline is about the host as it usually is without the profiler.
        assert row in conclusion.headline


def test_at_least_three_kinds_of_work_are_named() -> None:
    """The line that divides a step's time by kinds of work names three kinds besides the largest one.

    Only the other kinds are joined as "the rest".
    """
    # In an earlier version, communication took 11.8 of 18.8 ms, and all other kinds were joined to 6.41 ms of "others".
    kinds = (("exposed communication", 11_761.0), ("normalisation", 2_156.0), ("convolutions", 1_947.0),
             ("transposes and copies", 1_450.0), ("element-wise", 711.0), ("idle", 667.0))  # fmt: skip
    conclusion = Verdict("", tuple(Share(*x) for x in kinds), 18_800.0, "step", ())
    text = " ".join(" ".join(split_lines(conclusion)).split())
    assert "normalisation 2.16 ms · convolutions 1.95 ms · transposes and copies 1.45 ms · the rest 711 µs" in text


def test_a_run_whose_calls_nothing_timed_gets_the_line_that_times_them() -> None:
    calls = build.tables(workload=[build.work(product(1024, 512, 512).text, 27)])
    lines = screen(recommend(calls, Settings()), Written(Path("overrides"), store="a store"))
    assert lines[-1] == "measure  logparse replay --store 'a store' --run r"


def test_a_step_is_called_what_the_user_calls_it() -> None:
    steps = {"profiler_steps": "2", "profiler_steps_us": "1000.0"}
    tables = test_host_bound.make_trace_tables(
        540.0, **steps, unit="request", **{"unit:a": '{"count": 9, "traced": 2, "us": [500.0]}'}
    )
    now = replace(answer(500), now_us=500, ceilings=Ceilings(500, 270, 500, 500))
    found = replace(recommend(tables, Settings()), step=StepTimes(now, {}))
    assert "the host is the limit; relieve the host (CPU): up to 230 of 500 µs a request" in verdict(found).headline
    shown = [
        *screen(found, Written(Path("overrides"))),
        report(found, ()),
        *map(str, explain_change(found, "host-bound")),
    ]
    assert any(x.startswith("  a request, 500 µs: ") for x in shown)
    assert "* the host limits a request" in report(found, ())
    assert not re.findall(r".*\bsteps?\b.*", "\n".join(shown))
    assert job_of(tables, Settings()).word == "request", "of which its actions have it"
    result = replace(padded(4.0), steps=2.0, word="request")
    [emitted] = [module([result], step_gain=lambda _: Gain(500.0, 400.0))]
    assert emitted is not None
    assert "ms of GPU time per request; the request 0.500 -> 0.400 ms" in emitted.data.decode()
    assert action_lines([result], found.gpu_time)[0] == "actions, with the GPU time of the whole job per request:"


def test_what_was_traced_by_time_is_a_window() -> None:
    tables = test_host_bound.make_trace_tables(540.0, profiler_steps="1", profiler_steps_us="1000.0", unit="time")
    found = replace(recommend(tables, Settings()), step=StepTimes(answer(500), {}))
    shown = "\n".join([*screen(found, Written(Path("overrides"))), report(found, ())])
    assert "a window, 1 ms: " in shown
    assert "name the function whose calls are timed without the profiler (`logparse capture --unit`)" in shown, (
        "nothing times a window"
    )
    assert not re.findall(r".*\bsteps?\b.*", shown)


def test_gain_is_not_limited_by_a_host_that_the_profiler_slowed() -> None:
    """If the profiler slowed the host, the simulated step with kernels of no time does not limit a promised gain.

    Such a simulation shows how long the host alone would take. But if the GPU's queue is full, the host waits in each
    launch, so that it seems as slow as the kernels. For example, a step of 2.07 s on an H200 waited for its kernels,
    but the simulation said that it would take 2.00 s even if kernels took no time.
    """
    tables = test_host_bound.make_trace_tables(990.0, profiler_steps="1", profiler_steps_us="1000.0")
    tables = replace(tables, facts=pd.concat([tables.facts, fusible([400.0])]))
    slow = replace(answer(1_000, "kernels", waits=0.03), now_us=1_000, ceilings=Ceilings(1_000, 1_000, 1_000, 970))
    found = replace(recommend(tables, Settings()), step=StepTimes(slow, {}))
    [todo] = verdict(found).todo
    assert (gain(todo), todo.bounded) == ("up to 400 µs of 1 ms", False)
    known = replace(found, gpu_time=replace(found.gpu_time, profiled=False))  # type: ignore[type-var]
    [todo] = verdict(known).todo
    assert (gain(todo), kernels_text(todo)) == ("up to 30 µs of 1 ms", ""), "what the kernels save is not known"


def fusible(us: list[float]) -> pd.DataFrame:
    made = test_missed_fusion.tail(product(1024, 512, 512).text, ["relu"], 4, us)
    return build.tables(facts=[made | {"source_id": "trace"}]).facts


@pytest.mark.parametrize(
    ("traced", "headline"),
    [
        (False, "fuse the epilogue: worth unknown, because no measurement shows how much a call would save"),
        (True, "fuse the epilogue: up to 200 of 500 µs a step, how much of it can really be saved is not known"),
    ],
)
def test_the_saving_of_a_fusion_comes_from_the_traced_steps(traced: bool, headline: str) -> None:
    """How much a fusion can save is computed per step from the traced steps, not from the calls in the log."""
    # An elementwise operation could be fused into the matrix product before it. Its kernel takes 400 µs in the two
    # traced steps together. So at most 400 / 2 = 200 µs per step can be saved. The log has 5,448 calls.
    text = product(1024, 512, 512).text
    calls = [build.call(text, count=4, category="profiler", source_id="trace")]
    given = replace(build.tables(calls=calls, workload=[build.work(text, 5_448)]), facts=fusible([400.0]))
    if traced:
        marked = test_host_bound.make_trace_tables(990.0, profiler_steps="2", profiler_steps_us="1000.0")
        given = replace(given, kernels=marked.kernels, facts=pd.concat([marked.facts, given.facts]))
    conclusion = verdict(recommend(given, Settings()))
    assert conclusion.headline == headline
    assert [(x.name, x.sureness) for x in conclusion.todo] == [("missed-fusion", "unknown")]


def test_what_makes_no_step_faster_is_not_listed() -> None:
    found = recommend(
        test_host_bound.make_trace_tables(990.0, profiler_steps="2", profiler_steps_us="1000.0"), Settings()
    )
    kept = replace(found, actions=(padded(4.0),), step=StepTimes(answer(500), {"padded_output": answer(54_900)}))
    conclusion = verdict(kept)
    assert conclusion.headline == "the host is the limit; nothing worth doing: 1 with too small an effect on the step"
    assert (conclusion.todo, [x.name for x in conclusion.unseen]) == ((), ["padded_output"])
    faster = replace(found, actions=(padded(4.0),), step=StepTimes(answer(500), {"padded_output": answer(54_000)}))
    assert [x.name for x in verdict(faster).todo] == ["padded_output"], "1.6 % of the step"


def test_tiny_savings_are_not_listed() -> None:
    """A finding whose saving is tiny compared with the step is not listed.

    In an earlier version, a saving of 0.07 µs was listed for a step of 48 ms on an H200.
    """
    found = recommend(everything(), Settings(steps=1))
    held = replace(answer(54_900, "kernels", waits=1.0), now_us=54_900_000.0, ceilings=Ceilings(*[5e7] * 3, 0.0))
    conclusion = verdict(replace(found, step=StepTimes(held, {})))
    assert "search" in [x.name for x in conclusion.unseen], "15.7 of 54,900 ms"


PART = "saved in its kernels"


@pytest.mark.parametrize(
    ("then_us", "limit", "why"),
    [
        (54_900, "host", "does not get faster: the host launches in 52.7 ms what the GPU computes in 2.5 ms"),
        (54_900, "data loading", "does not get faster: it waits for data loading"),
        (
            54_000,
            "host",
            f"gains 900 µs of the 2.5 ms {PART}: the host launches in 52.7 ms what the GPU computes in 2.5 ms",
        ),
        (54_900, "kernels", None),
        (50_000, "host", None),
    ],
)
def test_an_action_behind_the_host_says_what_the_step_gains_of_it(then_us: float, limit: str, why: str | None) -> None:
    under = {"padded_output": answer(then_us, limit)}
    found = replace(recommend(everything(), Settings()), actions=(padded(4.0),), step=StepTimes(answer(54_900), under))
    lines = explain_todo(found, TODO)
    sentences = [str(x).strip() for x in lines if str(x).strip().startswith("the step ")]
    assert sentences == ([] if why is None else [f"the step {why}"])
    assert any("the step, simulated: 54.9 ms → " in str(x) for x in lines)


def test_idle_time_that_cannot_be_gained_is_stated() -> None:
    """If only a part of the GPU's idle time can be gained, the text about the limit says how much."""
    # The GPU idles for 230 of the step's 500 µs. With an infinitely fast host, the step would still take 450 µs,
    # because then its kernels limit it. So only 500 − 450 = 50 µs can be saved.
    tables = test_host_bound.make_trace_tables(
        540.0, profiler_steps="2", profiler_steps_us="1000.0", untraced_step_us="500.0"
    )
    bounded = replace(answer(500), now_us=500, ceilings=Ceilings(500, 450, 500, 500))
    conclusion = verdict(replace(recommend(tables, Settings()), step=StepTimes(bounded, {})))
    [todo] = conclusion.todo
    assert todo.gain == Gain(500, 450)
    assert "an infinitely fast host saves 50 of 500 µs (10%)" in conclusion.limit
