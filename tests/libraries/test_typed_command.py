"""Tests that the words of the shell behind a typed command, such as a redirection, do not belong to the command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logparse.libraries.hipblaslt import bench
from logparse.libraries.kinds.format import LineFormat
from logparse.libraries.kinds.typed_command import end_of_command
from logparse.libraries.miopen import driver
from logparse.libraries.rocblas import logs as rocblas
from logparse.model import Call

COMMANDS: list[tuple[LineFormat, str]] = [
    (bench.FORMAT, "./hipblaslt-bench -m 96 -n 64 -k 128 --precision f16_r"),
    (rocblas.BENCH, "./rocblas-bench -f gemm -r h --transposeA N --transposeB T -m 96 -n 64 -k 32 --lda 96 --ldb 64"),
    (driver.FORMAT, "./bin/MIOpenDriver conv -n 32 -c 64 -H 56 -W 56 -k 64 -t 1 -F 1"),
]
REDIRECTED = [">> gemm.txt", "> x", ">x", "2>&1", "2> err.txt", "&> all", "< /dev/null", ">> a.txt 2>&1 | tee b; date"]
BEHIND = [*REDIRECTED, "| tee log", "|& tee log", "; done", "&", "&& ls"]


@pytest.mark.parametrize("behind", [*(f" {x}" for x in BEHIND), ";"])
@pytest.mark.parametrize(("format", "command"), COMMANDS, ids=[format.name for format, _ in COMMANDS])
def test_words_of_the_shell_end_a_command(format: LineFormat, command: str, behind: str) -> None:
    [call] = [x for x in format.read(command).records if isinstance(x, Call)]
    typed = replace(call, by_tool=True)
    assert [x for x in format.read(command + behind).records if isinstance(x, Call)] == [typed]
    assert end_of_command(command + behind, 3) == len(command) + behind.startswith(" ")


@pytest.mark.parametrize("behind", [" garbage >> x", " -m >> x", " -m", "|8 -k 1", ">>x", " <options>", " -n <N> > x"])
@pytest.mark.parametrize(("format", "command"), COMMANDS, ids=[format.name for format, _ in COMMANDS])
def test_damaged_commands_stay_rejected(format: LineFormat, command: str, behind: str) -> None:
    assert format.read(command + behind).unit == "reject"
