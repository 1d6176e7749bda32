"""Add to each finding how certain its gain is: an interval, the p-value of a test, and where it was measured.

These come from the measurements that the finding names (``logparse.model.Evidence``). There are two kinds of interval.
If a file has each time only once, the interval is unknown.

==========  ==========================================================================================
processes   95 % t-interval over the processes of a confirmation, which is the only kind that is a test
repeat      difference between two times of the default in one file
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from analyzers.evidence.confirmations import (
    RATE,
    Confirmation,
    choose_one_per_pair,
    judge_confirmations,
    stored_confirmations,
)
from analyzers.evidence.joins import facts_by_source
from analyzers.evidence.statistics.intervals import benjamini_hochberg
from analyzers.evidence.tables import Tables
from logparse.model import Finding, Gain, UseRows, fast_replace
from logparse.target import Facts, machine


@dataclass(frozen=True)
class Judged:
    """The result of a second comparison of two kernels (``pick`` and ``winner``) in fresh processes.

    ``kept`` is True if the gain of ``winner`` is accepted. Benjamini and Hochberg's procedure over all tests of the job
    decides that.
    """

    pick: str
    winner: str
    confirmation: Confirmation
    kept: bool


@dataclass(frozen=True)
class Judgement:
    """The results of all tests in which two kernels were compared again to confirm a gain.

    * ``by_source``: results by the id of the test's file.
    * ``floor``: the smallest accepted gain, as a fraction.
    * ``tested``, ``kept``: how many pairs were tested and accepted.
    """

    # Several tests of the same two kernels have one result.
    by_source: Mapping[str, Judged]
    floor: float
    tested: int
    kept: int
    rate: float = RATE

    def keeps(self, finding: Finding) -> bool:
        """Tell whether to keep a finding (a possible saving).

        A finding is dropped only if its saving was tested a second time and not confirmed.
        """
        test = self.by_source.get(_source(finding))
        return test is None or finding.per_call_us is None or (test.kept and finding.p is not None)


def judge_all_pairs(tables: Tables, floor: float) -> Judgement:
    """Decide which faster kernels are really faster, after all were measured a second time.

    * ``floor``: a gain must be above it. 0.03 means 3 %.
    """
    stored = stored_confirmations(tables)
    counts = choose_one_per_pair(stored, tables)
    confirmations = judge_confirmations(stored, counts.values(), floor)
    family = sorted(set(counts.values()))
    verdicts = [confirmations[source] for source in family]
    # The more kernels were measured, the more of them seem faster by chance, so the decision allows for their number.
    # Kernels without a gain in the second measurement are counted, too.
    held = benjamini_hochberg([x.p for x in verdicts], RATE)
    kept = [keep and x.speedup.low > 1 + floor for x, keep in zip(verdicts, held, strict=True)]
    verdict_of = {
        source: Judged(stored[source].pick, stored[source].winner, verdict, keep)
        for source, verdict, keep in zip(family, verdicts, kept, strict=True)
    }
    by_source = {source: verdict_of[best] for source, best in counts.items()}
    return Judgement(by_source, floor, len(family), sum(kept))


# ------------------------------------------------------------------------------------------------ to each finding


def add_intervals(findings: Iterable[Finding], tables: Tables, tested: Judgement) -> list[Finding]:
    """Add to each finding (a possible saving) its interval, its p-value, and the file in which it was measured.

    The path of the file and the library versions that it states are added.
    """
    given = list(findings)
    sources = {_source(x) for x in given}
    paths = dict(zip(tables.sources["source_id"], tables.sources["path"], strict=True))
    facts = facts_by_source(tables.facts[tables.facts["source_id"].isin(sources)])
    places = {x: (str(paths[x]), machine(facts.get(x, {}))) for x in sources if x in paths}
    return [_with_place(_with_interval(x, tested), places) for x in given]


def _source(finding: Finding) -> str:
    """Return the id of the file with the measured times on which a finding (a possible saving) is based."""
    return finding.evidence.source_id or ""


def _with_interval(finding: Finding, tested: Judgement) -> Finding:
    gain = finding.per_call
    if gain is None or gain.high_us is not None:
        return finding  # There is nothing to bound, or the analyzer gave an interval of its own.
    source = _source(finding)
    pick, best = str(finding.evidence.pick), str(finding.evidence.best)
    test = tested.by_source.get(source)
    if test is not None and (test.pick, test.winner) == (pick, best):
        # The gain comes from the paired ratio, not from two medians.
        ratio = test.confirmation.speedup
        proven = Gain(gain.now_us, *(gain.now_us / x for x in (ratio.value, ratio.high, ratio.low)))
        rows = finding.override
        confirmed = replace(
            finding,
            p=test.confirmation.p,
            evidence=fast_replace(finding.evidence, best_us=proven.then_us),
            remedy=UseRows(replace(rows, time_us=proven.then_us)) if rows is not None else finding.remedy,
        )
        return _with_gain(confirmed, proven, "processes")
    noise = finding.evidence.noise_us or 0.0
    if noise > 0:
        noisy = replace(gain, low_us=gain.then_us - noise, high_us=gain.then_us + noise)
        return _with_gain(finding, noisy, "repeat")
    return finding


def _with_gain(finding: Finding, gain: Gain, kind: str) -> Finding:
    calls = finding.calls
    return replace(finding, per_call=gain, in_run=None if calls is None else gain.times(calls), interval_from=kind)


def _with_place(finding: Finding, places: Mapping[str, tuple[str, Facts]]) -> Finding:
    """Add to a finding (a possible saving) the file with its measured times.

    Facts about the machine that wrote the file are added, too.
    """
    if _source(finding) not in places:
        return finding
    file, versions = places[_source(finding)]
    return fast_replace(finding, evidence=fast_replace(finding.evidence, file=file, versions=versions))
