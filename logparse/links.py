"""Find matrix products and convolutions in different files that may be the same call.

For example, one is a call in a log and the other has a time in a tuning file.  Files state different fields of a matrix
product or convolution (here called a problem), so such problems are only linked and never merged.  Two problems are
linked if their shapes are equal and no field that both know differs.  There is one exception: the number of compute
units that a library is told to use may be the number of all units of the device.  So a call with such a number may be a
call without one.  ``find_link_level`` compares two problems,
and ``links_sql`` compares two tables.  A test checks that both
give equal results.
"""

from __future__ import annotations

from typing import Literal

from logparse.model import CONV_FIELDS, CONV_LAYOUT, GEMM_FIELDS, GEMM_LAYOUT, ConvProblem, GemmProblem, Problem

Level = Literal["exact", "layout", "shape"]

_GEMM_LAYOUT_KNOWN = (
    *(f"{{t}}.{name} is not null" for name in GEMM_LAYOUT if name not in ("ldc", "stride_c")),
    "({t}.beta = 'zero' or ({t}.ldc is not null and {t}.stride_c is not null))",
)
_CONV_LAYOUT_KNOWN = tuple(f"{{t}}.{name} is not null" for name in CONV_LAYOUT)


def find_link_level(one: Problem, other: Problem) -> Level | None:
    """Tell whether two matrix products or convolutions, from different files, may be the same call.

    | result | meaning |
    |---|---|
    | ``exact`` | all fields are known to be equal |
    | ``layout`` | all fields that describe the memory layout are known to be equal |
    | ``shape`` | only the shape is known to be equal |
    | None | they are different calls |

    The order of the arguments does not matter.
    """
    if isinstance(one, GemmProblem) and isinstance(other, GemmProblem):
        names, one, other = GEMM_FIELDS, one.normal, other.normal
    elif isinstance(one, ConvProblem) and isinstance(other, ConvProblem):
        names = CONV_FIELDS
    else:
        return None
    if one.text == other.text:
        return "exact" if "?" not in one.text else "layout" if _layout_known(one) else "shape"
    if one.shape is None or one.shape != other.shape:
        return None
    sure = _layout_known(one) and _layout_known(other)
    for name in names:
        left, right = _fold_fp8_type(getattr(one, name)), _fold_fp8_type(getattr(other, name))
        if left is None or right is None or left == right:
            continue
        if name != "sm_count" or 0 not in (left, right):
            return None
        sure = False
    return "layout" if sure else "shape"


def _fold_fp8_type(value: object) -> object:
    """Return a field's value with AMD's own 8-bit float types (FNUZ) renamed to the standard ones (OCP).

    hipblaslt-bench prints the same name for both, so two calls must not be different only because of this name.
    """
    return value.replace("_fnuz", "") if isinstance(value, str) else value


def _layout_known(problem: GemmProblem | ConvProblem) -> bool:
    if isinstance(problem, ConvProblem):
        return all(getattr(problem, name) is not None for name in CONV_LAYOUT)
    names = [name for name in GEMM_LAYOUT if problem.beta != "zero" or name not in ("ldc", "stride_c")]
    return all(getattr(problem, name) is not None for name in names)


def links_sql(gemms: str, convs: str) -> dict[str, str]:
    """Return SQL for two views that list which problems (matrix products and convolutions) may be the same call.

    The views are ``links`` and ``open_links``.  Both have the columns ``problem``, ``other``, ``level`` and ``fan``.
    ``gemms`` and ``convs`` name the tables of problems, in which a problem may have several rows.  ``open_links`` lacks
    the links of fully known problems (without ``?``) to themselves, because there may be hundreds of thousands of them.

    The column ``fan`` prevents that a call is counted twice.  Calls are summed only over links with ``fan`` = 1, but
    times are taken over all links.  Its value is:

    * 1 for a fully known problem;
    * for a partly known problem, the number of fully known problems that it may be;
    * if there is no such problem, the number of linked problems with more known fields, and at least 1.
    """
    pairs = (
        f"{_pairs(gemms, GEMM_FIELDS, _GEMM_LAYOUT_KNOWN)} union all {_pairs(convs, CONV_FIELDS, _CONV_LAYOUT_KNOWN)}"
    )
    opened = f"""
    with pairs as ({pairs}),
    known as (select *, length(problem) - length(replace(problem, '?', '')) as mine,
                     length(other) - length(replace(other, '?', '')) as theirs from pairs),
    fans as (select problem, count(*) filter (where theirs = 0) as complete,
                    count(*) filter (where theirs < mine) as fuller from known where mine > 0 group by problem)
    select problem, other, level,
           cast(case when mine = 0 then 1 when complete > 0 then complete else greatest(1, fuller) end as integer)
           as fan
    from known left join fans using (problem)
    """
    rows = f"select problem from {gemms} union all select problem from {convs}"
    return {"open_links": opened, "links": f"from ({full_links_sql(rows)}) union all from open_links"}


def full_links_sql(problems: str) -> str:
    """Return SQL that pairs each matrix product or convolution with itself, if all of its fields are known.

    ``problems`` is SQL that lists the texts of the products.
    """
    # Other SQL pairs different texts that describe the same call. An unknown field is ``?`` in a text.
    return f"""
        select distinct problem, problem as other, 'exact' as level, cast(1 as integer) as fan
        from ({problems}) where not contains(problem, '?')"""


def open_sql(rows: str) -> str:
    """Return SQL for the texts of matrix products and convolutions that may describe the same call as another text."""
    # Such texts have an unknown field, a type with a second spelling (``_fnuz``) or a number of compute units. All
    # other texts need no comparison, which saves much time, because MIOpen's find-db holds hundreds of thousands of
    # texts.
    return f"from {rows} where contains(problem, '?') or contains(problem, '_fnuz') or contains(problem, ' sms=')"


def _equality_sql(name: str) -> str:
    if name in ("a_type", "b_type", "c_type", "d_type", "compute_input_a_type", "compute_input_b_type"):
        return "a.{name} is null or b.{name} is null or replace(a.{name}, '_fnuz', '') = replace(b.{name}, '_fnuz', '')"
    equal = "a.{name} is null or b.{name} is null or a.{name} = b.{name}"
    return f"{equal} or 0 in (a.{{name}}, b.{{name}})" if name == "sm_count" else equal


def _pairs(table: str, names: tuple[str, ...], layout: tuple[str, ...]) -> str:
    """Return SQL for all pairs of matrix products or convolutions that may be the same call.

    * Only products with the same shape are compared, and only if one of them has an unknown field or a field with
      several spellings (``open_sql``).
    * Each pair is in the result in both orders.
    * A product with an unknown field is also paired with itself.
    * Each product is compared only once, because thousands of small files may name the same product.
    """
    agree = " and ".join(f"({_equality_sql(name).format(name=name)})" for name in names)
    known = " and ".join(rule.format(t=side) for rule in layout for side in "ab")
    sure = f"{known} and coalesce(a.sm_count = b.sm_count, true)" if "sm_count" in names else known
    near = f"select distinct on (problem) * from {table} where shape in (select shape from opened)"
    return f"""(
    with opened as materialized (
        select distinct on (problem) * {open_sql(table)}),
    pair as (
        select a.problem as problem, b.problem as other, case when {sure} then 'layout' else 'shape' end as level
        from opened a join ({near}) b on a.shape = b.shape and a.problem <> b.problem and {agree})
    select problem, problem as other, case when {known.replace("b.", "a.")} then 'layout' else 'shape' end as level
    from opened a where contains(problem, '?')
    union all (select problem, other, level from pair union select other, problem, level from pair))
    """


def may_be(row: Problem | None, problem: Problem) -> bool:
    """Return True if a row of an override file (a list of kernels to use) may be for ``problem``.

    It may be if no known field of ``row`` differs from the field of ``problem``.
    """
    return isinstance(row, (GemmProblem, ConvProblem)) and find_link_level(row, problem) is not None
