"""Profile records of hipBLASLt (ROCm 6.4 and later): one record per distinct call, with the number of its executions.

The library writes the records when the process ends.

``HIPBLASLT_LOG_MASK=64`` writes the profile.  ``128`` writes the extended profile, which has the solution and the
kernel name::

    - { function: matmul, M: 64, N: 49152, K: 2048, lda: 2048, …, transA: T, transB: N, batch_count: 1, scaleA: 0,
    scaleB: 0, : , : , scaleAlpha_vector: false, …, compute_type: c_f32_r, activation_type: none, flush: true,
    any_stride: true, rotating: 512, cold_iters: 1000, iters: 1000, call_count: 208 }

A record looks like YAML but is not YAML.  ROCm 7.0 writes empty keys (``: ,``).  Grouped records repeat keys and lack a
comma.  So this module has a tokenizer of its own.  A list that a YAML tool wrote again begins with
``- {function: matmul``.  Source: ROCm/hipBLASLt ``tensile_host.cpp`` and ``include/tuple_helper.hpp``.

If a record has ``rotating``, ``cold_iters`` or ``iters``, it is not ``by_tool``, unlike a bench line with such flags.
Users add these keys to records so that ``hipblaslt-bench --yaml`` can read them, but ``call_count`` is still the
application's.

PyTorch's ``BLAS_PARAMS`` look similar.  They have no ``call_count`` and no ``c_`` before the compute type, and are
foreign here.

The vocabulary of keys is closed, because a torn record would pass a lenient reader.  Keys of a later version stand
behind ``call_count`` and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logparse.libraries.hipblaslt.arguments import WORDS, no_scale, problem, unlogged_scale
from logparse.libraries.hipblaslt.bench import ALWAYS_SIZES, LOGGED, SIZES
from logparse.libraries.kinds.format import FOREIGN, LineFormat, Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.model import Call, GemmProblem, Member, Record, Reject, Solution, SolutionName

_OPEN = regex(r"- \{ ?function: matmul(?=,| |\Z)")

_MEMBER = frozenset(SIZES)
_NEEDED = ("alpha", "beta", "transA", "transB", "batch_count", "a_type", "b_type", "c_type", "d_type")
_NEEDED_LAST = ("compute_type", "activation_type", "call_count")
_KNOWN = (frozenset(flag.lstrip("-") for flag in LOGGED) - {"m", "n", "k"}).union(
    {"M", "N", "K", "solution_Name", "kernel_name", "call_count"},
    # Users add these for hipblaslt-bench --yaml.
    {"initialization", "use_gpu_timer", "requested_solution_num", "print_kernel_info", "norm_check", "unit_check"},
    {"timing", "workspace", "device", "function"},
)


def read(text: str) -> Outcome:
    """Read one record of hipBLASLt's profile log: a call and how often it ran.

    If the record names the chosen kernel, its number and name are returned as well.
    """
    match = _OPEN.search(text)
    body = text[match.end() :].strip() if match else ""
    if match is None or body[:1] not in (",", ""):
        return FOREIGN
    try:
        if body.endswith("}") and "call_count" not in body and "compute_type: c_" not in body:
            # This is PyTorch's BLAS_PARAMS, which describes a problem and no record.
            return FOREIGN
        if not body.endswith("}"):
            raise ValueError("the profile record is cut off: the closing brace is missing")
        values, members = _values(body[1:-1])
        gemm = _problem(values, members)
        count = int(values["call_count"])
    except ValueError as error:
        return Outcome("reject", (Reject(str(error)),))
    index = values.get("solution_index")
    solution = Solution("hipblaslt", str(int(index)), raw=index) if index and index.isdigit() else None
    extended = "kernel_name" in values or "solution_Name" in values
    category = "extended_profile" if extended else "profile"
    records: list[Record] = [Call(problem=gemm, category=category, count=count, solution=solution)]
    if extended and solution:
        names = (values.get("solution_Name") or None, values.get("kernel_name") or None)
        records.append(SolutionName(solution=solution, name=names[0], kernel_name=names[1]))
    records += [no_scale(gemm)] if "scaleA" in values and unlogged_scale(gemm) else []
    return Outcome("call", records)


def _pairs(body: str) -> Iterator[tuple[str, str]]:
    for part in body.split(","):
        key, colon, value = part.partition(":")
        key, value = key.strip(), value.strip()
        # The value of grouped_gemm is the first pair of the first member.
        if key == "grouped_gemm":
            yield key, "1"
            key, colon, value = (x.strip() for x in value.partition(":"))
        # The stride_e of the last member follows without a comma.
        if " stride_e" in value:
            value, _, rest = value.partition(" ")
            yield key, value
            key, _, value = rest.partition(":")
            key, value = key.strip(), value.strip()
        if key:
            yield key, value
        elif value or (part.strip() and not colon):
            raise ValueError(f"damaged profile record, at {part.strip()[:40]!r}")


def _values(body: str) -> tuple[dict[str, str], list[dict[str, int]]]:
    values: dict[str, str] = {}
    members: list[dict[str, int]] = []
    for key, value in _pairs(body):
        if "grouped_gemm" in values and "alpha" not in values and key in _MEMBER:
            if key == "m":
                members.append({})
            if not members or key in members[-1]:
                raise ValueError(f"damaged profile record: {key} occurs twice")
            members[-1][key] = int(value)
        elif key not in _KNOWN and not ("call_count" in values and key.isidentifier()):
            raise ValueError(f"unknown key {key[:40]!r} in a profile record")
        elif values.get(key, value) != value:  # ROCm 7.2 writes solution_index in two blocks of an extended record
            raise ValueError(f"damaged profile record: {key} occurs twice")
        else:
            values[key] = value
    sizes = () if members else ("M", "N", "K", *ALWAYS_SIZES[3:])
    for key in (*sizes, *_NEEDED, *_NEEDED_LAST):
        if key not in values:
            raise ValueError(f"cut profile record: {key} is missing")
    for key, words in WORDS.items():
        if values.get(key) and values[key] not in words:
            raise ValueError(f"damaged profile record: {key} cannot be {values[key][:40]!r}")
    return values, members


def _problem(values: dict[str, str], members: list[dict[str, int]]) -> GemmProblem:
    if "grouped_gemm" in values:
        fields: dict[str, Any] = {"members": tuple(_member(member) for member in members)}
    else:
        fields = {name.lower(): int(values[name]) for name in ("M", "N", "K", *ALWAYS_SIZES[3:])}
    if "aux_type" not in values:  # Before 7.0 there is no swizzle.
        values = {"swizzleA": "0", "swizzleB": "0", **values}
    # Before ROCm 7.1 a record has neither scaleC/D nor a readable swizzle.  They are unknown, not absent.
    return problem(values, fields, absent=None, logged=True)


def _member(sizes: dict[str, int]) -> Member:
    if not {"m", "n", "k"} <= sizes.keys():
        raise ValueError("the profile record is cut off: a member of the grouped GEMM lacks m, n or k")
    return Member(**{name: value for name, value in sizes.items() if name not in ("lde", "stride_e")})


FORMAT = LineFormat(
    name="hipblaslt-profile",
    about="hipBLASLt's profile records: each matrix product with its number of calls (log masks 64 and 128)",
    markers=(b"- { function: matmul", b"- {function: matmul"),
    start=rb"- \{ ?function: matmul",
    read=read,
    seen="ROCm 6.4 to 7.2",
    example="- { function: matmul, M: 64, …, call_count: 208 }",
    gives="counted calls",
    how=(
        "set `HIPBLASLT_LOG_MASK=64`, or `128` to log also the names of the solution and the kernel; hipBLASLt "
        "writes the records when the process ends"
    ),
    since="ROCm 6.4",
)
