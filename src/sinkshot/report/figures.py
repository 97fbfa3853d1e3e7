"""Figures as small inline SVG: one panel each, drawn by matplotlib, coloured by the page's CSS variables.

A panel is about as wide as a phone, so that its text is readable there; a page sets panels side by side where there is
room. Colours are named, and come out as `var(--name)`: the same drawing follows the light and the dark scheme.
"""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

INK, MUTED, LINE, PAPER = "#1c2127", "#5b6570", "#dfe3e8", "#fdfdfe"
SERIES = ("#0067b0", "#cf5500", "#00855f", "#a5408f", "#59626d")  # told apart in every common kind of colour vision
_NAMES = {INK: "ink", MUTED: "muted", LINE: "line", PAPER: "paper"}
_NAMES |= {colour: f"series-{i}" for i, colour in enumerate(SERIES, start=1)}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("solid", (0, (5, 2)), (0, (1.2, 1.6)))
_LONG = re.compile(r"\d+\.\d{3,}")  # a hundredth of a unit is finer than any screen
_WIDTH = 5.0  # inches; 72 units of the drawing each
_STYLE: dict[str, Any] = {
    "font.size": 11,
    "text.parse_math": False,  # a label is text, whatever it holds
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "svg.fonttype": "none",
    "svg.hashsalt": "sinkshot",
}


@dataclass(frozen=True)
class Panel:
    """One drawing, and what stands above it."""

    title: str
    svg: Markup


@dataclass(frozen=True)
class Key:
    """One entry of the legend beside a figure."""

    sign: Markup
    label: str


@dataclass(frozen=True)
class Interval:
    """A value with a half-width, and another to compare it with."""

    label: str
    value: float
    half_width: float
    mark: float | None = None
    mark_half_width: float = 0.0


@dataclass(frozen=True)
class Points:
    """The rows of an episode in the plane, their classes, and which queries were labelled wrong."""

    support: NDArray[Any]  # [l, 2]
    query: NDArray[Any]  # [q, 2]
    of_support: NDArray[Any]  # [l]
    of_query: NDArray[Any]  # [q]
    wrong: NDArray[Any]  # [q]


def panel(
    name: str, title: str, alt: str, paint: Callable[[Any], None], height: float = 3.4, projection: str | None = None
) -> Panel:
    """Draw on the axes of a new figure; `name` is unique on the page, `alt` says in words what is to be seen."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser has its own
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        paint(figure.subplots(subplot_kw={"projection": projection}))
        drawn = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    return Panel(title, _inline(drawn.getvalue(), name, alt))


def _inline(svg: str, name: str, alt: str) -> Markup:
    """Make a drawing part of a page: its names unique there, its colours the page's, nothing that points outside."""
    root = ET.fromstring(svg)
    for parent in root.iter():
        for child in [c for c in parent if c.tag.endswith(("}metadata", "}style"))]:
            parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        element.text = (element.text or "").strip() or None
        element.attrib = {key.rpartition("}")[2]: _local(value, name) for key, value in element.attrib.items()}
        if "id" in element.attrib:
            element.set("id", f"{name}-{element.get('id')}")
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": alt}
    return Markup(ET.tostring(root, encoding="unicode"))


def _local(value: str, name: str) -> str:
    value = _LONG.sub(lambda found: f"{float(found[0]):.2f}", value)
    for colour, variable in _NAMES.items():
        value = value.replace(colour, f"var(--{variable})")
    return f"#{name}-{value[1:]}" if value.startswith("#") else value.replace("url(#", f"url(#{name}-")


def printable(text: str) -> str:
    """Replace what no drawing can hold: control characters and bytes that never were text."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


# --- kinds of charts ------------------------------------------------------------------------------------------------


def intervals(axes: Any, rows: Sequence[Interval], label: str, write: Callable[[float], str], zero: bool) -> None:
    """Values with their intervals, one line each from the top, written out at the right; diamonds are the marks."""
    height = np.arange(len(rows))[::-1]
    for y, row in zip(height, rows, strict=True):
        if row.mark is not None:
            axes.errorbar(row.mark, y - 0.22, xerr=row.mark_half_width, color=SERIES[1], linewidth=1.6)
            axes.plot(row.mark, y - 0.22, "D", color=SERIES[1], markersize=5, markerfacecolor=PAPER)
        axes.errorbar(row.value, y, xerr=row.half_width, color=SERIES[0], linewidth=2.2)
        axes.plot(row.value, y, "o", color=SERIES[0], markersize=6)
        axes.annotate(
            write(row.value), (1.02, y), xycoords=("axes fraction", "data"), va="center", annotation_clip=False
        )
    if zero:
        axes.axvline(0, color=MUTED, linewidth=1)
    axes.set_yticks(height, [printable(row.label) for row in rows], color=INK)
    axes.set_ylim(-0.7, len(rows) - 0.4)
    axes.tick_params(axis="both", length=0)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(label)


def distributions(
    axes: Any, samples: Sequence[NDArray[Any]], edges: NDArray[Any], label: str, count: str, colour: int = 0
) -> None:
    """Histograms of samples over the same edges."""
    histograms(axes, [np.histogram(sample, edges)[0] for sample in samples], edges, label, count, colour)


def histograms(
    axes: Any, bins: Sequence[NDArray[Any]], edges: NDArray[Any], label: str, count: str, colour: int = 0
) -> None:
    """Counts of the same bins, told apart by colour and by dash."""
    for i, counts in enumerate(bins):
        paint = SERIES[(i + colour) % len(SERIES)]
        axes.stairs(counts, edges, color=paint, alpha=0.13, fill=True)
        axes.stairs(counts, edges, color=paint, linewidth=1.8, linestyle=DASHES[i % len(DASHES)])
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom=0)
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="x", pad=7)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(label)
    axes.set_ylabel(count)


def episode(axes: Any, points: Points, labels: Sequence[str]) -> None:
    """An episode in the plane: supports as stars around their class's marker, a ring where a query is wrong."""
    for c in range(int(points.of_support.max()) + 1):
        colour, marker = SERIES[c % len(SERIES)], MARKERS[c % len(MARKERS)]
        mine = points.query[points.of_query == c].T
        axes.plot(*mine, marker, color=colour, markersize=5.5, alpha=0.85, markeredgewidth=0)
        mine = points.support[points.of_support == c].T
        axes.plot(*mine, "*", color=colour, markersize=23, markeredgecolor=PAPER, markeredgewidth=1.2, zorder=4)
        axes.plot(*mine, marker, color=PAPER, markersize=5, markeredgewidth=0, zorder=5)
    missed = points.query[points.wrong].T
    axes.plot(*missed, "o", color=INK, markersize=10.5, markerfacecolor="none", markeredgewidth=1, zorder=3)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.06)
    axes.set(xticks=[], yticks=[], xlabel=labels[0], ylabel=labels[1])
    axes.spines[["top", "right"]].set_visible(True)


# --- legends --------------------------------------------------------------------------------------------------------


def marker_sign(marker: str, colour: str, size: float = 10, hollow: bool = False) -> Markup:
    """Return a marker of matplotlib as a sign for the legend."""
    return _sign(_marker(marker, colour, size, hollow))


def line_mark(colour: str, marker: str, dash: str = "none", opacity: float = 1) -> Markup:
    """Return a line with a marker on it, if any, as a sign for the legend; that of a dashed line is hollow."""
    on_it = _marker(marker, colour, 8, dash != "none") if marker else ""
    line = f'<path d="M-12 0H12" style="{_local(f"stroke:{colour};stroke-width:2;stroke-dasharray:{dash}", "")}"/>'
    return _sign(f'<g opacity="{opacity:g}">{line}{on_it}</g>')


def _marker(marker: str, colour: str, size: float, hollow: bool) -> str:
    from matplotlib.markers import MarkerStyle
    from matplotlib.transforms import Affine2D

    style = MarkerStyle(marker)
    shape = style.get_path().transformed(style.get_transform() + Affine2D().scale(size, -size))
    letters = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}
    path = " ".join(
        letters[int(code)] + ("" if code == 79 else " ".join(f"{v:.2f}" for v in points))
        for points, code in shape.iter_segments(simplify=False)
    )
    paint = f"fill:none;stroke:{colour};stroke-width:1.6" if hollow else f"fill:{colour}"
    return f'<path d="{path}" style="{_local(paint, "")}"/>'


def class_sign(c: int) -> Markup:
    """Return the marker of class c in `episode` as a sign for the legend."""
    return marker_sign(MARKERS[c % len(MARKERS)], SERIES[c % len(SERIES)])


def line_sign(index: int) -> Markup:
    """Return the line of histogram number `index` as a sign for the legend."""
    dash = DASHES[index % len(DASHES)]
    pattern = "none" if isinstance(dash, str) else " ".join(f"{1.8 * length:g}" for length in dash[1])
    paint = f"stroke:{SERIES[index % len(SERIES)]};stroke-width:2.2;stroke-dasharray:{pattern}"
    return _sign(f'<path d="M-12 0H12" style="{_local(paint, "")}"/>')


def _sign(inside: str) -> Markup:
    return Markup(f'<svg class="sign" viewBox="-12 -9 24 18" aria-hidden="true">{inside}</svg>')
