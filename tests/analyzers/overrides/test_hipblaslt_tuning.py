"""Each broken rule of a tuning file is named; entries of both layouts are read by the version that reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.lint import inspect
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.hipblaslt.columns import TUNING_COLUMNS
from logparse.formats.override_format import OverrideFile
from logparse.model import GemmProblem, Override, Solution
from tests.analyzers.example import ARCH, gemm
from tests.conftest import CORPUS, SAMPLES, needs_corpus

OLD = {"hipblaslt_version": "1200", "hipblaslt_revision": "3b3d59eb", "arch": ARCH, "cu_count": "304"}
NEW = OLD | {"hipblaslt_version": "100000"}
FIRST = "Git Version: 3b3d59eb\n"
HEADER = "    " + ",".join(TUNING_COLUMNS) + "\n"
ROW = (
    "    T,N,0,1,4096,512,1024,1,1024,4194304,0,1024,524288,4096,2097152,4096,2097152,bf16_r,bf16_r,bf16_r,bf16_r,"
    f"f32_r,0,0,0,0,0,none,0,f32_r,512,481566,200.742,8.9,105597,{ARCH},304\n"
)


def judged(text: str, target: dict[str, str]) -> OverrideFile:
    return inspect("tuning.txt", text.encode(), target)


def rules(text: str, target: dict[str, str]) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in judged(text, target).notes]


def test_what_the_writer_writes_is_clean() -> None:
    for target in (OLD, NEW, {k: v for k, v in OLD.items() if k != "hipblaslt_version"}):
        made = tuning_file.write([Override(problem=gemm(), solution=Solution("hipblaslt", "7"), target=target)], target)
        file = inspect("t.txt", made[0].data, target)
        assert (file.accepted, file.notes) == (True, ())
        assert [(row.live, row.verdicts.honoured, row.key) for row in file.rows] == [
            (True, True, tuning_file.key(gemm(), target))
        ]


def test_the_rule_of_37() -> None:
    wide = FIRST + HEADER.replace("512,", "512,").rstrip("\n") + ",splitK\n" + ROW.rstrip("\n") + ",1\n"
    assert rules(wide, OLD) == [(3, "error", "37-values")]
    assert judged(wide, OLD).rows[0].dead
    assert rules(wide, NEW) == []
    assert rules(wide, {}) == [(3, "warning", "37-values")]
    assert rules(FIRST + ROW, OLD) == []
    assert rules(FIRST + ROW, NEW) == [(2, "error", "no-header")]
    assert rules(FIRST + ROW, {}) == [(2, "warning", "no-header")]


def test_rules_about_the_file() -> None:
    whole = FIRST + HEADER + ROW
    assert rules(whole.replace("3b3d59eb", "other"), NEW) == [(1, "error", "revision")]
    assert judged(whole.replace("3b3d59eb", "other"), NEW).accepted is False
    assert rules(HEADER + ROW, NEW)[0] == (1, "error", "revision")
    assert (1, "error", "line-ends") in rules(whole.replace("\n", "\r\n"), NEW)
    assert rules("\ufeff" + whole, NEW) == [(1, "info", "byte-order-mark")]  # the library reads it all the same
    assert rules(whole.replace("3b3d59eb", "3b3d59eb "), {}) == [(1, "error", "revision")]
    assert rules(FIRST, NEW) == [(None, "error", "empty")]


def test_rules_about_entries() -> None:
    whole = FIRST + HEADER + ROW
    for old, new, rule in (
        (",105597,", ",0,", ("error", "index")),
        (",105597,", ",x,", ("error", "index")),
        (",4096,512,", ",4096,five,", ("error", "number")),
        (",bf16_r,bf16_r,f32_r,0", ",bf16_r,f33_r,f32_r,0", None),  # d_type is not read
        ("bf16_r,bf16_r,bf16_r,bf16_r", "bf16_r,bf17_r,bf16_r,bf16_r", ("error", "type")),
        (",bf16_r,f32_r,0", ",bf16_r,f33_r,0", ("warning", "compute-type")),  # read as f32_r
        ("    T,N,", "    T,Q,", ("warning", "trans")),
        ("T,N,0,1,", "T,N,1,1,", ("warning", "grouped")),
        ("gfx942", "gfx90a", ("error", "arch")),
        (",304\n", ",228\n", ("warning", "cu-count")),
    ):
        assert rules(whole.replace(old, new), NEW) == ([(3, *rule)] if rule else []), (old, new)
    assert rules(whole.replace("bf16_r,f32_r,0", "bf16_r,xf32_r,0"), OLD) == [(3, "error", "compute-type")]
    no_column = whole.replace("c_type,", "", 1).replace("bf16_r,bf16_r,bf16_r,bf16_r", "bf16_r,bf16_r,bf16_r")
    assert rules(no_column, NEW) == [(3, "error", "columns")]
    swapped = FIRST + HEADER.replace("transA,transB", "transB,transA") + ROW
    assert rules(swapped, NEW) == [(3, "error", "columns")]


def test_several_entries_of_one_key() -> None:
    other = ROW.replace(",105597,", ",7,")
    assert rules(FIRST + HEADER + ROW + HEADER + ROW, NEW) == [(5, "info", "duplicate")]
    assert rules(FIRST + ROW + other, OLD) == [(2, "error", "conflict")]  # 6.4 tries the latest first
    assert rules(FIRST + HEADER + ROW + HEADER + other, NEW) == [(5, "error", "conflict")]  # 7.0 tries the first first
    assert [x[0] for x in rules(FIRST + HEADER + ROW + HEADER + other, {})] == [3, 5]


def test_samples() -> None:
    for name, target in (("tuning_6.4.txt", {}), ("tuning_7.0.txt", NEW)):
        file = inspect(name, (SAMPLES / "hipblaslt" / name).read_bytes(), target)
        assert file.ok
        assert len(file.rows) == 17
        assert all(row.live for row in file.rows)


@needs_corpus
def test_a_file_of_rocm_6_4() -> None:
    data = (CORPUS / "hipblaslt/tuning_file_6.4_values_only.log").read_bytes()
    file = inspect("t.txt", data, OLD | {"hipblaslt_revision": "d5f81531"})
    assert (file.ok, [row.verdicts.honoured for row in file.rows]) == (True, [True])


def entries(lines: list[str], named: bool) -> dict[int, dict[str, str]]:
    """Line → what the library takes an entry for: ROCm 7 (``named``) by its header's columns, 6.4 by 37 places.

    Blanks within a line are part of names and letters; numbers are read with any around them.
    """
    out, header = {}, None
    for number, line in enumerate(lines, start=1):
        words = [x.strip() if x.strip().isdigit() else x for x in line.lstrip().split(",")]
        if named and "transA" in line:
            header = words
        elif named and header is not None:
            places, start = {}, 0
            for name in WANTED:
                found = [i for i in range(start, len(header)) if header[i] == name]
                if not found or found[0] >= len(words):
                    break
                places[name], start = found[0], found[0] + 1
            if len(places) == len(WANTED):
                out[number] = {name: words[i] for name, i in places.items()}
            header = None
        elif not named and len(words) == len(TUNING_COLUMNS) and not line.startswith("Git Version"):
            out[number] = dict(zip(TUNING_COLUMNS, words, strict=True))
    return out


WANTED = (
    *("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type"),
    "solution_index",
)
EDITS = (",", "", "0", "1", "-", "x", "T", "N", " ", "\r", "f16_r", "transA", "m,", "solution_index")
SHAPES = st.builds(
    gemm,
    st.sampled_from((64, 1024)),
    trans_a=st.sampled_from("NT"),
    trans_b=st.sampled_from("NT"),
    k=st.sampled_from((64, 4096)),
)


@given(st.lists(SHAPES, min_size=1, max_size=4, unique_by=lambda x: x.text), st.booleans(), st.data())
def test_a_dead_entry_serves_no_call(calls: list[GemmProblem], named: bool, data: st.DataObject) -> None:
    """Damaged anywhere: an entry that the library matches with a call is not one that lint calls dead."""
    target = NEW if named else OLD
    wanted = [
        Override(problem=x, solution=Solution("hipblaslt", str(n)), target=target) for n, x in enumerate(calls, start=7)
    ]
    (made,) = tuning_file.write(wanted, target)
    lines = made.data.decode().splitlines()
    for _ in range(data.draw(st.integers(0, 5))):
        place = data.draw(st.integers(1, len(lines) - 1))
        at, cut = data.draw(st.integers(0, len(lines[place]))), data.draw(st.integers(0, 3))
        lines[place] = lines[place][:at] + data.draw(st.sampled_from(EDITS)) + lines[place][at + cut :]
    file = judged("\n".join(lines) + "\n", target)
    dead = {row.line: row.verdicts.why for row in file.rows if row.dead}
    for call in calls:
        own = (call.trans_a == "N", call.trans_b == "N", *map(str, (call.batch_count, call.m, call.n, call.k)))
        own += (call.a_type, call.b_type, call.c_type, call.compute_type)
        for number, cells in entries(lines, named).items():
            index = cells["solution_index"]
            mine = (cells["transA"] == "N", cells["transB"] == "N", *(cells[x] for x in WANTED[2:10]))
            if mine == own and index.isdigit() and int(index) > 0:
                assert number not in dead, dead[number]


@given(st.text(alphabet=" ,\n\r0123456789TNabf_rtrsGi", max_size=400), st.sampled_from([OLD, NEW, {}]))
def test_any_text_is_judged(noise: str, target: dict[str, str]) -> None:
    for text in (noise, FIRST + HEADER + noise, FIRST + HEADER + ROW + noise):
        file = inspect("t.txt", text.encode(), target, "hipblaslt-tuning-file")
        assert len({row.line for row in file.rows}) == len(file.rows)
