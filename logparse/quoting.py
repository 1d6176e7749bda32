"""Quote and escape text for other languages, such as shell, Python, HTML and SQL, and fill templates.

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
text of a terminal     ``make_printable``                                          ``str``
=====================  ==========================================================  ==========

Text of a file is a ``str``.  Code is a ``Shell``, ``Python`` or ``Html``.  A template takes only code of its own
language (``fill_template``).  Outside of this module such code is made only from literals and from files of this
program. ``tests/test_architecture.py`` checks this for every call of the three classes.  This module imports nothing of
logparse.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar


class Code(str):
    """Base class of texts that are code, for example of a shell, so that a program interprets them."""

    __slots__ = ()

    @property
    def data(self) -> bytes:
        """The text as bytes in UTF-8. Bytes of a file name that are not UTF-8 are written unchanged."""
        try:
            return self.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half of a surrogate pair: no path contains it
            return self.encode("utf-8", "backslashreplace")


class Shell(Code):
    """Text that is code for a POSIX shell."""

    __slots__ = ()


class Python(Code):
    """Text that is Python code."""

    __slots__ = ()


class Html(Code):
    """Text that is HTML code."""

    __slots__ = ()


C = TypeVar("C", bound=Code)


class Asset(Protocol):
    """A file that is part of this program, as ``importlib.resources`` returns it."""

    def read_text(self, encoding: str) -> str: ...


def asset(path: Asset) -> str:
    """Return the text of a file that is part of this program.  It is trusted, so it is not escaped."""
    return path.read_text(encoding="utf-8")


def join_code(between: C, parts: Iterable[C]) -> C:
    """Join pieces of code with a separator that is also code, like ``str.join``. The result is code."""
    return type(between)(between.join(parts))


def lines_of(code: C) -> list[C]:
    """Split code into lines. The lines get the same type as the code, for example ``Shell``."""
    return [type(code)(line) for line in code.split("\n")]


def fill_template(template: C, values: Mapping[str, C], marks: str = "@@") -> C:
    """Fill a template: replace each ``@name@`` by the code of this name.

    ``marks`` are the characters before and after a name. Raises TypeError for a value in another language, KeyError for
    a name without a value.
    """
    kind = type(template)
    for name, value in values.items():
        if type(value) is not kind:
            raise TypeError(f"@{name}@ takes {kind.__name__}, not {type(value).__name__}")
    before, after = map(re.escape, marks)
    parts = re.split(f"{before}([a-z_]+){after}", template)
    # A name within a value is not replaced.
    return kind("".join(values[x] if i % 2 else x for i, x in enumerate(parts)))


# --------------------------------------------------------------------------------------------------------- shells


def shell_word(text: str | os.PathLike[str]) -> Shell:
    """Quote a text so that a shell reads it as one word. A word without special characters stays as it is."""
    import shlex  # imported here and below, because every command imports this module

    word = os.fspath(text).replace("\0", "\\0")  # no word holds a NUL
    # Words that begin with ``=`` are quoted too, unlike in ``shlex.quote``, because zsh would replace such a word by a
    # path.
    return Shell(f"'{word}'" if word.startswith("=") and "'" not in word else shlex.quote(word))


def shell_line(words: Iterable[str]) -> Shell:
    """Quote each word and join the words into a shell command."""
    return join_code(Shell(" "), map(shell_word, words))


def shell_comment(text: str) -> Shell:
    """Make a text safe for a shell comment.

    Line ends become visible characters, because a line end would end the comment.
    """
    return Shell(make_printable(text))


def shell_data(lines: Iterable[tuple[str, str]]) -> Shell:
    """Return lines ``WORD TEXT`` of data for a here-document of a shell script. The shell interprets nothing in them.

    Raises ValueError if a word does not consist of the letters a to z.
    """
    out = []
    for word, text in lines:
        if not re.fullmatch(r"[a-z]+", word):
            raise ValueError(f"{word!r} begins no line of data")
        # The word is a fixed word of logparse, so no text can end the document early.
        out.append(f"{word} {make_printable(text)}")
    return Shell("\n".join(out))


# --------------------------------------------------------------------------------------------------------- Python


def python_literal(value: object) -> Python:
    """Write a value as a Python literal.

    The value may be a text, a number, None, a list, a tuple or a mapping.  Raises TypeError for any other value.
    """
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
    """Fill the places ``{}`` in a line of Python code.

    A value that is code is inserted unchanged.  Any other value becomes a literal.
    """
    return Python(template.format(*(x if isinstance(x, Python) else python_literal(x) for x in values)))


# ----------------------------------------------------------------------------------------------------------- HTML


def html_text(text: str) -> Html:
    """Escape a text so that it can be put between HTML tags or into a quoted attribute."""
    import html

    return Html(html.escape(make_printable(text)))


def markup(text: str) -> str:
    """Escape the characters that begin a tag, so that a label in a plotly figure shows the text literally.

    Quotes stay as they are.
    """
    import html

    return html.escape(text, quote=False)


def html_list(tag: Html, items: Iterable[Html]) -> Html:
    """Make an HTML list (``ol`` or ``ul``) of items.  Returns an empty text if there are no items."""
    held = "".join(f"<li>{item}</li>" for item in items)
    return Html(f"<{tag}>{held}</{tag}>" if held else "")


def json_block(value: object) -> Html:
    """Write a value as JSON for ``<script type="application/json">``.

    No text in the value can end the script element.
    """
    import json

    block = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        block = block.replace(character, f"\\u{ord(character):04x}")
    return Html(block)


# ------------------------------------------------------------------------------------------------------- Markdown

_FENCE = re.compile(r"`{3,}|~{3,}")


def markdown_text(text: str) -> str:
    """Escape a text for a paragraph, list or table cell in Markdown.

    The text cannot start a new line, cell, tag, link, image or code block.
    """
    text = text if text.isprintable() else "".join(x if x.isprintable() else " " for x in text)
    text = text.replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(").replace("]:", "]\\:")
    return _FENCE.sub(lambda found: "\\" + "\\".join(found[0]), text)


def markdown_block(language: str, lines: Iterable[str]) -> list[str]:
    """Return the lines as a Markdown code block.

    The line of backquotes around the block is longer than any backquotes in the lines, so that no line can end the
    block.
    """
    shown = [make_printable(line) for line in lines]
    longest = max((len(x) for line in shown for x in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]


# ------------------------------------------------------------------------------------------- SQL, paths, terminals


def sql_text(value: object) -> str:
    """Write a text, such as a path, as an SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """Quote the name of a table or column for SQL."""
    return '"' + name.replace('"', '""') + '"'


_LONGEST_NAME = 255
"""Longest file name that the usual file systems allow, in bytes."""


def is_file_name(name: str) -> bool:
    """Return True if a text can be the name of a file in a folder.

    It is False for a path, an option, and a text with characters that a terminal would interpret.
    """
    plain = name.isprintable() and "/" not in name and "\\" not in name
    return plain and name not in ("", ".", "..") and name[0] != "-" and len(name.encode()) <= _LONGEST_NAME


def file_name(text: str) -> str:
    """Make a valid file name from any text: characters other than letters, digits and ``_.+-`` become ``_``.

    A long name is cut, and ends in a hash of the text.
    """
    name = re.sub(r"[^\w.+-]+", "_", text)
    # The name would be hidden, an option or a path.
    name = f"_{name}" if name[:1] in ("", ".", "-") else name
    if len(name.encode()) <= _LONGEST_NAME // 2:
        return name
    import hashlib

    return f"{name[: _LONGEST_NAME // 8]}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def make_printable(text: str) -> str:
    r"""Replace control, escape and direction characters in untrusted text by visible escapes such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
