"""Draw how our backbones were trained: validation accuracy and loss by epoch, from the runs' metrics.

    python tools/plot_training.py [--out docs/training.svg]

needs matplotlib (`pip install matplotlib`). Each `data/runs/<name>_metrics.csv` is one line; further runs of a network
(`-run2`, ...) are thin lines in its colour. The two runs of `COMPARED`, which differ in their training, have a picture
of their own beside it, `training-s2m2.svg`, by minutes. A ring marks the step whose weights were kept: the one with the
best mean over all of its few-shot accuracies on validation classes.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib
import matplotlib.figure

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
ENDING = "_metrics.csv"
SHOWN = "validation bms-star 1-shot"
COMPARED = {"cifar-fs_resnet12-s2m2": "S2M2_R", "cifar-fs_resnet12-modern": "modern"}
Rows = list[dict[str, str]]


def main() -> None:
    """Read all runs, draw both panels, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/training.svg")
    args = parser.parse_args()
    plt.rcParams.update({"svg.hashsalt": "sinkshot", "font.size": 9, "axes.spines.top": False})
    plt.rcParams.update({"axes.spines.right": False})
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 5.6), sharex=True, layout="constrained")
    colours: dict[str, str] = {}  # by the name of a network's first run
    for path in sorted((ROOT / "data/runs").glob("*_metrics.csv"), key=lambda path: path.name.removesuffix(ENDING)):
        if path.name.removesuffix(ENDING) in COMPARED:
            continue
        rows = read(path)
        measured = [row for row in rows if row[SHOWN]]
        kept = max(measured, key=mean_accuracy)
        name, _, further = path.name.removesuffix(ENDING).replace("_", ", ").partition("-run")
        look = {"linewidth": 0.7, "color": colours[name]} if further else {"marker": ".", "label": name}
        (line,) = upper.plot(column(measured, "epoch"), column(measured, SHOWN, 100), **look)
        colours.setdefault(name, line.get_color())
        ring = {"marker": "o", "markersize": 9, "fillstyle": "none", "color": line.get_color()}
        upper.plot(column([kept], "epoch"), column([kept], SHOWN, 100), **ring)
        lower.plot(column(rows, "epoch"), column(rows, "loss"), color=line.get_color(), linewidth=0.7 if further else 1)
    upper.set_ylabel("BMS* 1-shot, validation classes, %")
    upper.legend(frameon=False, loc="lower right")
    lower.set_ylabel("training loss")
    lower.set_xlabel("epoch")
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
    save(figure, args.out)
    compare(args.out.with_stem("training-s2m2"))


def compare(out: Path) -> None:
    """Draw validation accuracy by minutes of two trainings of one network."""
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for name, training in COMPARED.items():
        measured = [row for row in read(ROOT / "data/runs" / f"{name}{ENDING}") if row[SHOWN]]
        kept = max(measured, key=mean_accuracy)
        (line,) = axes.plot(column(measured, "seconds", 1 / 60), column(measured, SHOWN, 100), label=training)
        ring = {"marker": "o", "markersize": 9, "fillstyle": "none", "color": line.get_color()}
        axes.plot(column([kept], "seconds", 1 / 60), column([kept], SHOWN, 100), **ring)
    axes.set_ylabel("BMS* 1-shot, validation classes, %")
    axes.set_xlabel("minutes")
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.25)
    save(figure, out)


def save(figure: matplotlib.figure.Figure, out: Path) -> None:
    """Write a picture, without the date."""
    figure.savefig(out, dpi=120, metadata={"Date": None} if out.suffix == ".svg" else None)


def read(path: Path) -> Rows:
    """Return the lines of a run's metrics."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def column(rows: Rows, name: str, times: float = 1) -> list[float]:
    """Return one column as numbers."""
    return [times * float(row[name]) for row in rows]


def mean_accuracy(row: dict[str, str]) -> float:
    """Return the mean over the accuracies on validation classes, by which weights are kept."""
    found = [float(value) for name, value in row.items() if name.startswith("validation ")]
    return sum(found) / len(found)


if __name__ == "__main__":
    main()
