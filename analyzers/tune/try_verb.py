"""Make the output of ``logparse try``: one line and one table row for each change that was tried in a running job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.evidence.trials import Tried
from analyzers.tune.in_the_job import Answer as Tries
from logparse.output import Answer
from logparse.text import duration, pluralize

MEASURED = "measured in your job"


def answer(found: Tries) -> Answer:
    """Make the output of ``logparse try`` from the results of the changes that were tried."""
    rows = [row(x, found.word) for x in found.tried]
    return Answer([*lines(found)], rows, "try", code=found.code, aside=True)


def lines(found: Tries) -> Iterator[str]:
    """Yield the lines that ``logparse try`` prints: first the advice, then one line for each change, then the notes."""
    best = next((x for x in found.tried if x.outcome == "measured"), None)
    if best is not None:
        yield f"try: {best.name}: {times(best, found.word)}, {MEASURED}"
    elif found.tried and all(x.outcome in ("not tried", "refused") for x in found.tried):
        yield "try: no action could be tried"
    else:
        yield "try: no action made the job measurably faster"
    width = max((len(x.name) for x in found.tried), default=0)
    for x in found.tried:
        yield f"  {x.name:{width}}  {'; '.join(_parts(x, found.word))}"
    yield from (f"  {note}" for note in found.notes)


def times(x: Tried, word: str) -> str:
    """Return the time of a step without and with the change, such as ``28.5 → 20.5 ms a step [19.1 ms, 21.9 ms]``.

    The text is empty if no time is known.
    """
    gain = x.gain
    if gain is None:
        return ""
    ends = f"[{duration(gain.low_us)}, {duration(gain.high_us)}]"
    return f"{duration(gain.now_us)} → {duration(gain.then_us)} a {word} {ends}"


def _parts(x: Tried, word: str) -> Iterator[str]:
    said = {
        "measured": MEASURED,
        "faster once": "faster in one process, but not yet confirmed in a second process",
        "not faster": "not faster",
        "within noise": "no gain larger than the noise of this job",
        "undecided": "not decided",
        "differs": "not offered",
        "refused": "not possible",
        "broken": "the job failed while this action was switched on",
        "not tried": "not tried",
    }[x.outcome]
    yield f"{said}: {x.why}" if x.why else said
    if known := times(x, word):
        yield known
    if x.pairs:
        yield f"{pluralize(len(x.pairs), 'pair')} in {pluralize(len(x.timed), 'process')}, {x.seconds:.0f} s"
    if x.same is not None and x.outcome not in ("differs", "refused", "broken"):
        yield f"same result within {x.same[0]:.1e} ({x.same[2]}; rounding alone may differ by {x.same[1]:.1e})"
    if x.detail:
        yield x.detail


def row(x: Tried, word: str) -> dict[str, object]:
    """Return the result of trying one change as a row of a table. Times are in µs per step."""
    ratio, gain = x.ratio, x.gain
    return {
        "action": x.name,
        "outcome": x.outcome,
        "unit": word,
        "now_us": x.now_us,
        "then_us": gain.then_us if gain else None,
        "then_low_us": gain.low_us if gain else None,
        "then_high_us": gain.high_us if gain else None,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "pairs": len(x.pairs),
        "processes": len(x.timed),
        "seconds": x.seconds,
        "deviation": x.same[0] if x.same else None,
        "deviation_allowed": x.same[1] if x.same else None,
        "why": x.why,
        "changed": x.detail,
    }


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of ``logparse try`` at ``--``: the changes to try, and the job's command.

    Raises UsageError if ``--`` or the command is missing, or if an option follows the changes.
    """
    from logparse.errors import UsageError

    if "--" not in words:
        raise UsageError("put `--` before the job's command: logparse try channels_last -- python train.py")
    place = list(words).index("--")
    actions, command = list(words[:place]), list(words[place + 1 :])
    if wrong := next((x for x in actions if x.startswith("-")), ""):
        raise UsageError(f"{wrong}: put options before the actions")
    if not command:
        raise UsageError("give the job's command after `--`")
    return actions, command
