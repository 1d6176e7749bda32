"""Tests of ``logparse lint`` on aiter's tables of tuned kernels: it must name each broken rule and agree with aiter.

aiter reads its tables with pandas, and the tests call pandas in the same way.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Mapping
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.coverage import coverage
from analyzers.overrides.lint import format_of, inspect, share_lines, with_collisions
from analyzers.overrides.merge import merge
from analyzers.overrides.portable import portable
from logparse.errors import InputError
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.aiter.lookup import table_of
from logparse.libraries.aiter.rules import KERNELS, find_padded_keys
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.model import GemmProblem, Override
from tests.analyzers.build import tables, work
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.test_aiter import TARGET, written

HEAD = ",".join(aiter.COLUMNS) + "\n"
KEY = "gfx942,304,64,256,5120,False,torch.bfloat16,torch.bfloat16,False,False"
ROW = f"{KEY},hipblaslt,192883,0,10.91,Cijk,0.0,15.4,306.4\n"
ASM = f"{KEY.replace(',64,', ',128,')},asm,5,13,7.9,_ZN5aiter,0.0,21.2,417.9\n"


def inspect_text(text: str, target: dict[str, str] = TARGET) -> OverrideFile:
    return inspect("bf16_tuned_gemm.csv", text.encode("utf-8", "surrogatepass"), target, "aiter")


def rules(text: str) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in inspect_text(text).notes if note.rule != "build"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HEAD + ROW + ASM, []),
        ((HEAD + ROW).replace("\n", "\r\n"), []),
        ("\ufeff" + HEAD + "\n" + ROW, []),
        (HEAD + ROW.replace(",0.0,15.4,306.4", ""), [(2, "warning", "values")]),
        (HEAD + ROW + ASM.replace("\n", ",1\n"), [(3, "error", "values")]),
        (HEAD + "," + ROW, [(2, "warning", "values")]),
        (HEAD.replace("gfx,", "") + ROW.replace("gfx942,", ""), [(1, "warning", "columns")]),
        (HEAD.replace("solidx", "index") + ROW, [(1, "error", "columns")]),
        (HEAD + ROW.replace(",64,", ",x,"), [(2, "error", "type")]),
        (HEAD + ROW + ASM.replace(",128,", ",x,"), [(2, "error", "type"), (3, "error", "type")]),
        (HEAD + ROW.replace(",False,torch", ", False,torch"), [(2, "error", "type")]),
        (HEAD + ROW.replace(",64,", ", 64,"), []),
        (HEAD + ROW.replace(",64,", ",64.0,"), []),
        (HEAD + ROW.replace(",64,", ",64.5,"), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("False,torch", "0,torch"), []),
        (HEAD + ROW.replace(",torch.bfloat16", ", torch.bfloat16", 1), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("gfx942", "gfx950"), [(2, "error", "device")]),
        (HEAD + ROW.replace(",304,", ",80,"), [(2, "error", "device")]),
        (HEAD + ROW + ROW.replace(",304,", ",80,"), [(3, "info", "device")]),
        (HEAD + ROW + ROW, []),
        (HEAD + ROW + ROW.replace("192883", "7"), [(3, "error", "duplicate")]),
        (HEAD + ROW.replace("hipblaslt", "rocblas"), [(2, "error", "backend")]),
        (HEAD + ROW.replace("192883", "1.5"), [(2, "error", "index")]),
        (HEAD + ASM.replace("_ZN5aiter", ""), [(2, "error", "kernel-name")]),
        (HEAD + ROW.replace("192883", "-1"), []),
        (HEAD + ROW.replace("10.91", "inf"), [(2, "warning", "time")]),
        (HEAD, [(None, "error", "empty")]),
    ],
)
def test_rules(text: str, wanted: list[tuple[int | None, str, str]]) -> None:
    assert rules(text) == wanted


def test_samples() -> None:
    file = inspect("x.csv", (SAMPLES / "tables/aiter_bf16_tuned_gemm.csv").read_bytes(), TARGET)
    assert (file.format, file.accepted, file.facts) == ("aiter", None, {"arch": "gfx942", "cu_count": "304"})
    old = inspect("x.csv", (SAMPLES / "tables/aiter_old_tuned_gemm.csv").read_bytes(), {})
    assert {note.rule for note in old.notes} >= {"columns", "backend"}
    eight = inspect("x.csv", (SAMPLES / "tables/a8w8_bpreshuffle_tuned_gemm.csv").read_bytes(), {})
    assert (eight.format, eight.ok, [note.rule for note in eight.notes]) == (KERNELS, True, ["compiled"])
    with pytest.raises(InputError):
        format_of("x.csv", (SAMPLES / "tables/a8w8_untuned_gemm.csv").read_bytes())


TABLES = {
    "a8w8": "gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName\n"
    "gfx942,304,64,1280,8192,torch.int8,34,0,20.5,k\n",
    "blockscale": "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName\ngfx942,304,64,2048,3072,asm,8,2,4.8,k\n",
    "batched": "gfx,cu_num,B,M,N,K,kernelId,splitK,us,kernelName\ngfx942,304,16,64,1280,8192,78,0,111.9,k\n",
    "moe": "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1,block_m,ksplit,us1,kernelName1,us2,kernelName2,us\ngfx942,304,64,7168,256,256,8,ActivationType.Silu,"
    "torch.bfloat16,torch.int8,torch.int8,QuantType.per_Token,1,0,32,0,10.0,one,12.0,two,22.0\n",
}
GROUPED = (
    "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,max_m,tile_m,"
    "tile_n,split_k1,kernelName1,kernelName2,us\n"
    "gfx1250,256,64,512,256,8,{topk},ActivationType.Silu,torch.bfloat16,torch.float4_e2m1fn_x2,torch.float4_e2m1fn_x2,"
    "QuantType.per_1x32,1,384,16,512,1,one,two,{us}\n"
)
"""aiter's table of grouped fused-MoE kernels on gfx1250. It has most columns of the ordinary fused-MoE table."""


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (("", ""), []),
        (("gfx942", "gfx950"), [(2, "error", "device")]),
        ((",304,", ",80,"), [(2, "error", "device")]),
        ((",64,", ",x,"), [(2, "error", "type")]),
        ((",64,", ",64.5,"), [(2, "error", "no-call")]),
        ((",us,", ",µs,"), []),
        ((",cu_num,", ",cus,"), [(1, "error", "columns")]),
    ],
)
def test_rules_of_the_other_tables(kind: str, edit: tuple[str, str], wanted: list[tuple[int, str, str]]) -> None:
    file = inspect("x.csv", TABLES[kind].replace(*edit, 1).encode(), TARGET)
    found = [(n.line, n.severity, n.rule) for n in file.notes if n.rule != "compiled"]
    if (kind, wanted) == ("batched", [(1, "error", "columns")]):
        wanted = [(1, "warning", "columns")]  # these are the columns of an older aiter's batched bf16 GEMM
    assert found == wanted
    assert file.rows[0].live is not any(x[1] == "error" for x in wanted)


def test_what_is_particular_to_a_table() -> None:
    def said(text: str) -> list[tuple[int | None, str, str]]:
        notes = inspect("x.csv", text.encode(), TARGET).notes
        return [(note.line, note.severity, note.rule) for note in notes if note.rule != "compiled"]

    def twice(text: str, *edit: str) -> str:
        return text + text.splitlines(keepends=True)[1].replace(*(edit or ("", "")))

    assert said(twice(TABLES["a8w8"])) == []
    assert said(twice(TABLES["a8w8"], ",34,", ",35,")) == [(3, "error", "duplicate")]
    assert said(twice(TABLES["a8w8"], "torch.int8", "torch.float8_e4m3fn")) == [], "the type is part of the key"
    assert said(twice(TABLES["moe"])) == []
    assert said(TABLES["a8w8"].replace("20.5", "inf")) == [(2, "warning", "time")]
    assert said(TABLES["batched"].replace(",k\n", ",\n")) == [(2, "error", "kernel-name")]
    assert said(TABLES["moe"].replace(",one,", ",,")) == [(2, "error", "kernel-name")]
    assert said(TABLES["a8w8"].replace("gfx,", "").replace("gfx942,", "")) == [(1, "warning", "columns")]
    with pytest.raises(InputError):
        format_of("x.csv", TABLES["moe"].replace(",block_m", ",preshuffle,block_m").encode())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("dsv4_a8w8_blockscale_bpreshuffle_tuned_gemm.csv", []),
        ("x.csv", []),
        ("a8w8_blockscale_tuned_gemm.csv", [(2, "warning", "backend")]),
    ],
)
def test_opus_is_a_backend_of_preshuffled_block_scales(name: str, wanted: list[tuple[int, str, str]]) -> None:
    notes = inspect(name, TABLES["blockscale"].replace("asm", "opus").encode(), TARGET).notes
    assert [(note.line, note.severity, note.rule) for note in notes] == wanted


def test_of_two_rows_of_a_key_fused_moe_keeps_the_first(tmp_path: Path) -> None:
    head, row = TABLES["moe"].splitlines(keepends=True)
    text = head + row + row.replace("one", "other").replace("22.0", "20.0") + row.replace(",64,", ",32,")
    file = inspect("tuned_fmoe.csv", text.encode(), TARGET)
    assert (file.accepted, [row.live for row in file.rows]) == (None, [True, False, True])
    assert [(note.line, note.severity, note.rule) for note in file.notes] == [(3, "warning", "duplicate")]
    (tmp_path / "tuned_fmoe.csv").write_text(text)
    merged = merge([str(tmp_path / "tuned_fmoe.csv")])
    assert merged.count == 2
    assert b",other,12.0,two,20.0" in merged.files[0].data, "the faster one, whatever its place"


def test_a_row_that_fused_moe_leaves_out_hides_no_other() -> None:
    head, row = TABLES["moe"].splitlines()
    text = f"{head},_tag\n{row},flydsl_fallback\n{row.replace('one', 'other')},\n"
    file = inspect("tuned_fmoe.csv", text.encode(), TARGET)
    assert [row.live for row in file.rows] == [False, True]
    assert [(note.line, note.severity, note.rule) for note in file.notes] == [(2, "info", "tag")]


def test_rows_that_allocate_at_their_first_call_are_noted_where_the_run_launches_graphs() -> None:
    file = inspect("bf16_tuned_gemm.csv", (HEAD + ROW + ASM).encode(), TARGET)
    for launches, wanted in (("graph_launches", [(2, "warning")]), ("steps", [])):
        run = tables(facts=[{"source_id": "s", "run": "r", "name": launches, "value": "3"}])
        notes = [x for x in with_collisions(file, run).notes if x.rule == "graphs"]
        assert [(x.line, x.severity) for x in notes] == wanted


def test_what_serves_a_device_is_added_up_by_what_aiter_reads_as_one_table() -> None:
    files = [
        inspect(name, (SAMPLES / "tables/a8w8_bpreshuffle_tuned_gemm.csv").read_bytes(), TARGET)
        for name in ("a8w8_bpreshuffle_tuned_gemm.csv", "other_a8w8_bpreshuffle_tuned_gemm.csv")
    ]
    live = sum(row.live for row in files[0].rows)
    head, line = share_lines(files)
    assert head == "what can serve gfx942 304:"
    share = f"{2 * live} of {2 * len(files[0].rows)} rows"
    assert line.startswith(f"  a8w8_bpreshuffle_tuned_gemm: {share}")
    assert 0 < live < len(files[0].rows)
    assert share_lines(files[:1]) == []


MXSCALE = """gfx,b,m,n,k,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio
gfx950,2,1,1024,4096,opus,311,1,7.8,opus_bmm_kernel,2.2,1076.95,0.0015
gfx950,2,4,1024,4096,ck,311,1,7.8,opus_bmm_kernel,8.6,1075.87,0.0015
"""


def test_rows_with_mx_scales_fit_every_gpu_of_the_architecture() -> None:
    """A row of aiter's batched table with MX scales is used on every GPU of its architecture.

    aiter's function ``lookup_mxscale_bmm_config`` ignores the number of compute units. The size columns of this table
    have small letters.
    """
    name = "dsv4_batched_gemm_a8w8_blockscale_mxscale_tuned.csv"
    here, away = (inspect(name, MXSCALE.encode(), {"arch": x, "cu_count": "304"}) for x in ("gfx950", "gfx942"))
    assert [(note.line, note.severity, note.rule) for note in here.notes] == [(3, "warning", "backend")]
    assert [row.live for row in (*here.rows, *away.rows)] == [True, True, False, False]
    row = next(iter(here.rows))
    assert row.problem is not None
    assert (row.key, row.problem.label) == ("gfx950,2,1,1024,4096", "TN 1024×1×4096 b2 ?")


def test_tables_with_w_scale_block_are_refused() -> None:
    """``logparse lint`` refuses aiter's tables with the column ``w_scale_block``, because it cannot check them.

    Later versions of aiter look rows up by this column, too, and it is not known how they write its value.
    """
    with pytest.raises(InputError, match="a table of aiter that lint cannot check"):
        format_of("x_mxscale_tuned.csv", MXSCALE.replace(",k,", ",k,w_scale_block,").encode())


def test_the_table_of_grouped_fused_moe_is_not_judged() -> None:
    with pytest.raises(InputError, match="a table of aiter that lint cannot check"):
        format_of("tuned_grouped_fmoe.csv", GROUPED.format(topk=-1, us=20.5).encode())


def test_a_row_without_a_time_may_route_to_triton() -> None:
    routed = ROW.replace("hipblaslt,192883,0,10.91,Cijk", "triton,0,0,0.0,auto")
    file = inspect_text(HEAD + routed)
    assert [(note.line, note.severity, note.rule) for note in file.notes] == []
    assert file.rows[0].live
    assert not file.rows[0].verdicts.fault, "a merged table keeps it"


def test_calls_without_a_row_are_unknown_in_other_tables() -> None:
    """For aiter's tables other than bf16, ``coverage`` says "unknown" and not "miss" about a call without a row.

    No log states which operator of aiter made the call, so another table may have a row for it.
    """
    (row,) = inspect("x.csv", TABLES["blockscale"].encode(), TARGET).rows
    assert row.problem is not None
    t = tables(workload=[work(row.problem.text, 5)])
    assert [use.state for use in coverage(inspect("x.csv", TABLES["blockscale"].encode(), TARGET), t).uses] == [
        "unknown"
    ]


# ------------------------------------------------------------------------------------------------- aiter's own reader

FLAGS = ("False", "True")


def read(text: str) -> Mapping[Hashable, object] | None:
    """Read a table as aiter does, and return the dictionary in which aiter looks up calls.

    Returns None if aiter would fail.
    """
    try:
        frame = pd.read_csv(io.StringIO(text)).drop_duplicates()
        out = frame.set_index(list(aiter.KEY_COLUMNS)).to_dict("index")
    except (KeyError, ValueError, pd.errors.ParserError):
        return None
    return out


def asked(key: str) -> tuple[object, ...]:
    """Convert a key from text to the tuple with which aiter looks up a call.

    The values get the types that aiter uses.
    """
    gfx, cu, m, n, k, bias, dtype, out, scaled, shuffled = key.split(",")
    flags = [FLAGS.index(x) == 1 for x in (bias, scaled, shuffled)]
    return (gfx, int(cu), int(m), int(n), int(k), flags[0], dtype, out, flags[1], flags[2])


EDITS = (",", " ", "0", "1", ".0", "x", "True", "torch.float16", "gfx950", "\r", "-", "nan", "304", "e2")


@given(st.lists(written, min_size=1, max_size=4), st.data())
def test_rows_that_lint_calls_useless_are_never_found(entries: list[Override], data: st.DataObject) -> None:
    """``lint`` never says that a row of aiter's table is useless if aiter would find the row for some call.

    The table may be damaged anywhere. aiter's reader is imitated with pandas.
    """
    lines = [HEAD.strip()]
    for number, override in enumerate(entries):
        lines.append(aiter.write([override], TARGET)[0].data.decode().splitlines()[1] + f"{number}")
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(1, len(lines) - 1))
        at, cut = data.draw(st.integers(0, len(lines[place]))), data.draw(st.integers(0, 3))
        lines[place] = lines[place][:at] + data.draw(st.sampled_from(EDITS)) + lines[place][at + cut :]
    text = "\n".join(lines) + "\n"
    file, known = inspect_text(text), read(text)
    if known is None:
        return
    live = {row.key for row in file.rows if not row.dead}
    for override in entries:
        key = aiter.key(override.problem, TARGET)
        assert key is not None
        if asked(key) in known:
            assert key in live, file.notes


@given(st.sampled_from(sorted(TABLES)), st.data())
def test_a_dead_row_of_the_other_tables_serves_no_call(kind: str, data: st.DataObject) -> None:
    lines = TABLES[kind].splitlines()
    table = table_of(lines[0].split(","))
    assert table is not None
    sizes = ("64", "128", "8192")
    lines += [lines[1].replace(",64,", f",{size},") for size in data.draw(st.lists(st.sampled_from(sizes), max_size=2))]
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(1, len(lines) - 1))
        at, cut = data.draw(st.integers(0, len(lines[place]))), data.draw(st.integers(0, 3))
        lines[place] = lines[place][:at] + data.draw(st.sampled_from(EDITS)) + lines[place][at + cut :]
    text = "\n".join(lines) + "\n"
    try:
        frame = pd.read_csv(io.StringIO(text))
        frame = frame.drop_duplicates()
        known = frame.set_index(list(table.keys)).to_dict("index")
    except (KeyError, ValueError, pd.errors.ParserError):
        return
    live = {row.key for row in inspect("x.csv", text.encode(), TARGET).rows if not row.dead}
    cells = dict(zip(TABLES[kind].splitlines()[0].split(","), TABLES[kind].splitlines()[1].split(","), strict=True))
    for size in sizes:
        asked = {**cells, "token" if kind == "moe" else "M": size}
        call = tuple(
            asked[x] if x in table.words else bool(int(asked[x])) if x in table.flags else int(asked[x])
            for x in table.keys
        )
        if call in known:
            assert ",".join(str(x) for x in call) in live


@pytest.mark.parametrize(
    ("m", "tries"),
    [("5", ["8", "16"]), ("50", ["64"]), ("64", []), ("300", ["320", "512"]), ("1030", ["1088", "2048"])],
)
def test_padding(m: str, tries: list[str]) -> None:
    key = KEY.replace(",64,", f",{m},")
    assert [x.split(",")[2] for x in find_padded_keys(key)] == tries
    assert [x.split(",")[2] for x in find_padded_keys(KEY.replace(",64,256,", ",9000,8192,"))] == [
        "9088",
        "8192",
        "16384",
    ]


def test_problem_of_a_row() -> None:
    (row,) = inspect_text(HEAD + ROW).rows
    assert isinstance(row.problem, GemmProblem)
    assert (row.problem.label, row.time_us, row.solution) == ("TN 256×64×5120 bf16_r", 10.91, row.solution)
    assert row.key == aiter.key(row.problem, TARGET) == KEY


@needs_corpus
@pytest.mark.parametrize(
    "name",
    [
        *("bf16_tuned_gemm.head.csv", "bf16_tuned_gemm_v9_f15277abe9.head.csv", "bf16_tuned_batched_gemm.head.csv"),
        *("a8w8_tuned_gemm.head.csv", "a8w8_bpreshuffle_tuned_gemm.head.csv", "a8w8_blockscale_tuned_gemm.head.csv"),
        "a4w4_blockscale_tuned_gemm.head.csv",
    ],
)
def test_tables_of_aiter_have_no_errors(name: str) -> None:
    file = inspect(name, Path(CORPUS / "tunableop/aiter" / name).read_bytes(), {})
    assert file.rows
    assert [note for note in file.notes if note.severity in ("error", "warning")] == []


def test_a_portable_table_works_with_every_build(tmp_path: Path) -> None:
    """``portable`` turns a table for one build of hipBLASLt into a table that works with every build.

    A row that names a kernel by hipBLASLt's index is valid for one build only. It is replaced by the next best row for
    the same shape.

    * If the table has no other row for the shape, the row is left out.
    * Rows with hipBLASLt's heuristic or with aiter's own kernels stay, because they are valid for every build.
    """
    call = "gfx942,304,{},256,5120,False,torch.bfloat16,torch.bfloat16,False,False,{},,,\n"
    rows = {64: "hipblaslt,7,0,10.0,", 8: "hipblaslt,8,0,6.0,", 32: "hipblaslt,-1,0,8.0,", 16: "asm,3,0,4.0,kernel"}
    others = ("hipblaslt,7,0,10.0,", "hipblaslt,9,0,11.0,", "opus,2,0,12.5,k", "torch,0,0,20.0,")
    table, profile = tmp_path / "bf16_tuned_gemm.csv", tmp_path / "profile.csv"
    table.write_text(HEAD + "".join(call.format(m, row) for m, row in rows.items()))
    profile.write_text(HEAD + "".join(call.format(64, row) for row in others))
    files = [str(table), str(profile)]
    made = portable(files)
    kept = {row.key.split(",")[2]: row.solution for row in inspect_text(made.files[0].data.decode()).rows}
    assert {m: x.text if x else "" for m, x in kept.items()} == {
        "16": "asm:3",
        "32": "hipblaslt:heuristic",
        "64": "opus:2",
    }
    assert made.notes == (
        "3 rows",
        "2 rows named an index: 1 replaced by the next best kernel, 1 left out",
        "time of the replaced rows: 10 µs → 12.5 µs (+25.0%) if each is called once",
        "time of 1 more row: unknown, because no other kernel is timed in these files; now 6 µs if each is called once",
    )
    problems = {row.key.split(",")[2]: row.problem.text for row in inspect_text(table.read_text()).rows if row.problem}
    run = tables(workload=[work(problems["64"], 30), work(problems["8"], 2)])
    assert portable(files, run).notes[2:] == (
        "time of the replaced rows: 300 µs → 375 µs (+25.0%) per run of r",
        "time of 1 more row: unknown, because no other kernel is timed in these files; now 12 µs per run of r",
    )
    assert (
        portable(files, tables()).notes[2]
        == "run r counts no call for which these rows are used, so every row has the same weight"
    )


def test_tables_of_which_nothing_can_move(tmp_path: Path) -> None:
    path = tmp_path / "bf16_tuned_gemm.csv"
    path.write_text(HEAD + ROW)
    with pytest.raises(InputError, match="every row names an index"):
        portable([str(path)])
    with pytest.raises(InputError, match="this file has the format tunableop-results"):
        portable([str(SAMPLES / "tunableop/tunableop_results0.csv")])
    path.write_text(HEAD + ASM)
    assert portable([str(path)]).notes == (
        "1 row",
        "every row names its kernel in a way that other library builds understand, so all rows are kept",
    )
