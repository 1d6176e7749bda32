"""The command line program: one short function per command.

Each function makes one call of the library and returns an answer, which is printed in one place.
"""

# No `from __future__ import annotations`: typer would compile two hundred texts back into types at every start.

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from logparse import __version__
from logparse.errors import UsageError
from logparse.output import CHECK_FAILED, ROWS, Answer, Bar, Stages, Wait, mark_as_message, with_total
from logparse.output import options as opt
from logparse.output.options import argument, choice, open_named_store, option
from logparse.output.program import run_program
from logparse.text import decode_pasted, make_printable, parse_share

app = typer.Typer(
    cls=opt.Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Read the math-library logs, traces and tuning files of GPU jobs, find slow library calls, and write "
    "override files. An override file makes a library run another solution (kernel) than its heuristic would "
    "choose.",
    epilog="A first session: `logparse ingest hipblaslt_*.log *.fdb.txt tunableop_*.csv`, then `logparse recommend`.",
)
verb = partial(opt.verb, app)
BACKENDS = "logparse.libraries.all_backends:BACKENDS"
OVERRIDES = "logparse.libraries.override_formats:OVERRIDE_FORMATS"
TARGETS = "analyzers.overrides.convert:TARGETS"
EXPORTS = "analyzers.overrides.export:NAMES"
"""Where the allowed values of some options are listed, as ``module:LIST``.

A list is imported only when a value of its option is checked.
"""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"logparse {__version__}")
        raise typer.Exit


def facts_of(words: Sequence[str] | None) -> Mapping[str, str]:
    """Return the facts about a machine that the user's words after ``--target`` state.

    Without words the result is empty, and the code that parses them is not imported.
    """
    if not words:
        return {}
    from logparse.ingest.stated_target import target_from

    return target_from(words)


@app.callback()
def program(
    version: Annotated[bool, option("Print the version.", "--version", is_eager=True, callback=_print_version)] = False,
    color: Annotated[
        str,
        choice(
            "Print headings in bold, commands to type in cyan and doubts in yellow: auto (on a terminal, unless "
            "NO_COLOR is set), always or never.",
            "--color",
            of=opt.COLOURS,
        ),
    ] = "auto",
) -> None:
    """Declare the options of the whole program, which come before the name of a command."""


@verb(
    "logparse ingest hipblaslt_*.log gfx942130.HIP.fdb.txt tunableop_results0.csv", opt.Wide, old={"--format": "--as"}
)
def ingest(
    paths: Annotated[list[str], argument("Files, folders, glob patterns or URLs to read; `-` reads standard input.")],
    store: opt.Store = None,
    run: opt.Label = None,
    format: Annotated[
        str | None,
        option("Format of the files (`logparse formats` lists them). [default: recognised from the content]", "--as"),
    ] = None,
    jobs: Annotated[int, option("Number of files to read at once. [default: one per core]", "--jobs", "-j", min=0)] = 0,
    engine: opt.Engine = "local",
    pid: Annotated[
        str | None,
        option("Process number for log lines that name no process, or `none`. [default: from the file's name]"),
    ] = None,
) -> Answer:
    """Read logs and tuning files into the store."""
    from logparse.executors import open_executor
    from logparse.ingest import ingest_at
    from logparse.ingest.render import answer

    with open_executor(engine, jobs) as executor, Bar() as bar:
        reading = partial(ingest_at, store, paths, total=bar.begin, executor=executor, run=run, format=format, pid=pid)
        return answer(reading(progress=bar.advance if bar.shown else None), run, store)


@verb("logparse capture --out logs -- torchrun --nproc-per-node 8 train.py", passes_on=True, old={"--dir": "--out"})
def capture(
    command: Annotated[opt.Words, argument("Command that runs the job, after `--`.")] = None,
    masks: Annotated[
        str, option("Categories of log lines that hipBLASLt writes, as numbers or names: 32 or bench, 64 or profile.")
    ] = "32,64",
    folder: Annotated[
        Path | None, opt.path("New folder for the logs. [default: a new folder, whose name is printed]", "--out")
    ] = None,
    store: opt.Store = None,
    run: opt.Label = None,
    markers: Annotated[
        bool, option("Let hipBLASLt mark its calls as roctx ranges, for rocprofv3.", "--markers", hidden=True)
    ] = False,
    tunableop: Annotated[
        bool, option("Let TunableOp record the matrix products for which it has no tuned row.")
    ] = True,
    trace: Annotated[
        str,
        option(
            "Trace this many steps (or requests) at a time with torch.profiler, or trace for a time such as 2s. "
            "0: no trace."
        ),
    ] = "0",
    unit: Annotated[
        str,
        option(
            "Function whose calls are the steps of the job, as package.module:Class.method. [default: logparse "
            "finds it]"
        ),
    ] = "",
    print_only: Annotated[
        bool, option("Run nothing. Print the environment variables as shell exports, with their meaning.", "--print")
    ] = False,
) -> Answer:
    """Run a job with the logs of its libraries switched on, and ingest the logs; the exit code is the job's."""
    from logparse.capture.plan import exports, plan, trace_of
    from logparse.capture.run import capture as captured
    from logparse.ingest.render import answer

    if not command and not print_only:
        raise typer.BadParameter("give the command that runs the job after `--`, or use --print", param_hint="COMMAND")
    off = () if tunableop else ("tunableop",)
    settings = plan(command or [], folder, masks, markers=markers, leave_out=off, trace=trace_of(trace, unit))
    if print_only:
        return Answer(exports(settings, store, run).splitlines(), errors=[f"warning: {x}" for x in settings.warnings])
    opening = partial(open_named_store, store, create=True)

    def say(line: str) -> None:
        typer.echo(mark_as_message(line), err=True)

    code, results = captured(command or [], settings, opening, say, run=run)
    return replace(answer(results), code=code, aside=True)  # standard output is the job's


@verb("logparse run --with overrides -- python train.py", passes_on=True)
def run(
    command: opt.Job,
    overrides: Annotated[Path, opt.path("Folder that `logparse recommend` wrote.", "--with")] = Path("overrides"),
    verified: Annotated[
        str | None,
        option(
            "Label of a run without the files. The job is then logged as a new run, and compared with that run as "
            "by `logparse verify`; exit code 3 if the files are not used.",
            "--verify",
        ),
    ] = None,
    store: opt.Store = None,
) -> Answer:
    """Run a job with the files and settings that `recommend` wrote; the exit code is the job's.

    Exit code 125: the job succeeded, but the files or settings were not applied.
    """
    if verified is not None:
        from analyzers.tune.verified_run import run_and_verify

        say = lambda line: typer.echo(mark_as_message(line), err=True)  # noqa: E731
        return run_and_verify(command, overrides, verified, open_named_store(store), say)
    from logparse.capture import with_overrides

    ran = with_overrides.run(command, overrides)
    errors = [f"error: {command[0]}: {x}" for x in [ran.ended.not_run] if x]
    return Answer(errors=[*errors, *ran.lines], code=ran.code, aside=True)


@verb("logparse tune --budget 10m -- python train.py", passes_on=True)
def tune(
    command: opt.Job,
    budget: Annotated[
        str,
        option(
            "Time single GPU calls for at most this long, for example 90s or 10m. The runs of the job take time of "
            "their own: `tune` starts it several times."
        ),
    ] = "10m",
    trace: Annotated[
        str, option("Trace this many steps (or requests) at a time, or trace for a time such as 2s.")
    ] = "2",
    unit: Annotated[
        str,
        option(
            "Function whose calls are the steps of the job, as package.module:Class.method. [default: logparse "
            "finds it]"
        ),
    ] = "",
    out: Annotated[Path, opt.path("Folder to write the override files and apply.py to.")] = Path("overrides"),
    pairs: Annotated[
        int,
        option(
            "Time at most this many pairs of runs, with and without the changes; stop earlier if the result is clear.",
            min=3,
        ),
    ] = 4,
    before_each: Annotated[
        str, option("Shell command to run before each start of the job, such as one that removes its checkpoints.")
    ] = "",
    store: opt.Store = None,
) -> Answer:
    """Find what makes a job faster and prove it: capture, replay, recommend, run the job again, verify.

    The exit code is the job's if it fails. 4: the job did no GPU work that could be measured. 125: the changes did not
    take effect. 130: Ctrl-C.
    """
    from analyzers.replay.replay import seconds
    from analyzers.tune import verb
    from logparse.capture.plan import trace_of

    tuning = verb.Tuning(
        trace=trace_of(trace, unit), budget_s=seconds(budget), out=out, pairs=pairs, before_each=before_each
    )
    held = open_named_store(store, create=True)
    code = verb.tune(command, held, tuning, lambda line: typer.echo(make_printable(line), err=True))
    return Answer(code=code, aside=True)


@verb("logparse try channels_last tf32 -- python train.py", opt.Table, passes_on=True, name="try")
def try_(
    words: Annotated[
        list[str],
        argument(
            (
                "Names of the actions (settings or changes of the program) to try, then `--`, then the command "
                "that runs the job."
            ),
            metavar="ACTION… -- COMMAND…",
        ),
    ],
    budget: Annotated[
        str, option("In each start of the job, try the actions for at most this time, for example 90s or 10m.")
    ] = "60s",
    unit: Annotated[
        str,
        option(
            "Function whose calls are the steps of the job, as package.module:Class.method. [default: logparse "
            "finds it]"
        ),
    ] = "",
    rows: Annotated[opt.Words, option("TunableOp results CSV whose rows the action tunableop_rows tries.")] = None,
    before_each: Annotated[
        str, option("Shell command to run before each start of the job, such as one that removes its checkpoints.")
    ] = "",
) -> Answer:
    """Try settings in a running job: switch each on and off between steps, time it, and undo it."""
    import os

    from analyzers.replay.replay import seconds
    from analyzers.tune import in_the_job, try_verb
    from analyzers.tune.starts import Starts

    actions, command = try_verb.split_at_dashes(words)
    asked = in_the_job.trial(actions, unit=unit, seconds=seconds(budget), rows=tuple(rows or ()))
    say = lambda line: typer.echo(mark_as_message(make_printable(line)), err=True)  # noqa: E731
    return try_verb.answer(in_the_job.try_in_the_job(command, os.environ, asked, Starts(before_each=before_each), say))


@verb(
    "logparse recommend --target tunableop_results0.csv --out overrides",
    opt.Table,
    old={"--max-rows": "--rows-per-file"},
)
def recommend(
    store: opt.Store = None,
    run: opt.Run = None,
    target: opt.Target = None,
    out: Annotated[
        Path | None,
        opt.path(
            "Folder for the override files, with one folder per target. [default: overrides, or overrides-RUN if it "
            "has the files of another run]"
        ),
    ] = None,
    n: opt.Count = None,
    min_gain: Annotated[str, option("Propose no change that saves less than this share of a call's time.")] = "3%",
    min_saving: Annotated[
        float, option("Leave out findings that save less than this (µs per run).", min=0.0, hidden=True)
    ] = 0.0,
    own: Annotated[
        opt.Words,
        option("Override files that the job reads now. Their rows for other calls are kept in the new files."),
    ] = None,
    confirmed: Annotated[bool, option("Write only overrides that `logparse replay` confirmed.", "--confirmed")] = False,
    max_rows: Annotated[
        int | None,
        option(
            "Write at most this many rows per override file, the most valuable first.",
            "--rows-per-file",
            min=1,
            hidden=True,
        ),
    ] = None,
    ladder: Annotated[
        int | None,
        option(
            "Also write hipBLASLt rows for sizes between the measured ones, at multiples of this number.",
            min=1,
            hidden=True,
        ),
    ] = None,
    steps: Annotated[
        int | None, option("Number of training steps in the logs. [default: counted in the traces]", min=1)
    ] = None,
    gpus: opt.Gpus = 1,
    same_build: Annotated[
        bool, option("Assume that logs and times come from the same library build and GPU arch.", "--same-build")
    ] = False,
    records: opt.Records = None,
    explain: Annotated[
        str | None, option("Print everything about one proposed change, given by its number or name in the list.")
    ] = None,
    verbose: Annotated[
        bool, option("Print the whole report: every finding and every file.", "-v", "--verbose")
    ] = False,
) -> Answer:
    """Show where a job's time goes, rank what to change by the time it saves, and write the override files."""
    from analyzers.evidence.tables import Settings
    from analyzers.recommend import verb

    settings = Settings(
        same_build=same_build,
        min_saving_us=min_saving,
        min_gain=parse_share(min_gain, "--min-gain", most=1.0),
        confirmed_only=confirmed,
        max_rows=max_rows,
        ladder=ladder,
        steps=steps,
        target=facts_of(target),
    )
    held = open_named_store(store)
    if records:
        from analyzers.replay.sharing import take

        take(held, records, run)
    with Stages("recommend", verb.STAGES) as stages:
        found = verb.advise(held, settings, run, stages, count_left_out=True)
    return verb.answer(found, settings, out, gpus, own or [], n=n, explain=explain, verbose=verbose, store=held)


@verb("logparse replay --kind conv --direction wgrad --budget 10m", opt.Table)
def replay(
    store: opt.Store = None,
    run: opt.Run = None,
    backend: Annotated[
        str, choice("Libraries to measure, such as torch,cublaslt.", of=BACKENDS, several=True, own=True)
    ] = "torch",
    device: Annotated[
        str | None, option("Numbers of the GPUs to measure on, such as 0,1, or cpu. [default: every GPU]")
    ] = None,
    engine: opt.Engine = "local",
    kind: Annotated[str | None, choice("Measure only gemm or only conv (convolutions).", of=("gemm", "conv"))] = None,
    direction: Annotated[
        str | None,
        choice(
            "Measure only one pass of convolutions: forward, dgrad or wgrad (F, B, W).", of=(*opt.PASSES, "F", "B", "W")
        ),
    ] = None,
    top: Annotated[
        int | None,
        option(
            ("Measure only this many matrix products and convolutions, beginning with the largest possible saving."),
            min=1,
        ),
    ] = None,
    ladder: Annotated[
        int | None,
        option(
            (
                "Also time sizes of matrix products halfway between two sizes that the job uses. `logparse recommend "
                "--ladder N` needs these times to write rows for the sizes between."
            ),
            min=1,
            hidden=True,
        ),
    ] = None,
    budget: Annotated[str | None, option("Stop after this time, for example 90s, 10m or 1.5h.")] = None,
    silence: Annotated[
        str, option("Kill a measuring process that reports nothing for this time.", hidden=True)
    ] = "60s",
    workspace: Annotated[
        int | None,
        option("Workspace per call in bytes. [default: the size in the logs, else PyTorch's]", min=0, hidden=True),
    ] = None,
    resume: Annotated[
        bool,
        option(
            "Skip the measurements that this machine has made before (default), or make them again.", "--resume/--again"
        ),
    ] = True,
    exhaustive: Annotated[
        bool, option("Try every solution of the library, not only those that its heuristic lists.", "--exhaustive")
    ] = False,
    records: opt.Records = None,
    hot: Annotated[
        bool,
        option(
            (
                "Measure with operands in the last-level cache. Without this option, each call reads its operands from "
                "memory."
            ),
            "--hot",
            hidden=True,
        ),
    ] = False,
    only: Annotated[
        str | None,
        choice(
            (
                "Measure only a part. actions: settings and changes of the program. races: other solutions "
                "(kernels) of each call."
            ),
            of=("actions", "races"),
        ),
    ] = None,
    dry_run: Annotated[bool, option("Print what would be measured, and measure nothing.", "--dry-run")] = False,
) -> Answer:
    """Time a run's problems with other solutions on this machine's GPUs, the most valuable first."""
    from analyzers.replay import replay as measuring
    from analyzers.replay import verb as measure
    from analyzers.replay.results import Method
    from analyzers.replay.scheduler import Limits

    hang_s = measuring.seconds(silence, "--silence")
    options = measuring.Options(
        backends=tuple(backend.split(",")),
        devices=tuple(f"cuda:{x}" if x.isdigit() else x for x in device.split(",")) if device else (),
        engine=engine,
        run=run,
        kind=kind,
        direction=direction and opt.PASSES.get(direction, direction),
        top=top,
        ladder=ladder,
        resume=resume,
        exhaustive=exhaustive,
        method=Method(workspace_bytes=workspace, cache="hot" if hot else "cold"),
        limits=Limits(budget_s=measuring.seconds(budget) if budget else None, hang_s=hang_s),
        only=only,
    )
    held = open_named_store(store)
    if records:
        from analyzers.replay.sharing import take

        take(held, records, run)
    if dry_run:
        with Stages("replay", measure.STAGES) as stages:
            return measure.plan(held, options, stages)
    return measure.measure(held, options, lambda line: typer.echo(make_printable(line)))


@verb("logparse top --by time -n 10", opt.Table)
def top(
    store: opt.Store = None,
    run: opt.Run = None,
    by: Annotated[str, choice("Rank by the number of calls, or by time.", of=("calls", "time"))] = "calls",
    kind: opt.Kind = None,
    n: Annotated[int, option("Number of problems to list.", "-n", min=1)] = ROWS,
) -> Answer:
    """List the problems of a run (GEMMs and convolutions with their sizes), most calls or time first."""
    from analyzers.job.double_counts import remarks_of
    from logparse.lookup.ranking import TOP_STAGES, no_problem, rank_problems

    held = open_named_store(store)
    of = held.latest_run(run)
    with Stages("top", TOP_STAGES) as stages:
        ranking = rank_problems(held, by=by, kind=kind, n=n, run=of, count_left_out=True, begins=stages)
    rows = ranking.rows
    if not rows.num_rows:
        return Answer([no_problem(held, of, kind)], rows, "top")
    text = [ranking.table, ranking.total, *filter(None, [ranking.rest_note(held, of)])]
    left_out = [f"left out: {ranking.left_out.text}"] if ranking.left_out.text else []
    if unsettled := ranking.unsettled_note(held, of):
        text.append(f"note: {unsettled}")
    return Answer(text, rows, "top", notes=lambda: (*left_out, *(f"note: {x}" for x in remarks_of(held, of))))


@verb("logparse show '256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32'", opt.Table)
def show(
    text: Annotated[
        str,
        argument(
            "What to show: a line of a library's log (bench, trace or profile log), a MIOpenDriver command, a key of "
            "MIOpen's find-db, or a matrix product or convolution by its name in logparse, or by its sizes alone "
            "(4096x12288x8192)."
        ),
    ],
    store: opt.Store = None,
    run: Annotated[str | None, option("Show only this run. [default: all runs]")] = None,
    verbose: Annotated[
        bool, option(("Also print which logs have the calls, and all fields of the problem."), "-v", "--verbose")
    ] = False,
) -> Answer:
    """Show all calls and times of one problem, named by a pasted log line."""
    from logparse.lookup import one_problem

    held = open_named_store(store)
    known = one_problem.show(held, decode_pasted(text), run)
    notes = [f"note: {x}" for x in one_problem.found_about(held, known, run)]
    lines = one_problem.known_lines(held, known, run, verbose)
    return Answer(lines, one_problem.known_table(known), "show", notes=lambda: notes)


@verb("logparse sql 'select epilogue, count(*) from gemm_problems group by all'", opt.Table)
def sql(
    query: Annotated[str, argument('One SELECT over the views (see `logparse sql "describe calls"`).')],
    store: opt.Store = None,
    run: Annotated[str | None, option("Query only this run.")] = None,
    timeout: Annotated[float, option("Stop the query after this many seconds.", min=0.1, hidden=True)] = 60.0,
    max_rows: Annotated[int, option("Fail if the result has more rows than this.", min=1, hidden=True)] = 1_000_000,
) -> Answer:
    """Run a read-only SQL query over the store."""
    from logparse.sql import query as run_query

    held = open_named_store(store)
    with Wait("sql") as waits:
        table = run_query(held.url, decode_pasted(query), run=run, timeout_s=timeout, max_rows=max_rows, waits=waits)
    return Answer(table=table)


@verb("logparse status", opt.Table)
def status(store: opt.Store = None) -> Answer:
    """List the runs and formats of the store, and what the logs lack."""
    held = open_named_store(store)
    from analyzers.findings.completeness import missing
    from logparse.lookup.contents import hints, list_contents

    held_rows = list_contents(held)
    notes = lambda: (*missing(held), *hints(held))  # noqa: E731
    return Answer([with_total(held_rows.to_pylist())], held_rows, "status", notes=notes)


@verb("logparse formats", opt.Table)
def formats() -> Answer:
    """List the file formats that logparse reads and writes."""
    from logparse.libraries import FORMATS
    from logparse.libraries.override_formats import WRITERS

    kinds = (("read", FORMATS), ("write", WRITERS))
    rows = [{"name": x.name, "what": what, "about": x.about} for what, known in kinds for x in known]  # type: ignore[attr-defined]
    return Answer(table=rows, of="formats")


@verb("logparse forget run-before-upgrade")
def forget(
    name: Annotated[str, argument("Label of a run, or path of a file (the end of the path is enough).")],
    store: opt.Store = None,
) -> Answer:
    """Remove a run or a file from the store."""
    return Answer([f"forgot {path}" for path in open_named_store(store).forget(name)])


@verb("logparse compact --store s3://bucket/store")
def compact(
    store: opt.Store = None,
    now: Annotated[
        bool,
        option(
            ("Remove the small files at once after merging. Use this only while no other program reads the store."),
            "--now",
        ),
    ] = False,
) -> Answer:
    """Merge the small files of a store into a few large ones; the old files are removed an hour later."""
    from logparse.store import compaction

    before, after = compaction.compact(open_named_store(store), unread=now)
    return Answer([f"{before:,} files before, {after:,} now"])


@verb("logparse check --store s3://bucket/store")
def check(store: opt.Store = None) -> Answer:
    """Check every file of the store, and name damaged and missing ones; exit code 3 if there are any."""
    held = open_named_store(store)
    if damage := held.damage():
        return Answer(damage, code=CHECK_FAILED)
    return Answer(["no file is damaged or missing", *held.remarks()])


@verb(
    "logparse lint tunableop_results0.csv --target gpus=8 --against logparse-store",
    opt.Table,
    old={"--rows": "--verbose"},
)
def lint(
    files: opt.Files,
    against: opt.Against = None,
    target: opt.Target = None,
    as_format: Annotated[
        str | None, choice("Format of the files. [default: recognised from the content]", "--as", of=OVERRIDES)
    ] = None,
    verbose: Annotated[
        bool, option(("Print each row of the file, and whether the library reads and uses the row."), "-v", "--verbose")
    ] = False,
) -> Answer:
    """Check whether the library will use each row of override files; exit code 3 on errors, 1 for an unknown file."""
    from analyzers.overrides.lint import answer, lint_files

    if against is None:
        with Stages("lint", len(files)) as stages:
            return answer(*lint_files(files, facts_of(target), None, as_format, stages), verbose)
    from analyzers.evidence.runs import read_at, tables_to_check
    from analyzers.overrides.coverage import with_idle

    with Stages("lint", len(files) + 1) as stages:
        stages(f"reading {against}")
        tables = read_at(against, None, tables_to_check)
        judged, unread = lint_files(files, facts_of(target), tables, as_format, stages)
    return answer([with_idle(x, tables) for x in judged], unread, verbose)


@verb("logparse coverage tunableop_results0.csv --against logparse-store", opt.Table)
def coverage(
    files: opt.Files,
    against: Annotated[
        str | None, option("Run whose calls are looked up in the override files. [default: the store's latest run]")
    ] = None,
    target: opt.Target = None,
    store: opt.Store = None,
    run: Annotated[str | None, option("Earlier name of --against.", hidden=True)] = None,
) -> Answer:
    """Look up a run's calls in override files: what the files cover, and which rows no call can hit."""
    from analyzers.evidence.runs import read_at
    from analyzers.overrides.coverage import answer, run_to_check
    from analyzers.overrides.lint import lint_files

    if against and run:
        raise UsageError(
            "--against and --run both name a run: give one of them (--against STORE#RUN names a run of a store)"
        )
    with Stages("coverage", len(files) + 2) as stages:
        stages("reading the run")
        tables, lost = read_at(against, store, run_to_check) if against else run_to_check(open_named_store(store), run)
        judged, unread = lint_files(files, facts_of(target), tables, begins=stages)
        stages("looking up the calls")
        return answer(judged, unread, tables, lost)


@verb("logparse bisect tuned_fmoe.csv --check './gsm8k.sh --at-least 0.85'")
def bisect(
    table: Annotated[Path, argument("Override file in which to find the bad rows. The file is not changed.")],
    check: Annotated[
        str, option("Shell command that runs the job. Exit code 0 means good, 125 means skip, and any other means bad.")
    ],
    timeout: Annotated[
        float | None, option("Stop a run after this many seconds, and count this run as bad.", min=0.1)
    ] = None,
    out: Annotated[
        Path | None,
        opt.path("Write a copy of the override file to this path, without the rows that make the check fail."),
    ] = None,
) -> Answer:
    """Find the rows of an override file that make a job fail, by running a check with some of the rows."""
    from analyzers.overrides import bisect as bisecting

    return bisecting.answer(table, check, timeout, out, partial(typer.echo, err=True, nl=False))


@verb("logparse verify before after overrides/*/tunableop_results0.csv", opt.Table)
def verify(
    before: opt.RunName,
    after: opt.RunName,
    files: Annotated[
        opt.Words,
        argument(
            "Override files that the second run (AFTER) used, or the folder that `run --with` applied. Cannot be "
            "combined with --action."
        ),
    ] = None,
    action: Annotated[
        opt.Words,
        option(
            "Name of the action (setting or change of the program) that the second run (AFTER) used. "
            "With --action, the times of the whole jobs are compared, not those of single calls."
        ),
    ] = None,
    fail_on: opt.FailOn = "3%",
    store: opt.Store = None,
    verbose: Annotated[
        bool,
        option(
            ("Print every matrix product and convolution, and every row of an override file that no call used."),
            "-v",
            "--verbose",
        ),
    ] = False,
) -> Answer:
    """Check that overrides took effect, and compare the gain with the promise; exit code 3 if not."""
    from analyzers.compare import actions, proof_text
    from analyzers.compare import verify as overrides
    from analyzers.evidence.runs import remarks_on_words, tables_at

    share, remarks = parse_share(fail_on, "--fail-on"), remarks_on_words([before, after], store)
    if action:
        proof = actions.verify_actions(tables_at(before, store), tables_at(after, store), action)
        return replace(proof_text.answer(proof), errors=remarks)
    if not files:
        raise UsageError(
            "verify needs override files or --action NAME; to compare two runs without override files, use "
            "`logparse diff`"
        )
    with Stages("verify", overrides.STAGES) as stages:
        found = overrides.verify_at(before, after, files, store, share, stages)
    return replace(overrides.answer(found, verbose), errors=remarks)


@verb("logparse diff rocm64 rocm70 --fail-on 3% --overrides tuning.txt", opt.Table)
def diff(
    a: opt.RunName,
    b: opt.RunName,
    fail_on: opt.FailOn = "3%",
    floor: Annotated[float, option("Treat a change of at most this many µs per call as no change.", min=0.0)] = 0.0,
    overrides: Annotated[
        opt.Words,
        option(
            "Override files for the old library build. logparse then lists the rows to measure again with the new "
            "build."
        ),
    ] = None,
    store: opt.Store = None,
    n: opt.Count = None,
) -> Answer:
    """Compare two runs: slower, faster and changed picks; exit code 3 if any is slower, 4 if no time is compared."""
    from analyzers.compare import render
    from analyzers.evidence.runs import remarks_on_words

    share = parse_share(fail_on, "--fail-on")
    with Stages("diff", render.STAGES) as stages:
        found, plan, worth = render.compare(a, b, store, share, overrides or [], floor, stages)
    return replace(render.diff_answer(found, plan, n, worth), errors=remarks_on_words([a, b], store))


@verb("logparse merge tunableop_results?.csv --gpus 8 --out merged")
def merge(files: opt.Files, out: opt.Out = Path("merged"), gpus: opt.Gpus = 1) -> Answer:
    """Merge override files of one format, device and build: the fastest row of each key, the first without times."""
    from analyzers.overrides import merge as merging
    from analyzers.overrides.write import write_files

    made = merging.merge(files, gpus)
    return write_files(made, merging.lines(made), out, files)


@verb("logparse convert tunableop_results0.csv --to hipblaslt --out tuning")
def convert(
    files: opt.Files,
    to: Annotated[str, choice("Format to write: tunableop, hipblaslt, aiter or rocblas.", of=TARGETS)],
    target: opt.Target = None,
    same_build: Annotated[
        bool,
        option(
            "Assume that the files come from the target's device and build, if they do not state it.", "--same-build"
        ),
    ] = False,
    gpus: opt.Gpus = 1,
    out: opt.Out = Path("converted"),
) -> Answer:
    """Write the tuned GEMMs of one override file as another format, if both number solutions alike."""
    from analyzers.overrides import convert as converting
    from analyzers.overrides.write import write_files

    made = converting.convert(files, to, facts_of(target), same_build=same_build, gpus=gpus)
    return write_files(made, converting.lines(made), out, files)


@verb("logparse export --to bench --kind gemm -n 50 --out problems", old={"--as": "--to"})
def export(
    tables: Annotated[
        opt.Words,
        argument(
            "Files to read: override files with --to candidates, aiter's tables of tuned kernels with --portable."
        ),
    ] = None,
    to: Annotated[
        str | None,
        choice(
            (
                "What to write: bench (hipblaslt-bench commands), driver (MIOpenDriver commands), untuned (a TunableOp "
                "file), bundle (calls and times, to be ingested on another machine) or candidates (the kernels that "
                "take most of the GPU time, for tools that write kernels)."
            ),
            of=EXPORTS,
        ),
    ] = None,
    portable: Annotated[
        bool,
        option(
            "Write the tables of aiter as one table, without rows that only one library build understands.",
            "--portable",
        ),
    ] = False,
    store: opt.Store = None,
    run: opt.Run = None,
    kind: opt.Kind = None,
    n: Annotated[
        int | None, option("Write only this many matrix products and convolutions: the most called ones.", "-n", min=1)
    ] = None,
    sql: Annotated[
        str | None,
        option("Choose the problems by a SELECT that returns a column problem, and optionally a column calls."),
    ] = None,
    target: opt.Target = None,
    out: opt.Out = Path("problems"),
) -> Answer:
    """Write problems as input for the libraries' own tuning tools, or an aiter table for other builds."""
    from analyzers.overrides import export as exporting
    from analyzers.overrides.write import Made, write_files

    if portable == bool(to) or (portable and not tables) or (tables and to not in (None, "candidates")):
        raise UsageError(
            "give either --to NAME or --portable, not both. --portable needs aiter's tables as arguments. "
            "--to candidates may have override files as arguments, and any other --to NAME has none"
        )
    if tables and portable:
        from analyzers.evidence.runs import tables_to_check
        from analyzers.overrides import portable as moving

        made = moving.portable(tables, tables_to_check(open_named_store(store), run) if store or run else None)
        return write_files(made, made.notes, out, tables)

    if to == "bundle":
        from analyzers.replay.sharing import bundled

        files, notes = bundled(open_named_store(store), run)
        return write_files(Made(tuple(files), len(files), {}), notes, out)
    if to == "candidates":
        from analyzers.compare import candidates as listing
        from analyzers.evidence.runs import tables_of

        made = listing.candidates(tables_of(open_named_store(store), run), tables or [], facts_of(target), n)
        return write_files(made, made.notes, out)
    held, facts = open_named_store(store), facts_of(target)
    with Stages("export", exporting.STAGES) as stages:
        made = exporting.of_store(held, to or "", run=run, kind=kind, n=n, sql=sql, target=facts, begins=stages)
    return write_files(made, exporting.lines(made), out)


@verb("logparse explore --port 8050")
def explore(
    store: opt.Store = None,
    run: opt.Run = None,
    compare: opt.Compare = None,
    target: opt.Target = None,
    host: Annotated[
        str, option("Address to listen on. Any other than 127.0.0.1 shows the store to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on. 0: any free port.", min=0, max=65535)] = 8050,
    browser: Annotated[bool, option("Open the page in a browser.", "--browser/--no-browser")] = True,
) -> Answer:
    """Show a run in the browser: where the time goes, what to change, every problem and its solutions."""
    from analyzers.explore.page.serve import explore as serve

    with ExitStack() as shown:
        shown.enter_context(Stages("explore", 1))("reading the store")

        def say(line: str) -> None:
            shown.close()  # The line of progress is removed before the first line of the page.
            typer.echo(line)

        facts = facts_of(target)
        serve(store, run=run, compare=compare, target=facts, host=host, port=port, browser=browser, say=say)
    return Answer()


@verb("logparse report --out report.html")
def report(
    store: opt.Store = None,
    run: opt.Run = None,
    compare: opt.Compare = None,
    out: Annotated[Path, opt.path("HTML file to write.", "--out", "-o")] = Path("report.html"),
    top: Annotated[int, option("Number of problems to show.", "-n", min=1)] = 500,
) -> Answer:
    """Write the charts and tables of `explore` to one HTML file, which needs no network."""
    from analyzers.explore.report import STAGES as REPORT_STAGES
    from analyzers.explore.report import write_report

    with Stages("report", REPORT_STAGES) as stages:
        made = write_report(open_named_store(store), out, run=run, compare=compare, top=top, begins=stages)
    beside = f", compared with run {made.earlier}" if made.earlier else ""
    return Answer([f"{out}: {made.shown:,} of {made.total:,} problems of run {made.run}{beside}"])


def main() -> None:
    """Run the command line program.

    An error that the user can correct prints one line and exits with 1.  Wrong usage exits with 2.
    """
    # A pasted profile record begins with `- {`: with a blank before it the parser does not take it for an option.
    words = [f" {word}" if word.startswith("- ") else word for word in sys.argv[1:]]
    run_program(app, words)
