"""The rows of every sample, compared with its golden.

After a wanted change: ``python -m tests.test_goldens [SAMPLE…]``, then review the diff.  Without samples all goldens
are written, and those of samples that are gone are removed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from logparse.formats import FORMATS
from logparse.formats.format import FileFormat
from logparse.ingest import ingest
from logparse.ingest.input_file import InputFile
from logparse.store import open_store
from tests.conftest import SAMPLE_FILES, SAMPLES
from tests.formats.reading import check_conservation

GOLDENS = Path(__file__).parent / "goldens"
SECTIONS = {
    "calls": "select category, kind, problem, solution, pid, first_seen, count, by_tool, workspace_bytes from calls",
    "messages": "select category, function, text, count from messages",
    "measurements": "select origin, kind, problem, solution, algorithm, status, time_us, min_us, max_us, std_us,"
    " workspace_bytes, error, key_text, ordinal from measurements",
    "kernels": "select device, op, problem, kernel, calls, total_us, min_us, max_us from kernels",
    "solutions": "select library, build, solution, name, kernel_name from solutions",
    "facts": "select name, value from facts",
    "rejects": 'select "offset", length, count, reason from rejects',
}


def golden_of(sample: Path) -> Path:
    return GOLDENS / sample.relative_to(SAMPLES).with_name(sample.name + ".txt")


def rendered(sample: Path, folder: Path) -> str:
    """The rows that a sample gives, sorted, as CSV sections; each of its lines is counted once."""
    store = open_store(folder, create=True)
    ingest([str(sample)], store, run="golden")
    check_conservation(store)
    row = store.sources().iloc[0]
    units = {name: int(row[name]) for name in row.index if name.endswith("_lines") and row[name]}
    pid = "" if pd.isna(row["pid"]) else int(row["pid"])
    pid_from = "" if pd.isna(row["pid_from"]) else row["pid_from"]
    out = [f"format {row['format']}", f"lines {row['lines']} splits {row['splits']} pid {pid} {pid_from}".rstrip()]
    out += [f"{name} {count}" for name, count in units.items()]
    with store.connect() as con:
        frames = {name: con.execute(f"{sql} order by all").df() for name, sql in SECTIONS.items()}
    for name, frame in frames.items():
        if len(frame):
            out += [f"[{name}]", frame.to_csv(index=False, lineterminator="\n", float_format="%.9g").rstrip("\n")]
    return "\n".join(line.rstrip() for line in "\n".join(out).splitlines()) + "\n"


@pytest.mark.parametrize("sample", SAMPLE_FILES, ids=lambda p: str(p.relative_to(SAMPLES)))
def test_sample_gives_its_golden_rows(sample: Path, tmp_path: Path) -> None:
    assert rendered(sample, tmp_path / "s") == golden_of(sample).read_text(encoding="utf-8")


def test_every_format_has_a_sample() -> None:
    """That it reads, so that its rows are in a golden."""
    read = {name for path in GOLDENS.rglob("*.txt") for name in path.read_text().partition("\n")[0][7:].split("+")}
    assert read >= {format.name for format in FORMATS}


def test_no_golden_is_left_over() -> None:
    assert set(GOLDENS.rglob("*.txt")) == {golden_of(sample) for sample in SAMPLE_FILES}


@pytest.mark.parametrize("sample", SAMPLE_FILES, ids=lambda p: str(p.relative_to(SAMPLES)))
def test_exactly_one_format_recognises_a_sample(sample: Path) -> None:
    """A whole file is one format's; a stream is no whole file and holds lines of some format."""
    file = InputFile(str(sample))
    head, data = file.head(), file.open().read()
    whole = [f.name for f in FORMATS if isinstance(f, FileFormat) and f.recognise(head)]
    spoken = [f.name for f in FORMATS if not isinstance(f, FileFormat) and any(m in data for m in f.markers)]
    assert len(whole) == 1 or (not whole and spoken), (whole, spoken)


def main(names: Sequence[str]) -> None:
    """Write the goldens of samples, or all anew."""
    for old in () if names else GOLDENS.rglob("*.txt"):
        old.unlink()
    for sample in [Path(name).resolve() for name in names] or SAMPLE_FILES:
        golden = golden_of(sample)
        golden.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            golden.write_text(rendered(sample, Path(folder) / "s"), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
