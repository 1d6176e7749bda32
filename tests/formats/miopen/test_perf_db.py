"""The perf-db: text and sqlite say the same, keys round-trip, damage is rejected."""

from __future__ import annotations

import bz2
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.formats.format import Head, Outcome
from logparse.formats.miopen import perf_db
from logparse.formats.miopen.perf_db import perf_key_of, problem_from_perf_key
from logparse.formats.miopen.problem_key import problem_from_key
from logparse.model import ConvProblem, Fact, Measurement, Reject

from .test_find_db import TARGET, Text, problems

ROOT = Path(__file__).parents[3]
CORPUS = ROOT.parent / "shared" / "corpus" / "miopen"
SAMPLES = ROOT / "sample_logs" / "miopen"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
LINE = (
    "2x512x28x28x1x1x1x1x256x64x0x0x0x2x2x0x1x1x0x0x1xNCHWxFP16xB="
    "ConvBinWinogradRxSf3x2:257;ConvHipImplicitGemmBwdXdlops:Device<256, 128> Filter1x1Stride1Pad0"
)


class File(Text):
    def __init__(self, path: Path) -> None:
        super().__init__(path.read_bytes(), path.name)
        self.path = path

    def local_path(self) -> str:
        return str(self.path)


def tuned(outcomes: list[Outcome]) -> list[Measurement]:
    return [record for outcome in outcomes for record in outcome.records if isinstance(record, Measurement)]


def test_a_record() -> None:
    outcome = perf_db.read_record(LINE)
    assert outcome.unit == "measurement"
    one, two = tuned([outcome])
    assert (one.solution.text, one.solution.raw, one.status) == ("miopen:ConvBinWinogradRxSf3x2", "257", "no_time")
    assert two.solution.raw == "Device<256, 128> Filter1x1Stride1Pad0"
    problem = one.problem
    assert isinstance(problem, ConvProblem)
    assert (problem.k, problem.out_h, problem.c, problem.h, problem.stride_h) == (512, 28, 256, None, 2)
    assert (problem.out_layout, problem.in_layout, problem.in_type) == ("NCHW", None, "FP16")


@given(problems())
def test_every_problem_has_a_key_and_the_key_tells_what_it_can(problem: ConvProblem) -> None:
    key = perf_key_of(problem)
    assert key is not None
    back = problem_from_perf_key(key)
    for name in ConvProblem.__dataclass_fields__:
        assert getattr(back, name) in (getattr(problem, name), None)


def test_the_samples_perf_db_is_of_the_samples_find_db() -> None:
    keys = {
        perf_key_of(problem_from_key(x.split("=")[0]))
        for x in (SAMPLES / "gfx942130.HIP.fdb.txt").read_text().splitlines()
    }
    outcomes = list(perf_db.read(File(SAMPLES / "gfx942130.db.txt")))
    assert {row.key_text for row in tuned(outcomes)} <= keys
    assert len(tuned(outcomes)) == 2 * 21
    assert Counter(o.unit for o in outcomes) == {"fact": 1, "measurement": 21}


@pytest.mark.parametrize(
    "text", ["junk", "1x2=a:b", LINE.replace("xB=", "xQ="), LINE.partition("=")[0] + "=;;", "=a:b"]
)
def test_damage_is_rejected(text: str) -> None:
    assert perf_db.read_record(text).unit == "reject"


@given(st.integers(0, 150), st.integers(0, 30), st.text(max_size=5))
def test_damaged_lines_never_raise(at: int, gone: int, new: str) -> None:
    perf_db.read_record(LINE[:at] + new + LINE[at + gone :])


def test_recognised() -> None:
    assert perf_db.recognise(Head("gfx942130.db.txt", b""))
    assert perf_db.recognise(Head("gfx942130.HIP.3_4_0_x.udb.txt", b""))
    assert perf_db.recognise(Head("x", LINE.encode()))
    assert not perf_db.recognise(Head("gfx942130.HIP.fdb.txt", b""))
    assert not perf_db.recognise(Head("x.ufdb.txt", b"a=b:c"))
    assert not perf_db.recognise(Head("x.db", b"SQLite format 3\0 other tables"))


def test_text_to_object_to_text() -> None:
    text = (SAMPLES / "gfx942130.db.txt").read_text()
    assert perf_db.records_text(tuned(list(perf_db.read(Text(text.encode(), "x.db.txt"))))) == text
    emission = perf_db.write(tuned([perf_db.read_record(LINE)]), TARGET)
    assert (emission.name, emission.data.decode()) == ("gfx942130.HIP.3_4_0_abc-dirty.udb.txt", LINE + "\n")
    with pytest.raises(EmissionError, match="miopen_tweak"):
        perf_db.write([], {k: v for k, v in TARGET.items() if k != "miopen_tweak"})


def sqlite_of(path: Path, text: str) -> None:
    names = (*perf_db._NUMBERS, *perf_db._WORDS)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"create table `config` (`id` integer primary key, {', '.join(f'`{x}` not null' for x in names)})")
        db.execute("create table `perf_db` (`id` integer primary key, `solver` text, `config` integer, `params` text)")
        for number, line in enumerate(text.splitlines()):
            key, _, payload = line.partition("=")
            db.execute(f"insert into config values ({number}, {', '.join('?' * len(names))})", key.split("x"))
            for item in payload.split(";"):
                solver, _, params = item.partition(":")
                db.execute("insert into perf_db (solver, config, params) values (?, ?, ?)", (solver, number, params))
        db.commit()


def test_sqlite_says_what_the_text_says(tmp_path: Path) -> None:
    text = (SAMPLES / "gfx942130.db.txt").read_text()
    path = tmp_path / "gfx942130.db"
    sqlite_of(path, text)
    assert perf_db.recognise(Head(path.name, path.read_bytes()[:65536]))
    outcomes = list(perf_db.read(File(path)))
    assert perf_db.records_text(tuned(outcomes)) == text
    assert [f for o in outcomes for f in o.records if isinstance(f, Fact) and f.name == "perf_db"] == [
        Fact("perf_db", "system")
    ]


def test_a_damaged_database_is_a_reject(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    sqlite_of(path, LINE)
    path.write_bytes(path.read_bytes()[:5000])
    outcomes = list(perf_db.read(File(path)))
    assert isinstance(outcomes[-1].records[0], Reject)


@needs_corpus
def test_the_shipped_database(tmp_path: Path) -> None:
    path = tmp_path / "gfx942130.db"
    path.write_bytes(bz2.decompress((CORPUS / "gfx942130.db.bz2").read_bytes()))
    assert perf_db.recognise(Head(path.name, path.read_bytes()[:65536]))
    rows = tuned(list(perf_db.read(File(path))))
    assert len(rows) == 21_058
    assert Counter(row.solution.id for row in rows)["ConvBinWinogradRxSf3x2"] == 9_177
    assert len({row.key_text for row in rows}) <= 9_393
    excerpt = (CORPUS / "gfx942130.excerpt.db.txt").read_text()
    pairs = {(row.key_text, row.solution.id, row.solution.raw) for row in rows}
    derived = tuned([perf_db.read_record(line) for line in excerpt.splitlines()])
    assert derived
    assert all((row.key_text, row.solution.id, row.solution.raw) in pairs for row in derived)


@needs_corpus
def test_perf_keys_of_shipped_find_db_keys_are_in_the_shipped_perf_db(tmp_path: Path) -> None:
    path = tmp_path / "gfx942130.db"
    path.write_bytes(bz2.decompress((CORPUS / "gfx942130.db.bz2").read_bytes()))
    tuned_keys = {row.key_text for row in tuned(list(perf_db.read(File(path))))}
    find = bz2.decompress((CORPUS / "gfx942130.HIP.fdb.txt.bz2").read_bytes()).decode().splitlines()
    shared = sum(perf_key_of(problem_from_key(line.split("=")[0])) in tuned_keys for line in find)
    assert shared > 9_000
