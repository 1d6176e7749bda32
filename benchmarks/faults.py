"""Damage the files of a store, and count how often `check` finds the damage and how often answers change silently.

    python benchmarks/faults.py                          # deletions and truncations of every file, 400 flipped bits
    python benchmarks/faults.py --code ../before         # the same, with the code of another checkout

A store is the Parquet folder to which ``ingest`` writes.  Three stores are made from a few sample logs.  In the first,
each log has a part file of its own.  In the second, several logs share a part file.  The third is compacted.  In each
store, one log is forgotten at the end, and each store holds findings.  A fault changes one file, and is taken back
before the next fault.  Three kinds of files are counted separately: parts; commits (row files, manifests, findings and
lists of forgotten attempts); inventories.  Prints a table in Markdown.  The same ``--seed`` makes the same choices.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOGS = [
    ROOT / "sample_logs" / name
    for name in (
        "hipblaslt/trace_4242.log",
        "hipblaslt/hipblaslt_rank0_4242.log",
        "hipblaslt/bench_output.txt",
        "miopen/gfx942130.HIP.fdb.txt",
        "miopen/miopen_cmd_4242.log",
        "traces/job.trace.json",
    )
]
KINDS = ("single", "joint", "compacted")
FLIPS = 400
COMMITS = {"sources", "compactions", "findings"}


def made(kind: str, folder: Path) -> Any:
    import pandas as pd

    from logparse.ingest import ingest, schedule
    from logparse.store import open_store
    from logparse.store.compaction import compact

    store = open_store(folder / kind, create=True)
    if kind == "joint":
        many, schedule.MANY, schedule._TASKS = schedule.MANY, 1, 1
    ingest([str(log) for log in LOGS], store, run="faults")
    if kind == "joint":
        schedule.MANY = many
    if kind == "compacted":
        compact(store, unread=True)
    store.forget(str(LOGS[0]))
    store.write_findings(pd.DataFrame({"run": ["faults"], "analyzer": ["slow-wrw"], "solution": ["miopen:X"]}))
    return open_store(store.url)


def answers(url: str) -> tuple[dict[str, list[str]], int]:
    """Query all SQL views. Return the rows of each view, and how many views end in an error."""
    from logparse.store import open_store
    from logparse.store.schema import VIEWS

    try:  # All views are read at once first, because that takes half the time.
        with open_store(url).reading() as con:
            return {view: sorted(map(str, con.execute(f"select * from {view}").fetchall())) for view in VIEWS}, 0
    except Exception:  # If that fails, they are read one by one.
        pass
    out: dict[str, list[str]] = {}
    errors = 0
    for view in VIEWS:
        try:
            with open_store(url).reading(f"select * from {view}") as con:
                out[view] = sorted(map(str, con.execute(f"select * from {view}").fetchall()))
        except Exception:  # Any error counts, because the user then sees no answer.
            errors += 1
    return out, errors


def is_damage_noticed(url: str) -> bool:
    from logparse.store import open_store

    try:
        return bool(open_store(url).damage())
    except Exception:  # A traceback shows the damage, too.
        return True


def delete_content(data: bytes, rng: random.Random) -> None:
    """Damage a file by deleting it. The caller deletes the file if the result is None."""


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def damage_each_file(
    url: str, files: Iterator[Path], fault: Callable[[bytes, random.Random], bytes | None], seed: int
) -> str:
    """Damage each file of a store in one way, look whether logparse notices the damage, and repair the file.

    Returns four cells of the printed table.
    """
    # The cells are the number of damaged files, and for how many of them check found the damage, a command ended with
    # an error, or an answer changed.
    wanted, _ = answers(url)
    counts, rng = Counter[str](), random.Random(seed)
    for file in files:
        whole = file.read_bytes()
        data = fault(whole, rng)
        if data is None:
            file.unlink()
        else:
            file.write_bytes(data)
        rows, errors = answers(url)
        counts["faults"] += 1
        counts["found"] += is_damage_noticed(url)
        counts["errors"] += bool(errors)
        counts["changed"] += any(rows[view] != wanted[view] for view in rows)
        file.write_bytes(whole)
    return " | ".join(str(counts[name]) for name in ("faults", "found", "errors", "changed"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=FLIPS, help="bits of parts; a quarter as many of others")
    parser.add_argument("--seed", type=int, default=49)
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout whose logparse is tried")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    sys.path.insert(0, str(options.code.resolve()))
    print("| store | files | fault | faults | found by check | answered with an error | changed answers |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds:
            store = made(kind, Path(folder))
            every = [path for path in sorted(Path(store.url).rglob("*.*")) if path.is_file()]
            inventories = [path for path in every if path.name.startswith("inventory-")]
            commits = [path for path in every if COMMITS & {*path.relative_to(store.url).parts}]
            commits = [path for path in commits if path not in inventories]
            parts = [path for path in every if path not in {*commits, *inventories} and path.suffix == ".parquet"]
            for name, files in (("parts", parts), ("commits", commits), ("inventories", inventories)):
                rng = random.Random(options.seed)
                # Stores of earlier versions of the code have no inventories.
                flips = options.flips // (1 if name == "parts" else 4) if files else 0
                chosen = [rng.choice(files) for _ in range(flips)]
                for what, fault, of in (
                    ("deleted", delete_content, files),
                    ("cut", cut, files),
                    ("a bit", flip_bit, chosen),
                ):
                    cells = damage_each_file(store.url, iter(of), fault, options.seed)
                    print(f"| {kind} | {len(files)} {name} | {what} | {cells} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
