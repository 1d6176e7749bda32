"""Tests of how ``logparse tune`` starts a user's job to try changes of settings or of the model in it.

The tests check which changes each start tries, how the job is ended, and what is reported.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from analyzers.evidence.trials import Tried
from analyzers.tune import in_the_job
from analyzers.tune.in_the_job import Answer, trial, try_in_the_job
from analyzers.tune.starts import Starts
from analyzers.tune.try_verb import answer, lines, split_at_dashes
from logparse.errors import UsageError
from logparse.libraries.own.job_trials import Seen
from tests.capture.in_job.test_trial import PROGRAM

FAKE = """
import json, math, os, sys, time

asked = json.load(open(os.environ["LOGPARSE_TRY"]))
log = sys.argv[1]
with open(log, "a") as file:
    print(json.dumps(asked), file=file)
start = len(open(log).readlines())
with open(os.path.join(os.path.dirname(log) or ".", "pids"), "a") as file:
    print(os.getpid(), file=file)
ratios = json.loads(sys.argv[2])
behaviour = sys.argv[3] if len(sys.argv) > 3 else ""


def wait():
    time.sleep(60)


def seen(name):
    ratio, pairs = ratios.get(name, 0.9), 16
    if ratio == "refused":
        return {"name": name, "ended": "refused", "why": "it cannot", "detail": "", "seconds": 0.1}
    if behaviour == "few":
        pairs = 4
    logs = [math.log(ratio) + 0.01 * math.sin(i) for i in range(pairs)]
    return {"name": name, "ended": "units" if behaviour == "few" else "decided", "why": "", "detail": "",
            "seconds": 1.0, "pairs": [[x, 1e5, 1e5 * math.exp(x)] for x in logs], "control": [[0.0, 1e5, 1e5]] * 4,
            "unlike": 0, "same": {"deviation": 1e-7, "allowed": 1e-6, "how": "output"}}


def write(actions, over=True, on="", why="", units=60, pid=os.getpid()):
    path = os.path.join(os.environ["LOGPARSE_TRACE_DIR"], f"try_{pid}.json")
    found = {"logparse_try": 1, "pid": pid, "over": over, "why": why, "on": on, "unit": "optimizer",
             "units": units, "kinds": 1, "left": [], "actions": actions}
    with open(path + ".part", "w") as file:
        json.dump(found, file)
    os.replace(path + ".part", path)


if behaviour == "silent":
    sys.exit(0)
if behaviour == "fails":
    sys.exit(7)
if behaviour == "dies" and start == 1:
    write([{"name": asked["actions"][0], "ended": "", "why": "", "detail": "", "seconds": 0.1}], over=False,
          on=asked["actions"][0])
    os.kill(os.getpid(), 9)
if behaviour == "launched":
    write([], why="the job ended with SignalException", units=0, pid=os.getppid())
if behaviour == "stubborn":
    import signal
    signal.signal(signal.SIGTERM, lambda *_: None)
enough = asked["actions"][:1] if behaviour == "one" else asked["actions"]
write([seen(x) for x in enough], over=behaviour not in ("few", "one"))
if behaviour not in ("few", "one"):
    while True:
        wait()
"""
"""Python code of a fake job that writes results as if it had tried changes. It needs no torch."""


def alive(process: int) -> bool:
    """Tell whether a process still runs.

    A killed process remains as a zombie until its parent waits for it. It is then taken as ended.
    """
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def try_changes(
    folder: Path, ratios: Mapping[str, object], *actions: str, behaviour: str = "", **more: object
) -> tuple[Answer, list[list[str]]]:
    """Try changes of settings or of the model in the fake job.

    Returns the answer, and the changes that each start tried. ``ratios`` is the time of a step with a change / without
    it.
    """
    program, log = folder / "job.py", folder / "log"
    program.write_text(FAKE)
    command = [sys.executable, str(program), str(log), json.dumps(ratios), behaviour]
    found = try_in_the_job(command, os.environ, trial(actions, **more), Starts(), lambda line: None)
    starts = log.read_text().splitlines() if log.exists() else []
    return found, [json.loads(x)["actions"] for x in starts]


def test_a_winner_is_seen_in_a_second_process(tmp_path: Path) -> None:
    found, starts = try_changes(tmp_path, {"channels_last": 0.7, "tf32": 1.0}, "channels_last", "tf32")
    assert starts == [["channels_last", "tf32"], ["channels_last"]]
    assert [(x.name, x.outcome) for x in found.tried] == [("channels_last", "measured"), ("tf32", "not faster")]
    assert (found.word, found.code, found.starts) == ("step", 0, 2), "the exit code of what we have ended is no error"


def test_gains_are_measured_together_and_not_added(tmp_path: Path) -> None:
    """Changes that make the job faster are also tried together, because their gains cannot simply be added.

    ``channels_last_benchmark`` includes ``channels_last``, so these two are never tried together.
    """
    ratios = {"channels_last": 0.7, "channels_last_benchmark": 0.6, "one_kernel_gelu": 0.9}
    both = "channels_last_benchmark+one_kernel_gelu"
    found, starts = try_changes(tmp_path, {**ratios, both: 0.58}, *ratios)
    assert starts[0] == [*ratios]
    assert sorted(starts[1]) == sorted([*ratios, both])
    assert starts[2:] == [[both]]
    assert found.tried[0].name == both
    assert found.tried[0].outcome == "measured"


def test_what_is_refused_is_not_tried_again(tmp_path: Path) -> None:
    found, starts = try_changes(tmp_path, {"tf32": "refused"}, "tf32")
    assert starts == [["tf32"]]
    assert (found.tried[0].outcome, found.tried[0].why) == ("refused", "it cannot")


def test_an_action_that_kills_the_job_is_named_and_the_others_have_their_start(tmp_path: Path) -> None:
    found, starts = try_changes(tmp_path, {"tf32": 0.8}, "padded_output", "tf32", behaviour="dies")
    assert starts == [["padded_output", "tf32"], ["tf32"], ["tf32"]]
    outcomes = {x.name: (x.outcome, x.why) for x in found.tried}
    assert outcomes["padded_output"] == ("broken", "the job was ended by SIGKILL while this action was on")
    assert outcomes["tf32"][0] == "measured"


def test_a_short_job_is_started_until_its_pairs_suffice(tmp_path: Path) -> None:
    found, starts = try_changes(tmp_path, {"tf32": 0.8}, "tf32", behaviour="few")
    assert len(starts) == 2
    assert found.tried[0].outcome == "measured"
    lines = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(x)["expected"] for x in lines] == [0, 60]


SHORT = {"padded_output": 0.8, "one_kernel_gelu": 0.9, "tf32": 1.0, "padded_output+one_kernel_gelu": 0.7}
"""Times of a step with changes of a short job, divided by the time without them."""
PROMISING = ("padded_output", "one_kernel_gelu")


def test_a_short_job_tries_the_promising_changes_together_first(tmp_path: Path) -> None:
    """Each start has steps for one change alone. Two starts then give the user the answer that matters most."""
    both, *single = "padded_output+one_kernel_gelu", "padded_output", "one_kernel_gelu", "tf32"
    of = {"behaviour": "one", "expected": 60, "together": PROMISING, "patience_s": 0.0}
    found, starts = try_changes(tmp_path, SHORT, *single, **of)  # type: ignore[arg-type]
    assert starts == [[both, *single], [both]]
    assert (found.tried[0].name, found.tried[0].outcome) == (both, "measured")
    assert {x.outcome for x in found.tried[1:]} == {"not tried"}


def test_a_short_job_tries_single_changes_as_long_as_the_patience_lasts(tmp_path: Path) -> None:
    of = {"behaviour": "one", "expected": 60, "together": PROMISING}
    found, starts = try_changes(tmp_path, SHORT, *PROMISING, **of)  # type: ignore[arg-type]
    assert [x[0] for x in starts] == ["padded_output+one_kernel_gelu"] * 2 + [*PROMISING[:1]] * 2 + [*PROMISING[1:]] * 2
    assert {x.outcome for x in found.tried} == {"measured"}


def test_a_long_job_tries_each_change_first(tmp_path: Path) -> None:
    _, starts = try_changes(tmp_path, SHORT, *PROMISING, expected=1000, together=PROMISING)
    assert starts[0] == [*PROMISING]


def test_the_best_change_is_confirmed_first() -> None:
    """A second start of the job first confirms the best change, before undecided changes are tried again.

    The user waits for the answer about the best change.
    """
    winner = Tried("tf32", (Seen("tf32", "units", pairs=((math.log(0.8), 10.0, 8.0),) * 8),))
    open_one = Tried("padded_output", (Seen("padded_output", "units", pairs=((0.1, 1.0, 1.1), (-0.1, 1.0, 0.9)) * 4),))
    assert (winner.outcome, open_one.outcome) == ("faster once", "undecided")
    assert in_the_job._choose_changes([winner, open_one], True, False) == ["tf32"]
    assert in_the_job._choose_changes([open_one], True, False) == ["padded_output"]
    assert in_the_job._choose_changes([open_one], False, False) == []  # the patience is over


def test_the_number_of_units_of_an_earlier_run_is_told_to_the_first_start(tmp_path: Path) -> None:
    try_changes(tmp_path, {"tf32": 0.8}, "tf32", expected=60)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(x)["expected"] for x in lines] == [60, 60]


def test_a_job_that_tries_nothing(tmp_path: Path) -> None:
    found, starts = try_changes(tmp_path, {}, "tf32", behaviour="silent")
    assert len(starts) == 2
    assert found.tried[0].outcome == "not tried"
    assert any("none imported torch" in x for x in found.notes)


def test_a_job_that_fails_keeps_its_exit_code(tmp_path: Path) -> None:
    found, starts = try_changes(tmp_path, {}, "tf32", behaviour="fails")
    assert (found.code, len(starts)) == (7, 1)
    assert "the job ended with exit code 7" in found.notes


def test_a_launcher_that_gets_our_signal_is_no_reason(tmp_path: Path) -> None:
    found, _ = try_changes(tmp_path, {"tf32": 1.0}, "tf32", behaviour="launched")
    assert (found.tried[0].outcome, found.notes) == ("not faster", ())


def test_a_job_that_stays_is_made_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_the_job, "_GRACE_S", 0.1)
    monkeypatch.setattr(in_the_job, "_LEAVE_S", 0.1)
    found, _ = try_changes(tmp_path, {"tf32": 1.0}, "tf32", behaviour="stubborn")
    assert found.tried[0].outcome == "not faster"
    assert found.code == 0


def test_a_job_within_a_shell_is_ended_with_it(tmp_path: Path) -> None:
    """If the job runs inside a shell, ``logparse tune`` ends both the shell and the job.

    The shell ends when it gets the signal, but does not pass it on to the job.
    """
    (tmp_path / "job.py").write_text(FAKE)
    script = f"{sys.executable} job.py log '{{}}'; echo went on > after"
    command = ["sh", "-c", f"cd {tmp_path}; {script}"]
    found = try_in_the_job(command, os.environ, trial(["tf32"]), Starts(), lambda line: None)
    assert found.tried[0].outcome == "measured"
    assert not (tmp_path / "after").exists()
    for number in (tmp_path / "pids").read_text().split():
        assert not alive(int(number))


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    found = try_in_the_job(["/no/such"], os.environ, trial(["tf32"]), Starts(), lambda line: None)
    assert found.code == 127
    assert found.notes == ("/no/such: No such file or directory",)


def test_ctrl_c_ends_the_trial_with_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import time\nopen('began', 'w').close()\ntime.sleep(60)\n")
    words = [sys.executable, "-m", "logparse", "try", "tf32", "--", sys.executable, "job.py"]
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}
    program = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environ)
    while not (tmp_path / "began").exists():
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "tf32  not tried" in errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tf32"], "put `--` before the job's command"),
        (["tf32", "--"], "give the job's command after `--`"),
        (["tf32", "--budget", "3s", "--", "true"], "--budget: put options before the actions"),
    ],
)
def test_wrong_words(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        split_at_dashes(words)


def test_unknown_actions() -> None:
    with pytest.raises(UsageError, match="warp"):
        trial(["warp"])
    with pytest.raises(UsageError, match="cannot be tried in a running job: PyTorch keeps the plan"):
        trial(["cudnn_benchmark"])
    with pytest.raises(UsageError, match="name at least one action"):
        trial([])


def test_what_is_printed(tmp_path: Path) -> None:
    found, _ = try_changes(tmp_path, {"channels_last": 0.7, "tf32": "refused"}, "channels_last", "tf32")
    first, winner, refused = lines(found)
    times = "100 ms → 70.1 ms a step [69.8 ms, 70.4 ms]"
    assert first == f"try: channels_last: {times}, measured in your job"
    same = "same result within 1.0e-07 (output; rounding alone may differ by 1.0e-06)"
    assert winner == f"  channels_last  measured in your job; {times}; 32 pairs in 2 processes, 2 s; {same}"
    assert refused == "  tf32           not possible: it cannot"
    (tmp_path / "refused").mkdir()
    untried, _ = try_changes(tmp_path / "refused", {"tf32": "refused"}, "tf32")
    assert next(lines(untried)) == "try: no action could be tried"
    table = answer(found).made
    assert table is not None
    rows = [*table]  # type: ignore[misc]
    assert rows[0]["outcome"] == "measured"
    assert rows[0]["ratio"] == pytest.approx(0.7, rel=0.01)


def test_a_real_job_from_the_command_line(tmp_path: Path) -> None:
    """``logparse try`` measures the gain of a change in a real job, and ends the job as soon as the gain is known.

    The job's clock is simulated: with channels_last a step takes half the time.
    """
    pytest.importorskip("torch")
    (tmp_path / "job.py").write_text(PROGRAM + "import os\nfor _ in range(100_000): step()\n")
    words = [sys.executable, "-m", "logparse", "try", "-o", "tried.json", "channels_last", "--", sys.executable]
    environ = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, "job.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "tried.json").read_text())
    assert (row["action"], row["outcome"], row["processes"], row["pairs"]) == ("channels_last", "measured", 2, 16)
    assert row["ratio"] == pytest.approx(0.5)
    assert (row["now_us"], row["then_us"], row["unit"]) == (pytest.approx(1e5), pytest.approx(5e4), "step")
    assert row["deviation"] <= row["deviation_allowed"]
    assert "logparse: start 2: channels_last" in done.stderr
