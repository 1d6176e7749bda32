"""Outer layer of the program: its streams, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from logparse.errors import LogparseError, QueryError, UsageError
from logparse.text import printable


def run_program(app: Callable[[Sequence[str]], object], words: Sequence[str]) -> None:
    """Run a program.  An error that the user can mend prints one line and exits with 1.  Wrong usage exits with 2."""
    _ready_streams()
    try:
        code: object = 0
        try:
            app(words)
        except SystemExit as ended:
            code = ended.code
        # This happens here, because the caller does not see an error that occurs at the interpreter's exit.
        sys.stdout.flush()
    except BrokenPipeError:  # `logparse sql … | head`
        _forget_output()
        code = 0
    except QueryError as error:  # DuckDB marks the place in the line below
        print("\n".join(map(printable, f"error: {error}".splitlines())), file=sys.stderr)
        code = 1
    except (LogparseError, OSError) as error:
        named = isinstance(error, OSError) and error.filename
        text = f"{os.fsdecode(error.filename)}: {error.strerror}" if named else str(error)  # type: ignore[union-attr]
        print(f"error: {printable(text)}", file=sys.stderr)
        _forget_output()
        code = 2 if isinstance(error, UsageError) else 1
    except Exception as error:
        # For Ctrl-C during a query DuckDB raises its own errors instead of KeyboardInterrupt.
        if str(error) == "Query interrupted" or "KeyboardInterrupt" in str(error):
            sys.exit(130)
        if not type(error).__module__.startswith(("pyarrow", "duckdb", "_duckdb")):
            raise
        why = printable(str(error).partition("\n")[0])
        print(f"error: the store cannot be read: {why} (`logparse check` names the damaged files)", file=sys.stderr)
        code = 1
    sys.exit(code)  # type: ignore[arg-type]


def end_process(code: object) -> NoReturn:
    """End this process with an exit code, without shutting down the interpreter.

    There are two reasons.  DuckDB warns of uncollected objects when the interpreter shuts down.  Freeing the objects of
    NumPy, Arrow and DuckDB takes up to a quarter of a short question's time.

    Everything else happens as at the end of any program: threads are joined, exit functions run (temporary files, child
    processes, Ray), and streams are flushed.  ``multiprocessing`` ends its processes in the same way.
    """
    if not isinstance(code, int) or _has_more_to_do():
        sys.exit(code)  # type: ignore[arg-type]
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter reports streams that it cannot flush
    os._exit(code)


def _has_more_to_do() -> bool:
    """Tell whether something must still run when the interpreter shuts down.

    Examples are a profiler, a debugger, the prompt of ``python -i``, and a GPU's runtime.  The runtime's tools write
    their results when the C library ends.
    """
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    observed = sys.gettrace() or sys.getprofile() or (monitoring and any(map(monitoring.get_tool, range(6))))
    return bool(observed or sys.flags.inspect or "torch" in sys.modules)


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End the program quietly if the reader of its output stops early (``| head``).  The exit code does not change."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()


def _ready_streams() -> None:
    """Replace streams that the caller closed (``>&-``).

    Set all streams so that they can print a name that their encoding lacks.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for the process's life)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _forget_output() -> None:
    """Drop the output that is buffered and cannot be written.

    Otherwise the interpreter would try to write it again at its exit.
    """
    with suppress(OSError), open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
