"""Text into another language: one function for each, and templates that take no text any other way.

=====================  ==========================================================  ==========
text becomes           by                                                          a
=====================  ==========================================================  ==========
a word of a shell      ``shell_word``, ``shell_line``                              ``Shell``
a comment of a shell   ``shell_comment``                                           ``Shell``
data of a script       ``shell_data``: lines of a quoted here-document             ``Shell``
a value of Python      ``python_literal``, ``python_line``                         ``Python``
HTML                   ``html_text``, ``html_list``, ``json_block``, ``markup``      ``Html``
Markdown               ``markdown_text``, ``markdown_block``                       ``str``
a literal of SQL       ``sql_text``, ``sql_name``                                  ``str``
a name of a file       ``file_name`` (makes one), ``is_file_name`` (tests one)     ``str``
text of a terminal     ``printable``                                               ``str``
=====================  ==========================================================  ==========

Text of a file is a ``str``; code is a ``Shell``, ``Python`` or ``Html``.  A template takes code of its own language
alone (``filled``).  Elsewhere such code is made of literals and files of this program only:
``tests/test_architecture.py`` reads every call of the three classes.  Imports nothing of ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar


class Code(str):
    """Text of a language that may run."""

    __slots__ = ()

    @property
    def data(self) -> bytes:
        """Its bytes: UTF-8, and those of a path that is not UTF-8 as they are."""
        try:
            return self.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half of a surrogate pair, which no path holds
            return self.encode("utf-8", "backslashreplace")


class Shell(Code):
    """Code of a POSIX shell."""

    __slots__ = ()


class Python(Code):
    """Code of Python."""

    __slots__ = ()


class Html(Code):
    """HTML."""

    __slots__ = ()


C = TypeVar("C", bound=Code)


class Asset(Protocol):
    """A file of this program."""

    def read_text(self, encoding: str) -> str: ...


def asset(path: Asset) -> str:
    """The text of a file of this program, which is code as it stands."""
    return path.read_text(encoding="utf-8")


def joined(between: C, parts: Iterable[C]) -> C:
    """Code with other code between its parts."""
    return type(between)(between.join(parts))


def lines_of(code: C) -> list[C]:
    """The lines of some code."""
    return [type(code)(line) for line in code.split("\n")]


def filled(template: C, values: Mapping[str, C], marks: str = "@@") -> C:
    """A template with code in the places of ``@name@``, or between two other ``marks``; what looks like a place within
    a value stays as it is.

    Raises TypeError where a value is no code of the template's language, KeyError for a place without a value.
    """
    kind = type(template)
    for name, value in values.items():
        if type(value) is not kind:
            raise TypeError(f"@{name}@ takes {kind.__name__}, not {type(value).__name__}")
    before, after = map(re.escape, marks)
    parts = re.split(f"{before}([a-z_]+){after}", template)
    return kind("".join(values[x] if i % 2 else x for i, x in enumerate(parts)))


# --------------------------------------------------------------------------------------------------------- shells


def shell_word(text: str | os.PathLike[str]) -> Shell:
    """A text as one word.  Plain words stay as they are.

    Quoted are, beside what ``shlex.quote`` quotes, words that begin with ``=``: zsh replaces them by a path.
    """
    import shlex  # here and below: every command imports this module

    word = os.fspath(text).replace("\0", "\\0")  # no word holds a NUL
    return Shell(f"'{word}'" if word.startswith("=") and "'" not in word else shlex.quote(word))


def shell_line(words: Iterable[str]) -> Shell:
    """A command of these words."""
    return joined(Shell(" "), map(shell_word, words))


def shell_comment(text: str) -> Shell:
    """A text within a comment, which a line end would leave."""
    return Shell(printable(text))


def shell_data(lines: Iterable[tuple[str, str]]) -> Shell:
    """Lines ``WORD TEXT`` for a quoted here-document, in which a shell interprets nothing.

    No line ends the document, because each begins with a word of ours and a blank.  Raises ValueError for another word.
    """
    out = []
    for word, text in lines:
        if not re.fullmatch(r"[a-z]+", word):
            raise ValueError(f"{word!r} begins no line of data")
        out.append(f"{word} {printable(text)}")
    return Shell("\n".join(out))


# --------------------------------------------------------------------------------------------------------- Python


def python_literal(value: object) -> Python:
    """A text, number, None, or a list, tuple or mapping of these.  Raises TypeError for anything else."""
    return Python(repr(_plain(value)))


def _plain(value: object) -> object:
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, Mapping):
        return {_plain(name): _plain(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, tuple):
        return tuple(_plain(x) for x in value)
    raise TypeError(f"{type(value).__name__} is no literal")


def python_line(template: Python, *values: object) -> Python:
    """A line with literals of the values, or with code, in the places of its ``{}``."""
    return Python(template.format(*(x if isinstance(x, Python) else python_literal(x) for x in values)))


# ----------------------------------------------------------------------------------------------------------- HTML


def html_text(text: str) -> Html:
    """A text between tags or within the quotes of an attribute."""
    import html

    return Html(html.escape(printable(text)))


def markup(text: str) -> str:
    """A text for a place that renders tags, such as a label of a plotly figure; quotes stay as they are."""
    import html

    return html.escape(text, quote=False)


def html_list(tag: Html, items: Iterable[Html]) -> Html:
    """A list (``ol``, ``ul``) of items; empty without any."""
    held = "".join(f"<li>{item}</li>" for item in items)
    return Html(f"<{tag}>{held}</{tag}>" if held else "")


def json_block(value: object) -> Html:
    """A value as JSON within ``<script type="application/json">``, of which no text can end the block."""
    import json

    block = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        block = block.replace(character, f"\\u{ord(character):04x}")
    return Html(block)


# ------------------------------------------------------------------------------------------------------- Markdown

_FENCE = re.compile(r"`{3,}|~{3,}")


def markdown_text(text: str) -> str:
    """A text within a paragraph, list or cell: it makes no line, cell, tag, link, image or block of code."""
    text = text if text.isprintable() else "".join(x if x.isprintable() else " " for x in text)
    text = text.replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(").replace("]:", "]\\:")
    return _FENCE.sub(lambda found: "\\" + "\\".join(found[0]), text)


def markdown_block(language: str, lines: Iterable[str]) -> list[str]:
    """Lines as a block of code, fenced by more backquotes than any of them holds."""
    shown = [printable(line) for line in lines]
    longest = max((len(x) for line in shown for x in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]


# ------------------------------------------------------------------------------------------- SQL, paths, terminals


def sql_text(value: object) -> str:
    """A text, such as a path, as a literal of SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """A name of a table or column as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


_LONGEST_NAME = 255
"""Bytes of a name in the usual file systems."""


def is_file_name(name: str) -> bool:
    """Whether a text names a file within a folder: no path, no option, nothing that a terminal would interpret."""
    plain = name.isprintable() and "/" not in name and "\\" not in name
    return plain and name not in ("", ".", "..") and name[0] != "-" and len(name.encode()) <= _LONGEST_NAME


def file_name(text: str) -> str:
    """A name of a file or folder from any text: other characters than letters, digits and ``_.+-`` become ``_``.

    A name that would be hidden, an option or a path gets a ``_`` before it; a long one ends in a hash of the text.
    """
    name = re.sub(r"[^\w.+-]+", "_", text)
    name = f"_{name}" if name[:1] in ("", ".", "-") else name
    if len(name.encode()) <= _LONGEST_NAME // 2:
        return name
    import hashlib

    return f"{name[: _LONGEST_NAME // 8]}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def printable(text: str) -> str:
    """Untrusted text with its control, escape and direction characters made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
