"""Compare library builds: the target's build, and the build that a measurement was made with.

A time from another build may rank findings, but never becomes an override.
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
"""Statements of the rooms about the builds of their libraries (``BUILD``), by the library's name.

Libraries whose ids depend on the build come first.
"""


def facts_of_build(library: str) -> tuple[str, ...]:
    """Return the facts that identify a build of the library.  The result is empty if the library's room names none."""
    return BUILDS[library].facts if library in BUILDS else ()


def ids_are_names(library: str) -> bool:
    """Tell whether solution ids of the library are names, which mean the same in every build."""
    return library in BUILDS and BUILDS[library].by_name


def same_build(one: Facts, other: Facts, library: str) -> bool | None:
    """Tell whether both machines have the same build of ``library``.  Return None if it is unknown.

    The revision may be empty on both sides (Debian's hipBLASLt).  Then it distinguishes nothing, so the version
    decides.
    """
    for name in facts_of_build(library):
        if name in one and name in other and (one[name] or other[name]):
            return one[name] == other[name]
    return None


def comparable(one: Facts, other: Facts, library: str) -> bool | None:
    """Tell whether a solution id of ``library`` means the same on both machines, and whether the machines have the same
    device.

    Return None if it is unknown.  The build does not matter for a library whose ids are names (``Build.by_name``).
    """
    device = same_device(one, other)
    build = True if ids_are_names(library) else same_build(one, other, library)
    if device is False or build is False:
        return False
    return None if device is None or build is None else True


def serves(measured: Facts, target: Facts, library: str) -> bool | None:
    """Tell whether a time measured on one machine may become an override on the target.

    It may if the device is the same, and the library build is the same if both state it.  Return None if the device, or
    the build that gives an index its meaning, is unknown on either side.
    """
    return False if same_build(measured, target, library) is False else comparable(measured, target, library)


def folder(facts: Facts) -> str:
    """Return a folder name for a target, made of device and library builds: ``gfx942-304cu-hipblaslt-1201``."""
    if not facts:
        return "no-target"
    words = [arch(facts) or "unknown-arch", f"{facts['cu_count']}cu" if "cu_count" in facts else ""]
    for library, build in BUILDS.items():
        known = next((facts[name] for name in build.facts if name in facts), None)
        words.append(f"{library}-{known}" if known else "")
    return file_name("-".join(filter(None, words)))
