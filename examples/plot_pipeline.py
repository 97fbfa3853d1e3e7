"""
scikit-learn pipelines and grid search
======================================

The estimators follow scikit-learn's contract, so its tools work on them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline

import sinkshot

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
rng = np.random.default_rng(0)
rows = np.concatenate([rng.choice(np.flatnonzero(bank.labels == k), 20, replace=False) for k in range(5)])
X, y = bank.features[rows], bank.labels[rows]

# %%
# ``PEME`` is the preprocessing chain as a transformer. Which chain suits a classifier can be searched like any other
# parameter.

pipeline = Pipeline([("peme", sinkshot.PEME()), ("classify", LogisticRegression())])
grid = {"peme__preprocess": ["", "E", "PE", "PEMnE"], "classify__C": [1.0, 10.0]}
search = GridSearchCV(pipeline, grid, cv=StratifiedKFold(5, shuffle=True, random_state=0)).fit(X, y)
print(search.best_params_, f"{search.best_score_:.3f}")

scores = np.array(search.cv_results_["mean_test_score"]).reshape(2, 4)  # C, chain
figure, axis = plt.subplots(figsize=(5.5, 2.4), layout="constrained")
picture = axis.imshow(100 * scores, cmap="viridis", aspect="auto")
for (row, column), value in np.ndenumerate(scores):
    axis.text(column, row, f"{100 * value:.1f}", ha="center", va="center", color="white")
axis.set(xticks=range(4), xticklabels=["raw", *grid["peme__preprocess"][1:]], xlabel="chain")
axis.set(yticks=range(2), yticklabels=grid["classify__C"], ylabel="C", title="cross-validated accuracy, %")
plt.show()

# %%
# The classifiers themselves have parameters to search as well. Rows with the label -1 are unlabelled.

names = sorted(sinkshot.BMSClassifier().get_params())
print(names)
