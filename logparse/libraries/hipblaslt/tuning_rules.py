"""Rules for hipBLASLt tuning files: which rows the library keeps, under which key and index, and why it drops others.

Two readers exist:

=======================  ===============================  ==============================================================
topic                    ROCm 6.4, by place               ROCm 7.0 and later, by name
=======================  ===============================  ==============================================================
row                      every line of exactly 37 values  the line after a line that contains ``transA``, whatever it is
columns                  by their places                  by the names in the line before
compute type             read as a data type              an unknown one is taken for ``f32_r``
several rows of one key  the latest                       the first whose index the build has
=======================  ===============================  ==============================================================

The reader by name came with library version 1500.  That reader looks for eleven columns in a fixed order.  It goes
through the header once.  Whenever a name equals the next of the eleven names, it takes that column.

Both readers remove blanks only in front of a line.  Both read any transpose except ``N`` as T.  Both read a number up
to the first character that is no part of it (``4096.0``, ``101917abc``).

If the solution of the taken row cannot run the call, the library uses its own choice and tries no other row.  The first
line must state the library's own revision.  Else the library ignores the file for calls of its C functions.

The rules were compared with libhipblaslt 1.2.2 (ROCm 7.2.4) over a virtual GPU in
``tests/conformance/test_hipblaslt_files.py``. Source: ROCm/hipBLASLt
``library/src/amd_detail/rocblaslt/src/UserDrivenTuningParser.cpp`` (6.4, 7.0), ROCm/rocm-libraries
``projects/hipblaslt``, the same file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from logparse.errors import InputError
from logparse.libraries.hipblaslt import bench, tuning_cache, tuning_file
from logparse.libraries.hipblaslt.tuning_file import NO_ROW, TUNING_COLUMNS, TuningRow, by_name
from logparse.libraries.kinds.format import Emission, Head
from logparse.libraries.kinds.override_format import (
    Conversion,
    Merging,
    OverrideFile,
    OverrideFormat,
    Report,
    bytes_of,
    records_of,
)
from logparse.libraries.kinds.reading import Note, Offer, Reading, Row, Rule, Table, text_of, with_key
from logparse.libraries.tunableop.solutions import hipblaslt_index
from logparse.model import GemmProblem, Override, Problem, Solution, problem_from_text
from logparse.quoting import Shell
from logparse.target import Facts
from logparse.target import arch as arch_of

_REWRITE = "let `logparse recommend --target` write the tuning file"
_RETUNE = "tune again on the target with its hipblaslt-bench (set HIPBLASLT_TUNING_FILE)"
_REPLAY = "measure the row's solution with `logparse replay` on the target"

_CACHE = (
    "the row is from hipBLASLt's runtime tuning cache (HIPBLASLT_TUNING_CACHE_PATH, hipBLASLt 1.5). lint does not "
    "check such rows, because hipBLASLt checks them: it compares all columns with the call, and ignores a row whose "
    "index names another kernel now"
)

# ------------------------------------------------------------------------------------------- what is kept of a row


@dataclass(frozen=True)
class Context:
    """The data that the checks of a hipBLASLt tuning file need, beyond the row that is checked.

    * ``number``: the version of hipBLASLt on the target machine, or None if it is unknown.
    * ``same_key``: groups of rows that hipBLASLt finds for the same calls.
    """

    # These are properties of the machine that will use the file, such as its GPU.
    facts: Facts
    number: int | None
    same_key: Mapping[str, Sequence[TuningRow]]


# ------------------------------------------------------------------------------------------- the file


def read(name: str, data: bytes, target: Facts) -> Reading[Table[TuningRow, Context]]:
    """Read a tuning file as hipBLASLt on the target machine (which will use the file) would, and list its problems.

    Returns every row with remarks, such as errors that make hipBLASLt ignore the row.
    """
    text, _ = text_of(data)
    number, certain = tuning_file.version(target), target.get("hipblaslt_revision") is not None
    # If the version is unknown, columns are found by the line of names above a row, or else by their order.
    found, notes = tuning_file.rows_of(text, number), list[Note]()
    if number is None or number >= tuning_cache.SINCE:
        cached = [row for row in found if tuning_cache.is_header(row.header)]
        found = [row for row in found if not tuning_cache.is_header(row.header)]
        notes += [Note(cached[0].line, "info", "cache", _CACHE, "", [x.line for x in cached[1:]])] if cached else []
    if not found and not notes:
        notes.append(Note(None, "error", "empty", "the file has no entries", _RETUNE))
    table = Table(found, Context(target, number, with_key(found)), _RULES, notes)
    own = _own_facts(text, found)
    return table.reading(
        "hipBLASLt ignores the whole file",
        refusals=_refusals(text, target),
        certain=certain,
        facts=own,
        target=target,
    )


def _revision(text: str) -> str | None:
    """Return the library revision that the first line of a tuning file states, with its blanks.

    It is the text after ``Git Version: ``. The library compares this text with its own revision.  Returns None if the
    line has another form.
    """
    _, found, revision = text.partition("\n")[0].partition(tuning_file.FIRST)
    return revision if found else None


def _own_facts(text: str, found: Sequence[TuningRow]) -> dict[str, str]:
    """Return what a tuning file states about the machine that wrote it.

    The facts are the library revision, the GPU architecture and the number of compute units.  A value is left out if
    the rows contradict each other.
    """
    revision = _revision(text)
    out = {} if revision is None else {"hipblaslt_revision": revision.rstrip("\r")}
    for name, column in tuning_file.DEVICE.items():
        values = {row.cells.get(column, "") for row in found} - {"", "0"}
        if len(values) == 1:
            out[name] = values.pop()
    return out


def _refusals(text: str, target: Facts) -> Iterator[Note]:
    """Yield the reason why hipBLASLt ignores a whole tuning file, if it does.

    hipBLASLt reads the file only if the first line states exactly the revision of the library itself.
    """
    mine, theirs = _revision(text), target.get("hipblaslt_revision")
    if mine is None:
        message = (
            "the first line is not 'Git Version: …', so hipBLASLt ignores the whole file, because it compares "
            "this line with its own revision"
        )
        yield Note(1, "error", "revision", message, _REWRITE)
    elif mine != mine.strip():
        message = (
            f"the file's revision {mine!r} contains blanks or carriage returns, so it equals no library's revision"
        )
        yield Note(1, "error", "revision", message, "remove the blanks, and save the file with LF line ends")
    elif theirs is not None and mine != theirs:
        message = (
            f"hipBLASLt {mine!r} wrote the file, but the target has {theirs!r}: hipBLASLt ignores the whole file (up "
            "to version 1.2.2, calls through its C++ object use the rows nevertheless)"
        )
        yield Note(1, "error", "revision", message, _RETUNE)


def probe_order(rows: Sequence[Row], facts: Facts) -> Sequence[Row]:
    """Return rows with the same key in the order in which the library tries them.

    ROCm 6.4 tries the latest row first, later versions the first row.
    """
    return rows[::-1] if by_name(tuning_file.version(facts)) is False else rows


def recognise(head: Head) -> bool:
    """Return True if a file is a hipBLASLt tuning file.

    The usual first line may be missing, or other text may come before it.
    """
    data = head.data.removeprefix(b"\xef\xbb\xbf").lstrip(tuning_file.BLANKS.encode())
    return data.startswith(tuning_file.FIRST.encode()) or b"transA,transB,grouped_gemm,batch_count" in data


# ------------------------------------------------------------------------------------------- rules and remarks


def _dropped(name: str, remedy: str) -> Rule[TuningRow, Context]:
    """Return a rule of ``lint`` that reports the rows which the library drops for the reason ``name``.

    ``remedy`` is the sentence that tells the user what to do.
    """
    return Rule(name, "error", "read", lambda row, context: row.why if row.rule == name else None, remedy)


def _other_arch(row: TuningRow, context: Context) -> str | None:
    mine, theirs = row.cells.get("gcnArchName", "").partition(":")[0], arch_of(context.facts)
    if not mine or theirs is None or mine == theirs:
        return None
    return (
        f"the row was tuned on {mine}, but the target is {theirs}: hipBLASLt does not check this, and on {theirs} the "
        "row's index names another kernel"
    )


def _other_layout(row: TuningRow, context: Context) -> str | None:
    if by_name(context.number) is not None or not row.key:
        return None
    if row.header is None:
        return (
            "the row has values without a header line; hipBLASLt before ROCm 7.0 reads such rows, and from ROCm 7.0 "
            "on it ignores them"
        )
    if len(row.values) == len(TUNING_COLUMNS):
        return None
    return (
        f"the row has {len(row.values)} values; ROCm 7.0 and later read it, but ROCm 6.4 ignores it, because it needs "
        f"{len(TUNING_COLUMNS)} values"
    )


def _read_as(row: TuningRow, context: Context) -> str | None:
    if not row.key:
        return None
    compute = row.key.rpartition(",")[2]
    odd = [f"{name} {x!r} as T" for name in ("transA", "transB") if (x := row.taken[name]) not in ("N", "T")]
    odd += [f"compute type {x!r} as {compute}" for x in (row.taken["compute_type"],) if x != compute]
    return f"the library reads {', '.join(odd)}" if odd else None


def _grouped(row: TuningRow, context: Context) -> str | None:
    if row.cells.get("grouped_gemm", "0") in ("0", "false"):
        return None
    return "the row is for a grouped GEMM, but hipBLASLt reads it as a row for a single GEMM of these sizes"


def _other_cus(row: TuningRow, context: Context) -> str | None:
    mine, theirs = row.cells.get("CUs", ""), context.facts.get("cu_count", "")
    if not mine or not theirs or mine in ("0", theirs):
        return None
    return (
        f"the row was tuned on a GPU with {mine} CUs, but the target has {theirs} CUs, on which another solution may "
        "be faster"
    )


def _copied(row: TuningRow, context: Context) -> str | None:
    message = "the row's Gflop/s do not fit its sizes and its time, so the row was copied from a row for other sizes"
    return message if row.claim else None


def product_of(problem: Problem | None) -> dict[str, str | None]:
    """Return the properties of a product that decide which kernels can run it, but that no tuning file states.

    The library finds a row without these properties, so the row's kernel may be unable to run the product.  The result
    has the items ``swizzle``, ``scale`` and ``input`` (the type that operands are converted to).  A value is empty if
    the product has no such property, and None if this is unknown.
    """
    if not isinstance(problem, GemmProblem):
        return {}
    p, out = problem.normal, dict[str, str | None]()
    swizzles = [(x.upper(), getattr(p, f"swizzle_{x}")) for x in "ab"]
    letters = "".join(letter for letter, is_set in swizzles if is_set)
    out["swizzle"] = None if any(x is None for _, x in swizzles) else f"swizzled {letters}" if letters else ""
    modes = [p.scale_a, p.scale_b]
    # A scale of one factor (scalar) needs no other kernel.
    parts = sorted({x for x in modes if x not in (None, "none", "scalar")})
    out["scale"] = None if None in modes else f"{'/'.join(parts)} scales" if parts else ""
    unknown = None in (p.compute_input_a_type, p.compute_input_b_type)
    out["input"] = None if unknown else f"as {'/'.join(p.converted)}" if p.converted else ""
    return out


def other_product(row: Problem | None, call: Problem) -> str:
    """Explain why hipBLASLt may choose a kernel from its tuning file that cannot run the call.

    For example, the kernel needs swizzled operands (see ``product_of``).  Returns an empty text if no difference is
    known.
    """
    # hipBLASLt finds a row by some properties of the call, such as sizes and types, but not by these.
    mine, theirs = product_of(row), product_of(call)
    for word, needed in theirs.items():
        has = mine.get(word)
        if has is not None and needed is not None and has != needed:
            return f"its solution is for {has or 'plain'} operands, but this call has {needed or 'plain'} operands"
    return ""


def _product_text(problem: Problem | None) -> str:
    return ", ".join(filter(None, product_of(problem).values()))


def work_of(problem: Problem | None) -> str:
    """Describe the properties of a matrix product that hipBLASLt ignores when it searches a tuning file.

    Example: ``[swizzled A] beta zero RELU``.  Times of calls with different properties cannot be compared.
    """
    if not isinstance(problem, GemmProblem):
        return ""
    product = _product_text(problem)
    words = [f"[{product}]" if product else "", f"beta {problem.beta}" if problem.beta else "", problem.epilogue or ""]
    return " ".join(word for word in words if word not in ("", "DEFAULT"))


def _slot(offer: Offer) -> str:
    """Return a text that is the same for two tuning rows if a merged file needs only one of them."""
    # Besides the sizes and types that hipBLASLt compares, the text has properties such as swizzled operands (see
    # ``product_of``). Rows that differ only in these are both kept, because neither kernel can run the other's calls.
    product = offer.work.partition("]")[0] if offer.work.startswith("[") else ""
    return f"{offer.key} {product}"


def _conflict(row: TuningRow, context: Context) -> str | None:
    work = work_of(row.problem)
    return _two_solutions(row, context, [x for x in _rivals(row, context) if work_of(x.problem) == work])


def _products(row: TuningRow, context: Context) -> str | None:
    others = [x for x in _rivals(row, context) if other_product(x.problem, row.problem or GemmProblem())]
    message = _two_solutions(row, context, others)
    return message and f"{message}; {other_product(others[0].problem, row.problem or GemmProblem())}"


def _shared(row: TuningRow, context: Context) -> str | None:
    work, product = work_of(row.problem), _product_text(row.problem)
    others = [x for x in _rivals(row, context) if work_of(x.problem) != work and _product_text(x.problem) == product]
    message = _two_solutions(row, context, others)
    if message is None:
        return None
    theirs = " and ".join(sorted({work_of(x.problem) or "plain" for x in others}))
    return f"{message}; the rows' times are for different work ({work or 'plain'}, {theirs})"


def _rivals(row: TuningRow, context: Context) -> list[TuningRow]:
    """Return the other rows of the tuning file that hipBLASLt finds for the same calls as this row."""
    return [x for x in context.same_key.get(row.key, ()) if x.index != row.index]


def _two_solutions(row: TuningRow, context: Context, others: Sequence[TuningRow]) -> str | None:
    if not others:
        return None
    named = by_name(context.number)
    other = others[0] if named else others[-1]
    both = f"line {other.line} has the same key with solution {other.index}"
    if named is None:
        return f"{both}; which row is used depends on the version of hipBLASLt"
    if named:
        return f"{both}; hipBLASLt uses the first row whose index its build has" if other.line < row.line else None
    return f"{both}, and ROCm 6.4 tries the latest row first" if other.line > row.line else None


_RULES: tuple[Rule[TuningRow, Context], ...] = (
    *(_dropped(name, _REWRITE) for name in ("37-values", "no-header", "columns")),
    *(_dropped(name, _RETUNE) for name in ("index", "number", "type")),
    _dropped(
        "compute-type",
        (
            "if the target machine has ROCm 7.0 or later, do nothing, because these versions read the row; if the "
            "machine has ROCm 6.4, remove the row"
        ),
    ),
    Rule("arch", "error", "honoured", _other_arch, _RETUNE),
    Rule("layout", "warning", None, _other_layout, _REWRITE),
    Rule("read-as", "warning", None, _read_as, _RETUNE),
    Rule("grouped", "warning", None, _grouped, "remove the row"),
    Rule("cu-count", "warning", None, _other_cus, _RETUNE),
    Rule("copied", "warning", None, _copied, _REPLAY),
    Rule("conflict", "error", None, _conflict, "keep the faster row"),
    Rule(
        "products",
        "warning",
        None,
        _products,
        (
            "hipBLASLt uses only one of the two rows, but each row's solution can run only the calls of its own row. "
            "Find out which row's calls take more time in total, and put this row first (for ROCm 6.4: last)"
        ),
    ),
    Rule(
        "shared",
        "warning",
        None,
        _shared,
        (
            "time the solutions of both rows with the calls of both rows, and keep only the row whose solution takes "
            "less time in total"
        ),
    ),
)


# ------------------------------------------------------------------------------------- calls through the C++ object


def _object_compute(problem: Problem, facts: Facts) -> str | None:
    """Return the compute type for which hipBLASLt searches its tuning file if rocBLAS makes the call.

    Returns ``NO_ROW`` if such a call finds no row.  Returns None if the type is the usual one or no row can be written.
    """
    # rocBLAS uses hipBLASLt's C++ object, which may search for another compute type than the C interface.
    own, other = tuning_file.key(problem, facts), tuning_file.object_key(problem, facts)
    return None if other is None or own == other else other.rpartition(",")[2]


def find_reports(name: str, reading: Reading[Context], messages: Iterable[tuple[str, str]]) -> dict[str, Report]:
    """Find the calls through hipBLASLt's C++ object, as made by rocBLAS, that need their own row in a tuning file.

    Returns a dictionary. Its keys are the texts of the matrix products. Its values have the first columns of the row,
    and the reason.
    """
    out = {}
    for call in object_calls(messages):
        # For such a call hipBLASLt may search for another compute type than through its C interface.
        if compute := _object_compute(call, reading.key_facts):
            what = "find no row" if compute == NO_ROW else f"find only rows of compute type {compute}"
            why = f"calls of these types through hipBLASLt's C++ object, as rocBLAS makes them, {what}"
            other = str(tuning_file.object_key(call, reading.key_facts))
            out[call.text] = Report(other, None, why=f"{why} up to version 1.2.2")
    return out


def object_calls(messages: Iterable[tuple[str, str]]) -> list[Problem]:
    """Return the matrix products that a job called through hipBLASLt's C++ interface, not through the C functions.

    ``messages`` are pairs of function and text from the job's logs.  Some of them report such calls.
    """
    return [problem_from_text(text) for function, text in messages if function == bench.OBJECT]


def with_objects(overrides: Sequence[Override], called: Sequence[Problem], target: Mapping[str, str]) -> list[Override]:
    """Add overrides (kernels to use) so that calls through hipBLASLt's C++ object use the same kernels as other calls.

    Such a call has another key in the tuning file. ``called`` are the products that the job calls through that object.
    If an override is for such a product, a second override with the key of this call is added after it.  None is added
    if the two keys are equal, or if no row can be used for the call.
    """
    keys = {tuning_file.key(call, target) for call in called} - {None}
    out = []
    for override in overrides:
        out.append(override)
        gemm, compute = override.problem, _object_compute(override.problem, target)
        if compute not in (None, NO_ROW) and tuning_file.key(gemm, target) in keys and isinstance(gemm, GemmProblem):
            out.append(replace(override, problem=replace(gemm, compute_type=compute)))
    return out


def kernels(problem: Problem) -> str | None:
    """Return a text that describes which special kernels a matrix product needs.  None if this is unknown.

    The text is empty if the product needs no special kernel.  The number of a kernel can be used only for products with
    the same description.  Bias, activation, β, scales of whole matrices, leading dimensions and strides do not matter.

    This was measured: version 1.2.2 offered 11,808 kernel numbers for products without special needs on gfx90a, and
    5,972 on gfx1201.  It offered no such number for any other product.
    """
    if not isinstance(problem, GemmProblem) or problem.aux is None:
        return None
    words = []
    if problem.aux:
        words.append("an activation's gradient" if problem.gradient else "an auxiliary matrix")
    elif problem.gradient and problem.bias:
        words.append(f"a bias gradient from {(problem.bias_source or 'd').upper()}")
    if "row" in (problem.scale_a, problem.scale_b):
        words.append("scales per row")
    product = product_of(problem)
    words += [x for x in (product["swizzle"], product["input"]) if x]
    words += [x for x in (product["scale"],) if x and "block" in x]
    return " with ".join(words)


# ------------------------------------------------------------------------------------------- merged, kept, converted


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    """Return what two tuning files must have in common to be merged: revision, GPU and layout.

    Raises InputError if the file has no revision.
    """
    text = text_of(data)[0]
    found = tuning_file.rows_of(text, None)
    revision = _own_facts(text, found).get("hipblaslt_revision")
    if revision is None:
        raise InputError(
            "the file does not begin with 'Git Version: …', so the hipBLASLt revision of its rows is unknown"
        )
    pairs = {(word, row.cells.get(column, "")) for word, column in tuning_file.DEVICE.items() for row in found}
    pairs |= {("layout", _LAYOUTS[row.header is not None]) for row in found}
    return [("revision", revision), *sorted(x for x in pairs if x[1] not in ("", "0"))]


_LAYOUTS = ("values only (ROCm 6.4)", "a header line each (ROCm 7)")


def _merge_rows(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    data = bytes_of([tuning_file.FIRST + agreed["revision"], *(row.text for row in rows)])
    return [Emission("hipblaslt_tuning.txt", data, Shell("export HIPBLASLT_TUNING_OVERRIDE_FILE={path}"))]


def _find_copy_obstacle(own: OverrideFile, emitted: OverrideFile) -> str | None:
    layouts = [{"\n" in row.text for row in file.rows} for file in (own, emitted)]
    return None if layouts[0] == layouts[1] else "the file has the layout of another version of hipBLASLt"


def translate_to_hipblaslt(given: Solution, rocblas_version: str) -> Solution | None:
    """Convert the name of a kernel of any library to hipBLASLt's name of the same kernel.

    rocBLAS has numbers of its own for some kernels of hipBLASLt.  Returns None if the kernel is not from hipBLASLt.
    """
    if given.library == "rocblas" and given.id.lstrip("-").isdigit():
        index = hipblaslt_index(given, rocblas_version)
        return None if index is None else Solution("hipblaslt", str(index))
    return given if given.library == "hipblaslt" and given.id.isdigit() else None


OVERRIDE_FORMAT = OverrideFormat(
    name=tuning_file.FORMAT.name,
    order="if several rows have the same key, hipBLASLt tries them in their order; ROCm 6.4 tries the latest row first",
    kinds=frozenset({"gemm", "grouped"}),
    recognise=recognise,
    reader=read,
    key=tuning_file.key,
    compared=("hipblaslt_revision",),
    probe_order=probe_order,
    reported=find_reports,
    kernels=kernels,
    other_product=other_product,
    signs=(
        (
            "the override file git version are not the same",
            "hipBLASLt ignored the tuning file, because the file has another git revision or cannot be opened",
        ),
        ("No valid entries found in override file", "hipBLASLt found no row in the tuning file that it can use"),
    ),
    writer=tuning_file.WRITER,
    find_copy_obstacle=_find_copy_obstacle,
    merging=Merging(
        header=_header, write=_merge_rows, in_order=True, work=lambda row: work_of(row.problem), slot=_slot
    ),
    conversion=Conversion(
        word="hipblaslt",
        recognise=tuning_file.FORMAT.recognise,
        read=records_of(tuning_file.FORMAT),
        takes=translate_to_hipblaslt,
        matched=(
            "hipBLASLt does not compare leading dimensions, strides, bias and epilogue when it looks up a row, "
            "so a row is used for all calls that differ only in these"
        ),
    ),
)
