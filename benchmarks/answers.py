"""Measure wall time, CPU time and memory of each question to a store, and of the same question by hand.

    python benchmarks/answers.py FOLDER --find-db gfx90a68.HIP.fdb.txt.bz2
    python benchmarks/answers.py FOLDER --sizes one,start --only top,recommend --rounds 1

FOLDER keeps the inputs and stores (3 GB for all sizes).  Files that it holds already are used again.  Sizes:

    one     the find-db of gfx90a with 104 CUs (193,590 problems, 648,924 times), which ROCm ships
    many    1.36 million keys of 570,000 problems, as many as the 18 find-dbs that ROCm ships hold: copies of that
            find-db with another device in their name and, in two thirds of them, another batch size
    small   20,000 logs of ten lines each, not compacted
    start   ``--help``, and ingest of one small log into a new store

By hand means plain DuckDB SQL over the store's Parquet files, and pandas (``read_parquet``, ``groupby``, ``merge``).
Each question by hand is a program of its own, in the same run.  These programs do less than a verb of logparse:

- They do not link texts of one problem, state no confidence, and write no files.
- For ``status`` they do not look for what the logs lack.
- For ``show`` they do not read the pasted line by every format.
- For ``sql`` they have no process that can be killed, and no limits.

The verbs and the questions by hand are compared twice.  First they run as programs at a terminal, so that the times
include Python's start and the imports.  Then they run in one process, where everything is imported and the same
question is asked for the second time.

A verb of many inputs (``lint``, ``coverage``, ``merge``) reads find-dbs, not the store.  Only ``merge`` has a
counterpart. benchmarks/explore.py measures ``explore`` in a browser.

Wall times depend on other work of the machine, so its load is in the record.  The record has each round.  The output
has the medians, and whether they meet the limits that issue and README promise for two idle cores.
"""

from __future__ import annotations

import argparse
import bz2
import datetime
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from compileall import compile_dir
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from processes import cost

# Python may keep bytecode, because an installed package is compiled. Here the first start compiles the files that have
# changed.
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
PROGRAM = (sys.executable, "-m", "logparse")
NAME = "gfx90a68.HIP.fdb.txt"
USER_NAME = "gfx90a68.HIP.3_5_1_5ea1b2b.ufdb.txt"
"""A valid file name of a user find-db (the file in which MIOpen stores what it measured), as ``merge`` needs it."""
DEVICES = (104, 108, 110, 112, 116, 120, 228)
"""Numbers of compute units for the names of the copied find-dbs. The original file has the first one, 104 (0x68)."""
BATCHES = (1, 3, 5)
SMALL_FILES = 20_000
SIZES = ("one", "many", "small", "start")

QUICK, SLOW, DRAWN = ("top", "show", "status", "sql"), ("recommend", "diff", "coverage", "lint"), ("report",)
OWED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "one": {
        **dict.fromkeys(QUICK, (1.5, 400)),
        **dict.fromkeys(SLOW, (4, 800)),
        **dict.fromkeys(DRAWN, (6, 800)),
        "merge": (20, 1200),
    },
    "many": {**dict.fromkeys(QUICK, (5, 1000)), **dict.fromkeys(SLOW, (20, 1500)), **dict.fromkeys(DRAWN, (25, 1200))},
    "small": {"ingest": (40, 1000), **dict.fromkeys((*QUICK, "recommend", "diff", "report"), (10, 1000))},
    "start": {"help": (0.12, 400), "ingest": (0.2, 400)},
}
"""Largest allowed time (wall seconds) and memory (MB, 10^6 bytes) of each question on two idle cores."""


@dataclass(frozen=True)
class Question:
    """A question about stored measurements, such as "which calls take the most time?", with several ways to answer it.

    The benchmark compares their costs: a command of logparse (``verb``), an SQL query and a pandas program.
    """

    verb: str
    words: tuple[str, ...]
    sql: str = ""
    pandas: str = ""
    imports: str = ""
    """A Python program that only imports the libraries that the command needs.

    No answer can cost less than these imports. So the costs of the command and of the programs by hand are compared
    with their cost.
    """


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--find-db", default=NAME, help="gfx90a68.HIP.fdb.txt (.bz2 allowed); needed once per FOLDER")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--only", help="verbs, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--by-hand", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--profile", metavar="FILE", help="cProfile of each verb as FILE.SIZE.VERB; slows them down")
    parser.add_argument("--out", type=Path, help="[default: benchmarks/results/answers-host-DATE.json]")
    given = parser.parse_args()
    folder = given.folder.absolute()
    for package in ("logparse", "analyzers"):
        compile_dir(Path(__file__).parents[1] / package, quiet=1)
    only = given.only.split(",") if given.only else None
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "load before": os.getloadavg()[0], "python": platform.python_version()},
        "rounds": given.rounds,
    }
    for size in given.sizes.split(","):
        questions = {"one": of_one, "many": of_many, "small": of_small, "start": of_start}[size]
        record[size] = {}
        for question in questions(folder, given.find_db):
            if only is None or question.verb in only:
                record[size][question.verb] = time_question(question, size, given, folder)
    record["machine"]["load after"] = os.getloadavg()[0]
    out = given.out or Path(__file__).parent / "results" / f"answers-host-{record['date'][:10]}.json"
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(out)
    missed = [f"{size} {verb}" for size in SIZES for verb, x in record.get(size, {}).items() if not x.get("met", True)]
    print(f"missed: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def time_question(question: Question, size: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure how long logparse takes to answer one question, compared with programs written by hand.

    The subcommand of logparse and the hand-written programs (DuckDB, pandas) run in turns. Returns medians, ratios, and
    whether the limits are met.
    """
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    ours: tuple[str, ...] = (*PROGRAM, *question.words)
    if given.profile:
        ours = (sys.executable, "-m", "cProfile", "-o", f"{given.profile}.{size}.{question.verb}", *ours[1:])
    ways: dict[str, tuple[str, ...]] = {"logparse": ours}
    if given.by_hand:
        ways |= {"DuckDB": (sys.executable, "-c", question.sql)} if question.sql else {}
        ways |= {"pandas": (sys.executable, "-c", question.pandas)} if question.pandas else {}
        ways |= {"imports": (sys.executable, "-c", question.imports)} if question.imports else {}
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(given.rounds):
        for way, command in ways.items():
            for made in ("overrides", "merged", "store"):
                shutil.rmtree(work / made, ignore_errors=True)
            os.chdir(work)
            used = cost(command, COMPILED)
            if used.code not in (0, 3):  # Exit code 3 means that a check found something.
                sys.exit(f"{' '.join(command)[:300]}\nexit code {used.code}\n{used.output[-2000:]}")
            row = {name: round(value, 3) for name, value in asdict(used).items() if isinstance(value, float)}
            found.setdefault(way, []).append(row)
    out: dict[str, Any] = {
        way: {name: statistics.median(row[name] for row in rows) for name in rows[0]} | {"rounds": rows}
        for way, rows in found.items()
    }
    mine = out["logparse"]
    line = f"{size:6}{question.verb:10}" + "".join(
        f" {way}: {x['wall_s']:.2f} s, CPU {x['cpu_s']:.2f} s, {x['peak_mb']:,.0f} MB;" for way, x in out.items()
    )
    ratios = {way: round(mine["wall_s"] / x["wall_s"], 2) for way, x in out.items() if way != "logparse"}
    line += "".join(f" {ratio} × {way}" for way, ratio in ratios.items())
    out["ratio of wall times"] = ratios
    if given.by_hand and question.sql and not given.profile:
        seconds = {way: time_cached_question(way, question, work) for way in ways}
        out["again in the same process (s)"] = seconds
        line += f"\n{'':16} again in the same process: logparse {seconds['logparse']:.2f} s" + "".join(
            f", {seconds['logparse'] / x:.1f} × {way}" for way, x in seconds.items() if way != "logparse"
        )
    owed = OWED[size].get(question.verb)
    if owed and not given.profile:
        out |= {"owed": owed, "met": mine["wall_s"] <= owed[0] and mine["peak_mb"] <= owed[1]}
        line += f" (owed {owed[0]} s, {owed[1]} MB: {'met' if out['met'] else 'missed'})"
    print(line, flush=True)
    return out


AGAIN = """
import contextlib, io, sys, time
sys.argv = ["logparse", *{words!r}]
for _ in range(2):
    begun = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        exec({program!r}, {{}})
    took = time.perf_counter() - begun
print(took)"""


def time_cached_question(way: str, question: Question, work: Path) -> float:
    """Return how many seconds a question to the stored measurements takes when it is asked for the second time.

    Both times it is asked in the same Python process, in which everything is already imported.
    """
    programs = {"logparse": "from logparse.cli import main; main()", "DuckDB": question.sql, "pandas": question.pandas}
    code = AGAIN.format(words=question.words, program=programs[way])
    os.chdir(work)
    return float(subprocess.run((sys.executable, "-c", code), env=COMPILED, stdout=subprocess.PIPE, check=True).stdout)


# --------------------------------------------------------------------------------------------------------- questions


def of_one(folder: Path, find_db: str) -> Iterator[Question]:
    files, later = [first(folder, find_db)], [changed(first(folder, find_db))]
    store = folder / "one"
    yield from of_find_dbs(store, files, later)
    two = [*one_device(files), *one_device(later)]
    yield Question("merge", ("merge", *map(str, two)), by_sql(store, MERGE_SQL), by_pandas(store, MERGE_PANDAS))


def of_many(folder: Path, find_db: str) -> Iterator[Question]:
    files = [copy_of(first(folder, find_db), number) for number in range(len(DEVICES))]
    yield from of_find_dbs(folder / "many", files, [changed(file) for file in files])


def of_find_dbs(store: Path, files: Sequence[Path], later: Sequence[Path]) -> Iterator[Question]:
    """Yield questions about stored MIOpen find-dbs (files of measured kernels), such as ``top``.

    ``store`` is the Parquet folder of the find-dbs. ``later`` are the same files with other times, for ``diff``.
    """
    # The later files are read into a second Parquet folder, which diff compares with the first.
    after = store.with_name(f"{store.name}-after")
    ingested(store, files)
    ingested(after, later)
    key = files[0].open(encoding="utf-8").readline().partition("=")[0]
    at = ("--store", str(store))
    yield Question("top", ("top", *at, "-n", "5"), by_sql(store, TOP_SQL), by_pandas(store, TOP_PANDAS))
    yield Question("show", ("show", *at, key), by_sql(store, SHOW_SQL), by_pandas(store, SHOW_PANDAS))
    yield Question("status", ("status", *at), by_sql(store, STATUS_SQL), by_pandas(store, STATUS_PANDAS))
    yield Question("sql", ("sql", *at, VIEW_SQL), by_sql(store, BARE_SQL), by_pandas(store, VIEW_PANDAS))
    yield Question("recommend", ("recommend", *at), by_sql(store, RECOMMEND_SQL), by_pandas(store, RECOMMEND_PANDAS))
    yield Question(
        "diff", ("diff", str(store), str(after)), by_sql(store, DIFF_SQL, after), by_pandas(store, DIFF_PANDAS, after)
    )
    yield Question("coverage", ("coverage", *map(str, files), *at))
    yield Question("lint", ("lint", *map(str, files)))
    yield Question("report", ("report", *at))


def of_small(folder: Path, find_db: str) -> Iterator[Question]:
    logs = small_logs(folder)
    store = folder / "small"
    yield Question("ingest", ("ingest", str(logs), "--store", "store", "--run", "small"))
    if not store.exists():
        used = cost((*PROGRAM, "ingest", str(logs), "--store", str(store), "--run", "small"))
        assert used.code == 0, used.output
    at = ("--store", str(store))
    line = next(logs.glob("*.log")).open(encoding="utf-8").readline()
    yield Question("top", ("top", *at, "-n", "5"))
    yield Question("show", ("show", *at, line.strip()))
    yield Question("status", ("status", *at))
    yield Question("sql", ("sql", *at, "select m, n, k, count(*) from gemm_problems group by all"))
    yield Question("recommend", ("recommend", *at))
    yield Question("diff", ("diff", str(store), str(store)))
    yield Question("report", ("report", *at))


def of_start(folder: Path, find_db: str) -> Iterator[Question]:
    log = next(small_logs(folder).glob("*.log"))
    yield Question("help", ("--help",), imports="import typer")
    yield Question("ingest", ("ingest", str(log), "--store", "store"), imports="import typer, pyarrow.parquet")


# ------------------------------------------------------------------------------------------------ inputs and stores


def first(folder: Path, find_db: str) -> Path:
    """Unpack the find-db that ROCm ships into ``folder``, and return the path of the unpacked file."""
    target = folder / "inputs" / NAME
    if not target.exists():
        if not Path(find_db).exists():
            sys.exit(f"--find-db: no file {find_db}")
        opened: Callable[..., Any] = bz2.open if find_db.endswith(".bz2") else open
        target.parent.mkdir(parents=True, exist_ok=True)
        with opened(find_db, "rb") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    return target


def copy_of(file: Path, number: int) -> Path:
    """Return copy ``number`` of a MIOpen find-db (a file of measured kernels), under the name of another GPU.

    Copy 0 is the file itself. Two of three copies also have another batch size.
    """
    target = file.with_name(NAME.replace("68", f"{DEVICES[number]:x}") if number else NAME)
    batch = BATCHES[number % len(BATCHES)]
    return target if number == 0 else _write_record(target, file, lambda key, items: (_rebatched(key, batch), items))


_BATCH = re.compile(r"-(\d+)(?=-\d+(?:x\d+)+-\d+(?:x\d+)+-\d+(?:x\d+)+-)")
"""Pattern that finds the batch size in a key of a find-db. Pads, strides and dilations follow it."""


def _rebatched(key: str, batch: int) -> str:
    return _BATCH.sub(lambda found: f"-{int(found[1]) * batch}", key, count=1)


def changed(file: Path) -> Path:
    """Write a copy of a find-db with other times in a third of its rows, as after an upgrade of the library.

    Returns the path of the copy.
    """
    draw = random.Random(1)

    def other(key: str, items: str) -> tuple[str, str]:
        factor = draw.choice((0.8, 1.0, 1.0, 1.0, 1.0, 1.25))
        parts = [item.split(",") for item in items.split(";")]
        for part in parts:
            solver, _, time = part[0].rpartition(":")
            part[0] = f"{solver}:{float(time) * factor:.6g}"
        return key, ";".join(",".join(part) for part in parts)

    return _write_record(file.parent / "after" / file.name, file, other)


def _write_record(target: Path, file: Path, change: Callable[[str, str], tuple[str, str]]) -> Path:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".part")
        with file.open(encoding="utf-8") as source, unfinished.open("w", encoding="utf-8") as sink:
            for line in source:
                key, _, items = line.rstrip("\n").partition("=")
                sink.write("=".join(change(key, items)) + "\n")
        unfinished.rename(target)
    return target


def one_device(files: Sequence[Path]) -> list[Path]:
    """Give find-dbs (MIOpen's files of measured kernels) of several GPUs the file name of a single GPU.

    Returns the paths of hard links with the new names.
    """
    # MIOpen recognises the GPU by the file name, so all files seem to be for one GPU. Each link is in a folder of its
    # own.
    out = []
    for file in files:
        target = file.parent / f"as-{file.name.split('.')[0]}" / USER_NAME
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            os.link(file, target)
        out.append(target)
    return out


def ingested(store: Path, files: Sequence[Path]) -> None:
    if not store.exists():
        used = cost((*PROGRAM, "ingest", *map(str, files), "--store", str(store), "--run", store.name))
        assert used.code == 0, used.output
        print(f"ingest into {store.name}: {used.wall_s:.1f} s, CPU {used.cpu_s:.1f} s, {used.peak_mb:,.0f} MB")


def small_logs(folder: Path) -> Path:
    """Write 20,000 small logs, and return their folder. Each log has ten lines of hipblaslt-bench.

    In all logs together there are 300 different GEMMs.
    """
    target = folder / "inputs" / "small"
    if not target.exists():
        draw = random.Random(2)
        lines = [
            f"hipblaslt-bench --api_method c -m {m} -n {n} -k {k} --lda {m} --ldb {k} --ldc {m} --ldd {m} --stride_a 0 "
            f"--stride_b 0 --stride_c 0 --stride_d 0 --alpha 1.000000 --beta 0.000000 --transA N --transB N "
            "--batch_count 1 --scaleA 0 --scaleB 0 --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r "
            f"--scale_type f32_r --bias_type f32_r --compute_type f32_r --algo_method index --solution_index {index}\n"
            for index in range(300)
            for m, n, k in [[64 * draw.randint(1, 128) for _ in range(3)]]
        ]
        unfinished = target.with_suffix(".part")
        unfinished.mkdir(parents=True)
        for number in range(SMALL_FILES):
            (unfinished / f"hipblaslt_{number}.log").write_text("".join(draw.choices(lines, k=10)), encoding="utf-8")
        unfinished.rename(target)
    return target


# ------------------------------------------------------------------------------------------------ the field, by hand


def by_sql(store: Path, sql: str, after: Path | None = None) -> str:
    """Return a Python program that runs an SQL query in DuckDB.

    In the SQL text, names such as ``{measurements}`` are replaced by the Parquet files of that table.
    """
    sql = sql.format(
        measurements=f"read_parquet('{store}/measurements/*.parquet')",
        after=f"read_parquet('{after}/measurements/*.parquet')",
        convs=f"read_parquet('{store}/convs/*.parquet')",
        sources=f"read_parquet('{store}/sources/**/*.parquet')",
    )
    return f"import duckdb\nprint(duckdb.sql('''{sql}'''))"


def by_pandas(store: Path, program: str, after: Path | str | None = None) -> str:
    """Return the source code of a complete Python program that answers a question with pandas.

    ``program`` is the part that computes the answer. ``store`` is the Parquet folder that it reads.
    """
    # The lines in front of the program define read(table, columns), which reads the Parquet files of a table in the
    # store, and AFTER, the path of a second Parquet folder for questions that compare two folders.
    return f"""
import glob
import pandas as pd
def read(table, columns, store={str(store)!r}):
    return pd.concat([pd.read_parquet(p, columns=columns) for p in glob.glob(store + '/' + table + '/**/*.parquet',
                                                                            recursive=True)], ignore_index=True)
AFTER = {str(after)!r}
{program}"""


TOP_SQL = """
    select problem, min(time_us) as best_us, arg_min(solution, time_us) as best from {measurements}
    where status = 'ok' and time_us > 0 group by problem order by best_us desc limit 5"""
TOP_PANDAS = """
rows = read('measurements', ['problem', 'solution', 'status', 'time_us'])
rows = rows[(rows.status == 'ok') & (rows.time_us > 0)]
print(rows.loc[rows.groupby('problem').time_us.idxmin()].nlargest(5, 'time_us'))"""
SHOW_SQL = """
    select * from {measurements} where problem = (select any_value(problem) from {measurements}) order by time_us"""
SHOW_PANDAS = """
rows = read('measurements', None)
print(rows[rows.problem == rows.problem[0]].sort_values('time_us'))"""
STATUS_SQL = "select run, format, count(*), sum(lines), sum(bytes) from {sources} group by all"
STATUS_PANDAS = """
rows = read('sources', ['run', 'format', 'lines', 'bytes'])
print(rows.groupby(['run', 'format']).agg(['count', 'sum']))"""
VIEW_SQL = "select direction, dtype, count(*), sum(flops) from conv_problems group by all"
BARE_SQL = """
    select direction, in_type, count(*), sum(flops) from (
        select problem, any_value(direction) as direction, any_value(in_type) as in_type, any_value(flops) as flops
        from {convs} group by problem) group by all"""
VIEW_PANDAS = """
rows = read('convs', ['problem', 'direction', 'in_type', 'flops']).drop_duplicates('problem')
print(rows.groupby(['direction', 'in_type']).flops.agg(['count', 'sum']))"""
RECOMMEND_SQL = """
    with best as (
        select attempt, problem[6:6] as direction, problem[8:] as layer, min(time_us) as us
        from {measurements} where status = 'ok' and time_us > 0 group by all),
    per as (
        select attempt, layer, max(us) filter (direction = 'W') as w, max(us) filter (direction <> 'W') as other
        from best group by all)
    select *, w - other as loss from per where w > 3 * other and w > 50 order by loss desc"""
RECOMMEND_PANDAS = """
rows = read('measurements', ['attempt', 'problem', 'status', 'time_us'])
rows = rows[(rows.status == 'ok') & (rows.time_us > 0)]
best = rows.groupby(['attempt', 'problem']).time_us.min().reset_index()
best['layer'] = best.problem.str[7:]
is_w = best.problem.str[5] == 'W'
other = best[~is_w].groupby(['attempt', 'layer']).time_us.max().rename('other').reset_index()
both = best[is_w].merge(other, on=['attempt', 'layer'])
both['loss'] = both.time_us - both.other
print(both[(both.time_us > 3 * both.other) & (both.time_us > 50)].sort_values('loss', ascending=False))"""
DIFF_SQL = """
    with a as (select problem, min(time_us) as a_us from {measurements} where time_us > 0 group by problem),
         b as (select problem, min(time_us) as b_us from {after} where time_us > 0 group by problem)
    select *, b_us / a_us as ratio from a join b using (problem) where ratio > 1.03 order by ratio desc"""
DIFF_PANDAS = """
def best(name, *store):
    rows = read('measurements', ['problem', 'time_us'], *store)
    return rows[rows.time_us > 0].groupby('problem').time_us.min().rename(name)
both = pd.concat([best('a'), best('b', AFTER)], axis=1, join='inner')
both['ratio'] = both.b / both.a
print(both[both.ratio > 1.03].sort_values('ratio'))"""
MERGE_SQL = """
    copy (select key_text, solution, min(time_us) as us from {measurements} where time_us > 0 group by all)
    to 'merged.csv' """
MERGE_PANDAS = """
rows = read('measurements', ['key_text', 'solution', 'time_us'])
rows = rows[rows.time_us > 0].groupby(['key_text', 'solution']).time_us.min()
rows.to_csv('merged.csv')"""


if __name__ == "__main__":
    sys.exit(main())
