"""Tests of reading the lines that hipBLASLt writes to its log as a profile of its calls."""

# The same calls are also known as hipblaslt-bench commands, which the tests make without code of logparse. Both must
# give the same matrix products. Grouped products, lines with more details and damaged lines are tested, too.

from __future__ import annotations

import re

import pytest

from logparse.libraries.hipblaslt import bench, profile
from logparse.model import Call, GemmProblem, SolutionName
from tests.conftest import CORPUS, needs_corpus
from tests.libraries.hipblaslt.texts import SAMPLES


def call(text: str) -> Call:
    outcome = profile.read(text)
    assert outcome.unit == "call", outcome
    record = outcome.records[0]
    assert isinstance(record, Call)
    return record


def records(name: str) -> list[str]:
    return (SAMPLES / name).read_text().splitlines()


def as_bench(record: str) -> str:
    """Convert a line of hipBLASLt's profile log to the ``hipblaslt-bench`` command line of the same call.

    Tests compare both. To be an independent check, the function uses no code of logparse.
    """
    pairs = dict(re.findall(r"(\w+): ([^,} ]+)", record))
    words = [f"-{x.lower()} {pairs[x]}" for x in "MNK"]
    words += [f"--{x} {pairs[x]}" for x in ("lda", "ldb", "ldc", "ldd", "stride_a", "stride_b", "stride_c", "stride_d")]
    words += [f"--{x} {pairs[x]}" for x in ("alpha", "beta", "transA", "transB", "batch_count", "scaleA", "scaleB")]
    words += [f"--{x}" for x in ("gradient", "use_e") if pairs[x] == "true"]
    words += [f"--bias_vector --bias_source {pairs['bias_source']}"] * (pairs["bias_vector"] == "true")
    words += [f"--{x} {pairs[x]}" for x in ("a_type", "b_type", "c_type", "d_type", "scale_type", "bias_type")]
    words += [f"--aux_type {pairs['aux_type']}"] * (pairs["use_e"] == "true")
    words += [f"--compute_type {pairs['compute_type'].removeprefix('c_')} --algo_method index --solution_index 1"]
    words += [f"--activation_type {pairs['activation_type']} --any_stride --rotating 0 --cold_iters 0 --iters 0"]
    return "hipblaslt-bench --api_method c " + " ".join(words)


@needs_corpus
@pytest.mark.parametrize(("job", "count"), [("DeepSeek-V2-lite", 36), ("Llama-3.1-70B", 15), ("Llama-3.1-8B", 15)])
def test_corpus_records_as_bench_lines(job: str, count: int) -> None:
    lines = (CORPUS / "hipblaslt" / f"profile_mask64_postprocessed_{job}.log").read_text().splitlines()
    assert len(lines) == count
    for line in lines:
        read = call(line)
        again = bench.read(as_bench(line)).records[0]
        assert isinstance(again, Call)
        assert read.problem.text.replace("?", "-") == again.problem.text, "a record states no swizzle"
        assert read.count == int(re.findall(r"call_count: (\d+)", line)[0])
        assert (read.by_tool, read.category, read.solution) == (False, "profile", None)


@needs_corpus
def test_the_cut_record_of_the_corpus() -> None:
    line = (CORPUS / "hipblaslt" / "profile_mask64_pr2003_one_line_truncated.log").read_text()
    assert profile.read(line.rstrip("\n")).unit == "reject"
    assert profile.read(line.rstrip("\n") + " }").unit == "reject"  # no call_count either
    assert call(line.rstrip("\n") + ", call_count: 3 }").count == 3


@needs_corpus
def test_pytorch_signatures_are_not_ours() -> None:
    text = (CORPUS / "tunableop" / "real_cuda_2.11" / "cuda_results0_blaslog.csv").read_text()
    lines = [line for line in text.splitlines() if "- { function: matmul" in line]
    assert len(lines) > 20
    assert {profile.read(line).unit for line in lines} == {"foreign"}


def stated(text: str) -> str:
    """Make two descriptions of the same matrix product comparable, if one log did not state everything.

    ``?`` (unknown) is replaced by ``-`` (none).
    """
    # If a log line does not state scales and swizzles, the description has ? (unknown). If a line states that the
    # product has no scales, it has -.
    return text.replace("scale=-,-,-,?", "scale=-,-,-,-").replace("swizzle=?,?", "swizzle=-,-")


def test_samples_hold_the_problems_of_the_bench_log() -> None:
    launched = {c.problem.text for line in records("hipblaslt_rank0_4242.log") for c in bench.read(line).records
                if isinstance(c, Call)}  # fmt: skip
    assert {call(line).problem.text for line in records("profile_4242.log")} == launched
    broken = {call(line).problem.text for line in records("forms/profile_broken.log")}
    assert all("swizzle=?,?" in text for text in broken), "ROCm 7.0 writes an empty key in its place"
    assert {stated(text) for text in broken} < launched


def test_keys_of_later_versions_cost_no_call() -> None:
    record = records("profile_4242.log")[0]
    later = record.replace(", activation_type", ", compute_input_typeA: bf16_r, activation_type").replace(
        " }", ", later: 1 }"
    )
    assert later != record
    assert call(later) == call(record)
    assert profile.read(record.replace(", activation_type", ", later: 1, activation_type")).unit == "reject"


def test_extended_records_name_the_solution() -> None:
    line = records("extended_profile_4242.log")[0]
    read, name = profile.read(line).records
    assert isinstance(read, Call)
    assert isinstance(name, SolutionName)
    assert (read.category, read.solution) == ("extended_profile", name.solution)
    assert name.solution.text == "hipblaslt:105597"
    assert name.kernel_name == "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs"
    twice = line.replace("c_f32_r,", "c_f32_r, algo_method: 2, solution_index: 105597,")
    assert call(twice).solution == read.solution
    assert profile.read(twice.replace("2, solution_index: 105597", "2, solution_index: 1")).unit == "reject"


def test_grouped() -> None:
    line, record = records("forms/grouped.log")
    read = call(record)
    again = bench.read(line).records[0]
    assert isinstance(again, Call)
    assert stated(read.problem.text) == again.problem.text
    assert read.count == 48
    with_e = record.replace("stride_d: 0, alpha", "stride_d: 0 stride_e: 0, alpha")
    assert call(with_e).problem.text == read.problem.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", call_count", ", call_cou"),
        ("lda: 4096", "ldX: 4096"),
        ("transA: T", "transA: X"),
        ("a_type: bf16_r", "a_type: bf1"),
        ("K: 4096", "K: four"),
        ("K: 4096, ", ""),
        ("K: 4096", "K: 4096, K: 17"),
        (" }", ""),
    ],
)
def test_damaged_records_are_rejects(old: str, new: str) -> None:
    line = records("profile_4242.log")[0]
    assert old in line
    assert profile.read(line.replace(old, new)).unit == "reject"


def test_what_an_old_record_lacks() -> None:
    problem = call(records("forms/profile_broken.log")[0]).problem
    assert isinstance(problem, GemmProblem)
    assert (problem.scale_a, problem.scale_c, problem.swizzle_a) == ("none", None, None)


def test_a_list_that_yaml_wrote_again_is_read() -> None:
    record = records("profile_4242.log")[0]
    assert call(record.replace("- { function", "- {function").replace(" }", "}")) == call(record)
    assert profile.read("- {function: matmul_of_another, M: 1}").unit == "foreign"
