"""Convert an override file of one library to another's format, if both number their kernels alike.

=====================  =====================================================  ==================================
from                   index                                                  is
=====================  =====================================================  ==================================
TunableOp CSV          ``Gemm_Hipblaslt_N``                                   hipBLASLt's N
TunableOp CSV          ``Gemm_Rocblas_r``, r > 0, rocBLAS 5 and later         hipBLASLt's r − 1
TunableOp CSV          ``Gemm_Rocblas_r``, r < −10                            row −r − 10 of rocBLAS's table
tuning file            the index                                              hipBLASLt's
aiter table            ``hipblaslt,N``                                        hipBLASLt's N
rocBLAS override CSV   i                                                      ``rocblas:-i-10``
=====================  =====================================================  ==================================

An index has its meaning only in one build of the library on one architecture, so both sides must have the same build.
The libraries do not match calls by the same fields. So a row may apply to more calls afterwards, or to fewer, as the
notes state. Source: hipblaslt_ext::getIndexFromAlgo, ROCm/rocm-libraries
``projects/rocblas/library/src/tensile_host.cpp``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzers.overrides.lint import content_of
from analyzers.overrides.merge import whole_lines
from analyzers.overrides.write import Made, left_out_lines, separate_refused, write_all_or_fail
from logparse.errors import InputError
from logparse.groups import in_groups
from logparse.ingest.input_file import InputFile
from logparse.libraries.builds import can_decide_for
from logparse.libraries.kinds.format import Writer
from logparse.libraries.kinds.override_format import Conversion, OverrideFormat
from logparse.libraries.override_formats import OVERRIDE_FORMATS
from logparse.libraries.tunableop import validators
from logparse.model import Fact, Measurement, Override, Record, Solution, SolutionName
from logparse.target import Facts, machine, same_value, seen_by
from logparse.text import pluralize

TARGETS = {x.conversion.word: (x.conversion, x, x.writer) for x in OVERRIDE_FORMATS if x.conversion and x.writer}
"""The words that the user can give after ``convert --to``, each with what is needed to write that format."""


@dataclass(frozen=True)
class _Rows:
    """The content of an override file that is to be converted: its rows, and facts about its machine.

    An override file lists kernels that a library should use instead of its own choice.
    """

    format: OverrideFormat
    measured: tuple[tuple[Measurement, str], ...]
    """Each row as a measurement, with the reason why its library ignores it.

    If the library uses the row, the reason is empty.
    """
    unread: Mapping[str, int]
    """The number of rows of an override file that give no measurement, for each reason."""
    facts: Facts
    kernels: Mapping[Solution, str]


def convert(
    paths: Sequence[str], to: str, target: Facts | None = None, *, same_build: bool = False, gpus: int = 1
) -> Made:
    """Convert override files to the format of another library, or to another PyTorch with the same libraries.

    * ``target``: facts about the machine that will read the new file. If facts are missing, they are taken from
      ``paths``, which then must be from that machine.
    * ``same_build``: the user guarantees that a file is for that machine's device and build, although the file does not
      state them.

    Raises InputError in these cases:

    * ``to`` is unknown, or a file cannot be converted.
    * A file is known to be for another device or build.
    * It is unknown for which device or build a file is, and ``same_build`` is False.
    """
    if to not in TARGETS:
        raise InputError(f"--to {to}: must be one of {', '.join(TARGETS)}")
    conversion, format, writer = TARGETS[to]
    files = [(path, _read(path)) for path in paths]
    facts: dict[str, str] = {}
    for path, rows in files:
        for name, value in rows.facts.items():
            if facts.setdefault(name, value) != value and name not in (target or {}):
                raise InputError(
                    f"{path}: {name} is {value}, but {facts[name]} in the other files; convert these files separately"
                )
    _one_build(facts, target or {})
    facts |= target or {}
    overrides: list[Override] = []
    refused: Counter[str] = Counter()
    for path, rows in files:
        refused.update(rows.unread)
        for measured, fault in rows.measured:
            reason = _why_not(measured) or fault
            solution = conversion.takes(measured.solution, rows.facts.get("rocblas_version", ""))
            if reason or solution is None:
                given, index = measured.solution, measured.solution.id.lstrip("-").isdigit()
                refused[reason or f"{to} has no such solution: {given.library}'s {'index' if index else given.id}"] += 1
                continue
            _guard(path, solution.library, rows.facts, facts, same_build)
            own = format is rows.format  # If the file has this format, its key is already one of the library's own.
            override = Override(
                problem=measured.problem,
                solution=solution,
                target=facts,
                time_us=measured.time_us,
                key_text=measured.key_text if own else None,
                parameters=rows.kernels.get(measured.solution),
            )
            overrides.append(override)
    return _write_with(writer, conversion, overrides, seen_by(gpus, facts), refused)


def lines(made: Made) -> list[str]:
    """Return lines for the user: how many rows were converted to the new format, and why others were not."""
    out = [f"{pluralize(made.count, 'row')}; {sum(made.refused.values()):,} left out"]
    return [*out, *left_out_lines(made.refused, "  {count:,}: {reason}"), *(f"note: {note}" for note in made.notes)]


def _one_build(files: Facts, target: Facts) -> None:
    """Raise InputError if the machine that will read the new file has other library versions than the file states.

    A TunableOp file states the versions in lines called validators. ``target`` has facts about the machine.
    """
    for key, value in validators.of_target(files).items():
        if validators.PREFIX + key in target:
            continue
        for fact in validators.facts({key: value}):
            wanted = target.get(fact.name, fact.value)
            if not same_value(fact.name, wanted, fact.value):
                raise InputError(
                    f"--target: {fact.name} is {wanted}, but the given files state {value} (in the line "
                    f"Validator,{key}); if the target machine has another build, give --target a TunableOp results CSV "
                    "that this build wrote"
                )


def _read(path: str) -> _Rows:
    convertible = [(x, x.conversion) for x in OVERRIDE_FORMATS if x.conversion]
    sources = sorted(convertible, key=lambda source: source[1].asked_last)
    file = InputFile(path)
    try:
        head = file.head()
        format, conversion = next(x for x in sources if x[1].recognise(head))
        found: Iterable[tuple[int, Record]] = list(conversion.read(file))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    records = [record for _, record in found]
    faults = _faults(format, path)
    measured = tuple(
        (x, faults.get((line, x.solution.text)) or faults.get((line, "")) or "")
        for line, x in found
        if isinstance(x, Measurement)
    )
    if not measured:
        known = ", ".join(x.name for x, _ in sources)
        raise InputError(f"{path}: holds no tuned GEMM; these formats can be converted: {known}")
    facts = machine({x.name: x.value for x in records if isinstance(x, Fact)})
    kernels = {x.solution: x.kernel_name for x in records if isinstance(x, SolutionName) and x.kernel_name}
    read = {line for line, x in found if isinstance(x, Measurement)}
    unread = Counter({line: why for (line, _), why in faults.items() if why and line not in read}.values())
    return _Rows(format, measured, unread, facts, kernels)


def _faults(format: OverrideFormat, path: str) -> Mapping[tuple[int, str], str]:
    """Map each row of an override file, as (line, kernel), to the reason why its library ignores it.

    The reason is the same text as in ``lint``. It is empty if the library uses the row.
    """
    name, data = content_of(path)
    rows = format.reader(name, whole_lines(data), {}).rows
    return {(row.line, row.solution.text if row.solution else ""): row.verdicts.fault for row in rows}


def _why_not(measured: Measurement) -> str | None:
    """Return why a measured kernel cannot be written into a list of kernels for a library. None if it can.

    For example, the kernel failed, or it is the library's default kernel, which needs no entry in such a list.
    """
    if measured.status not in ("ok", "no_time"):
        return f"{measured.status}: {measured.error or 'no time'}"
    if measured.solution.text == "Default":
        return "Default: nothing to override"
    return None


def _guard(path: str, library: str, mine: Facts, target: Facts, same_build: bool) -> None:
    fits = can_decide_for(mine, target, library)
    if fits is None and same_build:
        return
    if fits is not True:
        what = (
            f"is from another device or build of {library} than the target machine has"
            if fits is False
            else f"does not state the device or build of {library}"
        )
        vouch = (
            "convert a file that was tuned on the target machine"
            if fits is False
            else "if you know that the file is from the target machine's device and build, add --same-build"
        )
        raise InputError(f"{path} {what}, so the file's indices may name other kernels on the target machine; {vouch}")


def _write_with(
    writer: Writer, to: Conversion, overrides: Sequence[Override], target: Facts, refused: Counter[str]
) -> Made:
    held, unread = separate_refused(writer, overrides, target)
    for reason, left in unread.items():
        for override in left:
            refused[reason.replace(override.problem.text, "such a call")] += 1
    good = in_groups(held, lambda x: writer.key(x.problem, target) or x.key_text or x.problem.text)
    clear = {key: rows for key, rows in good.items() if len({x.solution for x in rows}) == 1}
    for key, rows in good.items():
        if key in clear:
            continue
        if len({x.problem for x in rows}) == 1 and all(x.time_us is not None for x in rows):
            # Several files measured one problem, so the fastest row is taken.
            clear[key] = [min(rows, key=lambda x: x.time_us or 0.0)]
        else:
            names = ", ".join(sorted({x.solution.text for x in rows}))
            refused[f"several problems share the key {key} but have different solutions: {names}"] += len(rows)
    if (again := sum(map(len, (good[key] for key in clear))) - len(clear)) > 0:
        refused["not needed, because another row with the same key is written"] += again
    made = write_all_or_fail(writer, [replace(x, target=target) for rows in clear.values() for x in rows], target)
    return Made(made, len(clear), refused, notes=(to.matched,) if clear else ())
