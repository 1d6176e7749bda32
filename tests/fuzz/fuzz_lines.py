"""Feed random text to the readers of log lines (fuzzing), by hand for hours or from a test with a limit.

    python -m tests.fuzz.fuzz_lines hipblaslt-log -max_total_time=300
    python -m tests.fuzz.fuzz_lines stream -runs=100000 -max_len=8192

The first word is a log format that consists of lines or blocks, or ``stream``. ``stream`` counts equal lines first and
then gives the text to all formats, as ``ingest`` does, and checks that no line is lost. The other words are options of
libFuzzer, which looks for text that reaches new code. It begins with real lines of the samples, and with the words of
the log formats. Exit code 0 means that nothing raised an error.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

atheris.enabled_hooks.add("str")  # comparisons of texts guide the search (the hook for patterns fails on bytes)
with atheris.instrument_imports(include=["logparse"], enable_loader_override=False):
    from logparse.ingest.lines import LineReader
    from logparse.libraries import FORMATS
    from logparse.libraries.kinds.format import BlockFormat, FileFormat, LineFormat
    from tests.damage import PIECES, seeds
    from tests.ingest.test_robustness import sound
    from tests.libraries.reading import Memory, places_of, units_of

Target = Callable[[bytes], None]


def line(format: LineFormat) -> Target:
    def target(data: bytes) -> None:
        one = data.replace(b"\n", b" ")
        outcome = format.read(one.decode("utf-8", "backslashreplace"))
        assert outcome.lines == 1
        sound(outcome, 4 * len(one))

    return target


def block(format: BlockFormat) -> Target:
    def target(data: bytes) -> None:
        reader = format.begin()
        for each in Memory(data, "").lines():
            outcome = reader.take(each)
            assert outcome is None or outcome.lines == 1
            if outcome is not None:
                sound(outcome, 4 * len(data))
        list(reader.close())

    return target


def stream(data: bytes) -> None:
    """Check that no line of the text is lost, and that the C code counts the lines as the Python code does.

    If the code in C is not built, the code in Python is used both times.
    """
    seen = []
    for native in ("1", "0"):
        os.environ["LOGPARSE_NATIVE"] = native
        reader = LineReader([f for f in FORMATS if not isinstance(f, FileFormat)], head=data)
        reader.feed(data, 0)
        read = reader.take()
        assert read.lines == len(list(Memory(data, "").lines()))
        assert sum(units_of(read).values()) == read.lines + read.splits
        for entry in read.distinct:
            sound(entry.format.read(entry.text), 4 * len(data))
        entries = sorted((e.format.name, e.text, e.offset, sorted(places_of(read, e).items())) for e in read.distinct)
        seen.append((entries, read.claimed, read.foreign, read.blank, read.lines, read.splits, list(reader.close())))
    assert seen[0] == seen[1]


def corpus(name: str, folder: Path) -> None:
    """Write real log text from the samples into ``folder``, from which libFuzzer makes its random text."""
    found = seeds()
    texts = found[name] if name in found else [seed for format in FORMATS for seed in found[format.name]]
    if name not in found:
        texts = [seed for seed in texts if b"\0" not in seed[1][:64]]
    for number, (_, data) in enumerate(texts):
        (folder / str(number)).write_bytes(data[:8192])


def dictionary(path: Path) -> None:
    """Write strange pieces of text to a file in the format of a libFuzzer dictionary: every byte in hex."""
    words = [f'p{n}="{"".join(f"{chr(92)}x{byte:02x}" for byte in piece)}"' for n, piece in enumerate(PIECES)]
    path.write_text("\n".join(words) + "\n")


def main() -> None:
    name, *options = sys.argv[1:]
    by_name = {format.name: format for format in FORMATS}
    format = by_name.get(name)
    if isinstance(format, LineFormat):
        target = line(format)
    elif isinstance(format, BlockFormat):
        target = block(format)
    elif name == "stream":
        target = stream
    else:
        languages = [f.name for f in FORMATS if not isinstance(f, FileFormat)]
        sys.exit(f"{name}: no line language; there is stream, {', '.join(languages)}")
    with tempfile.TemporaryDirectory() as folder:
        begin = Path(folder, "corpus")
        begin.mkdir()
        corpus(name, begin)
        dictionary(Path(folder, "words.dict"))
        given = [option for option in options if not option.startswith("-")]
        flags = [option for option in options if option.startswith("-")]
        atheris.Setup([sys.argv[0], f"-dict={folder}/words.dict", "-timeout=20", *flags, *given, str(begin)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
