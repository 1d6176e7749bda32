"""What the page holds in memory: the table ``points``, the tries of every problem, the verdict once it is there."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.explore import problems
from analyzers.explore.prepare import DONE, FAILED, READY, TRIES, VERDICT, prepare
from logparse.errors import LogparseError

if TYPE_CHECKING:
    import duckdb

_NO_TRIES = pd.DataFrame(columns=["solution", "status", "time_us", "samples_us"])


class Board:
    """Starts to read a store at once and answers as soon as it can.  Safe to use from several threads."""

    def __init__(self, url: str, run: str | None = None, other: str | None = None) -> None:
        import duckdb

        self.url, self.other, self.run, self.runs = url, other, run or "", list[str]()
        self.headline, self.lines = "", tuple[str, ...]()
        self.error = ""
        self.version = 0
        """Grows when there is more to show."""
        self.finished = False
        self._con = duckdb.connect(config={"memory_limit": "512MB", "threads": "2"})
        self._folder = tempfile.TemporaryDirectory(prefix="logparse-explore-")
        self._ready, self._tries = threading.Event(), threading.Event()
        receiver, sender = get_context("spawn").Pipe(duplex=False)
        arguments = (sender, url, run, self._folder.name, other)
        self._child = get_context("spawn").Process(target=prepare, args=arguments, daemon=True)
        self._child.start()
        sender.close()
        threading.Thread(target=self._listen, args=(receiver,), daemon=True).start()

    def cursor(self, timeout_s: float = 120.0) -> duckdb.DuckDBPyConnection:
        """A cursor of the caller's own, once ``points`` is there.  Raises LogparseError where it never will be."""
        if not self._ready.wait(timeout_s):
            raise LogparseError(f"{self.url} takes longer than {timeout_s:g} s to read")
        if self.error and not self.version:
            raise LogparseError(self.error)
        return self._con.cursor()

    def tries(self, row: pd.Series) -> pd.DataFrame:
        """Every measurement of a row's problem (of the measured one that it is linked to, where it has none itself)."""
        if not self._tries.wait(30.0) or self.error:
            return _NO_TRIES
        with self.cursor() as con:
            sql = "select * exclude (h) from tries where h = hash(?)"
            rows = con.execute(sql, [str(row["measured"])]).df()
        same = rows[(rows["source_id"] == row["source_id"])] if isinstance(row["source_id"], str) else rows
        return same if len(same) else rows

    def facts(self, source_id: object) -> dict[str, str]:
        """What a source says of the place where it was made."""
        with self.cursor() as con:
            rows = con.execute(
                "select name, value from facts where source_id = ? order by name, value desc", [source_id]
            )
            return {str(name): str(value) for name, value in rows.fetchall()}

    def close(self) -> None:
        """Stop reading and remove what was written."""
        self._child.kill()
        self._child.join()
        self._con.close()
        self._folder.cleanup()

    def _listen(self, receiver: Connection) -> None:
        steps: dict[str, Callable[[Path], None]] = {
            READY: self._load,
            TRIES: self._load_tries,
            VERDICT: self._load_verdict,
        }
        folder = Path(self._folder.name)
        try:
            while True:
                step, text = receiver.recv()
                if step == DONE:
                    break
                if step == FAILED:
                    self.error = text
                    break
                steps[step](folder)
                self.version += 1
        except EOFError:
            self.error = self.error or "the process that reads the store died (out of memory?)"
        finally:
            self.finished = True
            self.version += bool(self.error and self._ready.is_set())
            self._ready.set()
            self._tries.set()

    def _load(self, folder: Path) -> None:
        known = json.loads((folder / "run.json").read_text())
        self.run, self.runs = known["run"], known["runs"]
        with self._con.cursor() as con:
            for name in ("bases", "places", "peaks", "sources", "facts", "ticks"):
                con.execute(f"create table {name} as select * from read_parquet(?)", [str(folder / f"{name}.parquet")])
            problems.judge(con, others=self._others(folder))
        self.version += 1
        self._ready.set()

    def _load_tries(self, folder: Path) -> None:
        path = str(folder / "tries.parquet").replace("'", "''")
        with self._con.cursor() as con:
            con.execute(f"create view tries as select * from read_parquet('{path}')")
        self._tries.set()

    def _load_verdict(self, folder: Path) -> None:
        compared, found = (pd.read_parquet(folder / f"{x}.parquet") for x in ("compared", "found"))
        verdict = json.loads((folder / "verdict.json").read_text())
        if len(compared) or len(found):
            with self._con.cursor() as con:
                problems.judge(con, compared, found, self._others(folder))
        self.headline, self.lines = verdict["headline"], tuple(verdict["lines"])

    def _others(self, folder: Path) -> pd.DataFrame | None:
        path = folder / "others.parquet"
        return pd.read_parquet(path) if path.exists() else None
