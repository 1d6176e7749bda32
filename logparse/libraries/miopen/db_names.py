"""The names of MIOpen's database files.  Only a file's name states the GPU and the build of MIOpen that read the file.

MIOpen ignores a file of another name.  The number in a name is ``hipDeviceAttributeMultiprocessorCount``.  This is the
number of compute units (CUs), but on RDNA the number of workgroup processors of two CUs each
(``logparse.target.counts_wgps``).  Example: the name for a Radeon RX 9070 XT, with 64 CUs, has ``gfx1201_32``.  Source:
ROCm/rocm-libraries ``projects/miopen/src/include/miopen/handle.hpp`` (``Handle::GetDbBasename``,
``GetMaxHardwareComputeUnits``) and ``src/hip/handlehip.cpp`` (``Handle::GetMaxComputeUnits``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import Head
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.kinds.reading import Note, Verdict, accepted
from logparse.model import Fact
from logparse.target import Facts, arch, counts_wgps

FILE_NAME = regex(
    r"(?P<arch>gfx(?:803|90[0-9a-f]|94[0-2]|950|1[0-2]\d[0-9a-f]))(?P<features>(?:_nosramecc|_sramecc)?(?:_xnack)?)"
    r"(?P<cu>_\d*|[0-9a-f]{2,3})\.(?P<backend>HIP|OpenCL)(?:\.(?P<version>\d+_\d+_\d+)(?:_(?P<tweak>[0-9A-Za-z_-]*))?)?"
    r"(?P<fusion>\.fusion)?\.(?P<kind>u?[fk]?db)(?:\.txt)?"
)
"""A regular expression for the name of a database file, for example ``gfx942130.HIP.3_4_0_037eb6dc4-dirty.ufdb.txt``.

The number of compute units follows the GPU: in decimal after ``_``, otherwise in hexadecimal.
"""

_MACHINE = ("arch", "cu_count", "backend", "miopen_version", "miopen_tweak")


def recognised(head: Head, names: str, is_key: Callable[[str], bool]) -> bool:
    """Tell whether a file is a MIOpen database, by its name or by a first line of the form ``key=id:values``.

    * ``names``: a regular expression for file names.
    * ``is_key``: tells whether a text is a key of this database.
    """
    if re.search(names, head.name):
        return True
    key, equals, payload = head.data.lstrip(b"\r\n").split(b"\n", 1)[0].partition(b"=")
    return bool(equals) and b":" in payload and is_key(key.decode("latin-1"))


def of_fusions(name: str) -> bool:
    """Return True if the name of a MIOpen database shows that it is only for fused operations.

    Such a database describes no convolutions.
    """
    match = FILE_NAME.fullmatch(name)
    return match is not None and match["fusion"] is not None


def facts_of_name(name: str) -> list[Fact]:
    """Return the facts that the name of a database file states.

    The facts are the GPU's architecture, the number of compute units and the build of MIOpen.  The list is empty if
    MIOpen never gives a file such a name.
    """
    match = FILE_NAME.fullmatch(name)
    if match is None:
        return []
    facts = [Fact("arch", match["arch"] + match["features"].replace("_xnack", ":xnack+"))]
    cu = match["cu"]
    if cu != "_":
        facts.append(Fact("cu_count", str(int(cu[1:]) if cu[0] == "_" else int(cu, 16))))
    facts.append(Fact("backend", match["backend"]))
    if match["version"]:
        facts.append(Fact("miopen_version", match["version"].replace("_", ".")))
        # Debian's builds have an empty tweak.
        facts += [Fact("miopen_tweak", match["tweak"])] if match["tweak"] is not None else []
    return facts


def file_name(target: Mapping[str, str], kind: str = "ufdb") -> str:
    """Return the name under which MIOpen on the target machine looks for its user database.

    Raises EmissionError if a fact about the target is missing.  The error names it.
    """
    sources = (
        "--target FILE, where FILE is from the target machine: a user find-db, a facts.json, or a MIOpen log of level 5"
    )
    for fact in ("arch", "cu_count", "miopen_version", "miopen_tweak"):
        if not target.get(fact) and not (fact == "miopen_tweak" and fact in target):
            raise EmissionError(f"MIOpen user database: {fact} of the target is unknown; give it with {sources}")
    # The name must be exact, because MIOpen ignores a file of another name without a message.
    device, *features = target["arch"].split(":")
    device += "_xnack" if "xnack+" in features else ""
    units = units_text(int(target["cu_count"]))
    version = target["miopen_version"].replace(".", "_")
    return f"{device}{units}.{target.get('backend', 'HIP')}.{version}_{target['miopen_tweak']}.{kind}.txt"


def units_text(units: int) -> str:
    """Write a number of compute units as in the file names of MIOpen: 32 as ``_32``, 304 as hexadecimal ``130``."""
    return f"_{units}" if units <= 64 else f"{units:x}"


def other_machine(own: Facts, target: Facts, remedy: str) -> Iterator[Note]:
    """Yield an error if the name of a database file shows that it is for another GPU or MIOpen build than the target's.

    ``own`` are the facts in the file's name.
    """
    mine, theirs = ({**facts, "arch": arch(facts) or ""} for facts in (own, target))
    # A part of a build's version, which MIOpen calls "tweak", may be empty. An empty part is compared, too.
    wrong = [x for x in _MACHINE if _known(x, mine) and _known(x, theirs) and mine[x] != theirs[x]]
    if wrong:
        named = ", ".join(f"{x} {mine[x] or 'empty'} (target: {theirs[x] or 'empty'})" for x in wrong)
        message = (
            f"the file's name is for another device or build, so the target's MIOpen never opens the file: {named}"
        )
        if "cu_count" in wrong and counts_wgps(mine["arch"]):
            message += f"; on {mine['arch']}, HIP counts WGPs, which are half of the CUs that rocminfo prints"
        yield Note(None, "error", "file-name", message, remedy)


def _known(fact: str, facts: Facts) -> bool:
    return fact in facts if fact == "miopen_tweak" else bool(facts.get(fact))


def odd_name(name: str, match: re.Match[str]) -> str:
    """Explain why no MIOpen, on any GPU, looks for a user database with this file name.

    Returns an empty text if some MIOpen may look for it.
    """
    unit = match["cu"]
    if not name.endswith(".txt"):
        return "the end .txt of the file's name is missing"
    if match["tweak"] is None:
        return (
            "the file's name lacks an underscore after MIOpen's version (it is needed even if no build number follows)"
        )
    if unit != "_" and unit != units_text(int(unit[1:]) if unit[0] == "_" else int(unit, 16)):
        return (
            "after the arch, the file's name must state the number of CUs: up to 64 CUs as an underscore and a "
            "decimal number (gfx1030_36), more CUs as a hexadecimal number without an underscore (gfx942130 for 304 "
            "CUs)"
        )
    return ""


def advise_file_name(target: Facts, suffix: str, otherwise: str) -> str:
    """Advise the user how to name a MIOpen database file: "name the file …".

    The name is the one that MIOpen on the target machine looks for.  If it is unknown, ``otherwise`` is returned.
    """
    try:
        return f"name the file {file_name(target, suffix)}"
    except EmissionError:
        return otherwise


def judge_file_use(target: Facts, refusals: Sequence[Note]) -> tuple[bool, Verdict, str]:
    """Tell whether MIOpen on the target machine uses a database file.  ``refusals`` are the reasons against the file.

    Returns three values:

    * True if enough is known to be sure.
    * True if MIOpen uses the file, None if this is unknown.
    * The text to print if MIOpen does not use it.
    """
    certain = all(_known(word, target) for word in _MACHINE if word != "backend")
    return (
        certain,
        accepted(refusals, certain),
        "the target's MIOpen does not look for convolutions in a file of this name",
    )
