"""Tests that every word, column and filter of the web page tells a reader what it means."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from analyzers.explore import queries
from analyzers.explore.load.job import Card, PageVerdict, TimeSplit
from analyzers.explore.page import components
from analyzers.explore.page.components import Leads
from analyzers.explore.page.frame import columns
from analyzers.explore.selection import MOST_TIMES, Selection, interval_words
from analyzers.findings import completeness, host_bound, stale_override
from analyzers.recommend.render import warnings_first
from analyzers.recommend.todo import NOTHING, UNCONFIRMED
from logparse.lazy import pd
from logparse.model import SURENESS, UPPER_BOUND, Finding
from tests.analyzers.explore.test_cards import texts

CARD = Card(
    name="below-roofline",
    title="time 3 problems",
    detail="`logparse replay` measures them",
    saves="≈ 962 µs",
    gain="≈ 32.4 → 31.4 ms",
    evidence="estimated",
    changes="run logparse replay",
    files=False,
    basis=("kernels 7.93 → 1.92 ms, of which the job gains 0.962 ms, because the host is the limit; assumes that …"),
)


def test_each_column_says_what_it_means() -> None:
    assert list(queries.ABOUT) == list(queries.TABLE)
    for column in columns():
        assert str(column["about"]).endswith((".", "…")), column["name"]


def test_each_certainty_is_explained() -> None:
    known = [UPPER_BOUND if x == "unknown" else x for x in SURENESS]
    for sure, doubt in product(known, ("", "confirmed", UNCONFIRMED, NOTHING)):
        certainty = f"{sure}, {doubt}" if doubt else sure
        assert len(components.meaning(certainty).split("; ")) >= 1 + bool(doubt), certainty


def drawn(*cards: Card, order: str = "") -> str:
    split = pd.DataFrame({x: [] for x in ("kind", "us", "saving_us", "estimated_us", "conditional_us", "at_least")})
    return texts(components.answer(cards, None, split, Selection(), Leads({}, traced=False), order=order))


def test_the_order_of_the_cards_is_said_once_and_above_them() -> None:
    assert "measured first" in components.WORDS, "More words has the whole rule"
    for order in ("to do, estimates first", "measured first, not the largest"):
        said = drawn(CARD, CARD, order=order).partition("More words")[0]
        above, _, cards = said.partition("1. ")
        assert f"What to do, {order.removeprefix('to do, ')}" in above
        assert "s first" not in cards
        assert "measured first" not in cards
    assert "first" not in drawn(CARD, CARD, order="to do").partition("More words")[0], "they are in order of size"


def test_a_card_says_why_less_arrives_than_its_kernels_save() -> None:
    shown = drawn(CARD)
    assert f"· {CARD.basis}" in shown
    assert "of which the job gains" not in drawn(replace(CARD, basis=""))


def test_the_page_leads_from_its_words_to_their_meanings() -> None:
    shown = drawn(replace(CARD, evidence=UPPER_BOUND))
    assert f"{UPPER_BOUND}: how much can be saved is unknown" in shown
    for word in ("find-db", "regret", "override row", "F, B, W", "exposed communication"):
        assert word in shown


def test_code_has_no_backquotes() -> None:
    assert "`" not in drawn(CARD)
    assert "A ` alone" in drawn(replace(CARD, detail="a ` alone")), "a single backquote encloses nothing"


def test_idle_time_is_a_part_of_its_own() -> None:
    """Small kinds of work become one part. Idle time does not, so that it is the same on each tab."""
    kinds = [(f"kind {n}", 100.0 - n) for n in range(12)]
    shown = texts(components.answer((), TimeSplit("A step", (*kinds, ("idle", 50.0))), pd.DataFrame(), Selection(),
                                    Leads({}, traced=True)))  # fmt: skip
    assert " idle 50 µs" in shown
    assert f" other {sum(us for _, us in kinds[7:]):g} µs" in shown


@pytest.mark.parametrize(
    ("name", "low", "high", "text"),
    [
        ("sibling_ratio", 3.0, MOST_TIMES, "W ÷ max(F, B): 3 or more"),
        ("sibling_ratio", 1.5, 2.0, "W ÷ max(F, B): 1.5 to 2"),
        ("w_us", 900.0, 5370.0, "W time: 900 µs to 5.37 ms"),
    ],
)
def test_a_filter_on_a_number_is_words(name: str, low: float, high: float, text: str) -> None:
    assert interval_words(name, low, high) == text
    assert text in texts(components.chips(Selection(between={name: (low, high)})))


def test_remarks_that_void_results_come_first() -> None:
    names = (host_bound.NAME, completeness.NAME, "suboptimal-pick", stale_override.NAME)
    ordered = [x.analyzer for x in warnings_first([Finding(analyzer=name, message=name) for name in names])]
    assert ordered == [completeness.NAME, stale_override.NAME, host_bound.NAME, "suboptimal-pick"]


def test_a_card_shows_its_commands_with_labels_that_are_not_copied() -> None:
    lines = (("write", "logparse recommend --out overrides"), ("check", "logparse run --verify r -- JOB"))
    boxed: Any = components._box_commands(lines, "lines-1", "check runs it with logs")[0]
    box, note = boxed.children
    code = box.children
    assert code.attributes["id"] == "lines-1", "Copy copies the text of this element"
    assert _join_texts(code) == "\n".join(line for _, line in lines)
    assert [x.attributes["data-label"] for x in code.children] == ["write", "check"]
    assert note.children == "JOB is the command of the job. Check runs it with logs."
    assert "JOB" not in drawn(replace(CARD, commands=lines[:1]))
    assert "Check runs" not in drawn(replace(CARD, commands=(("try", "logparse try channels_last -- JOB"),)))


def _join_texts(component: Any) -> str:
    """Return the text that a browser copies from an element."""
    if isinstance(component, list):
        return "".join(map(_join_texts, component))
    return component if isinstance(component, str) else _join_texts(component.children)


def test_the_bar_tells_measured_savings_from_estimated_ones() -> None:
    """Estimated savings are hatched lighter. A part with times that are lower bounds is a lower bound, too."""

    def shown(saved: float, estimated: float, *, at_least: bool) -> list[Any]:
        amounts = {"us": [9.0], "saving_us": [saved], "estimated_us": [estimated], "conditional_us": [0.0]}
        split = pd.DataFrame({"kind": ["GEMM"], **amounts, "at_least": [at_least]})
        return components.answer((), None, split, Selection(), Leads({}, traced=False))

    measured = texts(shown(3.0, 0.0, at_least=False))
    assert "hatched: can be saved, by measured times" in measured
    assert "lighter" not in measured
    assert "GEMM 9 µs" in measured
    both = shown(3.0, 2.0, at_least=True)
    assert "GEMM ≥ 9 µs (100%, 3 µs to save, ≈ 2 µs to save)" in texts(both)
    assert "lighter: by estimates" in texts(both)
    (bar,) = (x for x in both if x.attributes.get("class") == "time-bar")
    assert [(x.attributes["class"], x.attributes["style"]) for x in bar.children] == [
        ("k k-GEMM", "width:44.44%"), ("k k-GEMM to-save", "width:33.33%"), ("k k-GEMM to-gain", "width:22.22%"),
    ]  # fmt: skip
    assert "hatched: can be saved, by estimates" in texts(shown(0.0, 2.0, at_least=False))


def test_a_later_card_says_how_many_of_its_rows_an_earlier_one_also_has() -> None:
    cards = [replace(CARD, name="a"), replace(CARD, name="b")]
    leads = Leads({"a": 41, "b": 14}, traced=False, shared={("a", "b"): 10, ("b", "a"): 10})
    shown = texts(components.answer(cards, None, None, Selection(), leads))
    assert shown.count("10 of its 14 problems are also in 1.") == 1
    assert "also in 2" not in shown
    filtered = texts(components.answer(cards, None, None, Selection(search="x"), leads, about={"b"}))
    assert "2. " in filtered, "a card keeps its number under a filter"


def test_a_remark_about_the_selected_rows_is_shown_and_others_are_folded() -> None:
    known = PageVerdict(headline="do it", lines=("the host waits", "W is slow"), about={"W is slow": "slow-wrw"})
    chosen = Selection(values={"direction": ("W",)})

    def remarks(*left: str) -> tuple[list[str], str]:
        made: list[Any] = components.verdict(known, None, "r", chosen, left=left)
        shown = [x for x in made if x.attributes.get("class") == "remark"]
        return [texts(x) for x in shown], texts([x for x in made if x.tag == "details"])

    assert remarks("slow-wrw")[0] == ["W is slow."]
    assert "1 remark about the whole run" in remarks("slow-wrw")[1]
    assert remarks()[0] == []
    assert "2 remarks about the whole run" in remarks()[1]


def test_what_a_run_does_not_log_is_no_change_of_the_job() -> None:
    names = ("problems", "both_picks", "picked", "repicked", "faster", "slower", "called", "here_us", "there_us")
    totals = pd.Series(dict.fromkeys(names, 0))
    for calls, logged in (
        (
            (("conv", 697, None, 1, 0), ("gemm", 244, 122, 2, 1)),
            "Run a logged 697 calls of convolutions in 1 process and 244 calls of GEMMs in 2 processes; run b logged "
            "no convolutions and 122 calls of GEMMs in 1 process.",
        ),
        (
            (("conv", None, 5, 0, 1),),
            "Run a logged no convolutions; run b logged 5 calls of convolutions in 1 process.",
        ),
        (
            (("gemm", 7, 5, 1, 1),),
            "Run a logged 7 calls of GEMMs in 1 process; run b logged 5 calls of GEMMs in 1 process.",
        ),
    ):
        shown = components.change(PageVerdict(calls=calls), ("b", "a"), totals)
        assert shown == [
            "a → b: no pick is known in both runs; whether the job got faster is not known",
            "The runs have no times that can be compared.",
            "The two runs may not be the same work.",
            logged,
            "To compare their times, make both runs with logparse capture --trace 2.",
        ]
    traced = PageVerdict(calls=(("gemm", 244, 122, 0, 0),), beside=(("a step", 20.0, 40.0),))
    assert components.change(traced, ("b", "a"), totals) == [
        "a → b: a step 40 µs → 20 µs (−50.0%)",
        "No pick is known in both runs.",
        "Run a logged 244 calls of GEMMs; run b logged 122 calls of GEMMs.",
    ], "other numbers of traced steps are no other work"


def test_what_changed_is_said_before_what_is_left() -> None:
    """The headline has the changed picks. Problems that are not judged are not hidden behind judged problems."""
    counts = {"problems": 0, "both_picks": 4, "picked": 17, "repicked": 4}
    proposed = "all 4 changed picks are the solutions that `logparse recommend` proposed for run a"
    why = "no better solution is known for any of 17 measured problems"
    known = PageVerdict(
        headline=f"nothing worth doing: {why}", nothing_left=True, proposed=proposed, changed=(("vanished", 44),)
    )
    changed = components.change(known, ("b", "a"), pd.Series(counts))
    assert changed[0] == (
        f"a → b: 4 of 17 picks changed; {proposed.replace('`', '')}; whether the job got faster is not known"
    )
    amounts = {"calls": 9.0, "problems": 17, "total_us": 5.0, "untimed_calls": 0.0, "unit": "run", "saving_us": 0.0}
    total = pd.Series({**amounts, "conditional_us": 0.0, "at_least": False, "borrowed": ["bench.txt (run a)"]})
    unlogged = components.list_unlogged(known, ("b", "a"))
    shown = texts(components.verdict(known, total, "b", Selection(view="compare"), changed, unlogged))
    assert "In run b, nothing worth doing: no better solution is known" in shown
    assert "The measured times are from bench.txt (run a)." in shown
    assert "44 problems of a, which b did not log." in shown
    assert shown.index("whether the job got faster") < shown.index("nothing worth doing")
    assert ": Nothing" not in shown


def test_runs_with_the_same_problems_are_offered_first() -> None:
    links = texts(components.offer_comparisons(["old", "alike", "b", "new"], "b", Selection(), {"alike"}))
    assert [links.index(x) for x in ("alike", "new", "old")] == sorted(links.index(x) for x in ("alike", "new", "old"))


def test_times_of_unnamed_solvers_are_explained() -> None:
    told = components.say_where_w_is_from(15, ["gfx942130.HIP.fdb.txt"])
    assert "does not name the solver that it runs for 15 W problems" in told
    assert "MIOpen's own table of timed solvers (find-db gfx942130.HIP.fdb.txt)" in told
    assert components.say_where_w_is_from(0, []) == ""


def test_the_mean_of_several_steps_is_said_beside_the_shown_step() -> None:
    parts = (("GEMM", 10_000.0), ("idle", 8_800.0))
    assert TimeSplit("A step (mean of 3)", parts, 3.0).mean == "mean of 3 steps: 18.8 ms"
    assert TimeSplit("A step", parts).mean == ""
