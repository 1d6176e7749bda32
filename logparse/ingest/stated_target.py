"""Read ``--target``: the user's words about the machine on which the override files will be used.

An override file is the user's list of kernels that a library uses instead of its own choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from logparse.errors import UsageError
from logparse.ingest.input_file import InputFile
from logparse.libraries.kinds.format import FileFormat, Format
from logparse.libraries.miopen.db_names import facts_of_name
from logparse.model import FACTS, Fact, fault
from logparse.target import as_hip_counts, machine


def target_from(words: Sequence[str]) -> dict[str, str]:
    """Return the facts about the target machine, by name, that the user gave with ``--target``.

    Each word has one of four forms:

    * ``KEY=VALUE``. The key is a name of ``model.FACTS`` or ``validator:NAME``. Example: ``arch=gfx942``.
    * The file name of a MIOpen database. The file need not exist.
    * A ``facts.json``: one object of texts.
    * A file of any format that contains facts, such as TunableOp results or a tuning file.

    An architecture may be given with or without its features. The compute units of an RDNA GPU may be given as counted
    by rocminfo or by HIP. Raises UsageError for any other word, and if two words contradict each other, because they
    must describe one machine.
    """
    found = [(word, [*_facts_of(word)]) for word in words]
    # The meaning of a number of CUs depends on the arch, which another word may state.
    known = {fact.name: fact.value for _, facts in found for fact in facts if fact.name in ("arch", "wgp_mode")}
    out: dict[str, str] = {}
    for word, facts in found:
        stated = not facts_of_name(InputFile(word).name)
        for fact in (_as_hip_counts(x, known) if stated else x for x in facts):
            if (wrong := fault(fact)) is not None:
                raise UsageError(f"--target {word}: {wrong}")
            before = out.setdefault(fact.name, fact.value)
            if before == fact.value:
                continue
            bare, full = sorted((before, fact.value), key=len)
            if fact.name != "arch" or full.partition(":")[0] != bare:
                raise UsageError(
                    f"--target {word}: {fact.name} is {fact.value}, but another --target states {before}; "
                    "describe one machine"
                )
            out["arch"] = full
    return machine(out)


def _as_hip_counts(fact: Fact, known: Mapping[str, str]) -> Fact:
    return Fact(fact.name, as_hip_counts({**known, fact.name: fact.value})[fact.name])


def _facts_of(word: str) -> Iterable[Fact]:
    name, equals, value = word.partition("=")
    if equals and (name in FACTS or re.match("validator:.", name)):
        return [_parse_fact(name, value, word)]
    file = InputFile(word)
    named = facts_of_name(file.name)
    if named:
        return named
    try:
        facts = _json_facts(file) if file.name.endswith(".json") else _file_facts(file)
    except OSError as error:
        names = f"{', '.join(FACTS)} and validator:NAME; each needs its own --target"
        fact = f", and not a fact NAME=VALUE; the names are {names}" if equals else ""
        raise UsageError(f"--target {word}: {error.strerror or error}{fact}") from error
    if not facts:
        raise UsageError(
            f"--target {word}: the file does not say on which machine it was made. Give a TunableOp CSV, a hipBLASLt "
            f"tuning file, the name of a find-db, a facts.json, or KEY=VALUE. KEY is one of {', '.join(FACTS)}"
        )
    return facts


_VERSION = (r"\d[\w.+~-]*", "a version, such as 7.0.2")
_VALUES: Mapping[str, tuple[str, str]] = {
    "arch": (
        r"(?:gfx|sm_)[0-9a-f][\w-]*(?::\w+[+-])*",
        "a GPU architecture, such as gfx942, gfx90a:sramecc+:xnack- or sm_90",
    ),
    "cu_count": (r"[1-9]\d{0,4}", "a number of compute units, 1 or more"),
    "wgp_mode": ("[01]", "0 if the job sets GPU_ENABLE_WGP_MODE=0, otherwise 1"),
    "gpus": (r"[1-9]\d{0,3}", "the number of devices that a process sees, 1 or more"),
    "backend": ("HIP|OpenCL|CUDA", "HIP, OpenCL or CUDA"),
    "pid": (r"\d{1,18}", "the number of a process"),
    "hipblaslt_revision": (r"\S*", "a git revision; empty for a build that states no revision, such as Debian's"),
    "miopen_tweak": (r"\S*", "the git revision in the file name of a find-db, or empty"),
}
"""For some facts, the pattern of the values that a user may give, with words for the error message.

``_parse_fact`` has the patterns for versions and other facts.
"""


def _parse_fact(name: str, value: str, word: str) -> Fact:
    pattern, what = _VALUES.get(
        name, _VERSION if name.endswith("_version") else (r".*\S.*", "a text that is not empty")
    )
    if not re.fullmatch(pattern, value):
        raise UsageError(f"--target {word}: {name} must be {what}")
    return Fact(name, value)


def _json_facts(file: InputFile) -> list[Fact]:
    with file.open() as stream:
        try:
            values = json.loads(stream.read())
        except ValueError as error:
            raise UsageError(f"--target {file.path}: is not JSON: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(x, (str, int)) for x in values.values()):
        raise UsageError(f"--target {file.path}: must be one JSON object whose values are texts")
    texts = {name: str(value) for name, value in values.items()}
    return [_parse_fact(name, x, file.path) if name in _VALUES else Fact(name, x) for name, x in texts.items()]


def _file_facts(file: InputFile) -> list[Fact]:
    head = file.head()
    for candidate in _formats():
        if isinstance(candidate, FileFormat) and candidate.recognise(head):
            return [x for outcome in candidate.read(file) for x in outcome.records if isinstance(x, Fact)]
    return []


def _formats() -> Iterator[Format]:
    """Yield the known file formats. The usual ones come first, and the others are imported only if they are needed."""
    from logparse.libraries.hipblaslt import tuning_file
    from logparse.libraries.tunableop import results

    yield from (results.FORMAT, tuning_file.FORMAT)
    from logparse.libraries import FORMATS

    yield from FORMATS
