"""Figures as small inline SVG: one panel each, drawn by matplotlib, coloured by the page's CSS variables.

A panel is about as wide as a phone, so that its text is readable there; a page sets panels side by side where there is
room. Colours are named, and come out as `var(--name)`: the same drawing follows the light and the dark scheme.
"""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sinkshot.errors import is_printable

INK, MUTED, LINE, PAPER = "#1c2127", "#5b6570", "#dfe3e8", "#fdfdfe"
SERIES = ("#0067b0", "#cf5500", "#00855f", "#a5408f", "#59626d")  # distinct in every common kind of colour vision
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
    """One drawing and its title."""

    title: str
    svg: Markup


@dataclass(frozen=True)
class Key:
    """One entry of the legend beside a figure."""

    sign: Markup
    label: str


def panel(
    name: str, title: str, alt: str, paint: Callable[[Any], None], height: float = 3.4, projection: str | None = None
) -> Panel:
    """Draw on the axes of a new figure; `name` is unique on the page, `alt` is the text alternative."""
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
    """Prepare an SVG for a page: unique ids, colours from CSS variables, no external references."""
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
    """Replace control characters and undecodable bytes, which an SVG cannot hold."""
    return "".join(c if is_printable(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


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
    """Return the marker of class c in `charts.episode` as a sign for the legend."""
    return marker_sign(MARKERS[c % len(MARKERS)], SERIES[c % len(SERIES)])


def line_sign(index: int) -> Markup:
    """Return the line of histogram number `index` as a sign for the legend."""
    dash = DASHES[index % len(DASHES)]
    pattern = "none" if isinstance(dash, str) else " ".join(f"{1.8 * length:g}" for length in dash[1])
    paint = f"stroke:{SERIES[index % len(SERIES)]};stroke-width:2.2;stroke-dasharray:{pattern}"
    return _sign(f'<path d="M-12 0H12" style="{_local(paint, "")}"/>')


def _sign(inside: str) -> Markup:
    return Markup(f'<svg class="sign" viewBox="-12 -9 24 18" aria-hidden="true">{inside}</svg>')
