"""A file gives the same in ranges as whole, however it is cut and whichever process dies meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logparse.executors import Progress, Resources
from logparse.executors.local import LocalExecutor
from logparse.formats import FORMATS
from logparse.formats.format import BlockFormat, FileFormat
from logparse.ingest import Ingested, ingest, lines
from logparse.ingest.byte_ranges import cut
from logparse.ingest.input_file import PIECE_BYTES, Digest, InputFile
from logparse.store import Store, open_store
from logparse.store.announcements import Count, Rows, Running
from logparse.store.compaction import compact
from tests.conftest import SAMPLE_FILES, sized
from tests.formats.reading import check_conservation
from tests.ingest.test_ingest import BENCH, TRACE, bench, counts
from tests.store.contents import OF_THE_MOMENT, contents
from tests.test_location import address, options, s3  # noqa: F401 - fixtures

PIECE = 512


def _is_stream(path: Path) -> bool:
    head = InputFile(str(path)).head()
    return not any(format.recognise(head) for format in FORMATS if isinstance(format, FileFormat))


STREAMS = [path for path in SAMPLE_FILES if _is_stream(path)]


class Cluster(LocalExecutor):
    """So many nodes of one core, all of them in this process; tasks end in any order."""

    def __init__(self, nodes: int, fate: Callable[[Any], object] = lambda _: None) -> None:
        super().__init__(1)
        self.together, self._fate = nodes, fate
        self.tasks: list[str] = []

    def map_unordered(  # type: ignore[override]
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        resources: Callable[[Any], Resources],
        progress: Progress | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        def run(item: Any) -> Any:
            self._fate(item)
            return function(item)

        held = list(super().map_unordered(run, items, resources, progress))
        self.tasks += [type(item).__name__ for item, _ in held]
        random.Random(len(held)).shuffle(held)
        yield from held


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of half a kilobyte, where a real one has a gigabyte."""
    monkeypatch.setattr("logparse.ingest.input_file.PIECE_BYTES", PIECE)
    monkeypatch.setattr("logparse.ingest.byte_ranges.PIECE_BYTES", PIECE)
    monkeypatch.setattr("logparse.ingest.byte_ranges.LEAST_BYTES", 1)


def said(results: list[Ingested]) -> list[Ingested]:
    return [replace(result, seconds=0.0) for result in results]


def both(folder: Path, logs: list[Path], nodes: int) -> tuple[Store, Store]:
    """Files read whole and in ranges, with equal results."""
    whole, ranged = (open_store(folder / name, create=True) for name in ("whole", "ranged"))
    cluster, paths = Cluster(nodes), [str(log) for log in logs]
    results = ingest(paths, ranged, run="r", executor=cluster)
    assert said(results) == said(ingest(paths, whole, run="r"))
    if len(logs) == 1:
        assert results[0].problems == len(ranged.gemm_problems()) + len(ranged.conv_problems())
    assert cluster.tasks.count("RangeTask") > len(logs)
    return whole, ranged


def test_each_sample_in_ranges_is_as_it_is_whole(tmp_path: Path) -> None:
    whole, ranged = both(tmp_path, STREAMS[:: sized(3, 1)], sized(200, 10_000))
    check_conservation(ranged)
    assert contents(ranged, OF_THE_MOMENT) == contents(whole, OF_THE_MOMENT)


def test_samples_hold_lines_of_every_block_language() -> None:
    text = b"".join(path.read_bytes() for path in STREAMS)
    for format in FORMATS:
        if isinstance(format, BlockFormat):
            assert any(marker in text for marker in format.markers), format.name


@pytest.mark.parametrize("end", ["\n", ""], ids=["", "no end"])
@pytest.mark.parametrize("seed", range(sized(1, 4)))
def test_any_mixture_in_any_number_of_ranges(
    tmp_path: Path, seed: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of all languages one after the other and line by line, torn ones, long ones, and blank lines."""
    rng = random.Random(seed)
    parts = [path.read_text(errors="replace") for path in STREAMS]
    rng.shuffle(parts)
    lines = "".join(parts)[:300_000].split("\n")
    for _ in range(60):
        at = rng.randrange(len(lines))
        lines[at] = rng.choice(["", "x" * 3000, lines[at][: rng.randrange(1, 40)] + BENCH.format(m=64, i=1), "\r", " "])
    log = tmp_path / "hipblaslt_4242.log"
    log.write_text("\n".join(lines).rstrip() + end)
    piece = rng.choice([1000, 20_000, 100_000])
    monkeypatch.setattr("logparse.ingest.input_file.PIECE_BYTES", piece)
    monkeypatch.setattr("logparse.ingest.byte_ranges.PIECE_BYTES", piece)
    whole, ranged = both(tmp_path, [log], rng.randrange(2, 40))
    check_conservation(ranged)
    assert contents(ranged, OF_THE_MOMENT) == contents(whole, OF_THE_MOMENT)
    assert [x.state for x in ingest([str(log)], ranged)] == ["unchanged"]
    assert [x.state for x in ingest([str(log)], ranged, executor=Cluster(5))] == ["unchanged"]


@pytest.mark.parametrize(
    "text",
    ["x" * 5000, "x" * 5000 + "\n", "\n" * 3000, "\n" + "y" * 4000 + "\n" + bench(64) + "z" * 4000, bench(64) * 3],
    ids=["one line without end", "one line", "empty lines", "long lines", "short"],
)
def test_lines_longer_than_ranges_and_ranges_without_lines(tmp_path: Path, text: str) -> None:
    log = tmp_path / "run.log"
    log.write_text(text)
    whole, ranged = both(tmp_path, [log], 4)
    check_conservation(ranged)
    assert contents(ranged, OF_THE_MOMENT) == contents(whole, OF_THE_MOMENT)


def test_lines_beyond_the_bound_are_rejects_in_ranges_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_BYTES", 1 << 20)
    log = tmp_path / "run.log"
    log.write_text(bench(64) + "x" * (5 << 19) + "\n" + bench(65) + "y" * (5 << 19))
    whole, ranged = both(tmp_path, [log], 4)
    check_conservation(ranged)
    assert contents(ranged, OF_THE_MOMENT) == contents(whole, OF_THE_MOMENT)
    # The rows of a view have no order.
    assert sorted(ranged.rejects()["length"]) == [5 << 19, (5 << 19) + 1]


def test_a_log_that_was_read_in_ranges_grows_and_is_forgotten_and_compacted(tmp_path: Path) -> None:
    text = bench(*range(1, 30)) + TRACE.format(s=1, pid=9) + "\n"
    log = tmp_path / "run_7.log"
    log.write_text(text + BENCH.format(m=99, i=1)[:200])
    whole, ranged = both(tmp_path, [log], 9)
    log.write_text(text + bench(99, 1))
    for store in (whole, ranged):
        assert [x.state for x in ingest([str(log)], store, executor=Cluster(9))] == ["grown"]
    assert contents(ranged, OF_THE_MOMENT) == contents(whole, OF_THE_MOMENT)
    compact(ranged)
    ranged.sweep(older_than_s=-1)
    assert contents(ranged, OF_THE_MOMENT) == contents(whole, OF_THE_MOMENT)
    assert [x.state for x in ingest([str(log)], ranged)] == ["unchanged"]
    ranged.forget("run_7.log")
    assert ranged.sources().empty
    compact(ranged)
    ranged.sweep(older_than_s=-1)
    assert not ranged.files("calls")


def test_one_row_file_is_the_commit(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(bench(*range(1, 60)))
    _, ranged = both(tmp_path, [log], 6)
    assert len(list((tmp_path / "ranged" / "sources").glob("*/*.parquet"))) == 1
    assert len(ranged.commits()) > 3
    assert ranged.sources()["bytes"].tolist() == [log.stat().st_size]
    count = Count(Running(kind="ingest", run="r", started=0.0, host="", pid=0))
    count.take(Rows(ranged, 0.0).new(), ranged)
    assert (count.files, count.bytes, count.lines) == (1, log.stat().st_size, 59)


def test_a_file_is_committed_before_the_next_is_read(tmp_path: Path, store: Store) -> None:
    class OneByOne(Cluster):
        def map_unordered(self, function: Any, items: Any, *_: Any) -> Any:  # type: ignore[override]
            yield from ((item, function(item)) for item in items)

    for size, name in ((30, "large"), (20, "medium"), (1, "small")):
        (tmp_path / f"{name}.log").write_text(bench(*range(1, size)))
    ingest([str(tmp_path)], store, executor=OneByOne(20))
    order = list(dict.fromkeys(Path(row.path).stem for row in store.commits()))
    assert order == ["large", "medium", "small"]
    assert len(store.commits()) > 3, "in ranges"


def test_a_range_that_fails_fails_its_file_alone(tmp_path: Path, store: Store) -> None:
    def poisoned(task: Any) -> None:
        if getattr(task, "span", (0, 0))[0] and task.path.endswith("bad.log"):
            raise MemoryError("too much")

    for name in ("bad.log", "good.log"):
        (tmp_path / name).write_text(bench(*range(1, 30)))
    results = ingest([str(tmp_path / "*.log")], store, executor=Cluster(6, poisoned))
    assert [(Path(x.path).name, x.state) for x in results] == [("bad.log", "failed"), ("good.log", "new")]
    assert "too much" in results[0].error
    assert counts(store) == dict.fromkeys(range(1, 30), 1)
    assert [x.state for x in ingest([str(tmp_path / "bad.log")], store, executor=Cluster(6))] == ["new"]
    assert counts(store) == dict.fromkeys(range(1, 30), 2)


def test_a_driver_killed_before_the_commit_leaves_a_whole_store(tmp_path: Path, store: Store) -> None:
    log = tmp_path / "run.log"
    log.write_text(bench(*range(1, 30)))

    def killed(task: Any) -> None:
        if type(task).__name__ == "CommitTask":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest([str(log)], store, executor=Cluster(6, killed))
    assert store.files("calls"), "ranges were read"
    assert store.sources().empty
    assert counts(store) == {}
    assert [x.state for x in ingest([str(log)], store, executor=Cluster(6))] == ["new"]
    assert counts(store) == dict.fromkeys(range(1, 30), 1)
    before = len(store.files("calls"))
    store.sweep(older_than_s=-1)
    assert 0 < len(store.files("calls")) < before
    assert counts(store) == dict.fromkeys(range(1, 30), 1)


def test_a_range_that_was_read_twice_counts_once(tmp_path: Path, store: Store) -> None:
    """A worker that died after its work left parts, or a straggler still wrote them when another took its range."""
    log = tmp_path / "run.log"
    log.write_text(bench(*range(1, 30)))

    class Twice(Cluster):
        def map_unordered(self, function: Any, *rest: Any) -> Any:  # type: ignore[override]
            return super().map_unordered(lambda item: (function(item), function(item))[1], *rest)

    assert [x.state for x in ingest([str(log)], store, executor=Twice(6))] == ["unchanged"], "its commit came twice"
    assert counts(store) == dict.fromkeys(range(1, 30), 1)


def test_parts_that_are_gone_fail_the_commit(tmp_path: Path, store: Store) -> None:
    log = tmp_path / "run.log"
    log.write_text(bench(*range(1, 30)))

    def swept(task: Any) -> None:
        if type(task).__name__ == "CommitTask":
            store.sweep(older_than_s=-1)

    result = ingest([str(log)], store, executor=Cluster(6, swept))[0]
    assert result.state == "failed"
    assert store.sources().empty


def test_a_log_that_becomes_shorter_fails_by_name(tmp_path: Path, store: Store) -> None:
    log = tmp_path / "run.log"
    log.write_text(bench(*range(1, 30)))
    result = ingest([str(log)], store, executor=Cluster(6), progress=lambda path, n: os.truncate(log, 3000))[0]
    assert result.state == "failed"
    assert "run.log: became shorter" in result.error


def test_a_log_in_a_bucket(tmp_path: Path, store: Store, s3: Any, options: str) -> None:  # noqa: F811
    text = bench(*range(1, 30)) + "z" * 3 * PIECE + "\n" + BENCH.format(m=99, i=1)
    s3.put_object(Bucket="logs", Key="ranged/run.log", Body=text.encode())
    cluster = Cluster(6)
    result = ingest([f"s3://logs/ranged/run.log{options}"], store, executor=cluster)[0]
    assert (result.state, result.lines, cluster.tasks.count("RangeTask") > 3) == ("new", 31, True), result.error
    assert counts(store) == dict.fromkeys([*range(1, 30), 99], 1)
    check_conservation(store)


def test_progress_is_reported_once_per_byte(tmp_path: Path, store: Store) -> None:
    log, told = tmp_path / "run.log", []
    log.write_text(bench(*range(1, 30)))
    ingest([str(log)], store, executor=Cluster(6), progress=lambda path, count: told.append(count))
    assert sum(told) == log.stat().st_size


@given(st.integers(1, 1 << 40), st.integers(1, 4000), st.integers(1, 64))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_cover_the_file(size: int, cores: int, together: int) -> None:
    size = max(size, 1)
    spans = cut(size, min(cores, 1 + size // 4096), together)
    if spans:
        assert spans[0][0] == 0
        assert spans[-1][1] == size
        assert all(one[1] == two[0] for one, two in pairwise(spans))
        assert not any(start % PIECE for start, _ in spans)


def test_one_node_reads_a_file_whole() -> None:
    assert cut(1 << 40, 16, 16) == []
    assert cut(100, 17, 200) == []


@given(st.binary(max_size=5 * PIECE), st.lists(st.integers(0, 5 * PIECE), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_hash_does_not_depend_on_how_the_bytes_came(data: bytes, cuts: list[int]) -> None:
    whole, parts = Digest(), Digest()
    whole.update(data)
    ends = [*sorted(min(c, len(data)) for c in cuts), len(data)]
    for start, end in zip([0, *ends], ends, strict=False):
        parts.update(data[start:end])
        parts = parts.copy()
    assert parts.hexdigest() == whole.hexdigest() == Digest(whole.pieces).hexdigest()
    later = Digest(whole.pieces[:1])
    later.update(data[PIECE:])
    assert later.hexdigest() == whole.hexdigest()


def test_the_real_piece_is_what_stores_hold() -> None:
    """Changing it makes every large file of every store a new one."""
    assert PIECE_BYTES == 4 << 20
