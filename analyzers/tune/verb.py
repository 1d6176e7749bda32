"""What the verb ``tune`` does: capture, replay, recommend, run again, verify; each is the verb of that name.

Whatever ends it, the store holds what was done until then, and each stage can be called by itself from there.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from analyzers.analyzer import Settings
from analyzers.job.gpu_time import traced_us
from analyzers.measure.replay import Options, replay
from analyzers.measure.scheduler import Limits
from analyzers.recommend import render, render_actions
from analyzers.recommend.apply_module import without_a_change
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.verb import advise, write
from analyzers.times.runs import tables_of
from analyzers.verify import render as proof_render
from analyzers.verify.actions import verify_actions
from logparse.capture import with_overrides
from logparse.capture.job import CANNOT_RUN, NOT_FOUND
from logparse.capture.plan import TRACES, Plan, plan, steps_needed
from logparse.capture.run import capture
from logparse.formats.override_formats import WRITERS
from logparse.ingest import Ingested
from logparse.store import Store, command_line

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """``steps`` to trace, ``budget_s`` seconds of replay, ``out`` the folder of override files and ``apply.py``."""

    steps: int = 5
    budget_s: float = 600.0
    out: Path = Path("overrides")


def tune(
    command: Sequence[str], store: Store, tuning: Tuning, say: Say, environ: Mapping[str, str] = os.environ
) -> int:
    """Tune a job; returns its exit code, 130 where Ctrl-C ended a stage.  Raises InputError, MeasuringError."""
    before = f"tune-{datetime.datetime.now():%Y%m%dT%H%M%S}"
    first = plan(command, trace=tuning.steps, environ=environ)
    try:
        return _tuned(command, first, store, tuning, say, environ, before)
    except KeyboardInterrupt:
        say(f"interrupted: {_goes_on(store, before, first)}")
        return 130


def _goes_on(store: Store, run: str, first: Plan) -> str:
    """Which verbs go on from what is stored of a run, or from the logs of its job."""
    if run in set(store.sources()["run"]):
        on, rank = (command_line(store.url, verb, "--run", run) for verb in ("replay", "recommend"))
        return f"the store holds what was done until now; `{on}` goes on, and `{rank}` uses what there is"
    logs = command_line(store.url, "ingest", str(first.folder), "--run", run)
    return f"nothing is stored yet; `{logs}` reads what the job wrote until now"


def _tuned(
    command: Sequence[str],
    first: Plan,
    store: Store,
    tuning: Tuning,
    say: Say,
    environ: Mapping[str, str],
    before: str,
) -> int:
    after = f"{before}-after"
    say("1/5 capture: the job as it is, with its libraries' logs and a profiler over a few steps")
    code, read = capture(command, first, lambda: store, say, run=before, environ=environ)
    if code:
        if code in (CANNOT_RUN, NOT_FOUND) and not first.folder.exists():
            return code  # it was not started, which is reported
        say(f"the job ended with exit code {code}: it is not run again; {_goes_on(store, before, first)}")
        return code
    if traced_us(tables_of(store, before)) is None:
        say(_without_kernels(read, tuning))
        if not any(x.calls for x in read):
            say("no call was counted either: nothing is left to replay, and nothing is changed")
            return code
    say(
        f"2/5 replay: what each problem runs under each action, then better solutions, {tuning.budget_s:,.0f} s at most"
    )
    options = Options(run=before, limits=Limits(budget_s=tuning.budget_s))
    report = replay(store, options)
    if report.interrupted:
        say(f"interrupted: {_goes_on(store, before, first)}")
        return 130
    say("3/5 recommend")
    settings = Settings()
    found = advise(store, settings, before)
    written, _ = write(found, settings, WRITERS, tuning.out)
    for line in render.lines(found):
        say(f"  {line}")
    chosen = [x.action.name for x in without_a_change(found.actions)]
    files = [x.path for x in written if x.applied]
    if not chosen and not files:
        say("no file or setting is worth applying")
        _by_hand(found, tuning.out, say)
        return 0
    say(f"4/5 the job again, with {' and '.join([*chosen, *(path.name for path in files)])}")
    words, made = with_overrides.applied(command, tuning.out, environ)
    # While it records untuned keys, TunableOp reads no tuned rows (PyTorch 2.10 and later).
    again = plan(words, trace=tuning.steps, tunableop=False, environ=made)
    code, _ = capture(words, again, lambda: store, say, run=after, environ=made)
    if code:
        say(f"the job with the changes ended with exit code {code}; its logs are run {after}")
        return code
    say("5/5 verify")
    if chosen and traced_us(tables_of(store, after)) is not None:
        proof = verify_actions(tables_of(store, before), tables_of(store, after), chosen)
        for line in proof_render.action_lines(proof):
            say(f"  {line}")
    if files:
        say(f"  override files: `{command_line(store.url, 'verify', before, after, *map(str, files))}`")
    _by_hand(found, tuning.out, say)
    return 0


def _without_kernels(read: Sequence[Ingested], tuning: Tuning) -> str:
    """Why no GPU kernel was traced, as far as the job's files show it."""
    traces = [x for x in read if Path(x.path).match(TRACES)]
    if traces:
        why = f"{len(traces)} {'process was' if len(traces) == 1 else 'processes were'} traced and ran none (on a CPU?)"
    else:
        why = (
            f"no process wrote a trace, which takes {steps_needed(tuning.steps)} steps of an optimizer, or calls of a "
            "module without gradients, in a Python that is started with the environment of this command"
        )
    return f"no GPU kernel was traced, so no action can be weighed against the whole job: {why}"


def _by_hand(found: Recommendation, out: Path, say: Say) -> None:
    """The changes of the program that pay, or may where the GPU waits for the host."""
    left = [x for x in found.actions if x.action.kind == "program" and (x.pays or x.action.waits)]
    if left:
        say("left to do by hand:")
    for line in render_actions.lines(left, found.gpu_time):
        say(f"  {line}")
    if left:
        say(f"  {out}/apply.py makes them: import apply; apply.settings(); model = apply.model(model)")
