"""What every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from logparse.store import Store, open_store

# A shared machine is slow at moments; how long an example takes says nothing about it.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
SAMPLE_FILES = sorted(
    path
    for path in SAMPLES.rglob("*")
    if path.is_file() and path.parent != SAMPLES and path.suffix not in (".md", ".pyc")
)
"""What ``sample_logs`` holds for reading: all but its scripts and descriptions."""
CORPUS = Path(os.environ.get("LOGPARSE_CORPUS") or ROOT.parent / "shared" / "corpus")
"""Real files to read, where they are."""

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real files is not here")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return open_store(tmp_path / "store", create=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Two workers, for all tests of a session; executors find themselves connected.

    Where RAY_ADDRESS is one of Ray's client ports, it is that cluster (``tests/executors/test_ray_client.py``).
    """
    import ray

    if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        with ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False):
            yield
        return

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # credentials are the nodes' own
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("PYTHONPATH", str(ROOT))  # who comes through the client port ships functions of `tests`, too
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=128 << 20,
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )
    yield
    ray.shutdown()


# In CI a browser, torch or binding that is missing is a failure: a skip there would be a check that never ran.
# Only the corpus may be absent.


def _unwanted_skip(report: pytest.TestReport | pytest.CollectReport) -> bool:
    return bool(os.environ.get("CI")) and report.skipped and "corpus" not in str(report.longrepr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _unwanted_skip(report):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _unwanted_skip(report):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longrepr}"
    return report
