"""
Your own features file
======================

Write features as ``.npz``, read them, look at them, and measure a method on them.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import sinkshot

# %%
# Any vectors will do, as long as all items went through the same network. Here the pixels of scikit-learn's digits
# stand in for features; labels are strings.

digits = load_digits()
names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
folder = Path(tempfile.mkdtemp())
np.savez(folder / "digits.npz", features=digits.data, labels=names[digits.target])

bank = sinkshot.load(folder / "digits.npz")
print(bank)
print(dict(zip(bank.class_names, bank.counts.tolist(), strict=True)))

# %%
# The native format keeps provenance and opens at once, however large it is.

bank.save(folder / "digits.safetensors")
again = sinkshot.load(folder / "digits.safetensors")
print(again.content_hash() == bank.content_hash())

# %%
# Accuracy by number of labelled rows per class:

shots = [1, 2, 5, 10, 20]
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
for method in ("ncm", "kmeans", "bms"):
    results = [
        sinkshot.evaluate(bank, sinkshot.Recipe(shot=shot, episodes=100), method=method, preprocess="PEMnE")
        for shot in shots
    ]
    axis.errorbar(
        shots, [100 * r.accuracy for r in results], yerr=[100 * r.ci95 for r in results], marker="o", label=method
    )
axis.set(xscale="log", xticks=shots, xticklabels=shots, xlabel="labelled rows per class", ylabel="accuracy, %")
axis.minorticks_off()
axis.legend()
plt.show()
