"""Tests of reading the files in which FlashInfer keeps the kernel variants ("tactics") that it chose.

The tests check for which matrix product an entry is, how two tuning runs are compared, and damaged files.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.compare.diff import diff
from analyzers.compare.render import diff_lines
from analyzers.compare.timings import times_of_run
from logparse.ingest import ingest
from logparse.libraries.flashinfer import autotuner
from logparse.libraries.kinds.format import Head, Outcome
from logparse.model import Fact, Measurement, Reject
from logparse.store import Store
from tests.libraries.reading import Memory

NEW = "('fp4_gemm', 'CutlassFp4GemmRunner', ((1, 2560), (2560, 14336), (-1, 320), ()), ())"
OLD = "('fp4_gemm', 'CudnnFp4GemmRunner', ((1, 2560), (2560, 14336), (-1, 320), ()))"
TYPED = "('bmm_fp8', 'CublasFp8GemmRunner', ((2, 3),), (torch.float8_e4m3fn, True))"
META = {"flashinfer_version": "0.6.13", "cudnn_version": "unknown", "cuda_version": "*", "gpu": "NVIDIA GB10"}


def outcomes(content: object) -> list[Outcome]:
    data = json.dumps(content, indent=2).encode()
    assert autotuner.recognise(Head("autotune_configs.json", data))
    return list(autotuner.read(Memory(data)))


def choices(content: object) -> list[tuple[str, str]]:
    found = [x for outcome in outcomes(content) for x in outcome.records if isinstance(x, Measurement)]
    assert {(x.status, x.time_us) for x in found} <= {("no_time", None)}
    return [(x.problem.label, x.solution.text) for x in found]


def test_the_runner_is_part_of_the_choice_in_old_and_new_files() -> None:
    shown = "fp4_gemm((1,2560),(2560,14336),(-1,320),())"
    assert choices({NEW: ["CutlassFp4GemmRunner", 4]}) == [(shown, "flashinfer:CutlassFp4GemmRunner,4")]
    assert choices({"_metadata": META, OLD: ["CudnnFp4GemmRunner", -1]}) == [
        (shown, "flashinfer:CudnnFp4GemmRunner,-1")
    ]
    typed = "bmm_fp8((2,3),),(torch.float8_e4m3fn,True)"
    assert choices({TYPED: ["CublasFp8GemmRunner", [8, [1, 2]]]}) == [
        (typed, "flashinfer:CublasFp8GemmRunner,[8,[1,2]]")
    ]


def test_metadata_are_facts_where_they_name_something() -> None:
    found = outcomes({"_metadata": META, NEW: ["R", 1], "_records": {"x": 1}, "_generation": "5f0c"})
    assert [x.unit for x in found] == ["fact", "measurement", "foreign", "foreign"]
    assert set(found[0].records) == {Fact("flashinfer_version", "0.6.13"), Fact("device", "NVIDIA GB10")}


@pytest.mark.parametrize("value", [4, ["R"], [0, 4], ["R", 4, 1], {"runner": "R"}, None])
def test_an_entry_without_a_tactic_is_rejected(value: object) -> None:
    assert [x.unit for x in outcomes({"_metadata": META, NEW: value, "no key": ["R", 1]})] == [
        "fact",
        "reject",
        "reject",
    ]


def test_what_is_no_json_is_one_reject() -> None:
    assert [x.unit for x in autotuner.read(Memory(json.dumps({NEW: ["R", 1]}).encode()[:-3]))] == ["reject"]
    assert [x.unit for x in autotuner.read(Memory(b"-1"))] == ["reject"], "JSON, and no object"
    assert not autotuner.recognise(Head("a.json", b'{"_metadata": {"kernelspec": {}}}'))


def test_a_choice_that_a_later_one_replaces_is_rejected_with_its_place() -> None:
    first, second = f'"{NEW}": ["R", 1]', f'"{NEW}": ["R", 2]'
    data = f"{{{first},\n{second}}}".encode()
    rejected, read = autotuner.read(Memory(data))
    [reject], [row] = rejected.records, read.records
    assert isinstance(reject, Reject)
    assert isinstance(row, Measurement)
    assert data[reject.offset : reject.offset + reject.length].decode() == first
    assert "line 2 has the same name" in reject.reason
    assert row.solution.text == "flashinfer:R,2"


def test_two_tuning_runs_are_compared(store: Store, tmp_path: Path) -> None:
    """If two tuning runs of FlashInfer chose different kernels for a product, ``logparse diff`` reports this.

    The products have different keys in the two files, because a key contains the name of the kernel's runner.
    """
    for run, (runner, tactic) in {"a": ("CutlassFp4GemmRunner", 4), "b": ("CudnnFp4GemmRunner", 5)}.items():
        path = tmp_path / f"{run}.json"
        path.write_text(json.dumps({NEW.replace("CutlassFp4GemmRunner", runner): [runner, tactic], TYPED: ["C", 1]}))
        ingest([str(path)], store, run=run)
    one, two = times_of_run(store, "a"), times_of_run(store, "b")
    assert diff(one, two).flips == (1, 2, None)
    assert diff_lines(diff(one, two))[0] == (
        "a → b: another kernel ran for 1 of 2 problems (50%). Whether the job got faster is "
        "unknown: no time was compared. The cost of this change is unknown"
    )
    assert (
        diff_lines(diff(one, one))[0]
        == "a → a: the library chose the same kernels for all 2 problems whose choice both runs name"
    )
