"""Make text from a log safe to show. Every string of a log that goes into a figure passes through ``escape``.

Plotly renders a subset of HTML (``<a href>``, ``<b>``, ``<br>`` …) in texts of a figure.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from logparse.groups import in_groups
from logparse.quoting import make_printable, markup
from logparse.text import kernel_name, shorten_texts


def escape(text: object, longest: int = 120) -> str:
    """Make a text from a log safe to show: where HTML is rendered, it appears literally.

    Markup characters become entities. Control and direction characters become visible. A text longer than ``longest``
    characters is shortened in its middle.
    """
    plain = make_printable("" if text is None or (isinstance(text, float) and math.isnan(text)) else str(text))
    return markup(_cut_middle(plain, longest))


def _cut_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return text[:head] + "…" + text[len(text) - (longest - head - 1) :]


_NAMESPACES = re.compile(r"^void |\bat::native::|\(anonymous namespace\)::|\bstd::")
"""Parts of the names of PyTorch's kernels that many kernels have in common."""


def shorten_names(names: Sequence[str], longest: int) -> list[str]:
    """Shorten names of kernels or operators to at most ``longest`` characters. Different names stay different."""
    cut = {name: _cut_middle(_NAMESPACES.sub("", name), longest) for name in names}
    for group in in_groups(cut, cut.__getitem__).values():
        if len(group) > 1:  # They differ at another place.
            cut |= zip(group, shorten_texts(group, longest), strict=True)
    return [cut[name] for name in names]


def distinct(names: Iterable[str]) -> list[str]:
    """Make axis labels unique by adding invisible characters, because plotly draws equal labels in one place."""
    seen, out = Counter[str](), []
    for name in names:
        out.append(name + "\u200b" * seen[name])
        seen[name] += 1
    return out


def solution_name(text: str) -> str:
    """Shorten the name of a kernel for display: the library is left out.

    The long name of a GPU kernel (``kernel:…``) is shortened, too.
    """
    return kernel_name(text.partition(":")[2] or text)


def format_calls(calls: float) -> str:
    """Format a number of calls, which may have a fraction (calls per step). NaN becomes ``unknown``."""
    if math.isnan(calls):
        return "unknown"
    return f"{calls:,.0f}" if calls >= 100 or calls == round(calls) else f"{calls:.3g}"


def of_one(unit: object) -> str:
    """Return ``a step`` for ``step``, or ``a request`` for ``request``, for example to write "time of a step".

    Returns an empty text for ``run``, because numbers for the whole run of a job need no such word.
    """
    return f"a {unit}" if isinstance(unit, str) and unit != "run" else ""


def percent(share: float | None) -> str:
    """Format a fraction (0 to 1) as percent, for example ``93%``, ``2.6%`` or ``<0.1%``.

    None and NaN become ``unknown``.
    """
    if share is None or math.isnan(share):
        return "unknown"
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if 0 < share < 0.0995 else f"{share:.0%}"


def capitalize_first(text: str) -> str:
    """Return ``text`` with a capital first letter, unless it begins with a name such as ``channels_last``."""
    first = text.split(" ", 1)[0]
    return text[0].upper() + text[1:] if first.isalpha() and first.islower() else text


def sentence(text: str) -> str:
    """Return ``text`` as a sentence: with a full stop, and a capital unless it begins with a name."""
    text = capitalize_first(text)
    return text if not text or text.endswith((".", ".'", "!", "?", "…")) else text + "."
