"""Fused-MoE tables and the lines about them: real and invented ones, damage."""

from __future__ import annotations

import json
from collections import Counter

from logparse.formats.format import Head, Outcome
from logparse.formats.moe import config as moe_config
from logparse.ingest import ingest
from logparse.model import Fact, Message
from logparse.store import Store
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.reading import Memory, from_file, head, outcomes, records

FOLDER = SAMPLES / "moe"
NAME = "E=64,N=1408,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8"

OTHER = "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3"


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
    # two warnings are broken over two lines: the first half names no table
    assert len([one for one in found if not one[0]]) == 2


def test_tables_and_lines_of_flydsl() -> None:
    """vLLM's other backend for fused MoE: a table that was used was counted as missing."""
    name = "E=384,N=256,device_name=AMD_Instinct_MI350X,dtype=int4_w4a16,backend=flydsl"
    used = f"INFO [fused_flydsl_moe.py:99] Using tuned FlyDSL MoE config from /vllm/configs/{name}.json"
    missed = "WARNING Using default FlyDSL MoE config. Performance might be sub-optimal! Config file not found at "
    assert named(lines(f"{used}\n{missed}/vllm/configs/{name}.json")) == [(name, "found"), (name, "not found")]
    table = json.dumps({"1": {"tile_m": 16, "tile_n": 64}, "2": {"tile_m": 16, "tile_n": 128}}, indent=4).encode()
    assert moe_config.recognise(Head(f"{name}.json", table))
    found = outcomes(moe_config.TABLE, Memory(table, f"{name}.json"))
    assert named(found) == [(name, "M=1: tile_m=16 tile_n=64"), (name, "M=2: tile_m=16 tile_n=128")]


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


def test_a_table_is_its_entries() -> None:
    source = from_file(FOLDER / f"{NAME}.json")
    assert moe_config.recognise(head(source))
    found = outcomes(moe_config.TABLE, source)
    assert Counter(outcome.unit for outcome in found for _ in range(outcome.lines)) == {
        "fact": 1,
        "message": 3,
        "reject": 2,
    }
    kept = records(found)
    assert Fact("device", "AMD Instinct MI300X") in kept
    assert Fact("triton_version", "3.4.0") in kept
    assert [r.text.split()[:2] for r in kept if isinstance(r, Message)] == [
        ["M=1:", "BLOCK_SIZE_M=16"],
        ["M=64:", "BLOCK_SIZE_M=32"],
        ["M=4096:", "BLOCK_SIZE_M=128"],
    ]


def test_missing_tables_stand_beside_those_that_there_are(store: Store) -> None:
    ingest([str(FOLDER)], store, run="server")
    found = store.query(
        "select function, text, count from messages where category = 'moe-config' and text in ('not found', 'found')"
        " order by all"
    )
    have = set(store.query("select function from messages where text like 'M=%'")["function"])
    missing = found[(found["text"] == "not found") & ~found["function"].isin(have)]
    assert have == {NAME, OTHER}
    assert missing.iloc[0].tolist() == ["E=128,N=768,device_name=AMD_Instinct_MI300X", "not found", 2]
    by_process = store.query("select pid from process_messages where function like 'E=128,%' order by pid")
    assert by_process["pid"].tolist() == [4242, 4243]


def test_other_objects_are_left_alone() -> None:
    for data in (b"", b"[]", b'{"1": 2}', b'{"schemaVersion": 1}', b'{"1": {"a": 1}}', b'{"arch": "gfx942"}'):
        assert not moe_config.recognise(Head(f"{NAME}.json", data))


def test_a_cut_table_is_one_reject() -> None:
    data = (FOLDER / f"{NAME}.json").read_bytes()
    (outcome,) = outcomes(moe_config.TABLE, Memory(data[:200], f"{NAME}.json"))
    assert (outcome.unit, outcome.lines) == ("reject", 1)
