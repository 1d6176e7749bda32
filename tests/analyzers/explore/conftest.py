"""Fixtures for the tests of the HTML page, with data of the samples and with data in which every text contains HTML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from analyzers.explore.load import child, reader
from analyzers.explore.load.analysis import store_points
from analyzers.explore.load.job import Job
from logparse.ingest import ingest, record
from logparse.model import ConvProblem, Fact, Measurement, Message, Solution
from logparse.store import Store, open_store
from logparse.store.database import shared_database
from tests.analyzers.build import frame
from tests.analyzers.example import B, F, W, everything
from tests.analyzers.explore.frames import points
from tests.conftest import SAMPLES, made_once

if TYPE_CHECKING:
    from flask.testing import FlaskClient

PLANTED = '<img src=x onerror="window.ran=1">'
LINK = '<a href="http://outside.example/">x</a>'


def part(client: FlaskClient, name: str, **given: object) -> dict[str, Any]:
    """Request a part of the HTML page as the browser does, and return the answer's JSON."""
    answer = client.post(f"/part/{name}", json=given)
    assert answer.status_code == 200, answer.text
    return dict(answer.get_json())


def make_time(problem: ConvProblem, solver: str, time_us: float, error: str | None = None) -> Measurement:
    algorithm = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}[problem.direction]
    solution = Solution("miopen", solver, solver, f"miopenConvolution{algorithm}AlgoGEMM")
    return Measurement(
        problem=problem, solution=solution, origin="find-db", time_us=time_us, workspace_bytes=0, error=error
    )


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store (Parquet folder) in which the name of a file, a run and solvers contain HTML markup.

    An error and a message contain markup, too. The page must show it as text.
    """
    store = open_store(tmp_path_factory.mktemp("planted") / "store", create=True)
    records = [
        make_time(F, "ConvAsm", 187.0),
        make_time(B, f"Other{LINK}", 219.0),
        make_time(W, PLANTED, 5455.0, error=PLANTED),
        make_time(W, f"Slow{LINK}</script><script>window.ran=2</script>", 60000.0),
        Fact("arch", "gfx942"),
        Fact("cu_count", "304"),
        Message(category="info", text=PLANTED, function=PLANTED),
    ]
    record(store, records, run=f"run {PLANTED}", name=f"{PLANTED}.HIP.fdb.txt", format="miopen-find-db")
    return store


@pytest.fixture(scope="session")
def after(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a Parquet folder with measured times of three convolutions after a software change.

    Compared with the fixture ``planted``, only the weight gradient is slower. Every text is HTML markup.
    """
    # Compared with planted, the forward pass is faster, the backward-data pass is the same, and the weight gradient is
    # slower. The HTML markup tests that the web page quotes texts.
    store = open_store(tmp_path_factory.mktemp("after") / PLANTED, create=True)
    records = [make_time(F, PLANTED, 93.5), make_time(B, PLANTED, 220.0), make_time(W, f"Slow{LINK}", 10910.0)]
    record(store, records, run=f"later {PLANTED}", name=f"after {PLANTED}.HIP.fdb.txt", format="miopen-find-db")
    return store


@pytest.fixture(scope="session")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store (Parquet folder) with the sample logs of one training job."""

    def make(store: Store) -> None:
        patterns = ("hipblaslt/*.log", "miopen/*.txt", "miopen/*.log", "tunableop/*.csv", "tunableop/*.log")
        paths = sorted(str(path) for pattern in patterns for path in SAMPLES.glob(pattern))
        assert paths, "the sample logs are part of the repository"
        for result in ingest(paths, store, run="demo", jobs=1):
            assert result.state != "failed", result.error

    return made_once(tmp_path_factory, "sampled", make)


@pytest.fixture(scope="session")
def sampled_points(sampled: Store) -> pd.DataFrame:
    """Return the table of matrix products and convolutions that the HTML page shows for the fixture ``sampled``.

    Tests must not change it.
    """
    return store_points(sampled)


class _Here:
    """Fake helper process for the web page: it reads the store (Parquet folder) in the test's own process.

    The test saves time, because its own process has already imported all modules.
    """

    def __init__(self, job: Job) -> None:
        self.stdout = (json.dumps(step) for step in child._steps(job))

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None:
        """Reset DuckDB's settings, because later tests in this process would otherwise have only 150 MB of memory."""
        for setting in ("memory_limit", "threads"):
            shared_database().execute(f"reset {setting}")

    kill = wait = lambda _: None


@contextmanager
def reading_here() -> Iterator[None]:
    """Make web pages read their data in the test's own process, which saves seconds per test."""
    # A page normally starts two processes for this, which import many modules. They lower their priority with os.nice.
    # Here os.nice does nothing, because a lower priority would slow down the test itself.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_started", _Here)
        patch.setattr(child, "os", SimpleNamespace(nice=lambda _: None))
        yield


@pytest.fixture
def read_here() -> Iterator[None]:
    with reading_here():
        yield


@pytest.fixture(scope="session")
def example_views() -> dict[str, pd.DataFrame]:
    """Return the data of a run in which every analyzer finds something: {name of an SQL view: DataFrame}."""
    tables = everything()
    convs = [F, B, W]
    fields = [{"problem": x.text, "shape": x.shape, "layer": x.layer, **_fields(x), "flops": x.flops} for x in convs]
    rows = pd.DataFrame(fields).assign(layout="NCHW", dtype="FP16")
    return {
        "conv_problems": rows,
        "measurements": tables.measurements,
        "facts": tables.facts,
        "workload": tables.workload[tables.workload["kind"] == "conv"],
        "empty": frame("measurements", []),
    }


def _fields(problem: ConvProblem) -> dict[str, object]:
    return {name: value for name, value in vars(problem).items() if name not in ("layer", "text", "shape")}


@pytest.fixture(scope="session")
def _example_points(example_views: dict[str, pd.DataFrame]) -> pd.DataFrame:
    v = example_views
    return points(v["conv_problems"], v["measurements"], facts=v["facts"])


@pytest.fixture
def example_points(_example_points: pd.DataFrame) -> pd.DataFrame:
    return _example_points.copy()
