"""Tests of reading and writing MIOpenDriver commands, which MIOpen logs for each convolution.

Damaged lines are rejected.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.miopen import driver
from logparse.libraries.miopen.problem_key import key_of
from logparse.model import Call, ConvProblem, Direction, Message, Reject
from tests import conftest
from tests.conftest import needs_corpus
from tests.libraries.miopen.streams import read

CORPUS, SAMPLES = conftest.CORPUS / "miopen", conftest.SAMPLES / "miopen"

ARGS = "-n 64 -c 256 -H 56 -W 57 -k 512 -y 3 -x 5 -p 1 -q 2 -u 2 -v 2 -l 1 -j 1 -m conv -g 32 -F 4 -t 1"
PROBLEM = ConvProblem(
    direction="W", n=64, c=256, h=56, w=57, k=512, filter_h=3, filter_w=5, pad_h=1, pad_w=2, stride_h=2, stride_w=2,
    dilation_h=1, dilation_w=1, out_h=28, out_w=29, groups=32, in_type="FP16", weights_type="FP16", out_type="FP16",
    in_layout="NCHW", weights_layout="NCHW", out_layout="NCHW", bias=0, mode="convolution",
)  # fmt: skip


@pytest.mark.parametrize(
    ("prefix", "category", "by_tool"),
    [
        ("MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver ", "miopen_cmd", False),
        ("MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver ", "miopen_find", False),
        ("MIOpen(HIP)   0.088: Command [LogCmdConvolution] ./bin/MIOpenDriver ", "miopen_cmd", False),
        ("node7 4711 MIOpen(HIP)  12.088 (2026-01-20T09:15:11Z): Command [LogCmdConvolution] ./bin/MIOpenDriver ",
         "miopen_cmd", False),
        ("4711 MIOpen(OpenCL): Command [LogCmdConvolution] ./bin/MIOpenDriver ", "miopen_cmd", False),
        ("MIOpen: Command [LogCmdFindConvolution] MIOpenDriver.exe ", "miopen_find", False),
        ("./bin/MIOpenDriver ", "miopen_cmd", True),
        ("MIOpenDriver ", "miopen_cmd", True),
        ("MIOpenDriver: ", "miopen_cmd", True),
        (r"C:\rocm\bin\MIOpenDriver.exe ", "miopen_cmd", True),
        ("+ MIOPEN_FIND_MODE=1 MIOPEN_FIND_ENFORCE=4 time /opt/rocm/bin/MIOpenDriver ", "miopen_cmd", True),
    ],
)  # fmt: skip
def test_every_prefix(prefix: str, category: str, by_tool: bool) -> None:
    records, units = read(prefix + "convfp16 " + ARGS + "\n")
    assert records == [Call(problem=PROBLEM, category=category, count=1, by_tool=by_tool)]
    assert units == {"call": 1}


@pytest.mark.parametrize(
    ("function", "direction", "category"),
    [
        ("miopenConvolutionForward", "F", "miopen_cmd"),
        ("miopenConvolutionBackwardData", "B", "miopen_cmd"),
        ("miopenConvolutionBackwardWeights", "W", "miopen_cmd"),
        ("miopenFindConvolutionForwardAlgorithm", "F", "miopen_find"),
        ("miopenFindConvolutionBackwardDataAlgorithm", "B", "miopen_find"),
        ("miopenFindConvolutionBackwardWeightsAlgorithm", "W", "miopen_find"),
    ],
)
def test_an_old_miopen_states_the_direction_by_its_function(function: str, direction: Direction, category: str) -> None:
    """An old MIOpen logged a command without ``-F``, behind the name of the API function that was called."""
    line = f"{function}: ./bin/MIOpenDriver convfp16 {ARGS.replace('-F 4 ', '')}"
    call = Call(problem=replace(PROBLEM, direction=direction), category=category, count=1, by_tool=False)
    assert read(f"{line}\n") == ([call], {"call": 1})
    assert driver.read(line.replace("-c 256", "")).unit == "reject"  # a logged command states all sizes


def test_other_functions_of_an_old_miopen() -> None:
    assert driver.read(f"miopenConvolutionBackwardBias: ./bin/MIOpenDriver conv {ARGS[:-10]}").unit == "reject"
    pool = "MIOpenDriver pool -M 0 --input 128x192x71x71"
    records, units = read(f"miopenPoolingForward: ./bin/{pool}\n")
    assert (records, units) == (
        [Message(category="miopen_cmd", function="miopenPoolingForward", text=pool)],
        {"message": 1},
    )


def test_a_command_of_an_old_log_or_a_comment_names_no_problem_of_the_lines_behind_it() -> None:
    """Another thread of the job may write the lines behind a logged command."""
    command = f"./bin/MIOpenDriver convfp16 {ARGS}"
    chosen = "MIOpen(HIP): Info [FindConvBwdWeightsAlgorithm] BWrW Chosen Algorithm: GemmWrwUniversal , 442368, 8.56064"
    for before, category in (("", "measurement"), ("miopenConvolutionBackwardWeights: ", "message"), ("#", "message")):
        assert read(f"{before}{command}\n{chosen}\n")[1][category] == 1


@pytest.mark.parametrize(
    ("told", "directions"), [("0", "FBW"), ("1", "F"), ("2", "B"), ("3", "FB"), ("6", "BW"), ("7", "FBW")]
)
def test_sums_of_directions(told: str, directions: str) -> None:
    outcome = driver.read("./bin/MIOpenDriver conv " + ARGS.replace("-F 4", f"-F {told}"))
    assert (
        "".join(
            c.problem.direction for c in outcome.records if isinstance(c, Call) if isinstance(c.problem, ConvProblem)
        )
        == directions
    )


def test_long_flags_and_the_drivers_defaults() -> None:
    outcome = driver.read("./bin/MIOpenDriver convbfp16 --batchsize 8 --out_channels 16 -forw 1 --in_layout NHWC")
    (call,) = outcome.records
    assert isinstance(call, Call)
    assert call.problem == ConvProblem(
        direction="F", n=8, c=3, h=32, w=32, k=16, filter_h=3, filter_w=3, pad_h=0, pad_w=0, stride_h=1, stride_w=1,
        dilation_h=1, dilation_w=1, out_h=30, out_w=30, groups=1, in_type="BF16", weights_type="BF16", out_type="BF16",
        in_layout="NHWC", weights_layout="NCHW", out_layout="NCHW", bias=0, mode="convolution",
    )  # fmt: skip


def test_a_command_without_the_drivers_name() -> None:
    """A MIOpenDriver command is also read if the program's name is missing.

    Such a command begins with, for example, ``convfp16``. iree-org/iree-turbine has lists of such commands. If other
    words come first, the line belongs to another program.
    """
    line = "convfp16 " + ARGS
    assert read(f"{line}\n") == read(f"MIOpenDriver {line}\n")
    for other in (f"a {line}", f"#{line}", line.replace("-n 64 ", ""), "conv -n layers"):
        assert read(f"{other}\n") == ([], {"foreign": 1})


VOLUME = (
    "-n 16 -c 288 --in_d 8 -H 48 -W 32 -k 288 --fil_d 1 -y 3 -x 3 --pad_d 0 -p 1 -q 1 --conv_stride_d 1 -u 1 -v 1 "
    "--dilation_d 1 -l 1 -j 1 -g 3 --in_layout NDHWC --fil_layout NDHWC --out_layout NDHWC"
)


def test_a_command_without_the_drivers_name_runs_forward() -> None:
    """If a MIOpenDriver command lacks the program's name, it is read as a forward convolution only."""
    # Such commands come from iree-turbine. Their memory layouts tell if they are 2-D or 3-D. In a full command,
    # MIOpen's own driver refuses such layouts and runs all directions.
    (call,) = driver.read(f"convbfp16 {VOLUME}").records
    assert isinstance(call, Call)
    assert [call] == list(driver.read(f"MIOpenDriver convbfp16 {VOLUME} --spatial_dim 3 -F 1").records)
    (reject,) = driver.read(f"MIOpenDriver convbfp16 {VOLUME}").records
    assert isinstance(reject, Reject)
    assert "NDHWC does not have 2 dimensions" in reject.reason
    assert "--spatial_dim 3 is missing" in reject.reason
    (reject,) = driver.read("MIOpenDriver conv -n 8 --spatial_dim 3 --in_layout NHWC").records
    assert isinstance(reject, Reject)
    assert "NHWC does not have 3 dimensions" in reject.reason


@pytest.mark.parametrize(("channels", "groups"), [("-c 64 -k 64", 5), ("-c 64 -k 63", 2), ("-c 9 -k 64", 4)])
def test_groups_that_do_not_divide_the_channels_are_no_convolution(channels: str, groups: int) -> None:
    (reject,) = driver.read(f"MIOpenDriver conv -n 8 {channels} -g {groups} -F 1").records
    assert isinstance(reject, Reject)
    assert f"not multiples of {groups} groups" in reject.reason


def test_three_dimensions() -> None:
    text = (
        "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 4 -c 64 --in_d 8 -H 28 -W 28 "
        "-k 128 --fil_d 3 -y 3 -x 3 --pad_d 1 -p 1 -q 1 --conv_stride_d 2 -u 1 -v 1 --dilation_d 1 -l 1 -j 1 "
        "--spatial_dim 3 --in_layout NDHWC --fil_layout NDHWC --out_layout NDHWC -m conv -g 1 -F 2 -t 1 -S 0"
    )
    (call,) = driver.read(text).records
    assert isinstance(call, Call)
    assert isinstance(call.problem, ConvProblem)
    assert key_of(call.problem) == "128-4-28-28-3x3x3-64-8-28-28-4-1x1x1-2x1x1-1x1x1-0-NDHWC-NDHWC-NDHWC-FP16-B"


def test_what_the_line_lacks_stays_unknown() -> None:
    assert only("./bin/MIOpenDriver convint8 -F 1").out_type is None
    cast = driver.read_command("MIOpenDriver conv -F 1 -U fp8")
    assert cast is not None
    assert (cast.problems[0].in_cast, cast.problems[0].out_cast) == (None, "none")


def test_transposed_sizes() -> None:
    command = driver.read_command("MIOpenDriver conv -c 8 -H 28 -W 28 -y 4 -x 4 -p 1 -q 1 -u 2 -v 2 -m trans -F 1 -Y 1")
    assert command is not None
    assert (command.problems[0].out_h, command.problems[0].out_w) == (57, 56)


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("./bin/MIOpenDriver conv -n 64 -Q 1", "-Q"),
        ("./bin/MIOpenDriver conv -n 64 -c", "-c"),
        ("./bin/MIOpenDriver conv -n 6x4 -c 3", "6x4"),
        ("MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 6 -c 3", None),
        ("./bin/MIOpenDriver conv -F 9", None),
    ],
)
def test_damage_is_rejected_where_it_is(text: str, spot: str | None) -> None:
    outcome = driver.read(text)
    assert outcome.unit == "reject"
    (reject,) = outcome.records
    assert isinstance(reject, Reject)
    assert spot is None or text[reject.offset : reject.offset + reject.length] == spot


def test_shell_words_after_the_command_and_other_operations() -> None:
    assert driver.read("./bin/MIOpenDriver convfp16 " + ARGS + " > out.txt 2>&1 # tune").unit == "call"
    outcome = driver.read("MIOpen(HIP): Command [LogCmdBNorm] ./bin/MIOpenDriver bnorm -n 4 -c 3 --forw 1")
    assert outcome.records == [
        Message(category="miopen_cmd", function="LogCmdBNorm", text="MIOpenDriver bnorm -n 4 -c 3 --forw 1")
    ]


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    three = draw(st.booleans())
    words = ["./bin/MIOpenDriver", draw(st.sampled_from(sorted(driver.TYPE_OF_OP)))]
    groups = draw(st.integers(1, 8))
    for long, _, default in driver._FLAGS:
        if isinstance(default, int) and long not in ("forw", "spatial_dim", "group_count") and "trans" not in long:
            words += [f"--{long}", str(draw(st.integers(1, 60)) * (groups if "channels" in long else 1))]
    words += ["--group_count", str(groups)]
    words += ["--spatial_dim", "3" if three else "2", "-m", draw(st.sampled_from(["conv", "trans"]))]
    for flag in ("in", "fil", "out"):
        words += [f"--{flag}_layout", draw(st.sampled_from(["NCDHW", "NDHWC"] if three else ["NCHW", "NHWC"]))]
    words += ["-F", draw(st.sampled_from("124"))]
    command = driver.read_command(" ".join(words))
    assert command is not None
    return command.problems[0]


@given(problems())
def test_object_to_command_to_object(problem: ConvProblem) -> None:
    back = driver.read_command(driver.command(problem))
    assert back is not None
    assert back.problems == (problem,)


def test_a_command_needs_its_sizes() -> None:
    for name in ("n", "w", "filter_h", "pad_w", "k"):
        with pytest.raises(EmissionError, match=name):
            driver.command(replace(PROBLEM, **{name: None}))  # type: ignore[arg-type]
    with pytest.raises(EmissionError, match="types"):
        driver.command(replace(PROBLEM, out_type="FP32"))
    with pytest.raises(EmissionError, match="direction"):
        driver.command(replace(PROBLEM, direction="B+W"))


def test_the_training_log() -> None:
    records, units = read((SAMPLES / "miopen_cmd_4242.log").read_bytes())
    calls = Counter(
        (c.category, c.problem.direction) for c in records if isinstance(c, Call) if isinstance(c.problem, ConvProblem)
    )
    # 39 convolutions per step and direction, six steps. The first layer has no gradient of its input.
    assert calls == {
        ("miopen_cmd", "F"): 39 * 6, ("miopen_cmd", "W"): 39 * 6, ("miopen_cmd", "B"): 38 * 6,
        ("miopen_find", "F"): 15, ("miopen_find", "W"): 15, ("miopen_find", "B"): 14,
    }  # fmt: skip
    assert units["foreign"] == 7
    assert units["message"] == 1
    assert not any(isinstance(r, Reject) for r in records)


def test_the_samples_commands_are_the_find_dbs_problems() -> None:
    keys = {line.split("=")[0] for line in (SAMPLES / "gfx942130.HIP.fdb.txt").read_text().splitlines()}
    records, _ = read((SAMPLES / "miopen_cmd_4242.log").read_bytes())
    called = {key_of(c.problem) for c in records if isinstance(c, Call) if isinstance(c.problem, ConvProblem)}
    assert called <= keys
    assert len(keys - called) == 1  # the first layer's B


@needs_corpus
def test_corpus_lists_are_read_whole() -> None:
    data = (CORPUS / "mituna_conv_configs.driver.txt").read_bytes()
    records, units = read(data)
    assert units == {"call": 9, "blank": 5}
    problems = [c.problem for c in records if isinstance(c, Call)]
    random.Random(0).shuffle(problems)
    for problem in problems:
        assert isinstance(problem, ConvProblem)
        back = driver.read_command(driver.command(problem))
        assert back is not None
        assert back.problems == (problem,)


TYPED = "./bin/MIOpenDriver convfp16 -n 4 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -F 1"


def only(text: str) -> ConvProblem:
    command = driver.read_command(text)
    assert command is not None
    (problem,) = command.problems
    return problem


def test_values_are_read_as_by_the_driver() -> None:
    """Values in a command are read as MIOpenDriver reads them: layouts in small letters, and 0 groups as one group."""
    plain = only(TYPED)
    assert only(f"{TYPED} -g 0") == plain
    assert (only(f"{TYPED} --in_layout nhwc").in_layout, plain.in_layout) == ("NHWC", "NCHW")


LOGGED = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 2 -c 16 -H 12 -W 12 -k 2 -y 3 -x 3 "
    "-p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 4 -F 1 -t 1"
)
SIZES = "MIOpenDriver convfp16 -n 2 -c 16 -H 12 -W 12 -k 8"


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("-m trans -g 4 -F 1", "16-12-12-3x3-8-14-14-2-0x0-1x1-1x1-0-NCHW-FP16-B_g4"),
        ("-m trans -g 4 -F 4", "16-12-12-3x3-8-14-14-2-0x0-1x1-1x1-0-NCHW-FP16-W_g4"),
        ("-m trans -F 2", "8-14-14-3x3-16-12-12-2-0x0-1x1-1x1-0-NCHW-FP16-F"),
    ],
)
def test_the_key_of_a_command_equals_miopens_key(command: str, key: str) -> None:
    """logparse converts a MIOpenDriver command to the key with which MIOpen looks up the convolution in its find-db.

    The find-db is MIOpen's file of solver times.
    """
    # The expected keys were logged by MIOpenDriver of ROCm 7.2.4 (MIOpen 3.5.1) on a virtual GPU, log level 6,
    # 2026-11-22.
    assert key_of(only(f"{SIZES} {command}")) == key


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (
            "conv -n 3 -c 1 -H 12 -W 12 -k 8 -y 2 -x 1 -p 0 -q 0 -u 1 -v 1 -l 2 -j 2 --in_layout NHWC "
            "--fil_layout NHCW --out_layout NHWC -m conv -g 1 -F 1",
            "1-12-12-2x1-8-10-12-3-0x0-1x1-2x2-0-NHWC-NHWC-NHWC-FP32-F",
        ),
        (
            "convbfp16 -n 2 -c 2 -H 12 -W 7 -k 8 -y 1 -x 1 -p 2 -q 0 -u 1 -v 1 -l 1 -j 1 --in_layout NHWC "
            "--out_layout NHWC -m conv -g 2 -F 4",
            "8-16-7-1x1-2-12-7-2-2x0-1x1-1x1-0-NHWC-NHWC-NHWC-BF16-W_g2",
        ),
        (
            "convfp16 -n 3 -c 1 -H 1 -W 1 -k 2 -y 3 -x 3 -p 2 -q 2 -u 1 -v 1 -l 1 -j 2 --fil_layout NHWC "
            "--out_layout NHWC -m conv -g 1 -F 1",
            "1-1-1-3x3-2-3-1-3-2x2-1x1-1x2-0-NHWC-NHWC-NHWC-FP16-F",
        ),
        (
            "conv -n 3 -c 8 --in_d 2 -H 1 -W 3 -k 1 --fil_d 2 -y 3 -x 1 --pad_d 0 -p 1 -q 1 --conv_stride_d 3 -u 1 "
            "-v 1 --dilation_d 1 -l 1 -j 1 --spatial_dim 3 --in_layout NDHWC --fil_layout NDHCW --out_layout NDCHW "
            "-m trans -g 1 -F 1",
            "8-2-1-3-2x3x1-1-5-1-1-3-0x1x1-3x1x1-1x1x1-0-NDHWC-NDHWC-NDHWC-FP32-B",
        ),
        (
            "convfp16 -n 3 -c 1 -H 1 -W 3 -k 8 -y 2 -x 3 -p 0 -q 2 -u 1 -v 3 -l 1 -j 1 --out_layout NHWC -m conv -g 1 "
            "-F 4",
            "8-1-2-2x3-1-1-3-3-0x2-1x3-1x1-0-NHWC-NHWC-NHWC-FP16-W",
        ),
        (
            "convbfp16 -n 1 -c 8 -H 8 -W 8 -k 1 -y 2 -x 1 -p 2 -q 1 -u 3 -v 3 -l 1 -j 2 --in_layout NHWC "
            "--fil_layout NHWC -m conv -g 1 -F 1",
            "8-8-8-2x1-1-4-4-1-2x1-3x3-1x2-0-NHWC-NHWC-NHWC-BF16-F",
        ),
        (
            "convfp16 -n 3 -c 1 -H 5 -W 8 -k 1 -y 1 -x 2 -p 1 -q 1 -u 2 -v 1 -l 1 -j 1 --in_layout NHWC "
            "--fil_layout NHWC -m conv -g 1 -F 1",
            "1-5-8-1x2-1-4-9-3-1x1-2x1-1x1-0-NCHW-FP16-F",
        ),
        (
            "convbfp16 -n 3 -c 2 --in_d 5 -H 3 -W 3 -k 2 --fil_d 1 -y 1 -x 1 --pad_d 2 -p 0 -q 2 --conv_stride_d 3 "
            "-u 2 -v 2 --dilation_d 1 -l 1 -j 1 --spatial_dim 3 --in_layout NDHWC --fil_layout NDHCW "
            "--out_layout NDHWC -m conv -g 2 -F 4",
            "2-3-2-4-1x1x1-2-5-3-3-3-2x0x2-3x2x2-1x1x1-0-NDHWC-NDHWC-NDHWC-BF16-W_g2",
        ),
        (
            "convfp16 -n 2 -c 4 -H 5 -W 5 -k 8 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 --in_layout NHWC -m conv -g 1 "
            "-F 1",
            "4-5-5-3x3-8-5-5-2-1x1-1x1-1x1-0-NHWC-NCHW-NCHW-FP16-F",
        ),
    ],
)
def test_other_tensors_decide_an_ambiguous_layout(command: str, key: str) -> None:
    """If a tensor fits several memory layouts because some of its sizes are 1, the other tensors decide."""
    # The commands and keys come from MIOpen 3.5.1 (tests/conformance/test_miopen_keys.py). In the first four commands
    # all tensors are NHWC. In the last one they have no layout in common.
    assert key_of(only(f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver {command}")) == key


def test_a_logged_transposed_command_prints_the_output_channels_of_one_group() -> None:
    logged = LOGGED.replace("-m conv", "-m trans")
    assert key_of(only(logged)) == "16-12-12-3x3-8-14-14-2-0x0-1x1-1x1-0-NCHW-FP16-B_g4"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("-Z 1", "packed channels"),
        ("-L 4", "packed channels"),
        ("-Z 1 -L 4", "packed channels"),
        ("--out_layout NCHWc", "packed channels"),
        ("-z same", "padding mode same"),
    ],
)
def test_vectors_of_channels_and_padding_modes_are_rejected(flags: str, why: str) -> None:
    (record,) = driver.read(f"{SIZES} {flags} -F 1").records
    assert isinstance(record, Reject)
    assert why in record.reason


def test_letters_of_iree_turbine() -> None:
    """The letter F, by which iree-turbine names the axis of filters in a memory layout, is understood.

    FHWC for the weights and NHWF for the output mean NHWC.
    """
    sizes = "convbfp16 -n 16 -c 32 -H 192 -W 128 -k 40 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"
    own = only(f"{sizes} --in_layout NHWC --fil_layout FHWC --out_layout NHWF")
    assert own == only(f"{sizes} --in_layout NHWC --fil_layout NHWC --out_layout NHWC")
    assert only(f"{sizes} --fil_layout FCHW --out_layout NFHW") == only(sizes)
    assert only(f"{sizes} --spatial_dim 3 --fil_layout FDHWC").weights_layout == "NDHWC"
