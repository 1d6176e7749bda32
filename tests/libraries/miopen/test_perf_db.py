"""Tests of reading and writing MIOpen's perf-db, its file of tuned solver parameters. Damaged rows are rejected."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import Head, Outcome
from logparse.libraries.miopen import find_db, perf_db
from logparse.libraries.miopen.perf_db_items import perf_key_of, problem_from_perf_key, read_record
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.model import ConvProblem, Measurement, Override, Solution
from tests import conftest
from tests.conftest import needs_corpus
from tests.libraries.reading import Memory, from_file

from .test_find_db import TARGET, problems

CORPUS, SAMPLES = conftest.CORPUS / "miopen", conftest.SAMPLES / "miopen"
LINE = (
    "2x512x28x28x1x1x1x1x256x64x0x0x0x2x2x0x1x1x0x0x1xNCHWxFP16xB="
    "ConvBinWinogradRxSf3x2:257;ConvHipImplicitGemmBwdXdlops:Device<256, 128> Filter1x1Stride1Pad0"
)


def text_of(rows: list[Measurement]) -> str:
    """Return the text of a perf-db (file of tuned parameters) with exactly these rows, one line per convolution."""
    by_key: dict[str, list[str]] = {}
    for row in rows:
        by_key.setdefault(str(row.key_text), []).append(f"{row.solution.id}:{row.solution.raw}")
    return "".join(f"{key}={';'.join(items)}\n" for key, items in by_key.items())


def keep_measurements(outcomes: list[Outcome]) -> list[Measurement]:
    return [record for outcome in outcomes for record in outcome.records if isinstance(record, Measurement)]


def test_a_record() -> None:
    outcome = read_record(LINE)
    assert outcome.unit == "measurement"
    one, two = keep_measurements([outcome])
    assert (one.solution.text, one.solution.raw, one.status) == ("miopen:ConvBinWinogradRxSf3x2", "257", "no_time")
    assert two.solution.raw == "Device<256, 128> Filter1x1Stride1Pad0"
    problem = one.problem
    assert isinstance(problem, ConvProblem)
    assert (problem.k, problem.out_h, problem.c, problem.h, problem.stride_h) == (512, 28, 256, None, 2)
    assert (problem.out_layout, problem.in_layout, problem.in_type) == ("NCHW", None, "FP16")


@given(problems())
def test_every_problem_has_a_key_and_the_key_states_what_it_can(problem: ConvProblem) -> None:
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
    outcomes = list(perf_db.read(from_file(SAMPLES / "gfx942130.db.txt")))
    assert {row.key_text for row in keep_measurements(outcomes)} <= keys
    assert len(keep_measurements(outcomes)) == 2 * 21
    assert Counter(o.unit for o in outcomes) == {"fact": 1, "measurement": 21}


@pytest.mark.parametrize(
    "text", ["junk", "1x2=a:b", LINE.replace("xB=", "xQ="), LINE.partition("=")[0] + "=;;", "=a:b"]
)
def test_damage_is_rejected(text: str) -> None:
    assert read_record(text).unit == "reject"


def test_recognised() -> None:
    assert perf_db.recognise(Head("gfx942130.db.txt", b""))
    assert perf_db.recognise(Head("gfx942130.HIP.3_4_0_x.udb.txt", b""))
    assert perf_db.recognise(Head("x", LINE.encode()))
    assert not perf_db.recognise(Head("gfx942130.HIP.fdb.txt", b""))
    assert not perf_db.recognise(Head("x.ufdb.txt", b"a=b:c"))


def test_text_to_object_to_text() -> None:
    text = (SAMPLES / "gfx942130.db.txt").read_text()
    assert text_of(keep_measurements(list(perf_db.read(Memory(text.encode(), "x.db.txt"))))) == text


FIND_KEY = "512-28-28-1x1-256-56-56-64-0x0-2x2-1x1-0-NCHW-FP16-B"
WINOGRAD = Override(
    problem=problem_from_key(FIND_KEY), solution=Solution("miopen", "ConvBinWinogradRxSf3x2"), target=TARGET,
    time_us=10.0, workspace_bytes=0, parameters="257",
)  # fmt: skip
CK = replace(
    WINOGRAD, solution=Solution("miopen", "ConvHipImplicitGemmBwdXdlops"), time_us=20.0,
    parameters="Device<256, 128> Filter1x1Stride1Pad0",
)  # fmt: skip


def test_a_perf_db_is_written_with_a_find_db() -> None:
    """When a find-db (solver times) is written, a perf-db with tuned parameters of the same solvers is written, too.

    The perf-db has the parameters of the chosen solver and of its fallback.
    """
    (emission,) = perf_db.write([replace(WINOGRAD, fallback=CK)], TARGET)
    assert (emission.name, emission.data.decode()) == ("gfx942130.HIP.3_4_0_abc-dirty.udb.txt", LINE + "\n")
    (beside,) = find_db.write([replace(WINOGRAD, fallback=CK)], TARGET)
    assert beside.name == emission.name.replace(".udb.", ".ufdb.")
    assert [item.split(":")[0] for item in beside.data.decode().partition("=")[2].split(";")] == [
        "ConvBinWinogradRxSf3x2",
        "ConvHipImplicitGemmBwdXdlops",
    ]
    vague = replace(WINOGRAD, problem=replace(problem_from_key(FIND_KEY), pad_h=None), key_text=FIND_KEY)
    assert perf_db.write([vague], TARGET)[0].data.decode() == LINE.partition(";")[0] + "\n"
    assert perf_db.write([], {}) == []


def test_the_net_is_left_out_where_miopen_would_not_take_it() -> None:
    for net in (replace(CK, workspace_bytes=None), replace(CK, time_us=None)):
        (beside,) = find_db.write([replace(WINOGRAD, fallback=net)], TARGET)
        assert ";" not in beside.data.decode()


def test_only_what_has_parameters_is_accepted() -> None:
    bare = replace(WINOGRAD, parameters=None)
    assert [perf_db.accepts(x) for x in (WINOGRAD, bare, replace(bare, fallback=CK))] == [True, False, True]
    assert not perf_db.accepts(replace(WINOGRAD, solution=Solution("hipblaslt", "3")))


def test_what_would_not_be_read_is_not_written() -> None:
    with pytest.raises(EmissionError, match="miopen_tweak"):
        perf_db.write([WINOGRAD], {k: v for k, v in TARGET.items() if k != "miopen_tweak"})
    with pytest.raises(EmissionError, match="sqlite"):
        perf_db.write([WINOGRAD], {**TARGET, "miopen_version": "3.1.0"})
    with pytest.raises(EmissionError, match="parameters"):
        perf_db.write([replace(WINOGRAD, parameters="1;2")], TARGET)
    with pytest.raises(EmissionError, match="no perf-db key"):
        perf_db.write([replace(WINOGRAD, problem=replace(problem_from_key(FIND_KEY), pad_h=None))], TARGET)


parameters = st.text(st.characters(codec="ascii", exclude_categories=["C"], exclude_characters=";"), max_size=40)


@given(st.lists(st.tuples(problems(), st.sampled_from(["ConvAsm1x1U", "ConvBinWinogradRxSf3x2"]), parameters)))
def test_object_to_text_to_object(entries: list[tuple[ConvProblem, str, str]]) -> None:
    wanted: dict[tuple[str | None, str], str] = {}
    overrides = []
    for problem, solver, text in entries:
        wanted.setdefault((perf_key_of(problem), solver), text)
        overrides.append(Override(problem=problem, solution=Solution("miopen", solver), target=TARGET, parameters=text))
    for emission in perf_db.write(overrides, TARGET):
        found = keep_measurements(list(perf_db.read(Memory(emission.data, emission.name))))
        assert {(row.key_text, row.solution.id): row.solution.raw for row in found} == wanted
        assert found[0].solution.library == "miopen"


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("gfx942130.db.txt", ["gfx942", "304"]),
        ("gfx942_38.db.txt", ["gfx942", "38"]),
        ("gfx90878.db.txt", ["gfx908", "120"]),
        ("gfx942130.HIP.3_4_0_abc.udb.txt", ["gfx942", "304", "HIP", "3.4.0", "abc"]),
        ("miopen.db", []),
    ],
)
def test_facts_of_names(name: str, facts: list[str]) -> None:
    assert [fact.value for fact in perf_db.facts_of_file(name)] == facts


@needs_corpus
def test_shipped_rows() -> None:
    rows = keep_measurements([read_record(x) for x in (CORPUS / "gfx942130.excerpt.db.txt").read_text().splitlines()])
    assert rows
    assert {row.status for row in rows} == {"no_time"}
