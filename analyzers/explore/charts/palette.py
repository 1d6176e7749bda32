"""Colours and style of a figure, dark and light, also for people with colour deficiencies.

* Categories: colours of Okabe and Ito ("Color Universal Design", 2008).
* Numbers: the scale cividis, also readable in grey.
* Symbols repeat the meaning of the colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzers.explore.charts.figure import Figure

CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
ON_DARK = ("#56B4E9", "#E69F00", "#2FBF97", "#E39AC3", "#8FA8FF", "#FF7F3F")
"""The six category colours in brighter form, for a dark background."""
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
FONT = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


KINDS: Mapping[str, tuple[str, str]] = {
    "GEMM": ("#0072B2", "#56B4E9"),
    "grouped GEMM": ("#4C5FD7", "#8FA8FF"),
    "convolutions": ("#009E73", "#2FBF97"),
    "forward": ("#009E73", "#2FBF97"),
    "dgrad": ("#7A8B00", "#C3D13A"),
    "wgrad": ("#B23A0A", "#FF8A4C"),
    "attention": ("#6D3FC0", "#B794F4"),
    "normalisation": ("#CC79A7", "#E9A6C9"),
    "element-wise": ("#E69F00", "#F2B632"),
    "transposes and copies": ("#8A5A2B", "#C79A6B"),
    "optimizer": ("#1B2A7A", "#6C7FE0"),
    "softmax": ("#B0127B", "#F15BB5"),
    "loss": ("#7D4E57", "#D4A5A5"),
    "reduction": ("#5F7A8A", "#9DB4C0"),
    "embedding and indexing": ("#0E7C86", "#4FD1DB"),
    "pooling": ("#2D6A4F", "#95D5B2"),
    "expert routing": ("#D00000", "#FF5C5C"),
    "communication": ("#F76707", "#FFA94D"),
    "idle": ("#9AA5B1", "#5F6B78"),
    "other": ("#B8BEC6", "#7C8894"),
}
"""The colour of each kind of work, for example GEMM or attention: on a light and on a dark background.

``assets/explore.css`` has the same colours as ``--k-NAME``. There, time in which the GPU does not compute is hatched.
"""


def kind_of_work(name: str) -> str:
    """Return the short name of a kind of work, one of ``KINDS``, for a longer name.

    For example, ``exposed communication`` becomes ``communication``, and ``miopen wgrad`` becomes ``wgrad``. An unknown
    name becomes ``other``.
    """
    if name in KINDS:
        return name
    return next((x for x in sorted(KINDS, key=len, reverse=True) if name.endswith(f" {x}")), "other")


@dataclass(frozen=True)
class Theme:
    """The colours of a figure for one background, light or dark."""

    name: str
    panel: str
    ink: str
    faint: str
    grid: str
    categories: tuple[str, ...]
    alarm: str
    good: str
    scale: tuple[str, ...]
    """Six colours for small to large numbers, from the colour scale cividis.

    The ends of cividis are left out, because they would hardly differ from the background.
    """

    def kind(self, name: str) -> str:
        """Return the colour of a kind of work, for example of ``GEMM``."""
        return KINDS[kind_of_work(name)][self.name == "dark"]

    @property
    def accent(self) -> str:
        return self.categories[0]


LIGHT = Theme(
    *("light", "#ffffff", "#1b2430", "#5f6a78", "#e6e9ee", CATEGORIES, "#D55E00", "#009E73"),
    scale=("#0b2a5b", "#3f5379", "#72757a", "#a2976f", "#cfba55", "#f2cf2e"),
)
DARK = Theme(
    *("dark", "#1a2029", "#e8ecf1", "#9aa7b6", "#2b3440", ON_DARK, "#FF7F3F", "#2FBF97"),
    scale=("#46639b", "#6a7a96", "#8d8d8a", "#b0a678", "#d7c358", "#fee838"),
)
THEMES: Mapping[str, Theme] = {"light": LIGHT, "dark": DARK}


def theme_of(name: str | Theme | None) -> Theme:
    """Return the theme with this name. An unknown name gives the light theme."""
    return name if isinstance(name, Theme) else THEMES.get(name or "", LIGHT)


def template(theme: Theme) -> dict[str, Any]:
    """Return the style of all figures as a plotly template. A figure's own settings have priority."""
    axis = {
        "gridcolor": theme.grid,
        "linecolor": theme.grid,
        "zerolinecolor": theme.grid,
        "tickfont": {"color": theme.faint, "size": 11},
        "title": {"font": {"color": theme.faint, "size": 12}, "standoff": 8},
        "automargin": True,
        "ticklabeloverflow": "allow",  # Margins show the labels. Otherwise plotly measures each label at each drawing.
        "separatethousands": True,
        "exponentformat": "none",
    }
    text = {"family": FONT, "size": 12, "color": theme.ink}
    look = {
        "paper_bgcolor": theme.panel,
        "plot_bgcolor": theme.panel,
        "font": text,
        "colorway": list(theme.categories),
        "hoverlabel": {
            "bgcolor": theme.panel, "bordercolor": theme.faint, "align": "left", "namelength": -1, "font": text,
        },
        # The legend hangs from the container, because plotly misplaces a legend of several lines that stands on the
        # plot.
        "legend": {"orientation": "h", "yref": "container", "yanchor": "top", "x": 0,
                   "font": {"size": 11, "color": theme.ink}},
        "hovermode": "closest",
    }  # fmt: skip
    return {"layout": {**look, "xaxis": axis, "yaxis": axis}}


def styled(figure: Figure, theme: Theme, *, height: int) -> Figure:
    """Give a figure the colours of the theme, and the size, margins and grid lines that all figures have."""
    figure.update_layout(
        template=template(theme),
        uirevision="keep",
        paper_bgcolor=theme.panel,
        plot_bgcolor=theme.panel,
        height=height,
        legend={"y": 1 - 30 / height},
        # The left margin has room for "100,000". If wider numbers after a click changed the margin, plotly would draw
        # everything twice.
        margin={"l": 78, "r": 24, "t": 26, "b": 52},
    )
    return figure


def headline(figure: Figure, text: str, theme: Theme, *, lines: int) -> None:
    """Write a text above the figure, and make room for its ``lines`` lines. The legend moves down."""
    height, below = figure.layout["height"], 12 + 18 * lines
    figure.update_layout(
        title={"text": text, "x": 0, "xref": "container", "y": 1 - (below - 18) / height, "yref": "container",
               "yanchor": "bottom", "pad": {"l": 12}, "font": {"size": 13, "color": theme.ink}},
        legend={"y": 1 - below / height},
        margin={"t": below + 34},
    )  # fmt: skip


def note(figure: Figure, text: str, theme: Theme) -> Figure:
    """Write a remark under the plot and its axis title, at the right. An empty text changes nothing."""
    if not text:
        return figure
    figure.add_annotation(
        text=text, xref="paper", yref="paper", x=1, y=0, xanchor="right", yanchor="top", yshift=-48, showarrow=False,
        font={"size": 11, "color": theme.faint},
    )  # fmt: skip
    figure.update_layout(margin={"b": 74})
    return figure


EMPTY = 200
"""Height (px) of a chart that has nothing to draw, although no filter is set."""


def blank(text: str, theme: Theme, *, height: int) -> Figure:
    """Return a figure without data. The text in its middle is the user's next step."""
    figure = styled(Figure(), theme, height=height)
    figure.update_layout(margin={"l": 24, "r": 24})  # No axis stands beside the text.
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(
        text=text,
        xref="paper",
        yref="paper",
        x=0.5,
        y=0.5,
        showarrow=False,
        align="center",
        font={"size": 14, "color": theme.faint},
    )
    return figure
