"""The step's own time on the screen: what limits it, its ceilings, and what it takes under an action."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.analyzer import Settings
from analyzers.job.step.answer import Ceilings, StepAnswer, StepUnknown
from analyzers.recommend.documents import report
from analyzers.recommend.ranking import recommend
from analyzers.recommend.render import about
from analyzers.recommend.screen import Written, screen
from analyzers.recommend.step_times import StepTimes, step_times
from analyzers.recommend.verdict import Todo, gain, kernels_text, verdict
from tests.analyzers import test_host_bound
from tests.analyzers.example import everything
from tests.analyzers.recommend.test_apply_module import padded


def answer(then_us: float, limit: str = "host", waits: float = 0.04) -> StepAnswer:
    """A step of 54.9 ms, which an infinitely fast host would do in 30.9; a part waits for kernels, one for data."""
    data = 0.8 if limit == "data loading" else 0.0
    return StepAnswer(
        now_us=54_900,
        then_us=then_us,
        low_us=then_us,
        high_us=then_us,
        limit=limit,
        host_factor=0.64,
        rough=True,
        shares={"host": 1 - waits - data, "kernels": waits, "communication": 0.0, "data loading": data},
        ceilings=Ceilings(54_900, 30_900, 54_900, 54_900 * (1 - waits)),
    )


def test_what_limits_the_step_is_a_line_of_its_own() -> None:
    found = replace(recommend(everything(), Settings()), step=StepTimes(answer(54_900), {}))
    limit = "limited by the host (96%), simulated, roughly: an infinitely fast host 30.9 ms"
    assert verdict(found).limit == f"{limit} (the host in 0.64 of its traced time)"
    lines = screen(found, Written(Path("overrides")))
    assert sum("the step is limited by the host" in x for x in lines) == 1
    assert len(lines) <= 15


def test_why_the_step_is_unknown_stands_where_its_limit_would() -> None:
    assert verdict(recommend(everything(), Settings())).limit == ""
    assert isinstance(step_times(everything(), ()), StepUnknown)
    found = replace(recommend(everything(), Settings()), step="trace.json: no calls of the runtime")
    lines = screen(found, Written(Path("overrides")))
    assert "  the step is not simulated: trace.json: no calls of the runtime" in lines


def test_the_step_now_and_then_stands_beside_the_gpu_time() -> None:
    todo = Todo("a", "b", 27_500, 24_100, "step", "measured", "a setting", step_us=(54_900, 54_900))
    assert (gain(todo), kernels_text(todo), todo.gained_us) == ("54.9 → 54.9 ms", "kernels 27.5 → 24.1 ms: ", 0)
    todo = replace(todo, step_us=None)
    assert (gain(todo), kernels_text(todo), todo.gained_us) == ("27.5 → 24.1 ms", "", 3_400)


def test_a_finding_gains_the_step_no_more_than_kernels_of_no_time() -> None:
    """A search saves 15.7 ms, and kernels of no time 4 % of a step of 54.9; at 0.4 % the finding is not shown."""
    found = recommend(everything(), Settings(steps=1))
    held = replace(found, step=StepTimes(answer(54_900), {}))
    (search,) = (x for x in verdict(held).todo if x.name == "search")
    assert (gain(search), kernels_text(search)) == ("up to 2.2 of 54.9 ms", "kernels 16.4 ms → 657 µs: ")
    assert dict(verdict(held).gains)["not measured"] == search.gained_us, "how much of that comes true is not known"
    hidden = verdict(replace(found, step=StepTimes(answer(54_900, waits=0.004), {})))
    assert ([x.name for x in hidden.unseen], [x.name for x in hidden.todo]) == (["search"], ["overrides"])
    lines = screen(replace(found, step=StepTimes(answer(54_900, waits=0.004), {})), Written(Path("overrides")))
    assert lines[-1].endswith(" · 1 too small to show in the step")
    small = replace(answer(54_900, "kernels", waits=1.0), now_us=2e6, ceilings=Ceilings(2e6, 2e6, 2e6, 0.0))
    assert "search" in [x.name for x in verdict(replace(found, step=StepTimes(small, {}))).todo], "it waits for kernels"


def test_a_step_that_waits_for_data_says_so() -> None:
    """Its GPU idles for 230 of 500 µs, and an infinitely fast host would gain less than data that is there."""
    tables = test_host_bound.traced(540.0, profiler_steps="2", profiler_steps_us="1000.0", untraced_step_us="500.0")
    found = recommend(tables, Settings())
    assert verdict(found).headline.startswith("the host is the limit; ")
    waits = replace(answer(500, "data loading"), now_us=500, ceilings=Ceilings(500, 490, 500, 500))
    seen = verdict(replace(found, step=StepTimes(waits, {})))
    assert seen.headline == "data loading is the limit; a step of 500 µs can save up to 230 µs (not measured)"
    assert [(x.name, x.what) for x in seen.todo] == [("host-bound", "the GPU waits for data")]


def test_a_step_is_called_what_the_user_calls_it() -> None:
    tables = test_host_bound.traced(540.0, profiler_steps="2", profiler_steps_us="1000.0", untraced_step_us="500.0")
    found = replace(recommend(tables, Settings()), word="request", step=StepTimes(answer(500), {}))
    assert verdict(found).headline.startswith("the host is the limit; a request of 500 µs can save ")
    assert any(x.startswith("  a request, 500 µs: ") for x in screen(found, Written(Path("overrides"))))
    assert "* the request is limited by the host" in report(found, ())


@pytest.mark.parametrize(
    ("then_us", "limit", "why"),
    [
        (54_900, "host", "the host launches in 54.9 ms what the GPU computes in 2.5 ms"),
        (54_900, "data loading", "it waits for data loading"),
        (54_900, "kernels", None),
        (50_000, "host", None),
    ],
)
def test_an_action_behind_the_host_says_that_the_step_does_not_get_faster(
    then_us: float, limit: str, why: str | None
) -> None:
    under = {"padded_output": answer(then_us, limit)}
    found = replace(recommend(everything(), Settings()), actions=(padded(4.0),), step=StepTimes(answer(54_900), under))
    lines = about(found, Todo("padded_output", "", 0, 0, "step", "measured", ""))
    sentences = [str(x).strip() for x in lines if "does not get faster" in str(x)]
    assert sentences == ([] if why is None else [f"the step does not get faster: {why}"])
    assert any("the step, simulated: 54.9 ms → " in str(x) for x in lines)
