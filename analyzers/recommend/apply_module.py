"""Write ``apply.py``, a module that a job imports to make recommended changes to itself, such as TF32.

    import apply
    apply.settings()
    model = apply.model(model)

Without names, it makes the changes that are worth making and can shorten the job's step. With names, it makes these
changes. It needs nothing but PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from analyzers.actions import ActionResult
from logparse.libraries.kinds.format import Emission
from logparse.model import Gain
from logparse.quoting import Python, Shell, asset, fill_template, join_code, python_line, shell_comment

NAME = "apply.py"
_TEMPLATE = Path(__file__).with_name("assets") / f"{NAME}.in"
_USE = Shell("add to the program:  import apply; apply.settings(); model = apply.model(model)")
_NAMED = Shell("add to the program (apply.py makes only the changes that you name, as here):  import apply; @calls@")


# The module contains every recommended change that lines of Python can make.
def choose_default_changes(
    results: Sequence[ActionResult],
    hidden: Collection[str] = (),
    in_job: Collection[str] = (),
    combination: Collection[str] = (),
) -> tuple[ActionResult, ...]:
    """Return the changes that ``apply.py`` makes to the job if the user names none.

    They are the best changes that are worth making and that do not concern the same calls. Changes that were measured
    in the running job (``in_job``) are considered first. If a combination of changes was measured there
    (``combination``), all of its changes are made, even if they concern the same calls. Two kinds are left out unless
    the user names them:

    * changes that alter results beyond rounding
    * changes named in ``hidden``, because the time of a step does not show their gain
    """
    out: list[ActionResult] = []
    for result in sorted(
        results, key=lambda x: (*(x.action.name not in y for y in (combination, in_job)), -x.saving_us)
    ):
        named, combined = result.action.name in hidden or not result.action.exact, result.action.name in combination
        both = ((combined and x.action.name in combination) or _can_add_gains(result, x) for x in out)
        if (result.pays or combined) and not named and all(both):
            out.append(result)
    return tuple(out)


def alternatives(one: ActionResult, other: ActionResult) -> bool:
    """Tell whether only one of two changes to a job can be made.

    They are alternatives if they exclude each other, or if one contains the other.
    """
    return one.action.is_alternative_to(other.action)


def _can_add_gains(one: ActionResult, other: ActionResult) -> bool:
    """Tell whether the gains of two changes can be added: both can be made, and they affect different calls."""
    return not alternatives(one, other) and {x.of for x in one.parts}.isdisjoint(x.of for x in other.parts)


def without_a_change(
    results: Sequence[ActionResult],
    hidden: Collection[str] = (),
    in_job: Collection[str] = (),
    combination: Collection[str] = (),
) -> tuple[ActionResult, ...]:
    """Return the settings that ``logparse run --with`` can make without any edit of the user's program.

    A setting is left out if it was measured in the running job only together with an edit of the program
    (``combination``).
    """
    settings = [x for x in results if x.action.kind == "setting" and x.application.settings]
    if not {x.action.name for x in settings}.issuperset(combination):
        settings = [x for x in settings if x.action.name not in combination]
    return choose_default_changes(settings, hidden, in_job, combination)


def has_lines(result: ActionResult) -> bool:
    """Tell whether generated lines of Python or environment variables can make this change."""
    return bool(calls(result))


def module(
    results: Sequence[ActionResult],
    kept: Sequence[ActionResult] | None = None,
    left: Sequence[ActionResult] = (),
    step_gain: Callable[[str], Gain | None] = lambda name: None,
    hidden: Collection[str] = (),
    in_job: Collection[str] = (),
    combination: Collection[str] = (),
) -> Emission | None:
    """Return the file ``apply.py``, or None if lines of Python can make none of the changes.

    * ``step_gain`` is a function that returns the time of a step now and with a change. The time is simulated, but
      measured for changes in ``in_job``.
    * ``hidden`` has the names of the changes whose gain the step does not show.
    * ``combination`` has the names of the changes that were measured together in the running job.
    * ``kept`` are changes that a trial in the job made and kept. None means that there was no trial.
    * ``left`` are changes that the trial did not make. The best changes of the program among them are made, too, unless
      the user names others.
    """
    usable = [x for x in results if has_lines(x)]
    if not usable:
        return None
    alone = without_a_change(usable, hidden, in_job, combination)
    default = choose_default_changes([x for x in results if x.action.kind != "files"], hidden, in_job, combination)
    if kept is not None:
        alone = tuple(x for x in kept if x.action.kind == "setting")
        more = choose_default_changes([x for x in left if x.action.kind == "program"], hidden, in_job, combination)
        held = {name for x in more for name in x.action.contains}
        default = (*(x for x in alone if x.action.name not in held), *more)
    named = max((x for x in usable if x.action.name not in hidden), key=lambda x: x.saving_us, default=usable[0])
    helpers = dict.fromkeys(x for y in usable for x in y.application.helpers)
    values = {
        "alone": _repeat_line(Python("{}, "), [x.action.name for x in alone]),
        "chosen": _repeat_line(Python("{}, "), [x.action.name for x in default]),
        "actions": join_code(
            _NOTHING,
            [_entry(x, step_gain(x.action.name), x.action.name in hidden, x.action.name in in_job) for x in usable],
        ),
        "with_settings": _repeat_line(
            Python("{}, "), [x.action.name for x in usable if x.application.settings or x.application.environment]
        ),
        "in_force": join_code(_NOTHING, [_conditions(x) for x in usable]),
        "settings": join_code(_NOTHING, [_branch(x, x.application.settings) for x in usable]),
        "model": join_code(_NOTHING, [_branch(x, _write_model_change(x)) for x in usable]),
        "helpers": join_code(_NOTHING, [fill_template(Python("\n@text@\n"), {"text": x}) for x in helpers]),
    }
    text = fill_template(Python(asset(_TEMPLATE)), values)
    return Emission(NAME, text.data, _USE if default else fill_template(_NAMED, {"calls": shell_comment(calls(named))}))


def calls(result: ActionResult) -> str:
    """Return the line that the user adds to his program to make a change, for example ``apply.settings("tf32")``."""
    settings = f'apply.settings("{result.action.name}")'
    model = f'model = apply.model(model, "{result.action.name}")'
    lines = result.application
    return "; ".join([settings] * bool(lines.settings or lines.environment) + [model] * bool(lines.model))


_NOTHING = Python()


def _repeat_line(template: Python, values: Iterable[object]) -> Python:
    return join_code(_NOTHING, [python_line(template, value) for value in values])


def _entry(result: ActionResult, step: Gain | None, hidden: bool, in_job: bool) -> Python:
    per = 1e3 * (result.steps or 1.0)
    times = f"{result.now_us / per:.3f} -> {result.then_us / per:.3f} ms of GPU time"
    about = f"{result.action.about}: {times} per {result.word if result.steps else 'run'}"
    if step is not None:
        about += f"; the {result.word} {step.now_us / 1e3:.3f} -> {step.then_us / 1e3:.3f} ms, "
        about += "measured in your job" if in_job else "simulated"
    if hidden:
        why = (
            "this change did not make the job faster"
            if in_job
            else "this change's effect on the step is too small to measure"
        )
        about += f"; {why}, so the change is applied only if it is named"
    return python_line(Python("    {}: ({}, {}),\n"), result.action.name, about, dict(result.application.environment))


def _conditions(result: ActionResult) -> Python:
    """Return a line for ``apply.py``, which tests the settings of PyTorch that a change makes.

    When the process ends, ``apply.py`` states for each setting whether it is still in force.

    Returns empty code if the change makes no setting.
    """
    lines = result.application
    if not (lines.settings or lines.environment):
        return _NOTHING
    each = [python_line(Python("({}, lambda: {})"), name, test) for name, test in lines.in_force.items()]
    return python_line(Python("    {}: [{}],\n"), result.action.name, join_code(Python(", "), each))


def _write_model_change(result: ActionResult) -> list[Python]:
    """Return lines for ``apply.py`` that change the user's model, and then record whether the model really changed."""
    lines = result.application.model
    mark = python_line(Python("_mark_model({}, before, model)"), result.action.name)
    return [Python("before = _looks(model)"), *lines, mark] if lines else []


def _branch(result: ActionResult, lines: Sequence[Python]) -> Python:
    if not lines:
        return _NOTHING
    head = python_line(Python("    if {} in names:\n"), result.action.name)
    return join_code(_NOTHING, [head, *(fill_template(Python("        @line@\n"), {"line": line}) for line in lines)])
