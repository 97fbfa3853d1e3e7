"""
Rows that belong to no class
============================

A real pool holds items of none of your classes. Let the classifier say so.
"""

import matplotlib.pyplot as plt
import numpy as np

import sinkshot
from sinkshot.open_set import auroc

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")

# %%
# A pool of five classes with five labels each, and as many rows of five other classes, which nobody labelled.

rng = np.random.default_rng(0)
rows = np.concatenate([rng.choice(np.flatnonzero(bank.labels == k), 100, replace=False) for k in range(10)])
X, classes = bank.features[rows], bank.labels[rows]
stranger = classes >= 5
y = np.full(len(rows), -1)
for k in range(5):
    y[np.flatnonzero(classes == k)[:5]] = k
pool = y == -1

# %%
# ``unknown`` is the threshold: a row whose probability to belong to none of the classes is above it gets the label -1.

model = sinkshot.BMSClassifier(unknown=0.5).fit(X, y)
labels, unknown = model.transduction_, model.unknown_
known = pool & ~stranger
print(f"AUROC of unknown_: {auroc(unknown[pool], stranger[pool]):.3f}")
print(f"strangers rejected: {100 * (labels[stranger] == -1).mean():.1f} %")
print(f"own rows rejected:  {100 * (labels[known] == -1).mean():.1f} %")
kept = known & (labels != -1)
print(f"accuracy of own rows that were kept: {100 * (labels[kept] == classes[kept]).mean():.1f} %")

figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
bins = np.linspace(0, 1, 41)
axis.hist(unknown[known], bins=bins, alpha=0.7, label="rows of the five classes")
axis.hist(unknown[pool & stranger], bins=bins, alpha=0.7, label="rows of other classes")
axis.axvline(0.5, color="black", lw=1, ls="--")
axis.set(xlabel="probability to belong to none of the classes", ylabel="rows")
axis.legend()
plt.show()
