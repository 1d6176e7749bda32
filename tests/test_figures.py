"""Tests that the figures in README.md and docs/results.md are right.

The tests compute each figure again from the recorded benchmark results.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from analyzers.evidence.confirmations import Pairs, judge_all
from analyzers.evidence.statistics.intervals import median
from analyzers.job.step.answer import ERROR, STARTS
from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
Record = Mapping[str, Any]


@cache
def record(name: str, date: str = "2*") -> Record:
    """Return the recorded results of the benchmark ``name`` on an H200.

    They are the latest results, or the results of ``date``.
    """
    path = sorted(RESULTS.glob(f"{name}-NVIDIA-H200-{date}.json*"))[-1]
    data = path.read_bytes()
    found: Record = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


def percent(share: float, places: int = 1) -> str:
    return f"{100 * share:.{places}f} %"


def read_measured(name: str) -> list[tuple[Record, dict[str, float]]]:
    """Return the measured matrix products or convolutions of a benchmark, with the times of their kernels in µs.

    If the kernel that the library chose was not timed, the matrix product or convolution is left out.
    """
    rows = [
        (x, {row["solution"]: row["time_us"] for row in x["rows"] if row["status"] == "ok" and row["time_us"]})
        for x in record(name)["results"]
    ]
    return [(x, times) for x, times in rows if x["pick"] in times]


def confirmed(name: str) -> str:
    made = record(name)["summary"]
    return f"{made['confirmed']} of {made['flagged']} flagged confirm"


def weighted(name: str) -> float:
    """Return the fraction of the GPU time that a job would save if each matrix product ran its fastest kernel.

    The job makes each call as often as the benchmark's record states.
    """
    rows = [(x["calls"], times[x["pick"]], times[x["best"]]) for x, times in read_measured(name)]
    return 1 - sum(n * best for n, _, best in rows) / sum(n * pick for n, pick, _ in rows)


def products(name: str) -> str:
    made = record(name)["summary"]
    middle, high, most = (made[x] for x in ("median_regret", "p90_regret", "max_regret"))
    share = f"{percent(weighted(name))} of the time of all calls (weighted regret)"
    return f"{share}; median over problems {middle:.3f}, p90 {high:.2f}, largest {most:.2f}; {confirmed(name)}"


def convolutions(name: str) -> str:
    """Return the sentence about measured convolutions that docs/results.md must contain.

    The sentence sums up the times of one call of each convolution in ms, for three choices of kernels.
    """
    # The choices are the kernels that the library chooses by default, the fastest kernels for the tensors as they are
    # stored, and the fastest kernels if the tensors may also be stored in another layout.
    rows = read_measured(name)
    default = sum(times[x["pick"]] for x, times in rows)
    reachable = sum(min(us for solution, us in times.items() if "stored" not in solution) for _, times in rows)
    best = sum(min(times.values()) for _, times in rows)
    stored = sum("stored" in x["best"] for x, _ in rows)
    middle = median([times[x["pick"]] / min(us for s, us in times.items() if "stored" not in s) for x, times in rows])
    ms = [f"{us / 1e3:.1f}" for us in (default, reachable, best)]
    return (
        f"{len(rows)} problems, one call each: {ms[0]} → {ms[1]} ms as called (weighted regret "
        f"{percent(1 - reachable / default)}, median over problems {middle:.3f}), → {ms[2]} ms stored as suits "
        f"each (other than theirs for {stored}); {confirmed(name)}"
    )


def short(name: str) -> str:
    """Return the two table rows about the times of convolutions in the first table of docs/results.md.

    They are shorter than the sentence in the table after it.
    """
    words = re.sub(r" \([^)]*\)", "", convolutions(name))
    count, default, reachable, best, confirmed = re.findall(r"[\d.]+(?: of \d+)?", words)
    true, suspected = confirmed.split(" of ")
    return (
        f"| {count} weight gradients (sizes from ROCm's MI300X file) | {default} ms with default kernels, "
        f"{reachable} ms with the best, {best} ms if tensors may also be stored in another layout | "
        f"| | {suspected} that seemed slow | `replay` confirmed a gain for {true} |"
    )


def racing() -> str:
    made = record("racing")["summary"]
    off = abs(made["regret_against_exhaustive"] - 1)
    shares = [made[f"gpu_share_of_{x}"] for x in ("exhaustive", "exhaustive_near", "tunableop")]
    return (
        f"total time equal within {percent(max(off, 1e-4), 2)} at {shares[0]:.3f} of the GPU time ({shares[1]:.2f} of "
        f"timing only the plans within 3× of the best); {shares[2]:.2f} of TunableOp's strategy"
    )


def repeated() -> str:
    again, null = record("repeatability")["summary"], record("null")["summary"]
    false = null["races_confirmed"] + null["forced_confirmed"]
    return f"{again['found_again']} of {again['found']} findings came again; {false} false in " + str(
        null["races"] + null["forced"]
    )


def intervals() -> str:
    made = record("intervals")["summary"]
    found = made["found_between_3_and_5_percent"]
    return (
        f"{percent(made['copies_excluded'])} of {made['copies']} intervals on copies exclude 1; "
        f"{percent(made['fresh_inside'], 0)} of {made['fresh']} later processes lie in the prediction; "
        f"{round(made['found_again'] * found)} of {found} findings between 3 and 5 % came again; "
        f"between processes {percent(made['deviation_between_processes'], 2)}"
    )


CONFIRMED_WITH = {
    12: "different | {excluded} of 346 | | values of a further process inside the predicted range | {inside} of 261 | "
    "| savings of 3 to 5 % that a second confirmation found again | {again} of 42 |",
    6: "different | {excluded} | 5.8 % | | values of a further process inside the predicted range | {inside} | 98 % | "
    "| savings of 3 to 5 % that a second confirmation found again | {again} of 39 | 39 of 42 |",
}


def judged_by(blocks: int) -> tuple[list[Any], list[Any], Any]:
    """Return the recorded pairs of kernels, and their times by the first ``blocks`` blocks of each process.

    The third result is the benchmark's module ``intervals``.
    """
    found = record("intervals")["pairs"]
    processes = []
    for turn in range(len(found[0]["log_ratios_ppm"])):
        ratios = {(x["kind"], i): x["log_ratios_ppm"][turn][:blocks] for i, x in enumerate(found)}
        pairs = {key: Pairs(tuple(math.exp(y / 1e6) for y in x), (1.0,) * len(x)) for key, x in ratios.items()}
        processes.append(SimpleNamespace(pairs=pairs))
    return [SimpleNamespace(key=x) for x in processes[0].pairs], processes, importlib.import_module("intervals")


@pytest.mark.parametrize("blocks", CONFIRMED_WITH)
def test_six_blocks_confirm_as_well_as_twelve(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures in docs/measurement.md about six and twelve blocks of measurements agree with recorded data."""
    # A process compares two kernels in blocks of measurements. The document states how reliable the result is. For six
    # blocks, its figures are computed from the first six of the twelve recorded blocks of each process.
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    kernels, processes, intervals = judged_by(blocks)
    made = intervals.summary(kernels, processes)
    stated = CONFIRMED_WITH[blocks].format(
        excluded=percent(made["copies_excluded"]),
        inside=percent(made["fresh_inside"], 0),
        again=round(made["found_again"] * made["found_between_3_and_5_percent"]),
    )
    assert stated in text("docs/measurement.md")


def test_six_blocks_give_wider_intervals_than_twelve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    width = {}
    for blocks in CONFIRMED_WITH:
        kernels, processes, intervals = judged_by(blocks)
        runs = processes[:4], processes[4:]
        ratios = [x.speedup for run in runs for x in judge_all(intervals.collect_processes(kernels, run))[0].values()]
        width[blocks] = sum(math.log(x.high / x.low) for x in ratios) / len(ratios)
    wider = width[6] / width[12]
    page = text("docs/measurement.md")
    assert f"| mean width of the 95 % intervals, relative to 12 blocks | {wider:.2f} | 1 |" in page
    assert f"the intervals are {percent(wider - 1, 0)} wider." in page


def in_job() -> str:
    changed = [x for x in record("in-job")["pairs"] if x["changed"]]
    return f"of {len(changed)} calls with other kernels"


def flagged() -> str:
    made = record("wgrads-flagged")["slow_in_find_db"]
    gains = sorted(x["speedup"] for x in made["confirmed"])
    half = sum("FP16" in x["label"] for x in made["confirmed"])
    assert half + len(made["not_confirmed"]) + len(gains) - half == made["measured"] == made["in_find_db"]
    assert made["confirmed_by_stored_layout"] == len(gains)
    assert all("FP32" in x["label"] for x in made["not_confirmed"])
    return (
        f"{len(gains)} confirmed ({half} FP16, {len(gains) - half} FP32; ×{gains[0]:.1f} to ×{gains[-1]:.1f} by "
        f"channels_last), {len(made['not_confirmed'])} not confirmed (FP32)"
    )


def scaled() -> str:
    made = record("scale-gpu")["gpu"]
    two = made["ratios"]["2"]
    return f"×{two['without_start']:.2f} without the start of the workers, ×{two['with_start']:.2f} with it"


def promises(name: str) -> tuple[str, str]:
    """Return how many predicted gains came true within 5 %, such as ``"7 of 9"``, and the largest error, as texts.

    Each prediction is about one program and one change of it.
    """
    made = record(name)
    errors = [abs(x["error"]) for model in made["models"].values() for x in model["actions"] if "error" in x]
    kept = sum(x <= 0.05 for x in errors)
    return f"{kept} of {len(errors)}", f"(largest error {percent(max(errors))})"


RESULT_ROWS: Mapping[str, Callable[[], str]] = {
    "gemms": lambda: products("gemms"),
    "gemms-profile": lambda: products("gemms-profile"),
    **{name: (lambda name=name: convolutions(name)) for name in ("wgrads", "fprops", "dgrads")},  # type: ignore[misc]
    "racing": racing,
    "repeated": repeated,
    "intervals": intervals,
    "in-job": in_job,
    "flagged": flagged,
    "scaled": scaled,
}


def text(document: str) -> str:
    return " ".join((ROOT / document).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("row", RESULT_ROWS)
def test_results_are_those_of_their_records(row: str) -> None:
    assert RESULT_ROWS[row]() in text("docs/results.md")


def test_the_table_of_figures_in_short_is_that_of_the_records() -> None:
    page, made = text("docs/results.md"), record("gemms")["summary"]
    saved = f"The best kernels would save {percent(weighted('gemms'))} of the GEMMs' time"
    rows = [(times[x["pick"]], min(times.values())) for x, times in read_measured("gemms")]
    assert (sum(pick == best for pick, best in rows), len(rows)) == (10, 19)
    others = f"the others take up to {made['max_regret']:.2f} times as long"
    assert f"| 19 GEMMs of a GPT-2 training | ten get the best kernel, {others}. {saved} |" in page
    true, suspected = made["confirmed"], made["flagged"]
    assert f"| {suspected} picks that seemed slow | `replay` confirmed a gain above 3 % for {true} |" in page
    assert short("wgrads") in page
    raced = record("racing")["summary"]
    off = percent(max(abs(raced["regret_against_exhaustive"] - 1), 1e-4), 2)
    cost = f"{raced['gpu_share_of_exhaustive']:.3f}; found kernels take the same total time within {off}"
    assert f"| its GPU time ÷ GPU time of timing all kernels fully | {cost} |" in page
    false, tests = repeated().split("; ")[1].split(" false in ")
    assert (false, f"| {tests} tests of a kernel against its copy | no gain claimed" in page) == ("0", True)
    copies, later = intervals().split("; ")[:2]
    wrong, count = " ".join(copies.split()[:2]), copies.split()[3]
    assert f"| {count} intervals of copies | {wrong} show some difference (5 % expected) |" in page
    inside, processes = later.removesuffix(" later processes lie in the prediction").split(" of ")
    assert f"| {processes} later processes | {inside} are in the predicted interval |" in page


def test_the_first_table_and_outputs_of_the_first_page_are_those_of_the_records() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    page = "\n".join(lines)
    ran = jobs()[""]
    seen = ran["wav2vec2"]["truth_said"]
    times = [f"{seen[x] / 1e3:.1f} ms" for x in ("before_us", "after_us")]
    change = [f"{100 * seen[x]:.1f} %".replace("-", "−") for x in ("change", "low", "high")]
    assert f"| {times[0]} | {times[1]}; {change[0]} [{change[1]}, {change[2]}] |" in page
    made = record("actions")["models"]["mobilenet_v2"]
    [of] = [x for x in made["actions"] if x["action"] == "channels_last"]
    now, then, foretold = (us / 1e3 for us in (made["now_us"], of["measured_us"], of["predicted_us"]))
    assert f"| {now:.1f} ms of GPU time | {then:.1f} ms; predicted {foretold:.1f} ms |" in page
    shown = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = [x for job in ("graph_decode", "wav2vec2") for x in (*ran[job]["said"], *ran[job]["verify_said"])]
    assert len(shown) == 2
    assert [x for block in shown for x in block.splitlines() if x not in (*printed, "…")] == []


def test_trials_in_running_jobs_are_those_of_their_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tried, page = importlib.import_module("tried"), text("docs/results.md")
    found: Record = {}
    for day in ("28", "29"):
        path = RESULTS / f"tried-NVIDIA-H200-2026-11-{day}.json"
        found |= json.loads(path.read_text(encoding="utf-8"))["jobs"]
    rows = {name: {"compared": [x for x in row["compared"] if x["said"]]} for name, row in found.items()}
    for line in tried.table(rows):
        assert " ".join(line.split()) in page
    best = tried.summary(found)["best"]
    inside = best["one inside the other's interval"]
    assert f"interval on {inside} of {best['with a truth']}" in page
    assert f"overlap on {best['agree']} of {best['with a truth']}" in page
    assert f"| {best['narrow and quick']} of {best['timed']}. " in page
    assert tried.summary(found)["contradict"] == []
    [of] = [x for x in found["trainer"]["tried"] if "+" in x["action"]]
    change = [f"−{100 * (1 - of[x]):.1f} %" for x in ("ratio", "ratio_low", "ratio_high")]
    times = f"| {of['now_us'] / 1e3:.1f} ms | {of['then_us'] / 1e3:.1f} ms; {change[0]} [{change[1]}, {change[2]}] |"
    assert times in text("README.md")


def test_the_observer_s_cost_by_turns_is_that_of_its_record() -> None:
    jobs_of = json.loads((RESULTS / "observed-by-turns-NVIDIA-H200-2026-11-28.json").read_text("utf-8"))["jobs"]
    page = text("docs/results.md")
    for name, row in jobs_of.items():
        sides = row["truth"]
        turns = min(len(run["turns_us"]) for runs in sides.values() for run in runs)
        ratios = [
            b / a
            for x, y in zip(sides["before"], sides["observed"], strict=True)
            for a, b in zip(x["turns_us"][turns // 2 : turns], y["turns_us"][turns // 2 : turns], strict=True)
        ]
        assert f"{100 * (median(ratios) - 1):.1f} % ({name})" in page
        assert row["traces"] == 12, "each of the four observed runs left three"


def test_four_gpus_are_as_their_record_says() -> None:
    ratios, page = record("scale-gpu", "2026-11-21")["gpu"]["ratios"], text("docs/scale.md")
    two, four = (ratios[x] for x in ("2", "4"))
    assert f"×{two['without_start']:.2f} on 2 and ×{four['without_start']:.2f} on 4 GPUs without the start" in page
    assert f"×{two['with_start']:.2f} and ×{four['with_start']:.2f} with it" in page


def test_recorded_times_are_medians_of_the_samples() -> None:
    """Every time in a benchmark's result file is the median of the single times, which are in the file, too."""
    for name in ("gemms", "wgrads"):
        for result in record(name)["results"]:
            for row in result["rows"]:
                if row["samples_us"]:
                    assert row["time_us"] == pytest.approx(median(row["samples_us"]))


@pytest.mark.parametrize("name", ["actions", "actions-others"])
def test_promises_of_actions_are_those_of_their_records(name: str) -> None:
    kept, worst = promises(name)
    near, count = kept.split(" of ")
    page = text("docs/results.md")
    assert re.search(rf"{kept}[^|]*within 5 % {re.escape(worst)}", page)
    if name == "actions-others":
        off = worst.removeprefix("(largest error ").removesuffix(")")
        assert (
            f"| {count} changes of twenty programs (torchvision, transformers) | {near} are (largest error {off}) |"
            in page
        )
    else:
        assert f"| {count} changes of ten programs | {near} are within 5 % of the measured time |" in page


def test_the_clock_loop_is_that_of_its_record() -> None:
    clock, page = record("steady-clock"), text("docs/measurement.md")
    load, rests = clock["load"], clock["idle"]["rounds"]
    assert f"{load['discarded']} blocks were discarded beside {load['blocks']:,} kept ones" in page
    assert load["most_apart"] <= 0.05
    assert {x["clock_mhz"] for x in rests} == {"1980"}, "the clock stayed"
    assert f"each of {len(rests)} rests" in page
    held, free = (percent(clock["copies"][f"median_off_{x}"], 2) for x in ("held", "free"))
    assert f"copies were {held} apart in the median with the loop, and {free} without it" in page


def test_the_table_of_other_peoples_programs_is_of_its_record() -> None:
    page = text("docs/results.md").partition("Programs that were not written")[2].partition("## ")[0]
    pairs = [
        (model["now_us"], x["predicted_us"], x["measured_us"])
        for model in record("actions-others")["models"].values()
        for x in model["actions"]
        if "error" in x
    ]
    known = {" | ".join(f"{us / 1e3:.1f}" for us in pair) for pair in pairs}
    shown = re.findall(r"\| ([\d.]+ \| [\d.]+ \| [\d.]+) \|", page)
    assert shown
    assert known.issuperset(shown)


JOBS = {"": "jobs-NVIDIA-H200-2026-11-27.json", " (H100)": "jobs-NVIDIA-H100-80GB-HBM3-2026-11-28.json"}


def jobs() -> dict[str, Record]:
    """Return the recorded results of the jobs that docs/results.md shows in tables.

    The keys are the words by which the test finds the table rows of a job in the document.
    """
    return {mark: json.loads((RESULTS / name).read_text(encoding="utf-8"))["jobs"] for mark, name in JOBS.items()}


def test_the_tables_of_jobs_are_those_of_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    steps, page = importlib.import_module("steps"), text("docs/results.md")
    claims, judged = {"right": 0, "wrong": 0, "undecided": 0, "no claim": 0}, {}
    for mark, name, row in ((mark, name, row) for mark, rows in jobs().items() for name, row in rows.items()):
        claims[row["direction"]] += 1
        judged[name] = judged.get(name, False) or row["direction"] == "right"
        if row["direction"] == "right" and row["truth_said"]["said"] == "within its spread":
            assert name in ("generate", "data_loader", "small_kernels")
        if seen := row["truth_said"]:
            times = f"{seen['before_us'] / 1e3:.3g}→{seen['after_us'] / 1e3:.3g}, {seen['change']:+.1%}"
            said = f"{row['judged_verdict'] or 'not judged'} | {times} [{seen['low']:+.1%}, {seen['high']:+.1%}]"
            assert f"| {name}{mark} | {' + '.join(row['actions'])} | {said} | {row['direction']} |" in page
    assert claims == {"right": 12, "wrong": 0, "undecided": 2, "no claim": 3}
    assert [name for name, right in judged.items() if not right] == ["fp8"], "which has nothing to apply"
    assert "12 verdicts are right and none is wrong. Two say" in page
    unclear = 'For two verdicts the clock could not tell whether they are right. Three right verdicts say "not faster"'
    assert unclear in page
    assert "Of 16 verdicts of `tune` and `verify` about test jobs, 12 are right and none is wrong." in text("README.md")
    known, later = jobs().values()
    lines = [*steps.tabulate_predictions(known), *(x for x in steps.tabulate_predictions(later) if ": " in x)]
    assert all(line in page for line in lines if line.startswith("|") and ("→" in line or line[:10] != "| job: act"))
    pairs = steps.pairs(known) + steps.pairs(later)
    held, near = sum(x.held for x in pairs), sum(abs(x.error) <= 0.05 for x in pairs)
    assert f"The goal is that 17 of 20 predictions hold. {held} of {len(pairs)} pairs held" in page
    assert f"| held: its error is within 5 % | {near} |" in page
    wide = "but the measured time lies in the foretold interval (at most 10 % to either side)"
    assert f"| held: its error is larger, {wide} | {held - near} | | did not hold | {len(pairs) - held} |" in page
    assert held >= 17 / 20 * len(pairs)
    sure = [x.held for x in pairs if x.spread <= 0.04]
    assert f"For {len(sure)} of the {len(pairs)} pairs of a job and a change, this uncertainty is at most 4 %." in page
    assert f"Of these {len(sure)} pairs, {sum(sure)} held." in page


def test_what_an_action_does_to_the_host_is_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    row = jobs()[" (H100)"]["vision_server"]
    pairs = importlib.import_module("steps").pairs({"x": row})
    off = [row["step"]["beside_with_host"][x.action]["then_us"] / x.measured_us - 1 for x in pairs]
    rows = [f"| {x.action} | {100 * x.error:+.1f} % | {100 * y:+.1f} % |" for x, y in zip(pairs, off, strict=True)]
    assert f"error with them | |---|---|---| {' '.join(rows)}" in text("docs/results.md")
    assert sorted(f"{100 * abs(x):.1f}" for x in off) == ["0.4", "0.7", "4.5"]
    sums = [x for job in jobs()[" (H100)"].values() for x in job.get("host_sums", {}).values()]
    assert 0.02 < max(abs(host) / gpu for host, gpu in sums) < 0.03, "analyzers/actions/action.py states it"


def test_pairs_whose_sides_stayed_where_they_were_are_those_of_their_record() -> None:
    found = json.loads((RESULTS / "jobs-NVIDIA-H100-80GB-HBM3-2026-11-27.json").read_text(encoding="utf-8"))
    each = enumerate(found["jobs"]["vision_server"]["proof"]["wall"]["each"], 1)
    rows = [f"| {number} | {before / 1e3:.1f} ms | {after / 1e3:.1f} ms |" for number, (before, after) in each]
    assert len(rows) == 4
    assert f"with the change | |---|---|---| {' '.join(rows)} So" in text("docs/results.md")


def test_the_error_of_the_simulated_step_is_learned_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    steps = importlib.import_module("steps")
    errors = [x for rows in jobs().values() for x in steps.own_errors(rows)]
    rms = math.sqrt(math.fsum(x * x for x in errors) / len(errors))
    assert 2 * rms <= ERROR
    assert len(errors) == 13
    page = text("docs/results.md")
    assert f"with measurements, for {len(errors)} pairs of a job and a change." in page
    sure = [x.limit for rows in jobs().values() for x in steps.pairs(rows) if x.spread <= 0.04 and x.limit != "host"]
    kernels, loading = (sure.count(x) for x in ("kernels", "data loading"))
    assert kernels + loading == len(errors)
    assert f"{kernels} pairs are limited by kernels, and {loading} by data loading." in page
    assert f"The typical error is {percent(rms)} (root mean square)." in page
    more = sum(x.limit != "host" for rows in jobs().values() for x in steps.pairs(rows)) - len(errors)
    assert f"There are {more} more predictions for such jobs. The measured changes of these {more} are" in page


def test_the_step_without_a_change_is_simulated_as_the_records_show() -> None:
    rows = [x["step"] for x in jobs()[" (H100)"].values()]
    off = [100 * (x["traced_us"] / x["now"]["now_us"] - 1) for x in rows]
    page = text("docs/results.md")
    assert f"H100s are {min(off):.0f} to {max(off):.0f} % longer than the measured ones." in page
    assert max(abs(x["scaled_us"] / x["now"]["now_us"] - 1) for x in rows) < 0.001


def test_the_step_of_a_slow_host_is_that_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    found = json.loads((RESULTS / "steps-NVIDIA-H200-2026-11-27.json").read_text(encoding="utf-8"))["jobs"]
    [pair] = [x for x in importlib.import_module("steps").pairs(found) if x.action == "channels_last_benchmark"]
    step = found["ddp_one_core"]["step"]["under"][pair.action]
    [of] = [x for x in found["ddp_one_core"]["offered"] if x["action"] == pair.action]

    def row(now_us: float, then_us: float) -> str:
        change = f"{100 * (then_us / now_us - 1):.1f}".replace("-", "−")
        return f"{now_us / 1e3:.1f} ms | {then_us / 1e3:.1f} ms | {change} %"

    page = text("docs/results.md")
    assert f"| foretold | {row(step['now_us'], step['then_us'])} |" in page
    assert f"at another hour | {row(pair.now_us, pair.measured_us)} ±{100 * pair.spread:.1f} % |" in page
    saved = [f"{(x['now_us'] - x['then_us']) / 1e3:.2f} ms" for x in (of, step)]
    assert f"{saved[0]} instead of {saved[1]}" in page


def clients() -> Record:
    """Return the recorded steps of well-known clients, simulated and measured."""
    found: Record = json.loads((RESULTS / "steps-NVIDIA-H200-2026-11-28.json").read_text(encoding="utf-8"))["jobs"]
    return found


def test_starts_of_a_program_differ_as_the_records_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    starts = importlib.import_module("steps").starts
    host, kernels = ([x * 100 for x in starts([*jobs().values(), clients()], of)] for of in (True, False))
    assert math.sqrt(math.fsum(x * x for x in host) / len(host)) == pytest.approx(100 * STARTS, abs=0.05)
    apart = [x for x in kernels if x < 0.5]
    assert len(kernels) - len(apart) == 3, "fsdp, ddp and lightning, whose hosts take a third of the step"
    page = text("docs/results.md")
    assert f"Starts of programs that wait for their host differ by {min(host):.0f} to {max(host):.0f} %." in page
    known = f"{min(apart):.1f} to {max(apart):.1f} %, or by {max(kernels):.1f} %"
    assert f"kernels limit on one GPU differ by {known}" in page
    assert f"its host differ by {min(host):.0f} to {max(host):.0f} %" in text("docs/commands.md")


def test_simulated_steps_of_clients_are_those_of_their_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    steps, page = importlib.import_module("steps"), " ".join(text("docs/results.md").split())
    later = json.loads((RESULTS / "steps-NVIDIA-H200-2026-11-29.json").read_text(encoding="utf-8"))["jobs"]
    tables = [
        [x for x in steps.tabulate_predictions(rows) if x.startswith("| ") and "→" in x] for rows in (clients(), later)
    ]
    lines = [[x for x in table if "| job" not in x] for table in tables]
    assert [len(x) for x in lines] == [15, 6]
    assert [x for table in lines for x in table if x not in page] == []
    pairs = steps.pairs(clients())
    then, now = (sum(x) for x in ([y.low_us <= y.measured_us <= y.high_us for y in pairs], [y.inside for y in pairs]))
    assert f"{then} of {len(pairs)} do in the table" in page
    assert f"| {then} of {len(pairs)} (this table) |" in page
    every = [x.inside for rows in (*jobs().values(), clients()) for x in steps.pairs(rows)]
    assert f"| {now} of {len(pairs)} (this table), {sum(every)} of {len(every)} (all three records) |" in page
    new = [x.inside for x in steps.pairs(later)]
    assert f"{sum(new)} of {len(new)} measured times lie in the interval" in page
    assert sum(every + new) >= 0.9 * len(every + new)


def test_the_time_to_the_answer_is_that_of_the_record() -> None:
    page = text("docs/results.md")
    found = json.loads((RESULTS / "time-to-answer-NVIDIA-H200-2026-11-29.json").read_text(encoding="utf-8"))["jobs"]
    trainer, moe = found
    replay = trainer["seconds"] - trainer["without_replay_s"]
    [answered] = [at for at, line in trainer["lines"] if "try: padded_output+one_kernel_gelu" in line]
    assert f"together | {answered - replay:.0f} s | {trainer['without_replay_s']:.0f} s |" in page
    assert f"| moe: nothing is faster | – | {moe['without_replay_s']:.0f} s |" in page
    least = [min(x["plain_start_s"]) for x in found]
    assert f"needs {min(least):.0f} to {max(least):.0f} s for each plain start" in page


def test_traces_beside_tracelens_are_those_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    traces, page = importlib.import_module("traces"), text("docs/results.md")
    found = json.loads((RESULTS / "traces-host-2026-11-28.json").read_text(encoding="utf-8"))["traces"]
    assert traces.head()[0] in page
    assert [name for name, trace in found.items() if traces.line(name, trace) not in page] == []
    assert traces.summary(found) == (
        "of 21 traces: 2 at least 4 times faster (1 on CPU), 1 in a part of 0.25 of the memory; "
        "recommend within 1.5 s of CPU: 21 (at most 1.28 s)"
    )


SEARCHED = ("searched-fprops", "searched-dgrads", "searched-wgrads")


def test_benchmark_mode_chooses_anew_in_each_process() -> None:
    times: dict[tuple[str, str], list[float]] = {}
    for x in (y for kind in SEARCHED for raced in record(kind)["results"].values() for y in raced):
        for solution, status, time_us, samples_us in x["rows"]:
            if status == "ok" and len(samples_us) >= 2:
                times.setdefault((x["problem"], solution), []).append(time_us)
    ratios: dict[str, list[float]] = {}
    for (_, solution), found in times.items():
        if len(found) >= 2:
            kind = "plan" if solution.startswith("cudnn:") else "benchmark" if "benchmark" in solution else "setting"
            ratios.setdefault(kind, []).append(max(found) / min(found))
    counts = {kind: (sum(x > 1.1 for x in found), len(found)) for kind, found in ratios.items()}
    assert counts == {"benchmark": (80, 619), "setting": (1, 939), "plan": (11, 4212)}
    assert max(ratios["benchmark"]) == pytest.approx(1.49, abs=0.005)
    said = "differ by more than 10 % in 80 of 619 cases, by up to 49 %", "in 1 of 939 cases", "in 11 of 4,212"
    assert all(x in " ".join(text("docs/measurement.md").split()) for x in said)
