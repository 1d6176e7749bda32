"""Tests that a property of a convolution stays unknown if no file states it.

If a file cannot be written without this property, the convolution is left out, and a message says how many were left
out.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from analyzers.overrides.export import export, lines
from logparse.errors import EmissionError
from logparse.libraries.miopen import driver
from logparse.libraries.miopen.perf_db_items import perf_key_of
from logparse.libraries.miopen.problem_key import key_of
from logparse.model import CONV_FIELDS, ConvProblem, problem_from_text
from tests.analyzers.example import B, F, W

THREE = replace(
    F,
    spatial=3,
    **dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NCDHW"),
    d=5,
    filter_d=3,
    out_d=5,
    pad_d=1,
)
UPSIDE_DOWN = replace(F, mode="transposed", c=64, k=64, groups=1, h=28, w=28, out_h=55, out_w=55)
PROBLEMS = {"F": F, "B": B, "W": W, "3D": THREE, "transposed": UPSIDE_DOWN}
NAMES = [x for x in CONV_FIELDS if x not in ("direction", "spatial")]
_SHIPPED = "3D keys with a 2-number pad are shipped, and written back as they were"


def without(problem: ConvProblem, *names: str) -> ConvProblem:
    return replace(problem, **dict.fromkeys(names))  # type: ignore[arg-type]


def test_all_fields_are_tried() -> None:
    assert {*NAMES, "direction", "spatial"} == {x.name for x in fields(ConvProblem)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_no_command_is_written_for_unknown_properties(problem: ConvProblem, name: str) -> None:
    """If a property of a convolution is unknown, no MIOpenDriver command is written that would need it."""
    driver.command(problem)
    if problem.spatial == 2 and (name == "d" or name.endswith("_d")):
        return  # a 2-D problem has no depth
    with pytest.raises(EmissionError, match=f"which are unknown: {name}"):
        driver.command(without(problem, name))


def test_a_command_needs_no_output_type() -> None:
    """A MIOpenDriver command can be written although the type of the output is unknown, because no option states it.

    For example, an int8 convolution may have an output of int8, int32 or float.
    """
    types = {"in_type": "INT8", "weights_type": "INT8", "out_type": None}
    assert " convint8 " in driver.command(replace(F, **types))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_key_with_an_unknown_property_is_unknown(problem: ConvProblem, name: str) -> None:
    """logparse does not make up a key of a convolution if a property that is in the key is unknown.

    All other keys are known. MIOpen looks up convolutions in its files by these keys.
    """
    given = getattr(problem, name)
    others = [{"mode": "transposed"}.get(name, f"X{given}") if isinstance(given, str) else given + 7]
    for make in (key_of, perf_key_of):
        unknown, known = make(without(problem, name)), make(problem)
        if name == "pad_d" and problem.spatial == 3 and make is key_of:
            assert unknown is not None, _SHIPPED
        elif unknown is not None:
            assert [make(replace(problem, **{name: x})) for x in others] == [known]  # type: ignore[arg-type]
            assert unknown == known


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (without(W, "in_layout", "weights_layout", "out_layout").text, "in_layout, weights_layout, out_layout"),
        (without(THREE, "out_layout").text, "out_layout"),
        (without(B, "groups").text, "groups"),
        (replace(F, in_cast=None).text, "in_cast"),
    ],
)
def test_what_is_left_out_of_an_export_is_counted_with_its_reason(text: str, why: str) -> None:
    problem = problem_from_text(text)
    made = export([F, problem, replace(problem, n=32)], "driver")  # type: ignore[type-var]
    assert (made.count, made.files[0].data.count(b"\n")) == (1, 1)
    first, left = lines(made)
    assert first == "1 problem"
    assert left.startswith("  left out 2: ")
    assert f"which are unknown: {why}" in left


def test_unusual_output_sizes_are_not_exported() -> None:
    """No MIOpenDriver command is written for a convolution with an output size that no command can state."""
    # "SAME" padding may pad one side more than the other, but a command has one number for both sides. It would run a
    # convolution with another output size.
    with pytest.raises(EmissionError, match=r"no flags of MIOpenDriver express .*: out_h, out_w"):
        driver.command(replace(F, out_h=29, out_w=29))
