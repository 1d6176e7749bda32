r"""Remove the prefixes (marks) that launchers and log tools put before every line, such as the number of a rank.

They are removed before a block format reads the line::

    [default0]:├──offset at 17             torchrun --tee (also with a role's name)
    [rank0]: finding fastest for …         PyTorch
    3: finding fastest for …               srun --label
    [1,3]<stderr>:finding fastest for …    mpirun --tag-output
    (Worker pid=588) finding fastest for … Ray, vLLM, SGLang
    ESC[36m(Worker pid=588, ip=10.0.0.2)ESC[0m finding fastest for …          Ray, unless RAY_COLOR_PREFIX=0
    2026-05-05T12:00:00.123456789Z stderr F [rank0]: finding fastest for …    a container's log on a node, kubectl logs
                                                                              --timestamps, docker logs -t
    Nov 22 12:00:00 node7 train[588]: finding fastest for …                   journalctl, syslog
    train-1  | finding fastest for …                                          docker compose logs, also with -t
    [pod/train-0/main] finding fastest for …                                  kubectl logs --prefix
    logs/find.0.log:12:finding fastest for …                                  grep -H, with or without -n
    Nov 22 12:00:00 finding fastest for …                                     ts; a clock as 2026-05-05 12:00:00,
                                                                              also in brackets, is taken off as well
    test\tRun\t2026-05-05T12:00:00.1234567Z finding fastest for …            gh run view --log (GitHub Actions)
    > finding fastest for …                                   a quotation
        12\tfinding fastest for …                             cat -n, nl
      5%|▌         | 1/20 [00:01<00:20,  1.06it/s]finding fastest for …       behind a progress bar (tqdm), or behind
                                                              a carriage return, where a terminal overwrites it

If several workers write the same line, Ray prints it once and appends ``[repeated 7x across cluster]``.  So a log is
complete only with ``RAY_DEDUP_LOGS=0``.

The order of lines in a block has a meaning only within one rank.  So each rank has its own reader.  A format that only
needs the prefixes removed has one reader for all ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from logparse.libraries.kinds.format import BlockReader, Line, Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.model import Record, Reject

SHARED = "it is unknown to which call this line belongs, because several threads or ranks wrote to this log at once"
"""Message for data that is left out because several ranks or threads wrote to the same log.

Their lines are mixed.  So it is unknown to which matrix product or convolution a time or a choice belongs.
"""
WORKER = r"(?:\x1b\[\d{1,3}m)?\((?:[^()\n]{1,80}? )?pid=(?P<pid>\d{1,18})(?:, ip=[\w.:]{1,45})?\)(?:\x1b\[0m)?"
"""A regular expression for the text that Ray, vLLM and SGLang put before each line of a worker: ``(Worker pid=588)``.

Ray colours it (ray/_private/worker.py).
"""
_CLOCK = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_SENDER = r"(?:[\w.-]{1,255} [^\s\[\]:]{1,64}\[\d{1,18}\]|(?=[A-Za-z_]*[\d.-])\w[\w.-]{0,254} [^\s\[\]:]{1,64}): "
"""A regular expression for the host and the program that syslog puts before a line.

If no process number follows, the host must contain a digit, dot or hyphen.  Otherwise ``hipBLASLt version: `` would be
taken for a host and a program.
"""
_STAMP = (
    rf"(?:{_CLOCK} (?:std(?:out|err) [FP] )?|\[{_CLOCK}\] "
    rf"|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d (?:{_SENDER})?)"
)
_BOM = "(?:\ufeff|\xef\xbb\xbf)?"
"""The byte order mark, as one UTF-8 character or as its bytes in Latin-1."""
_CONTAINER = r"[\w.-]{1,63}[-_]\d{1,4} +\|(?= )|\[pod/[\w./-]{1,300}\](?= )"
_FILE = r"[\w./@+=,-]{1,300}\.(?:log|txt|out|err)(?:\.\d{1,6})?:"
_TIGHT = r"\[(?!rank\d)[A-Za-z_]+\d{1,6}\]:|\[\d{1,6},\d{1,6}\]<std(?:out|err)>:"
"""A regular expression for the prefixes of torchrun and mpirun, which have no blank behind them.

If a blank follows, it is the line's own indentation and must stay.
"""
_SPACED = rf"(?:\[rank\d{{1,6}}\]:|\d{{1,6}}:(?= )|{WORKER}(?= )|{_CONTAINER})"
_BAR = r"[^|\n]{0,80}\d{1,3}%\|[^|\n]{0,200}\| \d+/\d+ \[[^\]\n]{1,80}\](?=.)"
_BEFORE = rf"(?:> |[ ]{{0,6}}\d{{1,9}}\t|[^\t\n]{{1,80}}\t[^\t\n]{{1,80}}\t(?={_CLOCK} )|(?:[^\r]*\r(?=[^\r]))+|{_BAR})"
"""A regular expression for the text before a line that was quoted, numbered or copied from another display.

The expression matches for example the mark ``> `` of a quotation, a line number, and the columns that GitHub writes
before each line.  It also matches a progress bar in front of the line.
"""
_SENT_BY = rf"(?:{_STAMP})?(?:(?P<rank>{_TIGHT}|{_SPACED} ?)(?:{_CLOCK} )?|(?P<file>{_FILE})(?:\d{{1,12}}:)?)?"
MARK_TEXT = f"{_BOM}{_BEFORE}?{_SENT_BY}"
MARK = regex(MARK_TEXT)
"""The regular expression for everything that a launcher or log tool puts before a line.

A bare ``[0]:`` does not match, because rows of hipblaslt-bench begin with it.
"""
_USUAL = regex(_BOM + _SENT_BY)


def mark_of(text: str) -> re.Match[str]:
    """Match the prefix that a launcher or log tool wrote before a line, for example ``[rank0]: ``.

    The match may be empty.  Most lines have a common prefix or none, so a faster regular expression is used for them.
    """
    unusual = text.startswith(">") or "\t" in text or "%|" in text or "\r" in text
    match = (MARK if unusual else _USUAL).match(text)
    assert match is not None
    return match


def mark_length(line: bytes) -> int:
    """Return the length, in bytes, of the prefix that a launcher or log tool put before a line. 0 without a prefix."""
    return mark_of(line.decode("latin-1")).end()  # one character per byte, because marks are ASCII


class _Ranked:
    """A reader that removes prefixes such as ``[rank0]: `` from a log's lines before another reader gets them.

    There is either one other reader for each prefix, made at the first line with this prefix, or one for all lines.
    """

    def __init__(self, markers: Sequence[str], begin: Callable[[], BlockReader], apart: bool) -> None:
        self._markers = markers
        self._begin = begin
        self._apart = apart
        self._readers: dict[str, BlockReader] = {"": begin()}

    @property
    def awake(self) -> bool:
        for reader in self._readers.values():  # noqa: SIM110 - this is called for every line of a block
            if reader.awake:
                return True
        return False

    def take(self, line: Line) -> Outcome | None:
        match = mark_of(line.text)
        mark, rank = match[0], (match["rank"] or match["file"] or "").rstrip() if self._apart else ""
        reader = self._readers.get(rank)
        ours = any(marker in line.text for marker in self._markers)
        if mark and (reader is None or not reader.awake) and not ours:
            return None
        if reader is None:
            reader = self._readers[rank] = self._begin()
        outcome = reader.take(Line(line.text[len(mark) :], line.offset))
        return _shift_positions(outcome, len(mark.encode())) if outcome is not None and mark else outcome

    def close(self) -> Iterable[Record]:
        for reader in self._readers.values():
            yield from reader.close()


def _shift_positions(outcome: Outcome, by: int) -> Outcome:
    """Correct the byte positions of unreadable lines after a prefix such as ``[rank0]: `` was removed.

    Positions count from the start of a line.  A reader sees the line without its prefix, so its positions are ``by``
    bytes too small.
    """
    if not any(isinstance(record, Reject) and record.length for record in outcome.records):
        return outcome
    records = [
        Reject(record.reason, record.offset + by, record.length)
        if isinstance(record, Reject) and record.length
        else record
        for record in outcome.records
    ]
    return replace(outcome, records=records)


def make_rank_readers(
    markers: Sequence[bytes], begin: Callable[[], BlockReader], *, apart: bool = True
) -> Callable[[], BlockReader]:
    """Return a function that makes a reader for log lines with prefixes such as ``[rank0]: ``.

    * ``begin`` makes the reader for the lines without prefixes.
    * With ``apart`` each rank's lines have a reader of their own.
    """
    texts = [marker.decode() for marker in markers]
    return lambda: _Ranked(texts, begin, apart)
