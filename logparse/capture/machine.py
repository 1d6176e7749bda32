"""Print the facts of a machine and its libraries: one JSON object of texts per line.

For example ``{"arch": "gfx942", "cu_count": "304"}``. ``logparse.model.FACTS`` lists the names. PyTorch's own facts are
named ``validator:KEY``. If two lines state the same fact, the later line is right.

* The job's own Python runs this file by path (``python …/capture/machine.py``), because it has the job's torch. So the
  file imports only the standard library, and torch if that Python has it.
* Every fact is optional. A source that fails prints nothing.

Sources: ``/opt/rocm/.info/version`` and the version headers of a ROCm installation, ``rocminfo``, ``nvidia-smi``,
torch's device properties, ``torch.cuda.tunable.get_validators()`` and the libraries that torch has loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROCM = Path(os.environ.get("ROCM_PATH") or "/opt/rocm")
_LIBRARIES: dict[str, tuple[str, Callable[[int, int, int, str], dict[str, str]]]] = {
    "libhipblaslt": (
        "include/hipblaslt/hipblaslt-version.h",
        lambda major, minor, patch, tweak: {
            "hipblaslt_version": str(major * 100000 + minor * 100 + patch),
            "hipblaslt_revision": tweak,
        },
    ),
    "libMIOpen": (
        "include/miopen/version.h",
        lambda major, minor, patch, tweak: {"miopen_version": f"{major}.{minor}.{patch}", "miopen_tweak": tweak},
    ),
    "librocblas": (
        "include/rocblas/internal/rocblas-version.h",
        lambda major, minor, patch, tweak: {"rocblas_version": f"{major}.{minor}.{patch}.{tweak}" if tweak else ""},
    ),
}
"""ROCm's libraries by the names of their files, each with its header, and the facts of its version.

The function gets the version as major, minor, patch and tweak.  To report the version of one more library, add a row.
"""
_DEFINED = re.compile(r"#\s*define\s+\w+_VERSION_(MAJOR|MINOR|PATCH|TWEAK)\s+(\S+)")
_TOOL_SECONDS = 20
_PAIRS_CUS = re.compile(r"gfx1(?!2[5-9])\d{2}[0-9a-f]")


def rocm_files(root: Path = ROCM) -> dict[str, str]:
    """Return the versions of ROCm and its math libraries, from the files of a ROCm installation.

    A job may use other libraries: torch often brings its own. ``loaded_libraries`` then corrects these versions.
    """
    out = {}
    with contextlib.suppress(OSError):
        out["rocm_version"] = (root / ".info/version").read_text(encoding="utf-8").strip()
    for header, facts in _LIBRARIES.values():
        with contextlib.suppress(OSError):
            defined = dict(_DEFINED.findall((root / header).read_text(encoding="utf-8", errors="replace")))
            numbers = [defined.get(name, "") for name in ("MAJOR", "MINOR", "PATCH")]
            if all(number.isdigit() for number in numbers):
                major, minor, patch = map(int, numbers)
                out.update(facts(major, minor, patch, defined.get("TWEAK", "")))
    return {name: value for name, value in out.items() if value}


def rocm_tools() -> dict[str, str]:
    """Return facts about the AMD GPU: architecture, name, number of compute units, and the version of its driver.

    The facts come from the program ``rocminfo`` and from the Linux kernel.
    """
    out = {}
    with contextlib.suppress(OSError):
        out["driver"] = Path("/sys/module/amdgpu/version").read_text(encoding="utf-8").strip()
    return out | _find_common_facts(rocminfo(_run_tool("rocminfo")))


def rocminfo(text: str) -> list[dict[str, str]]:
    """Return one dictionary of facts for each GPU that the printed text of ``rocminfo`` lists.

    For example ``{"device": "AMD Instinct MI300X", "cu_count": "304", "arch": "gfx942"}``.
    """
    agents = []
    for block in re.split(r"^\*+\s*\nAgent \d+\s*\n\*+\s*$", text, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^  (Name|Marketing Name|Compute Unit):\s+(.*?)\s*$", block, re.MULTILINE))
        if values.get("Name", "").startswith("gfx"):
            isa = re.search(r"^\s+Name:\s+amdgcn-amd-amdhsa--(gfx\S+)", block, re.MULTILINE)
            names = {"device": "Marketing Name", "cu_count": "Compute Unit"}
            agent = {fact: values[name] for fact, name in names.items() if values.get(name)}
            agents.append(_as_hip_counts(agent | {"arch": isa[1] if isa else values["Name"]}))
    return agents


def _as_hip_counts(agent: dict[str, str]) -> dict[str, str]:
    """Correct the number of compute units in a GPU's facts: return the number that HIP and PyTorch report.

    See ``logparse.target.hip_count``.
    """
    if not (_PAIRS_CUS.match(agent["arch"]) and agent.get("cu_count", "").isdecimal()):
        return agent
    # On some architectures (RDNA) ``rocminfo`` counts single compute units, but HIP counts pairs of them, unless this
    # environment variable says otherwise.
    if os.environ.get("GPU_ENABLE_WGP_MODE") == "0":
        return agent | {"wgp_mode": "0"}
    return agent | {"cu_count": str(int(agent["cu_count"]) // 2)}


def nvidia_tools() -> dict[str, str]:
    """Return the NVIDIA GPU's name, driver version and compute capability (``sm_90``), from ``nvidia-smi``."""
    rows = _run_tool("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
    gpus = [row.split(", ") for row in rows.splitlines()]
    named = [dict(zip(("device", "driver", "arch"), gpu)) for gpu in gpus if len(gpu) == 3]  # noqa: B905 (Python 3.9)
    return _find_common_facts([gpu | {"arch": "sm_" + gpu["arch"].replace(".", "")} for gpu in named])


def torch_facts() -> dict[str, str]:
    """Return facts that only torch can state: its version, its GPUs, and the validators of TunableOp.

    Validators are versions and other facts which a machine must have in common with a TunableOp file to use it.
    """
    if version := _version_of_cpu_build():
        return {"pytorch_version": version}
    import torch

    out = {"pytorch_version": torch.__version__.partition("+")[0]}
    out |= {"hip_version": torch.version.hip} if getattr(torch.version, "hip", None) else {}
    out |= {"cuda_version": torch.version.cuda} if torch.version.cuda else {}
    if not torch.cuda.is_available():
        return out
    out["backend"] = "HIP" if getattr(torch.version, "hip", None) else "CUDA"
    out.update(
        _find_common_facts(_device(torch.cuda.get_device_properties(i)) for i in range(torch.cuda.device_count()))
    )
    with contextlib.suppress(Exception):  # PyTorch is older than 2.3, or was built without TunableOp
        # PyTorch writes the validators into its TunableOp files.
        validators: Iterable[tuple[str, str]] = torch.cuda.tunable.get_validators()
        out.update((f"validator:{key}", value) for key, value in validators)
    return out


def _version_of_cpu_build() -> str:
    """Return the version of the torch that ``import torch`` would find, if it is built for CPUs alone. Else "".

    Such a torch knows nothing else of the machine, and its import takes seconds.
    """
    with contextlib.suppress(Exception):  # An unusual torch is imported instead.
        spec = importlib.util.find_spec("torch")
        stated = runpy.run_path(str(Path(spec.origin).with_name("version.py"))) if spec and spec.origin else {}
        if "cuda" in stated and "hip" in stated and not (stated["cuda"] or stated["hip"]):
            return str(stated["__version__"]).partition("+")[0]
    return ""


def _device(properties: Any) -> dict[str, str]:
    arch = getattr(properties, "gcnArchName", "")
    if not arch.startswith("gfx"):
        arch = f"sm_{properties.major}{properties.minor}"
    return {"arch": arch, "cu_count": str(properties.multi_processor_count), "device": properties.name}


def loaded_libraries() -> dict[str, str]:
    """Find out the versions of the math libraries (such as MIOpen) that PyTorch has loaded into this process.

    An empty text means that the version is unknown.
    """
    out = {}
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    paths = {Path(path).name.partition(".so")[0]: Path(path) for path in re.findall(r"(/\S+\.so\S*)", maps)}
    if "libcublasLt" in paths:
        tell = ctypes.CDLL(str(paths["libcublasLt"])).cublasLtGetVersion
        tell.restype = ctypes.c_size_t
        out["cublaslt_version"] = str(tell())
    for library, (_, facts) in _LIBRARIES.items():
        if library in paths and ROCM.resolve() not in paths[library].resolve().parents:
            # PyTorch may bring its own copy of a library. Then the header files in the ROCm folder state another
            # version, which is replaced by the one that the copy itself reports, or by an empty text.
            out.update(dict.fromkeys(facts(0, 0, 0, ""), ""))  # torch bundles it, so the headers are of another build
    if "libMIOpen" in paths:
        numbers = [ctypes.c_size_t() for _ in range(3)]
        if ctypes.CDLL(str(paths["libMIOpen"])).miopenGetVersion(*map(ctypes.byref, numbers)) == 0:
            out["miopen_version"] = ".".join(str(number.value) for number in numbers)
    return out


def _find_common_facts(devices: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return the facts that all GPUs of the machine have in common."""
    first, *others = [*devices] or [{}]
    return {name: value for name, value in first.items() if all(x.get(name) == value for x in others)}


def _run_tool(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""


PROBES: tuple[Callable[[], dict[str, str]], ...] = (rocm_files, rocm_tools, nvidia_tools, torch_facts, loaded_libraries)


def main() -> None:
    """Print what is known of the machine, one source of facts after the other.

    The facts of a source are printed at once, because a later source may hang (GPUs do).
    """
    here = Path(__file__).resolve().parent  # this folder's modules must not shadow modules that torch imports
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    for probe in PROBES:
        try:
            found = probe()
        except Exception as error:
            print(f"{probe.__name__}: {error}", file=sys.stderr)
            continue
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
