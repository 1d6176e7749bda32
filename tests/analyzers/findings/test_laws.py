"""Tests of rules that every analyzer (a search for one kind of slowness) must obey.

* Empty tables give no findings.
* The order of the rows does not matter.
* The analyzer does not change the tables.
"""

# An analyzer looks in the tables of a run. The test module of each analyzer has a function planted, which returns a
# case in which the analyzer finds something.

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, replace
from functools import cache
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import ANALYZERS
from analyzers.findings.finding import Analyzer
from analyzers.findings.slow_wrw import TUNE, TUNE_ELSEWHERE
from analyzers.recommend.ranking import Recommendation, recommend
from logparse.model import Advise, Finding
from logparse.store import Store
from tests.analyzers.build import NUMBERS, call, facts, frame, measurement, tables, work
from tests.analyzers.example import everything, gemm
from tests.conftest import NIGHTLY, sized

by_name = pytest.mark.parametrize("analyzer", ANALYZERS, ids=lambda x: x.name)
ORDERS = ("reversed", "shuffled")
OPEN = NUMBERS | {"raw", "algorithm", "error", "key_text", "samples_us", "workspace_bytes", "device", "function"}
"""Columns that may be empty, because the format of a log may omit the value."""
FRAMES = [field.name for field in fields(Tables) if field.name != "run" and field.default is MISSING]


@cache
def planted(analyzer: Analyzer) -> Tables:
    """Return made-up data in which the given analysis of logparse finds something to improve.

    The function ``planted`` in the test module of this analysis makes the data.
    """
    case: Tables = import_module(f"{__package__}.test_{analyzer.name.replace('-', '_')}").planted()
    return case


for _analyzer in ANALYZERS:  # now, since a module with properties cannot be imported while examples are made
    planted(_analyzer)


@cache
def together() -> Tables:
    """Return made-up data in which every kind of analysis finds something, as if all the data came from one job."""
    # Each analysis has test data of its own, which are joined here. If two of them have a file of the same name, they
    # remain two files.
    cases = {"everything": everything()} | {analyzer.name: planted(analyzer) for analyzer in ANALYZERS}
    return tables(
        **{name: [row for case in cases for row in rows(case, getattr(cases[case], name))] for name in FRAMES}
    )


def rows(case: str, frame: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of a table as dictionaries, with the name of the test case in front of each ``source_id``."""
    named = {"source_id": case + "/" + frame["source_id"]} if "source_id" in frame else {}
    return frame.assign(**named).to_dict("records")


def check(analyzer: Analyzer, given: Tables) -> None:
    """Check that an analyzer finds the same for every order of the rows, and does not change its input."""
    before = {name: getattr(given, name).copy(deep=True) for name in FRAMES}
    found = list(analyzer.find(given, Settings()))
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(given, name), before[name])
    assert {x.analyzer for x in found} == {analyzer.name}
    for how in ORDERS:
        assert list(analyzer.find(reorder_rows(given, how), Settings())) == found


def reorder_rows(given: Tables, how: str) -> Tables:
    def one(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.iloc[::-1] if how == "reversed" else frame.sample(frac=1.0, random_state=7)

    return replace(given, **{name: one(getattr(given, name)) for name in FRAMES})


@by_name
def test_empty_in_empty_out(analyzer: Analyzer) -> None:
    assert list(analyzer.find(tables(), Settings())) == []


@by_name
def test_planted_case(analyzer: Analyzer) -> None:
    check(analyzer, planted(analyzer))


@by_name
def test_every_finding_says_what_the_user_should_do(analyzer: Analyzer) -> None:
    """If logparse cannot fix the cause of a finding itself, the finding says what the user should do.

    Remarks about the whole run are exempt.
    """
    for finding in analyzer.find(planted(analyzer), Settings()):
        assert not isinstance(finding.remedy, Advise) or finding.advice or finding.problem is None


@cache
def answers_together() -> tuple[dict[str, list[Finding]], Recommendation]:
    """Run every analysis on the data of all test cases at once.

    Returns the findings of each analysis by name, and the result of ``logparse recommend``.
    """
    return {x.name: list(x.find(together(), Settings())) for x in ANALYZERS}, recommend(together(), Settings())


@pytest.mark.parametrize("how", ORDERS)
def test_all_cases_together(how: str) -> None:
    """Every analysis gives the same result if the data of all test cases are reordered, and does not change the data.

    The analyses work on the same tables one after the other, as in ``recommend``, because they share intermediate
    results.
    """
    found, recommendation = answers_together()
    given = reorder_rows(together(), how)
    before = {name: getattr(given, name).copy(deep=True) for name in FRAMES}
    for analyzer in ANALYZERS:
        assert {x.analyzer for x in found[analyzer.name]} == {analyzer.name}
        assert list(analyzer.find(given, Settings())) == found[analyzer.name]
    assert recommend(given, Settings()) == recommendation
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(given, name), before[name])


@pytest.mark.parametrize("name", FRAMES)
def test_tables_may_be_empty_or_lack_values(name: str) -> None:
    """No analyzer fails if a table is empty, has a single row, or has columns in which every value is missing.

    A log format may omit a value in every row. DuckDB then returns the column with the type "object".
    """
    given = together()
    frame = getattr(given, name)
    unknown = {column: pd.Series(pd.NA, frame.index, dtype="object") for column in set(frame) & OPEN}
    cases = (frame.assign(**unknown), frame.iloc[:0].astype(object), frame.iloc[:1], frame.iloc[:0])
    first = 0 if unknown and FRAMES.index(name) % 2 else 1
    for changed_frame in cases[first : first + 1] if not NIGHTLY else cases:
        recommend(replace(given, **{name: changed_frame}), Settings())


def of_sources(given: Tables, sources: Sequence[str]) -> Tables:
    """Return the tables with only the rows that come from the given files."""
    kept = {
        name: frame[frame["source_id"].isin(sources)]
        for name in FRAMES
        if "source_id" in (frame := getattr(given, name)).columns
    }
    called = given.workload["problem"].isin(kept["calls"]["problem"])
    return replace(given, **kept, workload=given.workload[called])


def test_any_two_samples_can_be_analysed(samples: Store) -> None:
    """``logparse recommend`` analyses any two of the sample files together without an error.

    It states the largest possible saving. The savings that it lists as measured never add up to more.
    """
    given = tables_of(samples)
    names = sorted(given.sources["source_id"])
    draw = random.Random(5)
    for _ in range(sized(2, 400)):
        pair = of_sources(given, draw.sample(names, 2))
        found = recommend(pair, Settings())
        measured = [x for x in found.findings if x.sureness != "estimated" and x.problem is not None]
        largest: dict[str, float] = {}
        for finding in measured:
            text = finding.problem.text if finding.problem else ""
            largest[text] = max(largest.get(text, 0.0), finding.saving_us or 0.0)
        assert sum(largest.values()) <= found.ceiling.saving_us * (1 + 1e-9), sorted(pair.sources["path"])


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["empty", "one row", "unknown"])
def test_any_two_tables_may_be_empty_of_one_row_or_unknown(how: str) -> None:
    given = together()
    pairs = [(one, two) for one in FRAMES for two in FRAMES if one < two]
    for pair in random.Random(how).sample(pairs, len(pairs)):
        changed_frames = {}
        for name in pair:
            frame = getattr(given, name)
            unknown = {column: pd.Series(pd.NA, frame.index, dtype="object") for column in set(frame) & OPEN}
            ways = {"empty": frame.iloc[:0], "one row": frame.iloc[:1], "unknown": frame.assign(**unknown)}
            changed_frames[name] = ways[how]
        recommend(replace(given, **changed_frames), Settings())


def test_measurements_of_other_products_propose_nothing() -> None:
    """If none of the measured matrix products was called in the logs, no other kernel is proposed.

    No error is raised either. An earlier version raised KeyError.
    """
    one, two = gemm().text, gemm(7).text
    rows = [measurement(two, "hipblaslt:1", 9.0), measurement(two, "Default", 9.0)]
    given = tables(workload=[work(one, 3)], calls=[call(one, "hipblaslt:3", 3)], measurements=rows)
    as_objects = {name: getattr(given, name).astype(object) for name in ("calls", "links", "sources", "facts")}
    assert not recommend(replace(given, **as_objects), Settings()).overrides


@cache
def of_known_devices() -> Tables:
    """Return test data in which every file states its GPU.

    The data are made-up files in which each kind of analysis finds something. A file that stated no GPU now states an
    MI300X (gfx942, 304 compute units).
    """
    given = together()
    stated = set(given.facts.loc[given.facts["name"] == "arch", "source_id"])
    here = [y for x in given.sources["source_id"] if x not in stated for y in facts(x, arch="gfx942", cu_count="304")]
    return replace(given, facts=pd.concat([given.facts, frame("facts", here)], ignore_index=True))


def beside_another_device(arch: str, run: str, seed: int) -> Tables:
    """Return the test data of ``of_known_devices``, and the same measurements again as if made on another GPU."""
    # A third of the added times are the same as on the first GPU. The others are multiplied by random factors from
    # 1/100 to 100.
    known = of_known_devices()
    rows, generator = known.measurements, np.random.default_rng(seed)
    factors = np.where(generator.random(len(rows)) < 1 / 3, 1.0, 10 ** generator.uniform(-2, 2, len(rows)))
    more = rows.assign(source_id="there/" + rows["source_id"], time_us=rows["time_us"] * factors, run=run)
    places = sorted(set(more["source_id"]))
    there = [row | {"run": run} for x in places for row in facts(x, arch=arch, cu_count="256")]
    paths = [{"source_id": x, "run": run, "path": x, "format": "table"} for x in places]
    both = {"measurements": more, "facts": frame("facts", there), "sources": frame("sources", paths)}
    return replace(known, **{name: pd.concat([getattr(known, name), x], ignore_index=True) for name, x in both.items()})


def without_other_devices(findings: Iterable[Finding]) -> list[Finding]:
    """Remove remarks about other GPUs from a list of advice, so that two lists can be compared.

    Such a remark says that a solver for a convolution is faster on another GPU.
    """
    return [
        replace(
            x, message=x.message.partition("; on gfx")[0], advice=x.advice and x.advice.replace(TUNE_ELSEWHERE, TUNE)
        )
        for x in findings
    ]


def answers_of_one_device(given: Tables) -> dict[str, list[Finding]]:
    """Run every analysis on the given data, and return its findings by name. Findings of other GPUs are left out.

    The name "recommend" has the findings of ``logparse recommend``.
    """
    each = {analyzer.name: without_other_devices(analyzer.find(given, Settings())) for analyzer in ANALYZERS}
    return each | {"recommend": without_other_devices(recommend(given, Settings()).findings)}


@cache
def answers_alone() -> dict[str, list[Finding]]:
    return answers_of_one_device(of_known_devices())


@pytest.mark.parametrize("run", ["r", "another"])
@pytest.mark.parametrize("arch", ["gfx950", "gfx1250"])
def test_rows_of_another_device_change_no_answer(arch: str, run: str) -> None:
    for seed in range(sized(1, 250)):
        found = answers_of_one_device(beside_another_device(arch, run, seed))
        assert {name for name, answer in answers_alone().items() if found[name] != answer} == set(), seed


def test_repeated_rows_change_no_finding() -> None:
    """If every measurement is in the tables twice, the findings stay the same."""
    given = together()
    twice = replace(given, measurements=pd.concat([given.measurements, given.measurements], ignore_index=True))
    found, recommendation = answers_together()
    for analyzer in ANALYZERS:
        assert list(analyzer.find(twice, Settings())) == found[analyzer.name], analyzer.name
    assert recommend(twice, Settings()).findings == recommendation.findings


def test_names_are_distinct() -> None:
    assert len({x.name for x in ANALYZERS}) == len(ANALYZERS)


def test_recommendation_of_nothing() -> None:
    nothing = recommend(tables(), Settings())
    assert not nothing.findings
    assert not nothing.overrides
    assert nothing.ceiling.share is None
