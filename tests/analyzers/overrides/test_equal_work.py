"""Tests that times of matrix products with β = 0 and with β ≠ 0 are not compared.

With β ≠ 0 a product does more work, because it also reads C. hipBLASLt's files do not tell the two apart.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.compare.diff import diff
from analyzers.compare.timings import times_of_run
from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import lines, merge
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.libraries.hipblaslt.tuning_file import TUNING_COLUMNS
from logparse.lookup.ranking import top
from logparse.store import Store, open_store
from tests.program import run

FIRST = "Git Version: abc\n"


def entry(index: int, us: float, m: int = 64, **cells: str) -> str:
    """Return one row of a hipBLASLt tuning file, with its line of column names.

    ``cells`` has the values that differ from a plain bf16 product.
    """
    values = dict.fromkeys(TUNING_COLUMNS, "0") | dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "bf16_r")
    values |= dict(zip(("m", "n", "k", "lda", "ldb", "ldc", "ldd"), map(str, (m, 32, 96, m, 96, m, m)), strict=True))
    values |= {"transA": "N", "transB": "N", "batch_count": "1", "alpha": "1", "compute_type": "f32_r"}
    values |= {"activation_type": "none", "bias_type": "f32_r", "gcnArchName": "gfx942", "CUs": "304"}
    values |= {"us": str(us), "solution_index": str(index), **cells}
    return f"    {','.join(TUNING_COLUMNS)}\n    {','.join(values[x] for x in TUNING_COLUMNS)}\n"


def file(folder: Path, name: str, *entries: str) -> str:
    path = folder / name
    path.write_text(FIRST + "".join(entries), encoding="utf-8")
    return str(path)


def test_lint_keeps_both_and_asks_for_times_of_both() -> None:
    text = FIRST + entry(7, 9.0) + entry(8, 5.0, beta="1")
    judged = inspect("t.txt", text.encode(), {"hipblaslt_version": "100202"})
    [note] = [x for x in judged.notes if x.rule in ("conflict", "shared")]
    assert (note.rule, note.severity, note.line) == ("shared", "warning", 5)
    assert "different work (beta nonzero, beta zero)" in note.message
    alike = inspect("t.txt", (FIRST + entry(7, 9.0) + entry(8, 5.0)).encode(), {"hipblaslt_version": "100202"})
    assert [x.rule for x in alike.notes if x.severity == "error"] == ["conflict"]


@pytest.mark.parametrize("name", ["one", "two"])
def test_merge_compares_times_of_equal_work_only(tmp_path: Path, name: str) -> None:
    """When hipBLASLt files are merged, a shorter time for β ≠ 0 never replaces a line for β = 0.

    For each line that is left out, a note names the line and its β.
    """
    # With β ≠ 0 a matrix product does more work.
    rows = [entry(7, 9.0), entry(8, 5.0, beta="1"), entry(9, 8.0)]
    texts = {"one": [rows], "two": [rows[:1], rows[1:]]}[name]
    made = merge([file(tmp_path, f"{number}.txt", *text) for number, text in enumerate(texts)])
    assert made.files[0].data.decode() == FIRST + entry(9, 8.0)
    [conflict] = made.conflicts
    assert (conflict.taken.offer.solution.removeprefix("hipblaslt:"), conflict.equal_work) == ("9", False)
    assert "hipblaslt:8 0.005 ms for beta nonzero" in " ".join(lines(made))
    assert "uses one row for calls that share a key" in lines(made)[1]


def test_labels_differ(tmp_path: Path, store: Store) -> None:
    ingest([file(tmp_path, "t.txt", entry(7, 9.0), entry(8, 5.0, beta="1"))], store)
    assert sorted(top(store)["problem"]) == ["NN 64×32×96 bf16_r", "NN 64×32×96 bf16_r β≠0"]


def test_diff_compares_products_with_the_same_key(tmp_path: Path) -> None:
    """``logparse diff`` compares two matrix products if hipBLASLt's tuning files have the same key for them."""
    # For example, the key does not contain the types of scales. There is one exception: a time for β ≠ 0 is never
    # compared with a time for β = 0, because the kernel then does more work.
    scaled = {"scaleA": "1", "scaleB": "1", "a_type": "f8_r", "b_type": "f8_r"}
    plain = {**scaled, "scaleA": "0", "scaleB": "0"}
    before = [entry(1, 9.0, **scaled), entry(2, 8.0, 128, **scaled), entry(3, 5.0, 256, **scaled)]
    after = [entry(4, 6.0, **plain), entry(5, 7.0, 128, **plain), entry(6, 1.0, 128, beta="1", **plain)]
    runs = []
    for name, entries in (("a", before), ("b", after)):
        held = open_store(tmp_path / name, create=True)
        ingest([file(tmp_path, f"{name}.txt", *entries)], held)
        runs.append(times_of_run(held))
    found = diff(*runs)
    states = {(x["state"], x["a_us"] or 0.0, x["b_us"] or 0.0) for x in found.table().to_pylist()}
    assert states == {("faster", 9.0, 6.0), ("faster", 8.0, 7.0), ("vanished", 5.0, 0.0), ("new", 0.0, 1.0)}


def test_a_merge_without_a_row_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    path = file(tmp_path, "t.txt", entry(0, 9.0))
    with pytest.raises(InputError, match=r"no row can be used; .*t\.txt, line 3: left out: solution index '0'"):
        merge([path])
    out = tmp_path / "merged"
    assert run("merge", path, "--out", str(out)).returncode == 1
    assert not out.exists()
