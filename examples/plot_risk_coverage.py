"""
Which labels to trust
=====================

Sort a pool by confidence: how accurate are the most confident rows, and do probabilities mean what they say?
"""

import matplotlib.pyplot as plt
import numpy as np

import sinkshot

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
rng = np.random.default_rng(0)

# %%
# A pool of ten classes, 60 rows each, with three labels per class.

rows = np.concatenate([rng.choice(np.flatnonzero(bank.labels == k), 60, replace=False) for k in range(10)])
X, truth = bank.features[rows], bank.labels[rows]
y = np.full(len(rows), -1)
for k in range(10):
    y[np.flatnonzero(truth == k)[:3]] = k
pool = y == -1

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for name, model in {"BMS": sinkshot.BMSClassifier(), "soft k-means": sinkshot.SoftKMeansClassifier()}.items():
    model.fit(X, y)
    confidence = model.label_distributions_.max(axis=1)[pool]
    correct = (model.transduction_ == truth)[pool]
    print(f"{name}: {100 * correct.mean():.1f} % of {pool.sum():,} rows")

    # Risk and coverage: accuracy among the most confident share of the rows.
    ranked = correct[np.argsort(-confidence, kind="stable")]
    counts = np.arange(1, len(ranked) + 1)
    left.plot(100 * counts / len(ranked), 100 * np.cumsum(ranked) / counts, label=name)

    # Reliability: accuracy of rows by their confidence, in ten groups of equal size.
    order = np.array_split(np.argsort(confidence), 10)
    right.plot([confidence[g].mean() for g in order], [correct[g].mean() for g in order], marker="o", label=name)

left.set(xlabel="rows kept, most confident first, %", ylabel="accuracy, %", title="risk and coverage")
right.plot([0, 1], [0, 1], color="grey", lw=0.8)
right.set(xlabel="mean confidence of a group", ylabel="accuracy of the group", title="reliability")
left.legend()
plt.show()

# %%
# Points above the grey line are underconfident, points below it overconfident. Whatever the scale, the order is useful:
# send the last tenth of the rows to a person.
