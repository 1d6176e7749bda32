"""Makes ``sample_logs/inductor/``: run it from anywhere, the files are always the same.

It writes what torch.compile prints while it autotunes, from the writer's source (see the folder's README), and imports
nothing of logparse or PyTorch, so that the samples are evidence independent of the reader.
"""

from __future__ import annotations

import json
from pathlib import Path

OUT = Path(__file__).parent / "inductor"
LOGGED = "E1122 09:15:02.125000 4242 torch/_inductor/select_algorithm.py:3541] [0/0] "
Row = tuple[str, str, float]
"""Name, description and milliseconds."""


def triton(number: int, m: int, n: int, k: int, warps: int, template: str = "mm") -> tuple[str, str]:
    """Name and description of a Triton choice."""
    words = {"ACC_TYPE": "'tl.float32'", "ALLOW_TF32": False, "BLOCK_K": k, "BLOCK_M": m, "BLOCK_N": n, "EVEN_K": True}
    words |= {"GROUP_M": 8, "num_stages": 2, "num_warps": warps}
    return f"triton_{template}_{number}", ", ".join(f"{name}={value}" for name, value in words.items())


def table(title: str, strides: str, types: str, rows: list[Row], choices: int) -> list[str]:
    """A table of torch 2.6 and later."""
    best = rows[0][2]
    return [
        f"AUTOTUNE {title}",
        f"strides: {strides}",
        f"dtypes: {types}",
        *(f"  {name} {ms:.4f} ms {best / ms:.1%} {description}" for name, description, ms in rows),
        "SingleProcess AUTOTUNE benchmarking takes 0.7741 seconds and 0.3199 seconds precompiling"
        f" for {choices} choices",
    ]


def stats(rows: list[Row], choices: int) -> list[str]:
    """The statistics that stand before a table from torch 2.8 on; times have more digits there."""
    name, description, ms = rows[0]
    values = {"num_choices": choices, "num_triton_choices": choices - 1, "best_kernel": name}
    values |= {"best_kernel_desc": description} if description else {}
    return ["Autotune Choices Stats:", json.dumps(values | {"best_time": ms + 0.000012})]


def job() -> list[str]:
    """A linear layer, its gradient, a convolution, attention and a product of 8-bit floats."""
    bf16, half, f8 = "torch.bfloat16", "torch.float16", "torch.float8_e4m3fnuz"
    forward: list[Row] = [
        (*triton(4, 128, 128, 64, 8), 0.0412), ("bias_addmm", "", 0.0455), (*triton(2, 64, 128, 64, 4), 0.0488),
        ("addmm", "", 0.0531),
    ]  # fmt: skip
    failed = triton(0, 256, 256, 128, 8)[1]
    out = [
        "step 0 begins",
        f"{LOGGED}Exception out of resource: shared memory, Required: 131072, Hardware limit: 65536 for benchmark"
        f" choice TritonTemplateCaller(/tmp/torchinductor_me/ab/cab.py, {failed})",
        f"{LOGGED}Traceback (most recent call last):",
        *stats(forward, 12),
        *table(
            "addmm(4096x3072, 4096x768, 768x3072)", "[0, 1], [768, 1], [1, 768]", ", ".join([bf16] * 3), forward, 12
        ),
    ]
    gradient: list[Row] = [("mm", "", 0.0390), (*triton(9, 64, 64, 64, 4), 0.0471)]
    inf = triton(8, 256, 64, 64, 4)
    rows = table("mm(768x4096, 4096x3072)", "[1, 768], [3072, 1]", ", ".join([bf16] * 2), gradient, 12)
    out += [*stats(gradient, 12), *rows[:5], f"  {inf[0]} inf ms 0.0% {inf[1]}", rows[5]]
    kernel = (
        "ALLOW_TF32=False, BLOCK_K=32, BLOCK_M=64, BLOCK_N=64, GROUPS=1, KERNEL_H=3, KERNEL_W=3, PADDING_H=1,"
        " PADDING_W=1, STRIDE_H=2, STRIDE_W=2, UNROLL=False, num_stages=2, num_warps=4"
    )
    image: list[Row] = [("convolution", "", 0.0201), ("triton_convolution2d_12", kernel, 0.0339)]
    out += table(
        "convolution(32x64x56x56, 128x64x3x3)", "[200704, 3136, 56, 1], [576, 9, 3, 1]", f"{half}, {half}", image, 5
    )
    out += table(
        "convolution(8x16x20x20, 32x16x3x3)", "[16*s1*s2, s1*s2, s2, 1], [144, 9, 3, 1]", f"{half}, {half}",
        [("triton_convolution2d_15", kernel, 0.0101)], 5,
    )  # fmt: skip
    heads: list[Row] = [("bmm", "", 0.0123), (*triton(20, 64, 32, 32, 4, "bmm"), 0.0150)]
    out += table("bmm(96x128x64, 96x64x128)", "[8192, 64, 1], [8192, 1, 64]", f"{half}, {half}", heads, 9)
    attention: list[Row] = [("triton_flex_attention_30", "BLOCK_M=128, BLOCK_N=64, num_stages=1, num_warps=4", 0.1201)]
    out += table("flex_attention(2x8x512x64, 2x8x512x64)", "[1], [1]", f"{half}, {half}", attention, 4)
    eight: list[Row] = [("_scaled_mm", "", 0.0310), (*triton(41, 64, 64, 128, 4, "scaled_mm"), 0.0331)]
    out += table(
        "scaled_mm(512x4096, 4096x1280, 512x1, 1x1280)", "[4096, 1], [1, 4096], [1, 1], [1280, 1]",
        f"{f8}, {f8}, torch.float32, torch.float32", eight, 8,
    )  # fmt: skip
    return [*out, "step 1 begins"]


def composable_kernel() -> list[str]:
    """TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS=ATEN,TRITON,CK on ROCm: CK's choices have no description."""
    rows: list[Row] = [
        ("rocm_ck_gemm_template_7", "", 0.0820),
        ("mm", "", 0.0900),
        (*triton(3, 128, 64, 64, 4), 0.0950),
    ]
    return table("mm(2048x4096, 4096x4096)", "[4096, 1], [1, 4096]", "torch.bfloat16, torch.bfloat16", rows, 20)


def cutlass() -> list[str]:
    """The same with CUTLASS, of two ranks whose lines are mixed, and the second table cut off."""
    name = "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x256x64_2x1x1_0_tnt_align8"
    rows: list[Row] = [
        ("cutlass_1a5e81af", f"{name} swizzle=1", 0.0512),
        ("cutlass_1a5e81af", f"{name} swizzle=4", 0.0518),
    ]
    one = table("mm(1024x2048, 2048x512)", "[2048, 1], [1, 2048]", "torch.bfloat16, torch.bfloat16", rows, 30)
    two = table("mm(64x2048, 2048x512)", "[2048, 1], [1, 2048]", "torch.bfloat16, torch.bfloat16", rows, 30)[:-1]
    mixed = [
        line for pair in zip(one, [*two, ""], strict=True) for line in (f"[rank0]: {pair[0]}", f"[rank1]: {pair[1]}")
    ]
    return mixed[:-1]


def first() -> list[str]:
    """Torch 2.0: neither strides nor types, rows without a configuration, an operator of two products."""
    return [
        "AUTOTUNE mm(512x768, 768x3072)",
        "  mm 0.0148 ms 100.0%",
        "  triton_mm_8 0.0154 ms 96.5%",
        "SingleProcess AUTOTUNE takes 5.1835 seconds",
        "AUTOTUNE bmm(12x512x64, 12x64x512)",
        "  triton_bmm_30 0.0091 ms 100.0%",
        "SubProcess AUTOTUNE takes 4.7125 seconds",
        "AUTOTUNE mm_plus_mm(64x64, 64x64, 64x64, 64x64)",
        "  _mm_plus_mm 0.0100 ms 100.0%",
        "SingleProcess AUTOTUNE takes 1.0000 seconds",
        "AUTOTUNE mm(512xs0, 768x3072)",
        "Autotune Choices Stats:",
        '{"num_choices": 2, "best_kernel": "mm',
    ]


def main() -> None:
    """Write all files."""
    OUT.mkdir(exist_ok=True)
    files = {
        "torch_2.11.log": job(), "rocm_ck.log": composable_kernel(), "cutlass_two_ranks.log": cutlass(),
        "torch_2.0.log": first(),
    }  # fmt: skip
    for name, lines in files.items():
        (OUT / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
