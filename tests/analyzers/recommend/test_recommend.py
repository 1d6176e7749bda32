from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.overrides.write import make
from analyzers.recommend import render
from analyzers.recommend.documents import report
from analyzers.recommend.override_files import make_files, scripts, targets
from analyzers.recommend.ranking import Recommendation, deduplicated, recommend, to_search
from analyzers.recommend.verdict import verdict
from analyzers.replay.plan import plan
from logparse.errors import EmissionError, UsageError
from logparse.ingest.stated_target import target_from
from logparse.libraries.all_search_scripts import SEARCH_SCRIPTS
from logparse.libraries.builds import can_decide_for, folder, has_comparable_times
from logparse.libraries.hipblaslt.tuning_file import WRITER
from logparse.libraries.kinds.format import Emission, Writer
from logparse.libraries.kinds.search_script import Command, SearchScript
from logparse.model import Advise, ChangeProgram, Evidence, Finding, Gain, Override, Problem, Search, Solution, UseRows
from logparse.quoting import Shell, shell_line
from logparse.store import Store
from logparse.target import same_device
from tests.analyzers.build import facts, measurement, tables, work
from tests.analyzers.example import ARCH, F, W, everything, gemm
from tests.analyzers.ingested import bench, product, read, store_race_times

HERE = {"arch": ARCH, "cu_count": "304", "hipblaslt_version": "1201", "hipblaslt_revision": "4d62e135"}


@pytest.fixture(scope="module")
def found() -> Recommendation:
    """The result of ``logparse recommend`` for made-up data in which all kinds of analyses find something."""
    return recommend(everything(), Settings())


def test_ranking_and_ceiling(found: Recommendation) -> None:
    assert [(x.analyzer, x.saving_us) for x in found.findings] == [
        ("slow-wrw", pytest.approx(3 * 5236.0)),
        ("suboptimal-pick", 1100.0),
        ("suboptimal-pick", 100.0),
        ("suboptimal-pick", None),
    ]
    # 110 calls take 50 µs, and 40 µs at best. 10 calls take 30 µs, and 20 µs at best. 120 of 128 calls have a measured
    # default.
    assert found.ceiling.default_us == 5800.0
    assert found.ceiling.saving_us == pytest.approx(1200.0)
    assert found.ceiling.share == pytest.approx(1200 / 5800)
    assert found.ceiling.calls_share == pytest.approx(120 / 128)


def test_a_better_solution_that_is_explained_counts_once() -> None:
    problem = gemm()
    use = UseRows(Override(problem=problem, solution=Solution("hipblaslt", "7"), target={}, time_us=20.0))
    shown = Evidence(sureness="measured alone", best="hipblaslt:7")
    pick = Finding(
        analyzer="suboptimal-pick",
        message="slow",
        problem=problem,
        per_call=Gain(50.0, 20.0),
        evidence=shown,
        remedy=use,
    )
    why = replace(pick, analyzer="slow-wrw", remedy=Search())
    other = replace(pick, evidence=Evidence(sureness="measured alone", best="hipblaslt:8"), remedy=Advise())
    risk = replace(pick, analyzer="slow-wrw", per_call=None, remedy=Advise())
    links = pd.DataFrame({"problem": [], "other": []})
    assert deduplicated([pick, other, why, risk], links) == [other, replace(why, remedy=use), risk]


def test_an_inferred_saving_is_never_added_to_another_of_its_problem() -> None:
    links = pd.DataFrame({"problem": [], "other": []})
    gains = {"per_call": Gain(400.0, 100.0), "in_run": Gain(4e3, 1e3)}
    flat = Finding(analyzer="slower-than-comparable", message="flat", problem=gemm(), calls=10, **gains)
    guess = replace(flat, analyzer="slow-wrw", message="slow", per_call=Gain(400.0, 200.0), in_run=Gain(4e3, 2e3))
    hint = replace(flat, analyzer="missed-fusion", message="hint", per_call=None, in_run=None)
    assert deduplicated([guess, hint, flat], links) == [hint, replace(flat, reasons=("slow-wrw: slow",))]
    shown = Evidence(sureness="measured alone", best="hipblaslt:7")
    known = replace(
        flat, analyzer="suboptimal-pick", per_call=Gain(400.0, 370.0), in_run=Gain(4e3, 3.7e3), evidence=shown
    )
    assert deduplicated([flat, known], links) == [replace(known, reasons=("slower-than-comparable: flat",))]
    elsewhere = replace(flat, problem=gemm(1))
    assert deduplicated([elsewhere, known], links) == [elsewhere, known]


def test_evidence_has_no_unwritten_keys() -> None:
    with pytest.raises(TypeError, match="pickus"):
        Evidence(pickus=3.0)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="now_us"):
        Evidence(details={"now_us": 3.0})
    shown = Evidence(now_us=3.0, best="a:1", details={"pick_us": 3.0})
    assert shown.shown == {"best": "a:1", "pick_us": 3.0}
    assert shown.sureness == "estimated", "no number among the details makes a measurement of an estimate"


def test_a_text_without_calls_repeats_nothing_of_the_counted_one() -> None:
    counted = Finding(analyzer="slow-wrw", message="slow", problem=gemm(), calls=3)
    echo = replace(counted, problem=gemm(m=None), calls=None)
    another, ours = replace(echo, analyzer="slower-than-comparable"), replace(echo, problem=gemm(m=1))
    links = pd.DataFrame({"problem": [gemm(m=None).text], "other": [gemm().text]})
    assert deduplicated([counted, echo, another, ours], links) == [counted, another, ours]


def test_a_measurement_by_direct_calls_is_used(store: Store, tmp_path: Path) -> None:
    """A faster kernel is found even if no log names the library's choice.

    logparse measured the matrix product by calling the library directly, so it knows that hipblaslt:5 is the library's
    first choice.
    """
    own, padded, problem = "hipblaslt:5", "torch:pad=64,stored", product(50257, 2048, 768)
    untuned = "GemmTunableOp_BFloat16_TN,tn_50257_2048_768_ld_768_768_50257\n"
    read(store, tmp_path, {"job.log": bench(50257, 2048, 768, count=10), "untuned0.csv": untuned})
    store_race_times(store, problem, {own: 500.0, "Default": 520.0, padded: 250.0}, padded, pick=own)
    found = recommend(tables_of(store), Settings())
    (told,) = found.findings
    assert (told.analyzer, told.calls, told.saving_us) == ("suboptimal-pick", 10, pytest.approx(2500.0))
    assert told.confirmed
    assert told.evidence.shown["pick"] == own
    assert found.ceiling.share == pytest.approx(0.5)
    (item,) = plan(tables_of(store), Settings())
    assert item.problem == problem.normal, "the key beside the log's line is its echo"
    assert (item.time_us, item.regret) == (500.0, 0.5), "the pick's time, not that of PyTorch's Default"


def test_a_plan_without_calls_is_of_what_the_run_measured() -> None:
    t = tables(measurements=[measurement(W.text, "miopen:A", 5.0), measurement(F.text, "miopen:A", 5.0, run="other")])
    planned = {run: [x.problem for x in plan(replace(t, run=run), Settings())] for run in ("r", "other", "empty")}
    assert planned == {"r": [W.normal], "other": [F.normal], "empty": []}


@pytest.mark.parametrize("best", ["torch:layout=NHWC,stored", "cudnn:eng1_k2=0"])
def test_what_no_action_reaches_is_potential_and_no_saving(best: str) -> None:
    text, reached = gemm().text, gemm(m=2048).text
    rows = [(text, best, 40.0), (reached, "kernel:mine:gemm", 60.0)]
    t = tables(
        workload=[work(text, 10), work(reached, 5)],
        measurements=[
            measurement(problem, solution, us, origin="replay-confirm")
            for problem, better, fast in rows
            for solution, us in (("Default", 100.0), (better, fast))
        ],
    )
    found = recommend(t, Settings())
    saved = {x.problem.text: x.saving_us for x in found.findings if x.problem is not None}
    assert saved == {reached: pytest.approx(200.0), text: None}
    shown = render.rows(found).set_index("problem")
    assert shown.loc[text, "action"] == f"potential: {best}"
    assert "not added to the savings (600 µs per run)" in shown.loc[text, "message"]
    assert shown.loc[reached, "action"] == "by hand: kernel:mine:gemm"


def test_a_layout_that_a_search_found_names_the_replay_that_times_it_for_the_whole_job() -> None:
    best = "torch:layout=NHWC,stored"
    times = [measurement(W.text, x, us, origin="replay-confirm") for x, us in (("Default", 100.0), (best, 40.0))]
    found = recommend(tables(workload=[work(W.text, 10)], measurements=times), Settings())
    assert render.rows(found)["action"].tolist() == [f"potential: {best}"]
    (todo,) = verdict(found).todo
    assert (todo.name, todo.changes) == ("a setting or layout", "run logparse replay --only actions")


def test_traces_give_the_share_of_gpu_time() -> None:
    trace = {"source_id": "t", "run": "r", "device": 0, "op": "aten::mm", "problem": None, "kernel": "k", "calls": 1}
    t = everything()
    kernels = tables(kernels=[trace | {"total_us": 24000.0}, trace | {"run": "old", "total_us": 1e9}]).kernels
    of_another_length = recommend(type(t)(**{**vars(t), "kernels": kernels}), Settings())
    assert of_another_length.findings[1].saving_share is None, "the calls are a log's, the time is a trace's"
    workload = t.workload.assign(calls_from="profiler")
    found = recommend(type(t)(**{**vars(t), "kernels": kernels, "workload": workload}), Settings())
    assert found.findings[1].saving_share == pytest.approx(1100 / 24000)


def test_gates() -> None:
    found = recommend(everything(), Settings(min_saving_us=500.0))
    assert [x.saving_us for x in found.findings] == [pytest.approx(15708.0), 1100.0, None]
    assert sum(found.left_out.values()) == 1
    g = gemm().text
    small = tables(
        measurements=[measurement(g, "Default", 100.0), measurement(g, "hipblaslt:9", 98.0)],
        workload=[work(g, 10)],
        facts=facts("m", **HERE),
    )
    below = recommend(small, Settings())
    assert (len(below.findings), sum(below.left_out.values()), below.overrides) == (0, 1, ())
    assert verdict(below).headline == "nothing worth doing: 1 with a gain below --min-gain"
    assert len(recommend(small, Settings(min_gain=0.01)).overrides) == 1


def writer(fails: bool = False) -> Writer:
    def write(rows: Sequence[Override], target: Mapping[str, str]) -> Sequence[Emission]:
        if fails:
            raise EmissionError("hipblaslt_revision is unknown: give --target with a tuning file")
        return [
            Emission(
                "out.txt", ",".join(x.solution.text for x in rows).encode(), Shell("# what it is\nexport OUT={path}\n")
            )
        ]

    return Writer("test", "", lambda x: x.solution.library == "hipblaslt", lambda p, t: p.text, write)


def searching(command: Command) -> list[SearchScript]:
    """Return the shell scripts with which users can search for faster kernels, with another command in them.

    Each script runs a command for each matrix product or convolution. Here ``command`` replaces it, so that the test
    knows the script's text.
    """
    return [replace(script, command=command) for script in SEARCH_SCRIPTS]


def runs(problem: Problem) -> Shell:
    return shell_line(["run", problem.label])


def refuses(problem: Problem) -> Shell:
    raise EmissionError("its transpose is unknown")


def test_emissions_of_the_target(found: Recommendation) -> None:
    [(name, target)] = targets(found, Settings()).items()
    assert name == "gfx942-304cu-hipblaslt-4d62e135"
    made = make_files(found, target, [writer()], Settings(), searches=searching(runs))
    files = {x.name: x.data.decode() for x in made.files}
    assert files["out.txt"] == "hipblaslt:9,hipblaslt:3"
    assert set(files) == {"out.txt", "apply.sh", "tune_miopen.sh", "tune_hipblaslt.sh"}
    assert [x.partition(":")[0] for x in made.notes] == [
        "2 of 2 overrides are not confirmed (--confirmed leaves them out)"
    ]
    assert made.notes[0] in files["apply.sh"], "whoever sources it reads it"
    assert "run 'W 64×256×56×56" in files["tune_miopen.sh"]
    assert files["tune_hipblaslt.sh"].count("\nrun ") == 1  # only the pick without a time needs a search
    assert "export OUT=" in files["apply.sh"]
    most = make_files(found, target, [writer()], Settings(max_rows=1), searches=searching(runs))
    assert [x.data for x in most.files if x.name == "out.txt"] == [b"hipblaslt:9"]


def test_another_target_gets_no_override(found: Recommendation) -> None:
    for other in (HERE | {"hipblaslt_revision": "x"}, HERE | {"arch": "gfx90a"}, HERE | {"cu_count": "80"}):
        assert "out.txt" not in {x.name for x in make_files(found, other, [writer()], Settings()).files}


def test_what_a_writer_refuses_is_a_note(found: Recommendation) -> None:
    made = make_files(found, HERE, [writer(fails=True)], Settings(), searches=searching(refuses))
    assert made.notes[0] == (
        "test: 2 overrides not written: hipblaslt_revision is unknown: give --target with a tuning file"
    )
    assert [x.split(":")[0] for x in made.notes[1:]] == ["tune_miopen.sh", "tune_hipblaslt.sh"]
    assert made.files == ()
    # Two overrides without a writer, and two scripts. No override is written, so none is called unconfirmed.
    assert len(make_files(found, HERE, [], Settings(), searches=searching(refuses)).notes) == 4


def test_confirmed_only(found: Recommendation) -> None:
    """With ``--confirmed-only``, only gains that a second measurement confirmed are written to an override file.

    Then no warning is needed. Here one of two measured gains was confirmed.
    """
    first, second = (x for x in found.findings if x.override is not None)
    assert first.override is not None
    found = replace(found, findings=(replace(first, p=0.001), second))
    every = make_files(found, HERE, [writer()], Settings())
    assert every.notes[0].startswith("1 of 2 overrides are not confirmed")
    safe = make_files(found, HERE, [writer()], Settings(confirmed_only=True))
    files = {x.name: x.data.decode() for x in safe.files}
    assert files["out.txt"] == first.override.solution.text
    assert safe.notes[0].startswith("1 of 2 overrides are not written, because no replay confirmed them")
    assert "lucky" not in files["apply.sh"]
    none = make_files(replace(found, findings=(second,)), HERE, [writer()], Settings(confirmed_only=True))
    assert {x.name for x in none.files} & {"out.txt", "apply.sh"} == set()
    sure = make_files(replace(found, findings=(replace(first, p=0.001),)), HERE, [writer()], Settings())
    assert not any("confirmed" in note for note in sure.notes)


def test_nvidia_has_no_tuning_script() -> None:
    t = everything()
    own = t.facts.assign(value=t.facts["value"].where(t.facts["name"] != "arch", "sm_90"))
    for found, target in (
        (recommend(t, Settings()), {"arch": "sm_90"}),
        (recommend(replace(t, facts=own), Settings()), {}),
    ):
        made = make_files(found, target, [], Settings())
        assert [x.name for x in made.files] == []
        assert "NVIDIA has no tool that searches" in made.notes[-1]


def test_two_targets_are_never_merged() -> None:
    g, h = gemm().text, gemm(8).text
    rows = [
        measurement(p, s, t, source_id=source)
        for p, source in ((g, "a"), (h, "b"))
        for s, t in (("Default", 50.0), ("hipblaslt:1", 40.0))
    ]
    same = {"arch": ARCH, "hipblaslt_version": "1201"}
    t = tables(
        measurements=rows,
        workload=[work(g, 10), work(h, 10)],
        facts=[*facts("a", **same, rocm_version="6.4.0"), *facts("b", **same, rocm_version="6.4.1")],
    )
    found = recommend(t, Settings())
    assert list(targets(found, Settings())) == ["gfx942-hipblaslt-1201", "gfx942-hipblaslt-1201-2"]


def test_the_script_with_the_most_valuable_problem_comes_first(found: Recommendation) -> None:
    for order in (SEARCH_SCRIPTS, SEARCH_SCRIPTS[::-1]):
        for findings in (found.findings, found.findings[::-1]):
            [first, *_] = to_search(findings)
            made, _ = scripts(findings, [replace(script, command=runs) for script in order])
            kinds = [{"tune_miopen.sh": "conv", "tune_hipblaslt.sh": "gemm"}[x.name] for x in made]
            assert kinds == (["conv", "gemm"] if first.kind == "conv" else ["gemm", "conv"])


@pytest.mark.parametrize("script", ["tune_miopen.sh", "tune_hipblaslt.sh", "apply.sh"])
def test_scripts_are_shell(script: str, tmp_path: Path, found: Recommendation) -> None:
    made = make_files(found, HERE, [writer()], Settings(), searches=searching(runs))
    path = tmp_path / script
    path.write_bytes(next(x.data for x in made.files if x.name == script))
    subprocess.run(["sh", "-n", path], check=True)


def test_tuning_writes_beside_the_users_files(tmp_path: Path, found: Recommendation) -> None:
    def report(problem: Problem) -> Shell:
        return Shell("env")

    made = make_files(found, HERE, [], Settings(), searches=searching(report))
    tmp_path = tmp_path / "a folder"  # The name has a blank.
    tmp_path.mkdir()
    for name, variable in (
        ("tune_miopen.sh", "MIOPEN_USER_DB_PATH"),
        ("tune_hipblaslt.sh", "HIPBLASLT_TUNING_FILE"),
    ):
        (tmp_path / name).write_bytes(next(x.data for x in made.files if x.name == name))
        own = {"PATH": "/usr/bin:/bin", variable: "/nowhere/of/the/user", "HIPBLASLT_TUNING_OVERRIDE_FILE": "x"}
        (tmp_path / "miopen-tuning-db").mkdir(exist_ok=True)
        for result in ("miopen-tuning-db/x.ufdb.txt", "hipblaslt-tuning.txt"):  # as the libraries would write it
            (tmp_path / result).touch()
        ended = subprocess.run(["sh", name], cwd=tmp_path, env=own, check=True, stderr=subprocess.PIPE, text=True)
        # The script ends with the command that reads its results.
        [typed] = [line for line in ended.stderr.splitlines() if line.startswith("  logparse ingest --run search ")]
        subprocess.run(["sh", "-c", f"ls -d {typed.partition('search ')[2]}"], cwd="/", check=True)
    gemm_log = (tmp_path / "hipblaslt-tuning.log").read_text()
    conv_log = (tmp_path / "miopen-tuning-db/tune.log").read_text()
    assert f"MIOPEN_USER_DB_PATH={tmp_path}/miopen-tuning-db" in conv_log
    assert f"HIPBLASLT_TUNING_FILE={tmp_path}/hipblaslt-tuning.txt" in gemm_log
    assert "/nowhere" not in gemm_log + conv_log
    assert "OVERRIDE_FILE" not in gemm_log


def test_rendering(found: Recommendation) -> None:
    text = report(found, [])
    assert "1.2 ms of the 5.8 ms of calls with two measured times" in text
    assert "(93.8% of all calls)" in text
    assert "4 findings about single calls, 2 with an override" in text
    table = render.rows(found)
    assert table["saving_us"].tolist()[:3] == pytest.approx([15708.0, 1100.0, 100.0])
    assert table["kind"].tolist() == ["conv", "gemm", "gemm", "gemm"]
    assert table["problem"][0] == W.text
    short = render.choose_columns(table)
    assert short["saving_ms/run"].tolist()[:3] == pytest.approx([15.708, 1.1, 0.1])
    assert short["calls"].tolist() == [3, 110, 10, 5]
    nothing = recommend(tables(), Settings())
    assert len(render.choose_columns(render.rows(nothing))) == 0
    assert report(nothing, []).splitlines() == [
        "# What to change in run r",
        "",
        "**no verdict: the run holds no calls and no times of matrix products or convolutions**",
        "",
        "* ceiling (greatest possible saving): unknown, because no search timed both the kernels that run now and "
        "other kernels",
        "* 0 findings about single calls, 0 with an override",
    ]
    for lines in ("call_lines", "measurement_lines"):  # TunableOp's untuned keys; bench output of all solutions
        held = recommend(tables(sources=[{"source_id": "m", "run": "r", lines: 5}]), Settings())
        assert verdict(held).headline == verdict(replace(nothing, calls={W.text: 3.0})).headline
        assert verdict(held).headline == (
            "no verdict: nothing was timed with more than one kernel (run `logparse replay`)"
        )
    assert list(render.rows(nothing).columns) == list(table.columns)


def test_usual_times_are_reported_as_usual() -> None:
    """If the calls of a log take as long as comparable calls, ``recommend`` says that it sees no slow call."""
    # Each of the two calls was timed with one kernel only. logparse ships times of calls that resemble one of the two,
    # so this call can be judged.
    types = {"a_type": "bf16_r", "b_type": "bf16_r", "c_type": "bf16_r", "d_type": "bf16_r"}
    usual, other = product(4096, 8192, 4096, **types), product(4096, 8192, 4096, **types | {"a_type": "f64_r"})
    rows = [measurement(x.text, "Default", 250.0, source_id="m", origin="bench") for x in (usual, other)]
    given = tables(measurements=rows, facts=facts("m", arch="gfx950", cu_count="256"), workload=[work(usual.text, 1)])
    assert verdict(recommend(given, Settings())).headline == (
        "no slow call is seen: for 1 of 2 timed problems the time is usual among comparable problems, by an estimate "
        "(`logparse replay` times other solutions)"
    )


def test_rendering_of_unknown_savings() -> None:
    t = tables(measurements=[measurement(F.text, "miopen:A", 100.0), measurement(W.text, "miopen:A", 900.0)])
    table = render.rows(recommend(t, Settings()))
    assert table["saving_us"].isna().all()
    assert render.choose_columns(table)[["pre_us", "post_us", "gain"]].to_numpy().tolist() == [[900.0, 100.0, "88.9%"]]


@pytest.mark.parametrize("words", [("gfx942", "gfx942:sramecc+:xnack-"), ("gfx942:sramecc+:xnack-", "gfx942")])
def test_two_files_may_state_an_arch_with_its_features_and_without(words: tuple[str, str]) -> None:
    assert target_from([f"arch={word}" for word in words]) == {"arch": "gfx942:sramecc+:xnack-"}


@pytest.mark.parametrize("other", ["gfx90a", "gfx94", "gfx942:sramecc-:xnack-"])
def test_targets_of_two_archs_are_never_merged(other: str) -> None:
    with pytest.raises(UsageError, match="describe one machine"):
        target_from(["arch=gfx942:sramecc+:xnack-", f"arch={other}"])


def test_target_words(tmp_path: Path) -> None:
    assert target_from(["arch=gfx942", "validator:PT_VERSION=2.9.1"]) == {
        "arch": "gfx942",
        "validator:PT_VERSION": "2.9.1",
    }
    name = "gfx942130.HIP.3_5_1_5b515cf1bca-dirty.ufdb.txt"
    assert target_from([f"/far/away/{name}"]) == {
        "arch": "gfx942",
        "cu_count": "304",
        "backend": "HIP",
        "miopen_version": "3.5.1",
        "miopen_tweak": "5b515cf1bca-dirty",
    }
    (tmp_path / "facts.json").write_text(json.dumps({"arch": "gfx90a", "cu_count": 104, "pid": "7"}))
    assert target_from([str(tmp_path / "facts.json")]) == {"arch": "gfx90a", "cu_count": "104"}


def test_target_of_a_tuning_file(tmp_path: Path) -> None:
    row = "T,N,0,1,64,64,64,1,64,4096,0,64,4096,64,4096,64,4096,f16_r,f16_r,f16_r,f16_r,f32_r,0,0,0,0,0,none,0,f32_r"
    path = tmp_path / "tuning.txt"
    path.write_text(f"Git Version: d5f81531\n    {row},512,1,1,2.5,77,gfx942:sramecc+:xnack-,304\n")
    target = target_from([str(path)])
    assert target.items() >= {"hipblaslt_revision": "d5f81531", "arch": ARCH, "cu_count": "304"}.items()


def test_bad_targets(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    (tmp_path / "y.txt").write_text("hello\n")
    (tmp_path / "z.json").write_text('{"arch": "gfx942", "cu_count": "many"}')
    for words, reason in (
        (["arch=gfx942", "arch=gfx90a"], "describe one machine"),
        ([str(tmp_path / "missing.csv")], "--target"),
        ([str(tmp_path / "x.json")], "one JSON object"),
        ([str(tmp_path / "y.txt")], "does not say on which machine it was made"),
        (["colour=red"], "--target"),
        (["cu_count=abc"], "cu_count must be a number of compute units"),
        (["cu_count=0"], "cu_count must be a number of compute units"),
        ([str(tmp_path / "z.json")], "cu_count must be a number of compute units"),
        (["arch=MI300X"], "arch must be a GPU architecture, such as gfx942"),
        (["arch="], "arch must be a GPU architecture, such as gfx942"),
        (["backend=hip"], "backend must be HIP, OpenCL or CUDA"),
        (["rocblas_version="], "rocblas_version must be a version"),
        (["device= "], "device must be a text that is not empty"),
        (["validator:=1"], "--target validator:=1"),
    ):
        with pytest.raises(UsageError, match=reason):
            target_from(words)


def test_agreement_of_facts() -> None:
    assert same_device({"arch": ARCH}, {"arch": "gfx942"}) is True
    assert same_device({"arch": ARCH, "cu_count": "304"}, {"arch": "gfx942", "cu_count": "80"}) is False
    assert same_device({}, {"arch": "gfx942"}) is None
    assert has_comparable_times(HERE, HERE, "hipblaslt") is True
    assert has_comparable_times(HERE, {"arch": ARCH}, "hipblaslt") is None
    assert has_comparable_times(HERE, {"arch": ARCH}, "miopen") is True
    assert has_comparable_times(HERE, {"arch": ARCH} | {"hipblaslt_version": "9"}, "hipblaslt") is False
    assert (
        can_decide_for(
            {"arch": "gfx942", "miopen_version": "3.4.0"}, {"arch": ARCH, "miopen_version": "3.5.0"}, "miopen"
        )
        is False
    )
    assert can_decide_for({"arch": "gfx942"}, {"arch": ARCH, "miopen_version": "3.5.0"}, "miopen") is True
    assert folder({}) == "no-target"


def test_no_gain_for_products_that_the_run_never_called() -> None:
    """A gain is not reported for a run that never called the matrix product.

    Another run measured two products, but this run called only one of them.
    """
    mine, other = gemm(64), gemm(96)
    rows = [
        measurement(problem.text, solution, time, run="elsewhere", source_id="theirs")
        for problem in (mine, other)
        for solution, time in (("Default", 90.0), ("hipblaslt:1", 45.0))
    ]
    sources = [{"source_id": "theirs", "run": "elsewhere", "path": "theirs"}]
    found = recommend(tables(workload=[work(mine.text, 3)], measurements=rows, sources=sources), Settings())
    assert {x.problem.text for x in found.findings if x.problem is not None} == {mine.text}
    (regrets,) = (x.message for x in found.remarks if x.analyzer == "suboptimal-pick")
    assert regrets.startswith("the kernels that the library chose for 1 problem, ")


@pytest.mark.parametrize(
    ("plain", "added", "row"),
    [
        # In all 9 takes 1,640 µs, and 7 takes 1,660 µs.
        ({"hipblaslt:7": 40.0, "hipblaslt:9": 44.0}, {"hipblaslt:7": 42.0, "hipblaslt:9": 40.0}, "9"),
        # In all 7 takes 1,615 µs, and 9 takes 1,680 µs.
        ({"hipblaslt:7": 40.0, "hipblaslt:9": 48.0}, {"hipblaslt:7": 40.5, "hipblaslt:9": 40.0}, "7"),
        ({"hipblaslt:7": 40.0, "hipblaslt:9": 400.0}, {"hipblaslt:7": 80.0, "hipblaslt:9": 40.0}, None),
        # No solution is timed on both problems. The row has the solution that saves more.
        ({"hipblaslt:7": 40.0}, {"hipblaslt:9": 40.0}, "9"),
    ],
)
def test_calls_with_one_row_get_the_best_common_kernel(
    plain: dict[str, float], added: dict[str, float], row: str | None, store: Store, tmp_path: Path
) -> None:
    """If two kinds of calls share a line of an override file, the line gets the best kernel for both together."""
    # Ten calls have β = 0, and thirty calls have β ≠ 0. hipBLASLt's files do not tell them apart, so both use one line.
    own, facts_there = {"hipblaslt:5": 50.0}, HERE | {"hipblaslt_version": "100202"}
    log = bench(64, 32, 16, count=10) + bench(64, 32, 16, count=30).replace("--beta 0.0", "--beta 1.0")
    read(store, tmp_path, {"job.log": log + bench(128, 32, 16)})
    for beta, times, winner in (("zero", plain, "hipblaslt:7"), ("nonzero", added, "hipblaslt:9")):
        problem = product(64, 32, 16, beta=beta, ldc=64)
        store_race_times(store, problem, own | times, winner, pick="hipblaslt:5", facts=facts_there)
    store_race_times(store, product(128, 32, 16), own | plain, "hipblaslt:7", pick="hipblaslt:5", facts=facts_there)
    found = recommend(tables_of(store), Settings())
    made = make_files(found, facts_there, [WRITER], Settings())
    lines = made.files[0].data.decode().splitlines()[2::2]
    assert {x.split(",")[4]: x.split(",")[34] for x in lines} == {"128": "7"} | ({"64": row} if row else {})
    shared = [x for x in found.findings if "the library uses one row for this call and for" in x.message]
    assert len(shared) == 2
    assert sum(x.override is not None for x in shared) == (row is not None)


def test_overrides_that_are_valid_alone_cost_no_other() -> None:
    one, two = (Override(problem=product(64, 32, 16, beta=x), solution=Solution("hipblaslt", y), target=HERE)
                for x, y in (("zero", "7"), ("nonzero", "9")))  # fmt: skip
    third = Override(problem=product(128, 32, 16), solution=Solution("hipblaslt", "8"), target=HERE)
    made = make(WRITER, [two, one, third], HERE)
    assert made.held == (two, third)
    assert list(made.refused.values()) == [1]


def test_a_change_of_the_program_needs_no_search_for_kernels() -> None:
    """If an analyzer proposes to change the program, its text is printed, and no search for kernels is proposed.

    Here a user's own analyzer found that a matrix product is 20 % slower with one leading dimension than with another.
    """
    pad = ChangeProgram("torch:pad=64", "pad the operand")
    slow = Finding(
        analyzer="leading-dimension",
        message="lda 4097 takes 20 % longer than lda 4160",
        problem=gemm(),
        calls=10,
        per_call=Gain(120.0, 100.0),
        in_run=Gain(1200.0, 1000.0),
        evidence=Evidence(best="torch:pad=64", best_us=100.0),
        remedy=pad,
    )
    found = replace(recommend(tables(), Settings()), findings=(slow,))
    [todo] = verdict(found).todo
    assert (todo.name, todo.title, todo.changes) == ("torch:pad=64", "pad the operand", "change the program")
    assert to_search(found.findings) == []
    assert scripts(found.findings) == ([], [])
