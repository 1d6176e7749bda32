"""Collect all findings about a job, judge them, leave out the weak ones and rank the others.

``recommend`` makes one list in stages:

1. *completed*: each finding gets its interval, p-value and file.
2. *deduplicated*: no time is saved twice.
3. *weighed*: the savings are scaled to the times in the job's traces.
4. *gated*: findings that failed their test or are too small are left out.

A report shows the ceiling first: the gain if every call took the best known time, and the fractions of the calls and of
the time for which it is known. "Nothing worth doing" is a valid result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from analyzers.actions import ActionResult
from analyzers.actions.action import rank as rank_of_actions
from analyzers.evidence import ladders
from analyzers.evidence.cells import is_true
from analyzers.evidence.joins import called_problems, calls_by_problem
from analyzers.evidence.origins import ACTION
from analyzers.evidence.picks import picks_vs_best, unknown_device
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import units, word_of
from analyzers.findings import ANALYZERS
from analyzers.findings.finding import Analyzer
from analyzers.job.expectations import as_expected
from analyzers.job.gpu_time import GpuTime, gpu_time, gpu_us, trace_steps
from analyzers.recommend.ceiling import Ceiling, ceiling, in_the_job
from analyzers.recommend.confidence import Judgement, add_intervals, judge_all_pairs
from analyzers.recommend.duplicates import (
    deduplicated,
    drop_unreachable_saving,
    one_claim_each,
    one_row_each,
    rank,
    without_saving,
)
from analyzers.recommend.files_action import files_actions, to_write
from analyzers.recommend.untimed_choices import untimed_choices
from logparse.capture.in_job.logparse_in_job.switches import TOGETHER
from logparse.libraries.aiter.tables import CATEGORY as AITER
from logparse.libraries.hipblaslt import bench
from logparse.libraries.own.job_trials import TRIAL
from logparse.libraries.torch_profiler import places
from logparse.model import Finding, Gain, Override, Problem, Search, problem_from_text

if TYPE_CHECKING:  # The simulation is loaded only for runs with traces.
    from analyzers.evidence.trials import Tried
    from analyzers.job.step.answer import StepAnswer
    from analyzers.recommend.step_times import StepTimes


@dataclass(frozen=True)
class Recommendation:
    """The ranked findings about a job, and everything else that its report contains.

    * ``findings``: findings about operators (with sizes), the most valuable first. ``remarks``: findings about the job
      as a whole.
    * ``judgement``: the kernels that were tested. ``left_out``: the number of findings left out, by reason.
    * ``calls``: the number of the job's calls by operator. ``counted``: the number of lines in the job's files that are
      calls or measurements.
    * ``gpu_time``: GPU time of the job's traces by kind of work.
    * ``actions``: effects on the job of override files, settings and changes of the program, the best first.
    * ``cuda``: True if the job's files are from NVIDIA GPUs.
    * ``aiter_misses``: log lines with shapes that aiter's tables lack.
    * ``object_calls``: operators that were called through hipBLASLt's C++ object.
    * ``steps``: the number of steps to which the job's calls belong, None if unknown. ``word``: the user's word for a
      step (step, request …).
    * ``step``: the time of a step now and with each change, simulated from the traces, or the reason why it is unknown.
      None without a trace.
    * ``ladder``: additional sizes between the sizes of the overrides, if the user asked for them
      (``analyzers/evidence/ladders.py``).
    * ``as_expected``: the number of problems whose only time is at most what comparable problems take, and the number
      of all problems with only one time.
    * ``unlike``: a sentence that explains why the times of the job's traces cannot be added. Empty if they can.
    * ``tried``: results of trying changes in the running job.
    * ``not_used``: counts of what the run has and no finding uses, such as damaged lines. Empty if there is nothing.
    * ``processes``: for each kind of problem, the number of processes whose calls the logs count together. Logs that
      name no process are left out.
    * ``choices``: a clause about kernels that MIOpen chose without timing them. Empty without any.
    * ``callers``: values of the fact ``called_from`` of the job's traces (``libraries/torch_profiler/places.py``).
    """

    run: str
    ceiling: Ceiling
    judgement: Judgement
    remarks: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    left_out: Mapping[str, int]
    calls: Mapping[str, float]
    gpu_time: GpuTime | None = None
    actions: tuple[ActionResult, ...] = ()
    cuda: bool = False
    aiter_misses: tuple[str, ...] = ()
    object_calls: tuple[Problem, ...] = ()
    counted: int = 0
    steps: float | None = None
    step: StepTimes | str | None = None
    word: str = "step"
    ladder: tuple[ladders.Rung, ...] = ()
    unlike: str = ""
    tried: tuple[Tried, ...] = ()
    as_expected: tuple[int, int] = (0, 0)
    not_used: str = ""
    processes: Mapping[str, int] = field(default_factory=dict)
    choices: str = ""
    callers: tuple[str, ...] = ()

    def called_from(self, problems: Iterable[str]) -> str:
        """Say from where the program calls some operators, given by their texts. Empty if no trace shows it."""
        return places.sentence(self.callers, problems)

    @property
    def now(self) -> StepAnswer | None:
        """The simulated step of the job as it is, without any change. None if it is unknown."""
        return None if self.step is None or isinstance(self.step, str) else self.step.now

    def step_gain(self, action: str) -> Gain | None:
        """Return how long a step takes now and with the named change. None if it is unknown.

        If the change was tried in the running job, the times were measured there. Otherwise they are simulated.
        """
        for x in self.tried:
            if x.name == action and x.is_known and x.gain is not None:
                return x.gain
        return None if self.step is None or isinstance(self.step, str) else self.step.under.get(action)

    @property
    def in_job(self) -> frozenset[str]:
        """The names of the single changes whose effect on a step was measured in the running job."""
        return frozenset(x.name for x in self.tried if x.is_known and TOGETHER not in x.name)

    @property
    def combination(self) -> tuple[str, ...]:
        """The names of changes that were measured together in the running job, and saved more than any single change.

        The tuple is empty if no such combination was measured.
        """
        measured = [x for x in self.tried if x.outcome == "measured" and x.gain is not None]
        best = max(measured, key=lambda x: x.gain.saving_us if x.gain else 0.0, default=None)
        names = tuple(best.name.split(TOGETHER)) if best is not None else ()
        return names if len(names) > 1 else ()

    @property
    def overrides(self) -> tuple[Override, ...]:
        return tuple(x.override for x in self.findings if x.override is not None)

    @cached_property
    def rows(self) -> tuple[Mapping[str, object], ...]:
        """The values of each finding as a flat dictionary. ``findings.json`` and all tables show these values."""
        return tuple(map(_row, self.findings))


NOT_CONFIRMED = "not confirmed, because the paired samples do not show the gain"
BELOW_FLOOR = "with a gain below --min-gain"
TOO_LITTLE = "with a saving below --min-saving"


def recommend(
    tables: Tables,
    settings: Settings,
    analyzers: Sequence[Analyzer] | None = None,
    begins: Callable[[str], None] = lambda stage: None,
) -> Recommendation:
    """Run the analyzers on a job, and rank their findings by the time that they save.

    * ``analyzers``: by default all.
    * ``begins``: called with each analyzer's name before it runs.
    """
    usual, judged = _include_small_gains(settings), judge_all_pairs(tables, settings.min_gain)
    chosen = ANALYZERS if analyzers is None else analyzers
    found: list[Finding] = []
    for analyzer in chosen:
        begins(analyzer.name)
        found += analyzer.find(tables, usual)
    begins("ranking")
    found = add_intervals(found, tables, judged)
    table = in_the_job(deduplicated(_of_the_run(found, tables), tables.links), tables)
    left_out = [_why_left_out(x, settings, judged) for x in table]
    kept = one_claim_each([x for x, why in zip(table, left_out, strict=True) if why is None], tables.links)
    calls = {str(x): float(n) for x, n in calls_by_problem(tables.workload).dropna().items()}
    # Findings with an unknown saving come last, ordered by the loss per call.
    ranked = sorted(map(drop_unreachable_saving, kept), key=rank)
    findings = one_row_each(ranked, calls, lambda: ladders.races(tables, settings))
    most = _ceiling(table, tables, usual)
    files, own = files_actions(findings, most.default_us, tables, settings), tables.sources["run"] == tables.run
    actions = sorted([*_timed_actions(tables, settings), *files], key=rank_of_actions)
    proposed = [x.override for x in to_write(findings, settings) if x.override is not None]
    return Recommendation(
        run=tables.run,
        ceiling=most,
        judgement=judged,
        remarks=tuple(x for x in found if x.problem is None),
        findings=tuple(findings),
        left_out=dict(sorted(Counter(filter(None, left_out)).items())),
        calls=calls,
        gpu_time=gpu_time(tables, settings.steps),
        actions=tuple(actions),
        cuda=_of_cuda(tables),
        aiter_misses=_aiter_misses(tables),
        object_calls=_object_calls(tables),
        counted=int(tables.sources.loc[own, ["call_lines", "measurement_lines"]].sum().sum()),
        ladder=tuple(ladders.choose_rungs(tables, settings, settings.ladder, proposed)) if settings.ladder else (),
        steps=_steps(tables, settings),
        word="step" if settings.steps and word_of(tables) == "rank" else word_of(tables),
        unlike=tables.unlike,
        tried=_read_trials(tables),
        as_expected=as_expected(tables, usual),
        processes=_processes(tables),
        choices=untimed_choices(tables),
        callers=_callers(tables),
    )


def _callers(tables: Tables) -> tuple[str, ...]:
    facts = tables.facts
    of_run = (facts["run"] == tables.run) & (facts["name"] == places.FACT)
    return tuple(map(str, facts.loc[of_run, "value"]))


def _processes(tables: Tables) -> dict[str, int]:
    """Return the number of processes of the job that the logs name, by kind of problem, without benchmark tools."""
    calls = tables.calls[~is_true(tables.calls["by_tool"]) & (tables.calls["run"] == tables.run)]
    return {str(kind): int(count) for kind, count in calls.groupby("kind")["pid"].nunique().items()}


def _read_trials(tables: Tables) -> tuple[Tried, ...]:
    """Return the results of changes that were tried while the job ran.

    Without such changes, the module that judges them is not even loaded.
    """
    if not tables.facts["name"].str.startswith(TRIAL).any():
        return ()
    from analyzers.evidence.trials import read_tried_changes

    return read_tried_changes(tables)


def _steps(tables: Tables, settings: Settings) -> float | None:
    """Return over how many steps the job's calls are counted, or None if it is unknown."""
    # The user states the number, or the traces mark the steps. Without traces, it is the number of steps or requests
    # that the job itself counted.
    if gpu_us(tables) is not None:
        return trace_steps(tables, settings.steps)
    if settings.steps:
        return float(settings.steps)
    found = units(tables)
    return float(found.count) if found is not None and found.count else None


def _include_small_gains(settings: Settings) -> Settings:
    """Return the settings for computing the most that the job can gain, including small gains that the user hides."""
    usual = Settings()
    # The limits below which a gain is hidden are replaced: the smallest gain by the default if that is smaller, and the
    # smallest saving by the default.
    floor = min(settings.min_gain, usual.min_gain)
    return replace(settings, min_gain=floor, min_saving_us=usual.min_saving_us)


def _ceiling(table: Sequence[Finding], tables: Tables, usual: Settings) -> Ceiling:
    """Return the most that the job can gain by better kernels, including small gains that the user chose not to see.

    ``usual`` are the settings that include small gains (``_include_small_gains``).
    """
    judged = judge_all_pairs(tables, usual.min_gain)
    kept = one_claim_each([x for x in table if _why_left_out(x, usual, judged) is None], tables.links)
    return ceiling(picks_vs_best(tables, usual), kept, tables, judged)


def _timed_actions(tables: Tables, settings: Settings) -> list[ActionResult]:
    if not (tables.measurements["origin"] == ACTION).any():
        return []
    from analyzers.actions import ACTIONS
    from analyzers.actions.totals import results

    return results(tables, ACTIONS, settings)


def _of_the_run(findings: Sequence[Finding], tables: Tables) -> list[Finding]:
    """Keep the findings (possible savings) about operators that this job called or measured.

    If a finding's time may come from another device than the job's calls, its saving and its number of calls are
    removed.
    """
    own = {None, *tables.sources.loc[tables.sources["run"] == tables.run, "source_id"]}
    called, elsewhere, out = called_problems(tables), unknown_device(tables), []
    for x in findings:
        source = x.evidence.source_id
        if x.problem is not None and (source in own or x.problem.text in called):
            out.append(without_saving(x, calls=None) if elsewhere(x.problem.text, source or "") else x)
    return out


def _aiter_misses(tables: Tables) -> tuple[str, ...]:
    messages = tables.messages[tables.messages["category"] == AITER]
    if not len(messages):
        return ()
    from logparse.libraries.aiter import log

    missed = messages["function"].isin([log.UNTUNED, log.DEFAULT, log.FUSED_MOE])
    return tuple(sorted(set(messages["text"][missed])))


def _object_calls(tables: Tables) -> tuple[Problem, ...]:
    found = tables.messages[tables.messages["function"] == bench.OBJECT]
    return tuple(problem_from_text(text) for text in sorted(set(found["text"])))


def to_search(findings: Sequence[Finding]) -> list[Finding]:
    """Keep the findings about operators for which a library's tool can search for a faster kernel."""
    return [finding for finding in findings if finding.problem is not None and isinstance(finding.remedy, Search)]


def _why_left_out(finding: Finding, settings: Settings, judged: Judgement) -> str | None:
    before, gain = finding.now_us, finding.per_call_us
    small = before is not None and gain is not None and gain < settings.min_gain * before
    if not judged.keeps(finding):  # Samples may show a gain that is smaller than the user asked for.
        return BELOW_FLOOR if small and finding.p is not None and _least_us(finding) > 0 else NOT_CONFIRMED
    if small:
        return BELOW_FLOOR
    if finding.saving_us is not None and finding.saving_us < settings.min_saving_us:
        return TOO_LITTLE
    return None


def _least_us(finding: Finding) -> float:
    """Return the lower bound of the saving of one call, µs. 0 if it is unknown."""
    return (finding.per_call and finding.per_call.saving_low_us) or 0.0


def _of_cuda(tables: Tables) -> bool:
    """Tell whether the job ran on NVIDIA GPUs: its files name GPUs, and all are from NVIDIA."""
    rows = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == "arch")]
    return bool(len(rows) and rows["value"].str.startswith("sm_").all())


def _row(finding: Finding) -> dict[str, object]:
    problem = finding.problem
    return {
        "analyzer": finding.analyzer,
        "kind": finding.kind,
        "problem": problem.text if problem else None,
        "label": problem.label if problem else None,
        "message": "; also ".join((finding.message, *finding.reasons)),
        "calls": finding.calls,
        "pre_us": finding.now_us,
        "post_us": finding.then_us,
        **_make_saving_columns("per_call", finding.per_call),
        **_make_saving_columns("saving", finding.in_run),
        **{name: getattr(finding, name) for name in ("saving_share", "interval_from", "p")},
        "confidence": finding.sureness,
        "action": finding.remedy.action,
        "solution": finding.override.solution.text if finding.override else None,
        "advice": finding.advice,
    }


def _make_saving_columns(name: str, gain: Gain | None) -> dict[str, float | None]:
    """Return a saving and its bounds as columns, for example ``saving_us, saving_low_us, saving_high_us``.

    ``name`` is the beginning of the columns' names. Without a gain, the values are None.
    """
    times = (None,) * 3 if gain is None else (gain.saving_us, gain.saving_low_us, gain.saving_high_us)
    return dict(zip((f"{name}_us", f"{name}_low_us", f"{name}_high_us"), times, strict=True))
