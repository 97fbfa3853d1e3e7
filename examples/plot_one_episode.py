"""
BMS on one episode, in the plane
================================

Look at one episode: what nearest class means say of its queries, and what BMS says.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.manifold import TSNE

import sinkshot
from sinkshot import METHODS, Task, preprocess

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
drawn = sinkshot.draw(bank.labels, way=5, shot=1, query=15, episodes=60, seed=1)

# %%
# A ``Task`` holds a batch of episodes: supports [R, l, d], their labels [R, l] and queries [R, q, d]. The chain acts on
# all rows of an episode together. Methods return probabilities [R, q, way].

task = Task(bank.features[drawn.support], drawn.support_labels, bank.features[drawn.query], way=5)
ready = preprocess.apply(task, "PEMnE")
answers = {name: METHODS[name](ready).probabilities.argmax(axis=-1) for name in ("ncm", "bms")}
correct = {name: (answer == drawn.query_labels).mean(axis=1) for name, answer in answers.items()}
for name, shares in correct.items():
    print(f"{name}: {100 * shares.mean():.1f} % over {len(drawn)} episodes")

# %%
# Take the episode where the two differ most, and lay out its rows in the plane by t-SNE, which sees no labels.

episode = int(np.argmax(correct["bms"] - correct["ncm"]))
support, query, truth = ready.support[episode], ready.query[episode], drawn.query_labels[episode]
colours = np.array(plt.get_cmap("tab10").colors)
places = TSNE(perplexity=15, init="pca", random_state=0).fit_transform(np.concatenate([support, query]))
stars, points = places[: len(support)], places[len(support) :]

figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharex=True, sharey=True, layout="constrained")
views = {"truth": truth, "nearest class means": answers["ncm"][episode], "BMS": answers["bms"][episode]}
for (title, labels), axis in zip(views.items(), axes, strict=True):
    wrong = labels != truth
    axis.scatter(*points.T, c=colours[labels], s=28)
    axis.scatter(*points[wrong].T, facecolors="none", edgecolors="black", s=70, linewidths=1)
    axis.scatter(*stars.T, c=colours[drawn.support_labels[episode]], marker="*", s=260, edgecolors="black")
    share = "" if title == "truth" else f", {100 * (~wrong).mean():.0f} % correct"
    axis.set(title=title + share, xticks=[], yticks=[])
plt.show()

# %%
# Stars are the labelled rows, circles mark errors. One labelled row may lie at the edge of its class; BMS moves the
# class towards the queries that it takes, and so recovers.
