"""Tests of the text that ``logparse recommend`` prints by default. Each case is compared with a reviewed text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import naive_convolution, slow_wrw
from analyzers.overrides.lint import files_in
from analyzers.recommend import documents, screen, verb
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.todo import gain
from analyzers.recommend.todo_order import name_order
from analyzers.recommend.verdict import verdict
from logparse.errors import UsageError
from logparse.ingest import ingest
from logparse.model import AFTER_SEARCH, SURENESS, Gain, Replay, Search
from logparse.store import open_store
from logparse.text import line_width
from tests.analyzers.build import measurement, tables, work
from tests.analyzers.example import W, everything, gemm
from tests.analyzers.findings import test_exposed_communication, test_host_bound
from tests.analyzers.recommend.test_apply_module import padded
from tests.analyzers.recommend.test_confidence import FAST, confirmed
from tests.conftest import SAMPLES
from tests.golden import Goldens

GOLDEN = Path(__file__).parent / "golden" / "screen"


def samples(*names: str) -> Callable[[Path], Tables]:
    """Return a function that reads these sample files into a new store, and returns the tables for analysis.

    A store is a folder of Parquet files. The function gets the folder in which to make it.
    """

    def read(folder: Path) -> Tables:
        store = open_store(folder / "store", create=True)
        ingest([str(SAMPLES / name) for name in names], store, run="before", jobs=1)
        return tables_to_analyse(store)

    return read


def built(made: Callable[[], Tables]) -> Callable[[Path], Tables]:
    return lambda folder: made()


def best_already() -> Tables:
    """Return made-up data of a run in which the library already chose the faster one of two measured kernels."""
    text = gemm().text
    times = [measurement(text, "Default", 40.0), measurement(text, "hipblaslt:9", 50.0)]
    return tables(workload=[work(text, 10)], measurements=times)


def host() -> Tables:
    """Return made-up data of a trace of two steps of 500 µs, in which the GPU waits for the host.

    The GPU is busy for 270 µs of each step.
    """
    return test_host_bound.make_trace_tables(
        540.0, profiler_steps="2", profiler_steps_us="1000.0", untraced_step_us="500.0"
    )


HIPBLASLT = ("hipblaslt/hipblaslt_rank0_4242.log", "hipblaslt/hipblaslt_rank1_4243.log")
CASES: Mapping[str, Callable[[Path], Tables]] = {
    "gained": samples(*HIPBLASLT, "hipblaslt/bench_output.txt", "miopen/miopen_cmd_4242.log",
                      "miopen/gfx942130.HIP.fdb.txt", "tunableop/tunableop_results0.csv"),
    "confirmed": built(lambda: confirmed(*FAST)),
    "everything": built(everything),
    "trace": samples("traces/job.trace.json"),
    "host-bound": built(host),
    "communication-bound": built(test_exposed_communication.planted),
    "nothing traced": samples(*HIPBLASLT),
    "nothing to do": built(best_already),
    "nothing": built(tables),
    "find-db only": samples("miopen/gfx942130.HIP.fdb.txt"),
    "TunableOp only": samples("tunableop/tunableop_verbose.log", "tunableop/tunableop_untuned0.csv"),
}  # fmt: skip


def found_in(case: str, folder: Path) -> Recommendation:
    return recommend(CASES[case](folder), Settings())


def print_screen(found: Recommendation, folder: Path) -> list[str]:
    """Return the lines that ``recommend`` prints for this result, without any option.

    The files of the recommendation are written into the subfolder ``overrides`` of ``folder``.
    """
    written, _ = verb.write(found, Settings(), folder / "overrides")
    return screen.screen(found, screen.Written(folder / "overrides", written))


@pytest.mark.parametrize("case", CASES)
def test_the_default_output(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Goldens) -> None:
    monkeypatch.chdir(tmp_path)
    lines = print_screen(found_in(case, tmp_path), tmp_path)
    assert len(lines) <= screen.LINES
    assert max(map(len, lines)) <= line_width()
    golden.check(GOLDEN / f"{case}.txt", "\n".join(lines) + "\n")
    monkeypatch.setenv("COLUMNS", "80")
    narrow = print_screen(found_in(case, tmp_path), tmp_path)
    assert (len(narrow) <= screen.LINES, max(map(len, narrow)) <= 80) == (True, True)
    assert [x.split()[:1] for x in narrow if x.startswith(" 1 ")] == [
        x.split()[:1] for x in lines if x.startswith(" 1 ")
    ]


def test_the_first_line_says_that_no_file_could_be_written(tmp_path: Path) -> None:
    """If a row cannot be written, the first line must not send the reader to a file that does not exist."""
    found = recommend(confirmed(*FAST), Settings())
    made, told = verb.write(found, Settings(), tmp_path / "overrides")
    lines = screen.screen(found, screen.Written(tmp_path / "overrides", made, notes=told))
    assert "; no override file could be written" in " ".join(" ".join(lines[:2]).split())
    why = next(x for x in told if screen.NOT_WRITTEN in x).rpartition(screen.NOT_WRITTEN)[2]
    assert f"apply nothing, because no override row could be written: {why}" in " ".join(" ".join(lines).split())
    fits = screen.screen(recommend(everything(), Settings()), screen.Written(tmp_path))
    assert "could be written" not in " ".join(fits)


def test_a_solution_of_an_unknown_machine_is_checked_and_not_timed_first() -> None:
    known, new = Replay(on_target=True), Replay()
    assert known.title([None]) == "check 1 faster solution on your machine"
    assert "--same-build" in known.changes
    assert (new.title([None]), new.changes) == (
        "measure 1 problem, then use faster solutions",
        "run logparse replay, then recommend again",
    )


def test_titles_name_matrix_products_and_convolutions() -> None:
    """The word "problems" alone reads like defects, so titles say what is measured if they can."""
    product = gemm()
    assert Replay().title([product, product]) == "measure 1 GEMM, then use faster solutions"
    assert Replay().title([product, W]) == "measure 2 GEMMs and convolutions, then use faster solutions"


def test_the_recipe_of_a_search_is_complete_everywhere(tmp_path: Path) -> None:
    """A search takes hours. The files that it writes must be ingested, and recommend then writes rows."""
    found = found_in("gained", tmp_path)
    written, _ = verb.write(found, Settings(), tmp_path / "overrides")
    [script] = (x for x in written if x.name == "tune_miopen.sh")
    page = (tmp_path / "overrides" / "report.md").read_text(encoding="utf-8")
    shown = "\n".join(screen.screen(found, screen.Written(tmp_path / "overrides", written)))
    for text in (page, shown, " ".join(script.lines), slow_wrw.TUNE, slow_wrw.TUNE_ELSEWHERE, naive_convolution.SEARCH):
        assert "takes hours" in text
        assert AFTER_SEARCH.lower() in " ".join(text.lower().split())


def test_no_printed_command_writes_the_files_again(tmp_path: Path) -> None:
    """The options of the user's own ``recommend`` are unknown, so another one would rename the files that it wrote."""
    found = found_in("gained", tmp_path)
    written, _ = verb.write(found, Settings(), tmp_path / "overrides")
    shown = screen.screen(found, screen.Written(tmp_path / "overrides", written))
    assert not [x for x in shown if "logparse recommend" in x and "--explain" not in x]
    assert any("then recommend again" in x for x in shown)


def test_blocks_of_shell_code_can_be_pasted(tmp_path: Path) -> None:
    """In the blocks ``sh`` of the report, sentences are comments. A shell runs all other lines."""
    verb.write(found_in("gained", tmp_path), Settings(), tmp_path / "overrides")
    page = (tmp_path / "overrides" / "report.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [x for block in blocks for x in block.splitlines() if not x.startswith("#")]
    assert len(blocks) > 2
    assert {x.split()[0] for x in lines} <= {"export", "unset", ".", "cd", "(cd"}
    [sourced] = {x for x in lines if x.startswith(". ")}
    assert Path(sourced[2:]).is_file()


def test_an_expected_time_says_whose_time_it_is(tmp_path: Path) -> None:
    text = " ".join(" ".join(print_screen(found_in("gained", tmp_path), tmp_path)).split())
    assert "(18 calls of 5.37 ms by the best known solver → 273 µs, the time of its B)" in text


def test_times_that_no_saving_rests_on_are_only_explained(tmp_path: Path) -> None:
    found = found_in("gained", tmp_path)
    words = "W convolutions of similar size take "
    assert words in "\n".join(x for x in screen.explain_change(found, "search") if isinstance(x, str))
    assert words not in documents.report(found, [])


def test_no_golden_is_left_over(golden: Goldens) -> None:
    golden.check_names(GOLDEN, (GOLDEN / f"{case}.txt" for case in CASES))


def test_it_fits_where_names_are_long(tmp_path: Path) -> None:
    found = found_in("everything", tmp_path)
    lines = print_screen(found, tmp_path / ("long" * 30))
    assert (len(lines) <= screen.LINES, max(map(len, lines)) <= line_width()) == (True, True)
    joined = re.sub(r"\\\n *", "", "\n".join(lines))
    assert f"D={tmp_path / ('long' * 30)}/overrides/" in joined, "a shell joins the parts of a path again"


@pytest.mark.parametrize(
    ("length", "rest"),
    [
        (3, "rest     1 with too small an effect on the step · logparse recommend --run rrr --explain N · all: -v"),
        (30, f"rest     logparse recommend --run {'r' * 30} --explain N · all: -v"),
        (45, f"rest     about each: --run {'r' * 45} --explain N · all: -v"),
    ],
)
def test_a_command_in_the_last_line_is_never_cut(length: int, rest: str, tmp_path: Path) -> None:
    """The number of changes that are too small to be listed is left out before the command is shortened."""
    little = dict.fromkeys(("then_us", "low_us", "high_us"), 520.0)
    action = replace(padded(2.0), now_us=540.0, **little)
    found = replace(recommend(host(), Settings()), actions=(action,), run="r" * length)
    assert screen.screen(found, screen.Written(tmp_path))[-1] == rest.replace("N", "1")


def test_a_long_path_in_the_last_line_has_a_line_of_its_own(tmp_path: Path) -> None:
    lines = print_screen(found_in("everything", tmp_path), tmp_path / ("long" * 30))
    assert lines[-2].split()[0] == "rest"
    assert lines[-2].endswith(" --explain N")


@pytest.mark.parametrize(
    ("said", "applied", "shown"), [(4, 1, (2, 1)), (14, 2, (2, 1)), (16, 2, (1, 1)), (17, 2, (1, 0)), (20, 2, (0, 0))]
)
def test_the_last_screen_of_tune_fits(said: int, applied: int, shown: tuple[int, int]) -> None:
    """The last lines that ``logparse tune`` prints always fit on one screen.

    ``shown`` is the expected number of proposals (at most two) and of reasons for the first one.
    """
    # The more other lines there are, the fewer proposals and reasons are shown.
    found = recommend(everything(), Settings())
    head, apply = [f"tune: {'word ' * 30}", *["more"] * (said - 2)], ["in the program"] * applied
    lines = screen.render_end(found, head, screen.Written(Path("overrides")), apply)
    assert len(lines) <= screen.LINES
    assert max(map(len, lines)) <= line_width()
    todo = [x for x in lines if x.startswith((" 1 ", " 2 "))]
    why = [x for x in lines if x.startswith("why ")]
    assert (len(todo), len(why)) == shown
    assert lines[-1] == "rest     overrides/report.md"
    assert sum(x.startswith("apply ") for x in lines) == applied


def test_nothing_essential_is_cut() -> None:
    long = "torch.backends.some.module.preferred = True; torch.backends.another.module.preferred = False"
    setting = replace(padded(2.0), now_us=540.0, then_us=400.0, low_us=400.0, high_us=400.0)
    action = replace(setting.action, kind="setting")
    setting = replace(setting, action=action, application=replace(setting.application, line=long))
    found = replace(recommend(host(), Settings()), actions=(setting,), word="a call of the server")
    lines = screen.screen(found, screen.Written(Path("overrides")))
    assert max(map(len, lines)) <= line_width()
    headline = " ".join(" ".join(lines[:3]).split())
    assert "1 more thing to do, larger but less sure" in headline, "the headline's end"
    assert not any(x.endswith("…") for x in lines), "what to change has lines of its own"
    explained = "\n".join(x for x in screen.explain_change(found, "padded_output") if isinstance(x, str))
    assert "…" not in explained
    assert " ".join(explained.split()).count("preferred = False") == 2


def test_printed_commands_use_a_free_label(tmp_path: Path) -> None:
    action = replace(padded(2.0), now_us=540.0, then_us=420.0, low_us=420.0, high_us=420.0)
    found = replace(recommend(host(), Settings()), actions=(action,))
    written, _ = verb.write(found, Settings(), tmp_path / "overrides")
    for runs, label in ((["r"], "after"), (["r", "after"], "after2"), (["after2", "after"], "after3")):
        lines = screen.screen(found, screen.Written(tmp_path / "overrides", written, runs=runs))
        command = " ".join(" ".join(lines).replace("\\", "").split())
        assert f"capture --trace 2 --run {label} -- JOB && logparse verify r {label} --action padded_output" in command


@pytest.mark.parametrize("relative", [False, True])
def test_files_in_all_folders_are_used(relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If logparse writes files for two libraries into two folders, the printed commands use both folders.

    This also holds if the user gives a relative path (``--out overrides``).
    """
    # Here one folder is for hipBLASLt and one for MIOpen. An earlier version printed the commands for the first folder
    # alone, which saved nothing.
    monkeypatch.chdir(tmp_path)
    files = [x for y in ("hipblaslt", "miopen") for end in ("log", "txt") for x in (SAMPLES / y).glob(f"*.{end}")]
    found = recommend(samples(*(str(x.relative_to(SAMPLES)) for x in sorted(files)))(tmp_path), Settings())
    lines = re.sub(r" (\\|&&)\n *", r" \1 ", "\n".join(print_screen(found, Path() if relative else tmp_path)))
    # A log of hipBLASLt and a find-db of MIOpen state different facts about one machine, so there are two folders.
    folders = [x for x in (tmp_path / "overrides").iterdir() if x.is_dir()]
    assert len(folders) == 2
    assert re.search(r"^ *for [\d,]+: apply \(later runs\) +logparse run --with \$D -- JOB$", lines, re.MULTILINE)
    [place] = re.findall(r"^ *first +D=(.*)$", lines, re.MULTILINE)
    check_line = r"^ *for [\d,]+: apply, prove \(once\) +logparse run --with (\S+) --verify \S+ -- JOB$"
    [check] = re.findall(check_line, lines, re.MULTILINE)
    checked = files_in([check.replace("$D", place)])
    assert {Path(x).parent.name for x in checked} == {x.name for x in folders}


def test_savings_have_one_unit_and_a_certainty(tmp_path: Path) -> None:
    """All savings that ``recommend`` lists have the same unit, and each says how certain it is.

    Two changes of the job are listed. The second one may save nothing.
    """
    exact = replace(padded(2.0).action, exact=True)
    first, second = (
        replace(padded(2.0), action=replace(exact, name=name), now_us=540.0, then_us=then, low_us=low, high_us=high)
        for name, then, low, high in (("sure", 300.0, 290.0, 310.0), ("doubtful", 520.0, 500.0, 539.9))
    )
    found = replace(recommend(host(), Settings()), actions=(first, second), gpu_time=None)
    todo = verdict(found).todo
    assert [(x.name, x.certainty) for x in todo] == [
        ("sure", "measured alone"),
        ("doubtful", "measured alone, may gain nothing"),
    ]
    assert screen.format_savings([replace(todo[0], gain=Gain(9_000.0, 1_000.0)), todo[1]]) == [
        "8 of 9 ms",
        "0.01 of 0.27 ms",
    ]


def test_everything_to_do_is_explained_by_number_and_by_name(tmp_path: Path) -> None:
    found = found_in("everything", tmp_path)
    for number, todo in enumerate(verdict(found).todo, 1):
        by_number = [x for x in screen.explain_change(found, str(number)) if isinstance(x, str)]
        by_name = [x for x in screen.explain_change(found, todo.name) if isinstance(x, str)]
        assert by_number == by_name
        assert todo.title in by_number[2]
    with pytest.raises(
        UsageError, match="--explain nosuch: no proposed change has this number or name; choose from 1 "
    ):
        screen.explain_change(found, "nosuch")


def test_a_long_title_is_cut_in_the_list_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long title of an advice is cut in the list of proposals, but ``--explain`` prints it whole.

    In an earlier version, such a title made a line wider than the screen, and ``--explain`` cut it, too.
    """
    title = "find faster solvers of MIOpen and hipBLASLt for many problems"
    monkeypatch.setattr(Search, "title", lambda remedy, problems: title)
    found = found_in("everything", tmp_path)
    assert max(map(len, print_screen(found, tmp_path))) <= line_width()
    explained = " ".join(str(x).strip() for x in screen.explain_change(found, "search"))
    assert title in explained


def test_an_empty_list_has_no_order() -> None:
    assert name_order([]) == "to do"


@pytest.mark.parametrize("case", ["gained", "everything", "trace"])
def test_the_list_is_in_the_order_of_what_it_gains_and_the_verdict_adds_it_up(case: str, tmp_path: Path) -> None:
    conclusion = verdict(found_in(case, tmp_path))
    # What a measurement will find is as unsure as an upper bound.
    sure = ["unknown" if isinstance(x.remedy, Replay) else x.sureness for x in conclusion.todo]
    counted = [
        (SURENESS.index(y), -x.gained_us) for x, y in zip(conclusion.todo, sure, strict=True) if x.unit != "call"
    ]
    assert counted == sorted(counted), "the surest first, then the largest"
    named = screen.heading(conclusion.todo, conclusion).strip().split("  ")[0]
    larger = any(x.gained_us > conclusion.todo[0].gained_us for x in conclusion.todo)
    first = "estimates" if sure[0] == "estimated" else "measured"
    by_sureness = f"{first} first, not the largest" if larger else f"to do, {first} first"
    assert named == (by_sureness if len(set(sure)) > 1 else "to do")
    assert all(
        us <= sum(x.saving_us for x in conclusion.todo if x.sureness == known) * 1.001 for known, us in conclusion.gains
    )
    assert conclusion.todo[0].title in conclusion.headline
    assert gain(conclusion.todo[0]) in conclusion.headline


def test_what_cannot_show_in_the_step_is_not_chosen() -> None:
    conclusion = verdict(recommend(host(), Settings()))
    assert [x.name for x in conclusion.todo] == ["host-bound"]
    assert conclusion.headline.startswith("the host is the limit; relieve the host (CPU): up to 230 of 500 µs a step")


@pytest.mark.parametrize(("length", "whole"), [(44, True), (54, True), (120, False)])
def test_a_title_is_cut_only_if_the_screen_is_too_narrow(length: int, whole: bool) -> None:
    conclusion = verdict(recommend(host(), Settings()))
    todo = [replace(x, title="a longer title ".ljust(length, "x")) for x in conclusion.todo]
    lines = screen.todo_lines(todo, conclusion)
    assert (todo[0].title in lines[1]) == whole
    assert max(map(len, lines)) <= line_width()


@pytest.mark.parametrize(("saved_us", "shows"), [(10.0, False), (60.0, True)])
def test_a_change_without_visible_effect_is_not_listed(saved_us: float, shows: bool, tmp_path: Path) -> None:
    """If a change would hardly make the step shorter, it is not listed, and is made only if the user names it.

    The step of 500 µs waits for its host, so saving ``saved_us`` of GPU time hardly matters.
    """
    then = 2 * (270.0 - saved_us)
    action = replace(padded(2.0), now_us=540.0, then_us=then, low_us=then, high_us=then)
    found = replace(recommend(host(), Settings()), actions=(action,))
    conclusion, lines = verdict(found), print_screen(found, tmp_path)
    assert "padded_output" in [x.name for x in (conclusion.todo if shows else conclusion.unseen)]
    labels = [x[1] for line in lines if (x := re.match(r" *(?:for 1: )?(apply|check) ", line))]
    assert labels == ["apply", "check"] * shows
    assert ("after apply, check runs it with logs" in " ".join(" ".join(lines).split())) == shows, "apply runs no job"
    check = "\n".join(lines).partition(" check ")[2]
    assert ("--action padded_output" in check) == shows
    made = (tmp_path / "overrides/apply.py").read_text()
    assert ("CHOSEN = ('padded_output', )" in made) == shows
    assert "if 'padded_output' in names:" in made, "it can be applied by name"
    assert ("so the change is applied only if it is named" in made) == (not shows)
    explained = screen.explain_change(found, "padded_output")
    assert explained == screen.explain_change(found, "1" if shows else "2")
    assert (
        "      the effect of this change on the step is too small to show, so the change is not in the list"
        in explained
    ) == (not shows)


def test_what_is_applied_unnamed_is_listed_beside_a_better_one_that_rounds_more(tmp_path: Path) -> None:
    kinds = {"rough": (400.0, False), "exact": (420.0, True)}
    actions = tuple(
        replace(
            padded(2.0),
            action=replace(padded(2.0).action, name=name, excludes="one", exact=exact),
            **{"now_us": 540.0, **dict.fromkeys(("then_us", "low_us", "high_us"), then)},
        )
        for name, (then, exact) in kinds.items()
    )
    found = replace(recommend(host(), Settings()), actions=actions)
    assert [x.name for x in verdict(found).todo] == ["rough", "exact", "host-bound"]
    how = 'model = apply.model(model, "rough")'
    lines = print_screen(found, tmp_path)
    assert max(map(len, lines)) <= line_width()
    assert f"less precise: {how}" in " ".join("\n".join(lines).split())
    by_name = (
        "      results are less precise, so the action is not part of any total and is applied only by name alone: "
        f"import apply; {how}"
    )
    assert by_name in screen.explain_change(found, "rough")
    assert by_name in (tmp_path / "overrides/report.md").read_text().splitlines()
    assert "add to the program:  import apply; " in (tmp_path / "overrides/report.md").read_text()
    assert any(re.match(" +for 2: apply +add to the program:  import apply; ", x) for x in lines)
    check = "\n".join(lines).partition(" check ")[2]
    assert ("--action exact" in check, "rough" in check) == (True, False)


def test_kernels_without_visible_effect_are_not_proposed(tmp_path: Path) -> None:
    """If other kernels would hardly make the step shorter, they are not proposed.

    Here they would save 1.2 µs of a step of 500 µs, which waits for its host.
    """
    found, waits = recommend(everything(), Settings()), recommend(host(), Settings())
    small = tuple(replace(x, steps=1000.0) for x in found.actions)
    held = replace(found, actions=small, gpu_time=waits.gpu_time)
    assert [x.name for x in verdict(held).unseen] == ["overrides"]
    assert not [x for x in print_screen(held, tmp_path) if re.match(r" *(for [\d,]+: )?(apply|check) ", x)]
