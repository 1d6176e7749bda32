"""Read ``MIOpenDriver`` command lines: lines that ``MIOPEN_ENABLE_LOGGING_CMD=1`` prints, and lines that people type.

::

    MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 256 -y 3 -x 3 …
    MIOpen(HIP)   0.088: Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n 32 … -m conv -g 1 -F 1 -t 1
    miopenFindConvolutionBackwardWeightsAlgorithm: ./bin/MIOpenDriver conv -n 32 … -g 1 -t 1       (an old MIOpen)
    ./bin/MIOpenDriver conv --batchsize 256 --in_channels 128 --in_h 28 --in_w 28 … -F 2 --in_layout NHWC
    convbfp16 -n 16 -c 96 -H 48 -W 32 -k 96 -y 3 -x 1 … -F 1 --in_layout NHWC      (lists of iree-org/iree-turbine)

Source of flags and defaults: ROCm/MIOpen ``driver/conv_driver.hpp``, ``AddCmdLineArgs``.  Source of the logged form:
``src/driver_arguments.cpp``.

Values describe the forward convolution in every direction.  ``-F`` names the directions: 1 forward, 2 input gradient, 4
weight gradient, sums of the three numbers, or 0 for all.  Each direction gives one ``Call``.

* ``LogCmdConvolution`` lines are executions, category ``miopen_cmd``.  Each line is one call.
* ``LogCmdFindConvolution`` lines are *queries*, category ``miopen_find``.  PyTorch makes one query per shape and
  process.  Because of the category, queries are not added to executions.
* An old MIOpen printed no ``-F``.  The name of the API function before the command states the direction, and
  ``miopenFind…`` is a query.
* A line without ``Command [...]`` or such a name was typed, or the driver printed its own command.  The line is marked
  ``by_tool``.  Such lines are not counted if the run has calls of a job.  Otherwise they are the workload that the user
  asks about (view ``workload``).

A command has no output sizes.  They are computed as MIOpen computes them: ``max(1, (in + 2·pad − (dilation·(filter − 1)
+ 1)) // stride + 1)``, and by the inverse formula for a transposed convolution.

A flag that a typed command lacks has the driver's default.  A logged command always prints all sizes.  A logged command
that lacks a size was cut and is rejected.  ``conv`` is read as FP32.  A log also prints ``conv`` for FP64, FP8 and
mixed types, which the line cannot express.

These commands are rejected:

* A command has tensors with vectors of channels (``-Z``).
* A command has padding modes (``-z``).
* A layout has another number of dimensions than the command, because the driver throws an exception on it.

A command without the driver's name is read as iree-turbine's driver reads it.  The layouts give the dimensions, and
without ``-F`` it runs forward (``kernel/boo/op_exports/conv.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import LineFormat, Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.kinds.typed_command import end_of_command
from logparse.model import CONV_FIELDS, Call, ConvProblem, Direction, Message, Problem, Reject
from logparse.quoting import Shell, shell_line

# Columns: long name, short name, default, field of the problem.
_SIZES = (
    ("batchsize", "n", 100, "n"),
    ("in_channels", "c", 3, "c"),
    *((f"in_{x}", short, 32, x) for x, short in zip("dhw", "!HW", strict=True)),
    ("out_channels", "k", 32, "k"),
    *((f"fil_{x}", short, 3, f"filter_{x}") for x, short in zip("dhw", "@yx", strict=True)),
    *((f"pad_{x}", short, 0, f"pad_{x}") for x, short in zip("dhw", "$pq", strict=True)),
    *((f"conv_stride_{x}", short, 1, f"stride_{x}") for x, short in zip("dhw", "#uv", strict=True)),
    *((f"dilation_{x}", short, 1, f"dilation_{x}") for x, short in zip("dhw", "^lj", strict=True)),
)
# Columns: long name, short name, default.  A flag takes a number if its default is a number.
_FLAGS: tuple[tuple[str, str, int | str], ...] = (
    *(size[:3] for size in _SIZES),
    *(("forw", "F", 0), ("group_count", "g", 1), ("spatial_dim", "_", 2), ("mode", "m", "conv")),
    *((f"trans_output_pad_{x}", short, 0) for x, short in zip("dhw", "%YX", strict=True)),
    *(("in_cast_type", "U", "-1"), ("out_cast_type", "T", "-1"), ("wei_cast_type", "R", "-1")),
    *((name, short, "") for name, short in (
        ("in_layout", "I"), ("fil_layout", "f"), ("out_layout", "O"), ("pad_mode", "z"), ("pad_val", "r"),
        ("iter", "i"), ("verify", "V"), ("verification_cache", "C"), ("time", "t"), ("wall", "w"), ("search", "s"),
        ("printconv", "P"), ("dump_output", "o"), ("in_data", "d"), ("weights", "e"), ("bias", "b"), ("in_bias", "a"),
        ("tensor_vect", "Z"), ("vector_length", "L"), ("dout_data", "D"), ("solution", "S"), ("gpualloc", "G"),
    )),
)  # fmt: skip
_NAME = {word: name for name, short, _ in _FLAGS for word in (f"--{name}", f"-{name}", f"-{short}")}
_DEFAULTS = {name: default for name, _, default in _FLAGS}
TYPE_OF_OP = {
    "conv": "FP32",
    "convfp16": "FP16",
    "convbfp16": "BF16",
    "convint8": "INT8",
    "convfp8": "FP8",
    "convbfp8": "BF8",
}
_OP_OF_TYPE = {type_: op for op, type_ in TYPE_OF_OP.items()}

PREFIX = (
    r"(?:(?P<host>\S+) )?(?:(?P<tid>\d+) )?MIOpen(?:\((?P<backend>HIP|OpenCL)\))?(?:\s*(?P<ms>\d+\.\d{3}))?"
    r"(?: \((?P<clock>[^)]+)\))?: "
)
"""A regular expression for the prefix of each line in MIOpen's log.

Source: ROCm/MIOpen ``src/logger.cpp``, ``LoggingPrefix``.
"""
_COMMAND = regex(
    rf"^\s*(?:{PREFIX}Command \[(?P<function>\w*)\] ?|(?P<api>miopen[A-Z]\w*): )?"
    r"(?:\+ )?(?:\w+=\S* +)*(?:time +)?(?:[^\s'\"#]*[/\\])?MIOpenDriver(?:\.exe)?:? +(?P<op>\w+)(?P<flags>.*)$",
    re.ASCII,
)
_BARE = regex(r"^\s*(?P<op>conv(?:b?fp16)?)(?P<flags> -n \d.*)$", re.ASCII)
"""A regular expression for a MIOpenDriver command without the program's name.  Lists of commands have such lines."""
_START = (
    rb"\{\"command\":\"MIOpenDriver "
    rb"|(?:(?:\S+ )?(?:\d+ )?MIOpen(?:\((?:HIP|OpenCL)\))?(?:\s*\d+\.\d{3})?(?: \([^)]+\))?: "
    rb"Command \[\w*\] ?|miopen[A-Z]\w*: )?"
    rb"(?:\+ )?(?:\b\w+=\S* +)*(?:\btime +)?(?:[^\s'\"]*[/\\])?MIOpenDriver(?:\.exe)?:? +(?!Info2 \[)\w+"
    rb"|^\s*conv(?:b?fp16)? -n \d"
)
_TOKEN = regex(r"\S+")
_INTEGER = regex(r"-?\d{1,9}\Z", re.ASCII)
_PASS = regex(r"Forward|BackwardData|BackwardWeights")
"""A regular expression for the part of an API function's name that states the direction of the convolution."""
_DIRECTION_OF_PASS: Mapping[str, Direction] = {"Forward": "F", "BackwardData": "B", "BackwardWeights": "W"}
DIRECTION_OF_BIT: dict[int, Direction] = {1: "F", 2: "B", 4: "W"}
_BIT_OF_DIRECTION = {direction: bit for bit, direction in DIRECTION_OF_BIT.items()}


@dataclass(frozen=True)
class Command:
    """A command line of MIOpenDriver (MIOpen's benchmark program), with the convolutions that it runs.

    There is one convolution for each direction. ``function`` is the MIOpen function that logged the command, or None if
    a person typed it.
    """

    op: str
    problems: tuple[ConvProblem, ...]
    function: str | None

    def problem(self, direction: str | None) -> ConvProblem | None:
        """Return the convolution that the command runs in this direction, or None if it runs none.

        Without a direction (None), the result is the command's only convolution, or None if it has several.
        """
        if direction is None:
            return self.problems[0] if len(self.problems) == 1 else None
        return next((problem for problem in self.problems if problem.direction == direction), None)


class CommandError(ValueError):
    """Raised if a MIOpenDriver command in a log cannot be read, with the reason and the damaged part of the line."""

    def __init__(self, reason: str, offset: int = 0, length: int = 0) -> None:
        super().__init__(reason)
        self.reject = Reject(reason, offset, length)


# ---------------------------------------------------------------------------------------------------- reading


def read_command(text: str) -> Command | None:
    """Read the MIOpenDriver command in a line.  Returns None if the line contains no such command.

    Raises CommandError if the command is damaged.
    """
    text = plain_command(text)
    match = _COMMAND.match(text) or _BARE.match(text)
    if match is None:
        return None
    found = match.groupdict()
    op, api, bare = found["op"], found.get("api"), "function" not in found
    function = api or found.get("function")
    if op not in TYPE_OF_OP:
        return Command(op, (), function)
    logged = function is not None
    flags = _read_flags(text, match.start("flags"), logged)
    axes = {len(str(flags[name])) for name in ("in_layout", "fil_layout", "out_layout") if name in flags}
    three = max(axes) == 5 if bare and axes else flags.get("spatial_dim") == 3
    missing = [name for name, *_ in _sizes_of(three) if name not in flags]
    if logged and missing:
        raise CommandError(f"cut command: a logged command states all sizes, but this one lacks {missing[0]}")
    problem = _problem(op, {**_DEFAULTS, **flags}, three, logged)
    if api:
        flags.setdefault("forw", _bit_of_api(api))
    directions = _directions(int(flags.get("forw", 1 if bare else 0)))
    return Command(op, tuple(replace(problem, direction=x) for x in directions), function)


JSON_COMMAND = '{"command":"MIOpenDriver'
"""Beginning of the JSON text in which MIOpenDriver prints its command if ``MIOPEN_PERFORMANCE_LOGS`` is set."""


def plain_command(text: str) -> str:
    """Return the command in a log line of the form ``{"command":"MIOpenDriver …"}``, or else the unchanged line."""
    if not text.startswith(JSON_COMMAND):
        return text
    try:
        values = json.loads(text)
    except ValueError:
        return text
    command = values.get("command")
    return command if len(values) == 1 and isinstance(command, str) else text


@lru_cache(maxsize=8_192)
def readable_command(text: str) -> Command | None:
    """Read the MIOpenDriver command in a log line.  Returns None if the line has no such command, or a damaged one."""
    try:
        return read_command(text)
    except CommandError:
        return None


def _sizes_of(three: bool) -> list[tuple[str, str, int, str]]:
    """Return the flags of MIOpenDriver that state a convolution's sizes, such as ``-n``, in two or three dimensions.

    If ``three`` is False (2D), the flags for the depth are left out.
    """
    return [size for size in _SIZES if three or not size[0].endswith("_d")]


def _read_flags(text: str, start: int, logged: bool) -> dict[str, int | str]:
    flags: dict[str, int | str] = {}
    tokens = iter(_TOKEN.finditer(text, start, len(text) if logged else end_of_command(text, start)))
    for token in tokens:
        word = token[0]
        name = _NAME.get(word)
        if name is None:
            raise CommandError(f"{word[:40]} is not a flag of MIOpenDriver", token.start(), len(word))
        value = next(tokens, None)
        if value is None:
            raise CommandError(f"{word} has no value", token.start(), len(word))
        number = not isinstance(_DEFAULTS[name], str)
        if number and not _INTEGER.match(value[0]):
            raise CommandError(f"{word} is not a number: {value[0][:40]}", value.start(), len(value[0]))
        flags[name] = int(value[0]) if number else value[0]
    return flags


def _directions(given: int) -> tuple[Direction, ...]:
    if not 0 <= given <= 7:
        raise CommandError(f"-F {given}: must be 1, 2, 4, a sum of them, or 0")
    return tuple(direction for bit, direction in DIRECTION_OF_BIT.items() if given == 0 or given & bit)


def _bit_of_api(api: str) -> int:
    """Return the value of ``-F`` for the direction that the name of an API function states."""
    match = _PASS.search(api)
    if match is None:
        raise CommandError(f"{api} states no direction, and the command has no -F")
    return _BIT_OF_DIRECTION[_DIRECTION_OF_PASS[match[0]]]


def _problem(op: str, flags: Mapping[str, Any], three: bool, logged: bool) -> ConvProblem:
    """Return the convolution that the flags of a MIOpenDriver command describe.

    The flags describe the forward convolution, even if the command runs a gradient.  ``logged`` is True if MIOpen
    logged the command, and False if a person typed it.
    """
    axes, plain = ("dhw", "NCDHW") if three else ("hw", "NCHW")
    transposed, groups, type_ = flags["mode"] == "trans", flags["group_count"] or 1, TYPE_OF_OP[op]
    sizes: dict[str, Any] = {field: flags[name] for name, _, _, field in _sizes_of(three)}
    # MIOpen prints the second size of the weights, which is the number of output channels of one group.
    if logged and transposed:
        sizes["k"] *= groups
    for x in axes:
        sizes[f"out_{x}"] = _output(sizes, x, flags[f"trans_output_pad_{x}"] if transposed else None)
    layouts = [str(flags[f"{x}_layout"] or plain) for x in ("in", "fil", "out")]
    vectors = flags["tensor_vect"] not in ("", "0") or flags["vector_length"] not in ("", "1")
    if vectors or any(x.endswith("c") and x[:-1].isupper() for x in layouts):
        raise CommandError(
            "logparse cannot read MIOpenDriver commands for tensors with packed channels (options -Z and -L, "
            "layout NCHWc)"
        )
    if flags["pad_mode"] not in ("", "default"):
        raise CommandError(f"the padding mode {flags['pad_mode']} (-z) cannot be read; state the pads with -p and -q")
    if logged:
        layouts = _one_layout(layouts, _tensors(sizes, axes, groups, transposed), plain)
    else:
        # iree-turbine writes F for the weights' first axis and for the output's channels.
        layouts = [x.replace("F", "C" if "N" in x else "N") for x in map(str.upper, layouts)]
        if other := next((x for x in layouts if len(x) != len(plain)), None):
            hint = "" if three else " (--spatial_dim 3 is missing)"
            raise CommandError(f"the layout {other} does not have {len(axes)} dimensions, so the driver throws{hint}")
        if sizes["c"] % groups or sizes["k"] % groups:
            channels = f"{sizes['c']} input and {sizes['k']} output channels"
            raise CommandError(f"{channels} are not multiples of {groups} groups")
    casts: dict[str, Any] = {
        f"{role}_cast": "none" if flags[f"{flag}_cast_type"] == "-1" else None
        for role, flag in (("in", "in"), ("weights", "wei"), ("out", "out"))
    }
    return ConvProblem(
        direction="F",
        spatial=3 if three else 2,
        **sizes,
        groups=groups,
        in_type=type_,
        weights_type=type_,
        # For INT8 inputs the output may be int8, int32 or float.  The command does not state which.
        out_type=None if type_ == "INT8" else type_,
        in_layout=layouts[0],
        weights_layout=layouts[1],
        out_layout=layouts[2],
        **casts,
        bias=0,  # The driver's -b is a separate operation and no part of the convolution's key.
        mode="transposed" if transposed else "convolution",
    )


def _tensors(sizes: Mapping[str, Any], axes: str, groups: int, transposed: bool) -> list[list[int | None]]:
    """Return the size of each axis of a convolution's input, weights and output.  The axes are in the order NC(D)HW."""
    n, c, k = sizes["n"], sizes["c"], sizes["k"]
    weights = (c, k // groups) if transposed else (k, c // groups)
    return [
        [n, c, *(sizes[x] for x in axes)],
        [*weights, *(sizes[f"filter_{x}"] for x in axes)],
        [n, k, *(sizes[f"out_{x}"] for x in axes)],
    ]


def _one_layout(printed: list[str], tensors: Sequence[Sequence[int | None]], plain: str) -> list[str]:
    """Find the real memory layouts of a convolution's tensors. The layouts in a logged command are ambiguous.

    The result is one layout for all tensors if all of them may have it, otherwise the printed layouts.  MIOpen uses the
    same layouts in the key of the convolution.

    A command prints each tensor's axes sorted by stride, then by size, then by position.  So if an axis has size 1,
    several layouts print the same text.  Example: NHWC with one channel and a width of 1 is printed as NHCW.

    MIOpen looks for a common layout by all strides.  If no layout fits, MIOpen 3.5.1 and later look again, by the
    strides of axes with a size above 1.  Then an image of one channel that is printed as NCHW fits an output in NHWC.
    An older version keeps the two different layouts.  The command does not state the version.  Source: ROCm/MIOpen pull
    request 3864, ``ProblemDescription::HeuristicUpdateLayouts``.
    """
    if len(set(printed)) == 1 and printed[0] in _SUPPORTED:
        return printed
    described = []
    for name, sizes in zip(printed, tensors, strict=True):
        size = {axis: length or 1 for axis, length in zip(plain, sizes, strict=True)}
        if set(name) != set(plain):
            return printed
        described.append((_strides(name, size), size))
    for least in (1, 2):
        for layout in (x for x in _SUPPORTED if len(x) == len(plain)):
            if all(_may_be(layout, strides, size, least) for strides, size in described):
                return [layout] * 3
    return printed


_SUPPORTED = ("NCHW", "NHWC", "CHWN", "NCDHW", "NDHWC")
"""The layouts that MIOpen tries for all tensors of a convolution, in MIOpen's order."""


def _strides(layout: str, size: Mapping[str, int]) -> dict[str, int]:
    """Return the strides of a tensor, one for each axis, if the tensor has this memory layout and no gaps."""
    strides, stride = {}, 1
    for axis in reversed(layout):
        strides[axis] = stride
        stride *= size[axis]
    return strides


def _may_be(layout: str, strides: Mapping[str, int], size: Mapping[str, int], least: int) -> bool:
    """Return True if the strides of a tensor fit a memory layout such as NHWC.

    The strides must not grow from the layout's first axis to its last.  Axes with a size below ``least`` are ignored.
    """
    ordered = [strides[axis] for axis in layout if size[axis] >= least]
    return ordered == sorted(ordered, reverse=True)


def _output(sizes: Mapping[str, int], x: str, output_pad: int | None) -> int | None:
    """Return the size of a convolution's output along one axis, by MIOpen's formula.  None if the stride is below 1.

    Source: ROCm/MIOpen ``src/convolution.cpp``, ``GetForwardOutputDim``.
    """
    size, pad, stride = sizes[x], sizes[f"pad_{x}"], sizes[f"stride_{x}"]
    if stride < 1:
        return None
    span = sizes[f"dilation_{x}"] * (sizes[f"filter_{x}"] - 1) + 1
    if output_pad is not None:
        return max(1, stride * (size - 1) + span - 2 * pad + output_pad)
    return max(1, (size + 2 * pad - span) // stride + 1)


def read(text: str) -> Outcome:
    """Read a log line with a command of MIOpenDriver, MIOpen's benchmark program.

    MIOpen or a person wrote the command.  The result is one call for each direction, or a message if the command runs
    no convolution.
    """
    try:
        command = read_command(text)
    except CommandError as error:
        return Outcome("reject", [error.reject])
    if command is None:
        return Outcome("reject", [Reject("not a MIOpenDriver command")])
    if not command.problems:
        text = plain_command(text)
        at = text.index("MIOpenDriver")
        return Outcome("message", [Message(category="miopen_cmd", function=command.function or "", text=text[at:])])
    category = "miopen_find" if "Find" in (command.function or "") else "miopen_cmd"
    typed = command.function is None
    return Outcome("call", [Call(problem=x, category=category, count=1, by_tool=typed) for x in command.problems])


# ---------------------------------------------------------------------------------------------------- writing


def command(problem: Problem) -> Shell:
    """Return a shell command with which MIOpen's benchmark program (MIOpenDriver) runs a convolution.

    With ``-s 1`` appended, the command tunes the convolution.  Raises EmissionError with the name of the field if a
    field is unknown or the driver cannot express it.
    """
    if not isinstance(problem, ConvProblem):
        raise EmissionError(f"MIOpenDriver cannot run a {problem.kind}")
    if problem.in_type is None:
        raise _unknown(["in_type"])
    op = _OP_OF_TYPE.get(problem.in_type)
    if op is None or any(x not in (None, problem.in_type) for x in (problem.weights_type, problem.out_type)):
        raise EmissionError(f"MIOpenDriver has no command for the types of {problem.text}")
    if problem.direction not in _BIT_OF_DIRECTION:
        raise EmissionError(f"MIOpenDriver has no direction {problem.direction}")
    three = problem.spatial == 3
    # The shell's ``PATH`` has to find the driver, because its folder differs by ROCm version.
    words = ["MIOpenDriver", op]
    for name, short, _, field in _sizes_of(three):
        value = getattr(problem, field)
        if value is None:
            raise _unknown([field])
        words += [f"-{short}" if short.isalpha() else f"--{name}", str(value)]
    words += ["--spatial_dim", "3"] if three else []
    plain = "NCDHW" if three else "NCHW"
    for flag, role in (("--in_layout", "in"), ("--fil_layout", "weights"), ("--out_layout", "out")):
        layout = getattr(problem, f"{role}_layout") or plain
        words += [flag, layout] if layout != plain else []
    if problem.mode == "transposed":
        words += _output_pads(problem)
    mode = "trans" if problem.mode == "transposed" else "conv"
    last = f"-m {mode} -g {problem.groups or 1} -F {_BIT_OF_DIRECTION[problem.direction]} -t 1"
    line = shell_line([*words, *last.split(" ")])
    _check_expressed(problem, line)
    return line


def _check_expressed(problem: ConvProblem, line: str) -> None:
    """Check that a MIOpenDriver command states every field of a convolution, by reading it back.

    Raises EmissionError if a field would differ.
    """
    back = readable_command(line)
    ran = back.problem(problem.direction) if back is not None else None
    other = [x for x in CONV_FIELDS if ran is None or getattr(ran, x) != getattr(problem, x)]
    # For example, an unknown layout would become NCHW, and an unknown number of groups would become 1.
    unknown = [x for x in other if getattr(problem, x) is None]
    if unknown:
        raise _unknown(unknown)
    if other:
        raise EmissionError(f"no flags of MIOpenDriver express these values of {problem.text}: {', '.join(other)}")


def _unknown(fields: Sequence[str]) -> EmissionError:
    return EmissionError(
        f"a MIOpenDriver command needs these values, which are unknown: {', '.join(fields)}. Such values are in a "
        "find-db (MIOpen's list of the fastest solvers) and in a MIOpen log with MIOPEN_ENABLE_LOGGING_CMD=1"
    )


def _output_pads(problem: ConvProblem) -> list[str]:
    sizes = {name: getattr(problem, name) for name in problem.__dataclass_fields__}
    words = []
    for x in "dhw" if problem.spatial == 3 else "hw":
        least = _output(sizes, x, 0)
        out = sizes[f"out_{x}"]
        if out is not None and least is not None and out > least:
            words += [f"--trans_output_pad_{x}", str(out - least)]
    return words


FORMAT = LineFormat(
    name="miopen-driver",
    about="MIOpenDriver commands, logged by MIOpen (MIOPEN_ENABLE_LOGGING_CMD=1) or typed by a user",
    markers=(b"MIOpenDriver", b"conv -n ", b"convfp16 -n ", b"convbfp16 -n "),
    start=_START,
    read=read,
    seen="ROCm 3.9 to 7.2, Windows",
    example="MIOpen(HIP): Command [LogCmdConvolution] …",
    gives="calls, queries",
    how="set `MIOPEN_ENABLE_LOGGING_CMD=1` for a job, or write `MIOpenDriver` commands into a file",
)
