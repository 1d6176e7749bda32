"""Elements of the web page as plain data, from which ``assets/explore.js`` makes HTML elements in the browser.

All text of a log goes into elements as text, which the browser never reads as HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Element:
    """An HTML element: its tag, its attributes, and its children (an element, a text, a list of both, or None).

    The attribute ``within`` marks a link that changes only the page's URL, without a reload.
    """

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: Any = None

    def plain(self) -> list[object]:
        """Return the element as a list for JSON: ``[tag, attributes, children]``."""
        return [self.tag, self.attributes, self.children]


def _maker(tag: str) -> Callable[..., Element]:
    def make(children: Any = None, **attributes: object) -> Element:
        given = {x.rstrip("_").replace("_", "-"): str(y) for x, y in attributes.items() if y not in (None, "")}
        return Element(tag, given, children)

    return make


a, b, button, code, dd, details, div, dl, dt, h2, h3, i, li, p, pre, section, span, strong, summary, table, tbody = map(
    _maker,
    (
        *("a", "b", "button", "code", "dd", "details", "div", "dl", "dt", "h2", "h3", "i", "li", "p", "pre"),
        *("section", "span", "strong", "summary", "table", "tbody"),
    ),
)
td, th, thead, tr, ul = map(_maker, ("td", "th", "thead", "tr", "ul"))


def link(children: Any, href: str, **attributes: object) -> Element:
    """Return a link to another state of the same web page, for example with another filter. A click needs no reload."""
    return a(children, href=href, within="1", **attributes)
