"""Measure the leaderboard on a GPU within a time limit, and say what each method cost.

    python tools/gpu_leaderboard.py --out gpu-report --minutes 15     # writes gpu-report/, also if time runs out
    python tools/gpu_leaderboard.py --out gpu-report --probe          # 1,000 episodes of one bank: what would it cost?

All registered methods, 10,000 episodes, the four banks of `BANKS`, balanced, Dirichlet and open set. Cheap methods come
first (by the probe's times, in OUT/probe.json, if there are any), so that running out of time costs slow ones alone.
Results are kept in OUT/results.sqlite: the same command continues. Several processes share the GPU, since the work
between two kernels, drawing and storing, is done on the CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from sinkshot import METHODS
from sinkshot.report.studies import write_report
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.expand import expand
from sinkshot.studies.run import RunProgress, RunStopped, run
from sinkshot.studies.store import Store
from sinkshot.studies.study import BankKey, Sheet, Study

BANKS = [
    BankKey("cifar-fs", ("wrn-28-10",)),
    BankKey("cifar-fs", ("resnet18",)),
    BankKey("cifar-fs", ("resnet12",)),
    BankKey("cub", ("wrn-28-10",)),
]


def chosen(study: Study, methods: list[str], banks: list[BankKey]) -> Study:
    """Return a study with the rows of some methods and the sheets of some banks."""

    def cut(sheet: Sheet) -> Sheet:
        rows = [row for row in sheet.rows if any(e.cell and e.cell.method in methods for e in row.entries)]
        return replace(sheet, rows=tuple(rows))

    sheets = [cut(sheet) for sheet in study.sheets if next(sheet.cells()).bank in banks]
    return replace(study, sheets=tuple(sheet for sheet in sheets if sheet.rows))


def main() -> None:
    """Measure, print and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-report"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=6, help="processes that share the GPU")
    parser.add_argument("--probe", action="store_true", help="1,000 episodes of the first bank, one process")
    parser.add_argument("--methods", nargs="+", help="these alone")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    probe = args.out / "probe.json"
    known: dict[str, float] = json.loads(probe.read_text()) if probe.is_file() else {}
    banks, episodes, workers = (BANKS[:1], 1000, 1) if args.probe else (BANKS, args.episodes, args.workers)
    catalogue = Catalogue()
    study = expand(parse.find("leaderboard-full"), catalogue, episodes)
    order = sorted(args.methods or METHODS, key=lambda name: (known.get(name, 0.0), name))
    studies = [one for name in order if (one := chosen(study, [name], banks)).sheets]
    begin = time.monotonic()

    def watch(state: RunProgress) -> None:
        if time.monotonic() - begin > 60 * args.minutes and state.episodes_left:
            raise KeyboardInterrupt

    with Store(args.out / "results.sqlite") as store:
        how = {"workers": workers, "device": args.device, "command": "python tools/gpu_leaderboard.py"}
        try:
            outcome = run(studies, catalogue, store, progress=watch, **how)
        except RunStopped as stop:
            sys.exit(f"out of time: {stop.done} of {stop.cells} cells are done and kept; run it again to continue.")
    took = time.monotonic() - begin
    spent: Counter[str] = Counter()
    for stored in {id(stored): stored for stored in outcome.results.values()}.values():
        spent[stored.method] += stored.seconds["total"]  # of a process; several run at a time
    print(f"{took:.0f} seconds in all, {sum(spent.values()):.0f} in {workers} processes; by method:")
    for name, seconds in spent.most_common():
        print(f"{name:<26} {seconds:8.1f} s")
    if args.probe:
        probe.write_text(json.dumps(spent, indent=1) + "\n")
        return
    whole = chosen(study, list(spent), banks)
    report = replace(outcome, studies=[whole])
    print(f"report: {write_report(args.out, report).files[0]}")


if __name__ == "__main__":
    main()
