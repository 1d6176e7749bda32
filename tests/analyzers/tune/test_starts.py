"""Tests of how ``logparse tune`` starts a user's job several times.

Runs with fewer steps, and runs that did not make the change, must be reported.
"""

# Each start gets the same standard input. The user's command --before-each runs before each start.

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.units import UnitKind, Units
from analyzers.tune import by_turns as module
from analyzers.tune import verb
from analyzers.tune.by_turns import by_turns, one_by_one, run_alone
from analyzers.tune.side_by_side import NotAppliedError, Side, pair
from analyzers.tune.starts import Starts
from analyzers.tune.verb import Tuning, tune
from logparse.capture.applied import NOT_APPLIED
from logparse.capture.kept_input import KeptInput
from logparse.errors import InputError
from logparse.store import Store
from tests.analyzers.tune.test_side_by_side import sides
from tests.analyzers.tune.test_tune import images, planted, screen_of
from tests.program import run

ENVIRON = {"PATH": os.environ["PATH"]}


def job(log: Path, *, marks: bool = False, reads: bool = False, checkpoint: Path | None = None) -> Side:
    """Return the command of a fake job of eight steps that writes the same files as a real job under logparse.

    If ``checkpoint`` is given, the first run leaves a checkpoint there. A run that finds it makes no step.
    """
    kind = {"count": 8, "traced": 0, "us": [2e4] * 8}
    units = json.dumps({"logparse_units": "optimizer", "kinds": {"a": kind}, "notes": ["a note"]})
    lines = [f"wc -c >> {log}" if reads else f"echo run >> {log}"]
    lines += [f"[ ! -e {checkpoint} ] || exit 0", f"touch {checkpoint}"] if checkpoint else []
    mark = json.dumps({"logparse_applied": 1, "settings": ["tf32"], "models": []})
    lines += [f"echo '{mark}' > $LOGPARSE_APPLIED/applied_1.json"] if marks else []
    lines += [f"echo '{units}' > $LOGPARSE_TRACE_DIR/units_1.json"]
    return ["sh", "-c", "\n".join(lines)], ENVIRON


@pytest.fixture
def piped() -> Iterator[Starts]:
    """Give each start of a job the same 100,000 bytes of standard input, although they come from a pipe.

    The buffer of a pipe holds fewer bytes.
    """
    read, write = os.pipe()

    def fill() -> None:
        with os.fdopen(write, "wb") as file:
            file.write(b"x" * 100_000)

    threading.Thread(target=fill, daemon=True).start()
    yield Starts(KeptInput(read))
    os.close(read)


def test_every_run_gets_the_same_input(tmp_path: Path, piped: Starts) -> None:
    """Every run of the job gets the same standard input.

    In an earlier version, the second run found its input empty. It failed, or it did no work and was still compared.
    """
    side = job(tmp_path / "log", reads=True)
    said: list[str] = []
    times = one_by_one(side, side, "", said.append, 3, 300.0, piped)
    assert times is not None
    assert (tmp_path / "log").read_text().split() == ["100000"] * 6
    assert said[1:] == ["a note"], "told once"


def test_both_of_a_pair_get_the_input(tmp_path: Path, piped: Starts) -> None:
    commands = []
    for words, environ in sides(tmp_path, 220, code=0):
        text = f'[ $(wc -c) = 100000 ] && echo all >> {tmp_path}/read; exec "$@"'
        commands.append((["sh", "-c", text, "sh", *words], environ))
    pair(*commands, "", piped)
    assert (tmp_path / "read").read_text().split() == ["all", "all"]


def test_the_before_each_command_runs_before_every_start(tmp_path: Path) -> None:
    """The user's command ``--before-each`` runs before every start of the job. The runs then follow one after another.

    Here the command removes a checkpoint. Without it the second run would find the checkpoint and make no step.
    """
    side = job(tmp_path / "log", checkpoint=tmp_path / "checkpoint")
    said: list[str] = []
    assert by_turns(side, side, "", said.append) is None
    assert "timed no step" in said[-2]
    said.clear()
    starts = Starts(before_each=f"echo set back; rm -f {tmp_path}/checkpoint; echo $0 >> {tmp_path}/before")
    times = by_turns(side, side, "", said.append, starts=starts)
    assert isinstance(times, tuple)
    assert [len(x) for x in times] == [3, 3]
    assert (tmp_path / "before").read_text().split() == ["sh"] * 6
    assert said[0] == (
        "    the runs are timed one after another, because the command of `--before-each` may remove files "
        "that another run at the same time needs"
    )


def test_a_command_before_a_start_that_fails_starts_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    starts = Starts(before_each="echo told; exit 4")
    with pytest.raises(
        InputError, match="--before-each echo told; exit 4: ended with exit code 4, so the job is not started"
    ):
        run_alone(job(tmp_path / "log"), tmp_path / "units", "", [].append, starts)
    assert not (tmp_path / "log").exists()
    assert capfd.readouterr() == ("", "told\n"), "standard output is the job's"


def test_the_program_hands_the_command_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given: list[Tuning] = []
    monkeypatch.setattr(verb, "tune", lambda command, store, tuning, say: given.append(tuning) or 0)
    assert run("tune", "--before-each", "rm -f ckpt.pt", "--", "true").returncode == 0
    assert [x.before_each for x in given] == ["rm -f ckpt.pt"]


def units_of(count: int) -> Units:
    return Units("optimizer", "settled", (UnitKind("a", count, 0, (1.0,)),))


@pytest.mark.parametrize(("now", "told"), [(units_of(95), False), (units_of(80), True), (None, True)])
def test_a_run_of_fewer_units_is_told_with_what_to_do(now: Units | None, told: bool) -> None:
    line = Starts().fewer(units_of(100), now)
    assert bool(line) == told
    if told:
        assert f"{now.count if now else 0} steps in this run but 100 in the first run" in line
        assert "`--before-each CMD` runs a command before every start" in line
        again = Starts(before_each="true").fewer(units_of(100), now)
        assert "although `--before-each` ran" in again


def test_tune_tells_of_a_job_that_goes_on_from_what_it_wrote(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    planted(monkeypatch, images("before", 1000, 1200, both=0.3), images("after", 600, 800, both=0.3))
    said: list[str] = []
    tune(["job"], store, Tuning(out=tmp_path), said.append, {})
    (line,) = (x for x in said if x.startswith("warning: the job did 0 steps in this run but 100 in the first run"))
    assert "--before-each" in line


def not_applied(marks: Path) -> str:
    """Return why a run of the job cannot be used: no process recorded that it made the change. Otherwise return ""."""
    return "" if list(marks.glob("applied_*")) else "tf32 left no mark"


def test_runs_without_the_change_are_not_compared(tmp_path: Path) -> None:
    """Runs that did not apply the change of settings or of the model are not compared.

    They ran the unchanged job, so a comparison would show nothing.
    """
    was, applied = job(tmp_path / "log"), job(tmp_path / "log", marks=True)
    said: list[str] = []
    assert one_by_one(was, applied, "", said.append, 3, 300.0, None, not_applied) is not None
    assert one_by_one(was, was, "", said.append, 3, 300.0, None, not_applied) is None
    assert said[-2] == "not every change was in force in a run of the job: tf32 left no mark"


def test_pairs_that_left_no_mark_are_not_compared(tmp_path: Path) -> None:
    both = sides(tmp_path, 220, code=0)
    with pytest.raises(NotAppliedError, match="tf32 left no mark"):
        pair(*both, "", None, not_applied)


def test_turns_without_a_mark_give_no_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object) -> None:
        raise NotAppliedError("tf32 left no mark")

    monkeypatch.setattr(module, "pair", fails)
    said: list[str] = []
    side = job(tmp_path / "log")
    assert by_turns(side, side, "", said.append) is None
    assert said[-1] == "    the runs cannot be timed in turns: tf32 left no mark"


LOST = {"lost": {"cudnn_benchmark": "torch.backends.cudnn.benchmark"}}


@pytest.mark.parametrize(
    ("at_end", "why"),
    [
        (None, "not applied: cudnn_benchmark: Python was started with -S"),
        (LOST, "cudnn_benchmark was set, but it was not in force any more when the job ended"),
    ],
)
def test_tune_gives_no_verdict_on_an_unchanged_job(
    at_end: object, why: str, monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    """If the second run of a job did not apply a change or lost it, ``logparse tune`` says so and gives no verdict.

    The times must not be compared. In an earlier version, noise was reported as a gain.
    """
    monkeypatch.chdir(tmp_path)
    planted(monkeypatch, images("before", 1000, 1200, both=0.3), images("after", 600, 800, both=0.3))
    asked: list[Any] = []

    def ran(command: object, how: Any, *_: object, **more: Any) -> tuple[int, list[Any]]:
        asked.append(more["asked"])
        if more["asked"] is not None:
            (how.folder / "applied").mkdir(parents=True)
            mark = {"logparse_applied": 1, "settings": ["cudnn_benchmark"], "at_end": at_end}
            if at_end:
                (how.folder / "applied/applied_1.json").write_text(json.dumps(mark))
        return 0, []

    monkeypatch.setattr(verb, "capture", ran)
    said: list[str] = []
    assert tune(["python", "-S", "job"], store, Tuning(out=Path("overrides")), said.append, {}) == NOT_APPLIED
    ending = screen_of(said)
    assert ending[0] == "tune: not verified, because not every change was in force in the second run of the job"
    assert any(why in x for x in said)
    assert not any("    applied" in x for x in said)
    assert [x and x.settings for x in asked] == [None, ("cudnn_benchmark",)]
    assert "'cudnn_benchmark', " in Path("overrides/apply.py").read_text(), "it is still to be tried"


def short(count: int, resumes: bool) -> list[str]:
    """Return the command of a fake job of ``count`` steps that is so short that logparse traces it a second time.

    If ``resumes`` is true, the second run continues the first one and makes only one step.
    """
    # The trace of the first run is provisional, because this run also counts the steps.

    def units(tracing: str, count: int) -> str:
        kinds = {"a": {"count": count, "traced": 1, "us": []}}
        return json.dumps({"logparse_units": "optimizer", "tracing": tracing, "windows": 1, "kinds": kinds})

    first = units("not settled: unit 2 alone was traced", count)
    again = units(f"not settled after {count // 2} of {count} units", 1 if resumes else count)
    trace = """echo '{"schemaVersion": 1, "traceEvents": []}' | gzip > $LOGPARSE_TRACE_DIR/trace_1_1.json.gz"""
    found = f"if [ -z \"$LOGPARSE_TRACE_EXPECTED\" ]; then echo '{first}'; else {trace}; echo '{again}'; fi"
    return ["sh", "-c", f"{{ {found}; }} > $LOGPARSE_TRACE_DIR/units_1.json"]


@pytest.mark.parametrize("resumes", [False, True])
def test_a_job_too_short_to_settle_is_traced_again_from_its_middle_on(
    resumes: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store
) -> None:
    monkeypatch.chdir(tmp_path)  # the folder of a capture is made there
    said: list[str] = []
    tune(short(20, resumes), store, Tuning(out=tmp_path), said.append, ENVIRON)
    facts = store.facts()
    logged = facts[facts["name"] == "unit_tracing"]
    assert any(line.startswith("    20 steps are too few for steady times") for line in said)
    if resumes:
        assert any("Does the job resume from files that it wrote?" in line for line in said)
        assert "not settled: unit 2 alone was traced" in set(logged["value"])
    else:
        assert {run.endswith("-again") for run in store.sources()["run"]} == {True}, "the first capture is forgotten"
        assert "not settled after 10 of 20 units" in set(logged["value"])
    assert ("no process wrote a trace" if resumes else "1 traced process ran no GPU kernel") in said[-2]
    assert said[-1].startswith("the libraries' logs contain no calls")
    assert not any("once more without logs" in line for line in said), "no call and no kernel: its times serve nothing"
