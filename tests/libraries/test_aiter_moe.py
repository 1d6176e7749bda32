"""Tests of reading aiter's tables of fused-MoE kernels, and its table of shapes without a tuned row."""

from __future__ import annotations

from collections import Counter

import pytest

from logparse.ingest import ingest
from logparse.libraries.aiter import log as aiter_log
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.kinds.format import Head
from logparse.model import Message
from logparse.store import Store
from tests.conftest import SAMPLES
from tests.libraries.reading import facts, from_file, head, outcomes, records_of, units

TUNED, UNTUNED = (SAMPLES / "aiter" / x for x in ("tuned_fmoe.csv", "untuned_fmoe.csv"))


def test_a_tuned_table() -> None:
    source = from_file(TUNED)
    assert aiter.FORMAT.recognise(head(source))
    found = outcomes(aiter.FORMAT, source)
    assert units(found) == Counter({"message": 2, "fact": 1, "reject": 1})
    text = records_of(found, Message)[1].text
    assert text.startswith("token=512 model_dim=5120 inter_dim=1536 expert=16 topk=4 act_type=ActivationType.Silu ")
    assert text.endswith("block_m=64 ksplit=0 kernelName1=moe_gemm1_64x64 kernelName2=moe_gemm2_64x128 us=20.75")
    known = facts(found)
    assert (known["arch"], known["cu_count"]) == ("gfx942", "304")


def test_an_untuned_table(store: Store) -> None:
    [result] = ingest([str(UNTUNED)], store)
    assert (result.format, result.units["message"], result.units["reject"]) == ("aiter", 1, 0)


def test_a_table_without_all_sizes_is_none() -> None:
    assert not aiter.FORMAT.recognise(Head("x.csv", b"token,model_dim\n1,2\n"))


SIZES = "7168, 256, 257, 9"
TYPES = "'torch.bfloat16', 'torch.float8_e4m3fn', 'torch.{}', 'QuantType.per_1x128', True, False"
ROW = "512,7168,256,257,9,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,{},QuantType.per_1x128,1,0"


@pytest.mark.parametrize("device", ["", "80, ", "'gfx950', 256, "])
@pytest.mark.parametrize("activation", ["'ActivationType.Silu'", "<ActivationType.Silu: 0>", "ActivationType.Silu"])
def test_what_ran_by_default_is_to_be_tuned(device: str, activation: str) -> None:
    line = f"[fused_moe] using 2stage default for ({device}512, {SIZES}, {activation}, {TYPES}) "
    made = aiter_log.write_untuned_shapes(
        [line.format("float8_e4m3fn"), line.format("float8_e4m3fn"), line.format("uint32")]
    ).files
    [file] = made
    heading, *rows = file.data.decode().splitlines()
    assert file.name == "untuned_fmoe.csv"
    assert rows == [ROW.format("torch.float8_e4m3fn"), ROW.format("torch.int4")], "as aiter writes it while it tunes"
    assert len(heading.split(",")) == len(rows[0].split(","))
    assert aiter.FORMAT.recognise(Head(file.name, file.data))
    assert "gemm_moe_tune.py -i {path} -o {folder}/tuned_fmoe.csv" in file.use


@pytest.mark.parametrize(
    "text",
    [
        "[fused_moe] using 2stage (kernelName1='a', kernelName2='b') for ('gfx950', 256, 64, 7168, 2048, 128, 8)",
        "[fused_moe] using 2stage default for ('gfx942', 304, 256, 7168, 256, 257, 9, 'Silu')",
        "[fused_moe] using ck_moe_2stages for ('bf16', 'bf16', 128, 8, 1, 0, 0)",
    ],
)
def test_of_a_tuned_or_unfinished_key_nothing_is_written(text: str) -> None:
    assert aiter_log.write_untuned_shapes([text]).files == []
