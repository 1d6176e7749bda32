"""Tell whether a kernel's time from one machine also holds for another machine.

For this, the two must have the same GPU and usually the same build of the library.  The first machine is the one on
which the kernel was timed.  The second one (the target) is the one on which the job will run.

A time from another build may still help to rank findings.  But logparse never writes an override file (a list of
kernels for a library to use) because of such a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.found import import_values
from logparse.libraries.kinds.build import Build
from logparse.quoting import file_name
from logparse.target import Facts, arch, same_device

BUILDS: Mapping[str, Build] = {
    build.library: build for build in sorted(import_values("BUILD"), key=lambda build: (build.by_name, build.library))
}
"""For each library, the facts that identify its build, such as its version.

Libraries whose kernel numbers depend on the build come first.
"""


def facts_of_build(library: str) -> tuple[str, ...]:
    """Return which facts distinguish the builds of a library, for example its version.

    The result is empty for a library whose build cannot be identified.
    """
    return BUILDS[library].facts if library in BUILDS else ()


def ids_are_names(library: str) -> bool:
    """Return True if the library identifies its kernels by names, which mean the same in every build.

    Other libraries use numbers, and another build may number its kernels differently.
    """
    return library in BUILDS and BUILDS[library].by_name


def same_build(one: Facts, other: Facts, library: str) -> bool | None:
    """Tell whether two machines have the same build of ``library``.  Return None if this is unknown.

    The revisions are compared if both machines state one, otherwise the versions.
    """
    for name in facts_of_build(library):
        # Debian's hipBLASLt has an empty revision. If the revision is empty on both machines, the versions are
        # compared.
        if name in one and name in other and (one[name] or other[name]):
            return one[name] == other[name]
    return None


def has_comparable_times(one: Facts, other: Facts, library: str) -> bool | None:
    """Tell whether the kernels of a library take about the same time on two machines, or None if this is unknown.

    The GPU models must be equal, and the builds of ``library`` too.
    """
    device = same_device(one, other)
    # If a library has a name instead of a number for each kernel (``Build.by_name``), the build does not matter.
    build = True if ids_are_names(library) else same_build(one, other, library)
    if device is False or build is False:
        return False
    return None if device is None or build is None else True


def can_decide_for(measured: Facts, target: Facts, library: str) -> bool | None:
    """Return True if a time from one machine may decide which kernel a job on another machine will use.

    | result | condition |
    |---|---|
    | False | the GPU models differ, or both machines state the library's build and the builds differ |
    | None | a GPU model is unknown |
    | None | a build is unknown, and the library numbers its kernels differently in each build |
    | True | in all other cases |
    """
    return False if same_build(measured, target, library) is False else has_comparable_times(measured, target, library)


def folder(facts: Facts) -> str:
    """Return a folder name that describes a machine, for example ``gfx942-304cu-hipblaslt-1201``.

    The name consists of the GPU's architecture, the number of compute units and the builds of the libraries.
    """
    if not facts:
        return "no-target"
    words = [arch(facts) or "unknown-arch", f"{facts['cu_count']}cu" if "cu_count" in facts else ""]
    for library, build in BUILDS.items():
        known = next((facts[name] for name in build.facts if name in facts), None)
        words.append(f"{library}-{known}" if known else "")
    return file_name("-".join(filter(None, words)))
