"""``logparse tune``: whatever interrupts it, the store holds what was done, and the verbs go on from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from analyzers.analyzer import Settings
from analyzers.recommend.verb import advise
from analyzers.tune import verb
from analyzers.tune.verb import Tuning, tune
from logparse.ingest import ingest
from logparse.store import Store
from tests.conftest import SAMPLES

TRACE = SAMPLES / "traces/job.trace.json"


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def captured(
    folder: Path, command: object, settings: object, open_store: Callable[[], Store], say: object, **more: Any
) -> Any:
    """A job whose trace is the sample's, in a file of its own."""
    trace = folder / f"{more['run']}.trace.json"
    trace.write_bytes(TRACE.read_bytes())
    ingest([str(trace)], open_store(), run=more["run"])
    return 0, []


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """All stages without a job and a device, with a setting to apply."""
    setting = SimpleNamespace(action=SimpleNamespace(name="tf32"))
    monkeypatch.setattr(verb, "capture", partial(captured, tmp_path))
    monkeypatch.setattr(verb, "replay", lambda store, options: SimpleNamespace(interrupted=False))
    monkeypatch.setattr(verb, "without_a_change", lambda actions: (setting,))
    monkeypatch.setattr(verb.with_overrides, "applied", lambda command, out, environ: (command, environ))
    return monkeypatch


@pytest.mark.parametrize(
    "stage",
    [
        *("capture", "replay", "again"),
        *(pytest.param(x, marks=pytest.mark.nightly) for x in ("advise", "write", "verify_actions")),
    ],
)
def test_an_interrupt_leaves_a_store_from_which_the_verbs_go_on(
    stage: str, stages: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    if stage == "again":
        first = partial(captured, tmp_path)
        stages.setattr(verb, "capture", lambda *x, **y: (interrupted if "-after" in y["run"] else first)(*x, **y))
    else:
        stages.setattr(verb, stage, interrupted)
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {}) == 130
    assert said[-1].startswith("interrupted: ")
    if stage == "capture":
        assert store.sources().empty
        assert "`logparse ingest " in said[-1], "there is no run to replay yet"
        return
    run = store.latest_run()
    assert run.startswith("tune-")
    assert run.removesuffix("-after") in said[-1]
    assert advise(store, Settings(), run).run == run


def test_a_replay_that_was_interrupted_names_the_verb_that_goes_on(
    stages: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    stages.setattr(verb, "replay", lambda store, options: SimpleNamespace(interrupted=True))
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {}) == 130
    assert f"logparse replay --store {store.url} --run tune-" in said[-1]


def without_kernels(folder: Path, *_: object, **more: Any) -> Any:
    """A job on a CPU: its trace holds no kernel, and no library logged a call."""
    (folder / "trace_1.json").write_text('{"schemaVersion": 1, "traceEvents": []}', encoding="utf-8")
    return 0, ingest([str(folder / "trace_1.json")], _[2](), run=more["run"])  # type: ignore[operator]


@pytest.mark.parametrize("wrote", [True, False])
def test_a_machine_without_a_gpu_states_what_cannot_be_done(
    wrote: bool, stages: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    def job(*given: Any, **more: Any) -> Any:
        code, read = without_kernels(tmp_path, *given, **more)
        return code, [replace(x, path="trace_1.json.gz") for x in read] if wrote else []

    stages.setattr(verb, "capture", job)
    stages.setattr(verb, "replay", interrupted)
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path / "overrides", steps=7), said.append, {}) == 0
    why = "1 process was traced and ran none (on a CPU?)" if wrote else "which takes 14 steps of an optimizer"
    assert "no GPU kernel was traced, so no action can be weighed" in said[-2]
    assert why in said[-2]
    assert said[-1] == "no call was counted either: nothing is left to replay, and nothing is changed"


def test_a_job_that_fails_names_the_verbs_that_go_on_from_its_logs(
    stages: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    stages.setattr(verb, "capture", lambda *x, **y: (3, captured(tmp_path, *x, **y)[1]))
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {}) == 3
    assert said[-1].startswith("the job ended with exit code 3: it is not run again; the store holds")
    assert f"`logparse replay --store {store.url} --run {store.latest_run()}` goes on" in said[-1]
