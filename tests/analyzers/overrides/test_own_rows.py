"""Tests that a new override file (choice of kernels) keeps the lines of the user's own file that it replaces.

No line is kept if the user's file is for another library build.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import with_own
from logparse.errors import InputError
from logparse.ingest.stated_target import target_from
from logparse.libraries.kinds.format import Emission
from logparse.quoting import Shell
from tests.conftest import SAMPLES

CSV = SAMPLES / "tunableop/tunableop_results0.csv"
TUNING = SAMPLES / "hipblaslt/tuning_7.0.txt"
USER = SAMPLES / "miopen/gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt"
TARGET = target_from([str(CSV), str(USER)])


def solutions(name: str, data: bytes) -> dict[str, list[str]]:
    judged = inspect(name, data, TARGET)
    assert judged.ok, judged.notes
    out: dict[str, list[str]] = {}
    for row in judged.rows:
        assert row.live
        out.setdefault(row.key, []).append(row.solution.text if row.solution else "")
    return out


@pytest.mark.parametrize(("path", "depth", "head"), [(CSV, 1, 5), (TUNING, 2, 1), (USER, 1, 0)])
def test_new_rows_replace_the_users_rows_with_the_same_key(path: Path, depth: int, head: int) -> None:
    """If the user's override file and the new one name different kernels for a call, the new kernel is written.

    All other lines of the user's file are kept.
    """
    lines = path.read_text().splitlines()
    new = "\n".join(lines[head : head + depth])
    changed = new.replace("105633", "7").replace("105597", "7").replace("ConvHip", "ConvCk", 1)
    data = "\n".join([*lines[:head], changed, ""]).encode()
    name = {CSV: "tunableop_results0.csv", TUNING: "hipblaslt_tuning.txt", USER: USER.name}[path]
    script = Emission("apply.sh", b"# a script\n", Shell())
    (made, other), notes = with_own([Emission(name, data, Shell("use")), script], [str(path)], TARGET)
    assert other == script
    mine, own, found = solutions(name, data), solutions(path.name, path.read_bytes()), solutions(name, made.data)
    assert found == {**own, **mine}
    assert made.data.startswith(data)
    assert notes == [f"{len(own) - 1:,} rows of {path} kept in {name}"]
    assert with_own([made], [str(path)], TARGET)[0] == [made], "once more changes nothing"


def test_what_cannot_be_kept_is_reported(tmp_path: Path) -> None:
    emitted = [
        Emission("tunableop_results0.csv", CSV.read_bytes(), Shell()),
        Emission("t.txt", TUNING.read_bytes(), Shell()),
    ]
    old = SAMPLES / "tunableop/torch2.5/tunableop_results0.csv"
    files, notes = with_own(emitted, [str(old), str(SAMPLES / "hipblaslt/tuning_6.4.txt"), str(USER)], TARGET)
    assert files == emitted
    assert [x.partition(" is kept: ")[2].partition(":")[0] for x in notes] == [
        "PyTorch rejects the whole file",
        "the file has the layout of another version of hipBLASLt",
        "no new file of this format is written, so your own file stays in use",
    ]
    for wrong in (tmp_path / "none", SAMPLES / "tables/aiter_bf16_tuned_gemm.csv", SAMPLES / "tunableop/README.md"):
        with pytest.raises(InputError):
            with_own(emitted, [str(wrong)], TARGET)
