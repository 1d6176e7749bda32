"""Tests of the subcommands that check override files, from reading the samples to the printed verdicts.

An override file is the user's list of kernels to use instead of the library's choice.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analyzers.compare.render import compare
from analyzers.compare.verify import verify_at
from analyzers.evidence.runs import tables_at, tables_of
from analyzers.overrides.coverage import coverage, rows
from analyzers.overrides.coverage import lines as coverage_lines
from analyzers.overrides.export import lines as export_lines
from analyzers.overrides.export import of_store as export
from analyzers.overrides.lint import files_in, lint, lint_files, note_rows, unread_lines
from analyzers.overrides.merge import merge
from analyzers.overrides.write import write
from logparse.cli import app
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.ingest.stated_target import target_from
from logparse.store import Store, open_store
from tests.conftest import SAMPLES

TUNED = str(SAMPLES / "tunableop/tunableop_results0.csv")
TUNING = str(SAMPLES / "hipblaslt/tuning_7.0.txt")
LOG = str(SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log")


def target(*words: str) -> dict[str, str]:
    return target_from(words)


@pytest.fixture
def job(store: Store) -> Store:
    ingest([LOG, TUNED], store, run="job")
    return store


def test_lint_for_a_target() -> None:
    (good, bad), _ = lint_files([TUNED, str(SAMPLES / "tunableop/torch2.5/tunableop_results0.csv")], target(TUNED))
    assert (good.accepted, good.ok, bad.accepted, bad.ok) == (True, True, False, False)


def test_coverage_of_the_job(job: Store) -> None:
    tables = tables_of(job)
    tuned, tuning = (coverage(file, tables) for file in lint_files([TUNED, TUNING], None, tables)[0])
    assert (tuning.share("calls") or 0) > 0.9
    assert (tuned.share("calls") or 0) > 0.5
    lines = coverage_lines(tuned)
    assert lines[0].startswith("tunableop_results0.csv covers ")
    assert "hit nothing in this run" in "\n".join(lines)
    assert {row["state"] for row in rows(tuned)} <= {"hit", "miss", "unknown"}
    assert len(rows(tuned)) == len(tuned.uses)


def test_words_that_name_a_run(job: Store, tmp_path: Path) -> None:
    assert tables_at(job.url).run == "job"
    assert tables_at(f"{job.url}#job").run == "job"
    assert tables_at("job", job.url).run == "job"
    assert len(tables_at(LOG, job.url).workload) > 0
    (tmp_path / "text.txt").write_text("nothing of ours\n")
    for word in (str(tmp_path / "text.txt"), str(tmp_path / "none")):
        with pytest.raises(InputError, match="neither a store, nor a run"):
            tables_at(word, job.url)


def test_a_label_and_a_log_may_hold_the_mark_between_store_and_run(tmp_path: Path) -> None:
    log = tmp_path / "job#7.log"
    shutil.copy(LOG, log)
    store = open_store(tmp_path / "store", create=True)
    ingest([LOG], store, run="a#b")
    assert tables_at("a#b", store.url).run == "a#b"
    assert tables_at(f"{store.url}#a#b").run == "a#b"
    assert len(tables_at(str(log), store.url).workload) > 0


def test_a_run_against_itself(job: Store) -> None:
    found, plan, _ = compare("job", "job", job.url, overrides=[TUNED, TUNING])
    assert found.ok
    assert found.count("same", "unknown") == len(found.rows)
    assert len(plan) == 20 + 17
    assert {step.action for step in plan} == {"keep", "drop"}


def test_verify_names_what_did_not_take_effect(job: Store) -> None:
    found = verify_at("job", "job", [TUNING], job.url)
    effects = {x.effect for x in found.outcomes}
    assert effects == {"as before", "not applied"}, "of a run beside itself nothing is shown"
    assert not found.ok
    *others, last = found.failures
    assert all("was intended" in failure for failure in others)
    assert "also ran in the first run" in last


def test_export_and_write(job: Store, tmp_path: Path) -> None:
    made = export(job, "bench", n=3)
    assert made.count == 3
    [written] = write(made.files, tmp_path / "out")
    assert written.lines == [f"sh {written.path.absolute()}"]
    assert export_lines(made) == ["3 problems", "  left out 14: problems beyond the limit of -n"]
    chosen = export(job, "bench", sql="select distinct problem from workload limit 2")
    assert chosen.count == 2
    with pytest.raises(InputError, match="column problem"):
        export(job, "bench", sql="select calls from workload")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("tunableop/tunableop_untuned0.csv", "is tunableop-untuned .*which no library reads as overrides"),
        ("tables/a8w8_untuned_gemm.csv", "a table of aiter that lint cannot check"),
        (
            "tunableop/README.md",
            "the file is not an override file that logparse knows; lint checks: aiter",
        ),
    ],
)
def test_what_is_not_checked_is_reported(file: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        lint_files([str(SAMPLES / file)])


def test_a_folder_stands_for_the_files_that_its_apply_sh_lists(tmp_path: Path) -> None:
    """``verify`` of a folder checks what ``run --with`` applies, and not what a search has written beside it."""
    for name in ("tunableop_results0.csv", "found_later.csv"):
        shutil.copy(TUNED, tmp_path / name)
    with pytest.raises(InputError, match=r"no apply\.sh that lists override files"):
        files_in([str(tmp_path)])
    script = b"# caf\xe9\nhere << 'END'\nfile tunableop_results0.csv\nfact arch gfx942\nEND\n"  # not UTF-8
    (tmp_path / "apply.sh").write_bytes(script)
    listed = str(tmp_path / "tunableop_results0.csv")
    assert files_in([str(tmp_path), listed]) == [listed]
    assert [x.name for x in lint_files([str(tmp_path.parent / tmp_path.name)])[0]] == ["tunableop_results0.csv"]


def test_a_table_of_flydsl_is_not_judged_by_the_rules_of_triton(tmp_path: Path) -> None:
    file = tmp_path / "E=384,N=256,device_name=AMD_Instinct_MI350X,dtype=int4_w4a16,backend=flydsl.json"
    file.write_text('{"1": {"tile_m": 16, "tile_n": 64}}')
    for judged in (lambda: lint_files([str(file)]), lambda: merge([str(file)])):
        with pytest.raises(
            InputError,
            match=r"settings of FlyDSL kernels, which lint cannot check, because it is not known how vLLM reads",
        ):
            judged()


def test_lint_lists_files_that_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``logparse lint`` lists the given files that it cannot check, such as ``notes.txt``, and checks the others.

    Its exit code is not 0 if there were other files.
    """
    (tmp_path / "b").mkdir()
    for name, text in {"a.csv": Path(TUNED).read_text(), "b/a.csv": Path(TUNED).read_text(), "notes.txt": "x"}.items():
        (tmp_path / name).write_text(text)
    good, none = [str(tmp_path / "a.csv"), str(tmp_path / "b/a.csv")], str(tmp_path / "notes.txt")
    judged, unread = lint_files([*good, none, str(tmp_path / "gone"), good[0]])
    assert [file.title for file in judged] == good, "the names alone do not distinguish them; none is reported twice"
    assert [(x.path, x.why) for x in unread] == [
        (none, "the file is not an override file that logparse knows"),
        (str(tmp_path / "gone"), "No such file or directory"),
    ]
    assert [line.partition(": ")[0] for line in unread_lines(unread)] == ["error", "error", "lint checks"]
    assert [x["severity"] for x in note_rows([], unread)] == ["error", "error"]

    bad = str(SAMPLES / "tunableop/torch2.5/tunableop_results0.csv")
    target = ["--target", TUNED]
    for files, code in (([good[0]], 0), ([good[0], none], 1), ([none, bad, good[0]], 3)):
        with pytest.raises(SystemExit) as end:
            app(["lint", *files, *target])
        assert end.value.code == code
        told = capsys.readouterr()
        assert (f"error: {none}: the file is not an override" in told.err) is (none in files)
        assert ("a.csv: tunableop-results, accepted" in told.out) is (good[0] in files)


def test_the_ordinal_of_a_name_is_held_against_the_number_of_devices(tmp_path: Path) -> None:
    for name, ok in (("tunableop_results7.csv", True), ("tunableop_results8.csv", False)):
        shutil.copy(TUNED, tmp_path / name)
        ((judged,), _) = lint_files([str(tmp_path / name)], target(TUNED, "gpus=8"))
        assert judged.ok is ok
        assert ["file-name"] * (not ok) == [note.rule for note in judged.notes]
    for word in ("gpus=0", "gpus=x"):
        with pytest.raises(InputError, match="1 or more"):
            target(word)


def test_wrong_usage_is_reported(job: Store, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    with pytest.raises(InputError, match=r"empty\.csv: the file is empty"):
        lint_files([str(tmp_path / "empty.csv")])
    with pytest.raises(InputError, match="--as csv: must be one of aiter, aiter-kernels, hipblaslt-tuning-file"):
        lint_files([TUNED], format="csv")
    with pytest.raises(InputError, match=r"foo=bar: No such file.* and not a fact NAME=VALUE; the names are arch"):
        target("foo=bar")
    with pytest.raises(InputError, match="there is job"):
        tables_at("jbo", job.url)
    with pytest.raises(InputError, match="'x' is not the text of a problem"):
        export(job, "bench", sql="select 'x' as problem")
    told = export_lines(export(job, "untuned"))
    assert len(told) < 10, "each reason once"
    assert told[1].startswith("  left out ")
    measured = coverage(lint(TUNED), tables_at(TUNED))
    assert coverage_lines(measured)[0].endswith("calls no GEMM, so the file can cover nothing")


def test_a_file_is_checked_with_its_own_validators(store: Store) -> None:
    """The version lines ("validators") of one TunableOp file are not used to check another file."""
    # PyTorch refuses a file unless exactly the right validators are in it. An older file of the same run may have one
    # more of them. With that one, every newer file would seem to be refused.
    ingest([LOG, TUNED, str(SAMPLES / "tunableop/torch2.5/tunableop_results0.csv")], store, run="job")
    tables = tables_of(store)
    for words in ([TUNED], []):
        ((judged,), _) = lint_files([TUNED], target(*words), tables)
        assert judged.ok
        assert judged.accepted is (True if words else None)
        assert coverage(judged, tables).hits
