"""Read and write TunableOp's validators: lines with the versions and the GPU for which a results file is valid.

A validator is a line of a results file that states a version or the GPU of the process that wrote the file.

::

    Validator,PT_VERSION,2.9.1
    Validator,HIP_VERSION,701                            (ROCM_VERSION,6.2.0.0-66-98a50c5 up to 2.7)
    Validator,HIPBLASLT_VERSION,100000-3b3d59eb          (0.6.0-592518e7 up to 2.4)
    Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-
    Validator,ROCBLAS_VERSION,5.0.0.5b515cf1bc

PyTorch rejects the whole file unless the file has the same validators with the same values as PyTorch itself.  A CUDA
build has PT_VERSION alone.
Source: pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from logparse.errors import EmissionError
from logparse.libraries.tunableop.signature import version
from logparse.model import Fact
from logparse.target import same_value

PREFIX = "validator:"
ORDER = ("PT_VERSION", "ROCM_VERSION", "HIP_VERSION", "HIPBLASLT_VERSION", "GCN_ARCH_NAME", "ROCBLAS_VERSION")
"""Usual order of the validators in a TunableOp results file.  PyTorch accepts any order."""

_CANONICAL: Mapping[str, str] = {
    "PT_VERSION": "pytorch_version",
    "ROCM_VERSION": "rocm_version",
    "HIP_VERSION": "hip_version",
    "GCN_ARCH_NAME": "arch",
    "ROCBLAS_VERSION": "rocblas_version",
}
_COMPARED = frozenset({*_CANONICAL.values(), "hipblaslt_version", "hipblaslt_revision"})
"""Names of the facts about a machine that can be compared with a validator in a results file.

A validator states a version or a device.
"""


def facts(validators: Mapping[str, str], libraries: Collection[str] | None = None) -> list[Fact]:
    """Return what the lines ``Validator,KEY,VALUE`` of a TunableOp results file say about the machine that wrote it.

    ``libraries`` are the libraries of the file's kernels.
    """
    # A line gives a value ``validator:KEY``. Most also give the value under its usual name, for example
    # ``pytorch_version``.
    out = [Fact(PREFIX + key, value) for key, value in validators.items()]
    out += [Fact(_CANONICAL[key], value) for key, value in validators.items() if key in _CANONICAL]
    number, dash, revision = validators.get("HIPBLASLT_VERSION", "").partition("-")
    if number:
        out.append(Fact("hipblaslt_version", number))
    # A build outside a git repository has an empty revision, for example in distributions.
    if dash:
        out.append(Fact("hipblaslt_revision", revision))
    if set(validators) & set(ORDER[1:]):
        out.append(Fact("backend", "HIP"))
    # Without kernels of hipBLASLt and rocBLAS, and with PT_VERSION as the only key, a CUDA build wrote the file.
    if libraries is not None and set(validators) == {"PT_VERSION"} and not {"hipblaslt", "rocblas"} & set(libraries):
        out.append(Fact("backend", "CUDA"))
    return out


def of_target(target: Mapping[str, str]) -> dict[str, str]:
    """Return the versions and the device that PyTorch on a given machine writes into a TunableOp results file.

    The values come from the entries ``validator:*`` of ``target``, and the prefix is removed.
    """
    return {name[len(PREFIX) :]: value for name, value in target.items() if name.startswith(PREFIX)}


def refusal(given: Mapping[str, str], target: Mapping[str, str]) -> str | None:
    """Explain why PyTorch on the target machine rejects a results file, because of the file's first lines.

    These lines (validators, ``given``) state versions and the device. Returns None if PyTorch accepts the file, or if
    no known fact contradicts the file.  If all validators of the target are known, all of them must be equal, which is
    PyTorch's own rule. Otherwise each known fact is compared with the validator that states it.
    """
    running = of_target(target)
    if complete(target):
        for name in sorted(set(given) ^ set(running)):
            return f"validator {name} is {'not one of this PyTorch' if name in given else 'missing'}"
    wrong = [_missing(name) for name in running if name not in given]
    wrong += [
        f"{name} is {value!r} in the file, but {running[name]!r} on the target"
        for name, value in given.items()
        if running.get(name, value) != value
    ]
    return "; ".join(wrong or _contradictions(given, target)) or None


def _missing(name: str) -> str:
    return f"validator {name} is missing"


def _contradictions(given: Mapping[str, str], target: Mapping[str, str]) -> Iterator[str]:
    """Yield the reasons why PyTorch on a given machine (``target``) would ignore a TunableOp results file.

    ``given`` are the versions and the device in the file's first lines (``Validator,…``).
    """
    device = target.get("backend") or _BACKENDS.get(target.get("arch", "")[:3])
    if device == "CUDA" and set(given) & set(ORDER[1:]):
        yield f"validator {min(set(given) & set(ORDER[1:]))} is not used by a PyTorch for CUDA"
    elif device == "HIP" and (lacking := _lacking(given, {})):
        yield _missing(lacking[-1])
    for key, value in given.items():
        for fact in facts({key: value}):
            stated = target.get(fact.name)
            compared = fact.name in _COMPARED and stated is not None
            if compared and not same_value(fact.name, fact.value, str(stated)):
                yield f"{key} is {value!r}, but the target's {fact.name} is {stated!r}"


_BACKENDS: Mapping[str, str] = {"gfx": "HIP", "sm_": "CUDA"}
"""PyTorch's backend (HIP or CUDA) for the first three letters of the GPU's architecture."""


def complete(target: Mapping[str, str]) -> bool:
    """Return True if enough is known about a machine to tell whether its PyTorch accepts a TunableOp results file."""
    # PyTorch compares versions and device names in the file with its own. All that it compares must be known.
    known = of_target(target)
    return "PT_VERSION" in known and not _lacking(known, target)


def lines(target: Mapping[str, str]) -> list[str]:
    """Return the lines ``Validator,…`` at the top of a results file, which state versions and the device.

    Raises EmissionError if a value may be unknown, or if a value has a comma or a line end.
    """
    known = of_target(target)
    remedy = (
        "give --target a results CSV that PyTorch wrote on the target, or a facts.json that `logparse capture` "
        "wrote there"
    )
    if "PT_VERSION" not in known:
        raise EmissionError(f"TunableOp: the target's validators are unknown (PT_VERSION is missing); {remedy}")
    # PyTorch reads the file only if all its values fit the machine.
    lacking = _lacking(known, target)
    if lacking:
        raise EmissionError(f"TunableOp: the target's validators {', '.join(lacking)} are unknown; {remedy}")
    if any("\n" in value or "," in value for value in known.values()):
        raise EmissionError(
            "TunableOp: a version or device name of the target contains a comma or a line end, so logparse cannot "
            "write it into the Validator lines of a results file"
        )
    keys = sorted(known, key=lambda key: (ORDER.index(key) if key in ORDER else len(ORDER), key))
    return [f"Validator,{key},{known[key]}" for key in keys]


def _lacking(known: Mapping[str, str], target: Mapping[str, str]) -> list[str]:
    if target.get("backend") == "CUDA":
        return []
    torch = version(known["PT_VERSION"])
    if torch is not None and torch < (2, 5) and len(known) > 1:
        return []  # 2.3 and 2.4 left out the validators of backends that were switched off
    out = [key for key in ("HIPBLASLT_VERSION", "GCN_ARCH_NAME", "ROCBLAS_VERSION") if key not in known]
    if not {"ROCM_VERSION", "HIP_VERSION"} & set(known):
        out.insert(0, "HIP_VERSION")
    return out
