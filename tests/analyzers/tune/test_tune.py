"""Tests of ``logparse tune``.

If it is interrupted at any point, all finished work is kept, and the next call continues from there.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pandas as pd
import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import UnitKind, Units, units
from analyzers.recommend.ranking import recommend
from analyzers.recommend.screen import explain_change
from analyzers.recommend.todo_from_actions import find_hidden_changes
from analyzers.recommend.verb import advise
from analyzers.recommend.verdict import verdict
from analyzers.tune import in_the_job, verb
from analyzers.tune.by_turns import one_by_one, units_in
from analyzers.tune.in_the_job import Answer
from analyzers.tune.verb import Tuning, in_job_lines, tune
from logparse.ingest import ingest
from logparse.libraries.own import job_trials
from logparse.libraries.own.job_trials import Record, Seen
from logparse.model import Finding, Gain, Override, UseRows, problem_from_text, solution_from_text
from logparse.output import UNCHECKED
from logparse.store import Store, open_store
from logparse.text import LINES, line_width
from tests.analyzers.compare.test_actions import Kind, job, steady
from tests.analyzers.example import ARCH, gemm
from tests.conftest import SAMPLES
from tests.golden import Goldens

TRACE = SAMPLES / "traces/job.trace.json"
GOLDEN = Path(__file__).parent / "golden"


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def captured(
    folder: Path, command: object, settings: object, open_store: Callable[[], Store], say: object, **more: Any
) -> Any:
    """Fake for ``logparse capture`` that traces no job, but reads a copy of the sample trace."""
    trace = folder / f"{more['run']}.trace.json"
    trace.write_bytes(TRACE.read_bytes())
    ingest([str(trace)], open_store(), run=more["run"])
    return 0, []


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Replace all stages of ``tune`` by fakes that need no job and no GPU. The only change to apply is TF32."""
    setting = SimpleNamespace(action=SimpleNamespace(name="tf32"))
    monkeypatch.setattr(verb, "capture", partial(captured, tmp_path))
    monkeypatch.setattr(verb, "replay", lambda store, options: SimpleNamespace(interrupted=False))
    monkeypatch.setattr(verb, "run_alone", lambda *x: None)
    monkeypatch.setattr(verb, "without_a_change", lambda *x: (setting,))
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


def test_what_libraries_print_while_it_measures_is_in_a_file_and_counted(
    stages: pytest.MonkeyPatch, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def warns(store: Store, options: object) -> Any:
        os.write(2, b"a library warns\n")
        subprocess.run(["sh", "-c", "echo another; echo a third >&2"], check=True)
        return SimpleNamespace(interrupted=True)

    stages.setattr(verb, "replay", warns)
    said: list[str] = []
    tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {})
    (log,) = (tmp_path / "overrides").glob("tune-*-replay.log")
    assert f"the libraries printed 3 lines: {log}" in said
    assert sorted(log.read_text().splitlines()) == ["a library warns", "a third", "another"]
    assert capfd.readouterr() == ("", "")


def without_kernels(folder: Path, *_: object, **more: Any) -> Any:
    """Fake for ``logparse capture`` of a job on a CPU: the trace has no kernels, and the libraries write no log."""
    (folder / "trace_1.json").write_text('{"schemaVersion": 1, "traceEvents": []}', encoding="utf-8")
    return 0, ingest([str(folder / "trace_1.json")], _[2](), run=more["run"])  # type: ignore[operator]


WINDOWS = ("trace_1_1.json.gz", "trace_1_2.json.gz", "capture_traces/trace_2_g1.json.gz")
KINDS = (UnitKind("a", 12, 1, ()),)
"""Names of the files that two traced periods of one process and the capture of a graph would have."""


@pytest.mark.parametrize(
    ("wrote", "gpu", "ending"),
    [
        (True, False, "tune ends after this run of the job: 1 traced process ran no GPU kernel, and logparse found"),
        (True, True, "1 traced process ran no GPU kernel, so no action can be compared with the whole job"),
        (False, False, "no process wrote a trace, so no action can be compared with the whole job: the job ended"),
    ],
    ids=["on a machine without a GPU", "on a GPU", "without a trace"],
)
def test_a_job_without_gpu_work_states_what_cannot_be_done(
    wrote: bool, gpu: bool, ending: str, stages: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """``tune`` ends after one run of a job that surely did no GPU work, with an exit code of its own."""

    def job(*given: Any, **more: Any) -> Any:
        runs.append(more["run"])
        folder = tmp_path / more["run"]
        folder.mkdir()
        code, read = without_kernels(folder, *given, **more)
        (folder / "facts.json").write_text(json.dumps({"device": "a GPU"} if gpu else {"pytorch_version": "2.13.0"}))
        ingest([str(folder / "facts.json")], store, run=more["run"])
        return code, [replace(x, path=str(tmp_path / name)) for x in read for name in WINDOWS] if wrote else []

    runs: list[str] = []
    stages.setattr(verb, "capture", job)
    stages.setattr(verb, "replay", interrupted)
    stages.setattr(verb, "units", lambda tables: Units("optimizer", "not settled: unit 2 alone was traced", KINDS))
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {}) == UNCHECKED
    sure = wrote and not gpu
    assert len(runs) == (1 if sure else 2), "12 steps are too few"
    assert said[-1 if sure else -2].startswith(ending)
    assert "(on a CPU?)" not in " ".join(said)
    if sure:
        assert "`torch.cuda.is_available()`" in said[-1]
    else:
        assert said[-1] == "the libraries' logs contain no calls, so there is nothing to measure and nothing to change"


@pytest.mark.parametrize("logs", [False, True], ids=["without logs", "with a log of calls"])
@pytest.mark.parametrize("damaged", [1, 2], ids=["one of two traces", "both traces"])
def test_a_job_whose_traces_cannot_be_read_is_not_called_idle(
    damaged: int, logs: bool, stages: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """``tune`` does not say that a process ran no GPU kernel if nothing could be read that its process wrote."""

    def job(*given: Any, **more: Any) -> Any:
        folder = tmp_path / "its logs"
        folder.mkdir()
        for number in (1, 2):
            ok = number > damaged
            (folder / f"trace_1_{number}.json.gz").write_bytes(
                gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}')[: None if ok else 12]
            )
        called = [str(SAMPLES / "hipblaslt/profile_4242.log")] if logs else []
        return 0, ingest([str(folder), *called], store, run=more["run"])

    stages.setattr(verb, "capture", job)
    stages.setattr(verb, "replay", interrupted)
    said: list[str] = []
    code = tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {})
    assert "ran no GPU kernel" not in " ".join(said)
    if logs:
        assert code == 130, "the logged calls are measured"
        assert f"{damaged} of 2 traces could not be read, so no action can be compared with the whole job" in said
    else:
        assert code == 1
        assert f"{damaged} of its 2 traces could not be read, and no GPU kernel is known" in said[-1]


def test_a_job_with_logged_calls_or_kernels_goes_on(stages: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> None:
    """A job that did GPU work is tuned, also if no GPU is known, for example because it ran on another machine."""
    called = SAMPLES / "hipblaslt/profile_4242.log"

    def job(*given: Any, **more: Any) -> Any:
        _, read = without_kernels(tmp_path, *given, **more)
        return 0, [replace(x, path=str(tmp_path / WINDOWS[0])) for x in read] + ingest(
            [str(called)], store, run=more["run"]
        )

    stages.setattr(verb, "replay", interrupted)
    for ran in (job, lambda *x, **y: (0, captured(tmp_path, *x, **y)[1])):
        stages.setattr(verb, "capture", ran)
        said: list[str] = []
        assert tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {}) == 130
        assert any(x.startswith("2/5 replay: timing") for x in said)


def test_a_job_that_fails_names_the_verbs_that_go_on_from_its_logs(
    stages: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    stages.setattr(verb, "capture", lambda *x, **y: (3, captured(tmp_path, *x, **y)[1]))
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path / "overrides"), said.append, {}) == 3
    assert said[-1].startswith("the job ended with exit code 3 and is not run again; the store keeps")
    assert f"`logparse replay --store {store.url} --run {store.latest_run()}` continues" in said[-1]


def planted(
    patch: pytest.MonkeyPatch, before: Tables, after: Tables, times: tuple[list[Units], list[Units]] | None = None
) -> None:
    """Replace the stages of ``tune`` by fakes that return the given data.

    * ``before`` and ``after`` are the data of the job without and with the change.
    * ``times`` are the step times of both, measured in turns.
    """
    patch.setattr(verb, "capture", lambda *x, **y: (0, []))
    patch.setattr(verb, "replay", lambda store, options: SimpleNamespace(interrupted=False))
    patch.setattr(verb, "tables_of", lambda store, run: after if run.endswith("-after") else before)
    patch.setattr(verb, "advise", lambda store, settings, run: recommend(before, settings))
    patch.setattr(verb, "by_turns", lambda *x: times)
    patch.setattr(verb, "run_alone", lambda *x: None)
    patch.setattr(in_the_job, "try_in_the_job", lambda *x: Answer((), "step", 1))


def with_trials(tables: Tables, **ratios: float | str) -> Tables:
    """Add records to made-up data, as if two processes of the running job had tried changes.

    ``ratios`` has for each change (time with it) / (time without it), or a word for the end of the trial.
    """
    rows = []
    for name, ratio in ratios.items():
        log = math.log(ratio) if isinstance(ratio, float) else 0.0
        pairs = tuple((log + 0.001 * math.sin(i), 1200.0, 1200.0 * math.exp(log)) for i in range(16))
        seen = Seen(name, "decided", "", "", pairs, (0.0,) * 4, 0, 5.0, (1e-7, 1e-6, "output"))
        if isinstance(ratio, str):
            seen = Seen(name, ratio, "why", seconds=0.1)
        facts = job_trials.facts(Record("optimizer", 400, True, "", "", 0, (seen,))) * 2
        rows += [{"run": tables.run, "name": x.name, "value": x.value} for x in facts]
    return replace(tables, facts=pd.concat([tables.facts, pd.DataFrame(rows)], ignore_index=True))


def test_the_change_that_won_in_the_job_is_applied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``tune`` makes the change that made the real job faster, whatever the measurements of single calls predict.

    By these measurements ``cudnn_benchmark`` is best. But when it was tried in the job, the job got no faster. So
    ``channels_last`` is used.
    """
    before = images("before", 1000, 1200, both=0.69)
    found = recommend(with_trials(before, channels_last=0.8, cudnn_benchmark=1.0), Settings())
    assert in_job_lines(found) == [
        "tune: channels_last: 1.2 ms → 960 µs a step [960 µs, 961 µs], measured in your job",
        "  tried in your job, and not faster: cudnn_benchmark",
    ]
    assert "cudnn_benchmark" in find_hidden_changes(found)
    assert "channels_last" not in find_hidden_changes(found)
    step = found.step_gain("channels_last")
    assert step is not None
    assert (step.now_us, step.then_us) == pytest.approx((1200.0, 960.0), rel=0.01)
    first = verdict(found).todo[0]
    assert (first.name, first.certainty) == ("channels_last", "measured in the job")
    assert first.step == step
    assert in_job_lines(recommend(before, Settings())) == []
    planted(monkeypatch, with_trials(before, channels_last=0.8, cudnn_benchmark=1.0), before)
    said: list[str] = []
    tune(["job"], open_store(tmp_path / "held", create=True), Tuning(out=tmp_path / "overrides"), said.append, {})
    assert screen_of(said)[:2] == in_job_lines(found)
    assert applied(tmp_path / "overrides") == {"CHOSEN": ("channels_last",), "ALONE": ()}
    text = (tmp_path / "overrides/apply.py").read_text()
    assert "the step 1.200 -> 0.960 ms, measured in your job" in text
    assert "this change did not make the job faster, so the change is applied only if it is named" in text


def test_changes_that_were_measured_together_are_one_thing_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The best answer is a combination of two changes. Then it is the first thing to do, and both are made.

    Both concern the same convolutions, and one alone was not even tried, so the simulation would choose only one.
    """
    before, both = images("before", 1000, 1200, both=0.69), "channels_last+cudnn_benchmark"
    tables = with_trials(before, **{both: 0.7, "channels_last": 0.8})
    found = recommend(tables, Settings())
    assert found.combination == ("channels_last", "cudnn_benchmark")
    first, *more = verdict(found).todo
    assert (first.name, first.title) == (both, "use channels_last and cudnn_benchmark")
    assert first.certainty == "measured in the job"
    assert first.step is not None
    assert (first.step.now_us, first.step.then_us) == pytest.approx((1200.0, 840.0), rel=0.01)
    assert not {"channels_last", "cudnn_benchmark"} & {x.name for x in more}
    assert "channels_last" in "".join(x for x in explain_change(found, both) if isinstance(x, str))
    planted(monkeypatch, tables, before)
    said: list[str] = []
    tune(["job"], open_store(tmp_path / "held", create=True), Tuning(out=tmp_path / "overrides"), said.append, {})
    assert any(x.startswith("apply    add to the program:") for x in screen_of(said))
    assert set(applied(tmp_path / "overrides")["CHOSEN"]) == {"channels_last", "cudnn_benchmark"}


def test_a_small_change_is_not_started_beside_a_measured_gain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A trial in the job measured the gain of one change. Further starts cannot show what a small one adds."""
    before = images("before", 1000, 1200, both=0.69)
    monkeypatch.setattr(verb, "_PROMISING", 0.9)  # cudnn_benchmark saves 40 % of the kernels' time
    for tables, starts in ((with_trials(before, channels_last=0.8), False), (before, True)):
        planted(monkeypatch, tables, before)
        said: list[str] = []
        place = tmp_path / str(starts)
        tune(["job"], open_store(place / "held", create=True), Tuning(out=place / "overrides"), said.append, {})
        assert any(x.startswith("4/5 running the job again") for x in said) is starts


def test_a_combination_that_saves_less_than_one_of_its_changes_is_not_proposed() -> None:
    before = images("before", 1000, 1200, both=0.69)
    found = recommend(with_trials(before, **{"channels_last+cudnn_benchmark": 0.9, "channels_last": 0.8}), Settings())
    assert found.combination == ()
    assert verdict(found).todo[0].name == "channels_last"


def test_what_computes_something_else_is_applied_only_by_name() -> None:
    found = recommend(with_trials(images("before", 1000, 1200, both=0.69), channels_last="differs"), Settings())
    assert "channels_last" in find_hidden_changes(found)
    assert in_job_lines(found) == []


def test_the_best_actions_are_tried_in_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []
    planted(monkeypatch, *ENDINGS["kept"])

    def tried(command: Any, environ: Any, trial: Any, starts: Any, say: Any) -> Answer:
        asked.append((command, trial.actions))
        return Answer((), "step", 1)

    monkeypatch.setattr(in_the_job, "try_in_the_job", tried)
    tune(["job"], open_store(tmp_path / "held", create=True), Tuning(out=tmp_path / "overrides"), lambda line: None, {})
    assert asked == [(["job"], ("channels_last_benchmark", "channels_last"))]


def test_ctrl_c_in_a_trial_ends_it_with_what_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted(monkeypatch, *ENDINGS["kept"])
    monkeypatch.setattr(in_the_job, "try_in_the_job", lambda *x: Answer((), "step", 1, code=130))
    held, said = open_store(tmp_path / "held", create=True), list[str]()
    assert tune(["job"], held, Tuning(out=tmp_path / "overrides"), said.append, {}) == 130
    assert said[-1].startswith("interrupted: ")


def screen_of(said: list[str]) -> list[str]:
    """Return the lines that ``tune`` prints at the end.

    Checks that they are at most 20 lines of at most 100 columns.
    """
    ending = said[next(i for i, x in enumerate(said) if x.startswith("tune: ")) :]
    assert len(ending) <= LINES
    assert max(map(len, ending)) <= line_width()
    return ending


def applied(out: Path) -> dict[str, Any]:
    """Return the names of the changes in a generated ``apply.py``: {"CHOSEN": …, "ALONE": …}.

    Only these two lines of the file are run, because the others need torch.
    """
    lines = [x for x in (out / "apply.py").read_text().splitlines() if x.startswith(("CHOSEN = ", "ALONE = "))]
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    return {name: found[name] for name in ("CHOSEN", "ALONE")}


def images(
    run: str, us: float, wall: float, more: Mapping[str, Mapping[str, object]] | None = None, **solutions: float
) -> Tables:
    """Return made-up data of a job that consists of convolutions.

    ``both`` is the time with channels_last and cudnn_benchmark together, divided by the time without them.
    """
    named = {"torch:benchmark": 0.6, "torch:layout=NHWC,stored": 0.7} | {
        "torch:layout=NHWC,stored,benchmark": solutions["both"]
    }
    return job(run, Kind(8, 100, 6, us, 0, 0, steady(wall)), ratios=named, more=more)


def taken_back() -> tuple[list[Units], list[Units]]:
    """Return step times of a job with and without a change that gains nothing.

    So ``tune`` must remove the change again.
    """
    return ([x for us in (1200, 1201, 1202) if (x := units(images("a", 1000, us, both=1.2))) is not None],) * 2


ENDINGS: Mapping[str, tuple[Any, ...]] = {
    "kept": (images("before", 1000, 1200, both=0.3), images("after", 600, 800, both=0.3)),
    "not faster": (images("before", 1000, 1200, both=1.2), images("after", 600, 800, both=1.2), taken_back()),
    "nothing to apply": (job("before", Kind(8, 100, 6, 1000, 300, 500, steady(2200)), ratio=1.0), None),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_what_it_prints_last(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Goldens) -> None:
    monkeypatch.chdir(tmp_path)
    planted(monkeypatch, *ENDINGS[case])
    said: list[str] = []
    assert tune(["job"], open_store("held", create=True), Tuning(out=Path("overrides")), said.append, {}) == 0
    golden.check(GOLDEN / f"{case}.txt", "\n".join(screen_of(said)) + "\n")


def test_no_golden_is_left_over(golden: Goldens) -> None:
    golden.check_names(GOLDEN, (GOLDEN / f"{case}.txt" for case in ENDINGS))


def test_more_changes_must_speed_up_the_changed_job(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """After ``tune`` made one change, it proposes another one only if it makes the changed job still faster."""
    # Convolutions take 60 % of their time with the first change, and 69 % with both. So the second change would make
    # them slower again (69 / 60 = 115 %), and it is not proposed.
    planted(monkeypatch, images("before", 1000, 1200, both=0.69), images("after", 600, 800, both=0.69))
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path), said.append, {}) == 0
    ending = screen_of(said)
    assert ending[0] == "tune: verified: step 1.2 ms → 800 µs with cudnn_benchmark: kept"
    assert not [x for x in ending if x.startswith((" 1 ", "apply    in the program"))], "nothing is left to do"
    assert f"apply    logparse run --with {tmp_path} -- JOB" in re.sub(r"\\\n *", "", "\n".join(ending))
    assert applied(tmp_path) == {"CHOSEN": ("cudnn_benchmark",), "ALONE": ("cudnn_benchmark",)}


def test_a_change_without_visible_effect_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """``tune`` neither tries nor proposes a change that would hardly make the step shorter.

    A step takes 5 ms, but its kernels take only 100 µs. The changes would save up to 50 µs of this.
    """
    ratios = {"torch:benchmark": 0.6, "torch:layout=NHWC,stored,benchmark": 0.5}
    kind, more = Kind(8, 100, 6, 100, wall=steady(5000)), {"trace": {"gpu_busy_us": 600, "gpu_window_us": 30_000}}
    before = job("before", kind, ratios=ratios, more=more)
    found = {x.action.name for x in recommend(before, Settings()).actions if x.pays}
    assert found == {"cudnn_benchmark", "channels_last_benchmark"}
    planted(monkeypatch, before, before)
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path), said.append, {}) == 0
    ending = screen_of(said)
    assert ending[0] == "tune: no override file or setting is worth applying"
    assert not [x for x in ending if x.startswith("apply ")]
    assert applied(tmp_path) == {"CHOSEN": (), "ALONE": ()}


def test_a_change_that_could_not_be_tried_is_proposed_but_not_proved(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """A change of the program pays by the times of its kernels alone, and the trial in the job gave no result."""
    before = job("before", Kind(8, 100, 6, 100, wall=steady(110)), ratios={"torch:layout=NHWC,stored": 0.5})
    planted(monkeypatch, before, before)
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path), said.append, {}) == 0
    head, verdict_line, *_ = screen_of(said)
    assert head == "tune: nothing was proved in your job"
    assert verdict_line.startswith("  use channels_last: ")


def test_final_proposals_are_for_the_job_with_the_kept_change(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """All proposals at the end of ``tune`` are for the job with the change that was kept, at 1 ms per step.

    The time must come from the runs without logs that alternated between the two versions (1.5 ms before, 1 ms after
    the change). Other times of a step could be confused with it. With logs, which slow the host, a step takes 1.5 ms
    before and 1.1 ms after the change. Alone and without logs it takes 1.2 ms before the change.
    """
    busy = {"gpu_window_us": 9000.0}
    alone = json.dumps({"count": 8, "traced": 0, "us": steady(1200)})
    more = {"alone": {"unit": "optimizer", "unit_alone": 1, "unit:float16[8, 3]": alone}}
    before = images("before", 1000, 1500, more | {"trace": busy | {"gpu_busy_us": 6000}}, both=1.2)
    after = images("after", 600, 1100, {"trace": busy | {"gpu_busy_us": 3600}}, both=1.2)
    turns = [[x for us in (c, c + 1, c + 2) if (x := units(images("a", 1000, us, both=1.2)))] for c in (1500, 1000)]
    planted(monkeypatch, before, after, (turns[0], turns[1]))
    problem = next(x.parts for x in recommend(before, Settings()).actions if x.pays)[0].of
    same = Finding(analyzer="suboptimal-pick", message="", problem=problem_from_text(problem))
    other = replace(same, problem=gemm())
    found = replace(recommend(before, Settings()), findings=(same, other))
    monkeypatch.setattr(verb, "advise", lambda store, settings, run: found)
    simulated: list[Tables] = []
    monkeypatch.setattr(verb, "with_step", lambda found, tables: simulated.append(tables) or found)
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path), said.append, {}) == 0
    ending = screen_of(said)
    assert ending[0] == "tune: verified: step 1.5 ms → 1 ms with cudnn_benchmark: kept"
    assert "  a step, 1 ms: convolutions 600 µs · idle 401 µs" in ending
    (held,) = simulated
    assert (now := units(held)) is not None
    assert (held.run[-6:], now.alone, now.mean_us) == ("after", True, pytest.approx(1001, rel=1e-2))
    assert [x[:3] for x in ending if x.startswith((" 1 ", " 2 "))] == [" 1 "], "of one problem alone"


def test_a_change_that_contains_what_was_kept_and_pays_beside_it_is_left(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    planted(monkeypatch, images("before", 1000, 1200, both=0.3), images("after", 600, 800, both=0.3))
    said: list[str] = []
    tune(["job"], store, Tuning(out=tmp_path), said.append, {})
    [line] = [x for x in screen_of(said) if x.startswith(" 1 ")]
    assert line.startswith(" 1 use channels_last_benchmark  300 of 600 µs  measured alone")
    assert applied(tmp_path) == {"CHOSEN": ("channels_last_benchmark",), "ALONE": ("cudnn_benchmark",)}


def test_changes_timed_without_the_kept_change_are_named(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """The output names changes that would save time, but were never timed together with the change that was made.

    ``tune`` made the change ``cudnn_benchmark``. The change ``channels_last`` was timed only without it, and saved 300
    µs of 1 ms.
    """
    ratios = {"torch:benchmark": 0.6, "torch:layout=NHWC,stored": 0.7}
    before, after = (job(run, Kind(8, 100, 6, us, 0, 0, steady(us + 200)), ratios=ratios) for run, us in RUNS)
    planted(monkeypatch, before, after)
    said: list[str] = []
    tune(["job"], store, Tuning(out=tmp_path), said.append, {})
    assert (
        "  would save time, but were not timed together with these changes: channels_last (300 µs of kernels)"
        in screen_of(said)
    )


RUNS = (("before", 1000), ("after", 600))


def test_a_change_without_gain_is_taken_back(monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> None:
    """If a change makes no step faster, ``tune`` removes it again from the files that it writes.

    In the traced runs the steps got faster. But when the job with and without the change was timed in turns, they did
    not.
    """
    planted(monkeypatch, *ENDINGS["not faster"])
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path), said.append, {}) == 0
    assert screen_of(said)[0] == "tune: took effect, not faster: step 1.2 ms → 1.2 ms with cudnn_benchmark: not kept"
    written = json.loads((tmp_path / "findings.json").read_text())
    assert "cudnn_benchmark" not in {x["action"] for x in written["actions"]}, "the report is of what is left"
    assert "cudnn_benchmark:" not in (tmp_path / "report.md").read_text()
    assert "cudnn_benchmark'" not in (tmp_path / "apply.py").read_text().replace("channels_last_benchmark'", "")
    assert applied(tmp_path)["ALONE"] == ()


def test_files_without_gain_are_taken_back(monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> None:
    """Override files (the user's choice of kernels) are removed again if the job gets no faster with them.

    This also happens if the expected gain is unknown. Here no log has a call that the files are for.
    """
    before, after = images("before", 1000, 2500, both=1.2), images("after", 1000, 2500, both=1.2)
    planted(monkeypatch, before, after)
    build = {"arch": ARCH, "cu_count": "304", "hipblaslt_version": "1201", "hipblaslt_revision": "4d62e135"}
    solution = solution_from_text("hipblaslt:7")
    override = Override(problem=gemm(), solution=solution, target=build, time_us=10.0, default_us=20.0)
    finding = Finding(
        analyzer="suboptimal-pick", message="m", problem=gemm(), per_call=Gain(20.0, 10.0), remedy=UseRows(override)
    )
    found = replace(recommend(before, Settings()), actions=(), findings=(finding,))
    monkeypatch.setattr(verb, "advise", lambda store, settings, run: found)
    said: list[str] = []
    assert tune(["job"], store, Tuning(out=tmp_path), said.append, {}) == 0
    ending = screen_of(said)
    assert ending[0].startswith("tune: had no effect: ")
    assert ending[0].endswith(" with override files: not kept")
    assert not [x for x in ending if x.startswith(("apply ", " 1 overrides"))]
    assert not list(tmp_path.glob("*/apply.sh"))
    assert list(tmp_path.glob("*/apply.sh.old"))


def script(log: Path, word: str, us: float, code: int = 0) -> list[str]:
    """Return the command of a fake job that writes the list of its steps as a real job under logparse does."""
    kind = {"count": 8, "traced": 0, "us": [us] * 8}
    held = json.dumps({"logparse_units": "optimizer", "tracing": "", "windows": 0, "kinds": {"a": kind}})
    text = f"echo {word} >> {log}; echo '{held}' > $LOGPARSE_TRACE_DIR/units_1.json; exit {code}"
    return ["sh", "-c", text]


def test_runs_go_by_turns_and_their_units_are_read(tmp_path: Path) -> None:
    log, environ = tmp_path / "log", {"PATH": os.environ["PATH"]}
    said: list[str] = []
    sides = [(script(log, word, us), environ) for word, us in (("as-it-was", 20e3), ("as-it-is", 10e3))]
    times = one_by_one(*sides, "", said.append, 8, 300.0)
    assert log.read_text().split() == ["as-it-was", "as-it-is"] * 3
    assert times is not None
    assert [[x.mean_us for x in side] for side in times] == [[20e3] * 3, [10e3] * 3]
    assert len(said) == 1


def test_undecided_runs_are_followed_by_more(tmp_path: Path) -> None:
    """If the first runs of two versions of a job do not decide which one is faster, more runs follow.

    For both versions, half of the runs take 14 ms and the other half 10 ms.
    """
    log, environ = tmp_path / "log", {"PATH": os.environ["PATH"]}
    log.touch()
    slow, fast = (script(log, "x", us)[2] for us in (14e3, 10e3))
    command = ["sh", "-c", f"if [ $(($(wc -l < {log}) / 2 % 2)) = 0 ]; then {slow}; else {fast}; fi"]
    times = one_by_one((command, environ), (command, environ), "", lambda text: None, 8, 300.0)
    assert times is not None
    assert [len(side) for side in times] == [8, 8]


@pytest.mark.parametrize(
    ("command", "why"), [(["sh", "-c", "exit 3"], "ended with exit code 3"), (["true"], "timed no step")]
)
def test_a_run_that_fails_leaves_the_times_of_the_traced_ones(command: list[str], why: str, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"]}
    said: list[str] = []
    good = script(tmp_path / "log", "x", 10.0)
    assert one_by_one((good, environ), (command, environ), "", said.append, 8, 300.0) is None
    assert why in said[-2]
    assert (
        one_by_one((script(tmp_path / "log", "x", 1.0, 2), environ), (good, environ), "", said.append, 8, 300.0) is None
    )


def test_a_file_of_units_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "units_1.json").write_text('{"logparse_units": "opt')
    assert units_in(tmp_path) is None
