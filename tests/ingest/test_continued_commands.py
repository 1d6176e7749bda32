"""Tests that a command which a backslash continues on the next line is read as one log line.

The position of this line is the position of the command's first line.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from logparse.ingest import ingest, lines, worker
from logparse.ingest.lines import blocks, continued_commands
from logparse.lookup.problems_in_text import problems_in
from logparse.store import Store

COMMANDS = {
    "hipblaslt": r"""HIPBLASLT_LOG_MASK=32 \
  ./hipblaslt-bench -m 128 \
  -n 64 -k 64 \
  --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r
""",
    "rocblas": r"""./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m 96 -n 64 -k 128 \
>   --alpha 1 --a_type bf16_r --lda 96 --b_type bf16_r --ldb 64 --beta 0 \
>   --c_type bf16_r --ldc 96 --d_type bf16_r --ldd 96 --compute_type f32_r
""",
    "miopen": r"""./bin/MIOpenDriver convfp16 -n 64 -c 3 -H 224 -W 224 -k 64 \
  -y 7 -x 7 -p 3 -q 3 -u 2 -v 2 \
  -l 1 -j 1 -m conv -g 1 -F 1 -t 1
""",
}
OTHER = "echo one \\\n  two\n"


def one_line(text: str) -> str:
    """Return a command that covers several lines as a user would have typed it in one line."""
    return " ".join(text.replace("\\\n>", " ").replace("\\\n", " ").split()) + "\n"


def problems(store: Store) -> list[str]:
    sql = "select problem from calls order by problem"
    with store.reading(sql) as con:
        return [x for (x,) in con.execute(sql).fetchall()]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("library", COMMANDS)
def test_a_continued_command_is_one_call(tmp_path: Path, store: Store, library: str, end: str) -> None:
    typed, text = tmp_path / "typed.sh", COMMANDS[library]
    typed.write_text(one_line(text))
    ingest([str(typed)], store, run="typed")
    wanted = problems(store)
    store.forget("typed")
    path = tmp_path / "continued.sh"
    path.write_bytes((OTHER + text + OTHER).replace("\n", end).encode())
    [result] = ingest([str(path)], store, run="continued")
    assert problems(store) == wanted
    assert len(wanted) == 1
    assert result.units["reject"] == 0
    before = text[: text.index("./") - 2].count("\n") if library == "hipblaslt" else 0
    assert result.lines == 4 + before + 1


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("library", COMMANDS)
def test_a_last_line_without_an_end(tmp_path: Path, store: Store, library: str, packed: bool) -> None:
    path = tmp_path / "commands.sh"
    data = (OTHER + COMMANDS[library]).rstrip("\n").encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    ingest([str(path)], store, run="run")
    assert len(problems(store)) == 1
    if not packed:
        path.write_bytes(data + b"\n" + COMMANDS["miopen"].encode())
        ingest([str(path)], store, run="run")
        assert len(problems(store)) == 1 + (library != "miopen")
        assert [x.state for x in ingest([str(path)], store, run="run")] == ["unchanged"]


def test_every_byte_keeps_its_position() -> None:
    data = (OTHER + "".join(COMMANDS.values()) + OTHER).encode()
    joined = continued_commands(data)
    assert len(joined) == len(data)
    assert joined.startswith(OTHER.encode())
    assert joined.endswith(OTHER.encode())
    assert [at for at, byte in enumerate(joined) if byte != data[at] and byte != 32] == []
    assert joined.count(b"\n") == 4 + 1 + len(COMMANDS), "the line of variables before the tool's name stays alone"


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_a_command_is_in_one_block(size: int) -> None:
    data = (OTHER + "".join(COMMANDS.values()) + OTHER).encode()
    found = [*blocks(io.BytesIO(data), size=size)]
    assert b"".join(block for block, _ in found) == data
    assert b"".join(continued_commands(block) for block, _ in found) == continued_commands(data)


def test_a_large_file_has_the_same_calls(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In large files, too, logparse reads commands that continue on the next line.

    Code in C reads large files, and the Python code that joins the lines of a small file is not used.
    """
    monkeypatch.setattr(worker, "_RANGED_BYTES", 10)
    path = tmp_path / "commands.sh"
    path.write_text("".join(COMMANDS.values()))
    ingest([str(path)], store, run="run")
    assert len(problems(store)) == len(COMMANDS)


def test_a_command_without_its_last_line_is_a_reject_with_its_place(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "commands.sh"
    path.write_text(OTHER + "./hipblaslt-bench -m 5 \\\n")
    ingest([str(path)], store, run="run")
    sql = "select offset_bytes, reason from rejects"
    with store.reading(sql) as con:
        rows = con.execute(sql).fetchall()
    assert rows == [(len(OTHER), "the command continues on the next line, which is missing")]


def test_an_endless_command_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_COMMAND_BYTES", 100)
    data = b"hipblaslt-bench \\\n" + b"-m 1 \\\n" * 1000
    assert max(len(block) for block, _ in blocks(io.BytesIO(data), size=50)) < 300


@pytest.mark.parametrize("library", COMMANDS)
def test_a_pasted_command_is_found(library: str) -> None:
    assert problems_in(COMMANDS[library]) == problems_in(one_line(COMMANDS[library]))


@pytest.mark.parametrize("library", COMMANDS)
def test_a_command_that_an_issue_quotes_is_a_call_of_a_tool(tmp_path: Path, store: Store, library: str) -> None:
    command = one_line(COMMANDS[library]).strip()
    command = command[command.index("./") :]
    (tmp_path / "issue.md").write_text(f"| `{command}` | 12.5 us |\n- `{command}`\n")
    [result] = ingest([str(tmp_path / "issue.md")], store, run="run")
    assert result.units["reject"] == 0
    sql = "select sum(count), bool_and(by_tool) from calls"
    with store.reading(sql) as con:
        assert con.execute(sql).fetchall() == [(2, True)]
