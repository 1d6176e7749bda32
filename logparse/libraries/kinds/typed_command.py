"""Find where a command ends in a line that a person typed into a shell or a script.

::

    ./rocblas-bench -f gemm -r h -m 12544 -n 147 -k 64 >> gemm.txt
    MIOpenDriver conv -n 32 -c 64 -F 1 2>&1 | tee log.txt
    hipblaslt-bench --precision f16_r -m 128; echo done

The words of the shell begin with an operator: a pipe, a redirection, ``&``, or ``#`` for a comment.  ``;`` may also
stand directly behind the last value of the command.
"""

from __future__ import annotations

from logparse.libraries.kinds.patterns import regex

# ``<FILE>`` is no redirection, but a place that the reader of a manual fills in. So ``<`` has to be a word of its own.
_END = regex(r"(?<!\S)(?:[|&#]|\d?>|<(?!\S))|;")


def end_of_command(text: str, start: int = 0) -> int:
    """Return the position at which the words of the shell begin.  Without such words it is the length of the text."""
    if not any(map(text.__contains__, ";|&#<>")):  # nearly all commands; the regular expression is much slower
        return len(text)
    match = _END.search(text, start)
    return len(text) if match is None else match.start()
