"""Find the objects that the rooms of the libraries offer, so that no list has to name them.

A room is a folder in ``logparse/libraries/``.  A module of a room offers an object under a fixed name (``FORMAT``,
``BUILD``, ``CAPTURE`` …).  The assignment must be at the start of a line, because only modules with such a line are
imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

_LIBRARIES = Path(__file__).parent


def offering(*names: str, folder: Path = _LIBRARIES) -> Iterator[str]:
    """Yield the modules that offer an object of one of the names, in alphabetical order of folder and file."""
    offer = re.compile(rf"^({'|'.join(names)})\b *[:=]".encode(), re.MULTILINE)
    for room in sorted(folder.iterdir()):
        for path in sorted(room.glob("*.py")) if (room / "__init__.py").is_file() else ():
            if offer.search(path.read_bytes()):
                package = f"{__package__}.{room.name}"
                yield package if path.stem == "__init__" else f"{package}.{path.stem}"


def offered(name: str) -> Iterator[Any]:
    """Yield the objects that the rooms offer under a name."""
    for module in offering(name):
        yield getattr(import_module(module), name)
