"""aiter's tables of fused MoE: which kernels run it for a number of tokens, and the shapes that are to be tuned.

::

    cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,
        block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag       (tuned, one line)
    token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1  (untuned)

Produced by ``csrc/ck_gemm_moe_2stages_codegen/gemm_moe_tune.py`` and shipped in ``aiter/configs`` (``tuned_fmoe.csv``);
newer ones begin with ``gfx``.  Fused MoE is no single product, so a row is neither problem nor measurement but a
message: category ``aiter``, function ``fused_moe_table``, its text the key and, of a tuned row, kernels and time (µs).
Source: ROCm/aiter aiter/fused_moe.py, aiter/configs/.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from logparse.formats.aiter.log import CATEGORY
from logparse.formats.format import FileFormat, Head, Outcome, Source
from logparse.model import Fact, Message, Reject

TABLE = "fused_moe_table"
KEY = ("token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type")
_BITS = ("use_g1u1", "doweight_stage1")
_RUN = ("block_m", "ksplit", "kernelName1", "kernelName2", "us")
_FACTS = {"gfx": "arch", "cu_num": "cu_count"}
_LONGEST = 4000


def recognise(head: Head) -> bool:
    """A first line that names the sizes of fused MoE."""
    return set(KEY) <= set(_cells(head.data.split(b"\n", 1)[0].decode("utf-8", "replace")))


def read(source: Source) -> Iterator[Outcome]:
    """The header as a fact, each row as a message or reject; where the rows were made comes last."""
    columns: list[str] = []
    seen: dict[str, set[str]] = {name: set() for name in _FACTS}
    for line in source.lines():
        text = line.text.rstrip("\r")
        if not text.strip():
            yield Outcome("blank")
        elif not columns:
            columns = _cells(text)
            yield Outcome("fact", [Fact("columns", ",".join(columns))])
        else:
            row = dict(zip(columns, _cells(text), strict=False))
            if not all(row.get(name, "").isdecimal() for name in KEY[:5]) or len(row) < len(KEY):
                reason = "aiter: a row of fused MoE without its sizes or types"
                yield Outcome("reject", [Reject(reason, 0, len(line.text.encode()))], at=line.offset)
                continue
            for name in seen:
                seen[name] |= {row[name]} if row.get(name) else set()
            shown = " ".join(f"{name}={row[name]}" for name in (*KEY, *_BITS, *_RUN) if row.get(name))
            yield Outcome(
                "message", [Message(category=CATEGORY, function=TABLE, text=shown[:_LONGEST])], at=line.offset
            )
    # One file may hold rows of several devices: the fact then names all of them and equals no target.
    facts = [Fact(ours, " ".join(sorted(seen[name]))) for name, ours in _FACTS.items() if seen[name]]
    yield Outcome("fact", facts, lines=0)


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line.removeprefix("\ufeff").strip()]), [])]
    except csv.Error:
        return []


FORMAT = FileFormat(
    name="aiter-moe",
    about="aiter's tables of fused MoE, tuned and untuned (tuned_fmoe.csv)",
    recognise=recognise,
    read=read,
)
