"""Tests that ``ingest`` of a folder leaves out files that logparse itself wrote, unless somebody changed them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from analyzers.overrides.write import write
from logparse.ingest import ingest
from logparse.ingest.render import answer
from logparse.libraries.kinds.format import Emission
from logparse.output.answer import Answer, TableFormat, show
from logparse.output.own_files import LIST, is_own, read_digests, remember
from logparse.quoting import Shell
from logparse.store import Store
from tests.conftest import SAMPLES

RESULTS = SAMPLES / "tunableop" / "tunableop_results0.csv"
LOG = SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"


def test_overrides_do_not_count_as_measurements_of_the_next_run(tmp_path: Path, store: Store) -> None:
    job = tmp_path / "job"
    job.mkdir()
    shutil.copy(LOG, job)
    [made] = write([Emission("tunableop_results0.csv", RESULTS.read_bytes(), Shell())], job / "overrides" / "gfx942")
    log, left_out = ingest([str(job)], store, run="after")
    assert (log.format, left_out.state) == ("hipblaslt-bench+hipblaslt-bench-output", "left out")
    assert store.measurements().empty
    shown = answer([log, left_out])
    assert shown.code == 0
    assert shown.errors[-1].endswith(
        "left out: 1 file that logparse itself wrote (to read such a file, name the file and not its folder)"
    )

    [named] = ingest([str(made.path)], store, run="named")
    assert named.units["measurement"] > 0, "its own path reads it"


@pytest.mark.parametrize("change", ["rows", "name"])
def test_changed_files_of_logparse_are_read(tmp_path: Path, store: Store, change: str) -> None:
    """``ingest`` skips files that logparse wrote, unless their contents have changed since.

    For example, MIOpen adds results to its file of solver times. If a file was only renamed, it is still skipped.
    """
    [made] = write([Emission("tunableop_results0.csv", RESULTS.read_bytes(), Shell())], tmp_path)
    if change == "rows":
        row = "GemmTunableOp_Half_NN,nn_64_64_64_ld_64_64_64,Default,0.01\n"
        made.path.write_text(made.path.read_text() + row)
    else:
        made.path.rename(made.path.with_name("kept.csv"))
    results = ingest([str(tmp_path)], store)
    assert [x.state for x in results] == (["new"] if change == "rows" else ["failed"])
    if change == "name":
        assert "logparse itself wrote all files that were found" in results[0].error


def test_a_saved_answer_is_not_read_as_a_log(tmp_path: Path, store: Store) -> None:
    """If a user saves an answer of logparse to a file (``-o``), this file is not read as a log later."""
    # In an earlier version, a saved table of matrix products with their numbers of calls was read as new data of a job.
    ingest([str(LOG)], store, run="r")
    table = pa.Table.from_pandas(store.query("select problem, calls from workload"))
    out = tmp_path / "out"
    out.mkdir()
    show(Answer(table=table), TableFormat.csv, str(out / "calls.csv"))
    [result] = ingest([str(out)], store)
    assert "logparse itself wrote all files that were found" in result.error


def test_lists(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1")
    remember([file])
    first = read_digests(tmp_path)
    assert is_own(file, first)
    file.write_text("2")
    assert not is_own(file, first)
    remember([file, tmp_path / "missing.csv"])
    assert is_own(file, read_digests(tmp_path))
    assert len((tmp_path / LIST).read_text().splitlines()) == 1, "a file that is written again has one line"
    (tmp_path / LIST).write_bytes(b"\xff\n\n" + (tmp_path / LIST).read_bytes())
    assert is_own(file, read_digests(tmp_path)), "a damaged list"
    assert not is_own(tmp_path / "missing.csv", read_digests(tmp_path))
    assert read_digests(tmp_path / "nowhere") == frozenset()
