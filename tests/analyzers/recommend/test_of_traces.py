"""Tests of ``logparse recommend`` for jobs of which only a trace exists, and no logs.

For sample traces the whole printed text is compared with an expected one. For real traces only the figures are
compared.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.explore.load.analysis import analyse
from analyzers.recommend.documents import document, report
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.verdict import verdict
from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.golden import Goldens

GOLDEN = Path(__file__).parent / "golden"
TRACES = ("traces/job.trace.json", "graph/decode.trace.json")


def recommend_for(trace: Path, folder: Path) -> Recommendation:
    store = open_store(folder / "store", create=True)
    ingest([str(trace)], store, run="trace", jobs=1)
    return recommend(tables_to_analyse(store), Settings())


def rendered(sample: str, folder: Path) -> str:
    """Return the report that ``recommend`` writes for a sample trace, without the path of the samples."""
    return report(recommend_for(SAMPLES / sample, folder), []).replace(f"{SAMPLES}/", "")


@pytest.mark.parametrize("sample", TRACES)
def test_what_is_printed_for_a_trace(sample: str, tmp_path: Path, golden: Goldens) -> None:
    golden.check(GOLDEN / f"{Path(sample).name}.txt", rendered(sample, tmp_path))


def test_the_page_states_where_the_time_goes_first(store: Store) -> None:
    ingest([str(SAMPLES / "traces/job.trace.json")], store, run="trace", jobs=1)
    analysis = analyse(store)
    parts = [(x.name, round(x.us)) for x in verdict(analysis.recommendation).split]
    assert parts[:2] == [("convolutions", 196), ("GEMM", 127)]
    assert parts[-1] == ("idle", 193)
    limit, *remarks = analysis.lines
    assert limit.startswith("the host limits a step; a host twice as fast saves 131 of 450 µs (29%)")
    assert any(x.startswith("the GPU runs kernels in 63.2% of the time with the profiler") for x in remarks)


def figures(found: Recommendation) -> dict[str, Any]:
    """Return the main figures of a recommendation, with which the tests compare known ones.

    ``parts`` has the ms per step of each kind of work. ``busy`` is the fraction of time in which the GPU is busy.
    """
    # before_ms is the time in ms of kernels that were launched before the trace.
    time = found.gpu_time
    assert time is not None
    steps = time.steps or 1.0
    made = json.loads(document(found, Settings(), []))["gpu_time"]
    assert sum(part["us"] for part in made["parts"]) == pytest.approx(made["kernels_us"])
    parts = {x.name: round(x.us / steps / 1e3, 2) for x in time.parts}
    return {"parts": parts, "busy": round(time.busy_share or 0.0, 2), "before_ms": round(time.before_us / 1e3, 1)}


@needs_corpus
def test_a_real_training_step_of_an_mi300x(tmp_path: Path) -> None:
    """For a real trace of ResNet training on an MI300X, ``recommend`` reports the right times and findings.

    In this trace the GPU lags behind the host: a quarter of the kernels were launched before the trace began.
    """
    found = recommend_for(CORPUS / "tracelens/mi300_resnet_train.json.gz", tmp_path)
    seen = figures(found)
    assert (seen["busy"], seen["before_ms"]) == (0.96, 30.8)
    assert {name: seen["parts"][name] for name in ("communication", "normalisation")} == {
        "communication": 11.76,
        "normalisation": 2.16,
    }
    assert {name[-1]: ms for name, ms in seen["parts"].items() if name.startswith("convolution")} == {
        "F": 0.77,
        "W": 0.61,
        "B": 0.57,
    }
    remarks = {x.analyzer: x for x in found.remarks}
    assert "host-bound" not in remarks
    turned = remarks["layout-transposes"].message  # three steps with 5,313 µs of backward convolutions
    assert "254 µs of 824 µs in B" in turned
    assert "341 µs of 947 µs in W" in turned
    assert {x.analyzer for x in found.findings} == {"slower-than-comparable"}
    assert not found.overrides


@needs_corpus
def test_a_step_that_waits_for_the_host_on_an_h200(tmp_path: Path) -> None:
    found = recommend_for(CORPUS / "nvidia/convnext_tiny.trace.json.gz", tmp_path)
    assert figures(found)["busy"] == 0.12
    text = report(found, [])
    assert (
        "* host-bound: the GPU runs kernels in 11.9% of the time with the profiler (5.84 ms of 48.9 ms per step)"
        in text
    )
    assert re.search(r"^\* idle +43\.1 ms +88\.1%$", text, re.MULTILINE)


@needs_corpus
def test_a_vocabulary_that_is_no_multiple_of_eight_should_be_padded(tmp_path: Path) -> None:
    found = recommend_for(CORPUS / "h200/gpt2.trace.json.gz", tmp_path)
    odd = [x for x in found.findings if x.analyzer == "odd-output"]
    assert len(odd) == 3
    assert all(x.problem is not None and "50257" in x.problem.label for x in odd)
    assert not [x for x in found.findings if x.analyzer == "below-roofline"]
