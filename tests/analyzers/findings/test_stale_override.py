from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import stale_override
from analyzers.findings.stale_override import TUNABLEOP
from logparse.store import Store
from logparse.target import same_value
from tests.analyzers.build import facts, measurement, tables
from tests.analyzers.example import ARCH, gemm
from tests.analyzers.ingested import VALIDATORS, key, read, tunableop

BENCH_OUTPUT = """\
hipBLASLt version: {version}
hipBLASLt git version: {revision}
Query device success: there are 1 devices. (Target device ID is 0)
Device ID 0 : AMD Instinct MI300X gfx942:sramecc+:xnack-
with 206.1 GB memory, max. SCLK 2100 MHz, max. MCLK 1300 MHz, compute capability 9.4
maxGridDimX 2147483647, sharedMemPerBlock 65.5 KB, maxThreadsPerBlock 1024, warpSize 64
"""
ROWS = tunableop((key(512), "Gemm_Hipblaslt_1", 0.5), (key(1024), "Default", 0.7))


def planted() -> Tables:
    """Return made-up data of a run whose override file (the user's choice of kernels) is out of date.

    The log shows another GPU and another build of the library than the file is for.
    """
    formats = {"old": TUNABLEOP, "log": "hipblaslt-bench"}
    return tables(
        sources=[{"source_id": x, "run": "r", "path": f"logs/{x}", "format": y} for x, y in formats.items()],
        measurements=[measurement(gemm().text, "hipblaslt:4", 9.0, source_id="old", origin="tunableop")],
        facts=[
            *facts("old", arch="gfx90a", hipblaslt_revision="1d9f3c2b"),
            *facts("log", arch=ARCH, hipblaslt_revision="4d62e135"),
        ],
    )


def log(version: str = "100000", revision: str = "3b3d59eb") -> str:
    return BENCH_OUTPUT.format(version=version, revision=revision)


def test_a_file_of_another_build(store: Store, tmp_path: Path) -> None:
    t = read(store, tmp_path, {"tunableop_results0.csv": ROWS, "bench.log": log("100200", "d5f81531")})
    (found,) = stale_override.find(t, Settings())
    assert found.problem is None
    assert found.evidence.shown["rows"] == 2
    assert found.evidence.shown["differ"] == {
        "hipblaslt_version": ("100000", ("100200",)),
        "hipblaslt_revision": ("3b3d59eb", ("d5f81531",)),
    }
    assert "PyTorch ignores the whole file" in found.message


def test_a_file_of_this_machine(store: Store, tmp_path: Path) -> None:
    assert (
        stale_override.find(read(store, tmp_path, {"tunableop_results0.csv": ROWS, "b.log": log()}), Settings()) == []
    )


def test_a_file_of_another_device(store: Store, tmp_path: Path) -> None:
    other = [x.replace("gfx942", "gfx90a") for x in VALIDATORS]
    rows = tunableop((key(512), "Gemm_Hipblaslt_1", 0.5), validators=other)
    (found,) = stale_override.find(read(store, tmp_path, {"r.csv": rows, "b.log": log()}), Settings())
    assert "arch gfx90a:sramecc+:xnack- (the job's logs: gfx942:sramecc+:xnack-)" in found.message


def test_logs_without_the_fact_contradict_nothing(store: Store, tmp_path: Path) -> None:
    other = tunableop((key(512), "Gemm_Hipblaslt_1", 0.5), validators=[x.replace("9", "8") for x in VALIDATORS])
    t = read(store, tmp_path, {"a.csv": ROWS, "b.csv": other})
    assert stale_override.find(t, Settings()) == [], "two override files are no log"


FIND_DB = "64-56-56-3x3-64-56-56-32-1x1-1x1-1x1-0-NCHW-FP16-W=ConvAsm3x3U:0.3,0,miopenConvolutionBwdWeightsAlgoDirect\n"


@pytest.mark.parametrize(("name", "count"), [("gfx90a68.HIP.3_4_0_x.ufdb.txt", 1), ("gfx942130.HIP.fdb.txt", 0)])
def test_a_users_find_db(name: str, count: int, store: Store, tmp_path: Path) -> None:
    found = stale_override.find(read(store, tmp_path, {name: FIND_DB, "b.log": log()}), Settings())
    assert len(found) == count, "a system db comes with the library: it was not written for this machine"


@pytest.mark.parametrize(
    ("name", "one", "other", "equal"),
    [
        ("arch", "gfx942:sramecc+:xnack-", "gfx942", True),
        ("arch", "gfx942", "gfx90a", False),
        ("pytorch_version", "2.9.1", "2.9.1+rocm7.0", True),
        ("pytorch_version", "2.9.1", "2.10.1", False),
        ("rocm_version", "6.2.0.0-66-98a50c5", "6.2.0", True),
        ("rocm_version", "6.2.0", "6.2.4", False),
        ("hip_version", "70152802", "701", True),  # the runtime's number and the validator's
        ("hip_version", "70252802", "701", False),
        ("hip_version", "7.2.53211", "702", True),  # as in MIOpen's logs
        ("hip_version", "7.2.53211-dd7f95766", "70253211", True),
        ("hip_version", "7.1.53211", "702", False),
        ("arch", "gfx942:sramecc+:xnack-", "gfx942:xnack+", False),
        ("arch", "gfx942:xnack-", "gfx942:sramecc+:xnack-", True),
        ("hipblaslt_version", "100202", "1.2.2", True),
        ("hipblaslt_version", "0.12.1", "1201", True),
        ("hipblaslt_version", "1200", "1.2.0", False),
        ("cu_count", "30", "304", False),
    ],
)
def test_versions_are_spelled_more_or_less_fully(name: str, one: str, other: str, equal: bool) -> None:
    assert same_value(name, one, other) is equal
    assert same_value(name, other, one) is equal


@given(st.sampled_from(stale_override.NAMES), st.from_regex(r"[0-9a-z]{1,4}([.+-][0-9a-z]{1,4}){0,3}", fullmatch=True))
def test_a_text_is_the_same_as_itself_and_its_beginning(name: str, text: str) -> None:
    assert same_value(name, text, text)
    assume(name not in ("hip_version", "hipblaslt_version") or not text.isdecimal())  # digits alone: a whole version
    assert same_value(name, text, text + (":5" if name == "arch" else ".5"))
