"""
What preprocessing does to features
===================================

Follow one column of the features through the steps of the chain PEMnE.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import sinkshot
from sinkshot import preprocess

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
rows = bank.features[bank.labels < 5]

# %%
# Features behind a ReLU are never negative, and skewed: many small values and a long tail. ``P`` takes the square root,
# ``E`` makes each row a unit vector, ``Mn`` subtracts the mean, and ``E`` again brings all rows back to the sphere.

chains = ["", "P", "PE", "PEMn", "PEMnE"]
column = int(np.argmax(rows.std(axis=0)))
figure, axes = plt.subplots(1, len(chains), figsize=(12, 2.6), layout="constrained")
for chain, axis in zip(chains, axes, strict=True):
    prepared = preprocess.run(rows, preprocess.parse(chain)).x
    values = prepared[:, column]
    axis.hist(values, bins=50, color="tab:blue")
    axis.set(title=f"{chain or 'raw'}\nskewness {stats.skew(values):.2f}", yticks=[])
plt.show()

# %%
# What each step is worth to nearest class means, on 300 one-shot episodes:

recipe = sinkshot.Recipe(shot=1, episodes=300)
for chain in chains:
    result = sinkshot.evaluate(bank, recipe, method="ncm", preprocess=chain)
    print(f"{chain or 'raw':6} {100 * result.accuracy:.2f} ± {100 * result.ci95:.2f}")
