"""Copy banks that `make_banks.py` wrote into the repository, in 8 bits.

    python tools/ship_banks.py FOLDER ...

Every `<data set>_<backbone>_<split>.safetensors` of the folders goes to `data/banks`; the two that are part of the
package, WRN-28-10 on CIFAR-FS, go to `src/sinkshot/data`, with a link to them. Metrics, recipes, summaries and logs of
the runs go to `data/runs`. What the 8 bits cost is printed.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np

from sinkshot.bank import load

ROOT = Path(__file__).resolve().parents[1]
BANKS, RUNS, BUNDLE = ROOT / "data/banks", ROOT / "data/runs", ROOT / "src/sinkshot/data"
BUNDLED = ("cifar-fs_wrn-28-10_novel.safetensors", "cifar-fs_wrn-28-10_base.safetensors")
RECORDS = ("*_metrics.csv", "*_recipe.json", "*_summary.json", "*.log")


def ship(source: Path) -> None:
    """Write one bank in 8 bits, and print the quantisation error."""
    exact = load(source)
    target = (BUNDLE if source.name in BUNDLED else BANKS) / source.name
    exact.save(target, store="uint8")
    if target.parent != BANKS:
        link = BANKS / source.name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target, BANKS))
    error = np.abs(load(target).features.astype(np.float64) - exact.features).sum() / exact.features.sum(dtype=float)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes, {100 * error:.2f} % off on average")


def main(folders: list[Path]) -> None:
    """Ship all banks in the folders."""
    for folder in (BANKS, RUNS):
        folder.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for source in sorted(folder.glob("*_*_*.safetensors")):
            ship(source)
        for record in (found for pattern in RECORDS for found in sorted(folder.glob(pattern))):
            shutil.copyfile(record, RUNS / record.name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main([Path(text) for text in sys.argv[1:]])
