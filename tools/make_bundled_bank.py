"""Make the bundled bank and its exact float16 twin from a folder of first-feature-bank files.

    python tools/make_bundled_bank.py FOLDER

FOLDER holds `cifar-fs_wrn-28-10_<part>.npy` with the parts novel_f16, novel_labels, novel_class_names, base40_f16 and
base_raw_mean. The bundled bank goes to `src/sinkshot/data` in 8 bits, its twin to `tests/golden` in float16; what the 8
bits cost is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank, load

NAME = "cifar-fs_wrn-28-10_novel"
ROOT = Path(__file__).resolve().parents[1]
MADE = (
    "Features of the 20 novel classes from a WRN-28-10 trained on the 64 base classes only (manifold mixup and "
    "rotation, about 96 epochs, bf16), kept as {kept}; the base mean of raw rows is over all 38,400 base images, "
    "those after E, P and PE over 40 images of each base class."
)


def main(folder: Path) -> None:
    """Write both files and print sizes and errors."""
    exact, kept = make(folder, "float16"), "float16 and then as 8 bits after a square root"
    twin, bundle = ROOT / f"tests/golden/{NAME}_f16.safetensors", ROOT / f"src/sinkshot/data/{NAME}.safetensors"
    exact.save(twin, store="float16")
    make(folder, kept).save(bundle, store="uint8")
    if load(twin).content_hash() != exact.content_hash():
        sys.exit("the float16 twin differs from its source")
    for file in (twin, bundle):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    for what, value in errors(exact.features, load(bundle).features).items():
        print(f"{what}: {value:.3g}")


def make(folder: Path, kept: str) -> FeatureBank:
    """Return the novel bank with the base means of the chains "", E, P and PE; `kept` goes into its meta."""
    novel = load(folder / f"{NAME}_f16.npy")
    sample = np.load(folder / "cifar-fs_wrn-28-10_base40_f16.npy").astype(np.float64)  # [64 * 40, d]
    power = np.sqrt(sample + 1e-6)
    base = {
        "": np.load(folder / "cifar-fs_wrn-28-10_base_raw_mean.npy"),
        "E": unit(sample).mean(axis=0),
        "P": power.mean(axis=0),
        "PE": unit(power).mean(axis=0),
    }
    meta = {
        "data_set": "CIFAR-FS",
        "split": "novel",
        "backbone": "WRN-28-10",
        "made": MADE.format(kept=kept),
        **novel.meta,
    }
    return FeatureBank(novel.features, novel.labels, novel.class_names, meta, base)


def unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows of unit length; a zero row stays zero."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def errors(exact: NDArray[np.float32], kept: NDArray[np.float32]) -> dict[str, float]:
    """Return what quantisation did to the features."""
    error = np.abs(kept.astype(np.float64) - exact)
    some = exact > 0
    return {
        "largest absolute error": error.max(),
        "mean absolute error": error.mean(),
        "mean relative error of entries above 0": (error[some] / exact[some]).mean(),
        "mean relative error of entries above 0.01": (error[exact > 0.01] / exact[exact > 0.01]).mean(),
        "total error over total": error.sum() / exact.sum(dtype=np.float64),
        "share of entries above 0 that became 0": (kept[some] == 0).mean(),
        "share of zeros before": 1 - some.mean(),
        "zeros that became something": float((kept[~some] != 0).sum()),
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
