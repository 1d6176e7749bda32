"""Write the sample logs in ``sample_logs/hipblaslt/``. Run it from any folder; the files are always the same.

Nothing of logparse is imported, so that a mistake in logparse's readers cannot be in the samples, too.
``sample_logs/hipblaslt/README.md`` describes each file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "hipblaslt"
REVISION, VERSION, ARCH, CUS = "3b3d59eb", 100000, "gfx942:sramecc+:xnack-", 304
DEVICE = "AMD Instinct MI300X"
CLOCK = "2026-01-20 09:15:{:02d}"
BYTES = {"bf16_r": 2, "f16_r": 2, "f32_r": 4, "f8_r": 1}
LOG_TYPES = {"bf16_r": "R_16BF", "f16_r": "R_16F", "f32_r": "R_32F", "f8_r": "R_8F_E4M3"}


@dataclass(frozen=True)
class Gemm:
    """One matrix product of the sample job.

    * ``pick`` and ``pick_us`` are the kernel that the library chose and its time in µs.
    * ``best`` and ``best_us`` are the fastest kernel that tuning found, and its time.
    """

    ta: str
    tb: str
    m: int
    n: int
    k: int
    calls: int
    pick: int
    pick_us: float
    best: int
    best_us: float
    epilogue: str = "DEFAULT"
    batch: int = 1
    dtype: str = "bf16_r"

    @property
    def ld(self) -> tuple[int, int, int, int]:
        return (self.m if self.ta == "N" else self.k, self.k if self.tb == "N" else self.n, self.m, self.m)

    @property
    def cols(self) -> tuple[int, int, int, int]:
        return (self.k if self.ta == "N" else self.m, self.n if self.tb == "N" else self.k, self.n, self.n)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(0 if self.batch == 1 else ld * cols for ld, cols in zip(self.ld, self.cols, strict=True))


# A transformer of width 4096 with 8192 tokens: forward, data gradient and weight gradient of four layers, attention,
# head.  Two picks are far too slow (the thin projection and one weight gradient), and two a little.  The others are the
# best.
JOB = (
    Gemm("T", "N", 12288, 8192, 4096, 8, 105597, 1712.4, 105597, 1712.4),
    Gemm("N", "N", 4096, 8192, 12288, 8, 98211, 1738.2, 98211, 1738.2),
    Gemm("N", "T", 4096, 12288, 8192, 8, 91033, 6120.5, 91077, 1741.6),
    Gemm("T", "N", 4096, 8192, 4096, 8, 105420, 566.3, 105420, 566.3),
    Gemm("N", "N", 4096, 8192, 4096, 8, 98107, 571.0, 98107, 571.0),
    Gemm("N", "T", 4096, 4096, 8192, 8, 91021, 602.9, 91021, 602.9),
    Gemm("T", "N", 16384, 8192, 4096, 4, 105611, 2260.8, 105611, 2260.8, "GELU_AUX_BIAS"),
    Gemm("N", "N", 16384, 8192, 4096, 4, 98340, 2391.3, 98340, 2391.3, "DGELU_BGRAD"),
    Gemm("N", "T", 16384, 4096, 8192, 4, 91102, 2377.1, 91102, 2377.1, "BGRADB"),
    Gemm("T", "N", 4096, 8192, 16384, 4, 105633, 2310.7, 105633, 2310.7, "BIAS"),
    Gemm("N", "N", 4096, 8192, 16384, 4, 98342, 2298.9, 98342, 2298.9),
    Gemm("N", "T", 4096, 16384, 8192, 4, 91104, 3301.8, 91131, 2402.2),
    Gemm("T", "N", 512, 512, 128, 16, 104010, 88.2, 104010, 88.2, batch=256),
    Gemm("N", "N", 128, 512, 512, 16, 97215, 84.9, 97215, 84.9, batch=256),
    Gemm("T", "N", 64, 8192, 4096, 16, 104002, 92.4, 104377, 23.6),
    Gemm("T", "N", 32000, 8192, 4096, 1, 105702, 4602.5, 105702, 4602.5),
    Gemm("N", "T", 4096, 32000, 8192, 1, 91201, 6102.0, 91266, 4590.3),
)

# epilogue → bench flags (gradient, use_e, bias source) and activation
EPILOGUES = {
    "DEFAULT": ("", "", "", "none"),
    "BIAS": ("", "", "d", "none"),
    "RELU_BIAS": ("", "", "d", "relu"),
    "GELU_AUX_BIAS": ("", "--use_e ", "d", "gelu"),
    "DGELU_BGRAD": ("--gradient ", "--use_e ", "d", "gelu"),
    "BGRADB": ("--gradient ", "", "b", "none"),
}


def bench_line(g: Gemm, form: str = "7.0", index: int | None = None) -> str:
    """Return the hipblaslt-bench command that hipBLASLt logs when it computes this product.

    ``form`` is the ROCm version whose spelling is used.
    """
    gradient, use_e, source, activation = EPILOGUES[g.epilogue]
    bias_type = g.dtype if source else "f32_r"
    names = ("--lda", "--ldb", "--ldc", "--ldd")
    words = "" if form == "6.1" else "--api_method c "
    words += f"-m {g.m} -n {g.n} -k {g.k} " + "".join(f"{n} {v} " for n, v in zip(names, g.ld, strict=True))
    words += "--lde 0 " if form == "6.1" else ""
    words += " " + "".join(f"--stride_{x} {v} " for x, v in zip("abcd", g.strides, strict=True))
    words += "--stride_e 0 " if form == "6.1" else ""
    words += {
        "6.1": " --alpha 1 --beta 0 ",
        "1.4": " --alpha 1.000000 --alphai 0.000000 --beta 0.000000 --betai 0.000000 ",
    }.get(form, " --alpha 1.000000 --beta 0.000000 ")
    words += f"--transA {g.ta} --transB {g.tb} --batch_count {g.batch} "
    words += "--batch_mode 0 " if form == "1.4" and g.batch > 1 else ""
    if form not in ("6.1", "6.3"):
        words += "--scaleA 0 --scaleB 0  "
    bias = f"--bias_vector --bias_source {source} " if source else ""
    types = "".join(f"--{x}_type {g.dtype} " for x in "abcd")
    if form == "6.1":
        tail = f"--activation_type {activation} " + ("--bias_vector " if source else "")
        typed = f"--bias_type {bias_type} " if source else ""
        return f"hipblaslt-bench {words}{types}--compute_type f32_r --scale_type f32_r {typed}{tail}"
    words += gradient + use_e + bias + types + f"--scale_type f32_r --bias_type {bias_type} "
    words += f"--aux_type {g.dtype} " if use_e and form in ("7.0", "1.4") else ""
    words += "  --compute_type f32_r "
    if form != "6.3":
        words += f"--algo_method index --solution_index {g.pick if index is None else index} "
        words += f"--activation_type {activation} "
    elif activation != "none":
        words += f"--activation_type {activation} "
    words += "--any_stride " if form in ("7.0", "1.4") else ""
    words += "--rotating 0 --cold_iters 0 --iters 0 " if form in ("6.4", "7.0", "1.4") else ""
    return "hipblaslt-bench " + words


def prefix(layer: str, function: str, second: int = 0) -> str:
    return f"[{CLOCK.format(second)}][HIPBLASLT][4242][{layer}][{function}]"


def trace_line(g: Gemm, second: int = 0) -> str:
    """Return the Trace line that hipBLASLt logs for this product. It ends with a blank, as in the library."""
    rows = (g.ld[0], g.ld[1], g.m, g.m)
    layouts = []
    for row, col, ld, stride in zip(rows, g.cols, g.ld, g.strides, strict=True):
        batch = f" batch_count={g.batch} batch_stride={stride}" if g.batch > 1 else ""
        layouts.append(f"[type={LOG_TYPES[g.dtype]} rows={row} cols={col} ld={ld}{batch}]")
    bias = bool(EPILOGUES[g.epilogue][2])
    desc = f"computeType=COMPUTE_32F scaleType=R_32F transA=OP_{g.ta} transB=OP_{g.tb} epilogue=EPILOGUE_{g.epilogue}"
    desc += f" biasPointer={'0x8c600200' if bias else '0x0'}"
    desc += f" biasType={LOG_TYPES[g.dtype]}" if bias else ""
    body = "".join(
        f"{x}=0x7f0f{i}c600000 {x}desc={layout} " for i, (x, layout) in enumerate(zip("ABCD", layouts, strict=True))
    )
    tail = "workSpace=0x7f1033a7a200 workSpaceSizeInBytes=33554432 alpha=1 beta=0 stream=0 "
    return f"{prefix('Trace', 'rocblaslt_matmul', second)} {body}computeDesc=[{desc}] {tail}"


def profile_line(g: Gemm, extended: bool = False, broken: bool = False) -> str:
    gradient, use_e, source, activation = EPILOGUES[g.epilogue]
    pairs: list[tuple[str, object]] = [("M", g.m), ("N", g.n), ("K", g.k)]
    pairs += [(f"ld{x}", v) for x, v in zip("abcd", g.ld, strict=True)]
    pairs += [(f"stride_{x}", v) for x, v in zip("abcd", g.strides, strict=True)]
    pairs += [("alpha", "1.000000"), ("beta", "0.000000"), ("transA", g.ta), ("transB", g.tb), ("batch_count", g.batch)]
    pairs += [("scaleA", 0), ("scaleB", 0)]
    pairs += (
        [("", ""), ("", "")] if broken else [("scaleC", 0), ("scaleD", 0), ("swizzleA", "false"), ("swizzleB", "false")]
    )
    flags = (
        ("scaleAlpha_vector", False),
        ("gradient", bool(gradient)),
        ("use_e", bool(use_e)),
        ("bias_vector", bool(source)),
    )
    pairs += [(name, str(value).lower()) for name, value in flags]
    pairs += [("bias_source", source or "d"), *((f"{x}_type", g.dtype) for x in "abcd"), ("scale_type", "f32_r")]
    pairs += [("bias_type", g.dtype if source else "f32_r"), ("aux_type", g.dtype if use_e else "f32_r")]
    pairs += [("compute_type", "c_f32_r"), ("activation_type", activation), ("flush", "false"), ("any_stride", "true")]
    pairs += [("rotating", 0), ("cold_iters", 0), ("iters", 0)]
    if extended:
        kernel = kernel_name(g)
        pairs += [
            ("solution_index", g.pick),
            ("solution_Name", f"{kernel}_MT256x256x64_WGM{g.pick % 8}"),
            ("kernel_name", kernel),
        ]
    return "- { function: matmul, " + ", ".join(f"{k}: {v}" for k, v in [*pairs, ("call_count", g.calls)]) + " }"


def grouped_lines() -> tuple[str, str]:
    """Return the two lines that hipBLASLt logs for one grouped matrix product: a bench line and a profile line.

    A grouped product computes several matrix products in one call. A mixture of experts needs such calls.
    """
    sizes = ((1408, 384, 2048), (1408, 96, 2048), (1408, 1024, 2048))
    unbatched = "--stride_a 0 --stride_b 0 --stride_c 0 --stride_d 0"
    inner = "".join(f" -m {m} -n {n} -k {k} --lda {k} --ldb {k} --ldc {m} --ldd {m}  {unbatched} " for m, n, k in sizes)
    shared = "--transA T --transB N --batch_count 1 --scaleA 0 --scaleB 0  "
    shared += "--a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --scale_type f32_r --bias_type f32_r   "
    shared += "--compute_type f32_r --algo_method index --solution_index 120077 --activation_type none --any_stride "
    line = f"hipblaslt-bench --api_method cpp --grouped_gemm {inner} --alpha 1.000000 --beta 0.000000 {shared}"
    line += "--rotating 0 --cold_iters 0 --iters 0 "
    strides = ", ".join(f"stride_{x}: 0" for x in "abcd")
    flat = ", ".join(f"m: {m}, n: {n}, k: {k}, lda: {k}, ldb: {k}, ldc: {m}, ldd: {m}, {strides}" for m, n, k in sizes)
    record = f"- {{ function: matmul, grouped_gemm:  {flat}, alpha: 1.000000, beta: 0.000000, transA: T, transB: N, "
    record += "batch_count: 1, scaleA: 0, scaleB: 0, scaleAlpha_vector: false, gradient: false, use_e: false, "
    record += "bias_vector: false, bias_source: d, a_type: bf16_r, b_type: bf16_r, c_type: bf16_r, d_type: bf16_r, "
    record += "scale_type: f32_r, bias_type: f32_r, aux_type: f32_r, compute_type: c_f32_r, activation_type: none, "
    record += "flush: false, any_stride: true, rotating: 0, cold_iters: 0, iters: 0, call_count: 48 }"
    return line, record


COLUMNS = (
    "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,"
    "a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,"
)


def cells(g: Gemm, us: float, aux: bool = True) -> str:
    """Return the values of a result row, separated by commas.

    The row has the values of COLUMNS, then the rotating buffer, Gflops, GB/s (2^30) and µs. With ``aux`` there is also
    a value for the column ``aux_type``.
    """
    strides = [ld * cols for ld, cols in zip(g.ld, g.cols, strict=True)]
    a, b, c, d = zip(g.ld, strides, strict=True)
    source, activation = EPILOGUES[g.epilogue][2], EPILOGUES[g.epilogue][3]
    flops = 2 * g.m * g.n * g.k * g.batch
    moved = g.batch * (g.m * g.k + g.k * g.n + g.m * g.n) * BYTES[g.dtype]
    values: list[object] = [g.ta, g.tb, 0, g.batch, g.m, g.n, g.k, 1, *a, 0, *b, *c, *d, *[g.dtype] * 4, "f32_r"]
    values += [0, 0, 0, 0, 0, activation, int(bool(source)), g.dtype if source else "f32_r", *[g.dtype] * aux]
    values += [512, f"{flops / us / 1e3:g}", f"{moved / us * 1e6 / 2**30:g}", f"{us:g}"]
    return ",".join(map(str, values))


def bench_output(gemms: tuple[Gemm, ...]) -> str:
    out = preamble()
    header = COLUMNS + "aux_type,rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us"
    for g in gemms:
        timed = {g.pick: g.pick_us, g.best: g.best_us, g.best + 7: round(g.best_us * 1.31, 3)}
        command = bench_line(g).replace(f"--algo_method index --solution_index {g.pick} ", "--algo_method all ")
        command = command.replace(
            "--rotating 0 --cold_iters 0 --iters 0 ", "--rotating 512 --cold_iters 50 --iters 200 "
        )
        out.append(f"$ /opt/rocm/bin/{command}--requested_solution -1 --print_kernel_info")
        out.append("Rotating buffer 512 MiB. Needed Size: 160 MiB. Needed block count: 4 (Capped to max iters: 50)")
        out.append(f"Is supported {len(timed)} / Total solutions: 412")
        best = min(timed, key=lambda index: timed[index])
        for i, (index, us) in enumerate(timed.items()):
            out += [f"[{i}]:{header}", f"    {cells(g, us)}", *kernel_info(g, index)]
        out += ["Winner: ", header, f"    {cells(g, timed[best])}", *kernel_info(g, best)]
    return "\n".join(out) + "\n"


def kernel_name(g: Gemm) -> str:
    operands = f"{'Alik' if g.ta == 'T' else 'Ailk'}_{'Bljk' if g.tb == 'N' else 'Bjlk'}"
    return f"Cijk_{operands}_BBS_BH_Bias_HA_S_SAV_UserArgs"


def kernel_info(g: Gemm, index: int) -> list[str]:
    kernel = (
        f"Cijk_{'Alik' if g.ta == 'T' else 'Ailk'}_{'Bljk' if g.tb == 'N' else 'Bjlk'}_BBS_BH_Bias_HA_S_SAV_UserArgs"
    )
    name = f"{kernel}_MT256x256x64_WGM{index % 8}"
    return [f"    --Solution index: {index}", f"    --Solution name:  {name}", f"    --kernel name:    {kernel}"]


def tuning_files() -> tuple[str, str]:
    """Return the tuned kernels as two tuning files: in the layout of ROCm 6.4, and in the layout of ROCm 7.0.

    The first file has 37 values per row. The second one has a line of column names before each row.
    """
    first = f"Git Version: {REVISION}\n"
    old = "".join(f"    {cells(g, g.best_us, aux=False)},{g.best},{ARCH},{CUS}\n" for g in JOB)
    header = COLUMNS + "aux_type,rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us,solution_index,gcnArchName,CUs"
    new = "".join(f"    {header}\n    {cells(g, g.best_us)},{g.best},{ARCH},{CUS}\n" for g in JOB)
    return first + old, first + new


def preamble() -> list[str]:
    return [
        f"hipBLASLt version: {VERSION}",
        f"hipBLASLt git version: {REVISION}",
        "Query device success: there are 1 devices. (Target device ID is 0)",
        f"Device ID 0 : {DEVICE} {ARCH}",
        "with 206.1 GB memory, max. SCLK 2100 MHz, max. MCLK 1300 MHz, compute capability 9.4",
        "maxGridDimX 2147483647, sharedMemPerBlock 65.5 KB, maxThreadsPerBlock 1024, warpSize 64",
        "",
    ]


def launches(rank: int) -> str:
    """Return what one rank of the job writes to standard error.

    Lines of the launch script come first and state the library's build. Then there is a line per product, layer by
    layer.
    """
    out = [*preamble(), f"rank {rank}: 1 step of 4 layers"]
    for turn in range(max(g.calls for g in JOB)):
        out += [bench_line(g) for g in JOB if turn < g.calls]
    return "\n".join([*out, f"rank {rank}: loss 2.7134"]) + "\n"


def api_lines() -> list[str]:
    return [
        prefix("Api", "rocblaslt_create") + " handle[out]=0x320ccb10 ",
        prefix("Api", "rocblaslt_matmul_desc_create")
        + " matmulDesc[out]=0x7ffc68bf94e8 computeType=COMPUTE_32F scaleType=R_32F ",
        prefix("Api", "rocblaslt_matmul_desc_set_attribute")
        + " matmulDesc=0x31fed860 attr=MATMUL_DESC_TRANSA buf=0x7ffc68bf946c sizeInBytes=4 bufData=0x70 ",
        prefix("Api", "rocblaslt_matrix_layout_create")
        + " matLayout[out]=0x7ffc68bf9530 type=R_16BF rows=4096 cols=64 ld=4096 ",
        prefix("Api", "rocblaslt_matmul_preference_create") + " matmulPref[out]=0x7ffc68bf9540 ",
        *[
            prefix("Api", "rocblaslt_matmul_algo_get_heuristic") + f" {final}returnAlogCount=1 "
            for final in ("", "final ")
        ]
        * 6,
        prefix("Api", "rocblaslt_matmul")
        + " A=0x7f667d700000 Adesc=0x2f1fb160 B=0x7f667d718000 Bdesc=0x2f1fb0e0 C=0x7f667d770000 Cdesc=0x3227f460"
        + " D=0x7f667d775000 Ddesc=0x3227f4a0 computeDesc=0x31fed860 algo=0x7ffc68bf9600 workSpace=0x7f1033a7a200"
        + " workSpaceSizeInBytes=33554432 stream=0 ",
        prefix("Api", "rocblaslt_matrix_layout_destory") + " matLayout=0x2f1fb160 ",
        prefix("Api", "rocblaslt_destroy", 9) + " handle=0x320ccb10 ",
    ]


def info_lines() -> list[str]:
    return [
        prefix("Info", "initialize") + " HIPBLASLT_TENSILE_LIBPATH not set: Using /opt/rocm/lib/hipblaslt/library ",
        prefix("Info", "isSolutionSupported") + " Hardware match: Solution Index: 104377",
        "Software match: 0",
        "Match [0]:",
        "  FreeSizeAMultiple(8): 1",
        "  WorkspaceCheck(33554432): 0",
        "",
        prefix("Info", "getBestSolutions", 1) + " no solutions found, try to fallback",
        prefix("Info", "hipblasLtMatmulAlgoGetHeuristic", 2)
        + " HIPBLASLT_TUNING_OVERRIDE_FILE is the correct setting.",
        prefix("Info", "problem_override_from_file", 2) + " Find solution with index: 104377",
    ]


def mixed() -> str:
    """Return what a process writes to standard error if all of hipBLASLt's log categories are on (mask 255).

    The text has lines of every category, output of the application, and lines that several threads have torn apart.
    """
    g, thin = JOB[3], JOB[14]
    whole = bench_line(thin)
    return "\n".join(
        [
            "Loading checkpoint shards: 100%",
            *api_lines()[:5],
            prefix("Api", "rocblaslt_matmul_algo_get_heuristic") + " returnAlogCount=1 ",
            prefix("Api", "rocblaslt_matmul_algo_get_heuristic") + " final returnAlogCount=1 ",
            trace_line(g),
            bench_line(g),
            *info_lines()[1:7],
            "MIOpen(HIP): Info [get_device_name] Raw device name: gfx942:sramecc+:xnack-",
            trace_line(thin, 1),
            whole[:28] + whole,  # one thread's command begins inside another's
            bench_line(g)[:200],  # cut where a process was killed
            prefix("Api", "rocblaslt_ma")[:-1] + whole,
            "epoch 1 done",
            profile_line(g).replace(" }", ""),
            profile_line(thin),
            "",
        ]
    ).replace("][4242][", "][5151][")


CACHE_COLUMNS = (
    "schema_version,git_version,transA,transB,m,n,k,batch_count,a_type,b_type,c_type,d_type,compute_type,"
    "compute_input_type_a,compute_input_type_b,lda,ldb,ldc,ldd,stride_a,stride_b,stride_c,stride_d,lde,"
    "stride_e,batch_mode,epilogue,gradient,bias_type,bias_stride,bias_vector,aux_type,scaleA_format,"
    "scaleB_format,scaleA,scaleB,scaleC,scaleD,scaleE,scaleAlphaVec,amaxD,swizzle_a,swizzle_b,"
    "streamk_tile_scheduling,sm_count_target,uniform_summation_order,gcnArchName,CUs,solution_index,"
    "kernel_name,required_workspace,us,complete,budget_ms,search_all_kernels,search_max_candidates,"
    "search_workspace,cold_iters,hot_iters,flush_icache,rotating_mb"
)


def cache_entry(**cells: str) -> str:
    """Return an entry of hipBLASLt's runtime tuning cache for an ordinary matrix product.

    ``cells`` replaces some of its values.
    """
    values = dict.fromkeys(CACHE_COLUMNS.split(","), "0") | dict.fromkeys(
        ("a_type", "b_type", "c_type", "d_type"), "bf16_r"
    )
    values |= {"schema_version": "1", "git_version": "3b3d59eb", "transA": "T", "transB": "N", "batch_count": "1"}
    values |= dict(
        zip(("m", "n", "k", "lda", "ldb", "ldc", "ldd"), ["512", "256", "128", "128", "128", "512", "512"], strict=True)
    )
    values |= {"compute_type": "f32_r", "epilogue": "1", "gcnArchName": "gfx950:sramecc+:xnack-", "CUs": "256"}
    values |= {"solution_index": "77", "kernel_name": "Cijk_Alik_Bljk_BBS_BH_A", "us": "5.5", "complete": "1"}
    values |= {"budget_ms": "300000", "search_all_kernels": "1", "search_max_candidates": "128"}
    values |= {"search_workspace": "134217728", "cold_iters": "1000", "hot_iters": "1000", "flush_icache": "1"}
    values |= {"rotating_mb": "512", **cells}
    return f"    {CACHE_COLUMNS}\n    {','.join(values[x] for x in CACHE_COLUMNS.split(','))}\n"


def cache() -> str:
    """Return a file of hipBLASLt's runtime tuning cache.

    One of its rows is from another library build, and in another one a value is missing.
    """
    return "Git Version: 3b3d59eb\n" + "".join(
        (
            cache_entry(),
            cache_entry(ldb="256", us="6.5", solution_index="78"),
            cache_entry(epilogue="36", bias_vector="1", us="7.5", complete="0"),
            cache_entry(swizzle_a="1", sm_count_target="48", solution_index="0", us="4.5"),
            cache_entry(git_version="50015815", m="64", lda="64", ldc="64", ldd="64"),
            cache_entry(k=""),
        )
    )


CACHE_LOG = """\
tuning-cache: mode=tune path=cache.txt load=ok loaded=4
tuning-cache: tuning-start m=512 n=256 k=128 batch=1 trans=TN types=bf16_r/bf16_r; this call will block until it \
finishes
tuning-cache: tuning-done winner=77 elapsed=12.5s persisted=yes
tuning-cache: summary shapes=5 matched=3 fellback=1 tuned=1 invalidated=1
"""


def main() -> None:
    grouped_bench, grouped_record = grouped_lines()
    relu = Gemm("N", "N", 1024, 512, 1024, 1, 56073, 30.0, 56537, 28.0, "RELU_BIAS", dtype="f16_r")
    error = [
        prefix("Error", "hipblasLtMatmulAlgoGetHeuristic")
        + " The hipBLASLt git version and the override file git version are not the same.",
        prefix("Error", "rocblaslt_matmul") + " invalid data pointer",
        prefix("Error", "rocblaslt_matmul_desc_set_attribute") + " invalid buf size=4 ",
        prefix("Error", "rocblaslt_matmul") + " Solution is not supported",
    ]
    old, new = tuning_files()
    files = {
        "hipblaslt_rank0_4242.log": launches(0),
        "hipblaslt_rank1_4243.log": launches(1),
        "profile_4242.log": "".join(profile_line(g) + "\n" for g in JOB),
        "extended_profile_4242.log": "".join(profile_line(g, extended=True) + "\n" for g in JOB),
        "trace_4242.log": "\n".join(trace_line(g, i) for i, g in enumerate(JOB)) + "\n",
        "api_4242.log": "\n".join(api_lines()) + "\n",
        "info_4242.log": "\n".join(info_lines()) + "\n",
        "error_4242.log": "\n".join(error) + "\n",
        "hints_4242.log": prefix("Hints", "rocblaslt_matmul") + " a category that no version of the library writes \n",
        "bench_output.txt": bench_output(JOB),
        "tuning_6.4.txt": old,
        "tuning_7.0.txt": new,
        "tuning_cache.txt": cache(),
        "tuning_cache.log": CACHE_LOG,
        "forms/bench_no_api_method.log": "".join(bench_line(g, "6.1") + "\n" for g in (*JOB[:4], relu)),
        "forms/bench_no_index.log": "".join(bench_line(g, "6.3") + "\n" for g in (*JOB[:4], relu)),
        "forms/bench_rotating.log": "".join(bench_line(g, "6.4") + "\n" for g in (*JOB[:4], relu)),
        "forms/bench_alphai.log": "".join(bench_line(g, "1.4") + "\n" for g in JOB[:13]),
        "forms/bench_uniq_count.txt": "".join(f"{g.calls:7d} {bench_line(g).rstrip()}\n" for g in JOB),
        "forms/profile_broken.log": "".join(profile_line(g, broken=True) + "\n" for g in JOB[:6]),
        "forms/grouped.log": f"{grouped_bench}\n{grouped_record}\n",
        "forms/mixed.log": mixed(),
    }
    for name, text in files.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


if __name__ == "__main__":
    main()
