"""
Add your own method
===================

A method is a function from a task to probabilities. Register it under a name, and everything else follows.
"""

import matplotlib.pyplot as plt
from array_api_compat import array_namespace

import sinkshot
from sinkshot import Scores, Task, register

# %%
# This one compares each query with every support, and adds up similarities by class. It is written against the array
# API standard, so it runs on NumPy and torch alike, and on whole batches of episodes: shapes are [R, l, d] and
# [R, q, d].


@register("soft-voting", transductive=False, preprocess="PE", reference="an example")
def soft_voting(task: Task, *, temperature: float = 20.0) -> Scores:
    """Let every support vote for its class, by how similar it is to the query."""
    xp = array_namespace(task.support, task.query)
    cosines = task.query @ xp.matrix_transpose(task.support)  # [R, q, l]
    votes = xp.exp(temperature * (cosines - xp.max(cosines, axis=-1, keepdims=True)))
    own = xp.astype(task.labels[..., None] == xp.arange(task.way), task.support.dtype)  # [R, l, way]
    sums = votes @ own  # [R, q, way]
    return Scores(sums / xp.sum(sums, axis=-1, keepdims=True))


# %%
# It can now be evaluated beside the others; keywords of the function are its hyper-parameters.

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
recipe = sinkshot.Recipe(shot=5, episodes=200)
ncm = sinkshot.evaluate(bank, recipe, method="ncm", preprocess="PE")
temperatures = [1, 5, 20, 80]
results = [sinkshot.evaluate(bank, recipe, method="soft-voting", temperature=t) for t in temperatures]

figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
accuracies, widths = [100 * r.accuracy for r in results], [100 * r.ci95 for r in results]
axis.errorbar(temperatures, accuracies, yerr=widths, marker="o", capsize=4, label="soft-voting")
axis.axhline(100 * ncm.accuracy, color="grey", ls="--", label="ncm")
axis.set(xscale="log", xticks=temperatures, xticklabels=temperatures, xlabel="temperature", ylabel="accuracy, %")
axis.legend()
plt.show()

# %%
# To keep a method in the package, put it in a file of ``src/sinkshot/methods``; CONTRIBUTING shows how. The contract
# tests then run over it, because it is registered.
