"""The step's own time on the screen: what limits it, its ceilings, and what it takes under an action."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from analyzers.analyzer import Settings
from analyzers.job.step.answer import Ceilings, StepAnswer, StepUnknown
from analyzers.recommend.ranking import recommend
from analyzers.recommend.screen import Written, screen
from analyzers.recommend.step_times import StepTimes, step_times
from analyzers.recommend.verdict import Todo, gain, kernels_text, verdict
from tests.analyzers.example import everything


def answer(then_us: float, limit: str = "host") -> StepAnswer:
    """A step of 54.9 ms, which an infinitely fast host would do in 30.9."""
    return StepAnswer(
        now_us=54_900,
        then_us=then_us,
        low_us=then_us,
        high_us=then_us,
        limit=limit,
        host_factor=0.64,
        rough=True,
        shares={"host": 0.96, "kernels": 0.04, "communication": 0.0, "data loading": 0.0},
        ceilings=Ceilings(54_900, 30_900, 54_900),
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
