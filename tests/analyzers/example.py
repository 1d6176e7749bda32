"""Example data for tests: a run in which several analyzers find something, and matrix products that can be varied."""

from __future__ import annotations

from dataclasses import replace

from analyzers.evidence.tables import Tables
from logparse.model import ConvProblem, GemmProblem, with_plain
from tests.analyzers.build import call, facts, measurement, message, tables, work

ARCH = "gfx942:sramecc+:xnack-"

W = ConvProblem(
    direction="W",
    n=64,
    c=256,
    h=56,
    w=56,
    k=256,
    filter_h=3,
    filter_w=3,
    pad_h=1,
    pad_w=1,
    stride_h=2,
    stride_w=2,
    dilation_h=1,
    dilation_w=1,
    out_h=28,
    out_w=28,
    **dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NCHW"),
    **dict.fromkeys(("in_type", "weights_type", "out_type"), "FP16"),
    groups=32,
    bias=0,
    mode="convolution",
)  # the slowest layer of the shipped MI300X find-db: ResNeXt's 3x3 with 32 groups
F, B = replace(W, direction="F"), replace(W, direction="B")


def plain(**fields: object) -> GemmProblem:
    """Return a matrix product without special features: no swizzle, no scales, all compute units.

    ``fields`` are its sizes, types and so on.
    """
    return GemmProblem(**with_plain(fields))


def gemm(m: int = 4096, **more: object) -> GemmProblem:
    given: dict[str, object] = {
        "trans_a": "T",
        "trans_b": "N",
        "m": m,
        "n": 512,
        "k": 1024,
        "batch_count": 1,
        "beta": "zero",
        "lda": 1024,
        "ldb": 1024,
        "ldd": m,
        "compute_type": "f32_r",
        "scale_type": "f32_r",
        "bias": False,
        **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "bf16_r"),
        "activation": "none",
        "gradient": False,
        "aux": False,
        "scale_alpha_vector": False,
    }
    return plain(**(given | more))


def everything() -> Tables:
    """Return made-up data of a run in which several analyzers find something to improve."""
    # A find-db (MIOpen's file of solver times) of an MI300X has a slow weight gradient of ResNeXt. A log has the
    # kernels that hipBLASLt chose, and its queries to the heuristic that chooses them. TunableOp's verbose log has the
    # times of other kernels.
    one, two, three = gemm().text, gemm(2048).text, gemm(1024).text
    build = {"arch": ARCH, "cu_count": "304", "hipblaslt_version": "1201", "hipblaslt_revision": "4d62e135"}
    heuristic = "rocblaslt_matmul_algo_get_heuristic"
    return tables(
        calls=[
            call(one, "hipblaslt:7", 100),
            call(two, "hipblaslt:8", 10),
            call(three, "hipblaslt:5", 5),
            call(W.text, None, 3, category="miopen_cmd"),
        ],
        workload=[work(one, 100), work(two, 10), work(three, 5), work(W.text, 3), work(one, 10, pid=2)],
        messages=[
            {"source_id": "log", "run": "r", "category": "api", "function": heuristic, "pid": 1, "count": n, "text": t}
            for n, t in ((115, "returnAlogCount=1"), (115, "final returnAlogCount=1"))
        ]
        + [message("hints", text="The number of rows in matrix D (3) is not 8 aligned.")],
        measurements=[
            measurement(one, "hipblaslt:7", 50.0),
            measurement(one, "hipblaslt:9", 40.0, raw="Gemm_Hipblaslt_9", workspace_bytes=0.0),
            measurement(one, "Default", 52.0),
            measurement(one, "Default", 50.0, ordinal=9),
            measurement(two, "Default", 30.0),
            measurement(two, "hipblaslt:3", 20.0, raw="Gemm_Hipblaslt_3"),
            measurement(three, "hipblaslt:6", 9.0, origin="tunableop"),
            measurement(F.text, "miopen:ConvAsm", 187.0, source_id="db"),
            measurement(B.text, "miopen:ConvAsm", 219.0, source_id="db"),
            measurement(W.text, "miopen:GemmWrwUniversal", 5455.0, source_id="db"),
            measurement(W.text, "miopen:ConvDirectNaiveConvWrw", 60000.0, source_id="db"),
            measurement(W.text, "miopen:Broken", None, source_id="db"),
        ],
        facts=[
            *facts("log", **build),
            *facts("m", **build),
            *facts("db", arch="gfx942", cu_count="304", find_db="system"),
        ],
    )
