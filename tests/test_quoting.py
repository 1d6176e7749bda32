"""Tests of the functions that quote a text for a shell, Python, JSON and other languages.

The language must read back exactly the same text, whatever it is.
"""

from __future__ import annotations

import ast
import html
import json
import os
import sqlite3
import subprocess
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.builds import folder
from logparse.libraries.kinds.format import Emission
from logparse.model import ConvProblem, Fact, Kernel, Measurement, Solution, fault, problem_from_text
from logparse.quoting import (
    Html,
    Python,
    Shell,
    file_name,
    fill_template,
    html_list,
    html_text,
    is_file_name,
    join_code,
    json_block,
    make_printable,
    markdown_block,
    markdown_text,
    markup,
    python_line,
    python_literal,
    shell_comment,
    shell_data,
    shell_line,
    shell_word,
    sql_name,
    sql_text,
)
from tests.analyzers.example import gemm
from tests.test_hostile import BLIND, LINES, SHELLS

CODES = [
    *BLIND,
    *LINES,
    "",
    " ",
    "-n",
    "=ls",
    "~root",
    "{a,b}",
    "a\\b",
    "\\033[2J",
    "%s%n",
    "!!",
    "* ?[a]",
    "é…",
    "x'y\"z",
]
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


def run_script(shell: str, script: str) -> bytes:
    done = subprocess.run([shell, "-c", script], capture_output=True, check=True)
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_words_of_a_shell(shell: str) -> None:
    script = join_code(Shell("\n"), [fill_template(Shell("printf '%s\\0' @words@"), {"words": shell_line(CODES)})])
    assert run_script(shell, script) == b"".join(code.encode() + b"\0" for code in CODES)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_any_words_of_a_shell(words: list[str]) -> None:
    assert run_script("sh", f"printf '%s\\0' {shell_line(words)}") == b"".join(x.encode() + b"\0" for x in words)


@pytest.mark.parametrize("shell", SHELLS)
def test_comments_and_data_of_a_shell(shell: str) -> None:
    comments = join_code(Shell("\n"), [fill_template(Shell("# @text@"), {"text": shell_comment(x)}) for x in CODES])
    data = shell_data([("fact", x) for x in CODES])
    script = f"{comments}\ncat << 'END_OF_DATA'\n{data}\nEND_OF_DATA\n"
    assert run_script(shell, script).decode().split("\n")[:-1] == [f"fact {make_printable(x)}" for x in CODES]
    with pytest.raises(ValueError, match="begins no line"):
        shell_data([("END OF", "x")])


def test_a_path_that_is_not_utf_8() -> None:
    word = shell_word(os.fsdecode(b"caf\xe9 x"))
    assert run_script("sh", "printf %s " + word) == b"caf\xe9 x"
    assert fill_template(Shell("cd @path@"), {"path": word}).data == b"cd 'caf\xe9 x'"
    assert Shell("\ud800").data == b"\\ud800"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_literals_of_python(value: object) -> None:
    assert ast.literal_eval(python_literal(value)) == value
    line = python_line(Python("f({}, {})"), value, Python("x"))
    assert line.endswith(", x)")
    with pytest.raises(TypeError):
        python_literal(object())


@given(TEXTS)
def test_html_and_json(text: str) -> None:
    shown = html_text(text)
    assert not {"<", ">", '"', "'"} & set(shown)
    assert html.unescape(shown) == make_printable(text)
    assert html.unescape(markup(text)) == text
    block = json_block({text: [text]})
    assert json.loads(block) == {text: [text]}
    assert not {"<", ">", "&", "\u2028"} & set(block)
    assert html_list(Html("ul"), []) == ""


@given(TEXTS)
def test_sql(text: str) -> None:
    assert duckdb.sql(f"select {sql_text(text)}").fetchall() == [(text,)]
    with sqlite3.connect(":memory:") as database:
        assert database.execute(f"select {sql_text(text)}").fetchall() == [(text,)]
        database.execute(f"create table {sql_name('x' + text)} (a)")
        assert database.execute("select name from sqlite_master").fetchall() == [("x" + text,)]


@given(TEXTS)
def test_markdown_and_terminals(text: str) -> None:
    for shown in (markdown_text(text), make_printable(text), *markdown_block("sh", [text])):
        assert shown.isprintable()
    assert "](" not in markdown_text(text)
    assert "<" not in markdown_text(text)
    first, *_, last = markdown_block("sh", [text, "```", "`````"])
    assert (first, last) == ("``````sh", "``````")


@given(st.text())
def test_names_of_files(text: str) -> None:
    name = file_name(text)
    assert is_file_name(name)
    assert name == os.path.basename(name)
    assert is_file_name(folder({"arch": text, "pytorch_version": text}))


def test_names_that_lead_out() -> None:
    for name in ("", ".", "..", "../x", "/x", "a/b", "-rf", "a\nb", "a\\b", "x" * 300, "\x1b[2J"):
        assert not is_file_name(name)
        with pytest.raises(EmissionError, match="cannot be the name of a file"):
            Emission(name, b"", Shell())
    assert folder({"arch": ".."}) == "_.."
    assert folder({"arch": "gfx942", "cu_count": "304"}) == "gfx942-304cu"
    assert file_name("x" * 300) != file_name("x" * 301)


def test_a_template_takes_code_of_its_language_alone() -> None:
    assert fill_template(Shell("a @x@ c"), {"x": Shell("@y@ @x@")}) == "a @y@ @x@ c"
    assert fill_template(Shell("{path} @x@"), {"path": Shell("p")}, "{}") == "p @x@"
    for value in ("text", Python("1"), Html("<b>")):
        with pytest.raises(TypeError, match="takes Shell"):
            fill_template(Shell("@x@"), {"x": value})  # type: ignore[dict-item]
    with pytest.raises(KeyError):
        fill_template(Shell("@x@ @y@"), {"x": Shell("1")})


def test_the_use_of_a_file_names_its_place() -> None:
    file = Emission("it's {path}0.csv", b"", Shell("# {name}\nexport A={path} B={folder}/{generic}"))
    assert file.lines == ["# it's {path}0.csv", "export A={path} B={folder}/'it'\"'\"'s {path}.csv'"]
    placed = Emission(file.name, b"", file.use, path=Path("/a b", file.name))
    assert (
        run_script("sh", f'{placed.settings[0]}; printf \'%s \' "$A" "$B"')
        == b"/a b/it's {path}0.csv /a b/it's {path}.csv "
    )


@pytest.mark.parametrize("code", [*BLIND, *LINES])
def test_text_fields_refuse_code(code: str) -> None:
    """Most text fields of a record refuse a text with code in it, because the field has a strict grammar."""
    # A few fields, such as messages, allow any printable text of one line. It is quoted when it is written to a file.
    conv = ConvProblem(direction="F", in_type="FP16", in_layout="NHWC")
    good = gemm().text
    assert fault(conv) is None
    assert fault(ConvProblem(direction="F", in_layout=f"NHWC{code}"))
    assert fault(ConvProblem(direction="F", in_type=f"FP16{code}"))
    assert fault(ConvProblem(direction=f"F{code}"))  # type: ignore[arg-type]
    assert fault(Fact(f"validator:A{code}", "1"))
    assert fault(Fact(f"arch{code}", "1"))
    assert fault(Solution(f"hipblaslt{code}", "1"))
    if " " not in code and "," not in code:
        assert fault(problem_from_text(good.replace("mnk=", f"mnk={code}", 1)))
        assert fault(problem_from_text(good.replace("activation=", f"activation={code}x", 1)))
    harmless = code in ("../../CANARY",)
    assert harmless or fault(Fact("pytorch_version", f"2.9.1{code}"))
    assert harmless or fault(Solution("miopen", f"GemmFwdRest{code}")) or not set(code) & set("'\"`$;|&#\\\n")
    row = Measurement(problem=conv, solution=Solution("kernel", f"k{code}"), origin="trace")
    lines = Kernel(op="x", kernel=f"void k{code}", calls=1, total_us=1.0, min_us=None, max_us=None)
    assert (fault(row) is None) == (fault(lines) is None) == code.isprintable()


def test_the_shells_of_the_law() -> None:
    assert {Path(shell).name for shell in SHELLS} >= {"sh", "bash"}
