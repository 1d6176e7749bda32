"""What hipBLASLt prints while it tunes at run time or replays its tuning cache.

::

    tuning-cache: mode=tune path=tuning.txt load=not-found loaded=0
    tuning-cache: tuning-start m=2048 n=1024 k=2048 batch=1 trans=TN types=f16_r/f16_r; this call will block until …
    tuning-cache: tuning-done winner=247670 elapsed=145.7s persisted=yes
    tuning-cache: summary shapes=1 matched=1 fellback=0 tuned=1 invalidated=0

Printed on standard error with ``HIPBLASLT_TUNING_MODE=cache`` or ``tune``, in builds made with
HIPBLASLT_ENABLE_TUNING_CACHE; under HIPBLASLT_LOG_LEVEL=4 the lines are prefixed like all others and read by ``log``.
A shape is announced at most once per process, so ``tuning-start`` is a call without a count; of its two types the first
is that of A.  The other lines are messages.
Source: ROCm/rocm-libraries projects/hipblaslt docs/how-to/how-to-use-hipblaslt-offline-tuning.rst and
library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp (pull request 10424); not tried on a released build.
"""

from __future__ import annotations

from logparse.formats.format import FOREIGN, LineFormat, Outcome
from logparse.formats.hipblaslt.enums import BENCH_TYPES
from logparse.formats.patterns import regex
from logparse.formats.ranks import MARK_TEXT
from logparse.model import Call, GemmProblem, Message, Reject, Trans

CATEGORY = "tuning-cache"
_MARK = "tuning-cache: "
_START = regex(
    r"tuning-start m=(?P<m>\d{1,18}) n=(?P<n>\d{1,18}) k=(?P<k>\d{1,18}) batch=(?P<batch>\d{1,18})"
    r" trans=(?P<a>[NTC])(?P<b>[NTC]) types=(?P<input>\w+)/(?P<output>\w+)"
)
_LETTERS: dict[str, Trans] = {"N": "N", "T": "T", "C": "C"}


def read(text: str) -> Outcome:
    """One line: a call for a shape that is tuned, else a message."""
    start = text.find(_MARK)
    if start < 0:
        return FOREIGN
    body = text[start + len(_MARK) :].strip()
    message = Message(category=CATEGORY, text=body)
    if not body.startswith("tuning-start "):
        return Outcome("message", [message])
    found = _START.match(body)
    if found is None or found["input"] not in BENCH_TYPES:
        return Outcome("reject", [Reject("tuning-cache: a shape that is cut off or of an unknown type")])
    problem = GemmProblem(
        trans_a=_LETTERS[found["a"]], trans_b=_LETTERS[found["b"]],
        m=int(found["m"]), n=int(found["n"]), k=int(found["k"]), batch_count=int(found["batch"]),
        a_type=found["input"],
    )  # fmt: skip
    return Outcome("call", [Call(problem=problem, category=CATEGORY, count=None), message])


FORMAT = LineFormat(
    name="hipblaslt-tuning-cache",
    about="hipBLASLt's lines about its runtime tuning cache (HIPBLASLT_TUNING_MODE)",
    markers=(_MARK.encode(),),
    # Behind the prefix of hipBLASLt's log it is a record of ``log``.
    start=f"^(?:{MARK_TEXT} ?|\\[\\d{{1,6}}\\]:? ?)tuning-cache: ".encode(),
    read=read,
)
