"""State how sure a finding is: its interval, the p-value of its confirmation, and where it was measured.

A finding of any analyzer is completed from the measurements that its evidence names (``logparse.model.Evidence``).
There are two kinds of interval.  If a file has each time only once, the interval is unknown.

==========  ==========================================================================================
processes   95 % t-interval over the processes of a confirmation, which is the only kind that is a test
repeat      difference between two times of the default in one file
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from analyzers.evidence.confirmations import RATE, Confirmation, counting, judged, stored_confirmations
from analyzers.evidence.joins import facts_by_source
from analyzers.evidence.statistics.intervals import benjamini_hochberg
from analyzers.evidence.tables import Tables
from logparse.model import Finding, UseRows, fast_replace
from logparse.target import Facts, machine


@dataclass(frozen=True)
class Judged:
    """A confirmation (a repeated comparison of two solutions), and ``kept``: True if its gain is accepted.

    Benjamini and Hochberg's procedure over all tests of the run decides which confirmations hold.
    """

    pick: str
    winner: str
    confirmation: Confirmation
    kept: bool


@dataclass(frozen=True)
class Judgement:
    """All tested pairs of a run.

    ``by_source``: verdict by source id.  Each confirmation is a source of its own.  Several confirmations of one pair
    have one verdict.  ``tested``: number of tested pairs.  ``kept``: number of pairs whose gain holds.
    """

    by_source: Mapping[str, Judged]
    floor: float
    tested: int
    kept: int
    rate: float = RATE

    def keeps(self, finding: Finding) -> bool:
        """Return True if a finding is to be kept: no confirmation tested its gain, or its own confirmation holds."""
        test = self.by_source.get(_source(finding))
        return test is None or finding.per_call_us is None or (test.kept and finding.p is not None)


def judgement(tables: Tables, floor: float) -> Judgement:
    """Judge every confirmation of the run's problems together.  A gain must be above ``floor`` to be kept.

    Confirmations in which the pick won are judged together with the others, because the correction for many tests needs
    failed tests, too.
    """
    stored = stored_confirmations(tables)
    counts = counting(stored, tables)
    confirmations = judged(stored, counts.values(), floor)
    family = sorted(set(counts.values()))
    verdicts = [confirmations[source] for source in family]
    held = benjamini_hochberg([x.p for x in verdicts], RATE)
    kept = [keep and x.speedup.low > 1 + floor for x, keep in zip(verdicts, held, strict=True)]
    verdict_of = {
        source: Judged(stored[source].pick, stored[source].winner, verdict, keep)
        for source, verdict, keep in zip(family, verdicts, kept, strict=True)
    }
    by_source = {source: verdict_of[best] for source, best in counts.items()}
    return Judgement(by_source, floor, len(family), sum(kept))


# ------------------------------------------------------------------------------------------------ to each finding


def completed(findings: Iterable[Finding], tables: Tables, tested: Judgement) -> list[Finding]:
    """Add to each finding its interval, its p-value, and the path and versions of the file that is its evidence."""
    given = list(findings)
    sources = {_source(x) for x in given}
    paths = dict(zip(tables.sources["source_id"], tables.sources["path"], strict=True))
    facts = facts_by_source(tables.facts[tables.facts["source_id"].isin(sources)])
    places = {x: (str(paths[x]), machine(facts.get(x, {}))) for x in sources if x in paths}
    return [_with_place(_with_interval(x, tested), places) for x in given]


def pre_us(finding: Finding) -> float | None:
    """Return the time of one call now, µs.  Return None if it is unknown."""
    return finding.evidence.now_us


def post_us(finding: Finding) -> float | None:
    """Return the time that one call would take, µs.  Return None if it is unknown."""
    before = pre_us(finding)
    if before is None:
        return finding.evidence.best_us
    return None if finding.per_call_us is None else before - finding.per_call_us


def _source(finding: Finding) -> str:
    """Return the id of the source that holds the times which a finding compares."""
    return finding.evidence.source_id or ""


def _with_interval(finding: Finding, tested: Judgement) -> Finding:
    if finding.per_call_us is None or finding.per_call_low_us is not None:
        return finding  # There is nothing to bound, or the analyzer gave an interval of its own.
    source = _source(finding)
    pick, best = str(finding.evidence.pick), str(finding.evidence.best)
    test, before = tested.by_source.get(source), pre_us(finding)
    if test is not None and before is not None and (test.pick, test.winner) == (pick, best):
        ratio = test.confirmation.speedup
        low, gain, high = (before * (1 - 1 / x) for x in (ratio.low, ratio.value, ratio.high))
        # The gain comes from the paired ratio, not from two medians. The better time is the time now minus the gain.
        saving, rows = None if finding.calls is None else finding.calls * gain, finding.override
        proven = replace(
            finding,
            per_call_us=gain,
            saving_us=saving,
            p=test.confirmation.p,
            evidence=fast_replace(finding.evidence, best_us=before - gain),
            remedy=UseRows(replace(rows, time_us=before - gain)) if rows is not None else finding.remedy,
        )
        return _bounded(proven, low, high, "processes")
    noise = finding.evidence.noise_us or 0.0
    if noise > 0:
        return _bounded(finding, finding.per_call_us - noise, finding.per_call_us + noise, "repeat")
    return finding


def _bounded(finding: Finding, low: float, high: float, kind: str) -> Finding:
    calls = finding.calls
    return replace(
        finding,
        per_call_low_us=low,
        per_call_high_us=high,
        saving_low_us=None if calls is None else calls * low,
        saving_high_us=None if calls is None else calls * high,
        interval_from=kind,
    )


def _with_place(finding: Finding, places: Mapping[str, tuple[str, Facts]]) -> Finding:
    """Add the path of the finding's source, and the facts of the machine that wrote the source."""
    if _source(finding) not in places:
        return finding
    file, versions = places[_source(finding)]
    return fast_replace(finding, evidence=fast_replace(finding.evidence, file=file, versions=versions))
