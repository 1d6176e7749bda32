"""The reader of hipBLASLt's tuning files, held to the real library.

Recorded 2026-11-22 with libhipblaslt 1.2.2 (ROCm 7.2.4 of Debian, whose git revision is empty) over a virtual GPU: each
file was given to a process with three calls, whose log (mask 9) shows what it used: an index for the second call, no
entry for any call though some are kept, no entry kept, or the whole file refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import pytest

from analyzers.overrides.lint import by_name, inspect
from analyzers.overrides.look_up import look_up
from logparse.errors import EmissionError
from logparse.formats.aiter import tables as aiter
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS
from logparse.formats.override_format import OverrideFile
from logparse.formats.tunableop import signature
from logparse.model import Fact, GemmProblem, Override, Solution
from tests.analyzers.example import gemm
from tests.formats.reading import Memory

Result: TypeAlias = int | Literal["other key", "dropped", "refused"]

TARGET = {"hipblaslt_version": "100202", "hipblaslt_revision": "", "arch": "gfx90a", "cu_count": "104"}
HALF = dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "f16_r")
CALLS: list[GemmProblem] = [
    gemm(1024, n=512, k=2048, trans_a="T", trans_b="N"),
    gemm(4096, n=64, k=1024, trans_a="N", trans_b="N", **HALF),
    gemm(2048, n=2048, k=512, trans_a="N", trans_b="T"),
]
BEST, OTHER = 101917, 98600
GIT, HEADER = "Git Version: \n", ",".join(TUNING_COLUMNS)
VALUES = (
    "N,N,0,1,4096,64,1024,1,4096,4194304,0,1024,65536,4096,262144,4096,262144,f16_r,f16_r,f16_r,f16_r,f32_r,0,0,0,0,0,"
    f"none,0,f32_r,512,214748,3369.14,2.5,{BEST},gfx90a:sramecc+:xnack-,104"
)
LESS = VALUES.replace(str(BEST), str(OTHER))
NEEDED = "transA,transB,batch_count,m,n,k,a_type,b_type,c_type,compute_type,solution_index"


def entry(header: str = HEADER, values: str = VALUES) -> str:
    return f"    {header}\n    {values}\n"


def cell(column: str, value: str) -> str:
    cells = VALUES.split(",")
    cells[TUNING_COLUMNS.index(column)] = value
    return GIT + entry(values=",".join(cells))


def named(column: str, name: str) -> str:
    return GIT + entry(header=",".join(name if x == column else x for x in TUNING_COLUMNS))


COMPUTES: Mapping[Result, str] = {
    BEST: "f32_r f16_r bf16_r i8_r f32_f8_r f32_bf8_r f32_f8bf8_r f32_bf8f8_r f32_f8_fnuz_r c_f32_r f32_c junk",
    "other key": "f64_r i32_r xf32_r f32_f16_r f32_bf16_r",
}
TYPES: Mapping[Result, str] = {
    BEST: "f16_r",
    "other key": "bf16_r f32_r f64_r i32_r i8_r f8_r bf8_r f8_fnuz_r bf8_fnuz_r",
    "dropped": "u8_r xf32_r f6_r bf6_r f4_r f32_c f64_c e8_r junk",
}
CELLS: Mapping[tuple[str, Result], list[str]] = {
    ("a_type", "dropped"): [" f16_r"],
    ("solution_index", BEST): ["101917abc", "101917.5", " 101917", "+101917", "101917 "],
    ("solution_index", "dropped"): ["4294967296", "4295069213", "-5", "0", "0x18e1d", ""],
    ("m", BEST): ["4096x", "4096.0", " 4096", "+4096"],
    ("m", "other key"): ["0x1000", "-4096"],
    ("m", "dropped"): ["", "99999999999999999999"],
    ("batch_count", "other key"): ["0"],
    ("transB", "other key"): [" N", "n", "C", "N "],
    ("transA", "other key"): ["N "],
    ("grouped_gemm", BEST): ["1"],
}
FILES: Mapping[str, tuple[Result, str]] = {
    "values not indented": (BEST, GIT + f"    {HEADER}\n{VALUES}\n"),
    "values behind a tab": (BEST, GIT + f"    {HEADER}\n\t{VALUES}\n"),
    "header not indented": (BEST, GIT + f"{HEADER}\n    {VALUES}\n"),
    "form feed": (BEST, GIT + "\f" + entry()),
    "blanks in the header": ("dropped", GIT + entry(header=HEADER.replace(",", ", "))),
    "a blank before m": ("dropped", named("m", " m")),
    "header twice": ("dropped", GIT + f"    {HEADER}\n" + entry()),
    "soulution_index": ("dropped", named("solution_index", "soulution_index")),
    "no index": ("dropped", named("solution_index", "other")),
    "no k": ("dropped", named("k", "other")),
    "m twice, before": (BEST, named("grouped_gemm", "m")),
    "m twice, behind": (BEST, named("alpha", "m")),
    "index twice": (BEST, named("CUs", "solution_index")),
    "another index first": (BEST, GIT + entry("solution_index," + HEADER, f"{OTHER}," + VALUES)),
    "TransA": ("dropped", GIT + entry(header=HEADER.replace("transA", "TransA"))),
    "transAB": ("dropped", GIT + entry(header=HEADER.replace("transA", "transAB"))),
    "values and a comma": (BEST, GIT + entry(values=VALUES + ",")),
    "header and a comma": (BEST, GIT + entry(header=HEADER + ",")),
    "both and a comma": (BEST, GIT + entry(HEADER + ",", VALUES + ",")),
    "35 values": (BEST, GIT + entry(values=",".join(VALUES.split(",")[:35]))),
    "34 values": ("dropped", GIT + entry(values=",".join(VALUES.split(",")[:34]))),
    "what is needed": (BEST, GIT + entry(NEEDED, f"N,N,1,4096,64,1024,f16_r,f16_r,f16_r,f32_r,{BEST}")),
    "n before m": (
        "dropped",
        GIT + entry(NEEDED.replace("m,n", "n,m"), f"N,N,1,64,4096,1024,f16_r,f16_r,f16_r,f32_r,{BEST}"),
    ),
    "a column in front": (BEST, GIT + entry("schema_version," + HEADER, "1," + VALUES)),
    "a column behind": (BEST, GIT + entry(HEADER + ",kernel_name", VALUES + ",abc")),
    "a quoted type": ("dropped", GIT + entry(values=VALUES.replace("f16_r", '"f16_r"', 1))),
    "a NUL": (BEST, GIT + entry(values=VALUES.replace("none", "no\0ne"))),
    "CR LF below the first line": (BEST, GIT + entry().replace("\n", "\r\n")),
    "blank line before the header": (BEST, GIT + "\n" + entry()),
    "blank line between": ("dropped", GIT + f"    {HEADER}\n\n    {VALUES}\n"),
    "comment between": ("dropped", GIT + f"    {HEADER}\n# c\n    {VALUES}\n"),
    "comment with a comma between": ("dropped", GIT + f"    {HEADER}\n# c,d\n    {VALUES}\n"),
    "transA in a comment between": ("dropped", GIT + f"    {HEADER}\n# transA\n    {VALUES}\n"),
    "transA in a comment above": ("dropped", GIT + "# transA\n" + entry()),
    "commented header": ("dropped", GIT + f"# {HEADER}\n    {VALUES}\n"),
    "revision between": ("dropped", GIT + f"    {HEADER}\n{GIT}    {VALUES}\n"),
    "two lines of values": (OTHER, GIT + f"    {HEADER}\n    {LESS}\n    {VALUES}\n"),
    "values, then an entry": (BEST, GIT + f"    {LESS}\n" + entry()),
    "another index first, in its own entry": (OTHER, GIT + entry(values=LESS) + entry()),
    "another index later": (BEST, GIT + entry() + entry(values=LESS)),
    "the first again at the end": (BEST, GIT + entry() + entry(values=LESS) + entry()),
    "another revision at the end": (BEST, GIT + entry() + "Git Version: abc\n"),
    "revision indented": (BEST, "  " + GIT + entry()),
    "byte order mark": (BEST, "\ufeff" + GIT + entry()),
    "blank behind the revision": ("refused", "Git Version:  \n" + entry()),
    "no blank before it": ("refused", "Git Version:\n" + entry()),
    "lower case": ("refused", "git version: \n" + entry()),
    "in the second line": ("refused", "\n" + GIT + entry()),
    "of another build": ("refused", "Git Version: abc\n" + entry()),
    "of another build behind a mark": ("refused", "\ufeffGit Version: abc\n" + entry()),
    "CR LF": ("refused", "Git Version: \r\n" + entry()),
    "no revision": ("refused", entry()),
    **{f"compute {x}": (result, cell("compute_type", x)) for result, all in COMPUTES.items() for x in all.split()},
    **{f"type {x}": (result, cell("a_type", x)) for result, all in TYPES.items() for x in all.split()},
    **{f"{name} {x!r}": (result, cell(name, x)) for (name, result), all in CELLS.items() for x in all},
}


def used(file: OverrideFile) -> Result:
    """What the library uses of the file for ``CALLS``, by the verdicts of lint."""
    if file.accepted is False:
        return "refused"
    kept = [row for row in file.rows if row.verdicts.read is not False]
    served = {row.key: row for row in reversed(kept) if not row.dead}
    found = [served[key] for call in CALLS if (key := tuning_file.key(call, TARGET)) in served]
    if found:
        (row,) = found
        assert row.solution is not None
        return int(row.solution.id)
    return "other key" if kept else "dropped"


@pytest.mark.parametrize("name", FILES)
def test_lint_uses_what_the_library_uses(name: str) -> None:
    result, text = FILES[name]
    assert used(inspect("tuning.txt", text.encode(), TARGET, "hipblaslt-tuning-file")) == result


def test_an_empty_revision_is_a_revision() -> None:
    """Debian's builds have none: their files are read and written, and others are refused."""
    assert inspect("t.txt", (GIT + entry()).encode(), TARGET).accepted is True
    assert inspect("t.txt", ("Git Version: abc\n" + entry()).encode(), TARGET).accepted is False
    assert inspect("t.txt", (GIT + entry()).encode(), TARGET | {"hipblaslt_revision": "abc"}).accepted is False


def test_a_file_of_a_build_without_revision_is_read_and_written() -> None:
    given = Override(problem=CALLS[1], solution=Solution("hipblaslt", str(BEST)), target=TARGET)
    (made,) = tuning_file.write([given], TARGET)
    assert made.data.startswith(b"Git Version: \n")
    assert used(inspect(made.name, made.data, TARGET)) == BEST
    outcomes = list(tuning_file.read(Memory(made.data, "t.txt")))
    assert {x.unit for x in outcomes} == {"fact", "measurement"}
    assert outcomes[0].records == (Fact("hipblaslt_revision", ""),)
    with pytest.raises(EmissionError, match="hipblaslt_revision"):
        tuning_file.write([given], {"arch": "gfx90a"})


NAMED, PLACED = {"hipblaslt_version": "100202"}, {"hipblaslt_version": "1200"}


@pytest.mark.parametrize(
    ("given", "arch", "version", "written"),
    [
        ("f8_r", "gfx942", NAMED, "f8_fnuz_r"),  # what a bench line of gfx942 calls f8_r
        ("f8_fnuz_r", "gfx942", NAMED, "f8_fnuz_r"),
        ("bf8_r", "gfx942:sramecc+:xnack-", NAMED, "bf8_fnuz_r"),
        ("f8_r", "gfx950", NAMED, "f8_r"),
        ("f8_r", "gfx942", PLACED, "f8_r"),  # 6.4 has one name for both
        ("f8_fnuz_r", "gfx942", PLACED, "f8_r"),
    ],
)
def test_8_bit_floats_are_those_of_the_arch(given: str, arch: str, version: dict[str, str], written: str) -> None:
    target = {"arch": arch, "hipblaslt_revision": "r", **version}
    call = gemm(
        64, n=32, k=96, **{**dict.fromkeys(("a_type", "b_type"), given), "c_type": "bf16_r", "d_type": "bf16_r"}
    )
    (made,) = tuning_file.write([Override(problem=call, solution=Solution("hipblaslt", "7"), target=target)], target)
    judged = inspect(made.name, made.data, target)
    assert judged.ok
    assert [row.key for row in judged.rows if row.live] == [tuning_file.key(call, target)]
    assert f",{written},{written},bf16_r,bf16_r,f32_r," in made.data.decode()


def test_rows_of_both_families_do_not_conflict() -> None:
    rows = [cell("a_type", x).removeprefix(GIT) for x in ("f8_r", "f8_fnuz_r")]
    text = GIT + rows[0] + rows[1].replace(str(BEST), str(OTHER))
    judged = inspect("tuning.txt", text.encode(), TARGET)
    assert len({row.key for row in judged.rows}) == 2
    assert not [note for note in judged.notes if note.rule == "conflict"]


def test_pytorch_and_aiter_call_gfx942s_floats_fnuz() -> None:
    types = {**dict.fromkeys(("a_type", "b_type"), "f8_r"), "c_type": "bf16_r", "d_type": "bf16_r"}
    call = gemm(64, n=32, k=96, scale_a="row", scale_b="row", scale_type="f32_r", **types)
    for arch, name in (("gfx942:sramecc+:xnack-", "e4m3fnuz"), ("gfx950", "e4m3fn")):
        facts = {"arch": arch, "cu_count": "304", "validator:PT_VERSION": "2.9.1"}
        assert f"Float8_{name}_Float8_{name}_BFloat16" in (signature.key(call, facts) or "")
        assert f"torch.float8_{name}," in (aiter.key(call, facts) or "")


LATER = TARGET | {"hipblaslt_version": "100500", "hipblaslt_revision": "new"}
CACHED = {
    "schema_version": "1",
    "git_version": "old",
    "transA": "N",
    "transB": "N",
    "m": 4096,
    "n": 64,
    "k": 1024,
    "batch_count": 1,
    **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "f16_r"),
    "compute_type": "f32_r",
    **dict.fromkeys(("compute_input_type_a", "compute_input_type_b", "lde", "stride_e", "batch_mode", "aux_type"), 0),
    "lda": 1024,
    "ldb": 1024,
    "ldc": 4096,
    "ldd": 4096,
    **dict.fromkeys(("stride_a", "stride_b", "stride_c", "stride_d", "epilogue", "bias_type", "bias_stride"), 0),
    **dict.fromkeys(("scaleA_format", "scaleB_format", "streamk_tile_scheduling", "sm_count_target", "gradient"), 0),
    **dict.fromkeys(("bias_vector", "scaleA", "scaleB", "scaleC", "scaleD", "scaleE", "scaleAlphaVec", "amaxD"), 0),
    **dict.fromkeys(("swizzle_a", "swizzle_b", "uniform_summation_order"), 0),
    "gcnArchName": "gfx90a",
    "CUs": 104,
    "solution_index": BEST,
    "kernel_name": "Cijk",
    "solution_name": "MT64",
    "required_workspace": 0,
    "us": 2.5,
}


def cached(**cells: object) -> str:
    """An entry of the tuning cache; a cell of None leaves its column out."""
    row = {name: value for name, value in (CACHED | cells).items() if value is not None}
    return f"    {','.join(row)}\n{','.join(map(str, row.values()))}\n"


NAMED_ENTRY = entry(HEADER + ",kernel_name", VALUES + ",Cijk")
BY_ROW: Mapping[str, tuple[Result, str]] = {
    "a name, another revision": (BEST, GIT + NAMED_ENTRY),
    "no name, another revision": ("dropped", GIT + entry()),
    "no name, its own revision": (BEST, "Git Version: new\n" + entry()),
    "no first line, a name": (BEST, NAMED_ENTRY),
    "n before m": (BEST, entry("n,m," + NEEDED.replace("m,n,", "") + ",kernel_name",
                               f"64,4096,N,N,1,1024,f16_r,f16_r,f16_r,f32_r,{BEST},Cijk")),
    "index 0": (0, entry(HEADER + ",kernel_name", VALUES.replace(str(BEST), "0") + ",Cijk")),
    "index and letters": ("dropped", entry(HEADER + ",kernel_name", VALUES.replace(str(BEST), f"{BEST}x") + ",Cijk")),
    "unknown compute type": ("dropped", entry(HEADER + ",kernel_name", VALUES.replace(",0,f32_r,", ",0,f32_r,", 1)
                                              .replace("f16_r,f32_r,", "f16_r,junk,") + ",Cijk")),
    "a torn header": (BEST, f"    {HEADER}\n" + NAMED_ENTRY),
    "blanks in cells": (BEST, NAMED_ENTRY.replace(",", " , ")),
    "a row of the cache": (BEST, cached()),
    "of another schema": ("dropped", cached(schema_version=7)),
    "without a kernel's name": ("dropped", cached(kernel_name=None)),
    "without a stride": ("dropped", cached(stride_c=None)),
    "a stride that is no number": ("dropped", cached(stride_c="x")),
    "of another device": ("other key", cached(CUs=110)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_ROW)
def test_a_library_that_validates_each_row(name: str) -> None:
    """Pull request 10424, transcribed; no released library has this reader."""
    result, text = BY_ROW[name]
    assert used(inspect("tuning.txt", text.encode(), LATER, "hipblaslt-tuning-file")) == result


def test_a_row_of_the_cache_serves_its_whole_problem_only() -> None:
    format = by_name("hipblaslt-tuning-file")
    for ldd, served in ((4096, True), (8192, False)):
        reading = format.reader("cache.txt", cached(ldd=ldd).encode(), LATER)
        found = look_up(format, reading, CALLS[1])
        assert (found.row is not None) is served
        assert served or "another problem" in found.reason


def test_released_libraries_drop_rows_of_the_cache_by_their_order() -> None:
    judged = inspect("cache.txt", (GIT + cached()).encode(), TARGET, "hipblaslt-tuning-file")
    assert [row.kept for row in judged.rows] == [False]
    assert "order" in judged.rows[0].verdicts.why
    unknown = inspect("cache.txt", cached().encode(), {}, "hipblaslt-tuning-file")
    assert [row.live for row in unknown.rows] == [True]


@pytest.mark.parametrize(
    ("compute", "version", "read"),
    [
        ("f32_f16_r", "100202", "f32_f16_r"),  # a key of its own, as recorded by the conformance suite
        ("f32_bf16_r", "100202", "f32_bf16_r"),
        ("f32_f16_r", "100500", "f32_r"),
        ("f16_r", "100202", "f32_r"),  # as which the library runs such calls
        ("f32_f8_r", "100202", None),
        ("xf32_r", "100202", "xf32_r"),
    ],
)
def test_a_row_that_the_reader_drops_or_folds_is_not_written(compute: str, version: str, read: str | None) -> None:
    target = TARGET | {"hipblaslt_version": version}
    call = gemm(64, n=32, k=96, compute_type=compute)
    given = [Override(problem=call, solution=Solution("hipblaslt", "7"), target=target)]
    if read is None:
        assert tuning_file.key(call, target) is None
        with pytest.raises(EmissionError, match=f"compute type {compute}"):
            tuning_file.write(given, target)
        return
    (made,) = tuning_file.write(given, target)
    judged = inspect(made.name, made.data, target)
    assert [(row.live, row.key) for row in judged.rows] == [(True, tuning_file.key(call, target))]
    assert f",{read},0,0," in made.data.decode()
