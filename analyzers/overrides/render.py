"""Results of lint, merge, convert and export as lines and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.overrides.convert import Converted
from analyzers.overrides.export import Exported
from analyzers.overrides.lint import CHECKED
from analyzers.overrides.merge import Merged
from analyzers.overrides.verbs import Unread
from analyzers.overrides.write import write, wrote_lines
from logparse.formats import FORMATS
from logparse.formats.override_format import OverrideFile
from logparse.formats.override_formats import WRITERS
from logparse.formats.reading import Note
from logparse.output import CHECK_FAILED, Answer
from logparse.text import counted

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 8
_NOTE = ["file", "line", "severity", "rule", "message", "remedy"]


def lint_lines(file: OverrideFile) -> list[str]:
    """Verdict, then each rule that is broken once, with the lines that it concerns."""
    accepted = {True: "accepted", False: "not accepted", None: "accepted if the target is of the build that wrote it"}
    live = sum(len(lines) for row, lines in file.reading.alike if row.live)
    out = [f"{file.title}: {file.format}, {accepted[file.accepted]}; {live:,} of {len(file.rows):,} rows can be used"]
    for (severity, rule, message, remedy), count, first in grouped(file.noted):
        shown = ", ".join(map(str, dict.fromkeys(first))) + (f" and {count - _SHOWN} more" * (count > _SHOWN))
        where = f"line {shown}: " if first[0] else ""  # once, though a line of a find-db has several rows
        out.append(f"  {severity} [{rule}] {where}{message}" + (f" → {remedy}" if remedy else ""))
    return out


def grouped(noted: Sequence[Note]) -> Iterator[tuple[tuple[str, str, str, str], int, list[int]]]:
    """Severity, rule, message and remedy of notes that differ only in the line, how many they are, and the first lines
    (0: the file as a whole); those of the first line first.
    """
    groups: dict[tuple[str, str, str, str], list[Note]] = {}
    for note in sorted(noted, key=lambda note: note.line or 0):
        groups.setdefault((note.severity, note.rule, note.message, note.remedy), []).append(note)
    for what, notes in groups.items():
        lines = chain.from_iterable((note.line or 0, *note.others[:_SHOWN]) for note in notes)
        yield what, sum(1 + len(note.others) for note in notes), nsmallest(_SHOWN, lines)


def lint_frame(file: OverrideFile) -> pd.DataFrame:
    """One row per note: file, line, severity, rule, message, remedy."""
    import pandas as pd

    columns = {name: [getattr(note, name) for note in file.notes] for name in _NOTE[1:]}
    return pd.DataFrame({"file": [file.title] * len(file.notes), **columns}).astype({"line": "Int64"})


def unread_lines(unread: Sequence[Unread]) -> list[str]:
    """Which of several files were not judged and why; what could have been, once."""
    out = [f"error: {file.path}: {file.why}" for file in unread]
    return [*out, f"what is checked: {CHECKED} (--as names it where it is one)"] if out else []


def unread_frame(unread: Sequence[Unread]) -> pd.DataFrame:
    """The same beside ``lint_frame``'s rows."""
    import pandas as pd

    rows = [{"file": x.path, "line": None, "severity": "error", "rule": "unread", "message": x.why} for x in unread]
    return pd.DataFrame(rows, columns=_NOTE).astype({"line": "Int64"})


def rows_frame(file: OverrideFile) -> pd.DataFrame:
    """One row per row of the file: line, key, solution, and whether it will be read, matched and honoured."""
    import pandas as pd

    columns = ["file", "line", "key", "solution", "read", "matched", "honoured", "why"]
    rows = [
        {
            "file": file.title,
            "line": row.line,
            "key": row.key,
            "solution": row.solution.text if row.solution else None,
            **asdict(row.verdicts),
        }
        for row in file.rows
    ]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("read", "matched", "honoured"), "boolean"))


def convert_lines(found: Converted) -> list[str]:
    out = [f"{counted(found.rows, 'row')}; {sum(found.refused.values()):,} left out"]
    ranked = sorted(found.refused.items(), key=lambda entry: (-entry[1], entry[0]))
    out += [f"  {count:,}: {reason}" for reason, count in ranked[:_SHOWN]]
    out += [f"  and {len(ranked) - _SHOWN:,} reasons more"] if len(ranked) > _SHOWN else []
    return [*out, *(f"note: {note}" for note in found.notes)]


def merge_lines(found: Merged) -> list[str]:
    untimed = sum(conflict.taken.time_us is None for conflict in found.conflicts)
    out = [f"{counted(found.keys, 'key')}; {len(found.conflicts):,} with different solutions, the fastest taken"]
    out[0] += f" ({untimed:,} without times: the first file's)" if untimed else ""
    for conflict in found.conflicts:
        others = "; ".join(f"{x.solution} {_ms(x.time_us)} ({x.file}:{x.line})" for x in conflict.others)
        taken = conflict.taken
        out.append(f"  {conflict.key}: {taken.solution} {_ms(taken.time_us)} ({taken.file}:{taken.line}), not {others}")
    return [*out, *(f"  {note}" for note in found.notes)]


def export_lines(found: Exported) -> list[str]:
    ranked = Counter(found.refused).most_common()
    if not found.problems and not found.refused:
        return ["nothing to export: no problem that was chosen is of a kind that this format has"]
    out = [counted(found.problems, "problem"), *(f"  left out {n:,}: {reason}" for reason, n in ranked[:_SHOWN])]
    return [*out, *([f"  and {len(ranked) - _SHOWN:,} reasons more"] if len(ranked) > _SHOWN else [])]


def _ms(us: float | None) -> str:
    return "without a time" if us is None else f"{us / 1000:.6g} ms"


# ------------------------------------------------------------------------------------------------------------ answers


def lint_answer(judged: Sequence[OverrideFile], unread: Sequence[Unread], rows: bool) -> Answer:
    """Verdicts on files, or with ``rows`` on each row of them."""
    code = CHECK_FAILED if not all(file.ok for file in judged) else int(bool(unread))
    if rows:
        table = _together([rows_frame(file) for file in judged])
        return Answer([table], table, "lint --rows", errors=unread_lines(unread), code=code)
    return Answer(
        [line for file in judged for line in lint_lines(file)],
        lambda: _together([*map(lint_frame, judged), unread_frame(unread)]),
        "lint",
        errors=unread_lines(unread),
        code=code,
    )


def _together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def written_answer(made: Merged | Converted | Exported, out: Path, read: Sequence[str] = ()) -> Answer:
    """Write what was merged, converted or exported into the folder ``out``, and list it with what was left out; exit
    code 1 where nothing could be converted or exported.  ``read``: files that must stay.
    """
    files = write(made.emissions, out, read)
    if isinstance(made, Merged):  # of several equal copies one has the lines of use
        copies = [replace(file, use="") for file in files[:-1]]
        return Answer([*merge_lines(made), *wrote_lines([*copies, *files[-1:]])])
    if isinstance(made, Converted):
        return Answer([*convert_lines(made), *wrote_lines(files)], code=int(not made.emissions))
    return Answer([*export_lines(made), *wrote_lines(files)], code=int(not made.problems))


def formats_answer() -> Answer:
    """Every format that is read, then every file that is written."""
    import pandas as pd

    rows = [{"name": x.name, "what": "read", "about": x.about} for x in FORMATS]
    rows += [{"name": x.name, "what": "write", "about": x.about} for x in WRITERS]
    return Answer([rows], pd.DataFrame(rows), "formats")
