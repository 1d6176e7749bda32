"""Prefixed log lines of hipBLASLt and cuBLASLt: Error, Trace, Hints, Info and Api.

The library writes them with ``HIPBLASLT_LOG_MASK=31 HIPBLASLT_LOG_FILE=hipblaslt_%i.log``.  ``HIPBLASLT_LOG_LEVEL``
must be unset, because the library ignores the mask if the level is set::

    [2025-02-28 11:24:46][HIPBLASLT][1862601][Api][rocblaslt_create] handle[out]=0x320ccb10
    [2025-02-28 11:24:46][HIPBLASLT][1862601][Trace][rocblaslt_matmul] A=0x7f667d700000 Adesc=[type=R_16BF rows=48
    cols=1024 ld=48] B=… Ddesc=[…] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transA=OP_N transB=OP_T
    epilogue=EPILOGUE_DEFAULT biasPointer=0x0] workSpace=0 workSpaceSizeInBytes=0 alpha=1 beta=0 stream=0

Only the Trace line of the matmul is a call.  All other lines are messages with their text unchanged.  For one query the
heuristic writes ``returnAlogCount=`` and then ``final returnAlogCount=`` [sic].

A field that a Trace line does not hold stays None.  hipBLASLt's Trace line has no solution, no scales and no swizzles.
β stays None unless the scale type is f32, because the library reads β as a float for every type.

Source of the grammar: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/include/utility.hpp`` and
``rocblaslt_mat.cpp``.  ``libraries/cublaslt/log.py`` has cuBLASLt's differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from logparse.libraries.cublaslt import log as cublaslt
from logparse.libraries.hipblaslt.enums import beta_of, compute_type, data_type, default_types, epilogue
from logparse.libraries.kinds.format import LineFormat, Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.model import Call, GemmProblem, Message, Reject, Trans, with_plain

# Ingest has removed the bracket with the process or thread, unless its content was no number.
_PREFIX = regex(r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\])?\[(HIPBLASLT|cublasLt)\](?:\[\d+\])?\[(\w+)\]\[([^\]\[]+)\]")
_PAIR = regex(r"([A-Za-z]\w*)=(\[[^\[\]]*\]|[^\s\[\]]*)(?:\s+|\Z)")
_INNER = regex(r"([A-Za-z]\w*)=(.*?)(?=\s+[A-Za-z]\w*=|\s*\Z)")

LAYERS: Mapping[str, str] = {
    "Error": "error",
    "Trace": "trace",
    "Hints": "hints",
    "Hint": "hints",
    "Info": "info",
    "Api": "api",
}
"""The category under which a log line is stored, for each level in a prefix (for example ``Hints``)."""

_NEEDED = ("Adesc", "Bdesc", "Cdesc", "Ddesc", "computeDesc", "workSpaceSizeInBytes", "stream")
"""Keys that every Trace line of hipBLASLt's log has.

``stream`` is the last one, so a line without it was cut.
"""


def read(text: str) -> Outcome:
    """Read a line of hipBLASLt's or cuBLASLt's log. The brackets with time and process were removed before.

    A Trace line of a matrix product gives a call.  Any other line gives a message.
    """
    line = text.strip()
    match = _PREFIX.match(line)
    if match is None:
        return _reject("the prefix of the log line is cut off or damaged")
    library, layer, function = match.groups()
    if layer not in LAYERS:
        return _reject(
            f"the prefix of the log line names {layer!r}, which is no known log level (such as Trace or Info)"
        )
    body = line[match.end() :].strip()
    if layer == "Trace" and (function == "rocblaslt_matmul" or cublaslt.MATMUL.match(function)):
        return _trace(body, nvidia=library == "cublasLt")
    return Outcome("message", (Message(category=LAYERS[layer], function=function, text=body),))


def _reject(reason: str) -> Outcome:
    return Outcome("reject", (Reject(reason),))


def _trace(body: str, *, nvidia: bool) -> Outcome:
    values: dict[str, str] = {}
    at = 0
    while at < len(body):
        match = _PAIR.match(body, at)
        if match is None:
            return _reject(f"the Trace line is damaged, at {body[at : at + 40]!r}")
        if match[1] in values:
            return _reject(f"the Trace line is damaged: {match[1]} occurs twice")
        values[match[1]] = match[2]
        at = match.end()
    missing = [key for key in _NEEDED if key not in values]
    if missing:
        return _reject(f"the Trace line is cut off: {missing[0]} is missing")
    groups = {key: _group(value, nvidia) for key, value in values.items() if value.startswith("[")}
    if any(key not in groups for key in _NEEDED[:5]):
        return _reject("the Trace line has no matrix descriptors")
    try:
        problem = _problem(groups, values, nvidia)
    except cublaslt.OrderError as error:
        return _reject(f"the Trace line cannot be read: {error}")
    if problem is None:
        return _reject("the Trace line is damaged: a matrix descriptor lacks its type, rows, cols or ld")
    call = Call(
        problem=problem,
        category="trace",
        solution=cublaslt.solution(values.get("algo", "").strip("[]")) if nvidia else None,
        workspace_bytes=_count(values["workSpaceSizeInBytes"]),
    )
    return Outcome("call", (call,))


def _group(text: str, nvidia: bool) -> dict[str, str]:
    pairs = dict(_INNER.findall(text[1:-1]))
    return {cublaslt.KEYS.get(key, key): value for key, value in pairs.items()} if nvidia else pairs


def _problem(groups: Mapping[str, Mapping[str, str]], values: Mapping[str, str], nvidia: bool) -> GemmProblem | None:
    layouts = {x: groups[f"{x.upper()}desc"] for x in "abcd"}
    if any(key not in layout for layout in layouts.values() for key in ("type", "rows", "cols", "ld")):
        return None
    desc = {**(cublaslt.DEFAULTS if nvidia else {}), **groups["computeDesc"]}
    trans_a, trans_b = (_TRANS.get(desc.get(f"trans{x}", "")) for x in "AB")
    fields: dict[str, Any] = {
        "trans_a": trans_a,
        "trans_b": trans_b,
        "m": _count(layouts["d"]["rows"]),
        "n": _count(layouts["d"]["cols"]),
        "k": _count(layouts["a"]["cols" if trans_a == "N" else "rows"]) if trans_a else None,
        "batch_count": _count(layouts["d"].get("batch_count", "1")),
        "batch_mode": _BATCH_MODES.get(layouts["d"].get("batch_mode", "")),
        "compute_type": compute_type(desc.get("computeType")),
        "scale_type": data_type(desc.get("scaleType")),
        "bias_type": data_type(desc.get("biasType")),
        "aux_type": data_type(desc.get("epilogueAuxDataType")),
        "scale_alpha_vector": _alpha_vector(values, desc),
        "beta": _beta(values, desc),
    }
    for x, layout in layouts.items():
        fields[f"{x}_type"] = data_type(layout["type"])
        fields[f"ld{x}"] = _count(layout["ld"])
        fields[f"stride_{x}"] = _count(layout.get("batch_stride", "0"))
    if nvidia:
        fields |= cublaslt.scales(desc) | {"sm_count": _count(desc.get("smCountTarget", "0"))}
    tail = epilogue(desc.get("epilogue"))
    if tail is not None:
        fields |= tail._asdict()
    fields = default_types(fields)
    if nvidia:
        fields = cublaslt.in_columns(layouts, fields)
    # hipBLASLt prints neither scales, nor swizzles, nor a type that operands are converted to.  All of them are
    # unknown.
    return GemmProblem(**(with_plain(fields, scaled=True) if nvidia else fields))


def _count(text: str) -> int | None:
    """Parse a number of calls from a log line.  Return None if it is negative or no number.

    The library prints counts with ``%d``.  A count that does not fit 32 bits may come out negative, which is certainly
    wrong.
    """
    try:
        value = int(text)
    except ValueError:
        return None
    return value if value >= 0 else None


_TRANS: Mapping[str, Trans] = {"OP_N": "N", "OP_T": "T", "OP_C": "C"}
_BATCH_MODES = {"": "strided", "0": "strided", "1": "pointer"}
"""How the matrices of a batch are stored, by the text of ``batch_mode`` in a log line.

hipBLASLt prints this field since 1.3.  In older versions all batches are strided.
"""


def _alpha_vector(values: Mapping[str, str], desc: Mapping[str, str]) -> bool | None:
    if "pointerMode" in desc:  # Only cuBLASLt prints it, and only if alpha is no host scalar.
        return True if "VECTOR" in desc["pointerMode"] else None
    return "alphaVector" in values


def _beta(values: Mapping[str, str], desc: Mapping[str, str]) -> Literal["zero", "nonzero"] | None:
    text = values.get("beta", "")
    on_device = text[:2] in ("0x", "0X") or values.get("alpha", "")[:2] in ("0x", "0X")
    return None if on_device or desc.get("scaleType") != "R_32F" else beta_of(text)


FORMAT = LineFormat(
    name="hipblaslt-log",
    about="hipBLASLt and cuBLASLt log lines: Error, Trace, Hints, Info, Api (log masks 1 to 31)",
    markers=(b"[HIPBLASLT][", b"[cublasLt]["),
    # A line may have no time.  If a part of the time is left, the line was cut, and is rejected.
    start=rb"(?:(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?\])?\[(?:HIPBLASLT|cublasLt)\]\[",
    read=read,
    prefixed=True,
    seen="ROCm 5.5 to 7.2; cuBLASLt 13.1",
    example="[…][HIPBLASLT][1862601][Trace][rocblaslt_matmul] A=…",
    gives="calls (in Trace lines), messages (in all other lines)",
    how="set `HIPBLASLT_LOG_MASK=31` for hipBLASLt, `CUBLASLT_LOG_MASK=31` for cuBLASLt",
    since="ROCm 5.5",
)
