"""hipBLASLt's runtime tuning cache and its lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from logparse.formats.format import Head
from logparse.formats.hipblaslt import tuning_cache_log, tuning_file
from logparse.ingest import ingest
from logparse.ingest.lines import LineReader
from logparse.model import Call, Fact, Measurement, Reject, SolutionName
from logparse.store import Store
from tests.conftest import SAMPLES
from tests.formats.reading import from_file, head, outcomes, records, units
from tests.formats.test_ranks import MARKS, STAMPS

FOLDER = SAMPLES / "runtime"
CACHE, LOG = FOLDER / "hipblaslt_cache.txt", FOLDER / "hipblaslt_cache.log"


def test_rows_of_the_cache() -> None:
    source = from_file(CACHE)
    assert tuning_file.recognise(head(source))
    found = outcomes(tuning_file.FORMAT, source)
    assert units(found) == {"measurement": 7, "reject": 2}
    kept = records(found)
    measured = [r for r in kept if isinstance(r, Measurement)]
    assert [(m.problem.label, m.solution.text, m.time_us) for m in measured] == [
        ("TN 7168×256×2048 bf16_r", "hipblaslt:302128", 21.5),
        ("TN 4096×512×1024 bf16_r", "hipblaslt:302200", 18.25),
    ]
    names = [r for r in kept if isinstance(r, SolutionName)]
    assert {(r.kernel_name or "")[-12:] for r in names} == {"MT256x128x64"}
    assert {(r.name or "")[-5:] for r in names} == {"_WGM8"}
    assert {r for r in kept if isinstance(r, Fact)} == {
        Fact("arch", "gfx942:sramecc+:xnack-"), Fact("cu_count", "304"), Fact("hipblaslt_revision", "3b3d59eb"),
    }  # fmt: skip
    assert "schema_version '99'" in next(r.reason for r in kept if isinstance(r, Reject))


def test_a_header_alone_is_no_cache() -> None:
    bench = b"transA,transB,grouped_gemm,batch_count,m,n,k,us,solution_index\nT,N,0,1,2,3,4,5,6\n"
    assert not tuning_file.recognise(Head("x.txt", bench))
    assert not tuning_file.recognise(Head("x.txt", b"m,n,k,schema_version,solution_index\n"))


def test_lines_of_the_cache() -> None:
    found = [tuning_cache_log.read(line) for line in LOG.read_text().splitlines()]
    assert Counter(outcome.unit for outcome in found) == {"message": 5, "call": 2, "reject": 1}
    calls = [r for outcome in found for r in outcome.records if isinstance(r, Call)]
    assert [(call.problem.label, call.count) for call in calls] == [
        ("TN 7168×256×2048 bf16_r", None),
        ("NT 64×64×512 b16 f16_r", None),
    ]


def test_a_line_of_another_program_is_foreign(store: Store) -> None:
    ingest([str(LOG)], store, run="job")
    row = store.sources().iloc[0]
    assert [int(row[f"{x}_lines"]) for x in ("call", "message", "reject", "foreign")] == [2, 4, 1, 1]
    assert row["splits"] == 0


@pytest.mark.parametrize("mark", [*MARKS, *STAMPS, "[0]: "])
def test_a_mark_before_a_line_changes_nothing(mark: str) -> None:
    bare = [line for line in LOG.read_text().splitlines() if line.startswith("tuning-cache: ")]

    def read(mark: str) -> Counter[str]:
        reader = LineReader([tuning_cache_log.FORMAT])
        for number, line in enumerate(bare):
            reader.feed(f"{mark.format(number % 3)}{line}\n".encode(), 0)
        found = reader.take()
        assert found.splits == 0
        out: Counter[str] = Counter()
        for one in found.distinct:
            out.update({str(x): one.count for x in tuning_cache_log.read(one.text).records})
        return out

    assert read(mark) == read("")


def test_a_line_behind_the_prefix_of_the_log_is_one_of_the_log(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("[2026-05-05 12:00:00][HIPBLASLT][7][Info][f] tuning-cache: mode=tune path=tuning.txt loaded=0\n")
    [result] = ingest([str(log)], store)
    assert (result.format, result.units["message"]) == ("hipblaslt-log", 1)


def test_a_call_links_to_its_cached_row(store: Store) -> None:
    ingest([str(CACHE), str(LOG)], store, run="job")
    linked = store.query(
        "select count(*) as n from links l join calls c on c.problem = l.problem"
        " join measurements m on m.problem = l.other"
    )
    assert linked["n"].tolist() == [1]
