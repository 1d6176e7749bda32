"""Compare the build of a library on the target machine with the build on the machine that measured.

A time from another build may help to rank findings, but never becomes an override.
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.found import offered
from logparse.libraries.kinds.build import Build
from logparse.quoting import file_name
from logparse.target import Facts, arch, same_device

BUILDS: Mapping[str, Build] = {
    build.library: build for build in sorted(offered("BUILD"), key=lambda build: (build.by_name, build.library))
}
"""For each library, the facts that identify its build, such as its version.

Libraries whose solution ids depend on the build come first.
"""


def facts_of_build(library: str) -> tuple[str, ...]:
    """Return the names of the facts that identify a build of the library, such as its version.

    The result is empty for a library that states none.
    """
    return BUILDS[library].facts if library in BUILDS else ()


def ids_are_names(library: str) -> bool:
    """Tell whether the library's solution ids are names, which mean the same in every build."""
    return library in BUILDS and BUILDS[library].by_name


def same_build(one: Facts, other: Facts, library: str) -> bool | None:
    """Tell whether two machines have the same build of ``library``.  Return None if this is unknown.

    The revision is empty in some builds (Debian's hipBLASLt).  If it is empty on both machines, the version decides.
    """
    for name in facts_of_build(library):
        if name in one and name in other and (one[name] or other[name]):
            return one[name] == other[name]
    return None


def comparable(one: Facts, other: Facts, library: str) -> bool | None:
    """Tell whether a time of a solution on one machine is about the same solution and GPU model on the other machine.

    Returns None if this is unknown.  The builds of ``library`` must be the same, unless its solution ids are names
    (``Build.by_name``).
    """
    device = same_device(one, other)
    build = True if ids_are_names(library) else same_build(one, other, library)
    if device is False or build is False:
        return False
    return None if device is None or build is None else True


def serves(measured: Facts, target: Facts, library: str) -> bool | None:
    """Tell whether a time measured on one machine may become an override on the target machine.

    The GPU model must be the same, and so must the library's build if both machines state it.  Returns None if the GPU
    model is unknown on either side, or if an index depends on a build that is unknown on either side.
    """
    return False if same_build(measured, target, library) is False else comparable(measured, target, library)


def folder(facts: Facts) -> str:
    """Return a folder name for a target machine, for example ``gfx942-304cu-hipblaslt-1201``.

    It consists of the arch, the number of compute units and the builds of the libraries.
    """
    if not facts:
        return "no-target"
    words = [arch(facts) or "unknown-arch", f"{facts['cu_count']}cu" if "cu_count" in facts else ""]
    for library, build in BUILDS.items():
        known = next((facts[name] for name in build.facts if name in facts), None)
        words.append(f"{library}-{known}" if known else "")
    return file_name("-".join(filter(None, words)))
