"""Options of the program, and the decorator that makes functions its verbs."""

# No `from __future__ import annotations`: typer reads the types.

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logparse import __version__
from logparse.errors import LogparseError
from logparse.output.answer import ROWS, Answer, TableFormat, show
from logparse.output.program import quiet_pipe
from logparse.text import one_of

if TYPE_CHECKING:
    import logparse.store

Verb = Callable[..., Answer]


def option(
    help: str,
    *names: str,
    values: Callable[[], Iterable[str]] | Iterable[str] | None = None,
    several: bool = False,
    check: bool = True,
    own: bool = False,
    **more: Any,
) -> Any:
    """An option, named as its parameter unless ``names`` are given, with typer's other settings.

    ``values``: the possible values, which a shell completes; others are refused, unless the verb does that itself
    (``check`` False).  ``several``: values are joined by commas.  ``own``: ``package.module:NAME`` is allowed too.
    """
    if values is None:
        return typer.Option(*names, help=help, **more)

    def known() -> Iterable[str]:
        return values() if callable(values) else values

    def refuse_others(parameter: typer.CallbackParam, value: str | None) -> str | None:
        for word in [] if value is None else value.split(",") if several else [value]:
            if not (own and ":" in word):
                one_of(parameter.opts[0], word, known())
        return value

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        return [done + comma + name for name in known() if name.startswith(last)]

    return typer.Option(*names, help=help, callback=refuse_others if check else None, autocompletion=complete, **more)


def argument(help: str) -> Any:
    """A positional argument."""
    return typer.Argument(help=help)


_HOW: Mapping[str, tuple[Any, Any]] = {
    "format": (Annotated[TableFormat | None, option("How to print it. [default: by the ending of -o]")], None),
    "output": (
        Annotated[str | None, option("Write the table to a file: .csv, .json or .parquet.", "--output", "-o")],
        None,
    ),
    "wide": (Annotated[bool, option("Every column and whole names on any terminal.", "--wide")], False),
}
"""Options of every verb that has a table, and their defaults."""


def opened(store: str | None, *, create: bool = False) -> "logparse.store.Store":
    """The store that ``--store`` names.  Raises StoreError."""
    from logparse.store import open_store

    return open_store(store, create=create)


def completed_runs(context: typer.Context, incomplete: str) -> list[str]:
    """The runs of the store that the words so far name, for completion; empty where it cannot be read."""
    with suppress(LogparseError, OSError):
        return [run for run in opened(context.params.get("store")).runs() if run.startswith(incomplete)]
    return []


RUN_HELP = "A store (its latest run), STORE#RUN, a run's label, or log files."
Text = str | None
Words = list[str] | None
Store = Annotated[Text, option("Store folder or URL. [default: logparse-store]", "--store", envvar="LOGPARSE_STORE")]
Run = Annotated[Text, option("Run label. [default: the latest run]", "--run", autocompletion=completed_runs)]
Label = Annotated[
    Text, option("Label of this run. [default: the time of the call]", "--run", autocompletion=completed_runs)
]
RunName = Annotated[str, argument(RUN_HELP)]
Count = Annotated[int | None, option(f"Rows. [default: {ROWS} of a table on the terminal, else all]", "-n", min=1)]
FailOn = Annotated[str, option("Slower by more than this fails, e.g. 3%.", "--fail-on")]
Engine = Annotated[
    str,
    option(
        "local; ray (of $RAY_ADDRESS, of this machine, or one of its own); ray://HOST:PORT.",
        "--engine",
        values=("local", "ray"),
        check=False,
    ),
]
Kind = Annotated[Text, option("gemm, grouped or conv.", "--kind", values=("gemm", "grouped", "conv"))]
Target = Annotated[Words, option("Facts of the machine that will read the files: a file, or KEY=VALUE.", "--target")]
Files = Annotated[list[str], argument("Override files (TunableOp CSV, tuning file, user find-db).")]
Gpus = Annotated[int, option("Copies of a TunableOp CSV, one per device.", "--gpus", min=1)]
Compare = Annotated[
    Text, option("Another run beside this one: RUN, STORE:RUN or STORE.", "--compare", autocompletion=completed_runs)
]
"""Options and arguments of several verbs."""


def program_of(help: str, epilog: str) -> tuple[typer.Typer, Callable[..., Callable[[Verb], Verb]]]:
    """A program without verbs yet, and the decorator that makes a function one of them.

    The function's answer is printed in the chosen format and sets the exit code.  The decorator takes an example for
    the verb's help; ``table``: the answer has a table, so the verb gets the options for its format; ``passes_on``: the
    words after the first argument are another program's.
    """
    app = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=help,
        epilog=epilog,
    )
    app.callback()(_program)

    def verb(example: str, *, table: bool = False, passes_on: bool = False) -> Callable[[Verb], Verb]:
        def register(function: Verb) -> Verb:
            how = _HOW if table else {}

            @wraps(function)
            def command(**values: Any) -> None:
                chosen = {name: values.pop(name) for name in how}
                answer = function(**values)
                with quiet_pipe():
                    show(answer, chosen.get("format"), chosen.get("output"), wide=chosen.get("wide", False))
                if answer.code:
                    raise typer.Exit(answer.code)

            kind = inspect.Parameter.KEYWORD_ONLY
            own = [x.replace(kind=kind) for x in inspect.signature(function).parameters.values()]
            own += [inspect.Parameter(name, kind, default=value, annotation=of) for name, (of, value) in how.items()]
            command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
            command.__annotations__ = {x.name: x.annotation for x in own}
            settings = {"allow_interspersed_args": False} if passes_on else None
            app.command(epilog=f"Example: `{example}`", context_settings=settings)(command)
            return function

        return register

    return app, verb


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"logparse {__version__}")
        raise typer.Exit


def _program(
    version: Annotated[bool, option("Print the version.", "--version", is_eager=True, callback=_print_version)] = False,
) -> None:
    """The options before a verb."""
