"""Tests of tables of kernels for fused MoE layers: which tables a server uses, and what its log says about them.

The tests also check for which shapes logparse proposes tuning.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.compare.verify import verify
from analyzers.evidence.tables import Tables
from analyzers.overrides.coverage import coverage
from analyzers.overrides.coverage import lines as coverage_lines
from analyzers.overrides.lint import inspect
from analyzers.overrides.lint import lines as lint_lines
from analyzers.overrides.merge import merge
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.store import Store, open_store
from tests.conftest import SAMPLES

FOLDER = SAMPLES / "moe"
NAME = "E=64,N=1408,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8"
TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}
MI300X = {"device": "AMD Instinct MI300X"}


def inspect_members(members: object, name: str = NAME, target: dict[str, str] | None = None) -> OverrideFile:
    data = members if isinstance(members, str) else json.dumps(members, indent=1)
    return inspect(f"{name}.json", data.encode(), target or {}, "moe-config")


def rules(file: OverrideFile) -> list[tuple[int | None, str, str]]:
    """Return the remarks of ``logparse lint`` about a file, as tuples (line, severity, name of the broken rule).

    The files in these tests are so short that ``lint`` would always say that sizes are missing. This remark is left
    out.
    """
    return [(note.line, note.severity, note.rule) for note in file.notes if note.rule != "ladder"]


def test_a_good_table_is_taken_on_its_device_and_only_there() -> None:
    members = {"triton_version": "3.4.0", "1": TILE, "64": TILE | {"waves_per_eu": 0, "kpack": 2}}
    here, elsewhere, unknown = (
        inspect_members(members, target=x) for x in (MI300X, {"device": "AMD Instinct MI355X"}, {})
    )
    assert (here.accepted, rules(here), [row.line for row in here.rows]) == (True, [], [3, 11])
    assert (elsewhere.accepted, rules(elsewhere)) == (False, [(None, "error", "device")])
    assert (unknown.accepted, unknown.ok) == (None, True)
    assert inspect_members(members, target={"arch": "gfx942:sramecc+"}).accepted is None
    assert inspect_members(members, target={"arch": "gfx950"}).accepted is False
    assert "accepted if the target has the GPU that the file's name states" in lint_lines(unknown)[0]


@pytest.mark.parametrize(
    ("device", "target", "accepted", "noted"),
    [
        ("AMD_Instinct_MI300X", "AMD Instinct MI300X OAM", True, ["device"]),  # another spelling, which may miss
        ("NVIDIA_H200", "NVIDIA H200 NVL", True, []),  # vLLM has one name for them
        ("AMD_Radeon_R9700", "AMD Radeon R9700", True, []),
        ("AMD_Radeon_R9700", "AMD Radeon RX 7900", False, ["device"]),
    ],
)
def test_names_of_devices(device: str, target: str, accepted: bool, noted: list[str]) -> None:
    file = inspect_members({"1": TILE}, f"E=8,N=512,device_name={device}", {"device": target})
    assert (file.accepted, [rule for _, _, rule in rules(file)]) == (accepted, noted)


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ('{"1": {"BLOCK_SIZE_M": 16,', [(None, "error", "json")]),
        ("[1]", [(None, "error", "json")]),
        ("\ufeff" + json.dumps({"1": TILE}), [(None, "error", "json")]),  # a server's json.load refuses the mark
        ({}, [(None, "error", "empty")]),
        ({"many": TILE, "1": TILE}, [(2, "error", "keys")]),
        ({"1": TILE, "-4": TILE}, [(10, "error", "tokens")]),
        ({"1": [16, 16]}, [(2, "error", "tile")]),
        ({"1": {"BLOCK_SIZE_M": 16}}, [(2, "error", "tile")]),
        ({"1": TILE | {"BLOCK_SIZE_N": 48}}, [(2, "error", "size")]),
        ({"1": TILE | {"num_warps": 3}}, [(2, "error", "size")]),
        ({"1": TILE | {"num_stages": 0, "GROUP_SIZE_M": 6}}, []),
        ({"1": TILE | {"GROUP_SIZE_M": 0}}, [(2, "error", "size")]),
        ({"1": TILE | {"BLOCK_SIZE_M": "16"}}, [(2, "error", "size")]),
        ({"1": TILE | {"wavesPerEu": 2}}, [(2, "warning", "word")]),
        (f'{{"8": {json.dumps(TILE)},\n"08": {json.dumps(TILE)}}}', [(1, "warning", "duplicate")]),
        (
            f'{{"triton_version": "3.1",\n"triton_version": "3.4", "1": {json.dumps(TILE)}}}',
            [(1, "warning", "duplicate")],
        ),
        (f'{{"8":\n{json.dumps(TILE)[:-1]}, "num_warps": 8}}}}', [(1, "warning", "repeated")]),
    ],
)
def test_rules(members: object, wanted: list[tuple[int | None, str, str]]) -> None:
    file = inspect_members(members)
    assert rules(file) == wanted
    assert file.ok is not any(severity == "error" for _, severity, _ in wanted)


def test_rules_that_depend_on_the_name() -> None:
    nvidia = "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3"
    assert rules(inspect_members({"1": TILE | {"waves_per_eu": 2}}, nvidia)) == [(2, "error", "backend")]
    few = {"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1}
    assert rules(inspect_members({"1": few}, f"{nvidia},dtype=int4_w4a16")) == []
    assert rules(inspect_members({"1": TILE}, f"{nvidia},dtype=fp8_w8a8,block_shape=[128, 128]")) == []
    for name in ("tuned", f"{nvidia} (1)", "E=8,device_name=NVIDIA_H200", f"x{nvidia}"):
        assert rules(inspect_members({"1": TILE}, name)) == [(None, "error", "name")]


def test_tables_of_block_scaled_products(tmp_path: Path) -> None:
    """``lint`` knows the special rules for a server's tables of block-scaled matrix products."""
    # The file name has no number of experts. If the file has the entry triton_version, the server takes it for a number
    # of tokens and fails. The server does not look for these tables in the user's folder.
    name = "N=4096,K=1024,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128]"
    assert rules(inspect_members({"1": TILE}, name)) == []
    assert rules(inspect_members({"triton_version": "3.4.0", "1": TILE}, name)) == [(2, "error", "keys")]
    wide = TILE | {"BLOCK_SIZE_K": 256}
    assert rules(inspect_members({"1": wide, "8": TILE | {"BLOCK_SIZE_K": 64}}, name)) == [(2, "error", "scale")]
    assert rules(inspect_members({"1": wide}, f"E=8,{name.replace('K=1024,', '')}")) == [], (
        "its kernel takes the smaller one"
    )
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({"1": TILE}))
    assert merge([str(path)]).files[0].use.startswith("# no environment variable sets the folder of such a table")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(tmp_path_factory.mktemp("moe") / "store", create=True)
    ingest([str(FOLDER / "server.log")], store, run="before")
    return store


def tables(store: Store, run: str = "before") -> Tables:
    return Tables(run=run, **store.frames(run))


def test_coverage_by_the_lines_of_a_server(server: Store) -> None:
    found = coverage(inspect_members({"1": TILE, "64": TILE}), tables(server))
    assert [use.label for use in found.uses if use.state == "hit"] == [NAME]
    assert (len(found.uses), found.hits, found.idle, found.share("calls")) == (6, True, (), None)
    assert coverage_lines(found)[0] == f"{NAME}.json serves 1 of the 6 tables that run before looked up"
    other = coverage(inspect_members({"1": TILE}, NAME.replace("fp8", "int8")), tables(server))
    assert not other.hits
    assert [idle.reason for idle in other.idle] == ["the run's log shows no lookup in this table"]


def test_verify_by_the_lines_of_a_server(server: Store, tmp_path: Path) -> None:
    log = (FOLDER / "server.log").read_text()
    missing = "E=128,N=768,device_name=AMD_Instinct_MI300X"
    (tmp_path / "after.log").write_text(f"INFO Using configuration from /x/{missing}.json for MoE layer.\n")
    ingest([str(tmp_path / "after.log")], server, run="after")
    before, after = tables(server, "before"), tables(server, "after")
    file = inspect_members({"1": TILE}, missing)
    applied = verify(before, after, [file])
    assert ([x.effect for x in applied.outcomes], applied.ok) == (["applied"], True)
    refuted = verify(before, before, [file])
    assert [x.effect for x in refuted.outcomes] == ["not applied"]
    assert refuted.failures[0].endswith(f"was intended, but the default ran ({missing}.json, line 2)")
    assert missing in log


def test_two_tables_of_one_name_become_one(tmp_path: Path) -> None:
    paths = []
    for number, members in enumerate(({"1": TILE, "64": TILE}, {"64": TILE | {"num_warps": 8}, "2048": TILE})):
        path = tmp_path / str(number) / f"{NAME}.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"triton_version": "3.4.0", **members}))
        paths.append(str(path))
    made = merge(paths)
    table = json.loads(made.files[0].data)
    assert (made.files[0].name, list(table)) == (f"{NAME}.json", ["triton_version", "1", "64", "2048"])
    assert table["64"]["num_warps"] == 4  # from the first file, because the tables have no times
    Path(paths[1]).write_text(json.dumps({"triton_version": "3.5.0", "1": TILE}))
    with pytest.raises(InputError, match=r"triton_version is 3\.5\.0 and 3\.4\.0"):
        merge(paths)


TUNED = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""The numbers of tokens for which vLLM's tuning script measures kernels."""


@pytest.mark.parametrize(
    ("sizes", "far"),
    [
        (TUNED, None),
        # The ladder of vllm-project/vllm#52192: a prefill takes the tile of 8 tokens.
        ((1, 2, 4, 8), "8 to 8,192"),
        ((96, 128, 256, 512, 1024), "1 to 96"),  # a decode takes the tile of 96 tokens
        ((8, 512, 4096), "8 to 512"),
        ((64,), "1 to 64 and 64 to 8,192"),
    ],
)
def test_sizes_without_an_entry_near_them(sizes: tuple[int, ...], far: str | None) -> None:
    different = {str(x): TILE | {"GROUP_SIZE_M": 1 + number} for number, x in enumerate(sizes)}
    (*notes,) = inspect_members(different).notes
    assert [x.rule for x in notes] == ([] if far is None else ["ladder"])
    assert far is None or far in notes[0].message


def test_entries_that_were_copied() -> None:
    tuned = {str(x): TILE | {"GROUP_SIZE_M": 1 + number // 3} for number, x in enumerate(TUNED)}
    (note,) = inspect_members(tuned).notes
    assert (note.rule, note.message.partition(" have")[0]) == ("copied", "12 of 18 entries")


@pytest.mark.parametrize(("theirs", "noted"), [("3.4.1", []), ("3.2.0", ["triton"]), ("", [])])
def test_another_generation_of_triton(theirs: str, noted: list[str]) -> None:
    members = {"triton_version": "3.4.0", "1": TILE}
    assert [x for _, _, x in rules(inspect_members(members, target=MI300X | {"triton_version": theirs}))] == noted


def test_a_device_name_that_is_never_looked_for() -> None:
    (note,) = (
        x
        for x in inspect_members({"1": TILE}, "E=8,N=512,device_name=AMD_Instinct_MI325_OAM").notes
        if x.rule == "device"
    )
    assert "AMD_Instinct_MI325X" in note.remedy
