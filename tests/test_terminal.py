"""Tables for a terminal: no line is wider than it."""

from __future__ import annotations

import pandas as pd

from logparse.output.terminal import drawn


def test_sentences_wrap_between_words_and_nothing_of_them_is_lost() -> None:
    message = "the problem is 3 × slower: /a/very/long/path/that/is/wider/than/its/column/gfx942.HIP.fdb.txt"
    lines = drawn([{"problem": "NT 1×2×3", "message": message}], 60).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert "".join(line[12:] for line in lines[2:]).replace(" ", "") == message.replace(" ", "")


def test_the_number_of_a_solution_is_never_cut() -> None:
    solutions = ["rocblas:1140812957", "hipblaslt:104377", "use hipblaslt:104377", "kernel:Cijk_Ailk_Bljk_MT256x256x64"]
    frame = pd.DataFrame({"problem": ["TN 4096×512×1024 bf16_r"] * 4, "best": solutions, "time_us": [1.5] * 4})
    for width in range(40, 100, 5):
        shown, _, left_out = drawn(frame, width).partition("not shown:")
        assert all(x in shown for x in solutions[:3]) or "best" in left_out


def test_a_long_text_pads_no_other_row_where_a_program_reads() -> None:
    """Kernel names of C++ have thousands of characters, and each row of ``top`` was as long."""
    name, prose = "void k<" + "x" * 2_000 + ">()", "words " * 50
    rows = [{"kernel": name, "message": "m", "n": 1}, {"kernel": "mm", "message": prose, "n": 22}]
    heading, rule, first, second = drawn(rows, None).splitlines()
    assert name in first, "whole"
    assert prose in second, "on one line"
    assert heading == " kernel   message    n"
    assert len(rule) == len(heading)
    assert second.startswith(" mm       words")
