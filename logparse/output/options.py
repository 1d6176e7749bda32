"""Options of the program, and the decorator that makes functions its verbs."""

# No `from __future__ import annotations`: typer reads the types.

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from logparse import __version__
from logparse.errors import LogparseError, UsageError
from logparse.output.answer import ROWS, Answer, TableFormat, format_of, show
from logparse.output.program import quiet_pipe
from logparse.text import is_object, one_of

if TYPE_CHECKING:
    import logparse.store

Verb = Callable[..., Answer]


def option(
    help: str,
    *names: str,
    values: str | tuple[str, ...] | None = None,
    several: bool = False,
    check: bool = True,
    own: bool = False,
    **more: Any,
) -> Any:
    """An option, named as its parameter unless ``names`` are given, with typer's other settings.

    ``values``: the possible values, or where their list is (``module:LIST``), which a shell completes; others are
    refused, unless the verb does that itself (``check`` False).  ``several``: values are joined by commas.  ``own``:
    ``package.module:NAME`` is allowed too.
    """
    more.setdefault("show_default", "[default: " not in help)
    if values is None:
        return typer.Option(*names, help=help, **more)

    def known() -> Iterable[str]:
        return _names_in(values) if isinstance(values, str) else values

    def refuse_others(parameter: typer.CallbackParam, value: str | None) -> str | None:
        for word in [] if value is None else value.split(",") if several else [value]:
            if not (own and is_object(word)):
                one_of(parameter.opts[0], word, known())
        return value

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        return [done + comma + name for name in known() if name.startswith(last)]

    return typer.Option(*names, help=help, callback=refuse_others if check else None, autocompletion=complete, **more)


def _names_in(place: str) -> list[str]:
    """The names of the members of a list, ``module:LIST`` (or the list, where it holds names).

    The module is imported here, to check or to complete a value, and not before: it may be slow.
    """
    module, _, name = place.partition(":")
    return [x if isinstance(x, str) else x.name for x in getattr(import_module(module), name)]


def argument(help: str, **more: Any) -> Any:
    """A positional argument, with typer's other settings."""
    return typer.Argument(help=help, **more)


_HOW: Mapping[str, tuple[Any, Any]] = {
    "format": (Annotated[TableFormat | None, option("How to print it. [default: by the ending of -o]")], None),
    "output": (
        Annotated[str | None, option("Write the table to a file: .csv, .json or .parquet.", "--output", "-o")],
        None,
    ),
    "wide": (Annotated[bool, option("Every column and whole names on any terminal.", "--wide")], False),
}
"""Options of every verb that has a table, and their defaults."""
_LIMIT: Mapping[str, tuple[Any, Any]] = {
    "n": (Annotated[int | None, option("Rows of a table, in every format. [default: all]", "-n", min=1)], None)
}
"""A further one of those that do not have ``-n`` of their own."""


def opened(store: str | None, *, create: bool = False) -> "logparse.store.Store":
    """The store that ``--store`` names.  Raises StoreError."""
    from logparse.store import open_store

    return open_store(store, create=create)


def completed_runs(context: typer.Context, incomplete: str) -> list[str]:
    """The runs of the store that the words so far name, for completion; empty where it cannot be read."""
    with suppress(LogparseError, OSError):
        return [run for run in opened(context.params.get("store")).runs() if run.startswith(incomplete)]
    return []


FORMATS = "logparse.formats:FORMATS"
BACKENDS = "analyzers.measure.backends:BACKENDS"
PROPOSERS = "analyzers.measure.proposer:PROPOSERS"
OVERRIDES = "logparse.formats.override_formats:OVERRIDE_FORMATS"
TARGETS = "analyzers.overrides.convert:TARGETS"
EXPORTS = "analyzers.overrides.export:NAMES"
"""Where the values of options are listed."""
RUN_HELP = "a store (its latest run), STORE#RUN, a run's label, or log files."
Text = str | None
Words = list[str] | None
Store = Annotated[Text, option("Store folder or URL. [default: logparse-store]", "--store", envvar="LOGPARSE_STORE")]
Run = Annotated[Text, option("Run label. [default: the latest run]", "--run", autocompletion=completed_runs)]
Label = Annotated[
    Text, option("Label of this run. [default: the time of the call]", "--run", autocompletion=completed_runs)
]
RunName = Annotated[str, argument(f"Run: {RUN_HELP}", autocompletion=completed_runs)]
Against = Annotated[Text, option(f"The workload: {RUN_HELP}", "--against", autocompletion=completed_runs)]
OtherWorkload = Annotated[
    Text, option(f"The workload: {RUN_HELP} [default: the store]", "--against", autocompletion=completed_runs)
]
RunOrFile = Annotated[str, argument("A run label, or a path or its end.", autocompletion=completed_runs)]
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
Job = Annotated[list[str], argument("The job, after `--`.")]
Out = Annotated[Path, option("Folder for the files.", "--out")]
Files = Annotated[list[str], argument("Override files (TunableOp CSV, tuning file, user find-db).")]
Gpus = Annotated[int, option("Copies of a TunableOp CSV, one per device.", "--gpus", min=1)]
Compare = Annotated[
    Text, option("Another run beside this one: RUN, STORE#RUN or STORE.", "--compare", autocompletion=completed_runs)
]
"""Options and arguments of several verbs."""


def program_of(help: str, epilog: str) -> tuple[typer.Typer, Callable[..., Callable[[Verb], Verb]]]:
    """A program without verbs yet, and the decorator that makes a function one of them.

    The function's answer is printed in the chosen format and sets the exit code.  The decorator takes an example for
    the verb's help; ``table``: the answer has a table, so the verb gets the options for its format; ``wide``: of these
    only the one for every column, as the answer's table is for the terminal alone; ``passes_on``: the words after the
    first argument are another program's; ``bare``: the verb begins in a process with no library loaded.
    """
    app = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=help,
        epilog=epilog,
    )
    app.callback(cls=_Group)(_program)

    def verb(
        example: str, *, table: bool = False, wide: bool = False, passes_on: bool = False, bare: bool = False
    ) -> Callable[[Verb], Verb]:
        def register(function: Verb) -> Verb:
            limit = {} if "n" in inspect.signature(function).parameters else _LIMIT
            how = {**limit, **_HOW} if table else {"wide": _HOW["wide"]} if wide else {}

            @wraps(function)
            def command(**values: Any) -> None:
                chosen = {name: values.pop(name) for name in how}
                format_of(chosen.get("format"), chosen.get("output"))  # refuses now, not after the work
                _refuse_urls([chosen.get("output"), *(x for x in values.values() if isinstance(x, Path))])
                if not (bare or passes_on):  # what starts a job may need none
                    from logparse.executors.numpy_import import import_numpy

                    import_numpy()
                answer = function(**values)
                with quiet_pipe():
                    show(answer, *map(chosen.get, ("format", "output")), wide=chosen.get("wide"), n=chosen.get("n"))
                if answer.code:
                    raise typer.Exit(answer.code)

            kind = inspect.Parameter.KEYWORD_ONLY
            own = [x.replace(kind=kind) for x in inspect.signature(function).parameters.values()]
            own += [inspect.Parameter(name, kind, default=value, annotation=of) for name, (of, value) in how.items()]
            command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
            command.__annotations__ = {x.name: x.annotation for x in own}
            settings = {"allow_interspersed_args": False} if passes_on else None
            about = inspect.getdoc(function)
            name, epilog = function.__name__, f"Example: `{example}`"
            app.command(name, cls=_Command, short_help=about, epilog=epilog, context_settings=settings)(command)
            return function

        return register

    return app, verb


def _refuse_urls(paths: Iterable[str | Path | None]) -> None:
    """Raises UsageError for a URL where a path is meant: it would make a folder ``s3:`` in the working folder."""
    for path in map(str, paths):
        scheme, mark, _ = path.partition(":/")
        if mark and len(scheme) > 1 and scheme.isalnum():
            raise UsageError(f"{path}: only inputs and stores may be URLs; write to this machine, and copy from there")


def words_of(arguments: Sequence[str]) -> list[str]:
    """A pasted profile record begins with ``- {``: with a blank before it the parser does not take it for an option."""
    return [f" {word}" if word.startswith("- ") else word for word in arguments]


def of_verb(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The program with only the verb that ``words`` begin with, if they do: making the options of all takes longer."""
    named = [command for command in app.registered_commands if words and command.name == words[0]]
    out = copy(app)
    out.registered_commands = named or app.registered_commands
    return out


class _Values:
    """Converts the words of an option.  What is not plain is left to typer, which from version 0.29 on does all of it
    with pydantic: importing that takes longer than reading a log.
    """

    def __init__(self, option: Any) -> None:
        self._option, self._of = option, option.type_descriptor.annotation

    def coerce(self, value: Any, **more: Any) -> Any:
        with suppress(ValueError):
            return self._converted(value)
        return type(self._option).get_runtime_param(self._option).coerce(value, **more)

    def _converted(self, value: Any) -> Any:
        if value is None or (self._of == list[str] and not isinstance(value, str)):
            return value
        if self._of not in (str, int, float, Path, TableFormat):
            raise ValueError
        found, least, most = self._of(value), self._option.min, self._option.max
        if (least is not None and not found >= least) or (most is not None and not found <= most):
            raise ValueError
        return found


def _converting(options: list[Any]) -> list[Any]:
    """The options, which then convert their words by ``_Values``, where typer has a place for it."""
    for x in options:
        if hasattr(x, "get_runtime_param"):
            x.get_runtime_param = partial(_Values, x)
    return options


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _converting(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _converting(super().get_params(ctx))


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"logparse {__version__}")
        raise typer.Exit


def _program(
    version: Annotated[bool, option("Print the version.", "--version", is_eager=True, callback=_print_version)] = False,
) -> None:
    """The options before a verb."""
