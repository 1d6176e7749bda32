"""Find the matrix products and convolutions that a pasted text names: a line of a log, or a name from a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
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

    The sizes in the text may be joined by × or x.
    """
    text = " ".join(re.sub(r"(?<=\d)x(?=\d)", "×", text).split())
    sizes = _LABELLED_SIZES.match(text)
    if not sizes:
        return []
    written = ",".join(filter(None, sizes.groups()))
    sql = """select problem from (select problem from gemm_rows union select problem from conv_rows)
             where contains(problem, ?) order by problem"""
    with store.reading(sql) as con:
        texts = [row[0] for row in con.execute(sql, [written]).fetchall()]
    problems = list(map(problem_from_text, texts))
    exact = [problem for problem in problems if problem.label == text]
    return exact or [problem for problem in problems if problem.label.startswith(f"{text} ")]


_LABELLED_SIZES = regex(r"[NTC?]{2} (\d+)×(\d+)×(\d+)[ +]|[FBW+]+ (\d+)×(\d+)×")
"""Pattern for the start of the name that a GEMM or a convolution has in tables, for example ``TN 4096×512×1024``."""
