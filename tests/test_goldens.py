"""Tests that logparse reads every sample log into exactly the rows of its golden file (the expected output)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from logparse.ingest.input_file import InputFile
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat
from logparse.libraries.override_formats import OVERRIDE_FORMATS
from logparse.store import Store
from tests.conftest import SAMPLE_FILES, SAMPLES
from tests.golden import Goldens
from tests.libraries.reading import check_conservation

GOLDENS = Path(__file__).parent / "goldens"
SECTIONS = {
    "calls": "category, kind, problem, solution, pid, first_seen, count, by_tool, workspace_bytes from calls",
    "messages": "category, function, text, count from messages",
    "measurements": "origin, kind, problem, solution, algorithm, status, time_us, min_us, max_us, std_us,"
    " workspace_bytes, error, key_text, ordinal from measurements",
    "kernels": "device, op, problem, kernel, calls, total_us, min_us, max_us, unit from kernels",
    "collectives": "device, ranks, kernel, start_us, us, alone_us from collectives",
    "solutions": "library, build, solution, name, kernel_name from own_solutions",
    "facts": "name, value from facts",
    "rejects": '"offset", length, count, reason from rejects',
}
OWN_SOLUTIONS = """
    create temp view own_solutions as
    select distinct s.source_id, t.library, b.build, t.solution, t.name, t.kernel_name
    from solutions_ t join commits_ s using (attempt) left join (
        select source_id, string_agg(value, ' ' order by name, value) as build from facts
        where name in ('hipblaslt_version', 'hipblaslt_revision') group by source_id) b using (source_id)"""
"""SQL that makes a view with the kernels in each log file.

The ordinary view ``solutions`` lists a kernel only once, even if several files contain it.
"""


def golden_of(sample: Path) -> Path:
    return GOLDENS / sample.relative_to(SAMPLES).with_name(sample.name + ".txt")


def rendered(store: Store) -> dict[str, str]:
    """Return the text that each log's golden file (expected output) must contain: {path: text}.

    The text has a section for each table, with the rows from this log as sorted CSV.
    """
    with store.connect() as con:
        con.execute(OWN_SOLUTIONS)
        tables = {
            name: dict(iter(con.execute(f"select source_id, {sql} order by all").df().groupby("source_id")))
            for name, sql in SECTIONS.items()
        }
    out = {}
    for row in store.sources().to_dict("records"):
        units = {str(name): int(row[name]) for name in row if str(name).endswith("_lines") and row[name]}
        pid = "" if pd.isna(row["pid"]) else int(row["pid"])
        pid_from = "" if pd.isna(row["pid_from"]) else row["pid_from"]
        text = [f"format {row['format']}", f"lines {row['lines']} splits {row['splits']} pid {pid} {pid_from}".rstrip()]
        text += [f"{name} {count}" for name, count in units.items()]
        for name, rows in tables.items():
            if row["source_id"] in rows:
                own = rows[row["source_id"]].drop(columns="source_id")
                csv = own.to_csv(index=False, lineterminator="\n", float_format="%.9g")
                text += [f"[{name}]", csv.rstrip("\n")]
        out[str(row["path"])] = "\n".join(line.rstrip() for line in "\n".join(text).splitlines()) + "\n"
    return out


@pytest.fixture(scope="module")
def rows(samples: Store) -> dict[str, str]:
    """Return what was read from each sample log, as text that is compared with its golden file.

    First it is checked that no line of a log was lost or counted twice.
    """
    check_conservation(samples)
    return rendered(samples)


@pytest.mark.parametrize("sample", SAMPLE_FILES, ids=lambda p: str(p.relative_to(SAMPLES)))
def test_sample_gives_its_golden_rows(sample: Path, rows: dict[str, str], golden: Goldens) -> None:
    golden.check(golden_of(sample), rows[str(sample)])


def test_every_format_has_a_sample() -> None:
    """For every log format there is a sample log, so that a golden file (expected output) covers the format."""
    read = {name for path in GOLDENS.rglob("*.txt") for name in path.read_text().partition("\n")[0][7:].split("+")}
    assert read >= {format.name for format in FORMATS}


def test_no_golden_is_left_over(golden: Goldens) -> None:
    golden.check_names(GOLDENS, map(golden_of, SAMPLE_FILES), "**/*.txt")


def test_exactly_one_format_recognises_a_sample() -> None:
    """logparse recognises the format of each sample log, without any doubt between two formats."""
    # Some formats read whole files. Only one of them may recognise a sample. Other formats read single lines, and then
    # at least one must find its marks in the file.
    for sample in SAMPLE_FILES:
        file = InputFile(str(sample))
        head, data = file.head(), file.open().read()
        whole = [f.name for f in FORMATS if isinstance(f, FileFormat) and f.recognise(head)]
        spoken = [f.name for f in FORMATS if not isinstance(f, FileFormat) and any(m in data for m in f.markers)]
        # ingest does not read some of the override formats
        linted = [x.name for x in OVERRIDE_FORMATS if x.recognise(head)]
        assert len(whole) == 1 or (not whole and (spoken or linted)), (sample, whole, spoken)
