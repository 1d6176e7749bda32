"""aiter's own log lines in a server's output: which tuned GEMM tables were read, and which shapes they hold or lack.

::

    [aiter] merge tuned file under model_configs/ and configs/ /srv/bf16_tuned_gemm.csv:/srv/other.csv
    [aiter] shape is M:512, N:4096, K:4096 dtype='torch.bfloat16' otype='torch.bfloat16' bias=False, scaleAB=False,
        bpreshuffle=False, not found tuned config in /tmp/aiter_configs/bf16_tuned_gemm.csv, will use default config!
        using torch solution:0                                                     (one line)
    (Worker_TP4_EP4 pid=892) [aiter] shape is M:8192, N:1024, K:3072, not found tuned config in …, will use default …!
    shape is M:16, N:9216, K:3072, found padded_M: 16, N:9216, K:3072 is tuned on cu_num = 256 in …, kernel name is …!
    [aiter] using torch solution:0 for M=512 N=4096 K=4096 dtype='torch.bfloat16' bias=False, scaleAB=False
    [aiter] using hipblaslt solution:192883 for m=64 n=256 k=5120 dtype=torch.bfloat16 bias=False, scaleAB=False
    [aiter] [fused_moe] using 2stage default for ('gfx950', 256, 512, 6144, 512, 128, 4, …)

Lines "using … solution" depend on aiter's version:

* 0.1.5 and 0.1.6 print only the form with small letters (``m=64``), once per bf16 shape.  This line is read as a call.
* 0.1.7 to 0.1.11 print the form with capitals (``M=512``) behind a miss.  This line becomes a message of function
  ``default``, because 0.1.7 prints the type and the bias only there.

Misses are always printed, hits only with ``AITER_LOG_TUNED_CONFIG=1``.  A process looks up each shape once and
remembers the result (up to 4,096 shapes).  So **a line states that the shape ran, but not how often**: the call has no
count.  The engine's prefix names the process.  If the line has no type, the table's name gives the type, except that it
does not tell which 8-bit float is meant.  The line itself is also kept as a message (function ``tuned`` or
``untuned``), because it holds the key of the table and the padded M whose row serves the call.  A line about fused MoE
is a message, because fused MoE is not one product.
Source: ROCm/aiter aiter/tuned_gemm.py, aiter/ops/gemm_op_a8w8.py, gemm_op_a4w4.py, batched_gemm_op_a8w8.py,
aiter/fused_moe.py, aiter/jit/core.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from logparse.groups import in_groups
from logparse.libraries.aiter import tables
from logparse.libraries.kinds.format import FOREIGN, Emission, LineFormat, Outcome
from logparse.libraries.kinds.line_prefixes import WORKER
from logparse.libraries.kinds.patterns import regex
from logparse.model import Call, Fact, Message, Record, Reject, Solution, SolutionName
from logparse.quoting import Shell, fill_template, shell_comment, shell_word

CATEGORY = tables.CATEGORY
TUNED, UNTUNED, DEFAULT, FUSED_MOE = "tuned", "untuned", "default", "fused_moe"
"""Names of the events that a line of aiter's log can report, as they are stored in a message's field ``function``.

* ``tuned``: aiter looked up a shape in a table of tuned kernels and found a row.
* ``untuned``: it looked up a shape and found no row.
* ``default``: the line names the kernel that ran because there was no row.
* ``fused_moe``: the line is about fused MoE.
"""

_PREFIX = rf"(?:{WORKER} )?(?:\[\d{{4}}-\d\d-\d\d[^\]\n]*\] )?"
_OWN = r"\[aiter\] (?:\[pid=(?P<own>\d+) [^\]]*\] )?"
_SHAPE = r"shape (?:is )?(?:B:\d+, ?)?M:\d"
_LINE = regex(rf"\s*{_PREFIX}(?:{_OWN})?(?P<body>.*)\Z")
_LOOKUP = regex(
    r"shape (?:is )?(?P<fields>(?:B:\d+, ?)?M:\d.*?),? (?:"
    r"not found tuned config in (?P<missed>.*?)(?:, will use default.*?)?"
    r"|listed in (?P<listed>.*?)"
    r"|(?:found padded_M: ?(?P<padded>\d+), N:\d+, K:\d+ )?is tuned(?: on cu_num = (?P<cu_count>\d+))?"
    r",? in (?P<file>.*?)"
    r"(?: ?[,!] ?libtype is (?P<library>\w+))?(?: ?[,!] ?kernel ?[nN]ame is (?P<kernel>\S*?)(?: \(kernelId \S+\))?)?"
    r"(?:, splitK is (?P<split>\S+?))?"
    r")!?,?(?: using (?P<used>\w+) solution:(?P<index>-?\d+|None))?!?\s*\Z"
)
_USING = regex(
    r"using (?P<used>\w+) solution:(?P<index>-?\d+|None)(?:, .*?)? for (?P<fields>[mM]=\d+ [nN]=\d+ [kK]=\d+\b.*)\Z"
)
_FIELD = regex(r"(\w+)[:=] ?'?([\w.]+)'?")
_MERGED = regex(r"merge tuned file under .*?(?: and configs/)? (?P<files>\S+)\s*\Z")
_NAMES = {"otype": "outdtype", "m": "M", "n": "N", "k": "K"}
_BYTES_OF_MESSAGE = 2000


def read(text: str) -> Outcome:
    """Read one line of aiter's log.

    | the line | the result |
    |---|---|
    | looks for a matrix product in a table | a call of this product, and a message |
    | lists aiter's tables | a fact about the job |
    | anything else | a message |
    """
    line = _LINE.match(text)
    body = line["body"] if line else text
    if re.match(_SHAPE, body):
        return _lookup(body, text)
    if not line or "[aiter] " not in text[: line.start("body")]:
        return FOREIGN
    merged = _MERGED.match(body)
    if merged:
        return Outcome("fact", [Fact("aiter_tables", merged["files"])])
    using = _USING.match(body)
    if using and using["fields"].startswith("m="):
        call = _call(using["fields"], "", _named(using["used"], using["index"]))
        return Outcome("reject" if isinstance(call, Reject) else "call", [call])
    function = DEFAULT if using else FUSED_MOE if body.startswith("[fused_moe] ") else ""
    return Outcome("message", [Message(category=CATEGORY, function=function, text=body[:_BYTES_OF_MESSAGE])])


def process(text: str) -> int | None:
    """Return the process number in the prefix of a log line, or None if the line has none."""
    line = _LINE.match(text)
    number = (line["pid"] or line["own"]) if line else None
    return int(number) if number and len(number) < 19 else None


def _lookup(body: str, text: str) -> Outcome:
    found = _LOOKUP.match(body)
    if found is None:
        return Outcome(
            "reject", [Reject("the line of aiter about the lookup of a shape is cut off or has an unknown form")]
        )
    hit = found["file"] is not None
    outcome = _call(found["fields"], found["missed"] or found["listed"] or found["file"] or "", _solution(found))
    if isinstance(outcome, Reject):
        return Outcome("reject", [outcome])
    message = Message(category=CATEGORY, function=TUNED if hit else UNTUNED, text=body[:_BYTES_OF_MESSAGE])
    records: list[Record] = [outcome, message]
    if found["cu_count"]:
        records.append(Fact("cu_count", found["cu_count"]))
    if outcome.solution is not None and found["kernel"]:
        records.append(SolutionName(solution=outcome.solution, kernel_name=found["kernel"]))
    return Outcome("call", records)


def _call(fields: str, table: str, solution: Solution | None) -> Call | Reject:
    try:
        problem = tables.problem_of_row(_values(fields), PurePosixPath(table).name)
    except (KeyError, ValueError) as error:
        return Reject(f"aiter: {error}")
    return Call(problem=problem, category=CATEGORY, count=None, solution=solution)


class LookUp(NamedTuple):
    """A log line about the search for a call in a table of tuned kernels.

    * ``values``: the sizes and types of the call, by column name.
    * ``found``: True if the table has a row for the call.
    * ``kernel``: the kernel that the line names, or an empty text.
    """

    # This is the file name of the table.
    table: str
    values: dict[str, str]
    found: bool
    kernel: str


def looked_up(text: str) -> LookUp | None:
    """Parse a log line in which aiter reports that it searched a table of tuned kernels for a call.

    Returns None if the text is not such a line.
    """
    found = _LOOKUP.match(text)
    if found is None:
        return None
    table = found["missed"] or found["listed"] or found["file"] or ""
    return LookUp(PurePosixPath(table).name, _values(found["fields"]), bool(found["file"]), found["kernel"] or "")


def _values(fields: str) -> dict[str, str]:
    return {_NAMES.get(name, name): value for name, value in _FIELD.findall(fields)}


def _solution(found: re.Match[str]) -> Solution | None:
    """Return the kernel that aiter chose, according to a log line. None if the line names no kernel and no library."""
    if found["used"]:
        return _named(found["used"], found["index"])
    # If aiter's table has a row for the call, the line states the kernel by name but not by number.
    if found["kernel"]:
        split = f",splitK={found['split']}" if found["split"] not in (None, "0", "None") else ""
        return Solution(found["library"] or "kernel", found["kernel"] + split, raw=found["kernel"])
    return Solution(found["library"], "?") if found["library"] else None


def _named(library: str, index: str) -> Solution:
    return Solution(library, "heuristic" if index in ("None", "-1") else index, raw=f"{library} solution:{index}")


# ------------------------------------------------------------------------------------------------ what is to be tuned

_UNTUNED_COLUMNS = ("B", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "q_dtype_w")
_TUNERS = {
    "bf16": "gradlib/gradlib/gemm_tuner.py --input_file",
    "a8w8": "csrc/ck_gemm_a8w8/gemm_a8w8_tune.py -i",
    "a8w8_bpreshuffle": "csrc/ck_gemm_a8w8_bpreshuffle/gemm_a8w8_bpreshuffle_tune.py -i",
    "a8w8_blockscale": "csrc/ck_gemm_a8w8_blockscale/gemm_a8w8_blockscale_tune.py -i",
    "a8w8_blockscale_bpreshuffle": "csrc/ck_gemm_a8w8_blockscale/gemm_a8w8_blockscale_tune.py --preshuffle -i",
    "a4w4_blockscale": "csrc/ck_gemm_a4w4_blockscale/gemm_a4w4_blockscale_tune.py -i",
}
"""The program in a clone of aiter that tunes each kind of table, with its option for the list of shapes to tune.

Source: the READMEs beside the programs.
"""


def _use(table: str) -> Shell:
    """Return shell comments that show how to tune the products that are missing in an aiter table.

    The comments contain the command of aiter's own tuning program.
    """
    tuner = _TUNERS.get(table.partition("_tuned_gemm")[0])
    if tuner is None:
        return Shell("# to tune these products: run the tuner in <aiter>/csrc/ that takes such a file\n")
    output = "--tuned_file" if tuner.endswith("--input_file") else "-o"
    words = {"tuner": shell_comment(tuner), "output": shell_word(output), "table": shell_word(table)}
    return fill_template(_USE, words)


_USE = Shell(
    "# to tune these products, in a clone of aiter:\n#   python3 <aiter>/@tuner@ {path} @output@ {folder}/@table@\n"
)


class Untuned(NamedTuple):
    """CSV files with the shapes that aiter has not tuned yet, for its tuning programs, and notes on shapes left out."""

    files: list[Emission]
    notes: list[str]


def write_untuned_shapes(lines: Iterable[str]) -> Untuned:
    """Write the shapes for which aiter found no tuned kernel to CSV files, so that aiter can tune them.

    ``lines`` are log lines: the texts of messages of functions ``untuned``, ``default`` and ``fused_moe``.

    * Each shape is written once, in the order of the lines.
    * There is one CSV file per table.  There are several if the shapes have different columns and no value is known for
      the missing ones.
    * A bf16 shape is left out if no line states its type, because aiter could not read such a row.
    """
    texts = list(lines)
    defaults = _defaults(texts)
    missing: dict[str, dict[tuple[tuple[str, str], ...], None]] = {}
    left_out: dict[str, dict[str, None]] = {}
    for found in filter(None, map(_LOOKUP.match, texts)):
        missed = PurePosixPath(found["missed"] or "").name
        kind, values = _kind(missed), _values(found["fields"])
        rows = [values] if "dtype" in values or kind != "bf16" else defaults.get(_size(values), [])
        if kind is None or not rows:
            why = (
                "logparse knows no tuner for this table of aiter"
                if kind is None
                else "no line of the log states the operand types of this shape"
            )
            if found["missed"]:
                left_out.setdefault(f"{missed}: {why}", {})[found["fields"]] = None
            continue
        for row in rows:
            cells = tuple((name, row[name]) for name in _UNTUNED_COLUMNS if name in row)
            missing.setdefault(kind, {})[cells] = None
    made = [file for name, cells in missing.items() for file in _untuned_files(name, [dict(x) for x in cells])]
    notes = [f"aiter: {len(x):,} shape{'s' * (len(x) > 1)} not written: {why}" for why, x in left_out.items()]
    return Untuned(made + _untuned_moe(texts), notes)


_TABLE = regex(r"(\w+?)(_tuned)?_gemm\.csv")


def _kind(table: str) -> str | None:
    """Return the data type in the file name of an aiter table, for example ``bf16`` from ``bf16_tuned_gemm.csv``.

    Returns None if no tuning program for such tables is known.
    """
    found = _TABLE.fullmatch(table)
    return found[1] if found and (found[2] or found[1] in _TUNERS) else None


def _untuned_files(kind: str, rows: Sequence[Mapping[str, str]]) -> Iterator[Emission]:
    """Yield CSV files with the matrix products that aiter has not tuned yet, one file for each set of columns."""
    every = {name for row in rows for name in row}
    # Versions of aiter print different columns. A missing column is filled if its value is certain for that version.
    whole = [_completed(kind, row, every) for row in rows]
    groups = in_groups(whole, lambda row: ",".join(name for name in _UNTUNED_COLUMNS if name in row))
    table = f"{kind}_tuned_gemm.csv"
    widest = sorted(groups.items(), key=lambda group: -group[0].count(","))
    for number, (columns, members) in enumerate(widest, start=1):
        lines = dict.fromkeys(",".join(row[name] for name in columns.split(",")) for row in members)
        name = table.replace("_tuned_gemm", f"_untuned_gemm{f'-{number}' if number > 1 else ''}")
        yield Emission(name, "".join(f"{line}\n" for line in [columns, *lines]).encode(), _use(table))


def _completed(kind: str, row: Mapping[str, str], columns: Collection[str]) -> dict[str, str]:
    """Add the columns that an older version of aiter does not print in its log, for a product of type bf16."""
    if kind != "bf16" or not {"bias", "dtype"} <= row.keys():
        return dict(row)
    # An older version supports neither scaling nor shuffle. The result gets the type of the inputs, because aiter's
    # tuning program does the same if no type is given.
    older = {"outdtype": row["dtype"], "scaleAB": "False", "bpreshuffle": "False"}
    return {**{name: text for name, text in older.items() if name in columns}, **row}


def _defaults(texts: Iterable[str]) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Collect the bf16 products for which aiter's log says that it used its default kernel, by their size (M, N, K)."""
    out: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for found in filter(None, map(_USING.match, texts)):
        values = _values(found["fields"])
        # The line does not state the type of the result. The type of the inputs is taken, because aiter's tuning
        # program also does so if no type is given.
        row = {"outdtype": values.get("dtype", ""), **values}
        if {"bias", "dtype", "scaleAB"} <= row.keys():
            out.setdefault(_size(row), []).append(row)
    return out


def _size(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(values.get(name, "") for name in "MNK")


_MOE_DEFAULT = regex(r"\[fused_moe\] using [12]stage(?: xbf16)? default for \((?P<key>[^()]*)\)")
_MOE_KEY = regex(
    r"(?:'?gfx\w+'?, )?(?:\d+, )?(?P<sizes>(?:\d+, ){5})[<'\"]*(?P<act>ActivationType\.\w+)(?:: \d+>)?['\"]?, "
    r"'(?P<dtype>[\w.]+)', '(?P<a>[\w.]+)', '(?P<w>[\w.]+)', '(?P<quant>QuantType\.\w+)', (?P<g1u1>True|False|0|1), "
    r"(?P<weight>True|False|0|1)"
)
"""Pattern of the shape that a log line about fused MoE states: device, sizes and types.

The device consists of the number of compute units (since aiter 0.1.5) and the arch (since 0.1.10).  The activation is
printed as a plain name or in the form that pybind11 gives an enumeration.
"""
_BITS = {"True": "1", "False": "0"}
_UNTUNED_MOE = (
    "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"
)


def _untuned_moe(texts: Iterable[str]) -> list[Emission]:
    """Write the fused-MoE shapes that ran with default kernels to a CSV file, so that aiter can tune them.

    Returns a list with this file, or an empty list if there is no such shape.
    """
    rows: dict[str, None] = {}
    for found in filter(None, map(_MOE_DEFAULT.match, texts)):
        key = _MOE_KEY.fullmatch(found["key"])
        if key is not None:
            weights = "torch.int4" if key["w"] == "torch.uint32" else key["w"]
            bits = [_BITS.get(x, x) for x in (key["g1u1"], key["weight"])]
            cells = [*key["sizes"].split(", ")[:5], key["act"], key["dtype"], key["a"], weights, key["quant"], *bits]
            rows[",".join(cells)] = None
    # The file has the form that aiter itself writes if ``AITER_ONLINE_TUNE=1`` is set.
    data = "".join(f"{row}\n" for row in [_UNTUNED_MOE, *rows]).encode()
    return [Emission("untuned_fmoe.csv", data, _USE_MOE)] if rows else []


_USE_MOE = Shell(
    "# to tune these products, in a clone of aiter (then set AITER_CONFIG_FMOE to the file that this writes):\n"
    "#   python3 "
    "<aiter>/csrc/ck_gemm_moe_2stages_codegen/gemm_moe_tune.py -i {path} -o {folder}/tuned_fmoe.csv\n"
)


FORMAT = LineFormat(
    name="aiter-log",
    about="aiter's lines in a server's log: shapes with and without a tuned kernel, tables that were read, fused MoE",
    markers=(b"[aiter] ", b", not found tuned config in ", b" is tuned on cu_num = ", b" is tuned, in "),
    start=rf"{_PREFIX}(?:\[aiter\] (?:\[pid=\d+ [^\]\n]*\] )?(?:{_SHAPE})?|{_SHAPE})".encode(),
    read=read,
    process=process,
    seen="aiter 0.1.19; aiter 0.1.7 (only lines about look-ups); aiter 0.1.5 to 0.1.13 (source code only)",
    example="[aiter] shape is M:8192, N:1024, …",
    gives="calls without a count, messages",
)
