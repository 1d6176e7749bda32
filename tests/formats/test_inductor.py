"""torch.compile's autotuning tables: real and invented files, the real writer, damage."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Iterable

import pytest

from logparse.formats import inductor
from logparse.model import ConvProblem, GemmProblem, Measurement, Message, Record, Reject
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.reading import stream

FOLDER = SAMPLES / "inductor"


def read(data: bytes) -> tuple[Counter[str], list[Record]]:
    """Units of the lines and all records."""
    outcomes, held = stream(inductor.FORMAT, data)
    units = Counter(outcome.unit if outcome else "foreign" for outcome in outcomes)
    return units, [*(record for outcome in outcomes if outcome for record in outcome.records), *held]


def measured(records: Iterable[Record]) -> list[Measurement]:
    return [record for record in records if isinstance(record, Measurement)]


def gemm(found: Measurement) -> GemmProblem:
    assert isinstance(found.problem, GemmProblem)
    return found.problem


def sample(name: str) -> tuple[Counter[str], list[Measurement], list[Record]]:
    units, records = read((FOLDER / name).read_bytes())
    return units, measured(records), records


@needs_corpus
def test_a_real_log_of_torch_2_11() -> None:
    data = (CORPUS / "nvidia" / "inductor_autotune_torch2.11.err").read_bytes()
    units, records = read(data)
    assert not [record for record in records if isinstance(record, Reject)]
    found = measured(records)
    rows = [line for line in data.split(b"\n") if b" ms " in line and line.startswith(b"  ")]
    assert len([m for m in found if m.status == "ok"]) == len(rows) == 70
    assert len(found) == len(rows)
    assert units["foreign"] == 2  # a warning of another module that names the same file
    tables = Counter(m.problem.text for m in found)
    assert sorted(tables.values()) == [10] * 7
    best = {m.problem.label: (m.solution.library, m.time_us) for m in reversed(found) if m.status == "ok"}
    assert best["NN 1536×640×512 bf16_r"] == ("triton", 6.9)
    assert best["NT 1536×512×640 bf16_r"] == ("aten", 6.8)


def test_a_linear_layer_as_the_library_would_get_it() -> None:
    units, found, _ = sample("torch_2.11.log")
    first = [m for m in found if m.problem == found[0].problem]
    problem = gemm(found[0])
    assert (problem.trans_a, problem.trans_b, problem.m, problem.n, problem.k) == ("T", "N", 3072, 4096, 768)
    assert (problem.lda, problem.ldb, problem.a_type, problem.bias) == (768, 768, "bf16_r", None)
    assert [(m.solution.library, m.status, m.time_us) for m in first] == [
        ("triton", "ok", 41.2),
        ("aten", "ok", 45.5),
        ("triton", "ok", 48.8),
        ("aten", "ok", 53.1),
    ]
    assert first[0].solution.id.startswith("mm,ACC_TYPE='tl.float32',ALLOW_TF32=False,BLOCK_K=64,BLOCK_M=128,")
    assert first[0].solution.raw == "triton_mm_4"
    assert first[1].solution.text == "aten:bias_addmm"
    assert first[0].key_text == "addmm(4096x3072, 4096x768, 768x3072)"
    assert units["foreign"] == 2


def test_a_time_that_is_no_number_is_a_failure() -> None:
    found = sample("torch_2.11.log")[1]
    (failed,) = [m for m in found if m.status == "failed"]
    assert (failed.time_us, failed.error) == (None, "did not run (time inf)")


def test_convolutions_need_a_row_that_states_stride_and_padding() -> None:
    problems = list(dict.fromkeys(m.problem for m in sample("torch_2.11.log")[1] if isinstance(m.problem, ConvProblem)))
    known, symbolic = problems
    assert known.label == "F 32×64×56×56 k128 3×3 s2 FP16 NCHW"
    assert (known.out_h, known.pad_h, known.dilation_h) == (28, 1, 1)
    assert (symbolic.in_layout, symbolic.h, symbolic.out_h) == (None, 20, 10)
    without = (FOLDER / "torch_2.11.log").read_bytes().replace(b"KERNEL_H", b"KERNEL_X")
    _, records = read(without)
    assert not [m for m in measured(records) if isinstance(m.problem, ConvProblem)]
    assert [r for r in records if isinstance(r, Message) and r.text.startswith("AUTOTUNE convolution(32x64x56x56")]


def test_an_8_bit_product_and_its_scales() -> None:
    problem = gemm(sample("torch_2.11.log")[1][-1])
    assert (problem.a_type, problem.b_type, problem.d_type) == ("f8_fnuz_r", "f8_fnuz_r", None)
    assert (problem.scale_a, problem.scale_b, problem.bias) == ("row", "row", False)


def test_operators_of_several_products_are_messages() -> None:
    _, _, records = sample("torch_2.11.log")
    assert [r.text[:24] for r in records if isinstance(r, Message) and "flex" in r.text] == ["AUTOTUNE flex_attention("]


def test_the_first_version_knows_sizes_only() -> None:
    units, found, records = sample("torch_2.0.log")
    assert [(m.problem.label, m.solution.text, m.time_us) for m in found] == [
        ("?? 3072×512×768 ?", "aten:mm", 14.8),
        ("?? 3072×512×768 ?", "triton:?", 15.4),
        ("?? 512×512×64 b12 ?", "triton:?", 9.1),
    ]
    assert (found[0].problem.text.split()[1], found[1].solution.raw) == ("trans=?,?", "triton_mm_8")
    assert units["reject"] == 1  # a size that is a symbol
    assert len([r for r in records if isinstance(r, Reject)]) == 1


def test_composable_kernel_and_cutlass() -> None:
    (first, *_) = sample("rocm_ck.log")[1]
    assert (first.solution.text, first.solution.raw) == ("ck:?", "rocm_ck_gemm_template_7")
    _, found, records = sample("cutlass_two_ranks.log")
    assert [(m.problem.label, m.solution.id.rpartition(",")[2], m.time_us) for m in found] == [
        ("TN 512×1024×2048 bf16_r", "swizzle=1", 51.2),
        ("TN 512×1024×2048 bf16_r", "swizzle=4", 51.8),
        ("TN 512×64×2048 bf16_r", "swizzle=1", 51.2),
        ("TN 512×64×2048 bf16_r", "swizzle=4", 51.8),
    ]
    assert [r.text for r in records if isinstance(r, Message)] == ["AUTOTUNE mm(64x2048, 2048x512) has no last line"]


def test_a_result_of_a_type_of_its_own_is_not_guessed() -> None:
    data = (FOLDER / "rocm_ck.log").read_bytes().replace(b"  mm ", b"  mm_dtype ")
    assert {gemm(m).d_type for m in measured(read(data)[1])} == {None}


def test_a_table_of_another_number_of_types_has_none() -> None:
    rows = "  mm 0.1000 ms 100.0% \nSingleProcess AUTOTUNE benchmarking takes 0.1 seconds\n"
    _, records = read(f"AUTOTUNE mm(64x32, 32x16)\ndtypes: torch.bfloat16\n{rows}".encode())
    [found] = measured(records)
    assert (gemm(found).a_type, gemm(found).m, gemm(found).n, gemm(found).k) == (None, 16, 64, 32)


@pytest.mark.parametrize("sizes", ["-3x5, 5x7", "s0x5, 5x7"])
def test_what_is_no_size_is_rejected(sizes: str) -> None:
    _, records = read(f"AUTOTUNE mm({sizes})\n".encode())
    assert [type(record) for record in records] == [Reject]


def test_times_of_the_first_release_are_milliseconds_with_another_unit() -> None:
    _, records = read(
        b"AUTOTUNE mm(512x768, 768x3072)\n  mm 0.0148s 100.0%\nSingleProcess AUTOTUNE takes 5.1 seconds\n"
    )
    assert [x.time_us for x in measured(records)] == [14.8]


def test_a_table_of_a_notebook_is_indented() -> None:
    data = (FOLDER / "torch_2.11.log").read_bytes()
    plain, indented = read(data), read(b"".join(b"    " + line for line in data.splitlines(keepends=True)))
    assert measured(indented[1]) == measured(plain[1])
    assert len(measured(plain[1])) > 10
    rejects = [r for r in indented[1] if isinstance(r, Reject)]
    assert [r.reason for r in rejects] == [r.reason for r in plain[1] if isinstance(r, Reject)]


def test_lines_of_others_may_fall_between() -> None:
    lines = (FOLDER / "rocm_ck.log").read_bytes().split(b"\n")
    mixed = b"\n".join(x for line in lines[:-1] for x in (line, b"loss 2.31  lr 3e-4")) + b"\n"
    units, records = read(mixed)
    assert len(measured(records)) == 3
    assert units["foreign"] == len(lines) - 1


@pytest.mark.nightly  # importing the compiler takes seconds; lines of PyTorch 2.0 and 2.11 are samples
def test_the_real_writer() -> None:
    """``log_results`` and the statistics of the PyTorch that is installed, with choices of this test."""
    torch = pytest.importorskip("torch")
    from torch._dynamo.utils import dynamo_timed
    from torch._inductor import config, ir, select_algorithm
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()))
    layouts = [((96, 64), (64, 1)), ((64, 128), (1, 64))]
    device = torch.device("cpu")
    written = io.StringIO()
    with (
        V.set_graph_handler(graph),
        config.patch(max_autotune=True),
        DebugContext(),
        contextlib.redirect_stderr(written),
    ):
        nodes = [
            ir.InputBuffer(name=f"x{i}", layout=ir.FixedLayout(device, torch.bfloat16, size, stride))
            for i, (size, stride) in enumerate(layouts)
        ]
        tile = "BLOCK_K=32, BLOCK_M=64, BLOCK_N=64, num_stages=2, num_warps=4"
        choices = {("triton_mm_0", tile): 0.01234567, ("mm", ""): 0.02, ("triton_mm_1", tile + ", X=1"): float("inf")}
        timings = {
            ir.ChoiceCaller(name, nodes, nodes[0].get_layout(), text): ms for (name, text), ms in choices.items()
        }
        with dynamo_timed("mm_template_autotuning", log_pt2_compile_event=True):
            select_algorithm._log_autotune_choices_stats("mm_template_autotuning", timings)
        select_algorithm.AlgorithmSelectorCache.log_results("mm", nodes, timings, 0.5, 0.25)
    units, records = read(written.getvalue().encode())
    found = measured(records)
    assert set(units) == {"measurement"}
    assert {m.problem.label for m in found} == {"TN 128×96×64 bf16_r"}
    assert [(m.solution.text, m.status, m.time_us) for m in found] == [
        ("triton:mm," + tile.replace(", ", ","), "ok", 12.3),
        ("aten:mm", "ok", 20.0),
        ("triton:mm," + tile.replace(", ", ",") + ",X=1", "failed", None),
    ]
