"""Data of the web page in memory: the table of GEMMs and convolutions, all measurements, and the analyzers' results."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import duckdb

from analyzers.explore.load.beside import later_first, names
from analyzers.explore.load.job import (
    FAILED,
    FILES,
    FINAL,
    FIRST,
    JUDGED,
    READY,
    TRIES,
    VERDICT,
    VERDICT_FILE,
    PageVerdict,
)
from analyzers.explore.load.reader import StoreReading
from analyzers.explore.queries import empty_columns, has_kernels, rows_of_pairs, rows_of_todos
from analyzers.explore.selection import Selection
from analyzers.explore.tries import COLUMNS, Try, of_query, of_source
from logparse.errors import LogparseError
from logparse.lazy import pd
from logparse.store import open_store
from logparse.text import sql_text

DOING = {
    "": "Reading the store",
    READY: (
        "All problems are read, with their best times. Every other measurement and the analyzers' verdict will follow"
    ),
    TRIES: "All problems and measurements are read. The analyzers' verdict and findings will follow",
    VERDICT: "The analyzers have run. The tables with their results will follow",
    FINAL: "Writing the files to download",
}
_STORED = tuple(x for x in COLUMNS if x != "problem")
"""Columns of the measurements of one GEMM or convolution, which are read when its details are shown.

Its rows are found by the hash of its text.
"""


class PageData:
    """The data of one web page. Loading starts at once, and requests are answered as soon as their data are there.

    The object may be used from several threads.
    """

    def __init__(
        self,
        url: str,
        run: str | None = None,
        other: str | None = None,
        target: Mapping[str, str] = MappingProxyType({}),
        reading: StoreReading | None = None,
    ) -> None:
        self.url, self.run, self.runs = url, run or "", list[str]()
        self.other = ""
        """Name of the run to compare with. It begins with the folder's URL if the run is in another Parquet folder."""
        self.names = (url, "")
        """The names of the two runs, as the chart that compares them shows them."""
        self.target = dict(target)
        """Facts about the machine that will use the override files.

        If it is empty, each override is for the machine on which it was measured.
        """
        self.verdict = PageVerdict()
        """The headline and the things to do. They are there when ``judged`` is True."""
        self.judged = False
        self.settled = False
        """True if the tables have the results of the analyzers, too."""
        self.empty: frozenset[str] = frozenset()
        """Columns of the web page's table that have no value in any row."""
        self.rows_of: Mapping[str, int] = {}
        """The number of rows that each thing to do concerns, by its name."""
        self.shared: Mapping[tuple[str, str], int] = {}
        """The number of rows that two things to do both concern, by their names."""
        self.traced = False
        """True if the run has a trace with kernels."""
        self.error = ""
        self._begun, self._done = time.monotonic(), DOING[""]
        self.version = 0
        """A number that grows whenever there are more data to show."""
        self.tables_version = 0
        """A number that grows whenever the tables change."""
        self.reading = reading or StoreReading(url, run, other, target)
        """The processes that load the data. They may have started before this object was made."""
        # One thread per query: a click asks three queries at once, and a second thread for each takes up to a quarter
        # more CPU.
        self._con = duckdb.connect(config={"memory_limit": "400MB", "threads": "1"})
        # Without the cache, the metadata of a thousand row groups are half of the time to read a problem.
        self._con.execute("set parquet_metadata_cache = true")
        self._tables = ""
        self._begins, self._ready, self._tries, self._finished = (threading.Event() for _ in range(4))
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def cursor(self, timeout_s: float = 120.0) -> duckdb.DuckDBPyConnection:
        """Return a database cursor for the caller alone. Waits until the table ``points`` has been loaded.

        Raises LogparseError if loading failed, or takes longer than ``timeout_s`` seconds.
        """
        if not self._ready.wait(timeout_s):
            raise LogparseError(f"{self.url} takes longer than {timeout_s:g} s to read")
        if not self._tables:
            raise LogparseError(self.error)
        con = self._con.cursor()
        con.execute(f"use {self._tables}")
        return con

    def wait_for_headline(self, timeout_s: float = 120.0) -> bool:
        """Wait until the headline or the table ``points`` has been loaded, or loading has failed.

        Returns True if the headline is there, and no table yet.
        """
        self._begins.wait(timeout_s)
        return self.judged and not self._ready.is_set()

    def wait_for_news(self, version: int, timeout_s: float) -> None:
        """Wait until there are more data than in a ``version``, or for ``timeout_s`` seconds."""
        with self._news:
            self._news.wait_for(lambda: self.version != version, timeout_s)

    def tries(self, row: pd.Series) -> Sequence[Try]:
        """Return the measured times of all kernels for the GEMM or convolution in a row of the web page's table.

        If the row's own file has times, only these are returned.
        """
        if not self._tries.wait(30.0) or self.error:
            return ()
        with self.cursor() as con:
            # Times of different files cannot be compared. A GEMM or convolution without times gets the times of a very
            # similar one. It may be the same call that another file describes differently.
            sql = f"select {', '.join(_STORED)} from memory.tries where h = hash(?)"
            return of_source(of_query(con.execute(sql, [str(row["measured"])])), row["source_id"])

    def facts(self, source_id: object) -> dict[str, str]:
        with self.cursor() as con:
            sql = "select name, value from facts where source_id = ? order by name, value desc"
            return {str(name): str(value) for name, value in con.execute(sql, [source_id]).fetchall()}

    @property
    def files(self) -> Path | None:
        """Path of the zip file with the recommended override files, for download.

        None if nothing is recommended yet, or if the file could not be written. The file is written last (see
        ``wait``).
        """
        path = self.reading.folder / FILES
        return path if self.verdict.actions and (path.is_file() or not self.finished) else None

    @property
    def finished(self) -> bool:
        """True if no more data will come."""
        return self._finished.is_set()

    @property
    def final(self) -> bool:
        """True if the numbers of the table and the charts no longer change, because the analyzers have run."""
        return self.settled or self.finished

    @property
    def doing(self) -> str:
        """A text for the user about what is being loaded. It is empty at the end."""
        if not self._done or self.finished:
            return ""
        # Once the results are there, nothing that the user sees is waited for.
        return f"{self._done} …" if self.settled else f"{self._done} … {time.monotonic() - self._begun:.0f} s"

    def wait(self, timeout_s: float) -> bool:
        """Wait until all data are loaded, or loading has failed.

        Returns False if that takes longer than ``timeout_s`` seconds.
        """
        return self._finished.wait(timeout_s)

    def close(self) -> None:
        """Stop loading and remove the written files."""
        self.reading.close()
        self._con.close()

    def _listen(self) -> None:
        steps: dict[str, Callable[[], None]] = {
            READY: self._load,
            VERDICT: self._load_verdict,
            FINAL: self._load_final,
            TRIES: self._load_tries,
        }
        try:
            for step, text in self.reading.steps():
                if step == FAILED:
                    self.error = text
                    break
                steps[step]()
                self._done = DOING[FINAL if self.settled else VERDICT if self.judged else step]
                if step in (VERDICT, FINAL):
                    self._tell(tables=step == FINAL)
                self._begins.set()
                # Only tables need pandas. An earlier import would take time from the process that reads the store.
                threading.Thread(target=import_module, args=["pandas"], daemon=True).start()
        except EOFError:
            self.error = self.error or "the process that reads the store died (did it run out of memory?)"
        except Exception as error:  # The exception may be of any kind. Its text is shown on the page.
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self._finished.set()
            for event in (self._begins, self._ready, self._tries):
                event.set()
            self._tell(tables=True)  # The page asks once more, so that nothing on it waits any longer.

    def _tell(self, *, tables: bool) -> None:
        """Tell the page that there are more data. ``tables`` is True if the tables have changed."""
        with self._news:
            self.version += 1
            self.tables_version += tables
            self._news.notify_all()

    def _load(self) -> None:
        self._attach(FIRST)
        self._load_names()
        self._ready.set()

    def _load_names(self) -> None:
        known = json.loads((self.reading.folder / "run.json").read_text())
        self.run, self.runs = known["run"], known["runs"]
        if known["other"]:
            store, (url, run) = open_store(self.url), known["other"]
            self.names = names(store, self.run, open_store(url), run)
            self.other = run if url == store.url else f"{url}:{run}"

    def _load_tries(self) -> None:
        path = sql_text(self.reading.folder / "tries.parquet")
        self._con.cursor().execute(f"create view memory.tries as select * from read_parquet({path})")
        self._tries.set()

    def _load_verdict(self) -> None:
        self.verdict = PageVerdict.read(self.reading.folder / VERDICT_FILE)
        self._load_names()
        self.judged = True

    def _load_final(self) -> None:
        self.verdict = PageVerdict.read(self.reading.folder / VERDICT_FILE)
        self._attach(JUDGED)
        self.settled = True
        self._ready.set()

    def _attach(self, name: str) -> None:
        """Switch to another database file: from now on, all tables are read from this file."""
        tables = name.partition(".")[0]
        self._con.cursor().execute(f"attach {sql_text(self.reading.folder / name)} as {tables} (read_only)")
        with self._con.cursor() as con:
            con.execute(f"use {tables}")
            self.empty, self.rows_of, self.traced = empty_columns(con), rows_of_todos(con), has_kernels(con)
            self.shared = rows_of_pairs(con)
        self._tables = tables


class Pages:
    """The data of several runs for the web page. The data of a run are loaded when its page is requested."""

    def __init__(self, first: PageData) -> None:
        self.first = first
        self._others: dict[tuple[str, str], PageData] = {}
        self._lock = threading.Lock()

    def of(self, chosen: Selection) -> PageData:
        """Return the data of the run that the user selected on the web page, and of the run to compare it with.

        Without a selection, or if the run does not exist, the data of the first page are returned. A comparison goes
        from the earlier run to the later one, so its data are those of the later run. If the user looks at the earlier
        run of a pair, the other tabs have that run alone.
        """
        first = self.first
        if not (chosen.run or chosen.compare):
            return first
        first.wait_for_headline()  # Then the runs of the first page are known.
        wanted = (chosen.run or first.run, chosen.compare or first.other)
        self._find_new_runs(chosen)
        # A run is never compared with itself.
        wanted = (wanted[0], "" if wanted[0] == wanted[1] else wanted[1])
        ordered = later_first(first.runs, *wanted)
        if ordered != wanted:
            wanted = ordered if chosen.view == "compare" else (wanted[0], "")
        if wanted == (first.run, first.other) or any(x not in ("", first.other, *first.runs) for x in wanted):
            return first
        with self._lock:
            page = self._others.pop(wanted, None) or PageData(first.url, wanted[0], wanted[1] or None, first.target)
            self._others[wanted] = page
            for old in list(self._others)[:-_OTHERS]:
                # Only the first page and the latest ones are kept, because the data of a large run take hundreds of
                # megabytes.
                self._others.pop(old).close()
            return page

    def _find_new_runs(self, chosen: Selection) -> None:
        """Read the names of the store's runs again if the user selected one that the first page does not know.

        It may have been read into the store after the page was started.
        """
        first = self.first
        if first.runs and any(x not in ("", first.other, *first.runs) for x in (chosen.run, chosen.compare)):
            first.runs = open_store(first.url).runs()

    def unknown(self, chosen: Selection) -> str:
        """Return the name of a run that the user selected but that does not exist. Empty if all exist."""
        first = self.first
        known = ("", first.other, *first.runs)
        return next((x for x in (chosen.run, chosen.compare) if first.runs and x not in known), "")

    def close(self) -> None:
        for page in (self.first, *self._others.values()):
            page.close()


_OTHERS = 12
