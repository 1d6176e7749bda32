"""Tests of reading tables of kernels for fused MoE layers, and a server's log lines about these tables.

The tables and lines are real, made up, or damaged.
"""

from __future__ import annotations

import json
from collections import Counter

from logparse.libraries.kinds.format import Head, Outcome
from logparse.libraries.moe import config as moe_config
from logparse.model import Message
from tests.conftest import CORPUS, SAMPLES, needs_corpus

FOLDER = SAMPLES / "moe"
NAME = "E=64,N=1408,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8"


def lines(text: str) -> list[Outcome]:
    return [moe_config.read_line(line) for line in text.splitlines()]


def named(found: list[Outcome]) -> list[tuple[str, str]]:
    return [(r.function, r.text) for outcome in found for r in outcome.records if isinstance(r, Message)]


@needs_corpus
def test_lines_that_users_posted() -> None:
    found = named(lines((CORPUS / "field" / "vllm-moe" / "warnings.txt").read_text()))
    assert [one for one in found if one[0]] == [
        ("E=16,N=1536,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128]", "not found"),
        ("E=128,N=1024,device_name=AMD_Instinct_MI325X,dtype=fp8_w8a8", "not found"),
        ("E=384,N=256,device_name=AMD_Instinct_MI350X_VF,dtype=int4_w4a16", "not found"),
    ]
    # Two warnings are broken over two lines: the first half names no table.
    assert len([one for one in found if not one[0]]) == 2


def test_tables_and_lines_of_flydsl() -> None:
    """Tables of FlyDSL, another backend of vLLM for fused MoE, are read, and so are the log lines about them.

    In an earlier version, such a table was reported as missing although the server used it.
    """
    name = "E=384,N=256,device_name=AMD_Instinct_MI350X,dtype=int4_w4a16,backend=flydsl"
    used = f"INFO [fused_flydsl_moe.py:99] Using tuned FlyDSL MoE config from /vllm/configs/{name}.json"
    missed = "WARNING Using default FlyDSL MoE config. Performance might be sub-optimal! Config file not found at "
    assert named(lines(f"{used}\n{missed}/vllm/configs/{name}.json")) == [(name, "found"), (name, "not found")]
    table = json.dumps({"1": {"tile_m": 16, "tile_n": 64}, "2": {"tile_m": 16, "tile_n": 128}}, indent=4).encode()
    assert moe_config.recognise(Head(f"{name}.json", table))


def test_every_line_of_the_sample() -> None:
    found = lines((FOLDER / "server.log").read_text())
    assert Counter(outcome.unit for outcome in found) == {"message": 8, "foreign": 2}
    block = "E=257,N=256,device_name=AMD_Instinct_MI355X,dtype=fp8_w8a8,block_shape=[128,128]"
    assert named(found) == [
        ("E=128,N=768,device_name=AMD_Instinct_MI300X", "not found"),
        ("E=128,N=768,device_name=AMD_Instinct_MI300X", "not found"),
        (NAME, "found"),
        ("N=4096,K=1024,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128]", "not found"),
        ("", "Using default MoE config. Performance might be sub-optimal!"),
        (block, "not found"),
        ("E=257,N=256,device_name=AMD_Instinct_MI355X", "fallback"),
        (f"{block}_down", "found"),
    ]


def test_other_objects_are_left_alone() -> None:
    for data in (b"", b"[]", b'{"1": 2}', b'{"schemaVersion": 1}', b'{"1": {"a": 1}}', b'{"arch": "gfx942"}'):
        assert not moe_config.recognise(Head(f"{NAME}.json", data))
