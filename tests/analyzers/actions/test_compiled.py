"""Actions against waiting for the host: what they promise at most, and that no saving of GPU time includes it."""

from __future__ import annotations

import pytest

from analyzers.actions import ACTIONS
from analyzers.actions.totals import results, row
from analyzers.analyzer import Settings
from analyzers.job.gpu_time import gpu_time
from analyzers.recommend import apply_module, render_actions
from tests.analyzers.test_host_bound import traced

STEPS = {"profiler_steps": "2", "profiler_steps_us": "1000.0"}


def test_the_time_that_the_gpu_waits_is_the_most_that_is_gained() -> None:
    job = traced(540.0, arch="sm_90", **STEPS)
    found = results(job, ACTIONS, Settings())
    assert [x.action.name for x in found] == ["compiled", "cuda_graphs"]
    for result in found:
        assert (result.saving_us, result.pays, result.loses) == (0.0, False, False)
        assert (result.idle_us, row(result)["idle_us"]) == (460.0, 460.0)
    first, *rest = render_actions.lines(found, gpu_time(job))
    assert first == (
        "actions against waiting for the host, 230 µs of 500 µs per step under the profiler, which slows the host: at "
        "most that is gained by launching less, and what joined kernels save comes on top; no replay measures either "
        "and no sum of GPU time includes them:"
    )
    assert rest[0] == "  compiled: model.compile()"
    made = apply_module.module(found)
    assert made is not None
    text = made.data.decode()
    assert "if 'cuda_graphs' in names:\n        model.compile(mode=\"reduce-overhead\")" in text
    assert "CHOSEN = ()" in text, "applied only where it is named"
    assert made.use.endswith('no action that is not named:  import apply; model = apply.model(model, "compiled")')
    compile(text, "apply.py", "exec")


def test_a_step_timed_without_the_profiler_bounds_the_gain() -> None:
    job = traced(540.0, arch="sm_90", untraced_step_us="400.0", **STEPS)
    first, *_ = render_actions.lines(results(job, ACTIONS, Settings()), gpu_time(job))
    assert first.startswith("actions against waiting for the host, 130 µs of 400 µs per step: at most that is gained")


@pytest.mark.parametrize(
    ("busy", "facts"),
    [
        (900.0, {"arch": "sm_90"}),  # the GPU is busy
        (540.0, {"arch": "sm_90", "graph_launches": "7"}),  # graphs are launched already
        (540.0, {"backend": "CPU"}),
    ],
)
def test_where_they_do_not_help_they_are_not_offered(busy: float, facts: dict[str, str]) -> None:
    assert results(traced(busy, **STEPS, **facts), ACTIONS, Settings()) == []
