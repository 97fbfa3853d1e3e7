"""
Pools with unequal class sizes
==============================

Many transductive methods assume that all classes are equally frequent among the queries. See what happens when they
are not.
"""

import matplotlib.pyplot as plt
import numpy as np

import sinkshot

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")

# %%
# Under the protocol ``dirichlet`` the number of queries of each class is random, and may be zero.

drawn = sinkshot.draw(bank.labels, protocol="dirichlet", episodes=5, shot=5)
print("queries of each class in five episodes:")
for labels in drawn.query_labels:
    print(np.bincount(labels, minlength=5))

# %%
# BMS* is told that classes are equal, the published BMS assumes it when it counts the smallest class, and the variant
# ``robust`` does not.

settings = {
    "NCM": ("ncm", {}),
    "BMS, robust": ("bms", {"variant": "robust"}),
    "BMS, published": ("bms", {"variant": "published"}),
    "BMS*": ("bms-star", {}),
}
protocols = ["balanced", "dirichlet"]
figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
for i, protocol in enumerate(protocols):
    recipe = sinkshot.Recipe(protocol=protocol, shot=5, episodes=200)
    results = [sinkshot.evaluate(bank, recipe, method=name, **hyper) for name, hyper in settings.values()]
    axis.errorbar(
        [100 * result.accuracy for result in results],
        np.arange(len(settings)) + 0.12 * (1 - 2 * i),
        xerr=[100 * result.ci95 for result in results],
        fmt="os"[i],
        capsize=4,
        label=protocol,
    )
axis.set(yticks=range(len(settings)), yticklabels=settings, xlabel="accuracy, % (95 % CI), 5-shot")
axis.legend()
plt.show()
