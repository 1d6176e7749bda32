"""Write the sample files in ``sample_logs/moe/``. Run it from any folder; the files are always the same.

The samples are tables of fused-MoE kernels, log lines about such tables, and FlashInfer's chosen kernels. The script
follows the source code of the programs that write such files (see the folder's README). Nothing of logparse is
imported, so that a mistake in logparse's reader cannot be in the samples, too.
"""

from __future__ import annotations

import json
from pathlib import Path

OUT = Path(__file__).parent / "moe"
TABLE = "E=64,N=1408,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8"
CLEAN = "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3"
FOLDER = "/opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/fused_moe/configs"


def tile(m: int, n: int, k: int, group: int, warps: int) -> dict[str, object]:
    """Return the kernel settings in one entry of a table."""
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    return dict(zip(names, (m, n, k, group, warps, 2), strict=True))


def table() -> dict[str, object]:
    """Return a table of fused-MoE kernels in which two entries cannot be read."""
    return {
        "triton_version": "3.4.0",
        "1": tile(16, 32, 64, 1, 4),
        "64": tile(32, 64, 128, 1, 4),
        "4096": tile(128, 128, 64, 8, 8) | {"waves_per_eu": 0, "matrix_instr_nonkdim": 16, "SPLIT_K": 1},
        "many": tile(16, 16, 64, 1, 4),
        "8192": [128, 128],
    }


def clean() -> dict[str, object]:
    """Return a table of fused-MoE kernels for another machine, exactly as the tuning program writes it."""
    return {str(m): tile(16 if m < 64 else 64, 64, 128, 1 if m < 64 else 16, 4) for m in (1, 16, 64, 1024)}


def tactics() -> dict[str, object]:
    """Return a file of the kernels that FlashInfer's autotuner chose. One entry is from another program."""
    gemm = "('fp4_gemm', 'CutlassFp4GemmRunner', (({m}, 1536), (1536, 4096), (-1, 192), ()), ())"
    moe = "('flashinfer::trtllm_fp4_block_scale_moe', 'MoERunner', (({m}, 1536), ({m}, 8)), ())"
    return {
        "_metadata": {
            "flashinfer_version": "0.6.13",
            "cuda_version": "13.0",
            "cudnn_version": "unknown",
            "gpu": "NVIDIA B200",
        },
        **{gemm.format(m=m): ["CutlassFp4GemmRunner", tactic] for m, tactic in ((1, 4), (64, -1))},
        **{moe.format(m=m): ["MoERunner", tactic] for m, tactic in ((1, [8, 52]), (64, [64, 1]))},
        "('mm_bf16', 'CublasRunner', ((1, 2),), (torch.bfloat16,))": [3],
        "_generation": "5f0c",
    }


def server() -> list[str]:
    """Return log lines of the worker processes of vLLM, then of SGLang."""
    default = "Using default MoE config. Performance might be sub-optimal!"
    sglang = "/opt/sglang/configs/triton_3_6_0/E=257,N=256,device_name=AMD_Instinct_MI355X"
    block = "dtype=fp8_w8a8,block_shape=[128, 128]"
    return [
        f"(Worker_TP0 pid=4242) WARNING 11-22 09:15:00 [fused_moe.py:1071] {default} Config file not found at"
        f" {FOLDER}/E=128,N=768,device_name=AMD_Instinct_MI300X.json",
        f"(Worker_TP1 pid=4243) WARNING 11-22 09:15:00 [fused_moe.py:1071] {default} Config file not found at"
        f" ['{FOLDER}/E=128,N=768,device_name=AMD_Instinct_MI300X.json']",
        f"(Worker_TP0 pid=4242) INFO 11-22 09:15:01 [fused_moe.py:1051] Using configuration from {FOLDER}/{TABLE}.json"
        " for MoE layer.",
        "WARNING 11-22 09:15:02 [fp8_utils.py:581] Using default W8A8 Block FP8 kernel config. Performance might be"
        " sub-optimal! Config file not found at /x/N=4096,K=1024,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,"
        "block_shape=[128,128].json",
        f"WARNING [fused_moe.py:886] {default}",
        "INFO 11-22 09:15:03 [loggers.py:116] Engine 000: Avg generation throughput: 341.0 tokens/s",
        f"[2026-11-22 09:16:00 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file not"
        f" found at {sglang},{block}.json, you can create them with the tuner",
        f"[2026-11-22 09:16:01 TP0] Config file not found at {sglang}.json. Fallback to triton version 3.4.0 and use"
        f" MoE kernel config from {sglang.replace('3_6', '3_4')}.json. Performance might be sub-optimal!",
        f"[2026-11-22 09:16:02 TP0] Using MoE kernel config from {sglang},{block}_down.json.",
        "probe(kind=1,device_name=None)",
    ]


def main() -> None:
    """Write all sample files."""
    OUT.mkdir(exist_ok=True)
    for name, entries in ((TABLE, table()), (CLEAN, clean())):
        (OUT / f"{name}.json").write_text(json.dumps(entries, indent=4) + "\n", encoding="utf-8", newline="")
    (OUT / "autotune_configs.json").write_text(json.dumps(tactics(), indent=2), encoding="utf-8", newline="")
    (OUT / "server.log").write_text("".join(f"{line}\n" for line in server()), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
