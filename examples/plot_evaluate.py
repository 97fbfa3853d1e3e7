"""
Evaluate methods with confidence intervals
==========================================

Measure several methods on the same episodes, and compare them in pairs.
"""

import matplotlib.pyplot as plt

import sinkshot

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
print(bank)

# %%
# A recipe says how episodes are drawn: here 5 classes, 1 labelled row and 15 queries per class. Every method meets the
# same 300 episodes. Published numbers use 10,000.

recipe = sinkshot.Recipe(protocol="balanced", way=5, shot=1, query=15, episodes=300)
names = ["ncm", "logreg", "soft-kmeans", "kmeans", "bms"]
results = {name: sinkshot.evaluate(bank, recipe, method=name) for name in names}
for name, result in results.items():
    print(f"{name:12} {result.preprocess:6} {100 * result.accuracy:.2f} ± {100 * result.ci95:.2f}")

# %%
# Intervals of single methods are wide, because some episodes are harder than others for all of them. The difference
# of two methods on the same episodes has a much narrower interval.

pairs = {name: sinkshot.compare(results[name], results["ncm"]) for name in names[1:]}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.errorbar(
    [100 * results[name].accuracy for name in names],
    names,
    xerr=[100 * results[name].ci95 for name in names],
    fmt="o",
    capsize=4,
)
left.set(xlabel="accuracy, % (95 % CI)", title="each method")
right.errorbar(
    [100 * pair.difference for pair in pairs.values()],
    list(pairs),
    xerr=[100 * pair.ci95 for pair in pairs.values()],
    fmt="o",
    capsize=4,
    color="tab:orange",
)
right.axvline(0, color="grey", lw=0.8)
right.set(xlabel="points above NCM (95 % CI)", title="paired differences")
plt.show()
