"""Rules for aiter's tables of tuned kernels: which rows aiter reads, finds and can run.

aiter reads a table with ``pandas.read_csv`` and looks calls up in a dictionary.  So a cell's *type* decides whether the
row is found, and pandas gives one type to a whole column.  If one cell of a column is no number, pandas
reads the whole column as text, and then no call matches any row.  If two different rows have the same key, most readers
raise (see ``Lookup.keeps_first``).

The key contains the device and the CU count, but not the library's build.  For the bf16 table logparse computes the
key of a call (``tables.key``).  For the other tables the key comes from a server's log.
Source: ``lookup``; ROCm/aiter ``csrc/py_itfs_cu/gemm_common.cu`` (``getPaddedM``).
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from logparse.errors import InputError
from logparse.libraries.aiter import log as aiter_log
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.aiter.lookup import BF16, PASSED_OVER, VARIABLES, Lookup, stem, table_of
from logparse.libraries.hipblaslt import tuning_rules as hipblaslt_tuning
from logparse.libraries.kinds.format import Emission, Head, cells_of
from logparse.libraries.kinds.override_format import Conversion, Merging, OverrideFormat, Report, bytes_of, records_of
from logparse.libraries.kinds.reading import Note, Offer, Reading, Rule, Table, text_of
from logparse.model import GemmProblem, Solution
from logparse.quoting import Shell, fill_template, shell_word
from logparse.target import Facts, arch

Cell: TypeAlias = bool | int | float | str | None

KERNELS = "aiter-kernels"
"""Name of the file format for all aiter tables of tuned kernels except the bf16 table."""
_INT = re.compile(r"\s*[+-]?\d{1,18}\s*", re.ASCII)
_FLOAT = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?)\s*", re.ASCII | re.IGNORECASE)
_MISSING = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"}
    | {"NULL", "NaN", "None", "n/a", "nan", "null"}
)
_BOOLS = {**dict.fromkeys(("True", "TRUE", "true"), True), **dict.fromkeys(("False", "FALSE", "false"), False)}
_RETUNE = (
    "tune again on the target with aiter's tuner (a bf16 table can also be written with `logparse convert --to aiter`)"
)


@dataclass(frozen=True)
class TunedRow:
    """One row of an aiter table of tuned kernels.

    * ``line`` is its line number.
    * ``cells`` maps each column to its value, with the type that pandas gives it.
    * ``texts`` maps each column to the text in the file.
    * ``width`` is the number of values in the line.
    * ``looked_up`` describes how aiter looks up a call in such a table.
    * ``file`` is the file name of the table.
    """

    line: int
    cells: Mapping[str, Cell]
    texts: dict[str, str]
    width: int
    looked_up: Lookup
    file: str

    @cached_property
    def key(self) -> str:
        """The text by which aiter finds this row for a call (see ``tables.key``).

        The text is empty if a column or a value is missing.  Columns that only newer versions of aiter have are left
        out if the table lacks them.
        """
        words = []
        for name in self.looked_up.present(self.cells):
            cell = self.cells.get(name)
            if isinstance(cell, str):
                words.append(cell)
            elif cell is None or not math.isfinite(cell) or cell != int(cell):
                return ""
            else:
                words.append(str(bool(cell)) if name in self.looked_up.flags else str(int(cell)))
        return ",".join(words)

    @property
    def problem(self) -> GemmProblem | None:
        try:
            # The mxscale table names its sizes in small letters.
            sizes = {x.upper(): cell for x, cell in self.texts.items() if len(x) == 1}
            return aiter.problem_of_row(self.texts | sizes, self.file)
        except (KeyError, ValueError):
            return None

    @property
    def solution(self) -> Solution | None:
        if not self.looked_up.index:
            names = [self.texts.get(x, "") for x in ("kernelName", "kernelName1", "kernelName2")]
            return Solution("aiter", "+".join(filter(None, names))) if any(names) else None
        try:
            return aiter.solution_of_row(self.texts)
        except (KeyError, ValueError):
            return None

    @property
    def time_us(self) -> float | None:
        time = self.cells.get("us", self.cells.get("soltimes"))
        return float(time) if isinstance(time, (int, float)) and 0 < time < math.inf else None

    @property
    def text(self) -> str:
        return _csv([self.texts.get(x, "") for x in self.cells])


@dataclass(frozen=True)
class _Context:
    target: Facts
    table: Lookup
    columns: Sequence[str]
    serves: bool
    """True if at least one row of the table is for the target's GPU.

    A table may have rows for several GPUs, as aiter's own tables do.
    """
    used: Mapping[str, TunedRow]
    """The row that aiter uses for each key (the sizes and types by which it looks up a call)."""


# ------------------------------------------------------------------------------------------------ rules about rows


def _explain_missing_values(entry: TunedRow, context: _Context) -> str | None:
    if entry.width >= len(context.columns):
        return None
    return (
        f"the row has {entry.width} values for {len(context.columns)} columns, so values may be under the wrong column"
    )


def _untyped(entry: TunedRow, context: _Context) -> str | None:
    table, cells = context.table, entry.cells
    wrong = [x for x in (*table.sizes, *sorted(table.flags)) if not isinstance(cells.get(x, 0), (int, float))]
    wrong += [x for x in table.keys if x in table.words and not isinstance(cells.get(x, ""), str)]
    if not wrong:
        return None
    named = ", ".join(f"{x} {entry.texts.get(x)!r}" for x in wrong)
    return f"the row is used for no call, because pandas gives the whole column another type: {named}"


def _no_call(entry: TunedRow, context: _Context) -> str | None:
    if _untyped(entry, context):
        return None
    wrong, table = [], context.table
    for name in (x for x in table.keys if x not in table.words):
        value = entry.cells.get(name)
        least, most = (0, 1.0) if name in table.flags else (1, math.inf)
        if isinstance(value, (int, float)) and not (value % 1 == 0 and least <= value <= most):
            wrong.append(name)
    wrong += [x for x in sorted(table.types) if x in entry.cells and entry.cells[x] not in _DTYPES]
    if not wrong:
        return None
    return f"the row is used for no call, because no call has {', '.join(f'{x} {entry.texts[x]!r}' for x in wrong)}"


_DTYPES = frozenset(aiter.DTYPES)


def _explain_other_gpu(entry: TunedRow, target: Facts) -> str | None:
    theirs = {"gfx": arch(target) or "", "cu_num": target.get("cu_count", "")}
    wrong = [x for x, want in theirs.items() if want and x in entry.cells and _plain(entry.cells[x]) != want]
    if not wrong:
        return None
    named = ", ".join(f"{x} {_plain(entry.cells[x])}" for x in wrong)
    return f"the row is for {named}, but aiter on the target looks for {', '.join(theirs[x] for x in wrong)}"


def _left_out(entry: TunedRow, context: _Context) -> str | None:
    tagged = context.table.keeps_first and entry.texts.get("_tag") == PASSED_OVER
    return f"the row has _tag {PASSED_OVER}, and aiter ignores rows with this tag" if tagged else None


def _passed_over(entry: TunedRow, context: _Context) -> str | None:
    used = None if _left_out(entry, context) else context.used.get(entry.key)
    if not context.table.keeps_first or not entry.key or used is None or used.cells == entry.cells:
        return None
    return (
        f"line {used.line} has the same key, and aiter uses the first row of a key (before May 2026 aiter rejected the "
        "whole table)"
    )


def _backend(entry: TunedRow, context: _Context) -> str | None:
    if context.table is not BF16 or _known_backend(entry, context):
        return None
    return f"aiter has no backend {entry.texts.get('libtype')!r}, so the call raises a KeyError"


def _odd_backend(entry: TunedRow, context: _Context) -> str | None:
    if context.table is BF16 or not context.table.backends or _known_backend(entry, context):
        return None
    return f"{entry.texts.get('libtype')!r} is not a backend of this table, so aiter runs its default kernel, or stops"


def _known_backend(entry: TunedRow, context: _Context) -> bool:
    return "libtype" not in context.columns or context.table.has(entry.cells.get("libtype"), entry.file)


def _bad_index(entry: TunedRow, context: _Context) -> str | None:
    name = context.table.index
    index = entry.cells.get(name)
    if name not in context.columns or (isinstance(index, int) and not isinstance(index, bool)):
        return None
    return (
        f"{name} is {entry.texts.get(name)!r}: aiter passes the value on unchanged, but a backend takes only whole "
        "numbers"
    )


def _no_kernel(entry: TunedRow, context: _Context) -> str | None:
    wanted = context.table.names
    if entry.cells.get("libtype") in aiter.BY_KERNEL_NAME:
        wanted = ("kernelName",)
    empty = [x for x in wanted if x in context.columns and not isinstance(entry.cells.get(x), str)]
    library = entry.texts.get("libtype") or "aiter"
    return f"{library} finds its kernel by {', '.join(empty)}, which is empty in this row" if empty else None


def _failed(entry: TunedRow, context: _Context) -> str | None:
    time = entry.cells.get("us", entry.cells.get("soltimes"))
    if not isinstance(time, (int, float)) or 0 < time < math.inf:
        return None
    if time == 0 and entry.cells.get("libtype") == "triton":
        return None  # The call goes to Triton, which has its own table.
    return f"the row's time is {time} µs, so the tuner could not run this kernel, but aiter uses the row nevertheless"


_RULES: tuple[Rule[TunedRow, _Context], ...] = (
    Rule("values", "warning", None, _explain_missing_values, _RETUNE),
    Rule(
        "type",
        "error",
        "matched",
        _untyped,
        "write the values of this column as numbers, or as True and False, without blanks",
    ),
    Rule("no-call", "error", "matched", _no_call, _RETUNE),
    Rule("device", "error", "matched", lambda e, c: None if c.serves else _explain_other_gpu(e, c.target), _RETUNE),
    Rule("device", "info", "matched", lambda e, c: _explain_other_gpu(e, c.target) if c.serves else None),
    Rule("tag", "info", "read", _left_out, fault=False),
    Rule(
        "duplicate",
        "warning",
        "read",
        _passed_over,
        "keep only the faster of the two rows (`logparse merge` does this)",
        fault=False,
    ),
    Rule("backend", "error", "honoured", _backend, _RETUNE),
    Rule("backend", "warning", None, _odd_backend, _RETUNE),
    Rule("index", "error", "honoured", _bad_index, _RETUNE),
    Rule("kernel-name", "error", "honoured", _no_kernel, _RETUNE),
    Rule("time", "warning", None, _failed, "remove the row", fault=True),
)


# ------------------------------------------------------------------------------------------------------- the file


def recognise(head: Head) -> bool:
    """Return True if a file is aiter's table of bf16 GEMMs.

    Such a table has the columns M, N, K, ``libtype`` and ``solidx``.
    """
    return _table(head) is BF16


def _table(head: Head) -> Lookup | None:
    text, _ = text_of(head.data)
    return table_of([x.strip() for x in text.partition("\n")[0].split(",")])


def entries(name: str, text: str) -> tuple[list[str], list[TunedRow], list[Note]]:
    """Parse a table of tuned kernels as aiter does, with pandas' rules.  Return its columns, its rows and notes.

    If pandas cannot read the file, a note of severity ``error`` explains why.
    """
    lines = list(enumerate(re.split(r"\r\n|\r|\n", text), start=1))
    rows = [(n, cells_of(line)) for n, line in lines if line.strip()]
    if not rows:
        return [], [], [Note(None, "error", "empty", "the file has no rows", _RETUNE)]
    columns, body = rows[0][1], rows[1:]
    notes = []
    # If the first row has more values than columns, pandas takes the surplus at the beginning of each row as row names.
    extra = max(0, len(body[0][1]) - len(columns)) if body else 0
    if extra:
        message = (
            f"{len(body[0][1])} values for {len(columns)} columns: pandas drops the first {extra} values of every row"
        )
        notes.append(Note(body[0][0], "warning", "values", message, _RETUNE))
    body = [(number, cells[extra:]) for number, cells in body]
    for number, cells in body:
        if len(cells) > len(columns):
            message = f"{len(cells) + extra} values for {len(columns)} columns: pandas cannot read the file"
            notes.append(Note(number, "error", "values", message, _RETUNE))
    typed = {x: _typed([c[i] if i < len(c) else "" for _, c in body]) for i, x in enumerate(columns)}
    out, table = [], table_of(columns) or BF16
    for place, (number, cells) in enumerate(body):
        texts = dict(zip(columns, cells, strict=False))
        row = {x: values[place] for x, values in typed.items()}
        out.append(TunedRow(number, row, texts, len(cells), table, name))
    return columns, out, notes


def _typed(texts: Sequence[str]) -> list[Cell]:
    """Convert the texts in one column of a table to int, float, bool or text, as pandas would.

    A missing value becomes None.
    """
    known = [text for text in texts if text not in _MISSING]
    if known and all(_INT.fullmatch(text) for text in known):
        return [None if text in _MISSING else int(text) for text in texts]
    if known and all(_FLOAT.fullmatch(text) for text in known):
        return [None if text in _MISSING else float(text) for text in texts]
    if known and all(text in _BOOLS for text in known):
        return [_BOOLS.get(text) for text in texts]
    return [None if text in _MISSING else text for text in texts]


def _plain(cell: Cell) -> str:
    return str(int(cell)) if isinstance(cell, float) and math.isfinite(cell) and cell == int(cell) else str(cell)


def _file_notes(table: Lookup, columns: Sequence[str], found: Sequence[TunedRow]) -> Iterator[Note]:
    if not found:
        yield Note(None, "error", "empty", "the file has no rows", _RETUNE)
    missing = [x for x in (*table.keys, *table.needed) if x not in columns]
    if missing:
        old = set(missing) <= set(table.late)
        effect = table.late[missing[0]] if old else "aiter raises a KeyError"
        message = f"the table has no column {', '.join(missing)}: {effect}"
        yield Note(1, "warning" if old else "error", "columns", message, _RETUNE)
    first: dict[str, TunedRow] = {}
    for entry in found:
        other = first.setdefault(entry.key, entry) if entry.key else entry
        if other.cells != entry.cells and not table.keeps_first:
            message = (
                f"line {other.line} has the same key with other values, so pandas raises an error and aiter has "
                "no table at all"
            )
            yield Note(
                entry.line,
                "error",
                "duplicate",
                message,
                "keep only the faster of the two rows (`logparse merge` does this)",
            )
    if table.compiled and any(entry.cells.get("libtype", "ck") in ("ck", "cktile") for entry in found):
        message = (
            "aiter chooses its kernels from Composable Kernel (ck) when it compiles a module from this table, not "
            "when the job calls a product"
        )
        remedy = (
            "after a change of the table, remove aiter's jit build folder and the module's .so file, so that "
            "aiter compiles the module again"
        )
        yield Note(None, "info", "compiled", message, remedy)
    if any(entry.cells.get("libtype") == "hipblaslt" for entry in found):
        message = (
            "the table has indices of hipBLASLt's solutions, but does not state their hipBLASLt version, and aiter "
            "does not check the version"
        )
        yield Note(None, "info", "build", message, "use the table only with the hipBLASLt build for which it was made")


def read(name: str, data: bytes, target: Facts) -> Reading[Table[TunedRow, _Context]]:
    """Read a table of tuned kernels as aiter reads it. Check its rows for a target machine.

    The table states no hipBLASLt version.  So it stays unknown whether its kernel numbers are valid on the target.
    """
    text, _ = text_of(data)
    columns, found, damage = entries(name, text)
    table = table_of(columns) or BF16
    notes = [*damage, *(_file_notes(table, columns, found) if columns else ())]
    refusals, others = ([x for x in notes if (x.severity == "error") is wrong] for wrong in (True, False))
    serves = any(_explain_other_gpu(entry, target) is None for entry in found)
    first = {x.key: x for x in reversed(found) if not (table.keeps_first and x.texts.get("_tag") == PASSED_OVER)}
    context = _Context(target, table, columns, serves, first)
    return Table(found, context, _RULES, others).reading(
        "aiter cannot read the table", refusals=refusals, certain=False, facts=_own_facts(found), target=target
    )


def _csv(cells: Sequence[str]) -> str:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="").writerow(cells)
    return sink.getvalue()


def _own_facts(found: Sequence[TunedRow]) -> dict[str, str]:
    out = {}
    for ours, theirs in (("arch", "gfx"), ("cu_count", "cu_num")):
        values = {_plain(entry.cells[theirs]) for entry in found if entry.cells.get(theirs) is not None}
        if len(values) == 1:
            out[ours] = values.pop()
    return out


def find_padded_keys(key: str) -> list[str]:
    """Return the keys that aiter looks up next if its table has no row for a matrix product with exactly this M.

    M is the number of tokens. In these keys it is rounded up:

    * aiter rounds M up to a multiple of 16, 32, 64 or 128, and then to a power of two.
    * Newer versions first round M to a power of two if M is below 16.
    * Newer versions try 8192 if M is above 8192 and N is above 4096.

    The result contains the keys of all versions.  The result is empty for tables without a GPU architecture and for
    batched GEMMs, because their rounding is unknown.
    """
    cells = key.split(",")
    if not cells[0].startswith("gfx") or (len(cells) == 6 and cells[5].isdigit()):
        return []
    m, n = int(cells[2]), int(cells[3])
    power = 1 << (m - 1).bit_length() if m > 1 else 1
    step = 16 if m <= 256 else 32 if m <= 1024 else 64 if m <= 4096 else 128
    tries = [power] if m < 16 else []
    tries += [-(-m // step) * step, *([8192] if m > 8192 and n > 4096 else []), power]
    return list(dict.fromkeys(",".join((*cells[:2], str(x), *cells[3:])) for x in tries if x != m))


def find_reports(name: str, reading: Reading[Any], messages: Iterable[tuple[str, str]]) -> dict[str, Report]:
    """Find the matrix products that aiter looked up in this table, according to a server's log.

    The result maps the text of each product to a report, which states the key that aiter looked for and whether it
    found a row.
    """
    operator, facts = stem(name), reading.key_facts
    device = {"gfx": arch(facts) or "", "cu_num": facts.get("cu_count", "")}
    context = reading.parsed.context
    columns = context.table.present(context.columns)
    named = "kernelName" in context.columns
    out = {}
    for found in filter(None, (aiter_log.looked_up(text) for _, text in messages)):
        cells = [device.get(x) or found.values.get(x, "") for x in columns]
        if operator is not None and stem(found.table) == operator and all(cells):
            with contextlib.suppress(KeyError, ValueError):
                problem = aiter.problem_of_row(found.values, found.table).text
                out[problem] = Report(",".join(cells), found.found, (found.kernel,) if found.kernel and named else ())
    return out


# ------------------------------------------------------------------------------------------------- merged, converted


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    """Return what two aiter tables must have in common before they are merged: columns and operator.

    Raises InputError if aiter cannot read the table, or if the operator that reads it is unknown.
    """
    reading = read(name, data, {})
    columns = reading.parsed.context.columns
    odd = [x for x in reading.parsed.notes if x.rule == "values"]
    broken = next((x for x in (*odd, *reading.refusals) if x.rule in ("columns", "values", "empty")), None)
    if broken is not None:
        raise InputError(broken.message)
    # Several operators of aiter read tables with the same columns. Then the file's name must tell the operator.
    operator = "bf16_tuned_gemm" if table_of(columns) is BF16 else stem(name)
    if operator is None:
        raise InputError(
            "several operators of aiter read tables with these columns, and the file's name decides which operator "
            "reads the table. Name the file after one of these operators: " + ", ".join(sorted(VARIABLES))
        )
    return [("operator", operator), ("columns", _csv(columns))]


def _merge_rows(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    data = bytes_of([agreed["columns"], *(row.text for row in rows)])
    operator = agreed["operator"]
    use = fill_template(Shell("export @variable@={path}"), {"variable": shell_word(VARIABLES[operator])})
    return [Emission(f"{operator}.csv", data, use)]


def _translate_to_aiter(given: Solution, rocblas_version: str) -> Solution | None:
    """Translate the name of a kernel into its name in aiter's tables. Return None if it has no name there."""
    # A kernel of a library that aiter calls, such as hipBLASLt, keeps its name. rocBLAS has numbers of its own for some
    # kernels of hipBLASLt. Such a number becomes hipBLASLt's number.
    return given if given.library in aiter.BACKENDS else hipblaslt_tuning.translate_to_hipblaslt(given, rocblas_version)


_MERGING = Merging(
    header=_header,
    write=_merge_rows,
    note=(
        "aiter's tables do not state the library versions of their rows, so merge only tables that were made with "
        "the same build"
    ),
)
_GEMM_TABLES = OverrideFormat(
    name=aiter.FORMAT.name,
    order="pandas keeps equal rows once, and rejects the table if rows with the same key differ",
    kinds=frozenset({"gemm"}),
    recognise=recognise,
    reader=read,
    key=aiter.key,
    fallback_keys=find_padded_keys,
    reported=find_reports,
    family=stem,
    graph_unsafe=frozenset({"torch", "hipblaslt"}),  # ROCm/aiter#4352, #5371
    writer=aiter.WRITER,
    merging=_MERGING,
    conversion=Conversion(
        word="aiter",
        recognise=aiter.FORMAT.recognise,
        read=records_of(aiter.FORMAT),
        takes=_translate_to_aiter,
        matched=(
            "aiter finds the row of a call by M, N, K, bias and types; for calls that do not go through aiter, "
            "no row is used"
        ),
    ),
)
_KERNEL_TABLES = OverrideFormat(
    name=KERNELS,
    order="pandas keeps equal rows once. If rows for the same fused MoE differ, it keeps the first",
    kinds=frozenset({"gemm"}),
    recognise=lambda head: _table(head) not in (None, BF16),  # 8-bit, 4-bit, batched, fused MoE
    reader=read,
    key=lambda problem, facts: None,
    fallback_keys=find_padded_keys,
    reported=find_reports,
    family=stem,
    merging=_MERGING,
)
OVERRIDE_FORMATS = (_GEMM_TABLES, _KERNEL_TABLES)
