"""FlashInfer's ``autotune_configs.json``: the tactic that the autotuner chose per operator and bucket of shapes.

A tactic is a variant of an operator's kernel.  A runner is a class that implements the operator.

::

    {"_metadata": {"flashinfer_version": "0.6.13", "cuda_version": "13.0", "cublas_version": "13.1.0",
                   "cudnn_version": "91900", "cudnn_frontend_version": "1.26.0", "gpu": "NVIDIA GB10"},
     "('fp4_gemm', 'CutlassFp4GemmRunner', ((1, 2560), (2560, 14336), (-1, 320)), ())": ["CutlassFp4GemmRunner", 4],
     "('flashinfer::trtllm_fp4_block_scale_moe', 'MoERunner', ((1, 3584), (1, 16)), ())": ["MoERunner", [8, 52]]}

``with flashinfer.autotune(True, cache=PATH)`` writes the file.  vLLM writes it below
``$VLLM_CACHE_ROOT/flashinfer_autotune_cache``.  A key is the ``repr`` of several parts:

* the operator and the runner
* the sizes of the inputs.  A dynamic size is rounded to its bucket.  −1 means that the size follows from other sizes.
* in later versions: further values by which the runner distinguishes calls.

A tactic is a number or a list that only its runner understands.  −1 is the runner's fallback.  The keys
``_records``, ``_generation`` and ``_last_updated_by`` hold no tactics.  FlashInfer ignores a file if its ``_metadata``
differ from FlashInfer's own (``*`` matches any value).  It reads a file without ``_metadata`` and checks
nothing.  Since July 2026 it ignores a tactic that is a number if the runner's name begins with ``Cudnn``.

The file holds no times, so each entry becomes a choice without a time.  The runner is part of the choice, not of the
problem.  If two entries differ only in the runner, FlashInfer takes the entry whose runner its caller lists first.
Source: flashinfer-ai/flashinfer ``flashinfer/autotuner.py`` at 081b91c8 (first version, March 2026), and
``flashinfer/autotuner/autotuner.py`` at fb28d724 (``save_configs``, ``load_configs``, ``ProfilingCacheKey.file_key``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from logparse.libraries.kinds.format import FOREIGN, FileFormat, Origin, Outcome, Source, begins, content
from logparse.libraries.kinds.json_members import Member, members_of
from logparse.libraries.kinds.patterns import regex
from logparse.model import Fact, Measurement, OperatorProblem, Reject, Solution

PICKED = ORIGIN = "flashinfer"
_METADATA = "_metadata"
recognise = begins(rb'\s*\{\s*"(?:\(\'[^\']+\', \'\w+\', \(|_metadata"\s*:\s*\{\s*"flashinfer_version")')
_KEY = regex(r"\('(?P<op>[^' ]+)', '\w+', (?P<sizes>\(.*\))\)")
_UNKNOWN = ("unknown", "None", "*")
"""Values in the file's ``_metadata`` that state no version."""


def read(source: Source) -> Iterator[Outcome]:
    """Read the file in which FlashInfer's autotuner stores the kernels that it has chosen.

    The file states no times.  Its metadata become facts about the machine.  An entry that cannot be read is counted as
    an error with a reason.
    """
    data = content(source)
    try:
        members = members_of(data)
    except ValueError as error:
        yield Outcome("reject", [Reject(f"flashinfer: {error}", 0, len(data))])
        return
    for member in members:
        if member.unused or member.ambiguous:
            yield _reject(member, member.unused or member.ambiguous)
        elif member.name == _METADATA and isinstance(member.value, dict):
            named = {name: x for name, x in member.value.items() if isinstance(x, str) and x not in _UNKNOWN}
            yield Outcome("fact", [Fact("device" if name == "gpu" else name, x) for name, x in named.items()])
        elif member.name.startswith("_"):
            yield FOREIGN
        else:
            yield _choice(member)


def _reject(member: Member, why: str | None) -> Outcome:
    return Outcome("reject", [Reject(f"flashinfer: {member.name[:80]!r}: {why}", member.offset, member.length)])


def _choice(member: Member) -> Outcome:
    named, value = _KEY.fullmatch(member.name), member.value
    if named is None or not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        return _reject(member, "not an operator with its tactic")
    sizes = named["sizes"].replace(" ", "").removesuffix(",()")
    problem = OperatorProblem(f"{named['op']}{sizes}", ())
    solution = Solution("flashinfer", f"{value[0]},{json.dumps(value[1], separators=(',', ':'))}")
    row = Measurement(problem=problem, solution=solution, origin=ORIGIN, status="no_time", key_text=member.name)
    return Outcome("measurement", [row])


FORMAT = FileFormat(
    "flashinfer",
    "FlashInfer's autotune_configs.json: the tactics (kernels) that FlashInfer chose",
    recognise,
    read,
    origins=(Origin(ORIGIN, evidence=False),),
    order="the file is one JSON object, whose members have names, so their order means nothing",
    seen="FlashInfer 0.6.13 and 0.6.16 (no test); samples in the tests (source code only)",
    example="\"('fp4_gemm', 'CutlassFp4GemmRunner', ((1, 2560), …",
    gives="choices without a time, facts",
    how=(
        "vLLM's `autotune_configs.json`, or the file that `flashinfer.autotune(True, cache=PATH)` writes (choices "
        "without times)"
    ),
)
