"""Find attention that is written out as matrix products and a softmax instead of one fused kernel.

Its scores (N×N values for N tokens) then go to memory and come back several times. A softmax that takes a notable part
of the GPU time nearly always belongs to attention. PyTorch's ``scaled_dot_product_attention`` computes attention in
tiles (FlashAttention, Dao et al. 2022, and CK's on AMD), so the scores never leave the chip. The stated gain is at most
the time of the softmax, because only a measurement shows what the products gain. The softmax over a vocabulary at the
end of a model (``log_softmax``) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from analyzers.job.gpu_time import SOFTMAX, gpu_time
from logparse.model import Advise, Evidence, Finding
from logparse.text import duration

NAME = "unfused-attention"
ADVICE = (
    "Call torch.nn.functional.scaled_dot_product_attention instead of the matrix products and the softmax "
    "(attn_implementation='sdpa' in Transformers). It supports masks, dropout and grouped heads (enable_gqa)."
)
_LEAST = 0.05
"""Softmax kernels are reported if they take at least this fraction (0 to 1) of the time of all kernels."""


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Return one finding if softmax kernels outside attention take at least the fraction ``_LEAST`` of kernel time."""
    time = gpu_time(tables, settings.steps)
    part = next((x for x in time.parts if x.name == SOFTMAX), None) if time else None
    if time is None or part is None or part.us < _LEAST * time.kernels_us:
        return []
    steps, each = (time.steps, f" per {time.word}") if time.steps else (1.0, "")
    return [
        Finding(
            analyzer=NAME,
            message=(
                f"softmax takes {duration(part.us / steps)} of {duration(time.kernels_us / steps)} of kernel "
                f"time{each} ({part.us / time.kernels_us:.0%}) in {part.kernels / steps:,.0f} kernels of its own, so "
                "attention is not fused and its scores go through memory"
            ),
            evidence=Evidence(at_most_us=part.us, details={"softmax_us": part.us, "kernels_us": time.kernels_us}),
            remedy=Advise("use scaled_dot_product_attention", "change the program"),
            advice=ADVICE,
        )
    ]


ANALYZER = Analyzer(
    name=NAME,
    about="attention whose softmax runs in kernels of its own, which take 5 % of the kernel time or more (in traces)",
    worth="unknown, because the time of the matrix products around the softmax changes too",
    find=find,
)
