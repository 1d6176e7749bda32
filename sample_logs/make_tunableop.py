"""Write the sample files in ``sample_logs/tunableop/`` and ``sample_logs/tables/``. Run it from any folder.

The files are always the same. The job, the library build and the kernels are the same as in ``make_hipblaslt.py``.
Nothing of logparse is imported, so that a mistake in logparse's readers cannot be in the samples, too.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
ROCM_29 = (
    "Validator,PT_VERSION,2.9.1",
    "Validator,HIP_VERSION,701",
    "Validator,HIPBLASLT_VERSION,100000-3b3d59eb",
    "Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-",
    "Validator,ROCBLAS_VERSION,5.0.0.3b3d59eb",
)
ROCM_25 = (
    "Validator,PT_VERSION,2.5.1",
    "Validator,ROCBLAS_VERSION,4.2.0-1d9f3c2b",
    "Validator,HIPBLASLT_VERSION,800-50015815",
    "Validator,ROCM_VERSION,6.2.0.0-66-98a50c5",
    "Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-",
)

# layout, m, n, k, batch (0: no batch), default's ms, winner, winner's ms
JOB = (
    ("TN", 12288, 8192, 4096, 0, 1.7124, "Default", 1.7124),
    ("NN", 4096, 8192, 12288, 0, 1.7382, "Gemm_Rocblas_98212", 1.73618),
    ("NT", 4096, 12288, 8192, 0, 6.1205, "Gemm_Hipblaslt_91077", 1.7416),
    ("TN", 4096, 8192, 4096, 0, 0.5663, "Default", 0.5663),
    ("NN", 4096, 8192, 4096, 0, 0.571, "Default", 0.571),
    ("NT", 4096, 4096, 8192, 0, 0.6029, "Gemm_Hipblaslt_91021", 0.602514),
    ("NN", 4096, 8192, 16384, 0, 2.2989, "Default", 2.2989),
    ("NT", 4096, 16384, 8192, 0, 3.3018, "Gemm_Hipblaslt_91131", 2.4022),
    ("TN", 512, 512, 128, 256, 0.0882, "Gemm_Hipblaslt_104010", 0.0881204),
    ("NN", 128, 512, 512, 256, 0.0849, "Default", 0.0849),
    ("TN", 64, 8192, 4096, 0, 0.0924, "Gemm_Hipblaslt_104377", 0.0236),
    ("TN", 32000, 8192, 4096, 0, 4.6025, "Default", 4.6025),
    ("NT", 4096, 32000, 8192, 0, 6.102, "Gemm_Hipblaslt_91266", 4.5903),
)


def key(layout: str, m: int, n: int, k: int, batch: int, dtype: str = "BFloat16", dims: bool = True) -> str:
    op = "GemmStridedBatchedTunableOp" if batch else "GemmTunableOp"
    lda, ldb = (m if layout[0] == "N" else k), (k if layout[1] == "N" else n)
    tail = f"_ld_{lda}_{ldb}_{m}" if dims else ""
    return f"{op}_{dtype}_{layout},{layout.lower()}_{m}_{n}_{k}{f'_B_{batch}' if batch else ''}{tail}"


def log_key(csv_key: str) -> str:
    op, params = csv_key.split(",")
    return f"{op}({params})"


def results() -> list[str]:
    rows = [f"{key(*shape)},{winner},{ms}" for *shape, _, winner, ms in JOB]
    more = (
        "GemmAndBiasTunableOp_BFloat16_TN,tn_4096_8192_16384_ld_16384_16384_4096,Gemm_Hipblaslt_105633,2.30881",
        "GemmTunableOp_Half_NN,nn_1_8192_4096_ld_1_4096_1,Gemm_Rocblas_-9,0.0161204",
        "GemmTunableOp_tf32_TN,tn_1024_50_2048_ld_2048_2048_1024,Gemm_Hipblaslt_386955,0.00983116",
        "GemmTunableOp_double_TT,tt_96_100_64_ld_64_100_96,Gemm_Rocblas_-61,0.00912",
        "GemmTunableOp_c10::complex<float>_TN,cn_80_48_64_ld_64_64_80,Default,0.0099712",
        "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN,"
        "tn_64_12288_2048_ld_2048_2048_64_rw_1_bias_None,Gemm_Hipblaslt_5101,0.0391",
        "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e5m2fnuz_Half_TN,"
        "tn_128_4096_2048_ld_2048_2048_128_rw_0_bias_Half,Gemm_Hipblaslt_5202,0.0214",
    )
    return [*ROCM_29, *rows, *more]


def blas_log() -> list[str]:
    """Return the rows that PyTorch for CUDA writes to its results file with PYTORCH_TUNABLEOP_BLAS_LOG=1."""
    plain = (
        "M: 96, N: 100, K: 64, lda: 64, ldb: 64, ldc: 96, ldd: 96, stride_a: 0, stride_b: 0, stride_c: 0, stride_d: 0, "
        "alpha: 1.0000, beta: 1.0000, transA: t, transB: n, batch_count: 1, a_type: f16_r, b_type: f16_r, "
        "c_type: f16_r, d_type: f16_r, scale_type: f32_r, bias_type: f32_r, compute_type: f32_r"
    )
    batched = (
        "M: 80, N: 48, K: 64, lda: 80, ldb: 64, ldc: 80, ldd: 80, stride_a: 5120, stride_b: 3072, stride_c: 3840, "
        "stride_d: 3840, alpha: 1.0000, beta: 0.0000, transA: n, transB: n, batch_count: 6, a_type: bf16_r, "
        "b_type: bf16_r, c_type: bf16_r, d_type: bf16_r, scale_type: f32_r, compute_type: f32_r"
    )
    bias = (
        "M: 96, N: 100, K: 64, lda: 64, ldb: 64, ldc: 96, ldd: 96, stride_a: 0, stride_b: 0, stride_c: 0, stride_d: 0, "
        "alpha: 1.0000, transA: t, transB: n, batch_count: 1, a_type: bf16_r, b_type: bf16_r, c_type: bf16_r, "
        "d_type: bf16_r, activation: GELU, bias_type: bf16_r, scale_type: f32_r, compute_type: f32_r"
    )
    tail = "BLAS_PARAMS: - { function: matmul, "
    return [
        "Validator,PT_VERSION,2.11.0",
        f"GemmTunableOp_Half_TN,tn_96_100_64_ld_64_64_96,Default,0.0069504,{tail}{plain} }}",
        f"GemmStridedBatchedTunableOp_BFloat16_NN,nn_80_48_64_B_6_ld_80_64_80,Default,0.00676,{tail}{batched} }}",
        f"GemmAndBiasTunableOp_BFloat16_TN,tn_96_100_64_ld_64_64_96,Default,0.007776,{tail}{bias} }}",
    ]


def cublaslt() -> list[str]:
    """Return the rows of a results file of PyTorch 2.14 or later for CUDA, which chooses among cuBLASLt's kernels."""
    name = "Gemm_Cublaslt_id_{}_tile_{}_stages_{}_splitk_{}_red_{}_swizzle_{}_custom_{}_inner_{}_cluster_{}"
    return [
        "Validator,PT_VERSION,2.14.1",
        f"{key('NN', 2304, 2048, 768, 0)},{name.format(66, 209, 35, 1, 0, 0, 4, 0, 3)},0.0171",
        f"{key('NN', 768, 2048, 50257, 0)},{name.format(24, 24, 0, 11, 1, 0, 0, 0, 0)},0.92",
        "GemmTunableOp_BFloat16_TN,tn_768_2048_768_ld_768_768_768,Default,0.0081",
    ]


def verbose() -> list[str]:
    """Return TunableOp's verbose log (level 3) of torch 2.9.

    In it some of the matrix products in JOB are tuned, with six candidate kernels each.
    """
    out = ["reading tuning results from tunableop_results0.csv"]
    for line in ROCM_29:
        _, name, value = line.split(",")
        out += [f"Validator {name}={value}", f"{name} validation: expect {value} to match {value}"]
    out.append("Loading results")
    for layout, m, n, k, batch, default, winner, ms in (JOB[2], JOB[3], JOB[7], JOB[10], JOB[12]):
        csv = key(layout, m, n, k, batch)
        named = log_key(csv)
        out += [
            f"missing op_signature, returning null ResultEntry for {csv}",
            f"finding fastest for {named} out of 6 candidates",
            "Rotating buffer 256 MiB. Needed Size: 232 MiB. Needed number of param copies: 2",
        ]
        candidates = [(0, "Default", default, "better")]
        if winner != "Default":
            candidates.append((4, winner, ms, "better"))
        candidates.append((5, "Default", round(default * 1.0061, 6), "slower"))
        for number, solution, mean, verdict in candidates:
            if number == 4 or (number == 5 and winner == "Default"):
                out.append(f"├──unsupported id=1, {named} Gemm_Rocblas_{91022}")
                out.append(f"├──skip slow instance id=2, {named} Gemm_Rocblas_-61")
                out.append(f"├──2nd skip slow instance id=3, {named} Gemm_Hipblaslt_90877")
            low, high, std = round(mean * 0.993, 6), round(mean * 1.012, 6), round(mean * 0.0041, 8)
            out += [
                f"├──tuning using warmup iters 0 [0 ms] and tuning iters 17 [{round(mean * 17, 4)} ms] "
                f"instance id={number}, {named} {solution}",
                "├──offset at 17",
                f"├──found {verdict} instance id={number}. {mean}ms. {solution} "
                f"min {low} max {high} mean {mean} std {std}",
            ]
        out += [f"└──found fastest for {named} {winner}", f"└──top five solutions for {named} "]
        out += [f"   {ms:.6f} {winner}"] + ([f"   {default:.6f} Default"] if winner != "Default" else [])
        out.append(f"{named} -> {winner},{ms}")
        out += [f"ResultEntry found for {csv}"] * 3
    return out


def verbose_cut() -> list[str]:
    """Return the verbose log of a job that crashed while it measured a kernel.

    The last line about tuning names this kernel.
    """
    named = log_key(key("TN", 64, 8192, 4096, 0))
    return [
        f"finding fastest for {named} out of 6 candidates",
        f"├──tuning using warmup iters 0 [0 ms] and tuning iters 100 [9.24 ms] instance id=0, {named} Default",
        "├──found better instance id=0. 0.0924ms. Default min 0.0917 max 0.0935 mean 0.0924 std 0.0003",
        "├──tuning using warmup iters 0 [0 ms] and tuning iters 100 [4.1 ms] instance id=1, "
        f"{named} Gemm_Hipblaslt_104001",
        "Memory access fault by GPU node-2 (Agent handle: 0x55d0c8) on address 0x7f21c4000000. Reason: Unknown.",
    ]


def verbose_23() -> list[str]:
    """Return TunableOp's verbose log as torch 2.3 prints it.

    Such a log lacks leading dimensions, shortest and longest times, and all times of slower kernels.
    """
    named = "GemmTunableOp_float_NN(nn_1024_512_2048)"
    timing = "├──tuning using warmup iters 1 [{} ms] and tuning iters 29 [{} ms] instance id={}, {} {}"
    return [
        "reading tuning results from tunableop_results0.csv",
        "could not open tunableop_results0.csv for reading tuning results",
        "missing op_signature, returning null ResultEntry",
        f"finding fastest for {named} out of 4 candidates",
        "├──verify numerics: atol=1e-05, rtol=1e-05",
        timing.format(0.2807, 8.14, 0, named, "Default"),
        "├──found better instance id=0. 0.280746ms. Default",
        f"├──unsupported id=1, {named} Gemm_Rocblas_1074",
        timing.format(0.2911, 8.44, 2, named, "Gemm_Rocblas_1075"),
        timing.format(0.2504, 7.26, 3, named, "Gemm_Rocblas_1076"),
        "├──found better instance id=3. 0.250411ms. Gemm_Rocblas_1076",
        f"└──found fastest for {named} Gemm_Rocblas_1076",
        f"{named} -> Gemm_Rocblas_1076,0.250411",
        "writing file tunableop_results0.csv",
    ]


def damaged() -> str:
    good = key("TN", 4096, 8192, 4096, 0)
    rows = [
        *ROCM_29,
        f"{good},Default,0.5663",
        f"{good},Gemm_Hipblaslt_105420,0.5612",  # a second row of the key: the first row wins
        "GemmTunableOp_Half_TN,tn_57344_32768_8192_ld_8192_8192_57344,Default,inf",
        "GemmTunableOp_Half_TN,tn_96_100_64_ld_64_64_96,Default",
        "GemmTunableOp_Half_TN,tn_96_104_64_ld_64_64_96,Default,fast",
        "GemmTunableOp_Half_TN,tn_96_108_64",
        "op,params,solution,time",
        "# tuned on node 7",
        "",
        "GemmTunableOp_Half_TN,nn_96_112_64_ld_64_64_96,Default,0.01",
        "GemmTunableOp_Half_TN,tn_96_116_64_ld_64_64,Default,0.01",
        # These rows were appended to a file without a final newline.
        "GemmTunableOp_Half_TN,tn_96_120_64_ld_64_64_96,Default,0.5"
        "GemmTunableOp_Half_NN,nn_96_120_64_ld_96_64_96,Default,0.25",
    ]
    return "\n".join(rows) + "\n"


def tables() -> None:
    """Write the sample tables: aiter's tables, rocBLAS's logs, and a user's spreadsheet.

    aiter's tables have headers of three generations.
    """
    kernel = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256"
    tuned = [
        "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw",
        f"gfx942,304,8192,64,4096,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,104377,0,23.6,{kernel},0.0,182,2890",
        "gfx942,304,64,256,5120,True,torch.bfloat16,torch.float32,False,False,asm,5,13,7.9191,_ZN5aiter_splitk,0.0,21.1,417",
        "gfx942,304,16,256,5120,False,torch.bfloat16,torch.bfloat16,False,True,torch,0,0,inf,,0.0,0,0",
        "gfx942,304,32,256,5120,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,-1,0,-1,,0.0,0,0",
        "gfx942,304,x,256,5120,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,1,0,9.5,,0.0,0,0",
    ]
    write("tables", "aiter_bf16_tuned_gemm.csv", tuned)
    short = [
        "M,N,K,bias,dtype,outdtype,scaleAB,cu_num,libtype,solidx,splitK,soltimes,kernelName,tflops,bw",
        f"64,256,5120,False,torch.bfloat16,torch.float32,False,80,hipblaslt,192883,10.91,{kernel},15.38,306.36",
        "64,512,5120,False,torch.float16,torch.float16,False,80,rocblas,-624951541,0,12.38,rocblas,1,1",
    ]
    write("tables", "aiter_old_tuned_gemm.csv", short)
    fp8 = [
        "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio",
        "gfx942,304,1,1280,8192,torch.float8_e4m3fnuz,ck,34,0,20.5611,a8w8_rowwise_256x16x64x512,1.02,510.5,0.0",
        "gfx950,256,1,1280,8192,torch.int8,asm,0,8,7.3189,_ZN5aiter_I8gemm,22.9,183.5,0.18",
    ]
    write("tables", "a8w8_bpreshuffle_tuned_gemm.csv", fp8)
    write("tables", "a8w8_untuned_gemm.csv", ["M,N,K,q_dtype_w", "1, 1280, 8192,torch.int8"])
    bench = (
        "./rocblas-bench -f gemm_ex --transposeA T --transposeB N -m 64 -n 8192 -k 4096 --alpha 1 --a_type bf16_r "
        "--lda 4096 --b_type bf16_r --ldb 4096 --beta 0 --c_type bf16_r --ldc 64 --d_type bf16_r --ldd 64 "
        "--compute_type f32_r --algo 0 --solution_index {} --flags 0"
    )
    strided = (
        "./rocblas-bench -f gemm_strided_batched -r f32_r --transposeA N --transposeB T -m 80 -n 48 -k 64 --alpha 1 "
        "--lda 80 --stride_a 5120 --ldb 48 --stride_b 3072 --beta 0.5 --ldc 80 --stride_c 3840 --batch_count 6"
    )
    record = (
        '- {{ rocblas_function: "rocblas_gemm_ex", atomics_mode: atomics_allowed, transA: "T", transB: "N", M: 64, '
        'N: 8192, K: 4096, alpha: 1, a_type: "bf16_r", lda: 4096, b_type: "bf16_r", ldb: 4096, beta: 0, '
        'c_type: "bf16_r", ldc: 64, d_type: "bf16_r", ldd: 64, compute_type: "f32_r", algo: 0, solution_index: 0, '
        "flags: none, call_count: {} }}"
    )
    log = [
        bench.format(0),
        bench.format(0),
        bench.format(-3798),
        strided,
        "./rocblas-bench -f axpy -r f32_r -n 4096 --alpha 1 --incx 1 --incy 1",
        "./rocblas-bench -f gemm_ex --transposeA T --transposeB N -m",
        record.format(16),
        '{ rocblas_function: "rocblas_dgemv", transA: "C", M: 1, N: 1, lda: 0, incx: 1, incy: 0, call_count: 4 }',
        '- { rocblas_function: "rocblas_gemm_ex", transA: "T", transB: "N", M: 64',
        "transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index",
        "T,N,64,8192,1,4096,1,0,4096,4096,64,bf16_r,bf16_r,f32_r,3788",
        "N,T,104,104,1024,64,1,0,104,64,104,6656,6656,10816,f32_r,f32_r,f32_r,3976",
        "N,T,104,104,1024,64,1,0,104,64,104,f32_r,f32_r,3976",
        "done",
    ]
    write("tables", "rocblas.log", log)
    spreadsheet = [
        "model,trans_a,trans_b,m,n,k,batch_count,a_type,library,solution,time_us,calls",
        "llama,T,N,64,8192,4096,1,bf16_r,hipblaslt,104377,23.6,",
        "llama,T,N,64.0,8192,4096,1,bf16_r,torch,Default,92.4,16",
        "llama,T,N,12288,8192,4096,1,bf16_r,,,,8",
        "llama,X,N,12288,8192,4096,1,bf16_r,,,,8",
        "llama,T,N,12288,8192,4096,1,bf16_r,hipblaslt,1,,",
    ]
    write("tables", "spreadsheet.csv", spreadsheet)
    transformer_engine()


def transformer_engine() -> None:
    first, last = "dev_cap,m,n,k,trans_a,trans_b,type_a,type_b,type_d,bias_type", "ws_min,ws_max,algo_id,aidx"
    small, wide = "bfloat16,bfloat16,bfloat16", "float8e4m3,float8e4m3,bfloat16"
    cache = [
        f"{first},lda,ldb,ldd,epi,comp,scale,{last}",
        f"904,12288,8192,4096,T,N,{small},-,4096,4096,12288,-,f32,float32,0,67108864,104377,3",
        f"904,4096,8192,4096,T,N,{wide},float32,4096,4096,4096,-,f32,float32,1048576,67108864,349458,0",
        f"904,16384,8192,4096,T,N,{small},-,4096,4096,16384,geluauxbias,f32,float32,0,67108864,104378,12",
        f"904,4096,4096,8192,N,T,{small},-,4096,4096,4096,bgradb,f32,float32,0,67108864,104379,1",
        "# rows of two workspaces",
        f"904,12288,8192,4096,T,N,{small},-,4096,4096,12288,-,f32,float32,67108865,134217728,104380,0",
        f"904,12288,8192,4096,T,N,{small},-,4096,4096,12288,-,f32,float32,0,33554432,104381,0",
        f"905,4096,8192,4096,T,N,{wide},float32,4096,4096,4096,-,f32,float32,0,67108864,349458,30",
        f"904,4096,8192,4096,T,N,{small},-,4096,4096,4096,-,f32,float32,67108864,0,104382,0",
        f"904,4096,8192,4096,T,N,{small},-,4096,4096,4096,swish,f32,float32,0,67108864,104383,0",
    ]
    write("tables", "te_hipblaslt_cache.csv", cache)
    log = [
        "Loading autotune results from /home/you/te_hipblaslt_cache.csv",
        "[WARNING] Duplicated/overlapped entry in algo cache",
        "[INFO] Use hipBLASLt algo [3] 104377",
        "[WARNING] Cannot find cached algoId 104378 in hipBLASLt results",
        "step 1: loss 10.31",
    ]
    write("tables", "te_hipblaslt.log", log)


def write(folder: str, name: str, lines: list[str] | str, end: str = "\n", bom: bool = False) -> None:
    text = lines if isinstance(lines, str) else "".join(line + end for line in lines)
    path = HERE / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())


def main() -> None:
    write("tunableop", "tunableop_results0.csv", results())
    old = [
        "GemmTunableOp_BFloat16_TN,tn_8192_2_3584,Gemm_Hipblaslt_TN_572,0.0240676",
        "GemmAndBiasTunableOp_Half_NT,nt_768_2048_3072,Gemm_Hipblaslt_NT_481,0.0359019",
        "GemmStridedBatchedTunableOp_float_NN,nn_64_512_512_B_48,Gemm_Rocblas_16092,0.0825023",
    ]
    write("tunableop", "torch2.5/tunableop_results0.csv", [*ROCM_25, *old])
    write("tunableop", "cuda/tunableop_results0.csv", blas_log())
    write("tunableop", "cuda/tunableop_results1.csv", cublaslt())
    write("tunableop", "empty/tunableop_results0.csv", [])
    write("tunableop", "tunableop_untuned0.csv", [key(*shape) for *shape, _, _, _ in JOB])
    write("tunableop", "tunableop_verbose.log", verbose())
    write("tunableop", "damaged/tunableop_verbose_cut.log", verbose_cut())
    write("tunableop", "torch2.3/tunableop_verbose.log", verbose_23())
    write("tunableop", "damaged/tunableop_results0.csv", damaged())
    write("tunableop", "damaged/tunableop_results_crlf0.csv", results()[:9], end="\r\n")
    write("tunableop", "damaged/tunableop_results_bom0.csv", results()[:9], bom=True)
    tables()


if __name__ == "__main__":
    main()
