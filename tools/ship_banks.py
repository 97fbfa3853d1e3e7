"""Copy banks that `make_banks.py` wrote into the repository, in 8 bits.

    python tools/ship_banks.py FOLDER ... [--only novel] [--each 100]

Every `<data set>_<backbone>_<split>.safetensors` of the folders goes to `data/banks`; the two that are part of the
package, WRN-28-10 on CIFAR-FS, go to `src/sinkshot/data`, with a link to them. Metrics, recipes, summaries and logs of
the runs go to `data/runs`. What the 8 bits cost is printed. `--only` ships one split, `--each` the first rows of each
class.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import numpy as np

from sinkshot.bank import load
from sinkshot.studies.merge import first_of_each_class

ROOT = Path(__file__).resolve().parents[1]
BANKS, RUNS, BUNDLE = ROOT / "data/banks", ROOT / "data/runs", ROOT / "src/sinkshot/data"
BUNDLED = ("cifar-fs_wrn-28-10_novel.safetensors", "cifar-fs_wrn-28-10_base.safetensors")
RECORDS = ("*_metrics.csv", "*_recipe.json", "*_summary.json", "*.log")


def ship(source: Path, each: int | None) -> None:
    """Write one bank, or the first rows of each class, in 8 bits, and print the quantisation error."""
    exact = load(source) if each is None else first_of_each_class(load(source), each)
    target = (BUNDLE if source.name in BUNDLED else BANKS) / source.name
    exact.save(target, store="uint8")
    if target.parent != BANKS:
        link = BANKS / source.name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target, BANKS))
    error = np.abs(load(target).features.astype(np.float64) - exact.features).sum() / exact.features.sum(dtype=float)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes, {100 * error:.2f} % off on average")


def main() -> None:
    """Ship all banks in the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", choices=("novel", "validation", "base"), help="ship this split alone")
    parser.add_argument("--each", type=int, metavar="ROWS", help="ship the first rows of each class")
    args = parser.parse_args()
    for folder in (BANKS, RUNS):
        folder.mkdir(parents=True, exist_ok=True)
    for folder in args.folders:
        for source in sorted(folder.glob(f"*_*_{args.only or '*'}.safetensors")):
            ship(source, args.each)
        for record in (found for pattern in RECORDS for found in sorted(folder.glob(pattern))):
            shutil.copyfile(record, RUNS / record.name)


if __name__ == "__main__":
    main()
