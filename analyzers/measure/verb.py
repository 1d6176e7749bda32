"""What the verb ``replay`` does: a plan, or what was made of it, or the measuring itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from analyzers.measure import render
from analyzers.measure.device_workers import local_devices
from analyzers.measure.plan import Item
from analyzers.measure.profile import profile_lines
from analyzers.measure.progress import display
from analyzers.measure.replay import Options, planned, replay, timed_of
from analyzers.measure.tune_script import script as script_of
from logparse.output import Answer
from logparse.store import Store
from logparse.text import counted


def plan(store: Store, options: Options, script: Path | None = None, profiled: str | None = None) -> Answer:
    """The plan; a script that measures it elsewhere; or profilers' command lines for the solution ``profiled``."""
    items = planned(store, options)
    if profiled:
        return render.plan_answer(items, profile_lines(items, profiled, options))
    if script is None:
        return _dry_run(items, store, options)
    script.write_text(script_of(items), encoding="utf-8")
    wrote = f"wrote {script}: {counted(len(items), 'problem')}; run it there, then `logparse ingest` what it wrote"
    return render.plan_answer(items, [wrote])


def _dry_run(items: Sequence[Item], store: Store, options: Options) -> Answer:
    """What each stage would measure.  Raises InputError for a GPU that the measuring itself would not find."""
    if options.devices and options.engine == "local":
        local_devices(options.devices)
    timed = timed_of(store, options) if "actions" in options.stages else []
    count = sum(len(x.solutions) for x in timed)
    actions = [f"timed for actions, without a search: {counted(len(timed), 'problem')}, {counted(count, 'solution')}"]
    if "races" not in options.stages:
        return render.plan_answer([], actions)
    return render.plan_answer(items, also=actions if timed else ())


def measure(store: Store, options: Options, echo: Callable[[str], None]) -> Answer:
    """Measure the problems, and show each outcome as it comes; exit code 130 where Ctrl-C ended it."""
    with display(echo) as shown:
        report = replay(store, options, shown.take, shown.watch)
    return Answer(render.report_lines(report), code=130 * report.interrupted)
