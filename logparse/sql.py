"""Run a user's SQL query safely: read-only, and limited in time, rows and memory.

The query runs in a process of its own that can be killed. Its connection can reach neither files nor network.
"""

# An interrupt can take a minute to stop a query, so the process is killed. DuckDB's own ``read_only`` does not stop
# ``COPY … TO``, so the connection can reach no files.

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pyarrow as pa

from logparse.errors import LogparseError, QueryError
from logparse.executors.processes import end_with_parent, pipe, started
from logparse.lazy import duckdb
from logparse.store import open_store
from logparse.store.schema import VIEWS

_MEMORY = "2GB"
_LOCK = ("set temp_directory = ''", "set enable_external_access = false", "set lock_configuration = true")


def query(
    store_url: str,
    sql: str,
    *,
    run: str | None = None,
    timeout_s: float = 60.0,
    max_rows: int = 1_000_000,
    waits: Callable[[float], None] = lambda seconds: None,
) -> pa.Table:
    """Run one SELECT of the user over the views of a store, and return its result.

    ``waits`` gets the seconds that are left, every second. Raises QueryError if the SQL is wrong, too slow or gives too
    many rows, and StoreError without such a store or run.
    """
    store = open_store(store_url)  # raises for a missing store or run before a process is started
    if run is not None:
        store.latest_run(run)
    receiver, sender = pipe(duplex=False)
    child = started(_child, sender, store_url, sql, run, max_rows, imports=["duckdb"])
    sender.close()
    try:
        ends = time.monotonic() + timeout_s
        while not receiver.poll(max(0.0, min(1.0, ends - time.monotonic()))) and time.monotonic() < ends:
            waits(ends - time.monotonic())
        if not receiver.poll(0):
            raise QueryError(
                f"the query took longer than {timeout_s:g} s and was stopped; narrow it, or allow more time "
                "(logparse sql --timeout)"
            )
        kind, payload = receiver.recv()
    except (EOFError, ConnectionResetError):
        raise QueryError("the process that ran the query died (did it run out of memory?)") from None
    finally:
        child.kill()
        child.join()
        receiver.close()
    if kind == "error":
        message = str(payload)
        if message.startswith("Catalog Error: Table with name"):  # DuckDB's guess names tables that are no views
            message = f"{message.partition(chr(10))[0]} The views are {', '.join(VIEWS)}."
        raise QueryError(message)
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_all()


def _child(sender: Connection, store_url: str, sql: str, run: str | None, max_rows: int) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()  # a query may never end by itself
    try:
        with open_store(store_url).connect(run, sealed=True, sql=sql) as con:
            statements = con.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in (
                duckdb.StatementType.SELECT,
                duckdb.StatementType.EXPLAIN,
            ):
                raise QueryError("one SELECT at a time: the store is read-only for `sql`")
            con.execute(f"set memory_limit = '{_MEMORY}'")
            for setting in _LOCK:
                con.execute(setting)
            reader: pa.RecordBatchReader = con.sql(statements[0].query).to_arrow_reader(100_000)
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                if rows > max_rows:
                    raise QueryError(
                        f"more than {max_rows:,} rows; add a LIMIT, or allow more rows (logparse sql --max-rows)"
                    )
                batches.append(batch)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, reader.schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            # The result is sent before the connection closes, so that nothing waits for DuckDB's end.
            sender.send(("result", sink.getvalue().to_pybytes()))
    except (duckdb.Error, LogparseError, pa.ArrowException) as error:
        sender.send(("error", str(error)))
