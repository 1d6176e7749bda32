"""Write the sample logs in ``sample_logs/aiter/``. Run it from any folder; the files are always the same.

The log lines are made from aiter's source code (see the folder's README). Nothing of logparse is imported, so that a
mistake in logparse's reader cannot be in the samples, too.
"""

from __future__ import annotations

from pathlib import Path

OUT = Path(__file__).parent / "aiter"
CONFIGS = "/tmp/aiter_configs"
BF16 = "torch.bfloat16"


def bf16(m: int, n: int, k: int, otype: str = BF16, bias: bool = False) -> str:
    """Return the beginning of an aiter log line about a 16-bit matrix product, as ``tuned_gemm.py`` prints it."""
    return (
        f"[aiter] shape is M:{m}, N:{n}, K:{k} dtype='{BF16}' otype='{otype}' bias={bias}, scaleAB=False,"
        " bpreshuffle=False"
    )


def miss(shape: str, table: str, used: str = "") -> str:
    """Return the log line that aiter prints if a tuned table has no kernel for a shape."""
    return f"{shape}, not found tuned config in {CONFIGS}/{table}_tuned_gemm.csv, will use default config!{used}"


def hit(m: int, padded: int, n: int, k: int, kernel: str) -> str:
    """Return the log line that aiter prints if its 16-bit table has a kernel for a shape.

    aiter prints it only with AITER_LOG_TUNED_CONFIG=1.
    """
    return (
        f"{bf16(m, n, k)} found padded_M: {padded}, N:{n}, K:{k} is tuned on cu_num = 304 in"
        f" {CONFIGS}/bf16_tuned_gemm.csv, {kernel}"
    )


def server() -> list[str]:
    """Return the log lines of an inference server with two worker processes that use aiter."""
    one, two = "(Worker_TP0_EP0 pid=4242) ", "(Worker_TP1_EP1 pid=4243) "
    scaled = "[aiter] shape is M:{}, N:1536, K:7168"
    torch = " using torch solution:0"
    quantised = "[aiter] shape is M:64, N:9216, K:3584, q_dtype_w:torch.int8"
    return [
        "INFO 11-22 09:15:00 [core.py:58] Initializing a V1 LLM engine",
        f"[aiter] merge tuned file under model_configs/ and configs/ {CONFIGS}/bf16_tuned_gemm.csv:/srv/mine.csv",
        "[aiter] import [module_gemm_common] under /opt/aiter/jit/module_gemm_common.so",
        "[aiter] [pid=4242 pname=Worker_TP0] start build [module_moe] under /opt/aiter/jit/build/module_moe",
        one + miss(bf16(256, 7168, 2048), "bf16", torch),
        two + miss(bf16(256, 7168, 2048), "bf16", torch),
        one + miss(bf16(1, 129280, 7168, "torch.float32", bias=True), "bf16", " using skinny solution:2"),
        one + miss(scaled.format(8192), "a8w8_blockscale"),
        two + miss(scaled.format(8192), "a8w8_blockscale"),
        two + miss(scaled.format(16), "a8w8_blockscale"),
        one + miss(quantised, "a8w8"),
        one + hit(300, 512, 7168, 2048, "libtype is opus, kernel name is opus_gemm_256x128"),
        two + hit(7, 8, 512, 7168, "libtype is hipblaslt, kernel name is "),
        f"shape is M:512, N:9216, K:3072, found padded_M: 512, N:9216, K:3072 is tuned on cu_num = 304 in {CONFIGS}/"
        "a4w4_blockscale_tuned_gemm.csv, kernel name is _ZN5aiter_f4gemm_256x256E, splitK is 2!",
        f"[aiter] shape is B:16, M:128, N:512, K:128, is tuned on cu_num = 304 in {CONFIGS}/"
        "a8w8_tuned_batched_gemm.csv, kernel name is a8w8_batched_256x64x64x128, splitK is 0!",
        f"[aiter] shape M:32, N:7168, K:2304 q_dtype_w:torch.float8_e4m3fnuz, found padded_M: 32, N:7168, K:2304 is"
        f" tuned, in {CONFIGS}/a8w8_bpreshuffle_tuned_gemm.csv! libtype is ck! kernelName is a8w8_bp_7 (kernelId 7)!",
        "[aiter] shape is M:4, N:64, K:512, not found tuned config in CKGEMM or asmGEMM, will use default config!",
        one + "[aiter] [fused_moe] using 2stage default for ('gfx942', 304, 256, 7168, 256, 257, 9, 'Silu')",
        "[aiter] shape is M:40, N:1024, K:204",
        "[aiter] shape is M:40, N:1024, K:2048 dtype='torch.quint8' otype='torch.quint8' bias=False, scaleAB=False,"
        f" bpreshuffle=False, not found tuned config in {CONFIGS}/bf16_tuned_gemm.csv, will use default config!",
        "INFO 11-22 09:16:41 [loggers.py:116] Engine 000: Avg generation throughput: 341.0 tokens/s",
    ]  # fmt: skip


KEY = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"


def fused_moe() -> dict[str, list[str]]:
    """Return two tables for fused MoE: one of tuned kernels, whose last row is cut off, and one of shapes to tune."""
    fp8 = "torch.float8_e4m3fnuz"
    shape = f"5120,1536,16,4,ActivationType.Silu,{BF16},{fp8},{fp8},QuantType.per_Token,1,0"
    run = "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag"
    stages = "11.5,moe_gemm1_64x64,0.1%,9.25,moe_gemm2_64x128,0.2%,20.75,0,12.1,2400.5,"
    tuned = [f"304,{m},{shape},{block},0,{stages}" for m, block in ((1, 16), (512, 64))]
    return {
        "tuned_fmoe.csv": [f"gfx,cu_num,{KEY},{run}", *(f"gfx942,{row}" for row in tuned), "gfx942,304,1024,5120"],
        "untuned_fmoe.csv": [KEY, f"2048,{shape}"],
    }


def main() -> None:
    """Write all sample files."""
    OUT.mkdir(exist_ok=True)
    for name, lines in fused_moe().items():
        (OUT / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    (OUT / "server.log").write_text("".join(f"{line}\n" for line in server()), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
