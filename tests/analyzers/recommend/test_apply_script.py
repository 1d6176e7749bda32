"""Tests of the generated script ``apply.sh``, which is sourced in dash, bash and other real shells.

The tools that the script asks about the GPU and the libraries are fakes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from analyzers.recommend.apply_script import NAME, guards, script
from logparse.libraries.kinds.format import Emission
from logparse.model import DEFAULT, Override, Solution
from logparse.quoting import Shell, make_printable
from tests.analyzers.example import gemm
from tests.test_hostile import BLIND, CANARY, LINES

FOUND = {
    Path(found).resolve(): shell for shell in ("sh", "dash", "bash", "zsh", "busybox") if (found := shutil.which(shell))
}
SHELLS = list(FOUND.values())
"""The shells on this machine, each only once. For example, ``sh`` is mostly another name of dash or bash."""
TARGET = {
    "arch": "gfx942:sramecc+:xnack-",
    "cu_count": "304",
    "hipblaslt_version": "100000",
    "hipblaslt_revision": "3b3d59eb",
    "pytorch_version": "2.9.1",
    "validator:PT_VERSION": "2.9.1",
    "validator:HIPBLASLT_VERSION": "100000-3b3d59eb",
}
ROCMINFO = """\
*******
Agent 1
*******
  Name:                    AMD EPYC 9654 96-Core Processor
  Compute Unit:            192
*******
Agent 2
*******
  Name:                    gfx942
  Marketing Name:          AMD Instinct MI300X
  Compute Unit:            304
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
"""
TORCH = {
    "pytorch_version": "2.9.1",
    "arch": "gfx942",
    "cu_count": "304",
    "validator:PT_VERSION": "2.9.1",
    "validator:HIPBLASLT_VERSION": "100000-3b3d59eb",
    "hipblaslt_version": "100000",
    "hipblaslt_revision": "3b3d59eb",
}
HEADER = """\
#define HIPBLASLT_VERSION_MAJOR 1
#define HIPBLASLT_VERSION_MINOR 0
#define HIPBLASLT_VERSION_PATCH 0
#define HIPBLASLT_VERSION_TWEAK 3b3d59eb
"""
OVERRIDE = Override(problem=gemm(), solution=Solution("hipblaslt", "9"), target=TARGET)
FILES = (
    Emission("hipblaslt_tuning.txt", b"x", Shell("export HIPBLASLT_TUNING_OVERRIDE_FILE={path}\n# Verify: …")),
    Emission(
        "tunableop_results0.csv",
        b"x",
        Shell(
            "export PYTORCH_TUNABLEOP_ENABLED=1\nexport PYTORCH_TUNABLEOP_FILENAME={folder}/tunableop_results.csv\n"
            "#   export PYTORCH_TUNABLEOP_VERBOSE=3\n"
        ),
    ),
    Emission("gfx942130.HIP.ufdb.txt", b"x", Shell("unset MIOPEN_FIND_MODE  # looks up first\n")),
    Emission("tunableop_untuned0.csv", b"x", Shell("cd {folder} && python tune_tunableop.py\n")),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write override files (choices of kernels) and the script ``apply.sh`` that makes libraries use them.

    The folder has blanks and a quote in its path.
    """
    out = tmp_path / "over rides" / "it's here"
    out.mkdir(parents=True)
    made = script([OVERRIDE], FILES, TARGET, str(out))
    assert made is not None
    for file in (*FILES, made):
        (out / file.name).write_bytes(file.data)
    return out


def tool(folder: Path, name: str, output: str, code: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output.rstrip()}\nEND\nexit {code}\n")
    path.chmod(0o755)


def machine(tmp_path: Path, rocminfo: str | None = ROCMINFO, torch: Mapping[str, str] | None = TORCH) -> dict[str, str]:
    """Return environment variables for a shell that sees a made-up machine with a certain GPU and library versions.

    With ``rocminfo=None`` the tool ``rocminfo`` is missing, and with ``torch=None`` PyTorch is missing.
    """
    tools = tmp_path / "bin"
    if rocminfo is not None:
        tool(tools, "rocminfo", rocminfo)
    for python in ("python", "python3"):
        said = "" if torch is None else "".join(f"{name} {value}\n" for name, value in torch.items())
        tool(tools, python, said, code=torch is None)
    return {"PATH": f"{tools}:/usr/bin:/bin", "ROCM_PATH": str(tmp_path / "rocm"), "MIOPEN_FIND_MODE": "1"}


def source(shell: str, path: Path | str, env: Mapping[str, str], cwd: Path, options: str = "-u") -> tuple[str, str]:
    """Source a script in a shell. Returns what the shell printed, and its errors.

    The printed text includes the exit status and the environment after the script.
    """
    text = f'set {options}\nif . "$1"; then echo "status 0"; else echo "status $?"; fi\n'
    text += 'set +u\nenv\necho "all variables"\nset'
    words = [shutil.which(shell) or shell, *(["sh"] if shell == "busybox" else []), "-c", text, "shell", str(path)]
    done = subprocess.run(words, env=dict(env), cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def exported(out: str) -> dict[str, str]:
    """Return the variables for hipBLASLt, MIOpen and PyTorch that are set after a script was sourced: {name: value}.

    ``out`` is the text that ``source`` returned.
    """
    env = out.partition("status ")[2].partition("all variables")[0]
    return dict(re.findall(r"^((?:HIPBLASLT|PYTORCH|MIOPEN)_\w+)=(.*)$", env, re.MULTILINE))


@pytest.mark.parametrize("options", ["-u", "-eu", "+u"])
@pytest.mark.parametrize("shell", SHELLS)
def test_on_the_target_it_exports_what_is_needed(shell: str, options: str, folder: Path, tmp_path: Path) -> None:
    out, errors = source(shell, folder / NAME, machine(tmp_path), tmp_path, options)
    assert out.startswith("status 0")
    assert errors == ""
    assert exported(out) == {
        "HIPBLASLT_TUNING_OVERRIDE_FILE": f"{folder}/hipblaslt_tuning.txt",
        "PYTORCH_TUNABLEOP_ENABLED": "1",
        "PYTORCH_TUNABLEOP_FILENAME": f"{folder}/tunableop_results.csv",
    }
    assert "_logparse" not in out, "nothing of the script's own stays in the shell"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("rocminfo", "torch", "reason"),
    [
        (
            ROCMINFO.replace("gfx942", "gfx90a"),
            {**TORCH, "arch": "gfx90a"},
            "arch is gfx90a here, the files are for gfx942",
        ),
        (ROCMINFO.replace("304", "80"), {**TORCH, "cu_count": "80"}, "cu_count is 80 here, the files are for 304"),
        (ROCMINFO, {**TORCH, "pytorch_version": "2.10.0"}, "pytorch_version is 2.10.0 here, the files are for 2.9.1"),
        (
            ROCMINFO,
            {**TORCH, "validator:HIPBLASLT_VERSION": "100000-0badf00d"},
            "validator:HIPBLASLT_VERSION is 100000-0badf00d here",
        ),
        (ROCMINFO, {**TORCH, "hipblaslt_revision": "0badf00d"}, "hipblaslt_revision is 0badf00d here"),
    ],
    ids=["arch", "cu_count", "pytorch", "validator", "hipblaslt"],
)
def test_elsewhere_it_refuses_and_exports_nothing(
    shell: str, rocminfo: str, torch: Mapping[str, str], reason: str, folder: Path, tmp_path: Path
) -> None:
    out, errors = source(shell, folder / NAME, machine(tmp_path, rocminfo, torch), tmp_path)
    assert out.startswith("status 1")
    assert f"apply.sh: not applied: {reason}" in errors
    assert exported(out) == {"MIOPEN_FIND_MODE": "1"}, "as it was"
    assert "_logparse" not in out


@pytest.mark.parametrize("shell", SHELLS)
def test_a_caution_is_printed_and_the_files_apply(shell: str, folder: Path, tmp_path: Path) -> None:
    made = script([OVERRIDE], FILES, TARGET, str(folder), "it's 1 of 2 rows: $HOME `id`")
    assert made is not None
    (folder / NAME).write_bytes(made.data)
    out, errors = source(shell, folder / NAME, machine(tmp_path), tmp_path)
    assert (out.startswith("status 0"), errors) == (True, "apply.sh: it's 1 of 2 rows: $HOME `id`\n")
    assert "HIPBLASLT_TUNING_OVERRIDE_FILE" in exported(out)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("code", [*BLIND, *LINES], ids=repr)
def test_facts_are_never_run_as_code(shell: str, code: str, tmp_path: Path) -> None:
    """``apply.sh`` never runs text about the expected machine as code.

    Such text is a fact's name or value, or a warning. A machine that reports the same strange text is still accepted.
    """
    target = {"arch": "gfx942", "cu_count": "304", "hipblaslt_revision": f"3b{code}", f"validator:A{code}": f"1{code}"}
    out = tmp_path / "out"
    out.mkdir()
    made = script([OVERRIDE], FILES, target, str(out), f"1 of 2 rows {code}")
    assert made is not None
    for file in (*FILES, made):
        (out / file.name).write_bytes(file.data)
    known = {
        "hipblaslt_revision": make_printable(f"3b{code}"),
        f"validator:A{make_printable(code)}": make_printable(f"1{code}"),
    }
    for fit in (True, False):
        env = machine(tmp_path, torch=known if fit else {**known, "hipblaslt_revision": "another"})
        done, errors = source(shell, out / NAME, env, out)
        assert done.startswith("status 0" if fit else "status 1"), errors
        assert all(line.isprintable() for line in errors.splitlines())
    assert not [x for x in tmp_path.rglob("*") if CANARY in x.name]


@pytest.mark.parametrize("shell", SHELLS)
def test_what_cannot_be_read_is_reported(shell: str, folder: Path, tmp_path: Path) -> None:
    out, errors = source(shell, folder / NAME, machine(tmp_path, None, None), tmp_path)
    assert out.startswith("status 0")
    [line] = errors.splitlines()
    assert line.startswith("apply.sh: not checked, because it cannot be read here: arch gfx942, cu_count 304, ")
    assert "pytorch_version 2.9.1" in line


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("header", "status"), [(HEADER, "0"), (HEADER.replace("3b3d59eb", "0badf00d"), "1")])
def test_headers_are_compared_where_there_is_no_pytorch(
    shell: str, header: str, status: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rocm/include/hipblaslt/hipblaslt-version.h"
    path.parent.mkdir(parents=True)
    path.write_text(header)
    out, errors = source(shell, folder / NAME, machine(tmp_path, torch=None), tmp_path)
    assert out.startswith(f"status {status}")
    assert "hipblaslt" not in errors.partition("not checked")[2].partition("validator")[0]


@pytest.mark.parametrize("shell", SHELLS)
def test_one_of_several_gpus_is_enough(shell: str, folder: Path, tmp_path: Path) -> None:
    other = ROCMINFO.partition("Agent 2")[2].replace("gfx942", "gfx1036").replace("304", "2")
    env = machine(tmp_path, f"{ROCMINFO}*******\nAgent 3{other}", {k: v for k, v in TORCH.items() if k != "arch"})
    assert source(shell, folder / NAME, env, tmp_path)[0].startswith("status 0")


@pytest.mark.parametrize("shell", SHELLS)
def test_apply_sh_works_after_a_move(shell: str, folder: Path, tmp_path: Path) -> None:
    """The script ``apply.sh`` still works after its folder was moved."""
    # Bash tells a script in which folder it is. In other shells, apply.sh looks for its files in the working directory.
    # If they are not there, an error says what to do.
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    env = machine(tmp_path)
    out, _ = source(shell, f"./{NAME}", env, moved)
    assert out.startswith("status 0")
    assert f"{moved}/hipblaslt_tuning.txt" in out
    away, errors = source(shell, moved / NAME, env, tmp_path)
    assert away.startswith("status 0" if shell == "bash" else "status 1")
    assert (shell == "bash") == (f"{moved}/hipblaslt_tuning.txt" in away)
    assert shell == "bash" or "source it in its own folder" in errors


def test_a_missing_file_is_reported(folder: Path, tmp_path: Path) -> None:
    (folder / "hipblaslt_tuning.txt").unlink()
    out, errors = source("sh", folder / NAME, machine(tmp_path), tmp_path)
    assert out.startswith("status 1")
    assert "hipblaslt_tuning.txt is not in" in errors


FAKE_TORCH = """
__version__ = "2.9.1+rocm7.0"
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    @staticmethod
    def get_device_properties(index):
        class properties:
            gcnArchName, multi_processor_count, major, minor = "gfx942:sramecc+:xnack-", 304, 9, 4
        return properties
    class tunable:
        get_validators = staticmethod(lambda: (("PT_VERSION", "2.9.1"), ("HIPBLASLT_VERSION", "100000-3b3d59eb")))
"""


def test_facts_from_pytorch_are_right(folder: Path, tmp_path: Path) -> None:
    """``apply.sh`` gets the right facts about GPU and libraries from PyTorch, by a piece of Python code.

    A real Python interpreter runs this code, with a fake ``torch`` module that answers as on an MI300X.
    """
    text = (folder / NAME).read_text().partition("-c '")[2].partition("' 2>")[0]
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    out = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert dict(line.split(" ", 1) for line in out.splitlines()) == TORCH


def test_what_is_guarded() -> None:
    plain = guards([OVERRIDE], FILES[:1], TARGET)
    assert plain == {
        "arch": "gfx942",
        "cu_count": "304",
        "hipblaslt_revision": "3b3d59eb",
        "hipblaslt_version": "100000",
    }
    tunable = guards([OVERRIDE], FILES[:2], TARGET)
    assert set(tunable) == set(TARGET)
    assert guards([Override(problem=gemm(), solution=DEFAULT, target={})], FILES[:1], {}) == {}


def test_without_override_files_there_is_nothing_to_apply() -> None:
    assert script([], FILES[3:], TARGET) is None


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("arch", "cus", "wanted", "mode", "applies"),
    [
        ("gfx1201", "64", "32", None, True),
        ("gfx1100", "96", "48", "1", True),
        ("gfx1201", "64", "32", "0", False),
        ("gfx1201", "64", "64", "0", True),
        ("gfx1201", "56", "32", None, False),
        ("gfx1250", "256", "256", None, True),
        ("gfx90a", "104", "104", None, True),
    ],
)
def test_compute_units_are_counted_as_hip_does(
    shell: str, arch: str, cus: str, wanted: str, mode: str | None, applies: bool, tmp_path: Path
) -> None:
    """``apply.sh`` compares the machine's number of compute units with the expected one, as HIP counts them."""
    # MIOpen's file names have HIP's number, but the tool rocminfo prints another one. On RDNA, HIP counts pairs of
    # compute units, unless an environment variable turns that off.
    target = {"arch": arch, "cu_count": wanted, "miopen_version": "3.5.1", "miopen_tweak": "abc"}
    file = Emission("any.ufdb.txt", b"x", Shell("export MIOPEN_USER_DB_PATH={folder}"))
    made = script([Override(problem=gemm(), solution=Solution("miopen", "x"), target=target)], [file], target)
    assert made is not None
    for one in (file, made):
        (tmp_path / one.name).write_bytes(one.data)
    shown = ROCMINFO.replace("gfx942:sramecc+:xnack-", arch).replace("gfx942", arch).replace("304", cus)
    env = machine(tmp_path, shown, None) | ({"GPU_ENABLE_WGP_MODE": mode} if mode else {})
    out, _ = source(shell, tmp_path / NAME, env, tmp_path)
    assert ("MIOPEN_USER_DB_PATH" in exported(out)) is applies
