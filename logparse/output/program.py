"""Outermost code of the program: it prepares the output streams, and turns an error into a line and an exit code."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from logparse.errors import LogparseError, QueryError, UsageError
from logparse.text import make_printable


def run_program(app: Callable[[Sequence[str]], object], words: Sequence[str]) -> None:
    """Run the program with the words of its command line.

    An error that the user can correct prints one line and exits with 1.  Wrong usage exits with 2.
    """
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
        print("\n".join(map(make_printable, f"error: {error}".splitlines())), file=sys.stderr)
        code = 1
    except (LogparseError, OSError) as error:
        named = isinstance(error, OSError) and error.filename
        text = f"{os.fsdecode(error.filename)}: {error.strerror}" if named else str(error)  # type: ignore[union-attr]
        print(f"error: {make_printable(text)}", file=sys.stderr)
        _forget_output()
        code = 2 if isinstance(error, UsageError) else 1
    except Exception as error:
        # For Ctrl-C during a query DuckDB raises its own errors instead of KeyboardInterrupt.
        if str(error) == "Query interrupted" or "KeyboardInterrupt" in str(error):
            sys.exit(130)
        if not type(error).__module__.startswith(("pyarrow", "duckdb", "_duckdb")):
            raise
        why = make_printable(str(error).partition("\n")[0])
        print(f"error: the store cannot be read: {why} (`logparse check` names the damaged files)", file=sys.stderr)
        code = 1
    sys.exit(code)  # type: ignore[arg-type]


def end_process(code: object) -> NoReturn:
    """End this process with an exit code, without shutting down the interpreter.

    There are two reasons.  DuckDB warns of uncollected objects when the interpreter shuts down.  Freeing the objects of
    NumPy, Arrow and DuckDB takes up to a quarter of the time of a short command.

    Everything else happens in the same way as at the end of any program: threads are joined, exit functions run
    (temporary files, child processes, Ray), and streams are flushed.  ``multiprocessing`` ends its processes in the
    same way.
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
    """Return True if something must still run when the interpreter shuts down.

    Examples are a profiler, a debugger, the prompt of ``python -i``, and the GPU runtime, whose tools write their
    results at the very end.
    """
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    observed = sys.gettrace() or sys.getprofile() or (monitoring and any(map(monitoring.get_tool, range(6))))
    return bool(observed or sys.flags.inspect or "torch" in sys.modules)


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """Context that ends the program without an error if the reader of its output stops early (``| head``).

    The exit code does not change.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()


def _ready_streams() -> None:
    """Prepare standard output and standard error for any text.

    A stream that the caller closed (``>&-``) is replaced by one that discards its output.  A character that the
    stream's encoding lacks is replaced when it is printed.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for the process's life)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _forget_output() -> None:
    """Discard buffered output that cannot be written.

    Otherwise the interpreter would try to write it again when it exits.
    """
    with suppress(OSError), open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
