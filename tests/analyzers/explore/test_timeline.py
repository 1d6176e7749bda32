"""Tests of the timeline of one step: the work and the gaps that it shows, the reasons for gaps, and the drawing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analyzers.explore import queries
from analyzers.explore.charts.palette import KINDS, LIGHT, kind_of_work
from analyzers.explore.charts.timeline import DRAWN, HOST, IDLE, NOTHING, timeline
from analyzers.explore.load import one_step
from analyzers.explore.load.child import write_tables
from analyzers.explore.page import components
from analyzers.explore.page.elements import Element
from analyzers.explore.selection import Selection
from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.analyzers.explore.test_cards import texts
from tests.conftest import SAMPLES

CSS = Path(one_step.__file__).parents[1] / "assets" / "explore.css"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = open_store(tmp_path_factory.mktemp("traced") / "store", create=True)
    ingest([str(SAMPLES / "traces" / "job.trace.json")], made, run="job", jobs=1)
    return made


def test_a_step_is_works_and_gaps_that_fill_it(traced: Store) -> None:
    with traced.connect() as con:
        step = one_step.one_step(con, "job")
    assert step is not None
    assert step.works["start"].min() == 0
    whole = float((step.works["start"] + step.works["us"]).max())
    covered = sorted(zip(step.works["start"], step.works["start"] + step.works["us"], strict=True))
    busy, until = 0.0, 0.0
    for start, end in covered:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    assert busy + step.gaps["us"].sum() == pytest.approx(whole)
    assert set(step.gaps["why"]) <= set(one_step.WHYS)
    assert set(map(kind_of_work, step.works["kind"])) - {"other"}, "kinds of work are known"


def test_when_the_host_launched_the_work_is_said() -> None:
    """A host that runs ahead of the GPU only waits in the shown step. The sentence says when it launched the work."""
    asked = np.array([1_000.0, np.nan, 16_900.0])
    said = one_step._say_launched(asked, 35_400.0, only_waits=True)
    assert said == (
        "The host runs ahead: it launched this step's work in 15.9 ms, beginning 34.4 ms before the step's first "
        "kernel, and only waits in the time shown here."
    )
    plain = "The host launched this work within 15.9 ms, beginning 34.4 ms before the first kernel."
    assert one_step._say_launched(asked, 35_400.0, only_waits=False) == plain
    late = one_step._say_launched(asked, 9_000.0, only_waits=True)
    assert late.startswith("The host launched this work within"), "some of it was launched in the time shown"
    assert one_step._say_launched(np.array([np.nan]), 0.0, only_waits=True) == ""


def test_the_reason_of_a_gap_is_the_first_that_fits() -> None:
    start, us = np.array([0.0, 100.0, 300.0, 600.0, 1000.0]), np.full(5, 50.0)
    asked = np.array([-1.0, 20.0, 260.0, 550.0, 990.0])  # the second work was launched before the first gap began
    kinds = [one_step.CALL_KINDS.index(x) for x in ("device", "launch")]
    calls = {"kind": np.array(kinds), "start": np.array([150.0, 990.0]), "end": np.array([290.0, 991.0])}
    loads = {"start": np.array([360.0]), "end": np.array([590.0])}
    gaps = one_step._gaps(start, us, asked, calls, loads)
    assert gaps["why"].tolist() == ["queued", "synchronisation", "data loading", "host"]
    assert gaps["us"].tolist() == [50.0, 150.0, 250.0, 350.0]


def test_the_host_launches_and_waits_within_the_step() -> None:
    kinds = [one_step.CALL_KINDS.index(x) for x in ("launch", "stream", "stream", "allocator", "launch")]
    start = np.array([90.0, 130.0, 200.0, 210.0, 20.0])
    calls = {"kind": np.array(kinds), "start": start, "end": start + np.array([20.0, 50.0, 5.0, 1.0, 10.0])}
    host = one_step._host_calls(calls, 100.0, 205.0)
    assert host["does"].tolist() == ["launch", "wait", "other"], "a short call that could wait did not wait"
    assert host["start"].tolist() == [0.0, 30.0, 100.0], "times count from the first kernel"
    assert host["us"].tolist() == [10.0, 50.0, 5.0], "what lies outside the step is cut off"


def test_kernels_are_summed_by_time_and_lead_to_their_problems(traced: Store) -> None:
    with traced.connect() as con:
        con.execute("attach ':memory:' as out_")
        write_tables(con, "out_", "job", None, None)
        con.execute("use out_")
        rows = queries.kernels(con, 100)
        total, per_step = queries.kernels_us(con)
        stored = con.execute("select sum(total_us) from memory.kernels").fetchall()[0][0]
        steps = con.execute("select steps from memory.steps_").fetchall()[0][0] or 1.0
        of_one = queries.kernels(con, 100, con.execute("select problem from points limit 1").fetchall()[0][0])
    assert [x.us for x in rows] == sorted((x.us for x in rows), reverse=True)
    assert total * steps == pytest.approx(stored)
    assert per_step == (steps > 1)
    known = [x for x in rows if x.id]
    assert known
    assert {x.id for x in of_one} == {of_one[0].id}
    shown = components.kernels(rows, total, "a step", Selection(view="timeline"))
    assert "Kernels of a step" in texts(shown)
    assert f"problem={known[0].id}" in repr(shown), "a kernel leads to its problem"


def parts_of(given: Any) -> Iterator[Element]:
    """Yield all elements in a part of the page."""
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, Element):
            yield one
            yield from parts_of(one.children)


def test_names_in_the_table_of_kernels_are_short_and_differ() -> None:
    """A name of 1,000 characters is cut where the other names have it in common. The tooltip has the whole name."""
    same = "_ZN7ck_tile6kernel" + "I4half" * 80
    names = [f"{same}E{n}{same}" for n in range(12)]
    names += ["cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", "void at::native::fill<float>(float*)"]
    rows = [queries.KernelRow(name, "aten::mm", "GEMM", 1.0, 5.0, "i", "TN 1×1×1") for name in names]
    for given in (components.kernels(rows, 70.0, "", Selection()), components.list_launched_kernels(rows, Selection())):
        cells = [x for x in parts_of(given) if x.attributes.get("title") in names]
        shown = [texts(x) for x in cells]
        assert [x.attributes["title"] for x in cells] == names
        assert len(set(shown)) == len(names)
        assert max(map(len, shown)) <= 100
        assert shown[-2:] == [names[-2], "fill<float>"]


def test_many_works_are_joined_and_the_open_problem_is_marked() -> None:
    count = 4 * DRAWN
    works = pd.DataFrame({"start": [2.0 * i for i in range(count)], "us": 1.0, "stream": "stream 7", "kind": "GEMM",
                          "kernel": "k", "op": "mm", "problem": "p", "id": "i"})  # fmt: skip
    gaps = pd.DataFrame({"start": [1.0], "us": [1.0], "why": ["host"]})
    host = pd.DataFrame({"start": [2.0 * i for i in range(count)], "us": 1.0, "does": "launch"})
    figure = timeline(works, gaps, host, "Step 1", "The host launched this work within 9 ms.", LIGHT)
    bars, idle, launches = figure.data
    assert len(launches["x"]) <= DRAWN
    assert set(launches["y"]) == {HOST}
    assert len(bars["x"]) <= DRAWN
    assert figure.layout["xaxis"]["title"]["text"].endswith("<br>The host launched this work within 9 ms.")
    assert bars["marker"]["color"] == KINDS["GEMM"][0]
    assert set(idle["y"]) == {IDLE}
    marked = timeline(
        works[:10].assign(problem=["p"] * 5 + ["q"] * 5), gaps, host[:0], "Step 1", "", LIGHT, problem="p"
    )
    assert HOST not in marked.layout["yaxis"]["categoryarray"], "a trace without calls of the host has no line for it"
    assert sorted(set(marked.data[0]["marker"]["opacity"])) == [0.15, 1.0]
    empty = timeline(works[:0], gaps[:0], host[:0], "", "", LIGHT)
    assert empty.layout["annotations"][0]["text"] == NOTHING


def test_rows_of_the_table_of_kernels_differ_in_what_they_show() -> None:
    """Launches by one operator differ by its first input. If they do not, they are one row."""
    operator = "operator aten::norm float16({},{}|4,1) float32(8|1)"
    made = [("k", "aten::norm", operator.format(*x), "", "other", 1.0, us) for x, us in
            (((2, 4), 5.0), ((3, 4), 4.0), ((2, 4), 3.0))]  # fmt: skip
    made.append(("k", "aten::norm", "operator aten::norm float16(2,4|1,2)", "", "other", 2.0, 1.0))
    with queries.open_points(pd.DataFrame({"problem": ["p"], "id": ["i"], "label": ["TN 1×1×1"]})) as con:
        names = ["kernel", "op", "operator", "problem", "kind", "calls", "us"]
        con.register("made_", pd.DataFrame(made, columns=names))
        con.execute("create table kernels as from made_")
        rows = queries.kernels(con, 10)
        assert [(x.input, x.calls, x.us) for x in rows] == [("2×4 float16", 4.0, 9.0), ("3×4 float16", 1.0, 4.0)]
        con.execute(
            "insert into kernels values ('k', 'aten::mm', 'operator aten::mm half(2,2|2,1)', 'p', 'GEMM', 1, 7)"
        )
        (of_problem,) = queries.kernels(con, 10, "p")
    assert (of_problem.label, of_problem.input) == ("TN 1×1×1", "")


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_each_kind_of_work_has_its_own_colour(place: int) -> None:
    """Each kind of GPU work has its own colour, and no two colours look alike.

    The HTML page's style sheet must have the same colours as the charts.
    """
    sheets = re.findall(r":root[^{]*\{( --k-[^}]*)\}", CSS.read_text(encoding="utf-8"))
    stated = dict(re.findall(r"--k-([\w-]+): (#\w+);", sheets[place]))
    assert stated == {name.replace(" ", "-"): colours[place] for name, colours in KINDS.items()}
    alike = [{"convolutions", "forward"}]  # a bar has either all convolutions or their directions
    names = list(KINDS)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            first, second = (bytes.fromhex(KINDS[x][place][1:]) for x in (one, other))
            apart = sum((x - y) ** 2 for x, y in zip(first, second, strict=True)) ** 0.5
            assert apart > 25 or {one, other} in alike, (one, other, apart)


def test_a_step_begins_with_its_first_launched_kernel() -> None:
    """The timeline of a step begins when the GPU runs the first kernel that the step launched, not earlier.

    The host may already launch this step while the GPU still does work from before.
    """
    works = {"start": np.array([0.0, 10.0, 100.0, 110.0, 200.0, 210.0]), "us": np.full(6, 5.0)}
    asked = np.array([np.nan, np.nan, 1.0, 2.0, 21.0, 22.0])
    units = {"start": np.array([0.0, 20.0]), "end": np.array([19.0, 39.0])}
    chosen, title, _ = one_step._window(works, asked, units)
    assert works["start"][chosen].tolist() == [100.0, 110.0]
    assert title.startswith("Step 1 of 2 ")
    chosen, title, _ = one_step._window(works, asked, {"start": np.array([]), "end": np.array([])})
    assert chosen.all()
    assert "marks no steps" in title


def test_the_timeline_and_the_remark_state_the_same_idle_time(store: Store, tmp_path: Path) -> None:
    """The reasons of idle time add up to the same figures in the timeline and in the facts behind the remark."""
    # The sample's steps are unmarked here, so the timeline shows the whole trace. The remark tells apart two reasons
    # that the timeline adds up.
    trace = json.loads((SAMPLES / "traces" / "job.trace.json").read_text(encoding="utf-8"))
    trace["traceEvents"] = [x for x in trace["traceEvents"] if not str(x.get("name", "")).startswith("ProfilerStep#")]
    (tmp_path / "unmarked.trace.json").write_text(json.dumps(trace), encoding="utf-8")
    ingest([str(tmp_path / "unmarked.trace.json")], store, run="r", jobs=1)
    with store.connect() as con:
        step = one_step.one_step(con, "r")
        [(text,)] = con.execute("select value from facts where name = 'gpu_idle_us'").fetchall()
    assert step is not None
    idle = json.loads(text)
    shown = step.gaps.groupby("why")["us"].sum().to_dict()
    assert sum(shown.values()) == pytest.approx(sum(idle.values()), abs=0.01)
    assert shown.get("queued", 0.0) == pytest.approx(idle.get("queued", 0.0), abs=0.01)
    assert shown.get("host", 0.0) == pytest.approx(idle.get("launching", 0.0) + idle.get("nothing", 0.0), abs=0.01)
