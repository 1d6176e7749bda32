"""Tests of ``logparse capture``, which runs a job with logging and tracing switched on.

The settings of the libraries must not cancel each other, and the job must run as if the user had called it directly.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from logparse.capture import job, machine
from logparse.capture import plan as capturing
from logparse.capture.plan import exports, plan, read_masks
from logparse.capture.run import facts_of_job, interpreter
from logparse.errors import InputError
from logparse.ingest.stated_target import target_from
from logparse.libraries.kinds.capture import Capture, Setting
from logparse.store import open_store
from tests.conftest import ROOT, SAMPLES
from tests.waiting import PATIENCE_S

COMMAND = ["python", "train.py"]


@pytest.fixture(autouse=True)
def _both_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "_gpus", lambda environ: {"rocm", "cuda"})


def settings(folder: Path, environ: Mapping[str, str] | None = None, **options: object) -> dict[str, str]:
    made = plan(COMMAND, folder, environ=environ or {}, **options)  # type: ignore[arg-type]
    return made.environ(environ or {})


# ---------------------------------------------------------------------------------------------------------- settings


def test_the_environment_of_a_job(tmp_path: Path) -> None:
    assert settings(tmp_path, {"HIPBLASLT_LOG_LEVEL": "", "HOME": "/home/x"}) == {
        "HOME": "/home/x",
        "HIPBLASLT_LOG_MASK": "96",
        "HIPBLASLT_LOG_FILE": f"{tmp_path}/hipblaslt_%i.log",
        "MIOPEN_ENABLE_LOGGING_CMD": "1",
        "CUBLASLT_LOG_MASK": "7",
        "CUBLASLT_LOG_FILE": f"{tmp_path}/cublaslt_%i.log",
        "PYTORCH_TUNABLEOP_ENABLED": "1",
        "PYTORCH_TUNABLEOP_TUNING": "0",
        "PYTORCH_TUNABLEOP_RECORD_UNTUNED": "1",
        "PYTORCH_TUNABLEOP_UNTUNED_FILENAME": f"{tmp_path}/tunableop_untuned.csv",
        "PYTORCH_TUNABLEOP_FILENAME": f"{tmp_path}/tunableop_results.csv",
    }


def test_options_switch_what_they_name(tmp_path: Path) -> None:
    made = settings(tmp_path, masks="trace,extended_profile", markers=True, leave_out=["tunableop"])
    assert (made["HIPBLASLT_LOG_MASK"], made["CUBLASLT_LOG_MASK"]) == ("130", "7")
    assert made["HIPBLASLT_ENABLE_MARKER"] == "1"
    assert not [name for name in made if name.startswith("PYTORCH")]
    assert settings(tmp_path, masks="1,8")["CUBLASLT_LOG_MASK"] == "9"


@pytest.mark.parametrize(
    ("text", "mask"), [("32,64", 96), ("bench+profile", 96), ("0x60", 96), ("5", 5), ("255", 255), (" Trace , 2", 2)]
)
def test_masks(text: str, mask: int) -> None:
    assert read_masks(text) == mask


@pytest.mark.parametrize("text", ["", "0", "256", "-1", "benchmark", "32;64", "1e2"])
def test_masks_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="32 bench"):
        read_masks(text)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["env", "HIPBLASLT_LOG_LEVEL=", "python"], "overrides HIPBLASLT_LOG_MASK"),
        (["mpirun", "-x", "HIPBLASLT_LOG_LEVEL=5", "python"], "overrides HIPBLASLT_LOG_MASK"),
        (["sh", "-c", "cd x; HIPBLASLT_LOG_LEVEL=2 python"], "overrides HIPBLASLT_LOG_MASK"),
        (["env", "HIPBLASLT_LOG_FILE=all.log", "torchrun"], "%i"),
        (["env", "CUBLASLT_LOG_FILE=all.log", "torchrun"], "%i"),
        (["env", "PYTORCH_TUNABLEOP_TUNING=1", "python"], "untuned"),
    ],
)
def test_commands_that_cancel_are_refused(tmp_path: Path, command: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(command, tmp_path, environ={})


@pytest.mark.parametrize(
    "command",
    [["env", "HIPBLASLT_LOG_FILE=x_%i.log", "a"], ["env", "-u", "HIPBLASLT_LOG_LEVEL", "a"], ["a", "--x=LOG_LEVEL=1"]],
)
def test_commands_that_do_not_cancel_run(tmp_path: Path, command: list[str]) -> None:
    assert plan(command, tmp_path, environ={}).warnings == ()


def test_a_library_states_its_settings_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Capture(
        library="new",
        platforms=("cuda",),
        settings=lambda asked: [Setting("NEW_LOG", f"{asked.folder}/new.log", "its log")],
        cancels={"NEW_LOG": (lambda value: value == "off", "no log")},
        doubts=lambda asked: ["a killed job loses its last lines"],
    )
    monkeypatch.setattr(capturing, "CAPTURES", (new,))
    made = plan(COMMAND, tmp_path, environ={})
    assert made.environ({}) == {"NEW_LOG": f"{tmp_path}/new.log"}
    assert made.warnings == ("a killed job loses its last lines",)
    assert not made.copy_stderr
    for word in ("NEW_LOG=on", "NEW_LOG=off"):
        refused = pytest.raises(InputError, match="sets NEW_LOG=off: no log")
        with refused if word.endswith("off") else contextlib.nullcontext():
            plan(["env", word, "train"], tmp_path, environ={})
    assert plan(["env", "NEW_LOG=off", "train"], tmp_path, leave_out=["new"], environ={}).settings == ()
    monkeypatch.setattr(capturing, "_gpus", lambda environ: {"rocm"})
    assert plan(COMMAND, tmp_path, environ={}).settings == ()
    monkeypatch.setattr(capturing, "CAPTURES", (replace(new, platforms=("rocm",), on_stderr=True),))
    assert plan(COMMAND, tmp_path, environ={}).copy_stderr


def test_tuning_together_with_recording_is_refused(tmp_path: Path) -> None:
    tunes = {"PYTORCH_TUNABLEOP_ENABLED": "1"}
    with pytest.raises(InputError, match="--no-tunableop"):
        plan(COMMAND, tmp_path, environ=tunes)
    assert "PYTORCH_TUNABLEOP_TUNING" not in settings(tmp_path, tunes, leave_out=["tunableop"])
    kept = {**tunes, "PYTORCH_TUNABLEOP_TUNING": "0", "PYTORCH_TUNABLEOP_FILENAME": "mine.csv"}
    assert settings(tmp_path, kept)["PYTORCH_TUNABLEOP_FILENAME"] == "mine.csv"
    assert any("2.10" in warning for warning in plan(COMMAND, tmp_path, environ=kept).warnings)


@pytest.mark.parametrize(
    ("environ", "command", "masks", "said"),
    [
        ({"HIPBLASLT_LOG_LEVEL": "5"}, COMMAND, "32,64", "is removed"),
        ({"HIPBLASLT_LOG_FILE": "all.log"}, COMMAND, "32,64", "instead of all.log"),
        ({}, COMMAND, "64", "is killed"),
        ({}, ["docker", "run", "x"], "32,64", "within it"),
        ({}, ["/usr/bin/srun", "x"], "32,64", "nodes"),
    ],
)
def test_what_is_doubtful_is_reported(
    tmp_path: Path, environ: dict[str, str], command: list[str], masks: str, said: str
) -> None:
    (warning,) = plan(command, tmp_path, masks, environ=environ).warnings
    assert said in warning


def test_folders_that_would_mix_or_break_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.log").touch()
    with pytest.raises(InputError, match="must be empty"):
        plan(COMMAND, tmp_path, environ={})
    with pytest.raises(InputError, match="%i"):
        plan(COMMAND, tmp_path / "job_%i", environ={})


def test_exports_make_the_same_environment_in_a_shell(tmp_path: Path) -> None:
    base = {"HIPBLASLT_LOG_LEVEL": "5", "PATH": os.environ["PATH"]}
    made = plan(COMMAND, tmp_path / "it's new", markers=True, environ=base)
    show = f"{exports(made)}\nexec {sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    out = subprocess.run(["sh", "-c", show], env=base, capture_output=True, text=True, check=True).stdout
    assert {k: v for k, v in json.loads(out).items() if k not in ("PWD", "SHLVL", "_", "LC_CTYPE")} == made.environ(
        base
    )
    assert (tmp_path / "it's new").is_dir()
    text = exports(made)
    assert "5 is error + hints" in text
    assert "production" in text
    assert "standard error" in text


# ------------------------------------------------------------------------------------------------------------- jobs

DRIVER = """
import sys
from pathlib import Path
from logparse.capture import plan
from logparse.capture.run import capture
from logparse.store import open_store
from logparse.capture import run
plan._gpus = lambda environ: {"rocm", "cuda"}
folder, store, facts, *command = sys.argv[1:]
if facts != "yes":
    run.facts_of_job = lambda command, environ: {} if facts == "no" else {"arch": facts}
code, _ = capture(command, plan.plan(command, Path(folder)), lambda: open_store(store, create=True),
                  lambda line: print(line, file=sys.stderr, flush=True), run="job")
sys.exit(code)
"""

JOB = """
import os, shutil, sys
samples = sys.argv[1]
assert "HIPBLASLT_LOG_LEVEL" not in os.environ
assert int(os.environ["HIPBLASLT_LOG_MASK"]) == 96
log = os.environ["HIPBLASLT_LOG_FILE"].replace("%i", str(os.getpid()))
shutil.copy(f"{samples}/hipblaslt/profile_4242.log", log)
name = os.environ["PYTORCH_TUNABLEOP_UNTUNED_FILENAME"].replace(".csv", "0.csv")
shutil.copy(f"{samples}/tunableop/tunableop_untuned0.csv", name)
print("step 1", flush=True)
sys.stderr.write("MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 8 -c 64 -H 56 -W 56 -k 64 -y 3"
                 " -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 4 -t 1\\nwarming up …")
sys.exit(7)
"""


def driven(tmp_path: Path, *command: str, facts: str = "no") -> list[str]:
    """Return a command that runs this job under ``logparse capture``, in a process of its own.

    ``facts`` is the name of the GPU's architecture, "yes" (ask PyTorch) or "no" (ask nothing).
    """
    # "yes" takes two seconds.
    return [sys.executable, "-c", DRIVER, str(tmp_path / "logs"), str(tmp_path / "store"), facts, *command]


def python(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def test_a_job_runs_and_its_logs_are_read(tmp_path: Path) -> None:
    environ = {**os.environ, "HIPBLASLT_LOG_LEVEL": "5"}
    command = driven(tmp_path, *python(JOB), str(SAMPLES), facts="yes")
    out = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environ)
    assert (out.returncode, out.stdout) == (7, "step 1\n"), out.stderr
    assert "HIPBLASLT_LOG_LEVEL=5 is removed" in out.stderr
    assert "LogCmdConvolution] ./bin/MIOpenDriver conv" in out.stderr
    assert "warming up …" in out.stderr
    store = open_store(tmp_path / "store")
    names = {Path(path).name.translate(str.maketrans("", "", "0123456789")) for path in store.sources()["path"]}
    assert names == {"hipblaslt_.log", "tunableop_untuned.csv", "stderr.log", "facts.json"}
    assert {"profile", "untuned", "miopen_cmd"} <= set(store.calls()["category"])
    assert store.runs() == ["job"]
    assert store.sources().set_index("format").loc["hipblaslt-profile", "pid_from"] == "name"
    assert (tmp_path / "logs" / "stderr.log").read_text().endswith("warming up …")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_job_once(tmp_path: Path, number: signal.Signals) -> None:
    waits = f"""
        import signal, sys, time
        seen = []
        signal.signal({int(number)}, lambda n, frame: seen.append(n))
        print("ready", flush=True)
        while not seen:
            time.sleep(0.01)
        time.sleep(0.3)
        print(f"seen {{len(seen)}}")
        sys.exit(40 + len(seen))
    """
    running = subprocess.Popen(driven(tmp_path, *python(waits)), stdout=-1, stderr=-3, cwd=ROOT, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(number)
    assert running.communicate()[0] == "seen 1\n"
    assert running.returncode == 41


def test_control_c_at_a_terminal_reaches_the_job_once(tmp_path: Path) -> None:
    waits = """
        import signal, sys, time
        seen = []
        signal.signal(signal.SIGINT, lambda n, frame: seen.append(n))
        print("ready", flush=True)
        while not seen:
            time.sleep(0.01)
        time.sleep(0.3)
        print(f"seen {len(seen)}", flush=True)
    """
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, driven(tmp_path, *python(waits)))
    said = b""
    deadline = time.monotonic() + PATIENCE_S
    while b"seen" not in said and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 4096)
        if said.count(b"ready") == 1 and b"^C" not in said:
            os.write(terminal, b"\x03")
            said += b"^C"
    _drain(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert b"seen 1" in said


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # the other side is closed
        os.close(terminal)


def test_a_killed_job_gives_a_shells_exit_code(tmp_path: Path) -> None:
    ended = job.run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), os.environ)
    assert (ended.code, ended.killed_by) == (137, "SIGKILL")


@pytest.mark.parametrize(("name", "code"), [("no-such-program", 127), ("not-executable", 126)])
def test_what_cannot_run_gives_a_shells_exit_code(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    out = subprocess.run(driven(tmp_path, str(tmp_path / name)), capture_output=True, text=True, check=False, cwd=ROOT)
    assert out.returncode == code
    assert name in out.stderr
    assert "Traceback" not in out.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["not-executable"], "neither a store nor a folder of logs"


def test_capture_does_not_wait_for_processes_left_behind(tmp_path: Path) -> None:
    """``capture`` ends with the job, even if the job left a process in the background.

    The background process still holds the job's standard error open.
    """
    leaves = "import subprocess, sys; print(subprocess.Popen(['sleep', '900'], stdout=-3).pid, flush=True)"
    command = driven(tmp_path, *python(leaves))
    out = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=PATIENCE_S)
    os.kill(int(out.stdout), signal.SIGKILL)
    assert out.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_stops_the_copy_and_not_the_job(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writes = "import sys; [sys.stderr.write('x' * 99 + chr(10)) for _ in range(10_000)]; sys.exit(3)"
    ended = job.run(python(writes), os.environ, Path("/dev/full"))
    assert ended.code == 3
    assert ended.lost_copy is not None
    assert "No space left" in ended.lost_copy
    assert len(capfd.readouterr().err) == 1_000_000


def test_what_a_job_prints_goes_through_and_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prints = "import os; os.write(1, b'out %d\\n' % os.isatty(1)); os.write(2, b'err\\n')"
    for _ in range(2):
        assert job.run(python(prints), os.environ, None, tmp_path / "job.log").code == 0
    assert capfd.readouterr() == ("out 0\n" * 2, "err\n" * 2)
    assert sorted((tmp_path / "job.log").read_text().splitlines()) == ["err", "err", "out 0", "out 0"]


def test_a_job_at_a_terminal_still_has_one(tmp_path: Path) -> None:
    """A job that is started at a terminal still has a terminal under ``capture``.

    The copy of its output has the job's own line ends, not the terminal's, and keeps the carriage returns of progress
    bars.
    """
    prints = "import os; os.write(1, b'%d %d\\n\\r 5%%' % (os.isatty(1), os.isatty(2)))"
    runs = "import os; from pathlib import Path; from logparse.capture import job; "
    runs += f"job.run({python(prints)!r}, os.environ, None, Path({str(tmp_path / 'job.log')!r}))"
    ours, theirs = os.openpty()
    process = subprocess.Popen([sys.executable, "-c", runs], stdout=theirs, stderr=theirs, cwd=ROOT)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while data := os.read(ours, 4096):
            seen += data
    os.close(ours)
    assert (process.wait(), seen) == (0, b"1 1\r\n\r 5%")
    assert (tmp_path / "job.log").read_bytes() == b"1 1\n\r 5%"


def test_a_store_that_cannot_be_opened_is_reported_before_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "logparse-store.json").write_text("{}")
    ran = tmp_path / "ran"
    out = subprocess.run(driven(tmp_path, "touch", str(ran)), capture_output=True, text=True, check=False, cwd=ROOT)
    assert out.returncode == 1
    assert "damaged" in out.stderr
    assert not ran.exists()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ("no", "logparse found no GPU on this machine"),
        ("gfx942", "check that the job uses the GPU, that it runs with this command's environment"),
    ],
)
def test_a_job_without_calls_is_reported_with_the_likely_reason(facts: str, why: str, tmp_path: Path) -> None:
    out = subprocess.run(driven(tmp_path, "true", facts=facts), capture_output=True, text=True, check=False, cwd=ROOT)
    assert out.returncode == 0
    assert f"warning: no call of a GPU library was counted: {why}" in out.stderr


# ------------------------------------------------------------------------------------------------------------ machine

ROCM_HEADERS = {
    ".info/version": "7.0.0-38\n",
    "include/hipblaslt/hipblaslt-version.h": "HIPBLASLT 1 0 0 3b3d59eb",
    "include/miopen/version.h": "MIOPEN 3 4 0 7c1e0a9d2",
    "include/rocblas/internal/rocblas-version.h": "ROCBLAS 5 0 0 3b3d59eb-dirty",
}


def test_versions_of_a_rocm_installation(tmp_path: Path) -> None:
    for name, text in ROCM_HEADERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        library, _, numbers = text.partition(" ")
        parts = zip(("MAJOR", "MINOR", "PATCH", "TWEAK"), numbers.split(), strict=False)
        header = "".join(f"#define {library}_VERSION_{part}       {number}\n" for part, number in parts)
        (tmp_path / name).write_text(header if numbers else text)
    assert machine.rocm_files(tmp_path) == {
        "rocm_version": "7.0.0-38",
        "hipblaslt_version": "100000",
        "hipblaslt_revision": "3b3d59eb",
        "miopen_version": "3.4.0",
        "miopen_tweak": "7c1e0a9d2",
        "rocblas_version": "5.0.0.3b3d59eb-dirty",
    }
    (tmp_path / "include/miopen/version.h").write_text("#define MIOPEN_VERSION_MAJOR next\n")
    assert "miopen_version" not in machine.rocm_files(tmp_path)
    assert machine.rocm_files(tmp_path / "nowhere") == {}


ROCMINFO = """
ROCk module version 6.12.12 is loaded
==========
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD EPYC 9654 96-Core Processor
  Marketing Name:          AMD EPYC 9654 96-Core Processor
  Compute Unit:            192
*******
Agent 2
*******
  Name:                    gfx942
  Uuid:                    GPU-0123456789abcdef
  Marketing Name:          AMD Instinct MI300X
  Compute Unit:            304
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
*** Done ***
"""


def test_the_gpus_of_rocminfo() -> None:
    gpu = {"arch": "gfx942:sramecc+:xnack-", "cu_count": "304", "device": "AMD Instinct MI300X"}
    assert machine.rocminfo(ROCMINFO) == [gpu]
    assert machine.rocminfo("") == []


@pytest.mark.parametrize(
    ("arch", "cus", "mode", "facts"),
    [
        ("gfx1201", "64", None, {"cu_count": "32"}),
        ("gfx1030", "72", "1", {"cu_count": "36"}),
        ("gfx1100", "96", "0", {"cu_count": "96", "wgp_mode": "0"}),
        ("gfx1250", "256", None, {"cu_count": "256"}),
        ("gfx90a", "104", "0", {"cu_count": "104"}),
    ],
)
def test_compute_units_are_counted_as_hip_does(
    arch: str, cus: str, mode: str | None, facts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPU_ENABLE_WGP_MODE", raising=False)
    if mode:
        monkeypatch.setenv("GPU_ENABLE_WGP_MODE", mode)
    text = ROCMINFO.replace("gfx942:sramecc+:xnack-", arch).replace("gfx942", arch).replace("304", cus)
    (found,) = machine.rocminfo(text)
    assert found == {"arch": arch, "device": "AMD Instinct MI300X"} | facts


def test_facts_that_differ_between_gpus_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 550.163.01, 9.0'\necho 'NVIDIA H100, 550.163.01, 9.0'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert machine.nvidia_tools() == {"driver": "550.163.01", "arch": "sm_90"}


def test_the_jobs_own_interpreter_is_asked(tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    script.write_text(f"#!{sys.executable}\nprint('x')\n")
    script.chmod(0o755)
    assert interpreter([str(script), "train.py"]) == sys.executable
    assert interpreter([sys.executable]) == sys.executable
    for other in ([], ["no-such-program"], ["sh"]):
        assert interpreter(other) == sys.executable


@pytest.mark.parametrize("cuda", [None, "12.8"])
def test_a_torch_for_cpus_is_not_imported_for_its_version(cuda: str | None, tmp_path: Path) -> None:
    """The import of torch takes seconds. A torch for CPUs alone knows only its version, which a file of it states."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(f"__version__ = '2.13.0+local'\ncuda = {cuda!r}\nhip = None\n")
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('imported')")
    found = facts_of_job([sys.executable], {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert found.get("pytorch_version") == (None if cuda else "2.13.0")


def test_facts_come_from_the_jobs_own_python(tmp_path: Path) -> None:
    """``capture`` gets facts about the machine from the torch that the job's own Python imports.

    Here this is a fake torch. Its answers are stored under the names that the log formats also use.
    """
    (tmp_path / "torch.py").write_text(
        textwrap.dedent("""
        import sys
        from types import SimpleNamespace as Some
        print("a library that prints {")
        __version__ = "2.9.1+rocm7.0"
        version = Some(hip="7.0.51831", cuda=None)
        gpu = Some(gcnArchName="gfx942:sramecc+:xnack-", multi_processor_count=304, name="AMD Instinct MI300X")
        keys = (("PT_VERSION", "2.9.1"), ("HIP_VERSION", "701"), ("HIPBLASLT_VERSION", "100000-3b3d59eb"))
        cuda = Some(is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda i: gpu,
                    tunable=Some(get_validators=lambda: keys))
        """)
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "HIPBLASLT_LOG_MASK": "255"}
    facts = facts_of_job([sys.executable], environ)
    wanted = {
        "arch": "gfx942:sramecc+:xnack-",
        "cu_count": "304",
        "device": "AMD Instinct MI300X",
        "backend": "HIP",
        "pytorch_version": "2.9.1",
        "hip_version": "701",
        "hipblaslt_version": "100000",
        "hipblaslt_revision": "3b3d59eb",
        "validator:HIPBLASLT_VERSION": "100000-3b3d59eb",
    }
    assert facts | wanted == facts
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    assert target_from([str(tmp_path / "facts.json")])["arch"] == "gfx942:sramecc+:xnack-"
