"""The page of `benchmarks/speed.py`: speed of each engine, growth of cost, and distance to the machine's limit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sinkshot import __version__
from sinkshot.report.figures.svg import INK, SERIES, Panel, panel
from sinkshot.report.page import write_page

_AXES = {
    "shot": "shots a class",
    "query": "queries a class",
    "way": "classes",
    "width": "features",
    "episodes": "episodes in all",
}


def speed_page(report: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the page of a report as `benchmarks/speed.py` collects it."""
    bms = [case for case in report["cases"] if case["gflops"] is not None]
    write_page(
        path,
        "speed.html.jinja",
        sinkshot=__version__,
        report=report,
        fastest=max(bms, key=lambda case: case["times_reference"]),
        rates=_rates(report["cases"]),
        growth=[_growth(name, points) for name, points in report.get("growth", {}).items()],
        roofline=[(case, case["gflops"] / report["matrix_peak_gflops"]) for case in bms if _on_cpu(case)],
    )


def _on_cpu(case: dict[str, Any]) -> bool:
    return case["engine"] in ("numpy", "numba")


def _rates(cases: Sequence[dict[str, Any]]) -> list[Panel]:
    """Plot episodes per second of each case, one panel per number of shots."""
    panels = []
    for shot in sorted({case["shot"] for case in cases}):
        mine = [case for case in cases if case["shot"] == shot]

        def paint(axes: Any, mine: list[dict[str, Any]] = mine) -> None:
            engines = list(dict.fromkeys(case["engine"] for case in mine))
            height = range(len(mine))[::-1]
            for y, case in zip(height, mine, strict=True):
                axes.barh(y, case["rate"], color=SERIES[engines.index(case["engine"]) % len(SERIES)], height=0.62)
                axes.annotate(f" {case['rate']:,.0f}", (case["rate"], y), va="center", annotation_clip=False)
            axes.set_yticks(list(height), [f"{case['method']}, {case['engine']}" for case in mine], color=INK)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.margins(x=0.2)
            axes.tick_params(axis="both", length=0)
            axes.grid(axis="x")
            axes.spines["left"].set_visible(False)
            axes.set_xlabel("episodes a second, logarithmic")

        words = "; ".join(f"{case['method']} by {case['engine']} {case['rate']:,.0f}" for case in mine)
        alt = f"Episodes per second at {shot}-shot: {words}"
        panels.append(panel(f"rate-{shot}", f"{shot}-shot", alt, paint, height=0.8 + 0.36 * len(mine)))
    return panels


def _growth(name: str, points: Sequence[tuple[int, float]]) -> Panel:
    """Plot time per episode as one size grows."""

    def paint(axes: Any) -> None:
        axes.plot(*zip(*points, strict=True), "o-", color=SERIES[0], linewidth=1.8)
        axes.set_xscale("log")
        axes.set_xticks([value for value, _ in points], [f"{value:,}" for value, _ in points], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.tick_params(axis="both", length=0)
        axes.grid(axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(_AXES[name])
        axes.set_ylabel("microseconds an episode")

    words = ", ".join(f"{value:,}: {cost:.0f}" for value, cost in points)
    return panel(
        f"growth-{name}", f"With {_AXES[name]}", f"Microseconds per episode by {_AXES[name]}: {words}", paint, 2.8
    )
