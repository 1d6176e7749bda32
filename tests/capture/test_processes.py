"""Tests that a program does the same under ``logparse capture --trace`` as without it.

The tests run small programs, and also larger ones from the folder of test data, if this machine has them.
``observing.differences`` compares the two runs.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.capture.observing import ENVIRON, Behaviour, behaviour, behaviour_of, both, capturing, differences
from tests.capture.test_with_overrides import made
from tests.conftest import CORPUS, NIGHTLY

PROGRAMS: Mapping[str, str] = {
    "its outputs, files and exit code": r"""
        import os, sys
        os.write(1, b"\x00\xff no line end")
        os.write(2, b"an error\nlogparsed: is no line of ours\n")
        open("left", "w").write("x" * 9)
        print(sys.stdin.buffer.read(), os.path.basename(os.getcwd()), sys.argv[1:])
        sys.exit(3)
    """,
    "what it inherits": """
        import os, resource, signal
        print(sorted(os.listdir("/proc/self/fd")), signal.pthread_sigmask(signal.SIG_BLOCK, []))
        print([signal.getsignal(x) for x in sorted(signal.valid_signals())], os.umask(0), os.getpriority(0, 0))
        print(resource.getrlimit(resource.RLIMIT_NOFILE), os.getpgid(0) == os.getsid(0))
        print(sorted({x for x in os.environ if x.startswith(("PYTHON", "OMP"))} - {"PYTHONPATH"}))
    """,
    "a signal that kills it": "import os, signal; print('last', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "an interrupt of its group": """
        import os, signal, time
        try:
            os.killpg(0, signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(0.3)
            print("interrupted once")
            raise
    """,
    "a folder of logs that it removes": """
        import os, shutil
        shutil.rmtree(os.environ.get("LOGPARSE_TRACE_DIR", "none"), ignore_errors=True)
        os.write(2, b"an error\\n")
        print("went on")
    """,
    "closed outputs": "import os; os.close(1); os.close(2); open('left', 'w').close(); os._exit(5)",
}
TRAINING = """
    import sys, torch
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(60):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8)).square().mean()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.9f}", flush=True)
    torch.save(model.state_dict(), "model.pt")
    sys.exit(4)
"""
FOLDER = CORPUS.parent / "programs" / "processes"
NEEDS = {"acc.py": "accelerate", "light.py": "lightning", "gen.py": "transformers"}
UNSEEDED = ("acc.py", "light.py", "sigterm.py")
"""Programs whose files differ between any two runs, even without ``capture``.

Either they set no random seed for states or weights, or the clock decides when they stop.
"""
LAUNCHED = ("ddp.py", "fsdp.py")
OTHERS = {
    "diskfull.py": "needs a full disk, which needs root",
    "resume.py": "is of tune",
    "ttyjob.py": "needs a terminal: test_copied_outputs.py",
    "ov.py": "is of run: test_with_overrides.py",
    "copyevent.py": "prints what is no program of a user's",
}
"""Programs that the test does not run: {program: reason}."""


def program(folder: Path, text: str) -> list[str]:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return [sys.executable, str(path), "a word"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_command_under_capture_does_what_it_does_plain(name: str, tmp_path: Path) -> None:
    plain, observed = both(program(tmp_path, PROGRAMS[name]), tmp_path, b"some input\n")
    assert differences(plain, observed) == []
    assert plain.out or plain.files
    (line,) = (x for x in observed.ours if "nothing was traced" in x)
    assert "no process imported torch" in line
    assert "--unit" not in line, "a process that logparse does not see has no units either, whatever is named"


@pytest.mark.parametrize("name", ["its outputs, files and exit code", "a signal that kills it"])
def test_a_command_under_run_does_what_it_does_plain(name: str, tmp_path: Path) -> None:
    words = program(tmp_path, PROGRAMS[name])
    plain = behaviour(words, tmp_path / "plain/here", b"some input\n")
    with_it = [sys.executable, "-m", "logparse", "run", "--with", str(made(tmp_path / "made")), "--"]
    observed = behaviour([*with_it, *words], tmp_path / "observed/here", b"some input\n")
    assert differences(plain, observed) == []
    assert [x.startswith("logparse: not applied: cudnn_benchmark") for x in observed.ours] == [True]


def test_closed_outputs_stay_closed(tmp_path: Path) -> None:
    """If the caller has closed standard output or standard error, the job does not get a pipe in its place.

    An earlier version gave it a pipe.
    """
    words = program(tmp_path, "import os, sys; print(sys.stderr is None); sys.exit(2)")
    closing = ["sh", "-c", 'exec "$@" 2>&-', "sh"]
    plain = behaviour([*closing, *words], tmp_path / "plain")
    assert plain.out == b"True\n"
    assert differences(plain, behaviour([*closing, *capturing(tmp_path), *words], tmp_path / "observed")) == []


def test_a_training_under_capture_does_what_it_does_plain(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    plain, observed = both(program(tmp_path, TRAINING), tmp_path)
    assert differences(plain, observed) == []
    assert plain.code == 4
    assert not [x for x in observed.ours if "nothing was traced" in x]


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(x.name for x in FOLDER.glob("*.py") if NIGHTLY and x.name not in OTHERS))
def test_programs_beside_the_corpus(name: str, tmp_path: Path) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"a program beside the corpus needs {NEEDS[name]}")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if name in LAUNCHED else []
    for more in (["fork"], ["spawn"]) if name == "dl.py" else ([],):
        words = [sys.executable, *launch, str(FOLDER / name), *more]
        plain, observed = both(words, tmp_path / "".join(more), b"x" * 100_000)
        found = [x for x in differences(plain, observed) if name not in UNSEEDED or "has other bytes" not in x]
        assert found == []


def test_the_comparison_sees_every_difference() -> None:
    plain = Behaviour(0, b"out", b"err", {"both": b"1", "plain": b"1", "bytes": b"1"})
    other = Behaviour(1, b"", b"", {"both": b"1", "observed": b"1", "bytes": b"2"})
    assert [x.split(":")[0] for x in differences(plain, other)[:3]] == ["code", "out", "err"]
    assert differences(plain, other)[3:] == [
        "bytes has other bytes",
        "observed is left by one alone",
        "plain is left by one alone",
    ]
    assert differences(plain, plain) == []


def test_only_the_time_and_numbers_of_a_line_of_pytorch_vary(tmp_path: Path) -> None:
    """The comparison reports a message that one run alone prints. It ignores the time and the process of a message."""
    one = b"""\
[W1128 12:00:00.123456789 Module.cpp:12] Warning: lost (function operator())
[rank1]:[E1128 12:00:00.123456789 Group.cpp:7] gone
W1128 12:00:00.123000 4711 torch/frame.py:12] [0/8] limit
STAGE:2026-11-28 12:00:00 4711:4711 Controller.cpp:12] Completed Stage: Warm Up
"""
    later = one.replace(b"1128 12", b"1129 03").replace(b"11-28 12", b"11-29 03").replace(b"4711", b"815")
    later = later.replace(b".123", b".987")
    assert differences(*(behaviour_of(0, b"", err, tmp_path) for err in (one, later))) == []
    for word in (b"lost", b"gone", b"limit", b"Warm Up"):
        assert len(differences(*(behaviour_of(0, b"", err, tmp_path) for err in (one, one.replace(word, b""))))) == 1
    for line in one.splitlines(keepends=True):
        assert len(differences(*(behaviour_of(0, b"", err, tmp_path) for err in (one, one.replace(line, b""))))) == 1


def test_equal_notes_are_printed_once(tmp_path: Path) -> None:
    """If several processes of a job have the same note for the user, it is printed once, with their number."""
    writes = """
        import json, os
        notes = {1: ["no trace: too short", "seen twice", "seen twice"], 2: ["no trace: too short"]}
        for process, texts in (notes | {3: ["\\x1b[31mred"]}).items():
            found = {"logparse_units": "optimizer", "kinds": {"": {"count": 2, "traced": 0, "us": []}}, "notes": texts}
            with open(os.path.join(os.environ["LOGPARSE_TRACE_DIR"], f"units_{process}.json"), "w") as file:
                json.dump(found, file)
    """
    done = behaviour([*capturing(tmp_path), *program(tmp_path, writes)], tmp_path / "here")
    assert (done.code, done.out, done.err) == (0, b"", b"")
    notes = [x for x in done.ours if x.startswith(("logparse: no trace", "logparse: seen", "logparse: \\x1b"))]
    assert notes == [
        "logparse: no trace: too short (in 2 processes)\n",
        "logparse: seen twice\n",
        "logparse: \\x1b[31mred\n",
    ]
    assert not [x for x in done.ours if "nothing was traced" in x], "a unit was seen"
    query = [sys.executable, "-m", "logparse", "sql", "--store", str(tmp_path / "store"), "--format", "csv"]
    query += ["select count(*) as n from facts where name = 'unit_note'"]
    assert subprocess.run(query, env=ENVIRON, capture_output=True, check=True).stdout.split() == [b"n", b"4"], (
        "the same note of one process is one"
    )


@pytest.mark.parametrize("code", [0, 3])
def test_a_failure_is_named_before_the_missing_trace(code: int, tmp_path: Path) -> None:
    """A job that failed has no trace because it failed. So the failure comes first."""
    writes = f"""
        import json, os, sys
        with open(os.path.join(os.environ["LOGPARSE_TRACE_DIR"], "units_1.json"), "w") as file:
            json.dump({{"logparse_units": "time", "kinds": {{}}, "notes": ["no trace: too short"]}}, file)
        sys.exit({code})
    """
    done = behaviour([*capturing(tmp_path), *program(tmp_path, writes)], tmp_path / "here")
    failed = "logparse: the job failed with exit code 3, so it may have ended before a trace was possible\n"
    told = [x for x in done.ours if x.startswith(("logparse: the job failed", "logparse: no trace"))]
    assert (done.code, told) == (code, [failed] * bool(code) + ["logparse: no trace: too short\n"])


def test_units_that_no_process_made_are_said_to_be_so(tmp_path: Path) -> None:
    writes = """
        import json, os
        with open(os.path.join(os.environ["LOGPARSE_TRACE_DIR"], "units_1.json"), "w") as file:
            json.dump({"logparse_units": "time", "kinds": {}}, file)
    """
    done = behaviour([*capturing(tmp_path), *program(tmp_path, writes)], tmp_path / "here")
    (line,) = (x for x in done.ours if "nothing was traced" in x)
    assert "1 process imported torch, but repeated nothing that logparse knows as a unit of work" in line
    assert "--unit package.module:Class.method" in line
    assert "--trace 2s" in line


def test_a_command_that_keeps_logparse_out_is_told_so(tmp_path: Path) -> None:
    words = ["env", "PYTHONPATH=src", *program(tmp_path, "print('ran')")]
    plain, observed = both(words, tmp_path)
    assert differences(plain, observed) == []
    (line,) = (x for x in observed.ours if "nothing was traced" in x)
    assert "the command sets PYTHONPATH anew" in line


def test_a_named_function_that_is_never_called_is_told(tmp_path: Path) -> None:
    """Steps that were found without ``--unit`` do not pass for calls of the named function."""
    writes = """
        import json, os
        kinds = {"float32[2]": {"count": 9, "traced": 0, "us": []}}
        with open(os.path.join(os.environ["LOGPARSE_TRACE_DIR"], "units_1.json"), "w") as file:
            json.dump({"logparse_units": SORT, "kinds": kinds}, file)
    """
    for sort, said in (("optimizer", 1), ("named", 0)):
        words = program(tmp_path, writes.replace("SORT", repr(sort)))
        done = behaviour([*capturing(tmp_path / sort, "--unit", "model:step"), *words], tmp_path / sort / "here")
        assert sum(x.startswith("logparse: --unit model:step: no process of the job called") for x in done.ours) == said
