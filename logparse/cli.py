"""The program: one short function per verb, each one call of the library; errors are caught in one place, ``main``."""

# Annotations are not kept as texts here: typer would compile each of two hundred again at every start.

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logparse import __version__
from logparse.errors import LogparseError
from logparse.output import TableFormat, write_rows, write_table
from logparse.text import parse_share, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logparse.executors import Progress
    from logparse.ingest import Ingested
    from logparse.store import Store

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="From math-library logs and tuning files of GPU jobs to one table, findings and override files.",
    epilog="A first session: `logparse ingest hipblaslt_*.log *.fdb.txt tunableop_*.csv`, then `logparse recommend`.",
)

StoreOption = Annotated[
    str | None,
    typer.Option("--store", envvar="LOGPARSE_STORE", help="Store folder or URL. [default: logparse-store]"),
]
RunOption = Annotated[str | None, typer.Option("--run", help="Run label. [default: the latest run]")]
FormatOption = Annotated[TableFormat, typer.Option("--format", help="How to print the table.")]
OutputOption = Annotated[str | None, typer.Option("--output", "-o", help="Write the table to a file.")]

TargetOption = Annotated[
    list[str] | None,
    typer.Option("--target", help="Facts of the machine that will read the files: a file, or KEY=VALUE."),
]
FilesArgument = Annotated[list[str], typer.Argument(help="Override files (TunableOp CSV, tuning file, user find-db).")]
FailOnOption = Annotated[str, typer.Option("--fail-on", help="Slower by more than this fails, e.g. 3%.")]
EngineOption = Annotated[
    str, typer.Option(help="local; ray (of $RAY_ADDRESS, of this machine, or one of its own); ray://HOST:PORT.")
]
FAILED = 3
"""Exit code of a check that failed (1: something could not be read, 2: wrong usage)."""
RUN_HELP = "A store (its latest run), STORE#RUN, a run's label, or log files."


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"logparse {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """What stands before a verb."""


@app.command(epilog="Example: `logparse ingest hipblaslt_*.log gfx942130.HIP.fdb.txt tunableop_results0.csv`")
def ingest(
    paths: Annotated[list[str], typer.Argument(help="Files, folders, globs, URLs; `-` for standard input.")],
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option("--run", help="Label of this run. [default: the time of the call]")] = None,
    format: Annotated[str | None, typer.Option("--format", help="Format name, instead of recognising it.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Files at once. [default: one per core]")] = 0,
    max_ratio: Annotated[float, typer.Option(help="Refuse compressed files that expand more than this.")] = 2000.0,
    engine: EngineOption = "local",
) -> None:
    """Read logs and tuning files into the store."""
    from logparse.executors import open_executor
    from logparse.ingest import ingest as ingest_paths
    from logparse.store import open_store

    target = open_store(store, create=True)
    with open_executor(engine, jobs) as executor, _progress(paths) as progress:
        results = ingest_paths(
            paths, target, run=run, format=format, max_ratio=max_ratio, progress=progress, executor=executor
        )
    _print_ingested(results)
    failed = [result for result in results if result.state == "failed"]
    if failed or not any(result.recognised for result in results):
        raise typer.Exit(1)


@app.command(
    context_settings={"allow_interspersed_args": False},  # what follows the program is the program's
    epilog="Example: `logparse capture --dir logs -- torchrun --nproc-per-node 8 train.py`",
)
def capture(
    command: Annotated[list[str] | None, typer.Argument(help="The job, after `--`.")] = None,
    masks: Annotated[str, typer.Option(help="hipBLASLt log categories: numbers and names.")] = "32,64",
    folder: Annotated[
        Path | None, typer.Option("--dir", help="New folder for the logs. [default: one of its own]")
    ] = None,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option("--run", help="Label of this run. [default: the time of the call]")] = None,
    markers: Annotated[bool, typer.Option("--markers", help="roctx ranges by hipBLASLt.")] = False,
    tunableop: Annotated[bool, typer.Option(help="Record the keys that TunableOp has no tuned row for.")] = True,
    print_only: Annotated[bool, typer.Option("--print", help="Only print the exports and what they mean.")] = False,
) -> None:
    """Run a job with its libraries' logs switched on, then ingest them; the exit code is the job's."""
    from logparse.capture.plan import exports
    from logparse.capture.plan import plan as planned
    from logparse.capture.run import capture as captured

    words = command or []
    if not words and not print_only:
        raise typer.BadParameter("a command after `--`, or --print", param_hint="COMMAND")
    plan = planned(words, folder, masks, markers=markers, tunableop=tunableop)
    if print_only:
        typer.echo(exports(plan), nl=False)
        for warning in plan.warnings:
            typer.echo(f"warning: {printable(warning)}", err=True)
        return

    def opened() -> "Store":
        from logparse.store import open_store

        return open_store(store, create=True)

    code, results = captured(words, plan, opened, lambda line: typer.echo(line, err=True), run=run)
    with redirect_stdout(sys.stderr):  # standard output is the job's
        _print_ingested(results)
    raise typer.Exit(code)


@app.command(epilog="Example: `logparse recommend --target tunableop_results0.csv --out overrides`")
def recommend(
    store: StoreOption = None,
    run: RunOption = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Facts of the machine that will read the overrides: a file that tells them, or KEY=VALUE."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the override files, one folder per target in it.")] = Path(
        "overrides"
    ),
    n: Annotated[int, typer.Option("-n", help="Findings to print.")] = 20,
    min_gain: Annotated[str, typer.Option(help="Propose nothing that gains less of a problem's own time.")] = "3%",
    min_saving: Annotated[float, typer.Option(help="Leave out findings that save less (µs per run).")] = 0.0,
    own: Annotated[
        list[str] | None, typer.Option(help="Override files that the job reads now: their other rows are kept.")
    ] = None,
    confirmed: Annotated[
        bool, typer.Option("--confirmed", help="Write only overrides that a replay confirmed.")
    ] = False,
    max_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of an override file at most, the most valuable first.")
    ] = None,
    family_regret: Annotated[
        str, typer.Option(help="What a wildcard row may lose against exact rows (PyTorch 2.15).")
    ] = "1%",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps that the logs are of. [default: as the traces mark]")
    ] = None,
    slow_factor: Annotated[float, typer.Option(help="W is slow above this many times the slower of F and B …")] = 3.0,
    slow_floor_ms: Annotated[float, typer.Option(help="… and above this many ms.")] = 0.05,
    query_cost_us: Annotated[float, typer.Option(help="Host time of one heuristic query (µs).")] = 30.0,
    gpus: Annotated[int, typer.Option(help="GPUs of a target process: so many TunableOp files.")] = 1,
    same_build: Annotated[
        bool, typer.Option("--same-build", help="Logs and times are of one library build and arch.")
    ] = False,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Rank what is worth changing, and write the override files."""
    from analyzers.analyzer import Settings
    from analyzers.evidence.target import target_from
    from analyzers.overrides import WRITERS
    from analyzers.recommend import render
    from analyzers.recommend.verb import advise, write
    from logparse.formats import FORMATS
    from logparse.store import open_store

    settings = Settings(
        slow_factor=slow_factor,
        slow_floor_ms=slow_floor_ms,
        query_cost_us=query_cost_us,
        same_build=same_build,
        min_saving_us=min_saving,
        floor_share=parse_share(min_gain),
        confirmed_only=confirmed,
        max_rows=max_rows,
        family_regret=parse_share(family_regret),
        steps=steps,
        target=target_from(target or [], FORMATS),
    )
    found = advise(open_store(store), settings, run)
    frame = render.rows(found)
    written, notes = write(found, settings, WRITERS, out, gpus, own or [])
    if format is not TableFormat.table:
        write_table(frame, format, output)
        return
    for line in render.lines(found):
        typer.echo(printable(line))
    if len(frame):
        write_table(render.brief(frame).head(n), format, output)
    for file in written:
        typer.echo(f"wrote {os.path.relpath(file.path)}")
        for line in [] if file.applied else file.use.splitlines():
            typer.echo(f"    {line}")
    for note in notes:
        typer.echo(f"note: {printable(note)}")


@app.command(epilog="Example: `logparse replay --kind conv --direction W --budget 10m`")
def replay(
    store: StoreOption = None,
    run: RunOption = None,
    backend: Annotated[str, typer.Option(help="Backends, comma-separated: torch, cublaslt, cudnn …")] = "torch",
    device: Annotated[str | None, typer.Option(help="0,1 or cpu. [default: every GPU, else cpu]")] = None,
    engine: EngineOption = "local",
    kind: Annotated[str | None, typer.Option(help="gemm or conv.")] = None,
    direction: Annotated[str | None, typer.Option(help="F, B or W.")] = None,
    top: Annotated[int | None, typer.Option(help="Only the N most valuable problems.")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop after this long: 90s, 10m, 1.5h.")] = None,
    workspace: Annotated[
        int | None, typer.Option(help="Workspace in bytes. [default: the log's, else PyTorch's]")
    ] = None,
    solution: Annotated[list[str] | None, typer.Option(help="A kernel of yours, pkg.module:callable.")] = None,
    resume: Annotated[bool, typer.Option("--resume/--again", help="Skip what this machine has measured.")] = True,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="Enumerate, not only the heuristic's list.")] = False,
    hot: Annotated[bool, typer.Option("--hot", help="Leave operands in the last-level cache.")] = False,
    flush_instructions: Annotated[
        bool, typer.Option("--flush-instructions", help="Empty the instruction caches before each timed execution.")
    ] = False,
    markers: Annotated[bool, typer.Option("--markers", help="NVTX/roctx range around each solution.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    script: Annotated[Path | None, typer.Option(help="Write the plan as a script for another machine.")] = None,
    profile_command: Annotated[
        str | None,
        typer.Option(metavar="SOLUTION", help="Print profilers' command lines for the plan's first problem."),
    ] = None,
) -> None:
    """Measure the problems on this machine's GPUs, the most valuable first."""
    from analyzers.measure import render
    from analyzers.measure import replay as measuring
    from analyzers.measure.profile import profile_lines
    from analyzers.measure.progress import display
    from analyzers.measure.results import Method
    from analyzers.measure.scheduler import Limits
    from analyzers.measure.tune_script import script as script_of
    from logparse.store import open_store

    devices = tuple(f"cuda:{x}" if x.isdigit() else x for x in device.split(",")) if device else ()
    options = measuring.Options(
        backends=tuple(backend.split(",")),
        devices=devices,
        engine=engine,
        run=run,
        kind=kind,
        direction=direction,
        top=top,
        resume=resume,
        kernels=tuple(solution or ()),
        exhaustive=exhaustive,
        markers=markers,
        flush_instructions=flush_instructions,
        method=Method(workspace_bytes=workspace, cache="hot" if hot else "cold"),
        limits=Limits(budget_s=measuring.seconds(budget) if budget else None),
    )
    held = open_store(store)
    if dry_run or script or profile_command:
        plan = measuring.planned(held, options)
        if profile_command:
            for line in profile_lines(plan, profile_command, options):
                typer.echo(line)
        elif script:
            script.write_text(script_of(plan), encoding="utf-8")
            typer.echo(f"wrote {script}: {len(plan)} problems; run it there, then `logparse ingest` what it wrote")
        else:
            frame = render.plan_rows(plan)
            write_table(frame.drop(columns="text"), TableFormat.table)
            typer.echo(f"{len(plan)} problems, about {frame['cost_s'].sum():,.0f} s of device time")
        return
    with display(lambda line: typer.echo(printable(line))) as shown:
        report = measuring.replay(held, options, shown.take, shown.watch)
    for line in render.report_lines(report):
        typer.echo(printable(line))
    if report.interrupted:
        raise typer.Exit(130)


@app.command(epilog="Example: `logparse top --by time -n 10`")
def top(
    store: StoreOption = None,
    run: RunOption = None,
    by: Annotated[str, typer.Option(help="calls, or time.")] = "calls",
    kind: Annotated[str | None, typer.Option(help="gemm, grouped or conv.")] = None,
    n: Annotated[int, typer.Option("-n", help="Number of problems.")] = 20,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Rank the distinct problems of a run by calls or time."""
    from logparse import lookup
    from logparse.store import open_store

    if by not in ("calls", "time"):
        raise typer.BadParameter("calls or time", param_hint="--by")
    held = open_store(store)
    frame = lookup.top(held, by=by, kind=kind, n=n, run=run)
    write_table(lookup.brief(frame) if format is TableFormat.table else frame, format, output)
    if format is TableFormat.table and output is None:
        from analyzers.evidence.double_counts import remarks_of

        for line in remarks_of(held, held.latest_run(run)):
            typer.echo(printable(f"note: {line}"))


@app.command(epilog="Example: `logparse show '256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32'`")
def show(
    text: Annotated[str, typer.Argument(help="A bench, Trace or profile line, MIOpenDriver command, find-db key …")],
    store: StoreOption = None,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Show all that every format knows of the problem in a pasted line."""
    from logparse import lookup
    from logparse.store import open_store

    known = lookup.show(open_store(store), text)
    if format is not TableFormat.table:
        import pandas as pd

        tables = [
            frame.assign(what=what) for k in known for what, frame in (("call", k.calls), ("time", k.measurements))
        ]
        write_table(pd.concat(tables, ignore_index=True), format, output)
        return
    for entry in known:
        typer.echo(f"{entry.problem.label}\n  {entry.problem.text}")
        for title, frame in (("calls", entry.calls), ("measurements", entry.measurements)):
            typer.echo(f"{title}: {len(frame) or 'none'}")
            if len(frame):
                write_table(frame.drop(columns="problem").dropna(axis="columns", how="all"), format)


@app.command(epilog="Example: `logparse sql 'select epilogue, count(*) from gemm_problems group by all'`")
def sql(
    query: Annotated[str, typer.Argument(help='One SELECT over the views (see `logparse sql "describe calls"`).')],
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option("--run", help="Limit the views to one run.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until the query is stopped.")] = 60.0,
    max_rows: Annotated[int, typer.Option(help="Refuse larger results.")] = 1_000_000,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Run read-only SQL over the store's views."""
    from logparse.sql import query as run_query
    from logparse.store import open_store

    table = run_query(open_store(store).url, query, run=run, timeout_s=timeout, max_rows=max_rows)
    write_table(table.to_pandas(), format, output)


@app.command(epilog="Example: `logparse status`; while a cluster works: `logparse status --watch`")
def status(
    store: StoreOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow running ingests and replays to their end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")] = 2.0,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Say what the store holds, and what is missing; or how far a running ingest or replay is."""
    from logparse import lookup
    from logparse.store import open_store

    held = open_store(store)
    if watch:
        from logparse.watch import watch as follow

        follow(held, typer.echo, interval)
        return
    write_table(lookup.holdings(held), format, output)
    if format is TableFormat.table and output is None:
        for line in _missing(held):
            typer.echo(line)


@app.command(epilog="Example: `logparse formats`")
def formats(format: FormatOption = TableFormat.table, output: OutputOption = None) -> None:
    """List what can be read and written."""
    import pandas as pd

    from analyzers.overrides import WRITERS
    from logparse.formats import FORMATS

    rows = [{"name": f.name, "what": "read", "about": f.about} for f in FORMATS]
    rows += [{"name": w.name, "what": "write", "about": w.about} for w in WRITERS]
    write_table(pd.DataFrame(rows, columns=["name", "what", "about"]), format, output)


@app.command(epilog="Example: `logparse forget run-before-upgrade`")
def forget(
    name: Annotated[str, typer.Argument(help="A run label, or (the end of) a file's path.")], store: StoreOption = None
) -> None:
    """Remove a run or a file from the store."""
    from logparse.store import open_store

    for path in open_store(store).forget(name):
        typer.echo(f"forgot {printable(path)}")


@app.command(epilog="Example: `logparse compact --store s3://bucket/store`")
def compact(store: StoreOption = None) -> None:
    """Merge the store's many small files into a few large ones; the old ones go an hour later."""
    from logparse.store import compaction, open_store

    held = open_store(store)
    with _counted("compact") as progress:
        done = compaction.compact(held, progress)
    typer.echo(f"{done.before:,} files before, {done.after:,} now")


@app.command(epilog="Example: `logparse lint tunableop_results0.csv --target gpus=8 --against logparse-store`")
def lint(
    files: FilesArgument,
    against: Annotated[str | None, typer.Option(help="The workload: " + RUN_HELP)] = None,
    target: TargetOption = None,
    as_format: Annotated[str | None, typer.Option("--as", help="Format name, instead of recognising it.")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="One row per row of the file, with its verdicts.")] = False,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Say per row whether the library will read, match and honour it; exit code 3 on errors, 1 if a file is none."""
    import pandas as pd

    from analyzers.evidence.runs import tables_at
    from analyzers.overrides import render, verbs

    tables = tables_at(against) if against else None
    judged, unread = verbs.lint_files(files, target or [], tables, as_format)
    if rows or format is not TableFormat.table:
        frames = [(render.rows_frame if rows else render.lint_frame)(file) for file in judged]
        frames += [] if rows else [render.unread_frame(unread)]
        write_table(pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), format, output)
    else:
        for file in judged:
            for line in render.lint_lines(file):
                typer.echo(printable(line))
    for line in render.unread_lines(unread):
        typer.echo(printable(line), err=True)
    if not all(file.ok for file in judged):
        raise typer.Exit(FAILED)
    if unread:
        raise typer.Exit(1)


@app.command(epilog="Example: `logparse coverage tunableop_results0.csv --against logparse-store`")
def coverage(
    files: FilesArgument,
    against: Annotated[str | None, typer.Option(help="The workload: " + RUN_HELP + " [default: the store]")] = None,
    target: TargetOption = None,
    wildcards: Annotated[bool, typer.Option("--wildcards", help="PyTorch's wildcard fallback is on.")] = False,
    store: StoreOption = None,
    run: RunOption = None,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Replay a run's calls against override files: what they cover, and which rows can never hit."""
    import pandas as pd

    from analyzers.evidence.runs import tables_at, tables_of
    from analyzers.overrides.render import unread_lines
    from analyzers.proof import render, verbs
    from logparse.store import open_store

    tables = tables_at(against, store) if against else tables_of(open_store(store), run)
    found, unread = verbs.cover(files, tables, target or [], wildcards=wildcards)
    if format is not TableFormat.table or output is not None:
        frames = [render.coverage_frame(x).assign(file=x.file) for x in found]
        write_table(pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), format, output)
    else:
        for line in (*(line for x in found for line in render.coverage_lines(x)), *render.count_lines(tables, found)):
            typer.echo(printable(line))
    for line in unread_lines(unread):
        typer.echo(printable(line), err=True)
    if not all(x.hits for x in found):
        raise typer.Exit(FAILED)
    if unread:
        raise typer.Exit(1)


@app.command(epilog="Example: `logparse verify before after overrides/*/tunableop_results0.csv`")
def verify(
    before: Annotated[str, typer.Argument(help=RUN_HELP)],
    after: Annotated[str, typer.Argument(help=RUN_HELP)],
    files: Annotated[
        list[str] | None, typer.Argument(help="Override files. [default: what BEFORE's findings propose]")
    ] = None,
    fail_on: FailOnOption = "3%",
    store: StoreOption = None,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Check that overrides took effect and what they gained against the promise; exit code 3 when not."""
    from analyzers.proof import render, verbs

    found = verbs.verify(before, after, files or [], store, parse_share(fail_on))
    frame = render.verify_frame(found)
    write_table(frame.drop(columns="text") if format is TableFormat.table else frame, format, output)
    if format is TableFormat.table:
        for line in render.verify_lines(found):
            typer.echo(printable(line))
    if not found.ok:
        raise typer.Exit(FAILED)


@app.command(epilog="Example: `logparse diff rocm64 rocm70 --fail-on 3% --junit diff.xml --overrides tuning.txt`")
def diff(
    a: Annotated[str, typer.Argument(help=RUN_HELP)],
    b: Annotated[str, typer.Argument(help=RUN_HELP)],
    fail_on: FailOnOption = "3%",
    overrides: Annotated[list[str] | None, typer.Option(help="Old override files, for an upgrade plan.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a section for a pull request.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML.")] = None,
    store: StoreOption = None,
    n: Annotated[int, typer.Option("-n", help="Changes to print.")] = 20,
    format: FormatOption = TableFormat.table,
    output: OutputOption = None,
) -> None:
    """Compare two runs: slower, faster, new and gone problems, changed picks; exit code 3 when something got slower."""
    from analyzers.proof import render, verbs

    found, plan = verbs.compare(a, b, store, parse_share(fail_on), overrides or [])
    if markdown:
        markdown.write_text(render.diff_markdown(found), encoding="utf-8")
    if junit:
        junit.write_text(render.diff_junit(found), encoding="utf-8")
    frame = render.diff_frame(found, n if format is TableFormat.table else None)
    if len(frame) or format is not TableFormat.table:
        write_table(frame.drop(columns="text") if format is TableFormat.table else frame, format, output)
    if format is TableFormat.table:
        for line in render.diff_lines(found):
            typer.echo(printable(line))
        if plan:
            write_table(render.plan_frame(plan).drop(columns="key"), format)
    if not found.ok:
        raise typer.Exit(FAILED)


@app.command(epilog="Example: `logparse merge tunableop_results?.csv --gpus 8 --out merged`")
def merge(
    files: FilesArgument,
    out: Annotated[Path, typer.Option(help="Folder for the merged files.")] = Path("merged"),
    gpus: Annotated[int, typer.Option(min=1, help="Copies of a TunableOp CSV, one per device.")] = 1,
) -> None:
    """Merge override files of one format, device and build: the fastest (without times the first) of each key."""
    from analyzers.overrides import render
    from analyzers.overrides.merge import merge as merge_files
    from analyzers.overrides.write import write

    merged = merge_files(files, gpus)
    for line in render.merge_lines(merged):
        typer.echo(printable(line))
    written = write(merged.emissions, out)
    for file in written:
        typer.echo(f"wrote {os.path.relpath(file.path)}")
    for line in written[0].use.splitlines():  # one of several copies says it for all
        typer.echo(f"    {line}")


@app.command(epilog="Example: `logparse convert tunableop_results0.csv --to hipblaslt --out tuning`")
def convert(
    files: FilesArgument,
    to: Annotated[str, typer.Option("--to", help="tunableop, hipblaslt, aiter or rocblas.")],
    target: TargetOption = None,
    same_build: Annotated[
        bool, typer.Option("--same-build", help="Vouch for a device or build that no file tells.")
    ] = False,
    gpus: Annotated[int, typer.Option(min=1, help="Copies of a TunableOp CSV, one per device.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("converted"),
) -> None:
    """Write tuned GEMMs of one library's file as another's, where both count solutions alike."""
    from analyzers.overrides import render, verbs
    from analyzers.overrides.write import write

    made = verbs.convert(files, to, target or [], same_build=same_build, gpus=gpus)
    for line in render.convert_lines(made):
        typer.echo(printable(line))
    for file in write(made.emissions, out):
        typer.echo(f"wrote {os.path.relpath(file.path)}")
        for line in file.use.splitlines():
            typer.echo(f"    {line}")
    if not made.emissions:
        raise typer.Exit(1)


@app.command(epilog="Example: `logparse export --as yaml --kind gemm -n 50 --out problems`")
def export(
    as_: Annotated[str, typer.Option("--as", help="bench, yaml, driver, untuned or csv.")],
    store: StoreOption = None,
    run: RunOption = None,
    kind: Annotated[str | None, typer.Option(help="gemm, grouped or conv.")] = None,
    n: Annotated[int | None, typer.Option("-n", help="Only the most called.")] = None,
    sql: Annotated[str | None, typer.Option(help="A SELECT with a column problem (and calls) instead.")] = None,
    target: TargetOption = None,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("problems"),
) -> None:
    """Write problems as input for the libraries' own tools."""
    from analyzers.overrides import render, verbs
    from analyzers.overrides.write import write
    from logparse.store import open_store

    made = verbs.export(open_store(store), as_, run=run, kind=kind, n=n, sql=sql, target=target or [])
    for line in render.export_lines(made):
        typer.echo(printable(line))
    for file in write(made.emissions, out):
        typer.echo(
            f"wrote {os.path.relpath(file.path)}: {file.use}" if file.use else f"wrote {os.path.relpath(file.path)}"
        )
    if not made.problems:
        raise typer.Exit(1)


@app.command(epilog="Example: `logparse explore --port 8050`")
def explore(
    store: StoreOption = None,
    run: RunOption = None,
    compare: Annotated[str | None, typer.Option("--compare", help="Another store, shown beside this one.")] = None,
    target: TargetOption = None,
    host: Annotated[
        str, typer.Option(help="Interface; others than 127.0.0.1 show the store to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0: any free one.")] = 8050,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Look at a run in the browser: from where the time goes to this row, this override."""
    from analyzers.explore.page.serve import explore as serve

    serve(store, run=run, compare=compare, target=target or [], host=host, port=port, browser=browser, say=typer.echo)


@app.command(epilog="Example: `logparse report --out report.html`")
def report(
    store: StoreOption = None,
    run: RunOption = None,
    compare: Annotated[str | None, typer.Option("--compare", help="Another store, shown beside this one.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="The HTML file.")] = "report.html",
    top: Annotated[int, typer.Option("-n", help="Problems to show.")] = 500,
) -> None:
    """Write one HTML file with the same charts, which opens offline."""
    from analyzers.explore.report import write_report
    from logparse.store import open_store

    made = write_report(open_store(store), out, run=run, compare=compare, top=top)
    typer.echo(f"{out}: {made.shown:,} of {made.total:,} problems")


def _missing(store: "Store") -> list[str]:
    """What the latest run's logs lack."""
    from analyzers.completeness import missing

    return [printable(line) for line in missing(store)]


@contextmanager
def _progress(paths: "Sequence[str]") -> "Iterator[Progress | None]":
    """A bar with bytes/s and ETA on a terminal; plain lines are printed at the end otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from logparse.ingest.input_file import find_inputs

    total = sum(find_inputs(paths)[0].values()) or None
    columns = (TextColumn("ingest"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("ingest", total=total)
        yield lambda path, count: bar.advance(task, count)


@contextmanager
def _counted(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar with counts and ETA on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_ingested(results: "Sequence[Ingested]") -> None:
    rows = [
        {
            "file": os.path.relpath(r.path) if r.path.startswith("/") else r.path,
            "format": r.format,
            "state": r.state,
            "lines": r.lines,
            "calls": r.calls,
            "problems": r.problems,
            "measured": r.units.get("measurement", 0),
            "messages": r.units.get("message", 0),
            "rejects": r.units.get("reject", 0),
            "foreign": r.units.get("foreign", 0),
        }
        for r in results
        if r.state != "failed"
    ]
    if rows:
        write_rows(rows)
    for result in results:
        if result.state == "failed":
            typer.echo(f"error: {result.error}", err=True)
    runs = sorted({r.run for r in results if r.run})
    if runs:
        typer.echo(f"run: {', '.join(runs)}")


def _leave_the_rest() -> None:
    if "duckdb" not in sys.modules:  # which complains of whatever of its own nobody collected
        gc.freeze()


def main() -> None:
    """Entry point: an error of the user's world is one line and exit code 1; wrong usage is 2."""
    # Loading modules makes 100,000 objects that stay: looking through them for garbage again and again, and once more
    # at the end, takes a quarter of the time of a short run.
    gc.set_threshold(200_000)
    atexit.register(_leave_the_rest)
    try:
        # A pasted profile record begins with "- {"; a blank before it keeps it from being taken for an option.
        app(args=[f" {word}" if word.startswith("- ") else word for word in sys.argv[1:]])
    except BrokenPipeError:  # `logparse sql … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (LogparseError, OSError) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        typer.echo(f"error: {printable(told)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
