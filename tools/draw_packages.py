"""Draw which package of SinkShot imports which, from the imports in the source.

    python tools/draw_packages.py packages.svg

Arrows point to what is imported; an arrow that follows from others is left out. Packages that import each other in a
circle stand in one row and are joined by red arrows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import grimp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy.sparse.csgraph import connected_components

PACKAGE = "sinkshot"
SWEEPS = 12  # of ordering each row by the means of its neighbours
TEXT, LINE, CIRCLE, FILL = "#1c2b3a", "#7a8899", "#c8102e", "#eaf1f8"

Imports = dict[str, set[str]]


def imports(package: str = PACKAGE) -> Imports:
    """Return, for each module or package directly under `package`, those that it imports."""
    graph = grimp.build_graph(package)
    children = sorted(graph.find_children(package))
    for child in children:
        if graph.find_descendants(child):
            graph.squash_module(child)
    found: Imports = {}
    for child in children:
        name = child.removeprefix(f"{package}.")
        others = graph.find_modules_directly_imported_by(child) - {package, child}
        found[name] = {other.removeprefix(f"{package}.") for other in others}
    found.pop("__main__", None)
    return found


def circles(edges: Imports) -> dict[str, int]:
    """Number the groups of packages that import each other, directly or through others."""
    names = list(edges)
    matrix = np.array([[other in edges[name] for other in names] for name in names])
    _, group = connected_components(matrix, connection="strong")
    return dict(zip(names, map(int, group), strict=True))


def levels(edges: Imports) -> dict[str, int]:
    """Return the row of each package: one above the highest of those that it imports."""
    group = circles(edges)
    beneath: dict[int, set[int]] = {number: set() for number in group.values()}
    for name, others in edges.items():
        beneath[group[name]] |= {group[other] for other in others} - {group[name]}
    height: dict[int, int] = {}

    def level(number: int) -> int:
        if number not in height:
            height[number] = 1 + max((level(other) for other in beneath[number]), default=-1)
        return height[number]

    return {name: level(group[name]) for name in edges}


def direct(edges: Imports) -> list[tuple[str, str]]:
    """Return the arrows to draw: those that do not follow from others, and all within a circle."""
    group, reach = circles(edges), reachable(edges)
    drawn = []
    for name, others in edges.items():
        for other in sorted(others):
            between = {o for o in others - {other} if group[o] != group[name] and group[o] != group[other]}
            if group[name] == group[other] or not any(other in reach[o] for o in between):
                drawn.append((name, other))
    return drawn


def reachable(edges: Imports) -> Imports:
    """Return everything that each package imports, directly or through others."""
    found = {name: set(others) for name, others in edges.items()}
    for middle in edges:
        for name in edges:
            if middle in found[name]:
                found[name] |= found[middle]
    return found


def places(edges: Imports) -> dict[str, tuple[float, float]]:
    """Return where each package stands: rows by level, each row ordered by the means of its neighbours."""
    level, arrows = levels(edges), direct(edges)
    rows = [[name for name in edges if level[name] == row] for row in range(max(level.values()) + 1)]
    x = {name: i - (len(row) - 1) / 2 for row in rows for i, name in enumerate(row)}
    near = {name: [b if a == name else a for a, b in arrows if name in (a, b)] for name in edges}
    for _ in range(SWEEPS):
        for row in rows:
            row.sort(key=lambda name: float(np.mean([x[other] for other in near[name]] or [x[name]])))
            x.update({name: i - (len(row) - 1) / 2 for i, name in enumerate(row)})
    return {name: (1.5 * x[name] + 0.3 * (level[name] % 2), 1.0 * level[name]) for name in edges}


def draw(file: Path) -> None:
    """Write the picture."""
    edges = imports()
    at, group = places(edges), circles(edges)
    xs, ys = zip(*at.values(), strict=True)
    plt.rcParams["svg.hashsalt"] = PACKAGE  # the same file for the same imports
    figure, axes = plt.subplots(figsize=(max(6.0, max(xs) - min(xs) + 2), max(ys) + 1.2))
    boxes = {}
    for name, (x, y) in at.items():
        style = {"boxstyle": "round,pad=0.4", "facecolor": FILL, "edgecolor": LINE}
        text = axes.text(x, y, name, ha="center", va="center", family="monospace", fontsize=10, color=TEXT, bbox=style)
        text.set_zorder(3)
        boxes[name] = text.get_bbox_patch()
    for name, other in direct(edges):
        colour = CIRCLE if group[name] == group[other] else LINE
        _arrow(axes, (at[name], at[other]), {"patchA": boxes[name], "patchB": boxes[other], "color": colour})
    axes.set(xlim=(min(xs) - 1, max(xs) + 1), ylim=(-0.5, max(ys) + 0.5))
    axes.axis("off")
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _arrow(axes: Axes, ends: tuple[tuple[float, float], tuple[float, float]], style: dict[str, Any]) -> None:
    (x, y), (to_x, to_y) = ends
    near = 0.3 if y == to_y else 0.0  # two arrows within a row, one each way, must not hide each other
    bend = near if y - to_y < 2 else 0.12 * (np.sign(to_x - x) or 1.0)  # a long one goes around what is between
    style = {**style, "arrowstyle": "-|>", "shrinkA": 2, "shrinkB": 2, "lw": 0.9}
    axes.annotate("", ends[1], ends[0], arrowprops={**style, "connectionstyle": f"arc3,rad={bend}"}, zorder=1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    draw(Path(sys.argv[1]))
