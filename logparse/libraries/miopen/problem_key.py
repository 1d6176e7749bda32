"""Read MIOpen's find-db key of a convolution as a ``ConvProblem``, and write it.

::

    256-56-56-1x1-512-28-28-256-0x0-2x2-1x1-0-NCHW-FP16-F
    256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32
    64-8-28-28-3x3x3-128-8-28-28-4-1x1x1-1x1x1-1x1x1-0-NCDHW-BF16-F
    64-54-54-3x3-64-54-54-32-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-B

Grammar: ROCm/MIOpen ``src/conv/problem_description.cpp``, ``ProblemDescription::Serialize``.  The order of the tensors
(size, type, layout, cast) depends on the direction:

=========  ============  =============
direction  first tensor  second tensor
=========  ============  =============
F          x             y
B          dy            dx
W          dy            x
=========  ============  =============

Reading swaps the tensors of B and W back, so that F, B and W of one layer have equal sizes.  Pads, strides and
dilations always describe the forward convolution.  A key never states that a convolution is *transposed*, because
MIOpen swaps the tensors before it makes the key.  So ``mode`` is ``convolution``.

Two oddities in shipped files are kept as they are:

* 3D keys with a 2-number pad and the layout name NCHW.  ``pad_d`` is then unknown.
* Output sizes of SAME padding, or clamped to 1.  They follow no formula.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from logparse.libraries.kinds.patterns import regex
from logparse.model import ConvProblem

TYPES = ("FP32", "FP16", "BF16", "INT8", "INT32", "INT64", "FP64", "FP8", "BF8")
_TYPE = rf"(?:{'|'.join(TYPES)}|Unknown\(\d+\))"
_N = r"(?:0|[1-9]\d{0,8})"
_LAYOUT = r"[A-Za-z]\w*"

SIZES_2D = rf"{_N}-{_N}-{_N}-{_N}x{_N}-{_N}-{_N}-{_N}-{_N}-{_N}x{_N}-{_N}x{_N}-{_N}x{_N}"
SIZES_3D = (
    rf"{_N}-{_N}-{_N}-{_N}-{_N}x{_N}x{_N}-{_N}-{_N}-{_N}-{_N}-{_N}-"
    rf"(?:{_N}x)?{_N}x{_N}-{_N}x{_N}x{_N}-{_N}x{_N}x{_N}"
)
TAIL = (
    rf"(?P<bias>{_N})-(?P<layouts>{_LAYOUT}(?:-{_LAYOUT}-{_LAYOUT})?)-(?P<types>{_TYPE}|{_TYPE}{{3}})-(?P<dir>[FBW])"
    rf"(?:_g(?P<groups>[1-9]\d{{0,8}}))?(?:_ci(?P<ci>{_TYPE}))?(?:_cw(?P<cw>{_TYPE}))?(?:_co(?P<co>{_TYPE}))?"
)
_TAIL = regex(TAIL, re.ASCII)
_THREE_TYPES = regex(rf"({_TYPE})({_TYPE})({_TYPE})", re.ASCII)
_KEY = regex(rf"(?P<sizes>{SIZES_2D}|{SIZES_3D})-(?P<tail>{TAIL})", re.ASCII)


def is_key(text: str) -> bool:
    """Return True if a text is a key of MIOpen's solver database (find-db)."""
    return _KEY.fullmatch(text) is not None


_ROLES = ("in", "weights", "out")
PLAIN_LAYOUTS = ("NCHW", "NCDHW")
"""The layouts that a key prints once if all three tensors have them.  Every other layout is printed three times."""


def split_types(text: str) -> list[str]:
    """Split the text of the data types in a key of MIOpen's solver database: first tensor, weights, second tensor.

    ``INT8INT8FP32`` has three types.  ``FP16`` means that all three are equal.
    """
    three = _THREE_TYPES.fullmatch(text)
    return list(three.groups()) if three else [text] * 3


@lru_cache(maxsize=65536)
def read_tail(tail: str) -> dict[str, Any]:
    """Read the end of a key in MIOpen's solver database, for example ``0-NCHW-FP16-W_g32``.

    Returns all fields except the sizes.  Raises ValueError if the text is not the end of a key.
    """
    match = _TAIL.fullmatch(tail)
    if match is None:
        raise ValueError(f"not a find-db key: it ends with {tail[:80]!r}")
    layouts = match["layouts"].split("-")
    types = split_types(match["types"])
    casts = [match[name] or "none" for name in ("ci", "cw", "co")]
    direction = match["dir"]
    # The order of the tensors in the key depends on the direction.
    roles = _ROLES if direction == "F" else tuple(reversed(_ROLES))
    fields: dict[str, Any] = {"direction": direction, "bias": int(match["bias"]), "mode": "convolution"}
    fields["groups"] = int(match["groups"] or 1)
    for role, layout, type_, cast in zip(roles, layouts * (3 // len(layouts)), types, casts, strict=True):
        fields |= {f"{role}_layout": layout, f"{role}_type": type_, f"{role}_cast": cast}
    return fields


@lru_cache
def _columns(spatial: int, x_first: bool, short_pad: bool) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the names of the sizes at the beginning of a key in MIOpen's solver database, in the order of the key.

    Each group of names has the character (``-`` or ``x``) that joins its numbers.  With ``short_pad`` the key states no
    pad for the depth.
    """
    axes = "dhw"[3 - spatial :]
    ends = (("c", *axes), ("k", *(f"out_{x}" for x in axes)))
    first, second = ends if x_first else ends[::-1]
    filters, strides, dilations = ([f"{word}_{x}" for x in axes] for word in ("filter", "stride", "dilation"))
    pads = [f"pad_{x}" for x in (axes[-2:] if short_pad else axes)]
    return ("-", first), ("x", filters), ("-", second), ("-", ["n"]), ("x", pads), ("x", strides), ("x", dilations)


def problem_from_key(key: str) -> ConvProblem:
    """Read a key of MIOpen's solver database (find-db) as a convolution.

    Raises ValueError if the text is not a key or the flops exceed 64 bits.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"not a find-db key: {key[:80]!r}")
    tail = read_tail(match["tail"])
    numbers = [int(x) for x in re.split("[-x]", match["sizes"])]
    spatial, short = (3, len(numbers) == 20) if len(numbers) > 15 else (2, False)
    names = (name for _, part in _columns(spatial, tail["direction"] == "F", short) for name in part)
    sizes: dict[str, Any] = dict(zip(names, numbers, strict=True))
    if short:
        sizes["pad_d"] = None
    problem = ConvProblem(spatial=3 if spatial == 3 else 2, **sizes, **tail)
    if (problem.flops or 0) >= 2**63:
        raise ValueError("the product of the sizes in this key needs more than 64 bits")
    return problem


def key_of(problem: ConvProblem) -> str | None:
    """Return the key of a convolution in MIOpen's solver database (find-db).

    * Returns None if a field that the key needs is unknown.
    * MIOpen computes a transposed convolution as an ordinary one, so its key has F and B swapped, and x and y swapped.
    * Some 3D keys in MIOpen's own databases have a pad of only 2 numbers.  For these, ``pad_d`` is unknown, and the key
      is written with 2 numbers again.
    """
    direction = key_direction(problem)
    if direction not in ("F", "B", "W"):
        return None
    columns = _columns(problem.spatial, _x_first(problem), problem.spatial == 3 and problem.pad_d is None)
    values = [(joint, [getattr(problem, name) for name in names]) for joint, names in columns]
    tail = _write_tail(problem, direction)
    if tail is None or problem.bias is None or any(value is None for _, part in values for value in part):
        return None
    return "-".join([*(joint.join(map(str, part)) for joint, part in values), str(problem.bias), tail])


def key_direction(problem: ConvProblem) -> str:
    """Return the direction (F, B or W) that MIOpen writes into the key of a convolution.

    F (forward) and B (input gradient) are swapped for a transposed convolution.
    """
    swapped = {"F": "B", "B": "F"} if problem.mode == "transposed" else {}
    return swapped.get(problem.direction, problem.direction)


def _x_first(problem: ConvProblem) -> bool:
    # A transposed convolution swaps x with y, and F with B.
    #
    # F on (x, y) becomes B.  The first tensor of B is its dy, which is the transposed convolution's x.
    # B becomes F.  The first tensor of F is its x, which is the transposed convolution's dy.
    # W keeps its tensors (dy, x), which now are (x, dy).
    if problem.mode == "transposed":
        return problem.direction in ("F", "W")
    return problem.direction == "F"


def _write_tail(problem: ConvProblem, direction: str) -> str | None:
    roles = _ROLES if _x_first(problem) else tuple(reversed(_ROLES))
    layouts, types, casts = (
        [getattr(problem, f"{role}_{what}") for role in roles] for what in ("layout", "type", "cast")
    )
    if problem.groups is None or problem.mode is None or any(x is None for x in (*layouts, *types, *casts)):
        return None
    plain = layouts[0] in PLAIN_LAYOUTS and len(set(layouts)) == 1
    words = [
        layouts[0] if plain else "-".join(layouts),
        types[0] if len(set(types)) == 1 else "".join(types),
        direction + (f"_g{problem.groups}" if problem.groups != 1 else ""),
    ]
    marked = zip(("ci", "cw", "co"), casts, strict=True)
    marks = (f"_{mark}{cast}" for mark, cast in marked if cast != "none")
    return "-".join(words) + "".join(marks)
