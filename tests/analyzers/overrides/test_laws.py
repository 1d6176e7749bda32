"""Tests of rules that logparse must obey for every format of override files (a user's choice of kernels).

For example, logparse must recognise every file that it wrote, read the same rows back, and be able to merge it.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logparse.libraries
from analyzers.overrides.convert import convert
from analyzers.overrides.look_up import look_up
from analyzers.overrides.merge import merge, merge_contents, with_own
from analyzers.overrides.write import make
from logparse.errors import InputError
from logparse.libraries import FORMATS
from logparse.libraries.found import find_modules_called, find_modules_with
from logparse.libraries.kinds.format import Emission, FileFormat, Head, Outcome, Writer
from logparse.libraries.kinds.json_members import members_of
from logparse.libraries.kinds.override_format import OverrideFile, OverrideFormat
from logparse.libraries.kinds.reading import Reading
from logparse.libraries.override_formats import OFFERS, OVERRIDE_FORMATS, WRITERS, format_of, writers_for
from logparse.model import Fact, Measurement, Override
from logparse.quoting import Shell
from logparse.target import Facts
from tests.libraries.reading import Memory
from tests.test_emitted import CASES, TARGET, overrides_of, own_samples


@cache
def samples() -> dict[str, list[tuple[Emission, Facts]]]:
    """Return sample override files (choices of kernels) as {format: [(file, GPU and software that the file is for)]}.

    logparse writes these files. If it cannot write a format, the files without errors in ``sample_logs/`` are taken.
    """
    out: dict[str, list[tuple[Emission, Facts]]] = {}
    for format in OVERRIDE_FORMATS:
        cases = [case for case in CASES.values() if case.format == format.name]
        out[format.name] = [(file, case.target) for case in cases for file in case.make()]
        if format.writer is None:
            files = [Emission(path.name, path.read_bytes(), Shell()) for path in own_samples(format)]
            out[format.name] = [(file, {}) for file in files]
    return out


def solutions(file: OverrideFile) -> dict[str, set[tuple[str, float | None]]]:
    out: dict[str, set[tuple[str, float | None]]] = {}
    for row in file.rows:
        out.setdefault(row.key, set()).add((row.solution.text if row.solution else "", row.time_us))
    return out


@pytest.fixture(params=OVERRIDE_FORMATS, ids=lambda format: format.name)
def format(request: pytest.FixtureRequest) -> OverrideFormat:
    return request.param  # type: ignore[no-any-return]


def test_each_recognises_its_own_samples_and_no_other(format: OverrideFormat) -> None:
    assert samples()[format.name], "a format without a sample tests nothing"
    for name, files in samples().items():
        for file, _ in files:
            assert format.recognise(Head(file.name, file.data)) is (name == format.name)


def test_a_cell_beyond_the_limit_of_a_table_reader_does_not_raise(format: OverrideFormat) -> None:
    format.inspect("x", b"M,N,K\n1,2," + 200_000 * b"9" + b"\n", {})


def test_names_are_unique_and_every_writer_is_in_the_list() -> None:
    assert len({x.name for x in OVERRIDE_FORMATS}) == len(OVERRIDE_FORMATS)
    modules = [
        importlib.import_module(x.name)
        for x in pkgutil.walk_packages(logparse.libraries.__path__, "logparse.libraries.")
    ]
    assert {x.WRITER.name for x in modules if isinstance(getattr(x, "WRITER", None), Writer)} == {
        x.name for x in WRITERS
    }


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", b"\0\xff,=;:\n=,\n", b"Git Version: \n,\n"])
def test_nothing_raises_and_an_empty_file_has_no_row(format: OverrideFormat, data: bytes) -> None:
    judged = format.inspect("x", data, {})
    assert not any(row.live for row in judged.rows)
    assert judged.notes, "a file without effect has a note"


@given(st.data())
def test_no_damage_raises(data: st.DataObject) -> None:
    """Reading a damaged file of kernel choices never raises an error, and each line that is ignored has a reason.

    Parts of sample files are cut out, repeated or replaced by other bytes.
    """
    format = data.draw(st.sampled_from(OVERRIDE_FORMATS))
    file, target = data.draw(st.sampled_from(samples()[format.name]))
    start, end = sorted((data.draw(st.integers(0, len(file.data))), data.draw(st.integers(0, len(file.data)))))
    other = data.draw(st.sampled_from([b"", b",", b"\r\n", b"=", b";", b":", b"\0\xff", b"-1", b"nan", file.data]))
    damaged = file.data[:start] + other + file.data[end:]
    judged = format.inspect(file.name, damaged, target)
    assert all(not row.live for row in judged.rows) or judged.accepted is not False
    assert all(row.kept or row.verdicts.why for row in judged.rows), "a dropped row has a reason"


def test_numbers_of_thousands_of_digits_do_not_raise(format: OverrideFormat) -> None:
    """A number with thousands of digits in an override file does not raise an error.

    Python's ``int`` raises ValueError for such a number.
    """
    file, target = samples()[format.name][0]
    for number in list(re.finditer(rb"[0-9]+", file.data[-600:]))[-24:]:
        start, end = (len(file.data[:-600]) + at for at in number.span())
        assert format.inspect(file.name, file.data[:start] + b"7" * 5_000 + file.data[end:], target).rows is not None


def test_what_is_written_is_live_and_has_the_key_of_its_call(format: OverrideFormat) -> None:
    for file, target in samples()[format.name]:
        judged = format.inspect(file.name, file.data, target)
        assert judged.format == format.name
        assert judged.ok, judged.notes
        assert all(row.live for row in judged.rows)
        for row in judged.rows:
            assert row.problem is not None
            known = format.key(row.problem, target)
            assert known in (row.key, None)
        if format.writer is not None:
            keys = [format.key(row.problem, target) for row in judged.rows if row.problem is not None]
            assert any(keys), "the law is about some key"


def test_a_call_gets_the_row_that_was_written_for_it(format: OverrideFormat) -> None:
    """If an override file has a line for a matrix product or convolution, a call of it gets the kernel in the line.

    An override file is the user's choice of kernels.
    """
    # If the library lacks the kernel, the call does not get it, and a reason is stated.
    for file, target in samples()[format.name]:
        reading = format.reader(file.name, file.data, target)
        for row in reading.rows:
            if row.problem is None or format.key(row.problem, reading.key_facts) is None:
                continue
            found = look_up(format, reading, row.problem)
            assert found.state == "hit"
            assert found.solution is not None
            assert found.key == row.key
            none = look_up(format, reading, row.problem, has=lambda solution: False)
            assert (none.row, none.state) == (None, "miss")
            assert "the target's build lacks" in none.reason


def overrides(format: OverrideFormat) -> list[tuple[list[Override], Facts]]:
    """Return all choices of kernels in the sample files of one format. There is one pair for each file.

    A pair has the file's choices, and the GPU and software that the file is for.
    """
    return [(overrides_of(format, x.name, x.data, target), target) for x, target in samples()[format.name]]


ODD_IDS = ("0", "-7", "-3808", "4294967296", "", "x", "1;2", "ConvHipImplicitGemmWrwV4R1Xdlops")
ODD_GEMMS: list[dict[str, Any]] = [
    *({"compute_type": x} for x in ("f16_r", "xf32_r", "f32_f16_r", "f32_f8_r", "i32_r")),
    *({"a_type": x, "b_type": x} for x in ("u8_r", "f8_r", "f8_fnuz_r", "f6_r", "f64_c")),
    {"trans_a": "C"},
    {"batch_count": 3, "stride_a": 7, "stride_b": 7, "stride_c": 7, "stride_d": 7},
    {"m": 0},
    {"bias": True, "activation": "gelu"},
]
ODD_CONVOLUTIONS: list[dict[str, Any]] = [
    {"direction": "F"},
    {"direction": "B"},
    {"mode": "transposed"},
    {"in_type": "INT8", "weights_type": "INT8"},
    {"groups": 3},
    {"in_layout": "NHWC", "weights_layout": "NHWC", "out_layout": "NHWC"},
]
VERSIONS: list[Facts] = [
    {},
    {"hipblaslt_version": "1200"},
    {"hipblaslt_version": "100202"},
    {"hipblaslt_version": "100500", "arch": "gfx950"},
    {"rocblas_version": "5.2.0"},
    {"validator:PT_VERSION": "2.6.0", "torch_version": "2.6.0"},
]


@pytest.mark.parametrize("format", [x for x in OVERRIDE_FORMATS if x.writer], ids=lambda format: format.name)
@given(st.data())
def test_a_written_row_is_used_or_refused_with_a_reason(format: OverrideFormat, data: st.DataObject) -> None:
    """The library uses every line that logparse writes to an override file (the user's choice of kernels).

    If the library would drop a line, logparse does not write it and gives a reason.
    """
    assert format.writer is not None
    all_of, target = data.draw(st.sampled_from(overrides(format)))
    target = {**target, **data.draw(st.sampled_from(VERSIONS))}
    given = data.draw(st.lists(st.sampled_from(all_of), min_size=1, max_size=4))
    odd = ODD_CONVOLUTIONS if format.convolutions else ODD_GEMMS
    tried = []
    for override in given:
        fields = data.draw(st.sampled_from([{}, *odd]))
        id = data.draw(st.sampled_from([override.solution.id, *ODD_IDS]))
        other = replace(override, problem=replace(override.problem, **fields), target=target)
        tried.append(replace(other, solution=replace(other.solution, id=id, raw=""), key_text=None))
    assert {x.name for x in WRITERS if any(map(x.accepts, tried))} <= {x.name for x in writers_for(tried)}
    tried = [x for x in tried if format.writer.accepts(x)]
    made = make(format.writer, tried, target)
    assert len(made.held) + sum(made.refused.values()) == len(tried)
    assert all(made.refused)
    readings = [format.reader(file.name, file.data, target) for file in made.files]
    assert all(row.live for reading in readings for row in reading.rows)
    for override in made.held:
        answers = [look_up(format, reading, override.problem) for reading in readings]
        assert {x.state for x in answers if x.key is not None} <= {"hit"}


def test_every_override_format_is_found_by_its_file_name() -> None:
    """Every format of override files is defined in a module whose file name ends with the word ``rules``.

    logparse searches for formats by this word. So it would not find a format in another file, and no subcommand would
    know it.
    """
    assert {module for _, module in find_modules_called("rules")} == set(find_modules_with(*OFFERS))


def test_a_writer_leads_to_its_format() -> None:
    by_writer = {x.writer.name: x for x in OVERRIDE_FORMATS if x.writer is not None}
    assert {x.name: format_of(x) for x in WRITERS} == {x.name: by_writer.get(x.name) for x in WRITERS}


def test_overrides_of_the_samples_are_written(format: OverrideFormat) -> None:
    """logparse can write most of the kernel choices in the sample files to a new file.

    It may refuse to write single choices. This test makes sure that it does not refuse nearly all of them.
    """
    if format.writer is not None:
        for given, target in overrides(format):
            made = make(format.writer, given, target)
            assert made.files
            assert len(made.held) > len(given) / 2, made.refused


def test_a_merge_of_a_file_with_itself_is_itself(format: OverrideFormat, tmp_path: Path) -> None:
    for number, (file, target) in enumerate(samples()[format.name]):
        paths = []
        for copy in ("a", "b"):
            folder = tmp_path / f"{number}{copy}"
            folder.mkdir()
            paths.append(folder / file.name)
            paths[-1].write_bytes(file.data)
        one, two = merge([str(paths[0])]), merge([str(path) for path in paths])
        assert one.files == two.files
        assert two.conflicts == ()
        (made,) = two.files
        before, after = (format.inspect(file.name, x, target) for x in (file.data, made.data))
        assert solutions(after) == solutions(before)
        paths[0].write_bytes(made.data)
        assert merge([str(paths[0])]).files[0].data == made.data


OTHER: Facts = {
    "arch": "gfx90a",
    "cu_count": "97",
    "device": "AMD Instinct MI210",
    "backend": "CUDA",
    "pytorch_version": "2.3.1",
    "hip_version": "603",
    "rocm_version": "6.2.0",
    "hipblaslt_version": "0.6.0",
    "hipblaslt_revision": "592518e7",
    "rocblas_version": "4.1.0",
    "miopen_version": "3.1.0",
    "miopen_tweak": "592518e7",
    "transformer_engine_columns": "20",
}
"""For facts about a GPU or library build (for example ``arch``), a value that no sample states. For others it is 7."""


def test_another_gpu_or_build_is_noticed(
    format: OverrideFormat,
) -> None:
    """logparse notices if an override file (the user's choice of kernels) is for another GPU or library build.

    Then either no line of the file is used, or a remark names the difference.
    """
    # With the same GPU and build all lines are used.
    for file, _ in samples()[format.name]:
        alone = format.inspect(file.name, file.data, {})
        for name, value in alone.facts.items():
            same = format.inspect(file.name, file.data, {name: value})
            assert [row.live for row in same.rows] == [row.live for row in alone.rows], name
            other = OTHER.get(name, "7")
            assert other != value, f"OTHER needs another value of {name}"
            judged = format.inspect(file.name, file.data, {name: other})
            named = [x for x in judged.notes if x.severity != "info" and other in x.message]
            assert named or not judged.ok, f"{file.name}: {name} {other} for {value} is not named"
            assert any(row.live for row in judged.rows) or not judged.ok, "a file of no use fails the check"


@pytest.mark.parametrize(
    "format", [x for x in OVERRIDE_FORMATS if x.find_copy_obstacle], ids=lambda format: format.name
)
def test_a_users_own_rows_are_kept_once(format: OverrideFormat, tmp_path: Path) -> None:
    for file, target in samples()[format.name]:
        path = tmp_path / file.name
        path.write_bytes(file.data)
        assert with_own([file], [str(path)], target)[0] == [file], "it has them all"
        judged = format.inspect(file.name, file.data, target)
        rows = list(judged.rows)
        lines = {row.line for row in rows if row.key != rows[-1].key}
        shorter = format.cut(file.data, rows, partial(lambda kept, line, text: line in kept, lines))
        fewer = Emission(file.name, shorter, Shell())
        (made,), _ = with_own([fewer], [str(path)], target)
        assert solutions(format.inspect(made.name, made.data, target)) == solutions(judged)


def test_a_merge_and_a_conversion_have_a_destination() -> None:
    words = [x.conversion.word for x in OVERRIDE_FORMATS if x.conversion]
    assert len(set(words)) == len(words)
    assert all(x.writer for x in OVERRIDE_FORMATS if x.conversion), "what can be converted to has a writer"


READ = {x.name: x for x in FORMATS if isinstance(x, FileFormat) and x.name in {y.name for y in OVERRIDE_FORMATS}}
"""The formats of override files (a user's choice of kernels) whose rows also count as measured times."""


@given(st.data())
def test_a_refused_file_gives_no_measurements(data: st.DataObject) -> None:
    """If the library would refuse a whole override file because of one damaged line, logparse uses no time from it.

    The test damages one cell of a line.
    """
    format = data.draw(st.sampled_from([x for x in OVERRIDE_FORMATS if x.name in READ and not x.convolutions]))
    file, target = data.draw(st.sampled_from(samples()[format.name]))
    *lines, last = file.data.decode().splitlines()
    cells = last.split(",")
    cells[data.draw(st.integers(0, len(cells) - 1))] = data.draw(st.sampled_from(["0", "-1", "x", "", "1e9"]))
    rows = format.reader(file.name, file.data, target).rows
    kept = [line for number, line in enumerate(lines, 1) if number not in {row.line for row in rows}]
    text = "\n".join([*kept, ",".join(cells)]).encode() + b"\n"
    reading = format.reader(file.name, text, {})
    if all(row.verdicts.fault and not row.kept for row in reading.rows):
        records = [x for outcome in READ[format.name].read(Memory(text, file.name)) for x in outcome.records]
        assert not [x for x in records if isinstance(x, Measurement) and x.status == "ok"], text


@given(st.data())
def test_all_subcommands_agree_on_valid_rows(data: st.DataObject) -> None:
    """The subcommands ``lint``, ``coverage``, ``merge`` and ``convert`` agree on which rows of a file are valid.

    This must be true even if a row is damaged, or if the file is for another GPU.
    """
    format = data.draw(st.sampled_from(OVERRIDE_FORMATS))
    file, own = data.draw(st.sampled_from(samples()[format.name]))
    text = file.data
    if format.kinds and data.draw(st.booleans()):
        lines = text.split(b"\n")
        number = data.draw(st.sampled_from(list(format.reader(file.name, text, {}).rows))).line - 1
        cells = re.split(rb"([,=;:])", lines[number])
        cells[data.draw(st.integers(0, len(cells) - 1))] = data.draw(st.sampled_from([b"0", b"-1", b"x", b"", b"1e9"]))
        lines[number] = b"".join(cells)
        text = b"\n".join(lines)
    target = data.draw(st.sampled_from([{}, own, {"arch": "gfx90a"}, {"pytorch_version": "2.3.1"}]))
    judged = format.inspect(file.name, text, target)
    live = {row.key for row in judged.rows if row.live}
    assert judged.ok or not live or judged.accepted is not False
    for row in judged.rows:  # coverage
        if row.problem is not None and format.kinds and (key := format.key(row.problem, judged.reading.key_facts)):
            served = look_up(format, judged.reading, row.problem).state == "hit"
            assert served is bool(live & {key, *format.fallback_keys(key)})
    alone = format.inspect(file.name, text, {})
    whole = [row for row in alone.rows if row.solution is not None and not row.verdicts.fault]
    faultless, usable = {row.key for row in whole}, {row.key for row in whole if row.live}
    refusal, merged = "", set[str]()
    try:
        (made, *_) = merge_contents([(file.name, file.name, text)]).files
        merged = {row.key for row in format.inspect(made.name, made.data, {}).rows if row.live}
    except InputError as error:
        refusal = str(error)
    refused = alone.accepted is False or not alone.ok or "cannot be merged" in refusal  # rows of several devices
    assert usable <= merged <= faultless or (refusal and (refused or not usable))
    if format.conversion is not None:
        with TemporaryDirectory() as folder, suppress(InputError):
            (path := Path(folder, file.name)).write_bytes(text)
            converted = convert([str(path)], format.conversion.word, own or TARGET, same_build=True)
            assert converted.count <= len(faultless), "a row that the library drops is not converted"


@pytest.mark.parametrize("name", ["miopen-find-db", "miopen-perf-db"])
@given(data=st.data())
def test_only_entries_that_miopen_uses_are_read(name: str, data: st.DataObject) -> None:
    """From a damaged MIOpen database, logparse reads exactly the entries that MIOpen would use."""
    [format] = [x for x in OVERRIDE_FORMATS if x.name == name]
    file, target = data.draw(st.sampled_from(samples()[name]))
    lines = file.data.decode().splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        word = data.draw(st.sampled_from(re.findall(r"[^-=:;,x]+|[-=:;,x]", lines[place])))
        new = data.draw(st.sampled_from(["", "0", "-1", "x", "1e9", "NHWC", f"{word};{word}", f"{lines[0]}\n{word}"]))
        lines[place] = lines[place].replace(word, new, data.draw(st.sampled_from([1, -1])))
    text = "\n".join(lines).encode() + b"\n"
    used = [(x.key, x.solution.id) for x in format.reader(file.name, text, target).rows if x.live and x.solution]
    records = [x for outcome in READ[name].read(Memory(text, file.name)) for x in claims(outcome)]
    assert sorted(records) == sorted(used)


def claims(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield the entries of a MIOpen database that logparse took as measured or tuned, as pairs (key, solver)."""
    rows = outcome.tables["measurements"].to_pylist() if outcome.tables else []
    yield from ((x["key_text"], x["raw"]) for x in rows if x["status"] != "skipped")
    for x in outcome.records:
        if isinstance(x, Measurement) and x.status != "skipped":
            yield str(x.key_text), x.solution.id


def test_what_order_means_is_stated_for_every_format(format: OverrideFormat) -> None:
    assert format.order


def in_order(format: OverrideFormat, file: Emission, target: Facts, draw: st.DataObject) -> bytes:
    """Shuffle the lines of a user's file of kernel choices, and repeat some lines. Returns the new file's content.

    The meaning must stay the same. So lines about the same operation keep their order, because it decides which one is
    used.
    """
    if file.data.lstrip().startswith(b"{"):  # its rows are members of an object
        members = draw.draw(st.permutations(list(json.loads(file.data).items())))
        return json.dumps(dict(members)).encode()
    lines, units = file.data.decode().split("\n"), dict[int, str]()
    for row in format.reader(file.name, file.data, target).rows:
        first = row.line - 1 - row.text.count("\n")
        units[first] = "\n".join(lines[first : row.line])
    rows = draw.draw(st.permutations(list(units.values())))
    again = draw.draw(st.lists(st.sampled_from(rows), max_size=2))
    return "\n".join([*lines[: min(units)], *rows, *again, ""]).encode()


def answers(format: OverrideFormat, reading: Reading[Any]) -> tuple[object, ...]:
    """Return everything that logparse reads from a user's file of kernel choices, so that two files can be compared.

    The result has what the file states about its GPU and software, its lines, and the kernel that it gives each call.
    """
    served = {}
    # A table of tiles serves calls by the number of tokens, not by problem.
    for row in reading.rows if format.kinds else ():
        if row.problem is not None and format.key(row.problem, reading.key_facts) is not None:
            found = look_up(format, reading, row.problem)
            served[row.problem] = found.state, found.solution
    rows = {(row.key, row.solution, row.live, row.time_us) for row in reading.rows if row.kept}
    return reading.accepted, reading.facts, rows, served


@given(st.data())
def test_the_order_of_rows_of_different_keys_changes_no_answer(data: st.DataObject) -> None:
    format = data.draw(st.sampled_from(OVERRIDE_FORMATS))
    file, target = data.draw(st.sampled_from(samples()[format.name]))
    other = in_order(format, file, target, data)
    before, after = (format.reader(file.name, x, target) for x in (file.data, other))
    assert answers(format, after) == answers(format, before)
    if format.name in READ:
        facts, measured = (set[object](), set[object]()), (set[object](), set[object]())
        for place, text in enumerate((file.data, other)):
            for outcome in READ[format.name].read(Memory(text, file.name)):
                facts[place].update(x for x in outcome.records if isinstance(x, Fact))
                times = (x for x in outcome.records if isinstance(x, Measurement) and x.status != "skipped")
                measured[place].update(times)
        assert facts[0] == facts[1]
        assert measured[0] == measured[1]


def test_a_json_member_that_a_later_one_replaces_is_noted(format: OverrideFormat) -> None:
    for file, _ in samples()[format.name]:
        if file.data.lstrip().startswith(b"{"):
            for member in members_of(file.data):
                text = file.data[member.offset : member.end]
                twice = file.data.replace(text, text + b",\n" + text, 1)
                assert member.line in {x.line for x in format.inspect(file.name, twice, {}).notes}


def test_some_sample_is_json() -> None:
    """Otherwise the law about JSON members would test nothing."""
    files = [file for held in samples().values() for file, _ in held]
    assert any(file.data.lstrip().startswith(b"{") and members_of(file.data) for file in files)
