"""Tests of ``logparse lint`` on user find-dbs, the files in which MIOpen stores the solvers that it measured.

``lint`` must name each error in a file, and report none for files that MIOpen wrote.
"""

from __future__ import annotations

import bz2
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.lint import grouped, inspect
from analyzers.overrides.merge import merge
from logparse.errors import EmissionError, InputError, UsageError
from logparse.ingest import ingest
from logparse.ingest.stated_target import target_from
from logparse.libraries.kinds.reading import Row, offers
from logparse.libraries.miopen import find_db, find_db_file
from logparse.libraries.miopen.db_names import file_name
from logparse.libraries.miopen.find_db_items import read_record
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.libraries.miopen.solvers import algorithm_name, known_algorithm
from logparse.model import Measurement, Override, Solution
from logparse.store import Store
from tests.analyzers.example import F
from tests.conftest import CORPUS, SAMPLES, needs_corpus

NAME = "gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt"
TARGET = {
    "arch": "gfx942:sramecc+:xnack-",
    "cu_count": "304",
    "backend": "HIP",
    "miopen_version": "3.4.0",
    "miopen_tweak": "7c1e0a9d2",
}
KEY = "256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32"
GEMM = "GemmWrwUniversal:3.9,6422528,miopenConvolutionBwdWeightsAlgoGEMM"
ROW = f"{KEY}={GEMM}\n"
ALGORITHM = "miopenConvolutionBwdWeightsAlgoGEMM"


def rules(text: str, name: str = NAME, target: dict[str, str] = TARGET) -> list[tuple[int | None, str, str]]:
    file = inspect(name, text.encode(), target, "miopen-find-db")
    return [(note.line, note.severity, note.rule) for note in file.notes]


FUSED = (
    "4, 64, 14, 14FP324, 64, 14, 14FP3264x14x14x3x3x64x14x14x4xNCHWxFP32x1x1x1x1x1x1x1xFxDefault64x1x14x14x4xNCHWxNCHW"
    "xFP32xFP32xFP32xFP32xFP32xFP32x0xInfx1x0=ConvOclDirectFwdFused:0.09334,0,miopenConvolutionFwdAlgoDirect\n"
)
"""A line of a MIOpen 3.5.1 find-db (measured solvers), for a convolution that is fused with a batch normalisation."""


def test_files_of_fused_operators_are_not_used(store: Store, tmp_path: Path) -> None:
    """A find-db file for fused operators is recognised but not used: no subcommand checks, merges or reads its lines.

    If such a file has a line for a single convolution, the line is ignored, too.
    """
    name = NAME.replace(".ufdb", ".fusion.ufdb")
    (tmp_path / name).write_text(FUSED, encoding="utf-8")
    own = inspect(name, FUSED.encode(), TARGET)
    assert (own.accepted, len(own.rows), [x.severity for x in own.notes]) == (True, 0, ["info"])
    with pytest.raises(InputError, match="cannot be merged"):
        merge([str(tmp_path / name)] * 2)
    ingest([str(tmp_path / name)], store)
    frames = store.frames()
    assert frames["sources"][["foreign_lines", "reject_lines"]].to_numpy().tolist() == [[1, 0]]
    assert frames["measurements"].empty

    mixed = inspect(name, (FUSED + ROW).encode(), TARGET)
    assert (mixed.accepted, [row.live for row in mixed.rows], next(iter(mixed.rows)).line) == (False, [False], 2)
    assert [(x.severity, x.rule, x.remedy) for x in mixed.notes] == [("error", "fusion", f"name the file {NAME}")]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (ROW.replace("=", "", 1), (1, "error", "no-key")),
        (ROW + ROW.replace("3.9", "2.9"), (2, "error", "duplicate")),
        (ROW.replace("\n", f";{GEMM}\n"), (1, "warning", "duplicate")),
        (ROW.replace("NCHW", "NCHV-"), (1, "error", "bad-key")),
        (ROW.replace("NCHW", "NCHW-NCHW-NCHW"), (1, "error", "key-spelling")),
        (ROW.replace("GemmWrwUniversal:", ""), (1, "error", "item")),
        (ROW.replace(",miopenConvolutionBwdWeightsAlgoGEMM", ""), (1, "error", "few-values")),
        (ROW.replace("BwdWeights", "Fwd"), (1, "error", "algorithm")),
        (ROW.replace("AlgoGEMM", "AlgoGEM"), (1, "error", "algorithm")),
        (ROW.replace("AlgoGEMM", "AlgoDirect"), (1, "error", "algorithm")),
        (ROW.replace("GemmWrwUniversal", "GemmFwd1x1_0_1"), (1, "error", "solver-direction")),
        (ROW.replace("\n", f";MySolver:1,0,{ALGORITHM}\n"), (1, "info", "unknown-solver")),
        (ROW.replace("3.9", "soon"), (1, "warning", "time")),
        (ROW.replace("3.9", "-1"), (1, "error", "time")),
        (ROW.replace("6422528", "much"), (1, "error", "workspace")),
        ("\n", (None, "error", "empty")),
        ("\ufeff" + ROW, (1, "error", "bad-key")),
    ],
)
def test_rules(text: str, rule: tuple[int | None, str, str]) -> None:
    assert rules(text) == [rule]


NAIVE = "ConvDirectNaiveConvWrw:{},0,miopenConvolutionBwdWeightsAlgoDirect"


def test_a_line_that_miopen_would_replace_is_noticed() -> None:
    """If no solver in a line of a find-db can be used, ``lint`` warns that MIOpen will replace the line.

    A find-db is MIOpen's file of measured solvers. MIOpen searches again if a line has no usable solver.
    """
    huge = ROW.replace("6422528", "99999999999999")
    assert [x[1:] for x in rules(huge)] == [("error", "workspace"), ("warning", "overwritten")]
    assert "overwritten" not in [x[2] for x in rules(huge.replace("\n", f";{NAIVE.format(9)}\n"))]


NHWC = "64-56-56-3x3-64-56-56-32-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-BF16-{}"


@pytest.mark.parametrize(
    ("direction", "solver", "family"),
    [
        ("F", "ConvDepthwiseFwd2D", "Direct"),
        ("B", "ConvDepthwiseFwd2D", "Direct"),
        ("F", "ConvDepthwiseFwd3D", "Direct"),
        ("W", "ConvHipConv", "Direct"),
        ("B", "ConvHipDirectFwd", "Direct"),
        ("B", "TransposedConvWinoRageRxS<2-3>", "Winograd"),
        ("W", "TransposedConvWinograd3x3MultipassWrW<1-1-7-2>", "Winograd"),
        ("F", "TransposedConvMPBidirectWinograd_xdlops<6-3>", "Winograd"),
    ],
)
def test_solvers_of_2026_are_known(direction: str, solver: str, family: str) -> None:
    """``lint`` knows the solvers that MIOpen added in 2026, with their directions and algorithms.

    An earlier version called them unknown and their lines lost, and ``recommend`` could not write them.
    """
    row = f"{NHWC.format(direction)}={solver}:0.02,0,{algorithm_name(family, direction)}\n"
    file = inspect("gfx950100.HIP.3_5_2_.ufdb.txt", row.encode(), {}, "miopen-find-db")
    assert {note.rule for note in file.notes} <= {"default-parameters"}
    assert all(x.live is not False for x in file.rows)
    assert known_algorithm(solver) == family


@pytest.mark.parametrize("solver", ["MySolver", "ConvCkTileWrw", "ConvHipImplicitGemmNextFwd", "Winograd9000<2-3>"])
@pytest.mark.parametrize("direction", ["F", "B", "W"])
@pytest.mark.parametrize("family", ["Direct", "ImplicitGEMM", "Winograd"])
def test_unknown_solvers_are_no_error(direction: str, solver: str, family: str) -> None:
    """``lint`` reports no error for a solver that it does not know, because the solver may come from a newer MIOpen.

    Without the solver's direction and algorithm, ``lint`` cannot tell whether MIOpen would ignore the solver.
    """
    key = KEY.replace("-W_", f"-{direction}_")
    row = f"{key}={solver}:3.9,0,{algorithm_name(family, direction)}\n"
    file = inspect(NAME, row.encode(), TARGET)
    (item,) = file.rows
    assert (file.accepted, item.live) == (True, True)
    assert {(note.severity, note.rule) for note in file.notes} <= {
        ("info", "unknown-solver"),
        ("info", "default-parameters"),
    }
    (measured,) = read_record(row.strip()).records
    assert isinstance(measured, Measurement)
    assert (measured.status, measured.time_us) == ("ok", 3900.0)


@pytest.mark.parametrize(
    "name",
    [
        "gfx90a6e.HIP.3_4_0_7c1e0a9d2.ufdb.txt",
        "gfx942130.HIP.3_3_1_7c1e0a9d2.ufdb.txt",
        "mine.ufdb.txt",
    ],
)
def test_a_file_name_that_miopen_never_opens_is_an_error(name: str) -> None:
    """If MIOpen would never open a file of this name on the user's GPU, ``lint`` reports an error and the right name.

    ``tests/conformance/test_miopen_files.py`` has more such names.
    """
    file = inspect(name, ROW.encode(), TARGET)
    assert [(n.rule, n.severity) for n in file.notes] == [("file-name", "error")]
    assert NAME in file.notes[0].remedy
    assert next(iter(file.rows)).dead


F_KEY = "64-128-128-3x3-64-128-128-8-1x1-1x1-1x1-0-NCHW-FP16-F"


@pytest.mark.parametrize(
    ("name", "words", "wanted"),
    [
        ("gfx1201_32", ["arch=gfx1201", "cu_count=64"], ""),
        ("gfx1201_32", ["cu_count=32", "arch=gfx1201"], ""),
        ("gfx1100_48", ["arch=gfx1100", "cu_count=96"], ""),
        ("gfx1030_36", ["arch=gfx1030:xnack-", "cu_count=72"], ""),
        ("gfx1201_64", ["arch=gfx1201", "cu_count=64"], "gfx1201_32"),
        ("gfx1201_64", ["arch=gfx1201", "cu_count=64", "wgp_mode=0"], ""),
        ("gfx1201_32", ["arch=gfx1201", "cu_count=56"], "gfx1201_28"),
        ("gfx90a_64", ["arch=gfx90a", "cu_count=64"], ""),
    ],
)
def test_compute_units_in_file_names_are_counted_as_hip_does(name: str, words: list[str], wanted: str) -> None:
    """The number of compute units in the name of a find-db (MIOpen's file of measured solvers) is HIP's number."""
    # On RDNA HIP counts pairs of compute units, and MIOpen (GetDbBasename) uses this number. A user states the number
    # that the tool rocminfo prints, so logparse must convert it.
    target = target_from([*words, "miopen_version=3.5.1", "miopen_tweak=abc"])
    row = f"{F_KEY}=ConvDirectNaiveConvFwd:3,0,miopenConvolutionFwdAlgoDirect\n".encode()
    end = ".HIP.3_5_1_abc.ufdb.txt"
    file = inspect(name + end, row, target)
    assert [x.remedy for x in file.notes if x.rule == "file-name"] == (
        [f"name the file {wanted}{end}"] if wanted else []
    )
    assert file.accepted is not bool(wanted)
    assert file_name(target) == (wanted or name) + end


def test_two_words_that_state_one_count_of_cus_agree() -> None:
    words = ["gfx1100_48.HIP.3_5_1_abc.ufdb.txt", "arch=gfx1100", "cu_count=96"]
    assert target_from(words)["cu_count"] == "48"
    with pytest.raises(UsageError, match="cu_count is 42, but another --target states 48"):
        target_from([*words, "cu_count=84"])
    assert target_from(["gfx1201_64.HIP.3_5_1_abc.ufdb.txt"])["cu_count"] == "64"


def test_an_empty_tweak_is_not_unknown() -> None:
    """If MIOpen's version is known to end with an empty "tweak", a database file with another tweak is refused."""
    # The tweak is the last part of the version, which is empty in Debian's builds. If it were unknown, logparse could
    # not refuse the file.
    target = TARGET | {"miopen_tweak": ""}
    assert inspect("gfx942130.HIP.3_4_0_.ufdb.txt", ROW.encode(), target).accepted is True
    assert inspect(NAME, ROW.encode(), target).accepted is False


def test_verdicts_without_a_target() -> None:
    file = inspect(NAME, (SAMPLES / "miopen" / NAME).read_bytes(), {})
    assert (file.accepted, file.ok) == (None, True)
    assert {note.rule for note in file.notes} == {"default-parameters"}


def test_old_items_are_read_as_miopen_reads_them() -> None:
    old = f"{KEY}=miopenConvolutionBwdWeightsAlgoGEMM:GemmWrwUniversal,0.02,72,rocBlas,not used\n"
    assert rules(old) == []
    key = find_db.key(F, {})
    assert rules(f"{key}=miopenConvolutionBwdWeightsAlgoGEMM:GemmWrwUniversal,0.02,72,rocBlas,x\n")[0] == (
        1,
        "error",
        "algorithm",
    )


@needs_corpus
def test_the_shipped_database_has_no_errors() -> None:
    text = bz2.decompress((CORPUS / "miopen/gfx942130.HIP.fdb.txt.bz2").read_bytes())
    head = b"\n".join(text.split(b"\n")[:3000]) + b"\n"
    file = inspect("gfx942130.HIP.fdb.txt", head, {})
    assert [note for note in file.notes if note.severity == "error"] == []
    assert all(row.live for row in file.rows)


ITEM_EDITS = ("", "0", "1e9", ";", ",", ":", "x", " ", "+1", "-1", "é", "99999999999999", "Fwd", GEMM, f";{GEMM}", "\n")
SHIPPED = (SAMPLES / "miopen/gfx942130.HIP.fdb.txt").read_text(encoding="utf-8").splitlines()


@given(st.data())
def test_lines_checked_together_have_the_same_errors(data: st.DataObject) -> None:
    """``lint`` checks many lines of a find-db at once, and finds the same errors as by checking line by line.

    A find-db is MIOpen's file of measured solvers. Checking lines together is faster. The test damages some of them at
    random.
    """
    lines = data.draw(st.lists(st.sampled_from([*SHIPPED[:40], ROW.strip()]), min_size=1, max_size=5))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        at, cut = data.draw(st.integers(0, len(lines[place]))), data.draw(st.integers(0, 8))
        lines[place] = lines[place][:at] + data.draw(st.sampled_from(ITEM_EDITS)) + lines[place][at + cut :]
    text, name = "\n".join(lines).encode(), data.draw(st.sampled_from((NAME, "mine.ufdb.txt")))
    quick = inspect(name, text, TARGET, "miopen-find-db")
    with patch.object(find_db_file, "_unremarkable", lambda *what: False):
        plain = inspect(name, text, TARGET, "miopen-find-db")
    assert list(quick.rows) == list(plain.rows)
    assert len(quick.rows) == len(list(plain.rows))
    offered = [list(one.reading.offers(lambda row: "")) for one in (quick, plain)]
    assert offered == [list(offers(plain.rows))] * 2
    for one in (quick, plain):
        lines_of = [line for row, its in one.reading.alike for line in its]
        assert sorted(lines_of) == [row.line for row in plain.rows]
    assert sorted(quick.notes, key=repr) == sorted(plain.notes, key=repr)
    assert [note.line for note in quick.notes] == [note.line for note in plain.notes]
    live = sum(len(its) for row, its in quick.reading.alike if row.live)
    assert live == sum(row.live for row in plain.rows)
    for of in ("by_key", "by_shape"):
        wanted: dict[object, list[Row]] = {}
        for row in plain.rows:
            if of == "by_key" and not row.dead:
                wanted.setdefault(row.key, []).append(row)
            elif of == "by_shape" and row.live:
                wanted.setdefault(row.problem.shape if row.problem else None, []).append(row)
        for one in (quick, plain):
            assert {key: rows for key, rows in getattr(one.reading, of).items() if rows} == wanted
    groups: dict[tuple[str, ...], list[int]] = {}
    for note in plain.notes:
        groups.setdefault((note.severity, note.rule, note.message, note.remedy), []).append(note.line or 0)
    assert list(grouped(quick.noted)) == [(what, len(its), its[:8]) for what, its in groups.items()]


@pytest.mark.parametrize(
    ("time", "us"), [("0.5x", 500), (" 0.5", 500), ("0.5 ", 500), ("5e", 0), ("x", 0), ("nan", 0), ("-0.5x", None)]
)
def test_a_time_is_read_as_far_as_it_is_a_number(time: str, us: float | None) -> None:
    (row,) = inspect(
        NAME, f"{KEY}=GemmWrwUniversal:{time},0,miopenConvolutionBwdWeightsAlgoGEMM\n".encode(), TARGET
    ).rows
    assert row.time_us == us


LARGE = "1024-162-92-3x3-1024-162-92-{}-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-{}"


@pytest.mark.parametrize(
    ("n", "direction", "solver", "family", "warned"),
    [
        (240, "W", "ConvHipImplicitGemmGroupWrwXdlops", "ImplicitGEMM", True),
        (240, "F", "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC", "ImplicitGEMM", True),
        (240, "B", "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC", "ImplicitGEMM", True),
        (140, "W", "ConvHipImplicitGemmGroupWrwXdlops", "ImplicitGEMM", False),
        (240, "F", "ConvHipImplicitGemmGroupFwdXdlops", "ImplicitGEMM", False),
        (240, "W", "GemmWrwUniversal", "GEMM", False),
    ],
)
def test_a_tensor_too_large_for_32_bit_indices(n: int, direction: str, solver: str, family: str, warned: bool) -> None:
    """``lint`` warns of a solver whose 32-bit indices cannot address the whole tensor.

    logparse also never writes such a solver to a file. MIOpen versions before July 2026 return wrong results in this
    case.
    """
    key = LARGE.format(n, direction)
    small = f"{LARGE.format(1, direction)}={solver}:0.1,0,{algorithm_name(family, direction)}\n"
    text = f"{small}{key}={solver}:9.5,0,{algorithm_name(family, direction)}\n"
    assert ((2, "warning", "int-overflow") in rules(text)) is warned
    assert (1, "warning", "int-overflow") not in rules(text)
    row = Override(
        problem=problem_from_key(key),
        solution=Solution("miopen", solver, solver),
        target=TARGET,
        time_us=9500.0,
        workspace_bytes=0,
    )
    net = replace(row, solution=Solution("miopen", "ConvDirectNaiveConvFwd"), fallback=row)
    if warned:
        with pytest.raises(EmissionError, match="wrong results"):
            find_db.write([row], TARGET)
        if direction == "F":
            (file,) = find_db.write([net], TARGET)
            assert solver.encode() not in file.data
    else:
        assert solver.encode() in find_db.write([row], TARGET)[0].data


def test_a_3d_tensor_beyond_the_indices_of_a_solver() -> None:
    key = "512-40-200-300-3x3x3-512-40-200-300-2-1x1x1-1x1x1-1x1x1-0-NDHWC-NDHWC-NDHWC-BF16-W"
    row = f"{key}=ConvHipImplicitGemm3DGroupWrwXdlops:9.5,0,{algorithm_name('ImplicitGEMM', 'W')}\n"
    assert (1, "warning", "int-overflow") in rules(row)
    assert (1, "warning", "int-overflow") not in rules(row.replace("-2-1x1x1", "-1-1x1x1"))
