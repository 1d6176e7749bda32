"""What the page holds in memory: the table ``points``, the tries of every problem, the verdict once it is there."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import duckdb
import pandas as pd

from analyzers.explore import cache, problems
from analyzers.explore.prepare import DONE, FAILED, READY, TRIES, VERDICT, prepare
from logparse.errors import LogparseError
from logparse.store import open_store

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_GIVEN_BACK = {"MALLOC_TRIM_THRESHOLD_": "1000000", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}
"""Settings of glibc under which freed memory goes back to the system: a fifth less at the reader's peak."""
_NO_TRIES = pd.DataFrame(columns=["solution", "status", "time_us", "samples_us"])


class Board:
    """Starts to read a store at once and answers as soon as it can.  Safe to use from several threads."""

    def __init__(
        self,
        url: str,
        run: str | None = None,
        other: str | None = None,
        target: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.url, self.other, self.run, self.runs = url, other, run or "", list[str]()
        self.target = dict(target)
        """Facts of the machine that will read the overrides; empty: each is for the machine that it was measured on."""
        self.headline, self.lines = "", tuple[str, ...]()
        self.error = ""
        self.version = 0
        """Grows when there is more to show."""
        self._con = duckdb.connect(config={"memory_limit": "400MB", "threads": "2"})
        self._folder = tempfile.TemporaryDirectory(prefix="logparse-explore-")
        with contextlib.suppress(duckdb.Error):  # DuckDB before 1.4 has no compressed memory
            self._con.execute("attach ':memory:' as packed (compress)")
            self._con.execute("use packed")
        self._ready, self._tries, self._finished = (threading.Event() for _ in range(3))
        self.reader: BaseProcess | None = None
        """The process that reads the store; None where an earlier page has kept what it would make."""
        folder = Path(self._folder.name)
        kept = None
        with contextlib.suppress(LogparseError):  # what is wrong with the store is said by the child
            store = open_store(url)
            kept = cache.place(store, store.latest_run(run), other, self.target)
        if cache.restore(kept, folder):
            threading.Thread(target=self._load_all, args=(folder,), daemon=True).start()
        else:
            self._read(run)

    def _read(self, run: str | None) -> None:
        receiver, sender = get_context("spawn").Pipe(duplex=False)
        arguments = (sender, self.url, run, self._folder.name, self.other, self.target)
        self.reader = get_context("spawn").Process(target=prepare, args=arguments, daemon=True)
        os.environ.update(_GIVEN_BACK)  # read by the C library when a process starts: by the reader, not by this one
        self.reader.start()
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

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to come."""
        return self._finished.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Until all is read and kept, or nothing more will come."""
        return self._finished.wait(timeout_s)

    def close(self) -> None:
        """Stop reading and remove what was written."""
        if self.reader is not None:
            self.reader.kill()
            self.reader.join()
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
            self._finished.set()
            self.version += bool(self.error and self._ready.is_set())
            self._ready.set()
            self._tries.set()

    def _load_all(self, folder: Path) -> None:
        """Everything at once, from what an earlier page kept."""
        try:
            self._load_tries(folder)
            self._load(folder, judged=True)
        except Exception as error:  # the page must say why it stays empty, whatever it was
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self._finished.set()
            self._ready.set()
            self._tries.set()

    def _load(self, folder: Path, judged: bool = False) -> None:
        known = json.loads((folder / "run.json").read_text())
        self.run, self.runs = known["run"], known["runs"]
        with self._con.cursor() as con:
            for name in ("places", "peaks", "sources", "facts", "ticks"):
                con.execute(f"create table {name} as select * from {_parquet(folder, name)}")
            con.execute(f"create view bases as select * from {_parquet(folder, 'bases')}")
            compared, found = self._said(folder) if judged else (None, None)
            problems.judge(con, compared, found, self._others(folder))
        self.version += 1
        self._ready.set()
        if judged:
            self._pack()

    def _pack(self) -> None:
        """Compress what is in memory, to a quarter; tables are compressed by a checkpoint only."""
        with contextlib.suppress(duckdb.Error):
            self._con.cursor().execute("force checkpoint")

    def _load_tries(self, folder: Path) -> None:
        with self._con.cursor() as con:
            con.execute(f"create view tries as select * from {_parquet(folder, 'tries')}")
        self._tries.set()
        self._pack()

    def _load_verdict(self, folder: Path) -> None:
        compared, found = self._said(folder)
        if len(compared) or len(found):
            with self._con.cursor() as con:
                problems.judge(con, compared, found, self._others(folder), anew=False)
        self._pack()

    def _said(self, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
        """What the analyzers say: picks and findings; the sentences for the top are kept."""
        verdict = json.loads((folder / "verdict.json").read_text())
        self.headline, self.lines = verdict["headline"], tuple(verdict["lines"])
        return pd.read_parquet(folder / "compared.parquet"), pd.read_parquet(folder / "found.parquet")

    def _others(self, folder: Path) -> pd.DataFrame | None:
        path = folder / "others.parquet"
        return pd.read_parquet(path) if path.exists() else None


def _parquet(folder: Path, name: str) -> str:
    path = str(folder / f"{name}.parquet").replace("'", "''")
    return f"read_parquet('{path}')"
