"""Draw what `tools/measure_growth.py` measured: strong and weak growth beside the ideal, as SVG.

python tools/draw_growth.py growth.jsonl docs/pictures/growth.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

KINDS = {"label": "labelling", "extract": "extraction"}
MARKS = {"label": "o-", "extract": "s-"}


def of(lines: list[dict[str, Any]], kind: str, growth: str) -> tuple[list[int], list[float]]:
    """Return workers and seconds of one kind of run, by the number of workers."""
    found = sorted((one["workers"], one["wall"]) for one in lines if (one["kind"], one["growth"]) == (kind, growth))
    return [workers for workers, _ in found], [wall for _, wall in found]


def draw(lines: list[dict[str, Any]], target: Path) -> None:
    """Draw the speed-up by the same work, the efficiency at the same work a worker, and the steps of labelling."""
    pyplot.rcParams.update({"svg.hashsalt": "sinkshot", "font.size": 9})
    figure, (strong, weak, steps) = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    most = max(one["workers"] for one in lines)
    for kind, name in KINDS.items():
        workers, walls = of(lines, kind, "strong")
        if workers and workers[0] == 1:
            strong.plot(workers, [walls[0] / wall for wall in walls], MARKS[kind], label=name)
        workers, walls = of(lines, kind, "weak")
        if workers and workers[0] == 1:
            weak.plot(workers, [walls[0] / wall for wall in walls], MARKS[kind], label=name)
    strong.plot([1, most], [1, most], "k--", linewidth=1, label="ideal")
    strong.set(title="the same work", ylabel="times as fast as one worker", xscale="log", yscale="log")
    weak.axhline(1, color="k", linestyle="--", linewidth=1, label="ideal")
    weak.set(title="as much work for each worker", ylabel="time of one worker over time", xscale="log", ylim=(0, 1.15))
    labels = sorted((one for one in lines if (one["kind"], one["growth"]) == ("label", "strong")), key=_workers)
    names = [name for name, spent in labels[0]["seconds"].items() if spent >= 1] if labels else []
    for name in names:
        spent = [max(one["seconds"][name], 0.05) for one in labels]
        steps.plot([one["workers"] for one in labels], spent, "o-", label=name)
    if labels:
        first = labels[0]["wall"]
        steps.plot([1, most], [first, first / most], "k--", linewidth=1, label="ideal, all")
        steps.plot([one["workers"] for one in labels], [one["wall"] for one in labels], "k-", label="all")
    steps.set(title="steps of labelling", ylabel="seconds", xscale="log", yscale="log")
    counts = sorted({one["workers"] for one in lines})
    for axis in (strong, weak, steps):
        axis.set(xlabel="workers", xticks=counts, xticklabels=[str(count) for count in counts])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, **({"loc": "center left", "bbox_to_anchor": (1, 0.5)} if axis is steps else {}))
    strong.set(yticks=counts, yticklabels=[str(count) for count in counts])
    figure.savefig(target, metadata={"Date": None})


def _workers(line: dict[str, Any]) -> int:
    return int(line["workers"])


def main() -> None:
    """Read the command line."""
    if len(sys.argv) != 3:
        sys.exit("python tools/draw_growth.py growth.jsonl FILE.svg")
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines() if line.strip()]
    draw(lines, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
