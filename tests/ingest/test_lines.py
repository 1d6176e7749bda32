"""Tests of how ``ingest`` reads lines fast, without losing a line.

It replaces addresses by a mask, counts equal lines, and splits lines that two processes wrote into each other.
"""

from __future__ import annotations

import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.ingest.lines import TORN, LineReader, Read, blocks
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat
from logparse.model import Call
from tests.conftest import SAMPLES
from tests.libraries.reading import places_of, read_lines, units_of

STREAMS = [f for f in FORMATS if not isinstance(f, FileFormat)]
STAMP = "[2026-02-03 04:05:06][HIPBLASLT][77]"
API = f"{STAMP}[Api][rocblaslt_create] handle[out]=0x7ffd00001234 "
BENCH = "hipblaslt-bench --api_method c -m 8 -n 8 -k 8 --lda 8 --ldb 8 --ldc 8 --ldd 8 --transA N --transB N "


def read(text: str | bytes, size: int = 1 << 20) -> Read:
    data = text if isinstance(text, bytes) else text.encode()
    reader = LineReader(STREAMS)
    for block, offset in blocks(io.BytesIO(data), size=size):
        reader.feed(block, offset)
    return reader.take()


def count_lines(out: Read) -> int:
    return sum(units_of(out).values())


def test_lines_that_differ_in_clock_process_and_address_are_one() -> None:
    other = API.replace("04:05:06", "04:05:07").replace("7ffd00001234", "55aa00000000").replace("[77]", "[78]")
    out = read(f"{API}\n{API}\n{other}\n")
    (entry,) = out.distinct
    assert entry.text == "[HIPBLASLT][Api][rocblaslt_create] handle[out]=0x@"
    assert places_of(out, entry) == {(b"2026-02-03 04:05:06", b"77"): 2, (b"2026-02-03 04:05:07", b"78"): 1}


def test_a_line_without_a_time_is_a_record() -> None:
    read_out = read(f"noise [HIPBLASLT][77][Api][f] x\n[cublasLt][8][Api][f] y\n{STAMP}[Api][f] z\n")
    assert [entry.text for entry in read_out.distinct] == [
        "[HIPBLASLT][77][Api][f] x", "[cublasLt][8][Api][f] y", "[HIPBLASLT][Api][f] z"
    ]  # fmt: skip
    assert (read_out.foreign, read_out.splits) == (1, 1)


def test_null_is_no_address() -> None:
    texts = {d.text.rsplit("=", 1)[1] for d in read(f"{STAMP}[Api][f] algo=0\n{STAMP}[Api][f] algo=0x0\n").distinct}
    assert texts == {"0", "0x0"}


def test_small_values_are_no_addresses() -> None:
    (entry,) = read(f"{STAMP}[Api][f] attr=MATMUL_DESC_TRANSA buf=0x7ffc68bf946c bufData=0x6f \n").distinct
    assert entry.text.endswith("buf=0x@ bufData=0x6f")


def test_windows_addresses_are_masked_and_their_null_kept() -> None:
    (entry,) = read(f"{STAMP}[Api][f] handle[out]=00000223F861AEA0 stream=0000000000000000\n").distinct
    assert entry.text.endswith("handle[out]=0x@ stream=0")


def test_a_whole_record_spliced_into_another_is_salvaged() -> None:
    cut = f"{STAMP}[Api][rocblaslt_ma"
    out = read(f"x\n{cut}{API}\n")
    torn, whole = out.distinct
    assert whole.text == "[HIPBLASLT][Api][rocblaslt_create] handle[out]=0x@"
    assert (torn.format, torn.offset, torn.raw) == (TORN, 2, cut.encode())
    assert TORN.read(torn.text).unit == "reject"
    assert (out.lines, out.splits, out.foreign) == (2, 1, 1)


def test_a_record_whose_beginning_is_torn_off_is_no_foreign_line() -> None:
    out = read(f"{API[10:]}\n")
    (entry,) = out.distinct
    assert entry.format.read(entry.text).unit == "reject"
    assert (out.lines, out.splits, out.foreign) == (1, 1, 1)


def test_torn_pieces_that_differ_in_addresses_are_one() -> None:
    torn = [f"{STAMP}[Trace][f] A=0x7f{n:010x}" for n in (1, 2)]
    other = API.replace("[77]", "[78]")
    out = read(f"{torn[0]}{API}\n{torn[1]}{other}\n{torn[1]}{API}\n")
    (piece, record) = out.distinct
    assert (piece.format, piece.raw, piece.count) == (TORN, torn[0].encode(), 3)
    assert places_of(out, record) == {(b"2026-02-03 04:05:06", b"77"): 2, (b"2026-02-03 04:05:06", b"78"): 1}


def test_of_three_records_in_a_line_the_last_is_salvaged() -> None:
    cuts = (f"{STAMP}[Api][f] x", "hipblaslt-bench -m 8 -n ")
    out = read(f"\n noise {cuts[0]}{cuts[1]}{API}\n")
    assert [(d.format is TORN, d.raw, d.offset) for d in out.distinct] == [
        (True, cuts[0].encode(), 8),
        (True, cuts[1].encode(), 8 + len(cuts[0])),
        (False, API.encode(), 8 + len(cuts[0] + cuts[1])),
    ]
    assert (out.lines, out.splits, out.foreign, out.blank) == (2, 3, 1, 1)


WHOLE = {
    "hipblaslt": (
        "hipblaslt-bench --api_method c -m {m} -n 8 -k 8 --lda 512 --ldb 8 --ldc 512 --ldd 512  --stride_a 0 "
        "--stride_b 0 --stride_c 0 --stride_d 0  --alpha 1 --beta 0 --transA N --transB N --batch_count 1 --scaleA 2 "
        "--scaleB 2  --a_type i8_r --b_type i8_r --c_type i32_r --d_type bf16_r --scale_type f32_r --bias_type f32_r "
        "--compute_type i32_r --activation_type none "
    ),
    "rocblas": (
        "./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m {m} -n 64 -k 96 --alpha 1 --a_type f16_r "
        "--lda 512 --b_type f16_r --ldb 64 --beta 0 --c_type f16_r --ldc 512 --d_type f16_r --ldd 512 "
        "--compute_type f32_r --algo 0 --solution_index 0 --flags 0 "
    ),
    "miopen": "./bin/MIOpenDriver conv -n {m} -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -m conv -g 1 -F 1 -t 1 ",
}


def calls(text: str) -> list[str]:
    """Return the problems of all calls in a log."""
    return sorted(x.problem.text for x in read_lines(text, STREAMS)[0] if isinstance(x, Call))


@pytest.mark.parametrize("library", WHOLE)
def test_of_two_commands_in_a_line_the_first_is_read_only_if_it_is_whole(library: str) -> None:
    """Two logged commands may be in one line, because a line end is missing.

    If the first one was cut, it would be another call. So it is rejected wherever it was cut.
    """
    first, second = (WHOLE[library].format(m=m) for m in (512, 384))
    assert calls(f"{first}{second}\n") == calls(f"{first}\n{second}\n")
    assert len(calls(f"{first}{second}\n")) == 2
    for end in range(40, len(first.rstrip()) + 1):
        assert calls(f"{first[:end]}{second}\n") == calls(second)
        assert read_lines(f"{first[:end]}{second}\n", STREAMS)[1] == {"call": 1, "reject": 1}


@pytest.mark.parametrize("between", ["; ", " ; ", " && ", " > x && ", " | tee log; "])
@pytest.mark.parametrize("library", WHOLE)
def test_a_shell_separates_two_commands(library: str, between: str) -> None:
    first, second = WHOLE[library].format(m=512).rstrip(), "./" + WHOLE[library].format(m=384).removeprefix("./")
    if library == "hipblaslt":
        second = "./hipblaslt-bench --precision f16_r -m 8 -n 8 -k 8"
    assert calls(f"{first}{between}{second}\n") == calls(f"{first}\n{second}\n")
    assert len(calls(f"{first}{between}{second}\n")) == 2


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("before", ["#", "# ", "##", "  # ", "#sudo ", "# for MI300: ", "> # "])
@pytest.mark.parametrize("library", WHOLE)
def test_a_command_in_a_comment_is_foreign(
    library: str, before: str, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGPARSE_NATIVE", native)
    command = WHOLE[library].format(m=512)
    assert read_lines(f"{before}{command}\n", STREAMS) == ([], {"foreign": 1})


def test_a_commented_record_in_yaml_is_foreign() -> None:
    record = '- { rocblas_function: "rocblas_gemm_ex", transA: "N", transB: "N", M: 5, N: 6, K: 7 }'
    assert read_lines(f"# {record}\n", STREAMS) == ([], {"foreign": 1})
    assert len(calls(record)) == 1


@pytest.mark.parametrize("before", ["#12 0.345 ", "######## 45.0%", "root@node:/work# ", "a.txt #"])
def test_other_signs_before_a_command_are_no_comment(before: str) -> None:
    assert len(calls(f"{before}{WHOLE['rocblas'].format(m=512)}\n")) == 1


def test_blanks_before_a_record_are_no_piece() -> None:
    out = read(f" \t {API}\n")
    assert (out.lines, out.splits, out.foreign, out.blank, [d.offset for d in out.distinct]) == (1, 0, 0, 0, [3])


COLOURED = ["hipblaslt/trace_4242.log", "hipblaslt/bench_output.txt", "miopen/find.log"]
COLOURED += ["tunableop/tunableop_verbose.log", "hipblaslt/profile_4242.log", "miopen/miopen_cmd_4242.log"]


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("sample", COLOURED)
def test_lines_in_colour_are_read_as_without(sample: str, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log lines with colour codes are read like lines without them.

    Such codes are in logs that a terminal, ``script`` or ``kubectl`` recorded. They must not make a line rejected,
    split or ignored.
    """
    monkeypatch.setenv("LOGPARSE_NATIVE", native)
    lines = (SAMPLES / sample).read_bytes().splitlines()
    coloured = (b"\x1b[2m\x1b[38;5;214m" + line + b"\x1b[0m\x1b[K" if line else line for line in lines)
    plain, plain_units = read_lines(b"\n".join(lines), STREAMS)
    found, units = read_lines(b"\n".join(coloured), STREAMS)
    assert plain
    assert units == plain_units
    assert Counter(map(repr, found)) == Counter(map(repr, plain))


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize(
    "line",
    [
        b"MIOpenDriver\x1b[m conv -F 1",  # a record without the colour; its marker is there even with the colour
        b"MIOpen(HIP)M\x1b[mIOpenDriver convfp16 -n 8",
        b"[WARNING] MIOpen(HIP)cached algoI\x1b[md",  # its marker is there only without the colour
    ],
)
def test_a_colour_inside_a_record_is_one_line(line: bytes, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colour code of the terminal in the middle of a log line does not split the line into two.

    A second line would make ``read_lines`` fail, because it compares the number of lines with the log.
    """
    monkeypatch.setenv("LOGPARSE_NATIVE", native)
    assert read_lines(line, STREAMS)[1]


def test_application_text_before_a_record_is_split_off() -> None:
    out = read(f"[rank0]: loss 3.2 {API}\n")
    assert (out.lines, out.splits, out.foreign, len(out.distinct)) == (1, 1, 1, 1)


def test_form_feeds_and_unicode_separators_do_not_end_lines() -> None:
    out = read("a\x0cb\u2028c\x85d\n")
    assert (out.lines, out.foreign) == (1, 1)


def test_a_block_may_end_anywhere() -> None:
    text = f"{API}\n\nnoise\n{BENCH}\n" * 50
    whole = read(text)
    expected = {d.text: places_of(whole, d) for d in whole.distinct}
    for size in (1, 7, 64, 1000):
        pieces = read(text, size)
        assert {d.text: places_of(pieces, d) for d in pieces.distinct} == expected
        assert (pieces.lines, pieces.foreign, pieces.blank) == (whole.lines, whole.foreign, whole.blank)


@given(
    st.lists(
        st.sampled_from(
            [API, BENCH, "", "  ", "noise", API[:40], BENCH[:30], "\x00\xff", "- { function: matmul, M: 1,"]
        )
        | st.text(alphabet=st.characters(exclude_characters="\n"), max_size=20),
        max_size=30,
    ),
    st.sampled_from(["\n", " ", "", "\r\n"]),
)
def test_every_line_is_accounted_for(pieces: list[str], glue: str) -> None:
    out = read(glue.join(pieces).encode("utf-8", "surrogatepass"))
    assert out.lines + out.splits == count_lines(out)


@given(st.binary(max_size=400))
def test_any_bytes_are_accounted_for(data: bytes) -> None:
    out = read(data)
    assert out.lines + out.splits == count_lines(out)
    assert out.lines == data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
