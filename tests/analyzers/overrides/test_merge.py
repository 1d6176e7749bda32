"""Tests of ``logparse merge``, which joins several files of kernel choices into one.

They check the joined file, what is refused, and what is reported if two files choose different kernels. Merging a
merged file again must change nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import _Winners, merge
from analyzers.overrides.merge import lines as merge_lines
from logparse.errors import InputError
from logparse.libraries.miopen import find_db_rules as miopen_find_db
from logparse.libraries.rocblas import logs as rocblas
from tests.conftest import CORPUS, SAMPLES, needs_corpus

HEAD = "Validator,PT_VERSION,2.11.0\n"
A = "GemmTunableOp_Half_TN,tn_1_2_3_ld_3_3_1"
B = "GemmTunableOp_Half_TN,tn_9_2_3_ld_3_3_9"


def files(folder: Path, **texts: str) -> list[str]:
    out = []
    for name, text in texts.items():
        path = folder / f"{name}.csv"
        path.write_bytes(text.encode())
        out.append(str(path))
    return out


def test_the_fastest_finite_time_wins(tmp_path: Path) -> None:
    one = HEAD + f"{A},Default,0.5\n{B},Default,inf\n"
    two = HEAD + f"{A},Gemm_Hipblaslt_7,0.25,BLAS_PARAMS: - {{ a, b }}\n{B},Gemm_Hipblaslt_9,0.0000123\n"
    merged = merge(files(tmp_path, one=one, two=two), gpus=2)
    golden = HEAD + f"{A},Gemm_Hipblaslt_7,0.25,BLAS_PARAMS: - {{ a, b }}\n{B},Gemm_Hipblaslt_9,0.0000123\n"
    # hipBLASLt's solutions in a file with no validator but PT_VERSION come from a partial capture. They are kept as the
    # validators say.
    assert {x.name: x.data.decode() for x in merged.files} == {
        "tunableop_results0.csv": golden,
        "tunableop_results1.csv": golden,
    }
    assert [(c.key, c.taken.offer.solution, [x.offer.solution for x in c.others]) for c in merged.conflicts] == [
        (A, "Gemm_Hipblaslt_7", ["Default"]),
        (B, "Gemm_Hipblaslt_9", ["Default"]),
    ]


def test_a_time_that_the_files_device_cannot_reach_wins_over_nothing(tmp_path: Path) -> None:
    """PyTorch reads the row all the same, so it stays in a merged file that has no other row of its key."""
    head = f"{HEAD}Validator,GCN_ARCH_NAME,gfx1100\n"
    one = f"{head}GemmTunableOp_Half_NN,nn_4096_4096_4096_ld_4096_4096_4096,Gemm_Hipblaslt_7,0.005\n"
    two = one.replace("_7,0.005", "_9,1.9")
    [merged] = merge(files(tmp_path, one=one, two=two)).files
    assert merged.data.decode() == two
    [alone] = merge(files(tmp_path, one=one)).files
    assert alone.data.decode() == one
    [note] = [x for x in inspect("tunableop_results0.csv", one.encode(), {}).notes if x.rule == "time"]
    assert "Tflop/s, but PRO W7900" in note.message


AITER = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
CALL = "gfx942,304,{},256,5120,False,torch.bfloat16,torch.bfloat16,False,False"


def test_tables_of_aiter(tmp_path: Path) -> None:
    """A table that is merged from two tables of aiter has only one row for each key, so ``lint`` accepts it.

    Two rows with the same key would make aiter's reader fail.
    """
    one = AITER + f"{CALL.format(64)},hipblaslt,7,0,10.5,\n{CALL.format(8)},hipblaslt,8,0,inf,\n"
    two = (
        AITER + f"{CALL.format(64)},hipblaslt,9,0,9.5,\n{CALL.format(16)},asm,3,0,4,k\n{CALL.format(16)},asm,4,0,5,k\n"
    )
    merged = merge(files(tmp_path, one=one, two=two))
    (made,) = merged.files
    assert made.data.decode() == AITER + f"{CALL.format(16)},asm,3,0,4,k\n{CALL.format(64)},hipblaslt,9,0,9.5,\n"
    assert inspect(made.name, made.data, {"arch": "gfx942", "cu_count": "304"}).ok
    assert [(c.taken.offer.solution, [x.offer.solution for x in c.others]) for c in merged.conflicts] == [
        ("asm,3,0", ["asm,4,0"]),
        ("hipblaslt,9,0", ["hipblaslt,7,0"]),
    ]
    assert [note.partition(": ")[2] for note in merged.notes[1:]] == [
        "left out: the row's time is inf µs, so the tuner could not run this kernel, but aiter uses the row "
        "nevertheless"
    ]
    (tmp_path / "b").mkdir()
    again = merge(files(tmp_path / "b", only=made.data.decode()))
    assert again.files[0].data == made.data
    old = files(
        tmp_path / "b",
        old=(AITER + f"{CALL.format(64)},hipblaslt,7,0,10.5,\n").replace("gfx,", "").replace("gfx942,", ""),
    )
    with pytest.raises(InputError, match="columns is cu_num"):
        merge([*files(tmp_path, one=one), *old])
    with pytest.raises(InputError, match="values for 15 columns"):
        merge(
            files(
                tmp_path,
                long=AITER + f"{CALL.format(64)},hipblaslt,7,0,9,k,1,2\n{CALL.format(8)},hipblaslt,7,0,9,k,1,2,3\n",
            )
        )


EIGHT = "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName\n"


def test_the_other_tables_of_aiter(tmp_path: Path) -> None:
    one, two = (EIGHT + f"gfx942,304,64,256,5120,{x},k{x[0]}\n" for x in ("7,0,10.5", "9,0,9.5"))
    fp4 = files(tmp_path, a4w4_blockscale_tuned_gemm=one, a4w4_blockscale_tuned_gemm_new=two)
    merged = merge(fp4)
    (made,) = merged.files
    assert (made.name, made.data.decode()) == ("a4w4_blockscale_tuned_gemm.csv", two)
    assert made.use == "export AITER_CONFIG_GEMM_A4W4={path}"
    assert inspect(made.name, made.data, {"arch": "gfx942", "cu_count": "304"}).ok
    for other, why in (("a8w8_blockscale_tuned_gemm", "operator is a8w8"), ("mine", "the file's name decides")):
        with pytest.raises(InputError, match=why):
            merge([fp4[0], *files(tmp_path, **{other: two})])


def tuning(name: str, folder: Path, *entries: tuple[str, str, str], revision: str = "r", headed: bool = True) -> str:
    """Write a hipBLASLt tuning file with the columns of the sample, and return its path.

    Each entry is (m, kernel index, µs).
    """
    lines = (SAMPLES / f"hipblaslt/tuning_{'7.0' if headed else '6.4'}.txt").read_text().splitlines()
    out = [f"Git Version: {revision}"]
    for m, index, us in entries:
        entry = lines[2 if headed else 1].replace(",481566,", ",0,")  # the sample's rate belongs to the sample's sizes
        out += [lines[1]] if headed else []
        out.append(entry.replace(",12288,8192,4096,1,", f",{m},8192,4096,1,").replace("1712.4,105597", f"{us},{index}"))
    path = folder / name
    path.write_text("\n".join(out) + "\n")
    return str(path)


def test_tuning_files_of_hipblaslt(tmp_path: Path) -> None:
    one = tuning("a.txt", tmp_path, ("64", "7", "10.5"), ("128", "8", "3"), ("32", "1", "0"))
    two = tuning("b.txt", tmp_path, ("64", "9", "9.5"), ("256", "x", "1"), ("32", "2", "0"))
    merged = merge([one, two])
    (made,) = merged.files
    rows = {row.problem.m: row.solution.id for row in inspect("t.txt", made.data, {}).rows if row.problem}  # type: ignore[union-attr]
    assert rows == {64: "9", 128: "8", 32: "1"}, "the faster; without times the first file's"
    assert [(c.taken.offer.solution, c.taken.offer.time_us) for c in merged.conflicts] == [
        ("hipblaslt:1", None),
        ("hipblaslt:9", 9.5),
    ]
    assert merge_lines(merged)[0].endswith(
        "the fastest is kept (1 of them without times: the first file's row is kept); 1 row left out"
    )
    assert len(merged.notes) == 1
    made_again = tmp_path / "c.txt"
    made_again.write_bytes(made.data)
    assert merge([str(made_again), two]).files[0].data == made.data
    assert inspect("t.txt", made.data, {"hipblaslt_revision": "r"}).ok

    sample = SAMPLES / "hipblaslt/tuning_7.0.txt"
    assert sorted(merge([str(sample)]).files[0].data.splitlines()) == sorted(sample.read_bytes().splitlines())

    old = tuning("old.txt", tmp_path, ("64", "9", "9.5"), headed=False)
    assert inspect("t.txt", merge([old]).files[0].data, {"hipblaslt_version": "1200"}).ok
    other = tuning("other.txt", tmp_path, ("64", "9", "9.5"), revision="s")
    device = tmp_path / "device.txt"
    device.write_text(Path(two).read_text().replace("gfx942", "gfx950"))
    for path, why in ((old, "layout is values only"), (other, "revision is s and r"), (str(device), "arch is gfx950")):
        with pytest.raises(InputError, match=why):
            merge([one, path])


def test_rows_of_rocblas(tmp_path: Path) -> None:
    row = "T,N,{},256,1,512,1,0,512,512,{},f16_r,f16_r,f32_r,{}\n"
    one = rocblas.HEADING + "\n" + row.format(64, 64, 7) + "T,N,1,2\n"
    two = row.format(64, 64, 9).replace("\n", "\r\n") + row.format(128, 128, 3)
    paths = files(tmp_path, one=one, two=two)
    merged = merge(paths)
    golden = f"{rocblas.HEADING}\n{row.format(128, 128, 3)}{row.format(64, 64, 7)}"
    assert merged.files[0].data.decode() == golden
    assert [(c.taken.offer.solution, [x.offer.solution for x in c.others]) for c in merged.conflicts] == [("7", ["9"])]
    assert ["of the same build" in merged.notes[0], "Tensile silently ignores" in merged.notes[1]] == [True, True]
    assert inspect("x.csv", merged.files[0].data, {}).ok


def test_rows_that_pytorch_would_lose_are_kept(tmp_path: Path) -> None:
    glued = HEAD + f"{A},Default,0.5{B},Default,0.25"
    twice = HEAD + f"{A},Default,0.5\n{A},Default,0.125\n"
    crlf = (HEAD + f"{B},Default,0.75\n").replace("\n", "\r\n")
    merged = merge(files(tmp_path, glued=glued, twice=twice, crlf=crlf, none=""))
    assert merged.files[0].data.decode() == HEAD + f"{A},Default,0.125\n{B},Default,0.25\n"
    assert merged.conflicts == ()
    assert [note.rsplit("/", 1)[1] for note in merged.notes] == ["none.csv: the file is empty"]
    assert inspect("tunableop_results0.csv", merged.files[0].data, {}).notes == ()


def test_what_cannot_work_is_left_out(tmp_path: Path) -> None:
    text = HEAD + f"{A},Default,0.5\nop,params,solution,time\n{B},1219,0.1\n{B},Gemm_Hipblaslt_NN_7,0.1\n"
    merged = merge(files(tmp_path, one=text))
    assert merged.count == 1
    assert len(merged.notes) == 3


def test_other_builds_are_refused(tmp_path: Path) -> None:
    row = f"{A},Default,0.5\n"
    paths = files(tmp_path, one=HEAD + row, two=HEAD.replace("2.11.0", "2.9.1") + row)
    with pytest.raises(InputError, match=r"PT_VERSION is 2\.9\.1 and 2\.11\.0"):
        merge(paths)
    with pytest.raises(InputError, match="set of validators is PT_VERSION, ROCM_VERSION and PT_VERSION"):
        merge(files(tmp_path, one=HEAD + row, three=HEAD + "Validator,ROCM_VERSION,6\n" + row))
    with pytest.raises(InputError, match="has no Validator lines, so it is unknown which PyTorch version"):
        merge(files(tmp_path, one=row))
    with pytest.raises(InputError, match="every file is empty"):
        merge(files(tmp_path, none="", blank="\n"))
    with pytest.raises(InputError, match="these files have different formats"):
        merge([str(SAMPLES / "tunableop/tunableop_results0.csv"), str(SAMPLES / "hipblaslt/tuning_7.0.txt")])
    with pytest.raises(InputError, match="only TunableOp reads one file per device"):
        merge([str(SAMPLES / "hipblaslt/tuning_7.0.txt")], gpus=2)


NAME = "gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt"
KEY = "256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32"
NAIVE = "ConvDirectNaiveConvWrw:{},0,miopenConvolutionBwdWeightsAlgoDirect"
GEMM = "GemmWrwUniversal:{},6422528,miopenConvolutionBwdWeightsAlgoGEMM"


def find_dbs(folder: Path, *texts: str, name: str = NAME) -> list[str]:
    out = []
    for number, text in enumerate(texts):
        (folder / str(number)).mkdir()
        path = folder / str(number) / name
        path.write_bytes(text.encode())
        out.append(str(path))
    return out


def test_find_dbs(tmp_path: Path) -> None:
    one = f"{KEY}={NAIVE.format(16.0)};{GEMM.format(3.9)}\n"
    two = f"{KEY}={NAIVE.format(2.5)};{GEMM.format(4)};GemmWrw:0,0,x\n{KEY.replace('_g32', '')}={NAIVE.format(1)}\r\n"
    merged = merge(find_dbs(tmp_path, one, two))
    [made] = merged.files
    assert made.name == NAME
    assert made.data.decode() == (
        f"{KEY.replace('_g32', '')}={NAIVE.format(1)}\n{KEY}={NAIVE.format(2.5)};{GEMM.format(3.9)}\n"
    )
    assert [(c.taken.offer.solution, [x.offer.solution for x in c.others]) for c in merged.conflicts] == [
        ("ConvDirectNaiveConvWrw", ["GemmWrwUniversal"])
    ]
    assert len(merged.notes) == 1


def test_a_conflict_names_the_first_of_several_files() -> None:
    """If files choose different kernels for one operation, the message names the first file with the chosen one."""
    # The user gives four files: a, b, c, and b again with another content. The kernel in c and in the second b is
    # chosen. The message names b, because the user named it before c.
    one, other = (f"{KEY}={x}:1.5,0,miopenConvolutionBwdWeightsAlgoGEMM\n" for x in ("GemmWrwUniversal", "GemmWrw"))
    texts = [("a", one), ("b", ""), ("c", other), ("b", other)]
    found = _Winners(
        miopen_find_db.OVERRIDE_FORMAT.merging,
        [(path, miopen_find_db.read(NAME, text.encode(), {})) for path, text in texts],
    )
    assert [offer.solution for offer in found] == ["GemmWrw", "GemmWrwUniversal"]
    [conflict] = found.conflicts
    assert (conflict.taken.file, [x.file for x in conflict.others]) == ("b", ["a"])


def test_perf_dbs(tmp_path: Path) -> None:
    name, key = NAME.replace("ufdb", "udb"), "2x128x56x56x1x3x3x1x128x64x1x1x0x1x1x0x1x1x0x0x32xNCHWxFP16xW"
    solver = "ConvHipImplicitGemmGroupWrwXdlops"
    other = key.replace("x64x", "x32x")
    one = f"{key}={solver}:a+1;ConvHipIgemmGroupXdlops\n"
    two = f"{key}={solver}:b+2;ConvOclBwdWrW2<1>:1,2\n{other}={solver}:c\r\n"
    merged = merge(find_dbs(tmp_path, one, two, name=name))
    (made,) = merged.files
    golden = f"{key}={solver}:a+1;ConvOclBwdWrW2<1>:1,2\n{other}={solver}:c\n"
    assert sorted(made.data.decode().splitlines()) == sorted(golden.splitlines())
    assert (made.name, merged.count, len(merged.notes)) == (name, 2, 1)
    assert [c.taken.offer.solution for c in merged.conflicts] == [f"{solver}:a+1"], "no times: the first file's"


def test_find_dbs_of_other_builds_are_refused(tmp_path: Path) -> None:
    one = f"{KEY}={NAIVE.format(16.0)}\n"
    (tmp_path / "b").mkdir()
    paths = find_dbs(tmp_path, one) + find_dbs(tmp_path / "b", one, name=NAME.replace("3_4_0", "3_5_0"))
    with pytest.raises(InputError, match=r"name is gfx942130\.HIP\.3_5_0"):
        merge(paths)
    (tmp_path / "c").mkdir()
    with pytest.raises(InputError, match="does not state a device and build"):
        merge(find_dbs(tmp_path / "c", one, name="mine.ufdb.txt"))


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([A, B, A.replace("_1_2", "_4_2").replace("3_1", "3_4")]),
            st.tuples(st.sampled_from(["Default", "Gemm_Hipblaslt_7"]), st.integers(1, 10**7)),
            min_size=1,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_merge_is_the_minimum_and_merging_it_again_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[dict[str, tuple[str, int]]]
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    texts = {
        f"f{i}": HEAD + "".join(f"{key},{name},{ns / 1e6:.9f}\n" for key, (name, ns) in rows.items())
        for i, rows in enumerate(given_rows)
    }
    paths = files(folder, **texts)
    merged = merge(paths)
    best = {key: min(rows[key][1] for rows in given_rows if key in rows) for rows in given_rows for key in rows}
    rows = {row.key: row.time_us for row in inspect("r0.csv", merged.files[0].data, {}).rows}
    assert rows == {key: pytest.approx(ns / 1000) for key, ns in best.items()}
    assert merge(paths[::-1]).files[0].data == merged.files[0].data
    again = folder / "tunableop_results0.csv"
    again.write_bytes(merged.files[0].data)
    assert merge([str(again), *paths]).files[0].data == merged.files[0].data


@needs_corpus
def test_a_real_file_of_two_processes(tmp_path: Path) -> None:
    path = CORPUS / "tunableop/timlawrenz_results0_v1.csv"
    merged = merge([str(path)])
    assert merged.count == 1234 - 14
    assert len(merged.conflicts) == 2
    assert inspect("tunableop_results0.csv", merged.files[0].data, {}).ok
