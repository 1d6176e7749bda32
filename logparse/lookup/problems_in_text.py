"""Find the matrix products and convolutions that a pasted text names: a line of a log, or a name from a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from logparse.errors import InputError
from logparse.libraries.kinds.patterns import regex
from logparse.model import Problem, problem_from_text
from logparse.store import Store


def problems_in(text: str) -> list[Problem]:
    """Return the matrix products and convolutions in a log line that the user pasted. The line may have any format.

    Raises InputError if no format can read the line.
    """
    text = text.strip()
    try:
        return [problem_from_text(text)]
    except (ValueError, IndexError, TypeError, KeyError):
        found = {problem.text: problem for problem in _find_in_text(text)}
    if not found:
        raise InputError(
            f"{text[:60]!r} is no matrix product or convolution. Paste a line of a log (bench, trace, profile), a "
            "MIOpenDriver command, a key or row of a find-db, a row of TunableOp, or a name from a table of logparse"
        )
    return list(found.values())


def _find_in_text(text: str) -> Iterator[Problem]:
    """Yield the matrix products and convolutions in a text that the user pasted.

    The text is read as a line of a log, as a whole file, and as a key of MIOpen's find-db.
    """
    from logparse.ingest.input_file import InputFile
    from logparse.ingest.lines import LineReader
    from logparse.libraries import FORMATS  # imported here, because ``top`` and ``status`` do not need them
    from logparse.libraries.kinds.format import FileFormat, LineFormat

    reader = LineReader([f for f in FORMATS if isinstance(f, LineFormat)])
    reader.feed(text.encode(), 0)
    outcomes = [line.format.read(line.text) for line in reader.take().distinct]
    with TemporaryDirectory() as folder:
        for pasted in (text, f"{text}=ConvDirectNaiveConvFwd:0,0,miopenConvolutionFwdAlgoDirect"):
            Path(folder, "pasted").write_bytes(pasted.encode() + b"\n")
            source = InputFile(f"{folder}/pasted")
            readers = (x for x in FORMATS if isinstance(x, FileFormat) and x.recognise(source.head()))
            outcomes += [outcome for format in readers for outcome in format.read(source)]
    for outcome in outcomes:
        yield from (problem for x in outcome.records if (problem := getattr(x, "problem", None)) is not None)
        for table in outcome.tables.values():
            if "problem" in table.column_names:
                yield from map(problem_from_text, table["problem"].unique().to_pylist())


def find_by_label(store: Store, text: str) -> list[Problem]:
    """Return the matrix products and convolutions that tables show under this name, or under a name that begins so.

    The sizes in the text may be joined by × or x. The text may also begin with the sizes, without the letters before
    them. Raises InputError, which lists the names, if several names have these sizes.
    """
    text = " ".join(re.sub(r"(?<=\d)x(?=\d)", "×", text).split())
    if bare := _BARE_SIZES.match(text):
        return _find_by_sizes(store, text, bare.groups())
    sizes = _LABELLED_SIZES.match(f"{text} ")
    if not sizes:
        return []
    written = ",".join(filter(None, sizes.groups()))
    problems = _problems_with(store, written, written)
    exact = [problem for problem in problems if problem.label == text]
    return exact or [problem for problem in problems if problem.label.startswith(f"{text} ")]


def _find_by_sizes(store: Store, text: str, sizes: Sequence[str]) -> list[Problem]:
    """Return the matrix products or convolutions of one name, in which ``text`` stands behind the first letters.

    ``sizes`` are the first three sizes in the text. Raises InputError, which lists the names, if there are several.
    """
    found = [
        problem
        for problem in _problems_with(store, f" mnk={','.join(sizes)} ", f" in={','.join(sizes[:2])},")
        if f"{problem.label.partition(' ')[2]} ".startswith(f"{text} ")
    ]
    names = sorted({problem.label for problem in found})
    if len(names) > 1:
        more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
        raise InputError(f"{text}: give one of these names: {', '.join(names[:_LISTED])}{more}")
    return found


def _problems_with(store: Store, gemm: str, conv: str) -> list[Problem]:
    """Return the stored matrix products with ``gemm`` in their text, and the convolutions with ``conv``."""
    sql = """select problem from gemm_rows where contains(problem, $gemm)
             union select problem from conv_rows where contains(problem, $conv) order by problem"""
    with store.reading(sql) as con:
        return [problem_from_text(text) for (text,) in con.execute(sql, {"gemm": gemm, "conv": conv}).fetchall()]


_LISTED = 10
_BARE_SIZES = regex(r"(\d+)×(\d+)×(\d+)(?:[× ]|$)")
"""Pattern for a name without the letters before its sizes, for example ``4096×512×1024``."""
_LABELLED_SIZES = regex(r"[NTC?]{2} (\d+)×(\d+)×(\d+)[ +]|[FBW+]+ (\d+)×(\d+)×")
"""Pattern for the start of the name that a GEMM or a convolution has in tables, for example ``TN 4096×512×1024``."""
