"""Tests of ``logparse convert``, which rewrites an override file (a choice of kernels) for another library.

The kernels keep their numbers, so the file must never be used with another library build. Lines that the other library
cannot express are left out.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.convert import convert
from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import merge
from analyzers.overrides.write import Made
from logparse.errors import InputError
from logparse.ingest.stated_target import target_from
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.hipblaslt import tuning_file
from logparse.libraries.tunableop import results, signature
from logparse.model import GemmProblem, Override, Solution
from tests.analyzers.example import gemm
from tests.conftest import SAMPLES

CSV = str(SAMPLES / "tunableop/tunableop_results0.csv")
TUNING = str(SAMPLES / "hipblaslt/tuning_7.0.txt")
AITER = str(SAMPLES / "tables/aiter_bf16_tuned_gemm.csv")
ROCBLAS = str(SAMPLES / "tables/rocblas.log")
TARGET = target_from([CSV])
FACTS = {**TARGET, "cu_count": "304"}


def rows(made: Made) -> dict[str, str]:
    """Read the one file that ``logparse convert`` wrote, as the library would read it: {key: kernel}.

    Checks that the library would accept every line.
    """
    (file,) = made.files
    judged = inspect(file.name, file.data, {**TARGET, "cu_count": "304"})
    assert judged.ok, judged.notes
    assert all(row.live for row in judged.rows)
    return {row.key: row.solution.text for row in judged.rows if row.solution}


def test_a_csv_becomes_a_tuning_file_of_its_own_build() -> None:
    made = convert([CSV], "hipblaslt")
    found = rows(made)
    assert made.count == len(found) == 11
    assert made.files[0].data.startswith(b"Git Version: 3b3d59eb\n")
    assert sum(made.refused.values()) + made.count == 20
    assert made.refused["Default: nothing to override"] == 7


def test_a_byte_order_mark_is_skipped_and_none_is_written(tmp_path: Path) -> None:
    marked = tmp_path / Path(CSV).name
    marked.write_bytes(BOM_UTF8 + Path(CSV).read_bytes())
    for made, wanted in (
        (convert([str(marked)], "hipblaslt"), convert([CSV], "hipblaslt")),
        (merge([str(marked)]), merge([CSV])),
    ):
        assert [file.data for file in made.files] == [file.data for file in wanted.files]
        assert not any(BOM_UTF8 in file.data for file in made.files)


def test_conversion_to_csv_keeps_all_rows() -> None:
    """If a hipBLASLt tuning file is converted to PyTorch's CSV, all its rows and kernels are still there."""
    before = inspect("t.txt", Path(TUNING).read_bytes(), TARGET)
    wanted = {row.key: row.solution.text for row in before.rows if row.solution}
    csv = convert([TUNING], "tunableop", TARGET)
    assert (csv.count, csv.refused) == (17, {})
    assert set(rows(csv).values()) == set(wanted.values())


def test_and_back_again(tmp_path: Path) -> None:
    before = inspect("t.txt", Path(TUNING).read_bytes(), TARGET)
    path = tmp_path / "tunableop_results0.csv"
    path.write_bytes(convert([TUNING], "tunableop", TARGET).files[0].data)
    back = convert([str(path)], "hipblaslt")
    told = {row.key: row.solution.text for row in before.rows if row.solution}
    assert {key: told[key] for key in rows(back)} == rows(back)
    assert back.count + sum(back.refused.values()) == 17


def test_another_build_is_refused_and_an_unknown_one_needs_a_word(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is from another device or build of hipblaslt"):
        convert([TUNING], "tunableop", TARGET | {"hipblaslt_revision": "other"}, same_build=True)
    with pytest.raises(InputError, match="is from another"):
        convert([TUNING], "tunableop", TARGET | {"arch": "gfx90a"})
    table = tmp_path / "bf16_tuned_gemm.csv"
    table.write_text("".join(Path(AITER).read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match=r"does not state the device or build of hipblaslt.*--same-build"):
        convert([str(table)], "hipblaslt", FACTS)
    vouched = convert([str(table)], "hipblaslt", FACTS, same_build=True)
    assert list(rows(vouched).values()) == ["hipblaslt:104377"]
    assert sum(vouched.refused.values()) == 3


def test_a_row_that_its_own_library_drops_is_not_converted() -> None:
    """A row is not converted if even its own library would never use it."""
    # Here the last row of an aiter table has no number for M. So pandas reads the whole column as texts, and aiter
    # finds no row at all.
    made = convert([AITER], "hipblaslt", FACTS, same_build=True)
    assert not made.files
    why = "the row is used for no call, because pandas gives the whole column another type: M '8192'"
    assert made.refused[why] == 1


def test_to_aiter() -> None:
    made = convert([CSV], "aiter", {"cu_count": "304"})
    found = rows(made)
    assert made.count == len(found) >= 2
    assert all(key.startswith("gfx942,304,") for key in found)
    assert any("transA = T, transB = N" in reason for reason in made.refused)
    without = convert([CSV], "aiter")
    assert not without.files
    assert any("cu_num" in reason for reason in without.refused)


def test_rocblas_indices(tmp_path: Path) -> None:
    """``convert`` translates rocBLAS's number of a kernel to hipBLASLt's number, if the kernel is from hipBLASLt.

    In rocBLAS 5 a positive number is hipBLASLt's number + 1. A number below -10 is a kernel of Tensile, so it is not
    converted.
    """
    text = Path(CSV).read_text().splitlines()
    head = [line for line in text if line.startswith("Validator")]
    key = "GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096"
    path = tmp_path / "r0.csv"
    path.write_text("\n".join([*head, f"{key},Gemm_Rocblas_477480,0.05", ""]))
    assert list(rows(convert([str(path)], "hipblaslt")).values()) == ["hipblaslt:477479"]
    params = "BLAS_PARAMS: - { function: matmul, beta: 0.0000, transA: t }"
    path.write_text("\n".join([*head, f"{key},Gemm_Rocblas_-3798,0.05,{params}", ""]))
    assert list(rows(convert([str(path)], "rocblas")).values()) == ["rocblas:-3798"]
    assert not convert([str(path)], "hipblaslt").files
    path.write_text("\n".join([*head, f"{key},Gemm_Rocblas_-3798,0.05", ""]))
    assert list(convert([str(path)], "rocblas").refused) == [
        "rocBLAS: no row can be written for such a call, because its beta is unknown"
    ]
    back = convert([ROCBLAS], "tunableop", TARGET, same_build=True)
    assert {x.partition(":")[0] for x in rows(back).values()} == {"rocblas"}


def test_problems_that_share_a_key_and_disagree_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r0.csv"
    head = [line for line in Path(CSV).read_text().splitlines() if line.startswith("Validator")]
    key = "GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_"
    lines = [f"{key}4096,Gemm_Hipblaslt_5,0.05", f"{key}4160,Gemm_Hipblaslt_6,0.04"]
    path.write_text("\n".join([*head, *lines, ""]))
    made = convert([str(path)], "hipblaslt")
    assert (made.count, sum(made.refused.values())) == (0, 2)
    assert "hipblaslt:5, hipblaslt:6" in next(iter(made.refused))
    path.write_text("\n".join([*head, lines[0], lines[1].replace("_6,", "_5,"), ""]))
    assert convert([str(path)], "hipblaslt").count == 1


def test_of_two_files_the_faster_row(tmp_path: Path) -> None:
    paths = []
    head = [line for line in Path(CSV).read_text().splitlines() if line.startswith("Validator")]
    for number, ms in ((5, "0.05"), (6, "0.04")):
        path = tmp_path / f"tunableop_results{number}.csv"
        row = f"GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096,Gemm_Hipblaslt_{number},{ms}"
        path.write_text("\n".join([*head, row, ""]))
        paths.append(str(path))
    assert list(rows(convert(paths, "hipblaslt")).values()) == ["hipblaslt:6"]
    other = tmp_path / "other.csv"
    other.write_text(Path(paths[0]).read_text().replace("3b3d59eb", "other"))
    with pytest.raises(InputError, match="convert these files separately"):
        convert([paths[0], str(other)], "hipblaslt")


@pytest.mark.parametrize(
    ("path", "to", "match"),
    [(CSV, "xml", "--to xml"), (str(SAMPLES / "hipblaslt/info_4242.log"), "hipblaslt", "holds no tuned GEMM")],
)
def test_what_cannot_be_converted(path: str, to: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        convert([path], to)


def test_a_missing_file() -> None:
    with pytest.raises(InputError):
        convert(["nowhere.csv"], "hipblaslt")


problems = st.builds(
    lambda mnk, dtype, pad: gemm(
        mnk[0], n=mnk[1], k=mnk[2], lda=mnk[2] + pad, ldb=mnk[2], ldc=mnk[0], ldd=mnk[0],
        **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), dtype),
    ),
    st.tuples(*[st.integers(1, 9999)] * 3), st.sampled_from(["bf16_r", "f16_r"]), st.sampled_from([0, 64]),
)  # fmt: skip


@given(st.lists(st.tuples(problems, st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=6))
def test_conversions_keep_the_kernel_of_every_product(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[GemmProblem, int, int]]
) -> None:
    """After any conversion, the library finds for each matrix product the same kernel index as in the original file."""
    overrides = {
        results.key_of(o, FACTS): o
        for o in (
            Override(problem=p, solution=Solution("hipblaslt", str(i)), target=FACTS, time_us=float(t))
            for p, i, t in entries
        )
    }
    path = tmp_path_factory.mktemp("c") / "tunableop_results0.csv"
    path.write_bytes(results.write(list(overrides.values()), FACTS)[0].data)
    for to, key in (("hipblaslt", tuning_file.key), ("aiter", aiter.key), ("tunableop", signature.key)):
        made = convert([str(path)], to, FACTS)
        if not made.files:
            continue
        found = rows(made)
        for override in overrides.values():
            text = key(override.problem, FACTS)
            assert text not in found or any(
                found[text] == o.solution.text for o in overrides.values() if key(o.problem, FACTS) == text
            )
        assert made.count + sum(made.refused.values()) >= len({key(o.problem, FACTS) for o in overrides.values()})


def test_the_validators_of_another_build_are_not_the_targets() -> None:
    for other in ({"pytorch_version": "2.15.0"}, {"arch": "gfx90a"}, {"hipblaslt_revision": "0badf00d"}):
        with pytest.raises(InputError, match=r"give --target a TunableOp results CSV|another device or build"):
            convert([CSV], "tunableop", other)
    assert convert([CSV], "tunableop", {"arch": "gfx942"}).count == 13
