"""Tests of all steps on a CPU: trace a training job, measure changes, apply them with ``apply.py``, verify the gain."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzers.actions import ACTIONS  # noqa: E402
from analyzers.actions.totals import results  # noqa: E402
from analyzers.compare import proof_text  # noqa: E402
from analyzers.compare.actions import verify_actions  # noqa: E402
from analyzers.evidence.action_times import samples_of  # noqa: E402
from analyzers.evidence.origins import ACTION, HOST  # noqa: E402
from analyzers.evidence.runs import tables_of  # noqa: E402
from analyzers.evidence.tables import Settings  # noqa: E402
from analyzers.recommend import render  # noqa: E402
from analyzers.recommend.verb import advise, write  # noqa: E402
from analyzers.replay.replay import Options, replay  # noqa: E402
from analyzers.replay.results import Method  # noqa: E402
from logparse.ingest import ingest, record  # noqa: E402
from logparse.lookup.one_problem import show  # noqa: E402
from logparse.model import Fact, Measurement, problem_from_text, solution_from_text  # noqa: E402
from logparse.store import Store, open_store  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

INNER, OUTPUTS, PADDED = 260, 515, 576
METHOD = Method(cache="hot", turns=2)


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, INNER), torch.nn.ReLU())
        self.head = torch.nn.Linear(INNER, OUTPUTS, bias=False)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


def write_trace(model: Any, path: Path, as_device: Any) -> None:
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(0, OUTPUTS, (4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds, record_shapes=True, schedule=schedule) as profiler:
        for _ in range(3):
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    path.write_text(json.dumps(as_device(json.loads(path.read_text()))))


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory, torch_processes: None) -> tuple[Store, Path, Any]:
    """Trace a small training job and measure its calls, once for all tests of this file.

    Returns a store (Parquet folder), a folder for the files of ``recommend``, and a function that makes GPU traces.
    """
    # The store has the traced run "before" and the measured times. The function turns the trace of a CPU into the trace
    # of a GPU.
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        as_device = importlib.import_module("action_runs").as_device
    folder = tmp_path_factory.mktemp("loop")
    store = open_store(folder / "store", create=True)
    write_trace(Net(), folder / "before.json", as_device)
    ingest([str(folder / "before.json")], store, run="before")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        report = replay(store, Options(devices=("cpu",), run="before", method=METHOD, only="actions"))
    assert report.finished
    return store, folder / "overrides", as_device


def test_the_whole_loop(loop: tuple[Store, Path, Any], tmp_path: Path) -> None:
    store, out, as_device = loop
    found = advise(store, Settings(), "before")
    promised = {x.action.name: x for x in found.actions}
    assert set(promised) == {"channels_last", "padded_output", "fused_epilogue"}, "what a CPU can do"
    (pair,) = promised["fused_epilogue"].parts
    assert pair.label == f"TN {INNER}×4×8 f32_r RELU_BIAS"
    assert pair.now_us == pytest.approx(promised["fused_epilogue"].changed_us), "the product's time and the ReLU's"
    for result in promised.values():
        assert result.steps == 2
        assert result.then_us - result.now_us == pytest.approx(sum(x.then_us - x.now_us for x in result.parts))
        assert result.low_us <= result.then_us <= result.high_us
    groups = {x.group for x in promised["channels_last"].parts}
    assert {"convolution", "aten::native_batch_norm", "aten::copy_"} <= groups, "both gradients, norms, and the input"
    assert promised["channels_last"].measured_share > 0.9
    printed = "\n".join(render.action_lines(found.actions, found.gpu_time))
    assert "compute 576 outputs in the output layer, and return only the first 515" in printed
    assert printed.count(" → ") >= 2

    write(found, Settings(), out)
    spec = importlib.util.spec_from_file_location("apply", out / "apply.py")
    assert spec is not None
    assert spec.loader is not None
    apply: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(apply)
    applied = ("channels_last", "padded_output", "fused_epilogue")
    apply.settings(*applied)
    model, images = Net().eval(), torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = model(images)
        model = apply.model(model, *applied)
        after = model(images)
    assert type(model.inner[0]).__name__ == "LinearRelu"
    assert model.head.weight.shape == (PADDED, INNER)
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(after, before, atol=1e-5), "the added outputs are not returned"
    with pytest.raises(ValueError, match="no action 'tf32'"):
        apply.settings("tf32")

    write_trace(model.train(), tmp_path / "after.json", as_device)
    ingest([str(tmp_path / "after.json")], store, run="after")
    proof = verify_actions(tables_of(store, "before"), tables_of(store, "after"), ["channels_last", "padded_output"])
    assert proof.unit == "step"
    assert proof.measured.now_us == pytest.approx(promised["padded_output"].now_us / 2)
    assert {"convolution", "GEMM", "aten::native_batch_norm"} <= {x.name for x in proof.groups}
    assert sum(x.measured.now_us for x in proof.groups) == pytest.approx(proof.measured.now_us)
    assert sum(x.measured.then_us for x in proof.groups) == pytest.approx(proof.measured.then_us)
    lines = proof_text.lines(proof)
    assert proof.verdict != "verified", "no unit was timed without a profiler"
    assert lines[0].startswith(f"{proof.verdict}: GPU computation of a step")
    assert "after: too few steps were timed without the profiler" in lines[-1]


def test_a_later_run_uses_the_measurements_of_an_earlier_one(loop: tuple[Store, Path, Any], tmp_path: Path) -> None:
    """The gain of a change can be computed from kernel times of an earlier run of the job.

    For example, a job is traced again after it was tuned, but its calls are not measured again.
    """
    store, out, _ = loop
    (tmp_path / "again.json").write_bytes((out.parent / "before.json").read_bytes())
    ingest([str(tmp_path / "again.json")], store, run="again")
    first, again = (results(tables_of(store, x), ACTIONS, Settings()) for x in ("before", "again"))
    assert [(x.action.name, x.then_us) for x in again] == [(x.action.name, x.then_us) for x in first] != []
    kept = [x for x in first if x.action.name == "channels_last"]
    left = results(tables_of(store, "again"), ACTIONS, Settings(), kept)
    assert {x.action.name for x in left} == {"padded_output", "fused_epilogue"}, "what changes other calls"


def test_what_was_timed_is_not_timed_again(loop: tuple[Store, Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store, _, _ = loop
    count = len(store.measurements())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    report = replay(store, Options(devices=("cpu",), run="before", method=METHOD, only="actions"))
    assert all(x.known or x.rows[0].status != "ok" for x in report.results)
    assert len(store.measurements()) - count == sum(len(x.rows) for x in report.results)


def test_products_of_a_tf32_job_are_timed_with_tf32(loop: tuple[Store, Path, Any], tmp_path: Path) -> None:
    """The matrix products of a job that uses TF32 are measured with TF32, as the job runs them.

    Times with TF32 must never be compared with times without it.
    """
    store, out, _ = loop
    (tmp_path / "short.json").write_bytes((out.parent / "before.json").read_bytes())
    ingest([str(tmp_path / "short.json")], store, run="short")
    counted = json.dumps({"count": 9, "traced": 2, "us": [1000.0] * 9})
    units = {"unit": "optimizer", "unit_tracing": "settled", "job_settings": "tf32", "unit:float32[4, 3]": counted}
    record(store, [Fact(*x) for x in units.items()], run="short", name="units", format="job-units")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        report = replay(store, Options(devices=("cpu",), run="short", method=METHOD, only="actions"))
    assert report.finished
    facts, own = store.facts("short"), store.sources("short")
    replayed = own.loc[own["format"] == "replay", "source_id"]
    found = facts[facts["source_id"].isin(replayed) & (facts["name"] == "replay_tf32")]
    assert len(found) == len(replayed) > 0
    assert set(found["value"]) == {"1"}
    assert set(store.facts("before").query("name == 'replay_tf32'")["value"]) == {"0"}
    for run in ("before", "short"):
        used = {source for source, _ in samples_of(tables_of(store, run), Settings()).values()}
        assert used <= set(replayed) if run == "short" else used.isdisjoint(replayed), "each by those of its own kind"


def test_gains_are_computed_without_host_times(loop: tuple[Store, Path, Any]) -> None:
    """The gain of a change is computed from GPU times alone, although host times of the same call are stored, too."""
    store, _, _ = loop
    taken, facts = store.measurements(), store.facts()
    taken = taken[(taken["origin"] == ACTION) & taken["problem"].str.startswith("conv F")]
    timed = float(store.measurements()["time_us"].sum())
    source = taken["source_id"].iloc[0]
    records: list[Any] = [
        Measurement(
            problem=problem_from_text(problem),
            solution=solution_from_text(solution),
            origin=HOST,
            samples_us=(9.0, 10.0) if solution == "Default" else (5.0, 4.0),
        )
        for problem, solution in zip(taken["problem"], taken["solution"], strict=True)
    ]
    own = facts[facts["source_id"] == source]
    records += [Fact(name, value) for name, value in zip(own["name"], own["value"], strict=True)]
    record(store, records, run="before", name="host", format="replay")
    found = {x.action.name: x for x in results(tables_of(store, "before"), ACTIONS, Settings())}
    (part,) = (x for x in found["channels_last"].parts if x.host_us)
    assert part.calls
    assert part.host_us == part.calls * (4.0 - 9.0)
    more = replace(part, label="another", host_us=part.now_us / 2)
    less = replace(found["channels_last"], now_us=part.now_us, parts=(replace(part, host_us=-part.now_us), more))
    said = f" less to launch the changed calls, mostly {part.label}"
    assert any(x.startswith("      host: ") and x.endswith(said) for x in render.action_lines([less], None))
    assert float(store.measurements()["time_us"].sum()) == pytest.approx(timed)
    (known,) = show(store, str(taken["problem"].iloc[0]))
    assert {"replay-action"} == set(known.measurements["origin"].to_pylist()) & {"replay-action", HOST}


def test_findings_json_holds_the_actions_as_its_schema_states(loop: tuple[Store, Path, Any], tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    store, _, _ = loop
    found = advise(store, Settings(), "before")
    write(found, Settings(), tmp_path)
    schema = json.loads((ROOT / "analyzers/recommend/findings.schema.json").read_text())
    content = json.loads((tmp_path / "findings.json").read_text())
    jsonschema.validate(content, schema)
    assert [x["action"] for x in content["actions"]] == [x.action.name for x in found.actions]
    assert all(x["parts"] for x in content["actions"])
    assert "## Actions" in (tmp_path / "report.md").read_text()
