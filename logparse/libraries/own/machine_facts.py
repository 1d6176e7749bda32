"""``facts.json``: facts that ``logparse capture`` found about the machine of a job, one JSON object of texts.

::

    {
     "arch": "gfx942:sramecc+:xnack-",
     "cu_count": "304",
     "hipblaslt_revision": "3b3d59eb",
     "validator:PT_VERSION": "2.9.1"
    }

The names are in ``model.FACTS``.  ``validator:KEY`` is a value that PyTorch compares before it takes a TunableOp file.
``--target facts.json`` reads the file back.  ``ingest`` reads it together with the logs of the job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from logparse.libraries.kinds.format import FileFormat, Head, Outcome, Source, content
from logparse.libraries.kinds.patterns import regex
from logparse.model import FACTS, Fact, Reject
from logparse.target import as_hip_counts

FILE_NAME, STDERR_NAME = "facts.json", "stderr.log"
"""Names of two files of ``logparse capture`` in one folder: these facts, and a copy of the job's standard error."""
_BEGIN = regex(rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:\}|"(?P<name>[\w:.-]+)"\s*:\s*["\d])')


def recognise(head: Head) -> bool:
    """Return True if a file holds facts about a machine, such as its GPU.  ``logparse capture`` writes such files."""
    begin = _BEGIN.match(head.data)
    if begin is None or (b"{" in head.data[begin.end() :] and head.name != FILE_NAME):
        return False
    name = (begin["name"] or b"").decode()
    # The first member of a flat JSON object must have the name of a fact. Any JSON object in a file named
    # ``facts.json`` is accepted too.
    return name in FACTS or name.startswith("validator:") or head.name == FILE_NAME


def read(source: Source) -> Iterator[Outcome]:
    """Read a file of facts about a machine: a JSON object whose members are the facts.

    A member that is no text gives a reject (a counted error).  A file that is no JSON object gives one reject.
    """
    data = content(source)
    try:
        values = json.loads(data.decode("utf-8-sig"), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        yield Outcome("reject", [Reject(f"facts: not JSON: {error}", 0, len(data))])
        return
    if not isinstance(values, list) or not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        yield Outcome("reject", [Reject("facts: not a JSON object", 0, len(data))])
        return
    texts = {name: str(value) for name, value in values if isinstance(value, (str, int))}
    values = [(name, as_hip_counts(texts)[name] if name == "cu_count" and name in texts else x) for name, x in values]
    for name, value in values:
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            yield Outcome("fact", [Fact(name, str(value))])
        else:
            yield Outcome("reject", [Reject(f"facts: {name!r} is not a text", 0, len(data))])


def dump(facts: Mapping[str, str]) -> str:
    """Write the facts about a machine as the content of a file ``facts.json``.

    The facts have the order of ``FACTS``.  The versions and names that PyTorch compares (``validator:…``) come last.
    """
    order = {name: number for number, name in enumerate(FACTS)}
    names = sorted(facts, key=lambda name: (order.get(name, len(order)), name))
    return json.dumps({name: facts[name] for name in names}, indent=1) + "\n"


FORMAT = FileFormat(
    "facts",
    "facts.json of `logparse capture`: facts about a job's machine and library builds",
    recognise,
    read,
    job_log=True,
    order="the file is one JSON object, whose members have names, so their order means nothing",
    seen="logparse's own",
    example='{"arch": "gfx942:…", "cu_count": "304", …}',
    gives="facts",
)
