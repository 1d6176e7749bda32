"""Tests of hipBLASLt's tuning files: what ``logparse lint`` says about them, and which lines logparse writes.

Both depend on the library version and the GPU. ``tests/conformance/test_hipblaslt_files.py`` compares what the real
library reads from thousands of edited files.
"""

from __future__ import annotations

import gzip

import pytest

from analyzers.overrides.lint import by_name, inspect
from analyzers.overrides.look_up import look_up
from logparse.errors import EmissionError
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.hipblaslt import tuning_file
from logparse.libraries.hipblaslt.tuning_file import TUNING_COLUMNS
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.libraries.tunableop import signature
from logparse.model import Fact, GemmProblem, Measurement, Override, Solution
from tests.analyzers.example import ARCH, gemm
from tests.conftest import CORPUS, needs_corpus
from tests.libraries.reading import Memory

TARGET = {"hipblaslt_version": "100202", "hipblaslt_revision": "", "arch": "gfx90a", "cu_count": "104"}
HALF = dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "f16_r")
CALL = gemm(4096, n=64, k=1024, trans_a="N", trans_b="N", **HALF)
BEST, OTHER = 101917, 98600
GIT, HEADER = "Git Version: \n", ",".join(TUNING_COLUMNS)
VALUES = (
    "N,N,0,1,4096,64,1024,1,4096,4194304,0,1024,65536,4096,262144,4096,262144,f16_r,f16_r,f16_r,f16_r,f32_r,0,0,0,0,0,"
    f"none,0,f32_r,512,107374,3369.14,5.0,{BEST},gfx90a:sramecc+:xnack-,104"
)


def entry(header: str = HEADER, values: str = VALUES) -> str:
    return f"    {header}\n    {values}\n"


def cell(column: str, value: str) -> str:
    cells = VALUES.split(",")
    cells[TUNING_COLUMNS.index(column)] = value
    return GIT + entry(values=",".join(cells))


def test_an_empty_revision_is_not_unknown() -> None:
    """If a tuning file states an empty build revision, only a hipBLASLt build with an empty revision uses it.

    Debian's builds have an empty revision, which is not the same as an unknown one.
    """
    assert inspect("t.txt", (GIT + entry()).encode(), TARGET).accepted is True
    assert inspect("t.txt", ("Git Version: abc\n" + entry()).encode(), TARGET).accepted is False
    assert inspect("t.txt", (GIT + entry()).encode(), TARGET | {"hipblaslt_revision": "abc"}).accepted is False
    given = Override(problem=CALL, solution=Solution("hipblaslt", str(BEST)), target=TARGET)
    (made,) = tuning_file.write([given], TARGET)
    assert made.data.startswith(b"Git Version: \n")
    (row,) = inspect(made.name, made.data, TARGET).rows
    assert (row.live, row.key, row.solution) == (True, tuning_file.key(CALL, TARGET), given.solution)
    outcomes = list(tuning_file.read(Memory(made.data, "t.txt")))
    assert {x.unit for x in outcomes} == {"fact"}  # a row without a time measures nothing
    assert outcomes[0].records == (Fact("hipblaslt_revision", ""),)
    with pytest.raises(EmissionError, match="hipblaslt_revision"):
        tuning_file.write([given], {"arch": "gfx90a"})


@pytest.mark.parametrize(
    ("given", "arch", "version", "written"),
    [
        ("f8_r", "gfx942", "100202", "f8_fnuz_r"),  # the type that a bench line of gfx942 calls f8_r
        ("bf8_fnuz_r", "gfx942:sramecc+:xnack-", "100202", "bf8_fnuz_r"),
        ("f8_r", "gfx950", "100202", "f8_r"),
        ("f8_fnuz_r", "gfx942", "1200", "f8_r"),  # 6.4 has one name for both
    ],
)
def test_8_bit_floats_are_those_of_the_arch(given: str, arch: str, version: str, written: str) -> None:
    target = {"arch": arch, "hipblaslt_revision": "r", "hipblaslt_version": version}
    call = gemm(
        64, n=32, k=96, **{**dict.fromkeys(("a_type", "b_type"), given), "c_type": "bf16_r", "d_type": "bf16_r"}
    )
    (made,) = tuning_file.write([Override(problem=call, solution=Solution("hipblaslt", "7"), target=target)], target)
    judged = inspect(made.name, made.data, target)
    assert judged.ok
    assert [row.key for row in judged.rows if row.live] == [tuning_file.key(call, target)]
    assert f",{written},{written},bf16_r,bf16_r,f32_r," in made.data.decode()


def test_pytorch_and_aiter_call_gfx942s_floats_fnuz() -> None:
    types = {**dict.fromkeys(("a_type", "b_type"), "f8_r"), "c_type": "bf16_r", "d_type": "bf16_r"}
    call = gemm(64, n=32, k=96, scale_a="row", scale_b="row", scale_type="f32_r", **types)
    for arch, name in (("gfx942:sramecc+:xnack-", "e4m3fnuz"), ("gfx950", "e4m3fn")):
        facts = {"arch": arch, "cu_count": "304", "validator:PT_VERSION": "2.9.1"}
        assert f"Float8_{name}_Float8_{name}_BFloat16" in (signature.key(call, facts) or "")
        assert f"torch.float8_{name}," in (aiter.key(call, facts) or "")


@pytest.mark.parametrize(
    ("compute", "version", "read"),
    [
        ("f32_f16_r", "100202", "f32_f16_r"),  # a key of its own, as recorded by the conformance suite
        ("f32_f16_r", "100500", "f32_r"),
        ("f16_r", "100202", "f32_r"),  # the library runs such calls as f32_r
        ("f32_f8_r", "100202", None),
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


# ------------------------------------------------------------------------------------------- what lint notes

OLD = {"hipblaslt_version": "1200", "hipblaslt_revision": "3b3d59eb", "arch": ARCH, "cu_count": "304"}
NEW = OLD | {"hipblaslt_version": "100000"}
FIRST = "Git Version: 3b3d59eb\n"
NAMES = f"    {HEADER}\n"
ROW = (
    "    T,N,0,1,4096,512,1024,1,1024,4194304,0,1024,524288,4096,2097152,4096,2097152,bf16_r,bf16_r,bf16_r,bf16_r,"
    f"f32_r,0,0,0,0,0,none,0,f32_r,512,481566,200.742,8.9,105597,{ARCH},304\n"
)


def inspect_text(text: str, target: dict[str, str]) -> OverrideFile:
    return inspect("tuning.txt", text.encode(), target)


def rules(text: str, target: dict[str, str]) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in inspect_text(text, target).notes]


def test_each_version_reads_its_layout() -> None:
    wide = FIRST + NAMES.rstrip("\n") + ",splitK\n" + ROW.rstrip("\n") + ",1\n"
    assert rules(wide, OLD) == [(3, "error", "37-values")]
    assert inspect_text(wide, OLD).rows[0].dead
    assert rules(wide, NEW) == []
    assert rules(wide, {}) == [(3, "warning", "layout")]
    assert rules(FIRST + ROW, OLD) == []
    assert rules(FIRST + ROW, NEW) == [(2, "error", "no-header")]
    assert rules(FIRST + ROW, {}) == [(2, "warning", "layout")]


def test_rules_about_the_file() -> None:
    whole = FIRST + NAMES + ROW
    assert rules(whole.replace("3b3d59eb", "other"), NEW) == [(1, "error", "revision")]
    assert rules(NAMES + ROW, NEW)[0] == (1, "error", "revision")
    assert (1, "error", "revision") in rules(whole.replace("\n", "\r\n"), NEW)
    assert rules(whole.replace("3b3d59eb", "3b3d59eb "), {}) == [(1, "error", "revision")]
    assert rules(FIRST, NEW) == [(None, "error", "empty")]


def test_rules_about_rows() -> None:
    whole = FIRST + NAMES + ROW
    for old, new, rule in (
        (",105597,", ",0,", ("error", "index")),
        (",4096,512,", ",4096,five,", ("error", "number")),
        (",bf16_r,bf16_r,f32_r,0", ",bf16_r,f33_r,f32_r,0", None),  # the reader does not read d_type
        ("bf16_r,bf16_r,bf16_r,bf16_r", "bf16_r,bf17_r,bf16_r,bf16_r", ("error", "type")),
        (",bf16_r,f32_r,0", ",bf16_r,f33_r,0", ("warning", "read-as")),
        ("    T,N,", "    T,Q,", ("warning", "read-as")),
        ("T,N,0,1,", "T,N,1,1,", ("warning", "grouped")),
        ("gfx942", "gfx950", ("error", "arch")),
        (",304\n", ",228\n", ("warning", "cu-count")),
    ):
        assert rules(whole.replace(old, new), NEW) == ([(3, *rule)] if rule else []), (old, new)
    assert rules(whole.replace("bf16_r,f32_r,0", "bf16_r,xf32_r,0"), OLD) == [(3, "error", "compute-type")]
    no_column = whole.replace("c_type,", "", 1).replace("bf16_r,bf16_r,bf16_r,bf16_r", "bf16_r,bf16_r,bf16_r")
    assert rules(no_column, NEW) == [(3, "error", "columns")]


def test_several_rows_of_one_key() -> None:
    other = ROW.replace(",105597,", ",7,")
    assert rules(FIRST + NAMES + ROW + NAMES + ROW, NEW) == []
    assert rules(FIRST + ROW + other, OLD) == [(2, "error", "conflict")]  # 6.4 tries the latest row first
    assert rules(FIRST + NAMES + ROW + NAMES + other, NEW) == [(5, "error", "conflict")]  # 7.0 tries line 3 first
    assert [x[0] for x in rules(FIRST + NAMES + ROW + NAMES + other, {})] == [3, 5]
    format = by_name("hipblaslt-tuning-file")
    for text, target, line in ((FIRST + ROW + other, OLD, 3), (FIRST + NAMES + ROW + NAMES + other, NEW, 3)):
        reading = format.reader("tuning.txt", text.encode(), target)
        assert reading.rows[0].problem is not None
        served = look_up(format, reading, reading.rows[0].problem).row
        assert served is not None
        assert served.line == line
    floats = [cell("a_type", x).removeprefix(GIT) for x in ("f8_r", "f8_fnuz_r")]
    assert rules(GIT + floats[0] + floats[1].replace(str(BEST), str(OTHER)), TARGET) == []


@needs_corpus
def test_a_file_of_rocm_6_4() -> None:
    data = (CORPUS / "hipblaslt/tuning_file_6.4_values_only.log").read_bytes()
    file = inspect("t.txt", data, OLD | {"hipblaslt_revision": "d5f81531"})
    assert (file.ok, [row.verdicts.honoured for row in file.rows]) == (True, [True])


def test_an_old_file_is_read_as_its_library_version_reads_it() -> None:
    """logparse reads an old hipBLASLt tuning file without column names as the stated library version does."""
    # The versions know different data types. ROCm 6.4 (hipBLASLt 0.12) drops lines with the type xf32. The last
    # versions before 7.0 that read such files take xf32 for f32.
    text = (FIRST + f"    {','.join(VALUES.split(','))}\n").replace("f16_r,f32_r,0", "f16_r,xf32_r,0").encode()
    keys = [inspect("t.txt", text, OLD | {"hipblaslt_version": x}).rows[0].key[-6:] for x in ("1202", "1400")]
    assert keys == ["", ",f32_r"]
    fnuz = (FIRST + f"    {VALUES}\n").replace("f16_r,f16_r,f16", "f8_fnuz_r,f8_fnuz_r,f16").encode()
    versions = ("1202", "1400", "1500", "", "100000")
    targets = [{"hipblaslt_version": x} if x else {} for x in versions]
    assert [inspect("t.txt", fnuz, x).rows[0].live for x in targets] == [False, True, True, True, False]
    call = gemm(4096, n=64, k=1024, trans_a="N", trans_b="N", **HALF | {"a_type": "f8_fnuz_r", "b_type": "f8_fnuz_r"})
    for target in targets[1:4]:
        (row,) = inspect("t.txt", fnuz, target | {"arch": "gfx942"}).rows
        assert row.key == tuning_file.key(call, target | {"arch": "gfx942"})


def test_rows_copied_to_other_sizes_are_no_measurements() -> None:
    """If a time in a tuning file was copied from another size, it is not taken as a measurement."""
    # Teams that serve models copy the measurement of one size to lines of smaller sizes. Only one line was really
    # measured: the line whose sizes agree with its Gflop/s.
    cells = VALUES.split(",")
    copies = [",".join([*cells[:5], str(n), *cells[6:]]) for n in (63, 64, 62, 64)]
    another = ",".join([*cells[:5], "128", *cells[6:31], "300000", cells[32], "3.579", *cells[34:]])
    text = GIT + "".join(entry(values=x) for x in (*copies, another)).replace("gfx90a", "gfx942")  # fast enough
    outcomes = list(tuning_file.read(Memory(text.encode(), "t.txt")))
    measured = [x for outcome in outcomes for x in outcome.records if isinstance(x, Measurement)]
    assert [(x.problem.n, x.time_us) for x in measured if isinstance(x.problem, GemmProblem)] == [
        (63, None),
        (64, 5.0),
        (62, None),
        (64, 5.0),
        (128, 3.579),
    ]
    assert sum(x.unit == "measurement" for x in outcomes) == 3
    notes = inspect("t.txt", text.encode(), TARGET).notes
    assert [note.line for note in notes if note.rule == "copied"] == [3, 7]


@needs_corpus
def test_mlperfs_file() -> None:
    """logparse reads a real hipBLASLt tuning file from MLPerf, and knows which hipBLASLt builds can use the file."""
    # The file has 8,336 lines, made from only 521 measurements. Versions 0.13 and 0.15 of the build aa0bda7b use all
    # lines. It is not known for which of them the file was made. The other versions and builds that are tried here use
    # no line.
    data = gzip.decompress((CORPUS / "serving/mlperf_tuning_aa0bda7b.txt.gz").read_bytes())
    outcomes = list(tuning_file.read(Memory(data, "t.txt")))
    assert (len(outcomes), sum(x.unit == "measurement" for x in outcomes)) == (8337, 521)
    # The build aa0bda7b identifies columns by position and has FNUZ types.
    builds = {"1300": "aa0bda7b", "1500": "aa0bda7b", "1201": "aa0bda7b", "100200": "aa0bda7b", "1400": "d5f81531"}
    own = {"arch": "gfx942", "cu_count": "304"}
    used = []
    for version, revision in builds.items():
        target = own | {"hipblaslt_version": version, "hipblaslt_revision": revision}
        file = inspect("t.txt", data, target)
        used.append(sum(row.live for row in file.rows) if file.accepted else 0)
    assert used == [8336, 8336, 0, 0, 0]


@pytest.mark.parametrize(
    ("gflops", "us", "wanted"),
    [
        ("107374", "5.0", []),
        ("107500", "5.0", []),
        ("107374", "10.0", ["copied"]),
        ("53687", "5.0", ["copied"]),
        ("107374", "0", []),
        ("0", "5.0", []),
        ("x", "5.0", []),
    ],
)
def test_a_row_whose_rate_is_of_other_sizes_is_copied(gflops: str, us: str, wanted: list[str]) -> None:
    text = GIT + entry(values=VALUES.replace(",107374,", f",{gflops},").replace(",5.0,", f",{us},"))
    assert [note.rule for note in inspect("t.txt", text.encode(), TARGET).notes] == wanted
