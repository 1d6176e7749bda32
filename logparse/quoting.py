"""Convert text for use in another language: one function per place in which text may stand, and templates.

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

Text of a file is a ``str``.  Code is a ``Shell``, ``Python`` or ``Html``.  A template takes only code of its own
language (``filled``).  Outside of this module such code is made only from literals and from files of this program.
``tests/test_architecture.py`` checks this for every call of the three classes.  This module imports nothing of
logparse.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar


class Code(str):
    """Base of texts in a language that a program may run."""

    __slots__ = ()

    @property
    def data(self) -> bytes:
        """The code's bytes in UTF-8.  Bytes of a path that is not UTF-8 stay as they are."""
        try:
            return self.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half of a surrogate pair: no path contains it
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
    """File of this program, as ``importlib.resources`` gives it."""

    def read_text(self, encoding: str) -> str: ...


def asset(path: Asset) -> str:
    """Return the text of a file of this program.  The text counts as code and is not escaped."""
    return path.read_text(encoding="utf-8")


def joined(between: C, parts: Iterable[C]) -> C:
    """Join pieces of code with other code between them."""
    return type(between)(between.join(parts))


def lines_of(code: C) -> list[C]:
    """Split code into its lines."""
    return [type(code)(line) for line in code.split("\n")]


def filled(template: C, values: Mapping[str, C], marks: str = "@@") -> C:
    """Fill a template: put code in the places of ``@name@``, or of a name between two other ``marks``.

    If a value contains such a mark, the mark in the value is not filled.  Raises TypeError if a value is not code of
    the template's language.  Raises KeyError if a place has no value.
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
    """Quote a text as one word of a shell.  A word without special characters stays as it is.

    Words that begin with ``=`` are quoted, too, unlike in ``shlex.quote``: zsh would replace such a word by a path.
    """
    import shlex  # imported here and below, because every command imports this module

    word = os.fspath(text).replace("\0", "\\0")  # no word holds a NUL
    return Shell(f"'{word}'" if word.startswith("=") and "'" not in word else shlex.quote(word))


def shell_line(words: Iterable[str]) -> Shell:
    """Quote each word and join the words into a command."""
    return joined(Shell(" "), map(shell_word, words))


def shell_comment(text: str) -> Shell:
    """Escape a text for a comment of a shell.

    Line ends become visible characters, because a line end would end the comment.
    """
    return Shell(printable(text))


def shell_data(lines: Iterable[tuple[str, str]]) -> Shell:
    """Make lines ``WORD TEXT`` for a quoted here-document, in which a shell interprets nothing.

    No line can end the document, because each line begins with a word of ours and a blank.  Raises ValueError if a word
    is not made of the letters a to z.
    """
    out = []
    for word, text in lines:
        if not re.fullmatch(r"[a-z]+", word):
            raise ValueError(f"{word!r} begins no line of data")
        out.append(f"{word} {printable(text)}")
    return Shell("\n".join(out))


# --------------------------------------------------------------------------------------------------------- Python


def python_literal(value: object) -> Python:
    """Write a text, number, None, list, tuple or mapping as a Python literal.  Raises TypeError for any other value."""
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
    """Fill the places ``{}`` of a line of Python.

    A value that is code stays as it is.  Any other value becomes a literal.
    """
    return Python(template.format(*(x if isinstance(x, Python) else python_literal(x) for x in values)))


# ----------------------------------------------------------------------------------------------------------- HTML


def html_text(text: str) -> Html:
    """Escape a text for a place between tags, or within the quotes of an attribute."""
    import html

    return Html(html.escape(printable(text)))


def markup(text: str) -> str:
    """Escape a text for a place that renders tags, such as a label of a plotly figure.  Quotes stay as they are."""
    import html

    return html.escape(text, quote=False)


def html_list(tag: Html, items: Iterable[Html]) -> Html:
    """Make a list (``ol``, ``ul``) of items.  Return empty HTML if there are no items."""
    held = "".join(f"<li>{item}</li>" for item in items)
    return Html(f"<{tag}>{held}</{tag}>" if held else "")


def json_block(value: object) -> Html:
    """Write a value as JSON for ``<script type="application/json">``.  No text in the value can end the block."""
    import json

    block = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        block = block.replace(character, f"\\u{ord(character):04x}")
    return Html(block)


# ------------------------------------------------------------------------------------------------------- Markdown

_FENCE = re.compile(r"`{3,}|~{3,}")


def markdown_text(text: str) -> str:
    """Escape a text for a paragraph, list or table cell.

    The text cannot begin a line, cell, tag, link, image or block of code.
    """
    text = text if text.isprintable() else "".join(x if x.isprintable() else " " for x in text)
    text = text.replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(").replace("]:", "]\\:")
    return _FENCE.sub(lambda found: "\\" + "\\".join(found[0]), text)


def markdown_block(language: str, lines: Iterable[str]) -> list[str]:
    """Fence lines as a block of code.  The fence has more backquotes than any of the lines holds."""
    shown = [printable(line) for line in lines]
    longest = max((len(x) for line in shown for x in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]


# ------------------------------------------------------------------------------------------- SQL, paths, terminals


def sql_text(value: object) -> str:
    """Write a text, such as a path, as a literal of SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """Quote a name of a table or column for SQL."""
    return '"' + name.replace('"', '""') + '"'


_LONGEST_NAME = 255
"""Maximum bytes of a file name in the usual file systems."""


def is_file_name(name: str) -> bool:
    """Tell whether a text can be the name of a file in a folder.

    A path or an option cannot, and neither can a text with characters that a terminal would interpret.
    """
    plain = name.isprintable() and "/" not in name and "\\" not in name
    return plain and name not in ("", ".", "..") and name[0] != "-" and len(name.encode()) <= _LONGEST_NAME


def file_name(text: str) -> str:
    """Make a name of a file or folder from any text.

    Characters other than letters, digits and ``_.+-`` become ``_``.  A name that would be hidden, an option or a path
    gets a ``_`` before it.  A long name is cut and ends in a hash of the text.
    """
    name = re.sub(r"[^\w.+-]+", "_", text)
    name = f"_{name}" if name[:1] in ("", ".", "-") else name
    if len(name.encode()) <= _LONGEST_NAME // 2:
        return name
    import hashlib

    return f"{name[: _LONGEST_NAME // 8]}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def printable(text: str) -> str:
    """Make control, escape and direction characters of untrusted text visible, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
