"""Files into a folder, and what makes their library read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logparse.formats.format import Emission


@dataclass(frozen=True)
class Written:
    """A file that was written, and what makes its library read it (shell lines, verbatim).

    ``applied``: the ``apply.sh`` beside it does all of ``use``.
    """

    path: Path
    use: str
    applied: bool = False


def write(emissions: Sequence[Emission], out: Path) -> list[Written]:
    """Write files into a folder, scripts executable.  Nothing to write makes no folder."""
    return [_write(file, out) for file in emissions]


def _write(file: Emission, folder: Path) -> Written:
    path = folder / file.name
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.data)
    if file.data.startswith(b"#!"):
        path.chmod(0o755)
    use = file.use.replace("{path}", str(path.absolute())).replace("{folder}", str(folder.absolute()))
    return Written(path, use)
