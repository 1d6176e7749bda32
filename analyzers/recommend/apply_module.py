"""``apply.py``: a module that a job imports to apply the actions that pay and can show in its step, or those it names.

    import apply
    apply.settings()
    model = apply.model(model)

It holds every action of the recommendation that lines of Python can apply, and needs PyTorch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from analyzers.actions import ActionResult
from logparse.formats.format import Emission
from logparse.text import filled

NAME = "apply.py"
_TEMPLATE = Path(__file__).with_name("assets") / f"{NAME}.in"
_USE = "in the program:  import apply; apply.settings(); model = apply.model(model)"
_NAMED = "in the program, as no action is applied that is not named:  import apply; "


def chosen(results: Sequence[ActionResult], hidden: Collection[str] = ()) -> tuple[ActionResult, ...]:
    """The actions that are applied unless others are named: the best of those that surely pay and do not overlap.

    One that changes results beyond rounding is applied only where it is named, as is one whose name is ``hidden``: the
    step does not show its gain.
    """
    out: list[ActionResult] = []
    for result in sorted(results, key=lambda x: -x.saving_us):
        named = result.action.name in hidden or not result.action.exact
        if result.pays and not named and all(_together(result, x) for x in out):
            out.append(result)
    return tuple(out)


def alternatives(one: ActionResult, other: ActionResult) -> bool:
    """Whether only one of two actions can be applied: they exclude each other, or one contains the other."""
    names = [{x.action.name, *x.action.contains} for x in (one, other)]
    excluded = one.action.excludes is not None and one.action.excludes == other.action.excludes
    return excluded or not names[0].isdisjoint(names[1])


def _together(one: ActionResult, other: ActionResult) -> bool:
    """Whether two actions can be applied at once and the gain of one is not part of the other's."""
    return not alternatives(one, other) and {x.of for x in one.parts}.isdisjoint(x.of for x in other.parts)


def without_a_change(results: Sequence[ActionResult], hidden: Collection[str] = ()) -> tuple[ActionResult, ...]:
    """The settings that ``logparse run --with`` applies, where the program stays as it is."""
    return chosen([x for x in results if x.action.kind == "setting" and x.application.settings], hidden)


def has_lines(result: ActionResult) -> bool:
    """Whether lines of Python or the environment can apply it."""
    return bool(calls(result))


def module(
    results: Sequence[ActionResult],
    kept: Sequence[ActionResult] | None = None,
    left: Sequence[ActionResult] = (),
    step_us: Callable[[str], tuple[float, float] | None] = lambda name: None,
    hidden: Collection[str] = (),
) -> Emission | None:
    """The module; None where no action can be applied by lines of Python.  ``step_us`` gives the simulated step now and
    under an action, ``hidden`` names those whose gain it does not show.

    ``kept`` are actions that were applied and stay (None: none was tried yet), ``left`` those weighed beside them, of
    which the best changes of the program join what is applied unless others are named.
    """
    usable = [x for x in results if has_lines(x)]
    if not usable:
        return None
    alone = without_a_change(usable, hidden)
    default = chosen([x for x in results if x.action.kind != "files"], hidden)
    if kept is not None:
        alone = tuple(x for x in kept if x.action.kind == "setting")
        more = chosen([x for x in left if x.action.kind == "program"], hidden)
        held = {name for x in more for name in x.action.contains}
        default = (*(x for x in alone if x.action.name not in held), *more)
    first = next((x for x in usable if x.action.name not in hidden), usable[0])
    values = {
        "alone": "".join(f"{x.action.name!r}, " for x in alone),
        "chosen": "".join(f"{x.action.name!r}, " for x in default),
        "actions": "".join(_entry(x, step_us(x.action.name), x.action.name in hidden) for x in usable),
        "with_settings": "".join(
            f"{x.action.name!r}, " for x in usable if x.application.settings or x.application.environment
        ),
        "settings": "".join(_branch(x, x.application.settings) for x in usable),
        "model": "".join(_branch(x, _marked(x)) for x in usable),
        "helpers": "".join(f"\n{x}\n" for x in dict.fromkeys(x for y in usable for x in y.application.helpers)),
    }
    text = filled(_TEMPLATE.read_text(encoding="utf-8"), values)
    return Emission(NAME, text.encode(), _USE if default else _NAMED + calls(first))


def calls(result: ActionResult) -> str:
    """The lines of a program that apply this action by its name."""
    settings = f'apply.settings("{result.action.name}")'
    model = f'model = apply.model(model, "{result.action.name}")'
    lines = result.application
    return "; ".join([settings] * bool(lines.settings or lines.environment) + [model] * bool(lines.model))


def _entry(result: ActionResult, step_us: tuple[float, float] | None, hidden: bool) -> str:
    per = 1e3 * (result.steps or 1.0)
    times = f"{result.now_us / per:.3f} -> {result.then_us / per:.3f} ms of GPU time"
    about = f"{result.action.about}: {times} per {result.word if result.steps else 'run'}"
    if step_us is not None:
        about += f"; the {result.word} {step_us[0] / 1e3:.3f} -> {step_us[1] / 1e3:.3f} ms, simulated"
    about += "; too small to show in that, so it is applied only by name" * hidden
    return f"    {result.action.name!r}: ({about!r}, {dict(result.application.environment)!r}),\n"


def _marked(result: ActionResult) -> list[str]:
    """The lines that change the model, between those that leave a mark of it."""
    lines = result.application.model
    mark = f"_mark_model({result.action.name!r}, before, model)"
    return ["before = _looks(model)", *lines, mark] if lines else []


def _branch(result: ActionResult, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"    if {result.action.name!r} in names:\n" + "".join(f"        {line}\n" for line in lines)
