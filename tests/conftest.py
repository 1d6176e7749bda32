"""Fixtures and options that all tests share."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator
from multiprocessing import active_children, forkserver
from pathlib import Path
from typing import Any

# Two workers share the cores.  Threads of matrix products that spin while they wait would take the cores from them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from logparse.executors.processes import started
from logparse.ingest import ingest
from logparse.store import Store, open_store
from logparse.store.compaction import compact
from logparse.store.database import shared_database
from tests import cpu
from tests.golden import OPTION, Goldens

# A shell's background job ignores SIGINT, and under nohup SIGHUP, too.  Without this, so would the processes that tests
# start and end.
for ignored, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, handler)

COSTLIEST = 40 if "LOGPARSE_CPU" in os.environ else 5
NIGHTLY = "LOGPARSE_NIGHTLY" in os.environ
"""True in ``make nightly``, which runs all tests at full size."""

# No deadline, because a shared machine is slow at moments.
settings.register_profile("ci", max_examples=15, deadline=None)
settings.register_profile("nightly", max_examples=1000, deadline=None)
settings.load_profile("nightly" if NIGHTLY else "ci")


def sized(small: int, full: int) -> int:
    """Return how many rounds, runs or examples a test does: ``full`` in the nightly run, otherwise ``small``.

    The nightly run is ``make nightly``.
    """
    return full if NIGHTLY else small


ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
SAMPLE_FILES = sorted(
    path
    for path in SAMPLES.rglob("*")
    if path.is_file() and path.parent != SAMPLES and path.suffix not in (".md", ".pyc")
    if "device_name=" not in path.name
)
"""Paths of all sample logs that ``logparse ingest`` can read.

Scripts and descriptions in ``sample_logs`` are left out, and so are the tables that only ``logparse lint`` reads.
"""
CORPUS = Path(os.environ.get("LOGPARSE_CORPUS") or ROOT.parent / "shared" / "corpus")
"""Folder of real files for the tests. It may be missing."""

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real files is not here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", dest="renew_goldens", help="write the goldens anew, run nothing else")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Goldens:
    """Return an object that compares results with golden files (reviewed files with the expected output).

    With ``--renew-goldens`` it writes the files instead. Pytest's summary then lists the files that changed.
    """

    def note(path: Path) -> None:
        request.node.user_properties.append(("golden", str(path.relative_to(ROOT))))

    return Goldens(request.config.getoption("renew_goldens"), note)


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out every text as if a program reads it. The terminal in which the tests run has no influence."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_duckdb() -> None:
    """Limit DuckDB to one thread.

    The tests query only some hundred rows, so a second thread would cost CPU time without a gain.
    """
    shared_database().execute("set threads = 1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store: the folder of Parquet files into which logparse reads logs."""
    return open_store(tmp_path / "store", create=True)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Store], None]) -> Store:
    """Return a copy of a store that is built only once in a test run, by ``make``.

    A store is a folder of Parquet files with the content of logs.
    """
    # The first pytest worker that needs the store builds it. All other workers wait for it, and each gets a copy.
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # each worker has its own folder inside the parent
    made = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(part := shared / f"{name}.part", ignore_errors=True)
            make(open_store(part, create=True))
            part.rename(made)
    return open_store(shutil.copytree(made, factory.mktemp(name) / "store"))


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store (a folder of Parquet files) into which all sample logs were read. Tests must not change it.

    The logs belong to one run, named ``samples``.
    """
    # The Parquet files are merged, because many tests spend most of their time reading them.

    def make(store: Store) -> None:
        assert {result.state for result in ingest([str(SAMPLES)], store, run="samples", jobs=1)} == {"new"}
        compact(store, unread=True)

    return made_once(tmp_path_factory, "samples", make)


@pytest.fixture
def cluster() -> None:
    """Start a Ray cluster with two workers, which all tests that ask for this fixture share.

    logparse's own code then finds that this process is connected to Ray.
    """
    start_cluster()


def start_cluster() -> None:
    """Start Ray with two workers, unless it runs already. It is stopped after the last test that needs it.

    If RAY_ADDRESS is a Ray client port (``ray://…``), the function connects to that cluster instead.
    """
    # RAY_ADDRESS is an environment variable. tests/executors/test_ray_client.py needs the connection.
    import ray

    if ray.is_initialized():
        return
    if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # it kills workers if other programs fill the memory
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # each node has its own credentials
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("PYTHONPATH", str(ROOT))  # clients of the port send functions of `tests`, too
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=128 << 20,
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )


def _serve_with(*modules: str) -> None:
    """Start a process from which Python forks new processes faster, because these modules are already imported.

    Such a process may run already (multiprocessing's "forkserver"). It is replaced, because it would not import the
    modules any more.
    """
    for child in active_children():
        child.join()
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    started(os.getpid, imports=modules).join()


@pytest.fixture(scope="session")
def torch_processes() -> None:
    """Let processes that measure kernels start with PyTorch already imported.

    Otherwise each process would spend 2 s on this import.
    """
    _serve_with("torch", "analyzers.replay.worker", "logparse.libraries.all_backends")


@pytest.fixture(scope="session")
def measuring_processes() -> None:
    """Let processes that measure kernels start with all imports except PyTorch already done.

    Otherwise each process would spend 0.5 s on the imports.
    """
    _serve_with("analyzers.replay.worker", "logparse.libraries.all_backends")


# ``make test`` leaves out tests marked as nightly and counts them.  With xdist, each worker sees all tests.

_LEFT = pytest.StashKey[int]()
_CPU = pytest.StashKey[dict[str, float]]()
"""Key under which pytest's configuration keeps the CPU seconds of each test file."""
_TOTAL = pytest.StashKey[float]()
"""Key under which pytest's configuration keeps the CPU seconds of the whole test run.

The sum includes the collection of the tests and pytest-xdist's worker processes.
"""
LONGEST = [
    "browser",
    "cluster",
    "job_server",
    "torch_processes",
    "tests/test_output.py",
    "tests/analyzers/replay/test_replay.py",
    "tests/analyzers/explore/test_point_table.py",
    "tests/analyzers/findings/test_laws.py",
    "tests/ingest/test_robustness.py",
    "tests/test_docs.py",
    "tests/store/test_compaction.py",
    "tests/ingest/test_ingest.py",
    "tests/store/test_store.py",
    "tests/analyzers/explore/test_cards.py",
    "tests/analyzers/explore/test_page.py",
    "tests/analyzers/evidence/test_runs.py",
    "tests/analyzers/explore/test_serve.py",
    "tests/test_location.py",
    "tests/test_hostile.py",
    "tests/test_files.py",
    "tests/analyzers/tune/test_tune.py",
    "tests/store/test_joint.py",
    "tests/test_screens.py",
    "tests/test_api.py",
    "tests/analyzers/recommend/test_recommend.py",
    "tests/analyzers/actions/test_fused_epilogue.py",
    "tests/analyzers/findings/test_suboptimal_pick.py",
    "tests/analyzers/explore/test_analysis.py",
    "tests/analyzers/overrides/test_bisect.py",
]
"""Names of the groups of tests that take longest, so that the workers begin with them.

If a long group came last, one core would work on it while the others idle.
"""
_GROUPS = {"browser", "cluster", "job_server", "torch_processes"}
"""Fixtures that should be made only once in a test run, because they are expensive.

With ``--dist loadgroup``, one worker gets all tests that use such a fixture. All other tests are grouped by file: one
worker runs the whole file, so that the fixtures of the file are made once, too.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [item for item in items if item.get_closest_marker("nightly") and not NIGHTLY]
    if config.getoption("renew_goldens"):
        left = [item for item in items if "golden" not in getattr(item, "fixturenames", ())]
    items[:] = [item for item in items if item not in left]
    for item in items:
        shared = _GROUPS.intersection(getattr(item, "fixturenames", ()))
        # pytest-xdist would treat several groups of a test as a group of its own
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(min(shared, default=item.nodeid.partition("::")[0])))
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(_group(item), len(place)))
    config.hook.pytest_deselected(items=left)
    config.stash[_LEFT] = len(left)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """End the Ray cluster after the last test that uses it.

    An idle cluster takes a tenth of a core from the tests that follow.
    """
    yield
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and (nextitem is None or _group(nextitem) != "cluster"):
        ray.shutdown()


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return "" if marker is None else str(marker.args[0])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Switch garbage collection off while pytest collects the tests, to save time.

    No object of this phase becomes garbage. The search for garbage took a third of the phase, and slowed the tests
    after it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if this version of pytest-xdist does not append a test's group (``@NAME``) to the id of the test.

    With such a version, several workers would make the same expensive fixtures.
    """
    if getattr(session.config.option, "loadgroup", False):
        lost = [x.nodeid for x in session.items if x.get_closest_marker("xdist_group") and "@" not in x.nodeid]
        if lost:
            raise pytest.UsageError(f"pytest-xdist does not see the groups of {len(lost)} tests, such as {lost[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Add the CPU time of each test, with its fixtures, to the sum of the test file.

    The time of a child process is included only if the child has ended.
    """
    before = cpu.ended()
    try:
        return (yield)
    finally:
        sums = item.config.stash.setdefault(_CPU, {})
        name = item.nodeid.partition("::")[0]
        sums[name] = sums.get(name, 0.0) + cpu.ended() - before


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["left"] = config.stash.get(_LEFT, 0)
        config.workeroutput["cpu"] = {**config.stash.get(_CPU, {}), "": cpu.spent()}
    else:
        # workers report their own CPU
        own = sum(os.times()[:2]) if config.pluginmanager.hasplugin("dsession") else cpu.spent()
        config.stash[_TOTAL] = config.stash.get(_TOTAL, 0.0) + own
        gc.unfreeze()  # otherwise DuckDB's module reports objects that nothing has freed


def pytest_configure(config: pytest.Config) -> None:
    """End a worker process as soon as its exit functions have run.

    Python would otherwise spend seconds on freeing everything that thousands of tests imported.
    """
    if hasattr(config, "workeroutput"):
        atexit.register(os._exit, 0)  # registered first, so it is called last


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash[_LEFT] = output.get("left", 0)
    sums = node.config.stash.setdefault(_CPU, {})
    for name, seconds in output.get("cpu", {}).items():
        if name:
            sums[name] = sums.get(name, 0.0) + seconds
        else:
            node.config.stash[_TOTAL] = node.config.stash.get(_TOTAL, 0.0) + seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    by_file = sorted(config.stash.get(_CPU, {}).items(), key=lambda x: -x[1])
    yardstick = f"(sum(range(10000)) takes {cpu.yardstick_us():.0f} µs)"
    most = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in by_file[:COSTLIEST])
    terminalreporter.write_line(f"CPU: {config.stash.get(_TOTAL, 0.0):.0f} s {yardstick}; most: {most}")
    if config.getoption("renew_goldens"):
        reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
        changed = {str(value) for report in reports for name, value in report.user_properties if name == "golden"}
        terminalreporter.write_line("\n".join(f"renewed: {path}" for path in sorted(changed)) or "no golden changed")
    elif not NIGHTLY:
        nightly, ci = (settings.get_profile(name).max_examples for name in ("nightly", "ci"))
        left = f"{config.stash.get(_LEFT, 0)} tests, and the full size of others ({nightly} examples instead of {ci})"
        terminalreporter.write_line(f"left to `make nightly`: {left}")


# In CI a missing browser, torch or binding is a failure, because a skip there would be a check that never ran.  Only
# the corpus may be absent.


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
