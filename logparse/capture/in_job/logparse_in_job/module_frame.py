"""Make a wrapper of ``torch.nn.Module.__call__`` that uses the same stack frame as PyTorch's own function.

Calls of modules are nested. If each call had one more frame, a deep model would exceed Python's recursion limit. The
frame would also show in ``traceback.print_stack()``, ``inspect.stack()``, the texts of
``torch.autograd.set_detect_anomaly`` and the stack levels of ``warnings``. So the wrapper is compiled from PyTorch's
own statements, with their file, lines and columns, and with our statements before and after them. The wrapper has only
the original's local variables and closure. Our objects are constants of its code.

There are two exceptions (``importlib_bootstrap_frames.module_call``). A call adds a frame while ``torch.compile`` is at
work, because it compiles the original's frame. Every call adds a frame if PyTorch's source is missing, or if its
statements are not the known ones.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import types
from typing import Any, Callable, List, Optional, Protocol

_HERE, _CALLS = "<where a thread is>", "<calls of the observer>"
_COMPILES, _BEGIN, _OVER = "<is Dynamo at work>", "<a call begins>", "<a call is over>"
_BODY = "PyTorch's own statements"
_AROUND = f"""
if ({_COMPILES!r} or 0)() is not None:
    return {_CALLS!r}.with_a_frame(self, *args, **kwargs)
if {_HERE!r}.inside or not ({_BEGIN!r} or 0)(self, args, kwargs):
    {_BODY!r}
if {_HERE!r}.token is None:
    try:
        {_BODY!r}
    except BaseException:
        {_CALLS!r}.failed(self)
        raise
    finally:
        ({_OVER!r} or 0)(self, args, kwargs)
try:
    {_BODY!r}
except BaseException:
    {_CALLS!r}.failed(self)
    raise
"""
"""The wrapper's statements. Five of the texts are constants in whose place ``in_the_same_frame`` puts our objects.

``or 0`` is left out when the text is compiled. Without it, Python would warn that a text is called. A constant is found
faster than an attribute. ``token`` is None if the call's result and time are not needed.
"""


class Calls(Protocol):
    """The functions that logparse's wrapper of ``torch.nn.Module.__call__`` calls before and after a module's call.

    No error of logparse leaves these functions, so the job goes on in any case.
    """

    compiles: Callable[[], Any]
    """Function that returns None if ``torch.compile`` compiles nothing at the moment."""
    with_a_frame: Callable[..., Any]

    usual_begin: Callable[..., bool]
    """Function that does the same as ``begin``, in less time."""

    over: Callable[..., None]
    """Function that notes the end of a call without a token: ``over(module, args, kwargs)``."""

    def begin(self, module: Any, args: Any, kwargs: Any) -> bool:
        """Note that a model of the job is called. Return True if logparse counts or times this call.

        If it does, ``ended`` or ``failed`` is called afterwards.
        """

    def ended(self, module: Any, result: Any) -> Any:
        """Note that a call of a model has ended. Returns the call's result unchanged."""

    def failed(self, module: Any) -> None: ...


def in_the_same_frame(original: Any, here: Any, calls: Calls) -> Optional[Callable[..., Any]]:
    """Return a wrapper of ``torch.nn.Module.__call__`` that adds no stack frame to a call.

    Returns None if PyTorch's source text is missing or has an unknown form.
    """
    code = getattr(original, "__code__", None)
    if code is None or code.co_freevars or code.co_varnames != ("self", "args", "kwargs"):
        return None
    # The wrapper is compiled from PyTorch's own source text, with statements of logparse before and after it. The text
    # may contain only the statements ``return`` and ``if … else``.
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    if not lines or not lines[0].startswith(" "):
        return None
    whole = ast.parse("class Module:\n" + "".join(inspect.getblock(lines)))
    ast.increment_lineno(whole, code.co_firstlineno - 2)
    function = whole.body[0].body[0]  # type: ignore[attr-defined]
    if function.name != code.co_name or function.decorator_list or not all(map(_is_known, function.body)):
        return None
    function.body = _around(function.body)
    flags = code.co_flags & __future__.annotations.compiler_flag
    made = _code_of(compile(whole, code.co_filename, "exec", flags, dont_inherit=True), code.co_name)
    ours = {_HERE: here, _CALLS: calls, _COMPILES: calls.compiles, _BEGIN: calls.usual_begin, _OVER: calls.over}
    made = made.replace(co_consts=tuple(ours.get(x, x) if isinstance(x, str) else x for x in made.co_consts))
    wrapper = types.FunctionType(made, original.__globals__, original.__name__, original.__defaults__)
    for name in ("__kwdefaults__", "__doc__", "__module__", "__qualname__", "__annotations__"):
        setattr(wrapper, name, getattr(original, name))
    wrapper.__dict__.update(original.__dict__)
    return wrapper


def _is_known(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(map(_is_known, [*statement.body, *statement.orelse])) and bool(statement.orelse)
    return isinstance(statement, ast.Return) and statement.value is not None


def _around(body: List[ast.stmt]) -> List[ast.stmt]:
    """Put the wrapper's own statements before and after PyTorch's statements ``body``, and return all of them.

    The wrapper's statements get the line and column of PyTorch's first statement, so that tracebacks show PyTorch's own
    line.
    """
    made = ast.parse(_AROUND).body
    for node in (each for statement in made for each in ast.walk(statement)):
        if hasattr(node, "lineno"):
            ast.copy_location(node, body[0])
    plain, if_counted, observed = made[1], made[2], made[3]
    assert isinstance(plain, ast.If)
    assert isinstance(if_counted, ast.If)
    counted = if_counted.body[0]
    assert isinstance(counted, ast.Try)
    assert isinstance(observed, ast.Try)
    plain.body, counted.body = body, [_copy(x) for x in body]
    observed.body = [_Observed().visit(_copy(x)) for x in body]
    return made


def _copy(node: Any) -> Any:
    if isinstance(node, list):
        return [_copy(x) for x in node]
    if not isinstance(node, ast.AST):
        return node
    return ast.copy_location(type(node)(**{name: _copy(value) for name, value in ast.iter_fields(node)}), node)


class _Observed(ast.NodeTransformer):
    """Rewrites the source of a function: ``return X`` becomes ``return calls.ended(self, X)``."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        call = ast.parse(f"{_CALLS!r}.ended(self, 0)", mode="eval").body
        assert isinstance(call, ast.Call)
        assert node.value is not None
        for each in ast.walk(call):
            if hasattr(each, "lineno"):
                ast.copy_location(each, node)
        call.args[1] = node.value
        return ast.copy_location(ast.Return(call), node)


def _code_of(code: types.CodeType, name: str) -> types.CodeType:
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return next((x for x in inner if x.co_name == name), None) or _code_of(inner[0], name)
