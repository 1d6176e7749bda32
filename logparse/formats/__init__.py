"""Formats: text to nouns and back, one file each.  A new format is one file and one line here."""

from __future__ import annotations

from logparse.formats.format import Format, Writer

FORMATS: tuple[Format, ...] = ()
"""Every format that can be read.  Of whole-file formats the first that recognises a file reads it."""

WRITERS: tuple[Writer, ...] = ()
"""Every override file that a library reads back."""
