"""Tests of how the web page shows what to do: proposed changes, where the time goes, and all files as a zip."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

from analyzers.actions import action
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.explore.load.actions import archive, cards, time_split, times_beside
from analyzers.explore.load.job import Card
from analyzers.job.gpu_time import GpuTime, Part
from analyzers.recommend import next_commands
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.screen import Written, screen
from analyzers.recommend.todo import Todo, gain
from analyzers.recommend.verb import write
from analyzers.recommend.verdict import verdict
from logparse.model import Evidence, Finding, Gain
from logparse.store import Store
from tests.analyzers.example import B, F, W, everything


def test_the_cards_are_the_list_of_recommend() -> None:
    layout = action.Action(
        name="channels-last",
        kind="program",
        about="store activations as NHWC",
        change=lambda *_: None,
        application=lambda _: None,
    )
    line = action.Application(line="model.to(memory_format=torch.channels_last)", model=("x",))
    part = action.Part(of="F", label="F", group="conv", calls=1.0, now_us=10.0, then_us=5.0)
    pays = action.ActionResult(
        action=layout, application=line, now_us=10.0, then_us=5.0, low_us=4.0, high_us=6.0, parts=(part,),
    )  # fmt: skip
    unsure = replace(pays, then_us=9.0, high_us=12.0)
    found = replace(recommend(everything(), Settings()), actions=(pays, unsure))
    made = cards(found)
    assert [(x.title, x.gain, x.evidence) for x in made] == [
        (x.title, "unknown" if x.gain is None else f"{gain(x)} a {x.unit}", x.certainty) for x in verdict(found).todo
    ]
    (card,) = (x for x in made if x.title == "use channels-last")
    assert (card.gain, card.evidence, card.files) == ("10 → 5 µs a run", "measured alone", True)
    assert card.detail == "store activations as NHWC: model.to(memory_format=torch.channels_last)"


def test_findings_of_one_remedy_are_one_card_and_a_problem_counts_once() -> None:
    timed = Evidence(sureness="measured alone")  # no search is proposed for such findings
    texts = {"message": "", "advice": "Fuse the epilogue.", "evidence": timed}
    found = (
        *(
            Finding(analyzer="a", problem=problem, per_call=Gain(50.0, us), in_run=Gain(50.0, us), **texts)
            for problem, us in ((F, 40.0), (F, 20.0), (B, 45.0))
        ),
        Finding(analyzer="c", problem=W, **texts),
    )
    fuse, pad = cards(replace(recommend(everything(), Settings()), findings=found, actions=(), remarks=()))
    assert (fuse.title, fuse.gain, fuse.detail) == ("follow the advice of a", "100 → 65 µs a run", "Fuse the epilogue.")
    assert (pad.title, pad.gain, pad.files) == ("follow the advice of c", "unknown", False)


def test_overrides_come_as_one_card_with_files() -> None:
    (apply,) = (x for x in cards(recommend(everything(), Settings())) if x.title == "use 2 faster GEMM solutions")
    assert apply.files
    assert apply.changes == "apply 2 rows of override files"


def test_the_files_are_one_zip_without_a_path_of_this_machine(sampled: Store, tmp_path: Path) -> None:
    made = recommend(tables_of(sampled), Settings())
    archive(made, Settings(), tmp_path / "files.zip")
    with zipfile.ZipFile(tmp_path / "files.zip") as files:
        names = files.namelist()
        assert {"report.md", "findings.json"} < set(names)
        scripts = [files.read(x) for x in names if x.endswith("/apply.sh")]
        assert any(x.endswith("hipblaslt_tuning.txt") for x in names)
        assert all(b"logparse-files-" not in files.read(name) for name in names)
        assert json.loads(files.read("findings.json"))["targets"]
        assert any(b"HIPBLASLT_TUNING_OVERRIDE_FILE" in x for x in scripts)


TIME = GpuTime(
    parts=(Part("communication", 30.0, 1), Part("convolution W", 50.0, 4), Part("convolution F", 20.0, 4)),
    kernels_us=100.0, traces=1, steps=2.0, window_us=120.0, busy_us=100.0, alone_us=30.0,
)  # fmt: skip


def test_the_time_of_traces_is_split_as_recommend_splits_it() -> None:
    found = replace(recommend(everything(), Settings()), gpu_time=TIME)
    split = time_split(found)
    assert split is not None
    assert split.parts == (("convolutions", 35.0), ("exposed communication", 15.0), ("idle", 10.0))
    assert split.title == "A step, mean of 2"
    assert (time_split(replace(found, word="request")) or split).title == "A request, mean of 2"
    whole = replace(found, gpu_time=replace(TIME, steps=None))
    assert (time_split(whole) or split).title == "The whole trace", "as the terminal names it"
    assert time_split(replace(found, gpu_time=None)) is None


def test_a_card_states_its_saving_and_the_lines_to_type() -> None:
    made = {type(x.remedy).__name__: y for x, y in _todos(recommend(everything(), Settings()))}
    apply, search = made["UseRows"], made["Search"]
    assert apply.saves.split()[-1] in ("µs", "ms")
    write = "logparse recommend --store S --run r --out overrides-r"
    check = "logparse run --store S --with overrides-r --verify r -- JOB"
    timed = (
        f"logparse capture --store S --trace 2 --run timed -- JOB && {check.replace('--verify r', '--verify timed')}"
    )
    assert apply.lines[-4:] == (write, check, timed, "logparse run --with overrides-r -- JOB")
    assert [label for label, _ in apply.commands] == [
        next_commands.CONFIRM,
        "write",
        next_commands.CHECK,
        next_commands.TIME,
        next_commands.APPLY,
    ]
    assert [label for label, _ in search.commands] == [
        "write",
        next_commands.SEARCH,
        "ingest",
        "write again",
        next_commands.CHECK,
    ]
    assert search.saves.startswith("≈ "), "an estimate is marked"
    assert search.lines[1].startswith("for S in overrides-r/*/tune_miopen.sh")
    assert search.lines[2].startswith("logparse ingest --store S --run r-search overrides-r/*/"), "the results are read"
    assert re.search(r"overrides-\w+/\*/miopen-tuning-db/\*\.ufdb\.txt", search.lines[2])
    assert search.lines[3:] == (write, check), "and becomes rows"
    unknown = [y for x, y in _todos(recommend(everything(), Settings())) if x.gain is None]
    assert all(x.saves == "unknown" for x in unknown)


def test_the_card_and_the_terminal_name_the_same_commands(sampled: Store, tmp_path: Path) -> None:
    made = recommend(tables_of(sampled), Settings())
    (card,) = (x for x in cards(made, "S", ["demo"]) if x.title.endswith("faster GEMM solutions"))
    written, _ = write(made, Settings(), tmp_path)
    lines = " ".join(x.rstrip("\\").strip() for x in screen(made, Written(tmp_path, written, "S", ["demo"])))
    shown = [
        x.replace("--with overrides-demo", "--with $D").replace("demo after overrides-demo", "demo after $D")
        for x in card.lines
    ]
    replay, _, check, timed, apply = shown
    assert card.evidence.endswith("not confirmed")
    assert [label for label, _ in card.commands] == [
        next_commands.CONFIRM,
        "write",
        next_commands.CHECK,
        next_commands.TIME,
        next_commands.APPLY,
    ]
    labels = (next_commands.CONFIRM, replay), (next_commands.APPLY, apply), (next_commands.CHECK, check)
    for label, line in (*labels, (next_commands.TIME, timed)):
        assert re.search(rf"for [\d,]+: {re.escape(label)} {re.escape(line)}", " ".join(lines.split())), label


def _todos(found: Recommendation) -> list[tuple[Todo, Card]]:
    return list(zip(verdict(found).todo, cards(found, "S"), strict=True))


def test_times_of_two_runs_are_per_step_where_both_mark_steps() -> None:
    after = replace(TIME, steps=4.0, alone_us=None)
    assert times_beside(TIME, after) == (
        ("a step", 60.0, 30.0),
        ("GPU time", 50.0, 25.0),
        ("exposed communication", 15.0, None),
        ("idle", 10.0, 5.0),
    )
    assert times_beside(TIME, replace(after, steps=None))[0] == ("all traces", 120.0, 120.0)
    assert times_beside(replace(TIME, word="request"), after)[0] == ("a request", 60.0, 30.0)
    assert times_beside(TIME, None) == ()
