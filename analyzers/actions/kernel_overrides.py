"""A user's own kernels in place of PyTorch's matrix products, by ``torch.library``.

Its lower part is copied into every generated ``apply.py`` that puts own kernels in, and ``replay`` runs it to time what
such a call costs the host; so it needs PyTorch alone, and is imported only where PyTorch is.
"""

from __future__ import annotations

# ---- copied into apply.py from here on
import importlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

_FIRST = {"mm": 0, "bmm": 0, "addmm": 1, "_addmm_activation": 1}
"""Operators that can be replaced, and where the two factors stand among their arguments."""


class OwnKernels:
    """A user's kernels for exactly the calls that they were measured on; every other call runs PyTorch's own kernel.

    They stand in place of the device's kernels of the operators (``key``: ``CUDA``, also on ROCm, or ``CPU``), below
    autograd and autocast.  Compiled programs call the forms with ``out``; before PyTorch 2.10, which cannot return the
    kernel that is replaced, those stay PyTorch's.  A kernel that raises is given up, with one warning.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self._library = torch.library.Library("aten", "IMPL")  # the overrides last as long as this object
        self._covered: dict[tuple[object, ...], list[tuple[Any, ...]]] = {}
        self._operators: set[str] = set()
        self._running = threading.local()

    def add(
        self,
        kernel: Callable[..., Any],
        called: str,
        operator: str,
        sizes: tuple[int, ...],
        dtype: str,
        x_strides: tuple[int, ...],
        y_strides: tuple[int, ...],
    ) -> None:
        """``kernel`` (``called`` so) for calls of ``operator``: ``mm``, ``addmm``, ``bmm``, ``relu`` or ``gelu``.

        ``sizes`` are those of the batch (of ``bmm`` alone), n, k and m: x is n×k, y is k×m.
        """
        *batch, n, k, m = sizes
        name, activation = (operator, "none") if operator in _FIRST else ("_addmm_activation", operator)
        key = (name, torch.Size((*batch, n, k)), m)
        strides = [
            tuple(
                step if size > 1 else None for size, step in zip(shape, steps, strict=True)
            )  # of a size of 1 any step will do
            for shape, steps in (((*batch, n, k), x_strides), ((*batch, k, m), y_strides))
        ]
        self._covered.setdefault(key, []).append((kernel, called, activation, getattr(torch, dtype), *strides))
        if name not in self._operators:
            self._operators.add(name)
            self._override(name)

    def remove(self) -> None:
        """Give the operators back to PyTorch."""
        self._library._destroy()
        self._covered.clear()

    def _override(self, name: str) -> None:
        plain: dict[str, Any]
        if hasattr(torch.library, "get_kernel"):
            forms = (name, f"{name}.out")
            plain = {x: torch.library.get_kernel(f"aten::{x}", self.key).call_boxed for x in forms}
        else:
            plain = {name: self._by_out(name)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that a kernel is replaced
            for form, call in plain.items():
                self._library.impl(form, self._call(name, call), self.key, with_keyset=True)

    @staticmethod
    def _by_out(name: str) -> Callable[..., Any]:
        """PyTorch's kernel by the operator's form with ``out``, which is not replaced."""
        form, first = getattr(torch.ops.aten, name).out, _FIRST[name]

        def call(keys: Any, *args: Any, **more: Any) -> Any:
            x, y = args[first], args[first + 1]
            return form(*args, **more, out=x.new_empty((*x.shape[:-1], y.shape[-1])))

        return call

    def _call(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        covered, running, first = self._covered, self._running, _FIRST[name]

        def call(keys: Any, *args: Any, **more: Any) -> Any:
            x, y = args[first], args[first + 1]
            rows = covered.get((name, x.shape, y.shape[-1]))
            if rows and not getattr(running, "kernel", False):  # a kernel that calls a product gets PyTorch's
                bias, out = args[0] if first else None, more.get("out")
                for row in rows:
                    if _takes(row, x, y, bias, out, more):
                        result = self._run(rows, row, x, y, bias, out)
                        if result is not None:
                            return result
                        break
            return plain(keys, *args, **more)

        return call

    def _run(self, rows: list[tuple[Any, ...]], row: tuple[Any, ...], x: Any, y: Any, bias: Any, out: Any) -> Any:
        """The product by the kernel of ``row``; None where it raises, and never again by that kernel."""
        kernel, called, activation = row[:3]
        into = x.new_empty((*x.shape[:-1], y.shape[-1])) if out is None else out
        self._running.kernel = True
        try:
            result = kernel(x, y, bias=bias, c=None, activation=activation, out=into)
        except Exception as error:
            rows.remove(row)
            shape = "x".join(map(str, (*x.shape, y.shape[-1])))
            why = f"{type(error).__name__}: {error}"
            warnings.warn(f"{called} is not used for {shape} any more: {why}", stacklevel=3)
            return None
        finally:
            self._running.kernel = False
        if result is None or result is into:
            return into
        return result if out is None else out.copy_(result)


def _takes(row: tuple[Any, ...], x: Any, y: Any, bias: Any, out: Any, more: dict[str, Any]) -> bool:
    """Whether a call is one that the kernel of ``row`` was measured on."""
    _, _, activation, dtype, x_strides, y_strides = row
    if x.dtype is not dtype or y.dtype is not dtype:
        return False
    if not _like(x.stride(), x_strides) or not _like(y.stride(), y_strides):
        return False
    if more.get("alpha", 1) != 1 or more.get("beta", 1) != 1 or bool(more.get("use_gelu")) != (activation == "gelu"):
        return False
    if bias is not None and (bias.shape != y.shape[-1:] or bias.dtype is not dtype or bias.stride(0) != 1):
        return False
    if out is not None and (out.shape != (*x.shape[:-1], y.shape[-1]) or out.dtype is not dtype):
        return False
    if out is not None and not out.is_contiguous():
        return False
    return bool(x.device.type != "cuda" or x.get_device() == torch.cuda.current_device())


def _like(strides: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return strides == wanted or all(b is None or a == b for a, b in zip(strides, wanted, strict=True))


_PUT_IN: dict[str, OwnKernels] = {}
"""By dispatch key; they last as long as the process."""


def own_kernels(key: str, covered: tuple[tuple[Any, ...], ...]) -> None:
    """Put kernels in: ``module:function`` and the arguments of ``OwnKernels.add``.  Raises ImportError."""
    kernels = []
    for name, *_ in covered:
        module, _, attribute = name.partition(":")
        kernels.append(getattr(importlib.import_module(module), attribute))
    if key in _PUT_IN:
        _PUT_IN.pop(key).remove()
    put_in = _PUT_IN.setdefault(key, OwnKernels(key))
    for kernel, call in zip(kernels, covered, strict=True):
        put_in.add(kernel, *call)
