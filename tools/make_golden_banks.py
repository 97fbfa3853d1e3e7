"""Make the banks behind the golden numbers, exactly, from a folder of first-feature-bank files.

    python tools/make_golden_banks.py FOLDER

FOLDER holds `cifar-fs_wrn-28-10_<part>.npy` with the parts novel_f16, novel_labels, novel_class_names, base40_f16,
base40_labels and base_raw_mean. The banks of the novel classes and of a sample of the base classes go to
`tests/golden` in float16.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank, load

STEM = "cifar-fs_wrn-28-10"
ROOT = Path(__file__).resolve().parents[1]
NOVEL = (
    "Features of the 20 novel classes from a WRN-28-10 trained on the 64 base classes only (manifold mixup and "
    "rotation, about 96 epochs, bf16), kept as {kept}; the base mean of raw rows is over all 38,400 base images, "
    "those after E, P and PE over 40 images of each base class."
)
BASE = "Features of 40 images of each of the 64 base classes from the WRN-28-10 trained on them, kept as {kept}."


def main(folder: Path) -> None:
    """Write both files."""
    for split, make in (("novel", novel), ("base", base)):
        exact, file = make(folder, "float16"), ROOT / f"tests/golden/{STEM}_{split}_f16.safetensors"
        exact.save(file, store="float16")
        if load(file).content_hash() != exact.content_hash():
            sys.exit(f"{file} differs from its source")
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


def novel(folder: Path, kept: str) -> FeatureBank:
    """Return the novel bank with the base means of the chains "", E, P and PE; `kept` goes into its meta."""
    bank = load(folder / f"{STEM}_novel_f16.npy")
    sample = np.load(folder / f"{STEM}_base40_f16.npy").astype(np.float64)  # [64 * 40, d]
    power = np.sqrt(sample + 1e-6)
    means = {
        "": np.load(folder / f"{STEM}_base_raw_mean.npy"),
        "E": unit(sample).mean(axis=0),
        "P": power.mean(axis=0),
        "PE": unit(power).mean(axis=0),
    }
    meta = {**facts("novel", NOVEL.format(kept=kept)), **bank.meta}
    return FeatureBank(bank.features, bank.labels, bank.class_names, meta, means)


def base(folder: Path, kept: str) -> FeatureBank:
    """Return the sample of the base classes; its meta names the source of the novel bank that it goes with."""
    bank = load(folder / f"{STEM}_base40_f16.npy", folder / f"{STEM}_base40_labels.npy")
    partner = load(folder / f"{STEM}_novel_f16.npy").meta["source_sha256"]
    meta = {**facts("base", BASE.format(kept=kept)), **bank.meta, "base_of_sha256": partner}
    return FeatureBank(bank.features, bank.labels, bank.class_names, meta)


def facts(split: str, made: str) -> dict[str, str]:
    """Return the metadata that both banks share."""
    return {"data_set": "CIFAR-FS", "split": split, "backbone": "WRN-28-10", "made": made}


def unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows of unit length; a zero row stays zero."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
