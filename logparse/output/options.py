"""Options that several commands have, and the printing of a command's answer."""

# There is no `from __future__ import annotations` here, because typer reads the types.

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from logparse.errors import UsageError
from logparse.lazy import import_numpy
from logparse.output.answer import ROWS, Answer, TableFormat, format_of, show
from logparse.output.program import quiet_pipe
from logparse.text import is_object, one_of

if TYPE_CHECKING:
    import logparse.store


def option(help: str, *names: str, **more: Any) -> Any:
    """Declare an option of a command, with its help text.

    The option is named after the parameter, unless ``names`` are given.  ``more`` are further settings of typer.
    With ``hidden=True``, ``--help`` leaves the option out, because its default nearly always fits. docs/commands.md has
    all options.
    """
    more.setdefault("show_default", "[default: " not in help)
    return typer.Option(*names, help=help, **more)


def argument(help: str, **more: Any) -> Any:
    """Declare a positional argument of a command, with its help text.  ``more`` are typer's other settings."""
    return typer.Argument(help=help, **more)


def path(help: str, *names: str) -> Any:
    """Declare an option whose value is a path on this machine. URLs are refused."""
    return option(help, *names, callback=_local)


def choice(help: str, *names: str, of: str | tuple[str, ...], several: bool = False, own: bool = False) -> Any:
    """Declare an option of a command that accepts only certain values (``of``, or a list named ``module:LIST``).

    If ``several`` is True, values may be joined by commas. If ``own`` is True, ``package.module:NAME`` is accepted,
    too.
    """

    def refuse_others(parameter: typer.CallbackParam, value: str | None) -> str | None:
        for word in [] if value is None else value.split(",") if several else [value]:
            if not (own and is_object(word)):
                one_of(parameter.opts[0], word, _list_accepted(of))
        return value

    return option(help, *names, callback=refuse_others)


def _list_accepted(of: str | tuple[str, ...]) -> Iterable[str]:
    """Return the values that an option accepts.

    ``of`` holds the values, or names a list of texts or of objects with names (``module:LIST``).  The module is
    imported only now, because this may be slow.
    """
    if isinstance(of, tuple):
        return of
    module, _, name = of.partition(":")
    return [x if isinstance(x, str) else x.name for x in getattr(import_module(module), name)]


def _local(value: Any) -> Any:
    """Raise UsageError if the value of a path option is a URL.

    Otherwise a folder ``s3:`` would be made in the working folder.
    """
    scheme, mark, _ = str(value).partition(":/")
    if mark and len(scheme) > 1 and scheme.isalnum():
        raise UsageError(f"{value}: cannot write to a URL; name a path of this machine, and copy the file from there")
    return value


def _output(context: typer.Context, value: str | None) -> str | None:
    """Check before the work begins that the output file can be used, and return its path unchanged.

    Raises UsageError if the file cannot be used. ``--format`` is parsed before this option, so it is known.
    """
    format_of(context.params.get("format"), value)
    _local(value)
    return value


def open_named_store(store: str | None, *, create: bool = False) -> "logparse.store.Store":
    """Open the store that ``--store`` names.

    Raises StoreError if it does not exist, unless ``create`` is True.
    """
    from logparse.store import open_store

    return open_store(store, create=create)


COLOURS = ("auto", "always", "never")
PASSES = {"forward": "F", "dgrad": "B", "wgrad": "W"}
"""Letter for each pass of a convolution: forward, dgrad (gradient of the input) and wgrad (of the weights)."""
_RUN = "a run's label, a store's folder (its latest run), STORE#RUN (one run of that store), or log files."
Text = str | None
Words = list[str] | None
Store = Annotated[Text, option("Store folder or URL. [default: logparse-store]", "--store", envvar="LOGPARSE_STORE")]
Run = Annotated[Text, option("Label of the run to read. [default: the latest run]", "--run")]
Label = Annotated[Text, option("Label for the new run. [default: the current time]", "--run")]
RunName = Annotated[str, argument(f"Run: {_RUN}")]
Against = Annotated[
    Text, option(f"Run of the job. logparse checks for which of its calls the rows are used: {_RUN}", "--against")
]
Compare = Annotated[
    Text, option("Run to compare with: a run's label, STORE#RUN, or a store (its latest run).", "--compare")
]
Count = Annotated[
    int | None, option(f"Number of rows to print. [default: {ROWS} on a terminal, else all]", "-n", min=1)
]
FailOn = Annotated[str, option("Fail if a call became slower by more than this share, e.g. 3%.", "--fail-on")]
Engine = Annotated[
    str,
    option(
        "Where to run the work: local, ray (the cluster at $RAY_ADDRESS or on this machine, else a new one), or "
        "ray://HOST:PORT.",
        "--engine",
        hidden=True,
    ),
]
Kind = Annotated[
    Text,
    choice("Use only gemm, grouped (grouped GEMMs) or conv (convolutions).", "--kind", of=("gemm", "grouped", "conv")),
]
Records = Annotated[
    Text,
    option(
        "Folder or URL with times that other machines measured (written by `logparse export --to bundle`).", "--records"
    ),
]
Target = Annotated[
    Words,
    option(
        "Machine for which files are written or checked. Give KEY=VALUE, or a file that was made on this machine "
        "(TunableOp CSV, find-db, facts.json).",
        "--target",
    ),
]
Job = Annotated[list[str], argument("Command that runs the job, after `--`.")]
Out = Annotated[Path, path("Folder to write the files to.", "--out")]
Files = Annotated[
    list[str],
    argument(
        "Override files, such as a TunableOp CSV, a hipBLASLt tuning file or a MIOpen user find-db. A folder with an "
        "apply.sh stands for the files that it lists."
    ),
]
Gpus = Annotated[
    int, option("GPUs that one process sees; one copy of a TunableOp CSV is written per GPU.", "--gpus", min=1)
]
Format = Annotated[
    TableFormat | None,
    option(
        "Format of the table. [default: from the ending of the name after -o, else table]", "--format", is_eager=True
    ),
]
Output = Annotated[
    Text, option("Write the table to a file: .csv, .json, .parquet or .txt.", "--table", "-o", callback=_output)
]
Wide_ = Annotated[bool, option("Print every column, and names at full length.", "--wide")]
Limit = Annotated[int | None, option("Number of rows to print or write. [default: all]", "-n", min=1)]
"""The option ``-n``: how many rows a command prints or writes.

``Limit`` and the following names are options and arguments that several commands have. The last four are the parameters
of ``_printing``.
"""


class _Values:
    """Converts the texts of an option without importing pydantic.

    From version 0.29 on typer converts all texts with pydantic, whose import takes longer than reading a log.  Simple
    types are converted here, and others by typer.
    """

    def __init__(self, option: Any) -> None:
        self._option, self._of = option, option.type_descriptor.annotation

    def coerce(self, value: Any, **more: Any) -> Any:
        if value is None or (self._of == list[str] and not isinstance(value, str)):
            return value
        with suppress(ValueError):
            found, least, most = self._of(value), self._option.min, self._option.max
            if self._of in (str, int, float, Path, TableFormat) and not (
                (least is not None and not found >= least) or (most is not None and not found <= most)
            ):
                return found
        return type(self._option).get_runtime_param(self._option).coerce(value, **more)


def _converting(options: list[Any]) -> list[Any]:
    """Make options convert their values without pydantic (see ``_Values``), and return the options.

    Older versions of typer do not use pydantic.  For them nothing is changed.
    """
    for x in options:
        if hasattr(x, "get_runtime_param"):
            x.get_runtime_param = partial(_Values, x)
    return options


class Command(TyperCommand):
    """A command of the program whose function returns an ``Answer``.

    The answer is printed, and its exit code becomes the program's exit code.
    """

    printing: tuple[str, ...] = ()
    """Names of the printing options (see ``_printing``) that the command gets in addition to its own.

    If the command's function declares an option of the same name, that option is used instead.
    """
    old_names: Mapping[str, str] = {}
    """Earlier names of options, each with the name of today.  They still work, but no help shows them."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        own = {x.name for x in self.params}
        self.added = [x for x in _printing_options() if x.name in self.printing and x.name not in own]
        self.params += self.added

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser of the command's words, which also knows the earlier names of options."""
        parser = super().make_parser(ctx)
        for option in self.params:
            old = [x for x, name in self.old_names.items() if name in option.opts]
            if old:
                names, option.opts = option.opts, old
                option.add_to_parser(parser, ctx)
                option.opts = names
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command's words. The error about a word too many says how to name a run, if the command has one."""
        try:
            return list(super().parse_args(ctx, args))
        except Exception as error:
            message = str(getattr(error, "message", ""))
            if "unexpected extra argument" in message and any("--run" in x.opts for x in self.params):
                error.message = f"{message}; a run is named with --run RUN"  # type: ignore[attr-defined]
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return _converting(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        # These verbs start a process before a library is needed.
        if ctx.info_name not in ("capture", "explore", "run", "tune", "try"):
            import_numpy()
        chosen = {str(x.name): ctx.params.pop(x.name) for x in self.added}
        answer = super().invoke(ctx)
        how = chosen.pop("format", None)
        with quiet_pipe():
            colour = ctx.find_root().params.get("color") or "auto"
            show(
                answer,
                how and TableFormat(how),
                chosen.pop("output", None),
                **{"wide": None, "colour": colour, **chosen},
            )
        if answer.code:
            raise typer.Exit(answer.code)


class Wide(Command):
    """A command whose table is only printed on the terminal. It has no option to write the table to a file."""

    printing = ("wide",)


class Table(Command):
    """A command whose answer is a table that can also be written to a file."""

    printing = ("n", "format", "output", "wide")
    old_names: Mapping[str, str] = {"--output": "--table"}


def _printing(n: Limit = None, format: Format = None, output: Output = None, wide: Wide_ = False) -> None:
    """Declares the options by which the user says how a table is printed. Only its parameters are used."""


@cache
def _printing_options() -> Sequence[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_printing)
    return typer.main.get_command(app).params


GROUPS: Mapping[str, Sequence[str]] = {
    "Begin here": ("ingest", "recommend", "tune", "explore"),
    "Run a job": ("capture", "run", "try", "verify"),
    "Measure": ("replay",),
    "Look at a run": ("top", "show", "diff", "report", "sql"),
    "Override files": ("lint", "coverage", "merge", "convert", "export", "bisect"),
    "Formats and the store": ("formats", "status", "check", "compact", "forget"),
}
"""The groups into which ``--help`` divides the commands, with the commands of each group in their order."""


class Group(TyperGroup):
    """The whole command line program, with all its commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _converting(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands in ``--help``, by groups, with the first sentence of each command's help."""
        known = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        for title, names in GROUPS.items():
            rows = [(name, _first_paragraph(known[name])) for name in names if known.get(name) is not None]
            with formatter.section(title):
                formatter.write_dl(rows, col_spacing=2)


def _first_paragraph(command: Any) -> str:
    return " ".join(str(command.short_help or "").partition("\n\n")[0].split())


def verb(
    app: typer.Typer,
    example: str,
    cls: type[Command] = Command,
    *,
    passes_on: bool = False,
    name: str | None = None,
    old: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Return a decorator that makes a function a command of the program. The command's help shows ``example``.

    If ``passes_on`` is True, the words after the first argument belong to another program. ``old`` maps earlier names
    of options to today's.
    """
    settings = {"allow_interspersed_args": False} if passes_on else None

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        about = inspect.getdoc(function)
        kind = type(cls.__name__, (cls,), {"old_names": {**cls.old_names, **old}}) if old else cls
        # ``name`` is needed if the command's name is a keyword of Python.
        made = app.command(name, cls=kind, short_help=about, epilog=f"Example: `{example}`", context_settings=settings)
        return made(function)

    return register
