"""Published algorithms for one episode, in float64, written as plainly as their descriptions.

Rows are supports [l, d] with labels [l], then queries [q, d]. What is batched, scaled or compiled in the package is
held against these on sizes for which no public output is kept.
"""

from __future__ import annotations

import numpy as np


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def square_distances(x, centres):
    return ((x[:, None] - centres) ** 2).sum(axis=-1)


def pt_sinkhorn(x, centres, lam, columns, tolerance):
    p = np.exp(-lam * square_distances(x, centres))
    p = p / p.sum()
    u = np.zeros(len(p))
    for _ in range(1000):
        if np.abs(u - p.sum(axis=1)).max() <= tolerance:
            break
        u = p.sum(axis=1)
        p = p / u[:, None]
        p = p * (columns / p.sum(axis=0))
    return p


def class_means(support, labels):
    return np.stack([support[labels == k].mean(axis=0) for k in range(labels.max() + 1)])


def one_hot(labels):
    return np.eye(labels.max() + 1)[labels]


def pt_map(support, labels, query, columns, lam=10.0, alpha=0.2, steps=20):
    x, centres = np.vstack([support, query]), class_means(support, labels)
    for _ in range(steps):
        z = np.vstack([one_hot(labels), pt_sinkhorn(query, centres, lam, columns, 1e-6)])
        centres = centres + alpha * ((z.T @ x) / z.sum(axis=0)[:, None] - centres)
    return pt_sinkhorn(query, centres, lam, columns, 1e-6)


def protolp(support, labels, query, columns, dimensions=40, steps=100):
    """Rows come unit length."""
    x, supports, y = np.vstack([support, query]), len(support), one_hot(labels)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    x = u[:, :dimensions] * s[:dimensions]
    x = unit(x - x.mean(axis=0))
    centres, total = unit(class_means(x[:supports], labels)), y.sum(axis=0) + columns
    for _ in range(steps):
        z = np.vstack([y, pt_sinkhorn(x[supports:], centres, 10.0, columns, 1e-3)])
        laplacian = np.eye(y.shape[1]) - (z.T @ z) / z.sum(axis=0)
        p = z @ np.linalg.solve(y.T @ y + laplacian, y.T @ y)
        before = np.zeros(len(p))
        while np.abs(before - p.sum(axis=1)).max() > 0.01:
            before = p.sum(axis=1)
            p = p / before[:, None]
            p = p * (total / p.sum(axis=0))
            p[:supports] = y
        b = np.clip(0.6 * p + 0.4 * z, 0, 1)
        centres = centres + 0.2 * ((b.T @ x) / b.sum(axis=0)[:, None] - centres)
    return pt_sinkhorn(x[supports:], centres, 10.0, columns, 1e-3)


def ease(x, dimensions=40, rank=5):
    """Rows come unit length, supports and queries together."""

    def normalised(w):
        d = 1e-4 + w.sum(axis=1)
        return w / np.sqrt(np.outer(d, d))

    n = len(x)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    x = u * s
    w = np.abs(u[:, :rank] @ u[:, :rank].T)
    np.fill_diagonal(w, 0)
    _, v = np.linalg.eigh(x.T @ (100 * normalised(1 - np.eye(n)) - normalised(w)) @ x)
    return unit(x @ v[:, :dimensions])


def siamese(support, labels, query, columns, steps=40):
    x, supports, y = np.vstack([support, query]), len(support), one_hot(labels)
    centres, total = class_means(support, labels), y.sum(axis=0) + columns

    def allocate():
        p = np.exp(-10 * square_distances(x, centres))
        p, u = p / p.sum(), np.zeros(len(x))
        while np.abs(u - p.sum(axis=1)).max() > 1e-3:
            u = p.sum(axis=1)
            p = p / u[:, None]
            p[:supports] = y
            p = p * (total / p.sum(axis=0))
            p[:supports] = y
        return p

    for _ in range(steps):
        centres = centres + 0.2 * ((allocate().T @ x) / total[:, None] - centres)
    return allocate()[supports:]


def rectified(support, labels, query):
    """Prototypes of BD-CSPN and the shifted queries."""
    query = query + support.mean(axis=0) - query.mean(axis=0)
    x, means = np.vstack([support, query]), class_means(support, labels)
    cosine = unit(x) @ unit(means).T
    weight = np.exp(10 * cosine) / np.exp(10 * cosine).sum(axis=1, keepdims=True)
    chosen = cosine.argmax(axis=1)
    prototypes = [(weight[chosen == k, k, None] * x[chosen == k]).mean(axis=0) for k in range(len(means))]
    return np.stack(prototypes), query


def bd_cspn(support, labels, query):
    prototypes, _ = rectified(support, labels, query)
    return softmax(-np.sqrt(square_distances(query, prototypes)))


def laplacianshot(support, labels, query, lam, rectify):
    prototypes = class_means(support, labels)
    if rectify:
        prototypes, query = rectified(support, labels, query)
    a, between = square_distances(query, prototypes), square_distances(query, query)
    w = np.zeros_like(between)
    for i, neighbours in enumerate(np.argsort(between, axis=1)[:, 1:3]):
        w[i, neighbours] = 1
    y, energy = softmax(-a), np.inf
    for i in range(20):
        y = softmax(-a + lam * w @ y)
        before, energy = energy, (y * np.log(np.maximum(y, 1e-20)) + a * y - lam * (w @ y) * y).sum()
        if i > 1 and abs(energy - before) <= 1e-6 * abs(before):
            break
    return y


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def bpa(x, reg=0.2):
    x = unit(x)
    n = len(x)
    cost = 1 - x @ x.T
    np.fill_diagonal(cost, 1e5)
    f, g = np.zeros((n, 1)), np.zeros((1, n))

    def log_sum(values, axis):
        top = values.max(axis=axis, keepdims=True)
        return top + np.log(np.exp(values - top).sum(axis=axis, keepdims=True))

    for _ in range(10):
        before = f
        f = f + reg * (np.log(1 / n + 1e-8) - log_sum((f + g - cost) / reg, 1))
        g = g + reg * (np.log(1 / n + 1e-8) - log_sum((f + g - cost) / reg, 0))
        if np.abs(f - before).sum() < 0.1:
            break
    t = np.exp((f + g - cost) / reg)
    t = t / t.max()
    np.fill_diagonal(t, 1)
    return t


def tafssl_project(support, labels, query, ica=False, dimensions=10):
    """Raw rows in the sub-space of the task: slot j of every class is centred by the mean of slot j over classes."""
    slot = np.array([(labels[:i] == k).sum() for i, k in enumerate(labels)])
    support = np.stack([x - support[slot == j].mean(axis=0) for x, j in zip(support, slot, strict=True)])
    x = unit(np.vstack([support, query - query.mean(axis=0)]))
    v = np.linalg.svd(x - x.mean(axis=1, keepdims=True) if ica else x, full_matrices=False)[2][:dimensions]
    x = unit(x @ v.T)
    return x[: len(support)], x[len(support) :]


def mean_shift(support, labels, query):
    """TAFSSL's propagation, on projected rows."""
    classes = [support[labels == k] for k in range(labels.max() + 1)]
    p = softmax(-square_distances(query, np.stack([c.mean(axis=0) for c in classes])))
    for _ in range(4):
        order = np.argsort(-p, axis=0)
        n = (np.take_along_axis(p, order, axis=0).min(axis=1) > 0.3).sum()
        means = [np.vstack([c, query[order[:n, k]]]).mean(axis=0) for k, c in enumerate(classes)]
        p = softmax(-square_distances(query, np.stack(means)))
    return p


def bayesian_k_means(support, labels, query, clusters, count=5):
    """TAFSSL's answer to k-means labels `clusters` of supports and queries, on projected rows."""

    def direction(x):
        return x / max(np.linalg.norm(x), 1e-12)

    x, hard = np.vstack([support, query]), clusters[len(support) :]
    centres = np.stack([direction(x[clusters == j].mean(axis=0)) for j in range(count)])
    soft = softmax(-square_distances(support, centres))
    p = np.zeros((len(query), labels.max() + 1))
    for j in np.unique(hard):
        u, v = direction(soft[:, j] @ support), direction(query[hard == j].mean(axis=0))
        nearness = np.exp(-square_distances(query - v, support - u)) * soft[:, j]
        p[hard == j] = (nearness / nearness.sum(axis=1, keepdims=True) @ one_hot(labels))[hard == j]
    return p


def ilpc(support, labels, query, epochs=1000):
    """Labels of the queries; rows come centred and unit length."""
    way, answer, free = labels.max() + 1, np.full(len(query), -1), np.arange(len(query))
    quota = np.full(way, len(query) / way)
    for _ in range(len(query)):
        x = np.vstack([support, query[free]])
        p = spread(x, labels)[len(support) :] ** 3
        answer[free] = pseudo = ilpc_sinkhorn(p, quota).argmax(axis=1)
        loss = ilpc_loss(x, labels, pseudo, epochs)[len(support) :]
        taken = np.concatenate([np.flatnonzero(pseudo == k)[np.argsort(loss[pseudo == k])][:3] for k in range(way)])
        if len(taken) < 5:
            break
        support, labels = np.vstack([support, query[free[taken]]]), np.concatenate([labels, pseudo[taken]])
        quota, free = quota - np.bincount(pseudo[taken], minlength=way), np.delete(free, taken)
        if len(free) == 0:
            break
    return answer


def spread(x, labels):
    """Labels of the first rows over the graph of 20 nearest neighbours, in shares."""
    gram = x @ x.T
    w = np.zeros_like(gram)
    for i, near in enumerate(np.argsort(-gram, axis=1)[:, 1:21]):
        w[i, near] = gram[i, near] ** 3
    w = w + w.T
    np.fill_diagonal(w, 0)
    d = w.sum(axis=1)
    y = np.vstack([one_hot(labels), np.zeros((len(x) - len(labels), labels.max() + 1))])
    f = np.linalg.solve(np.eye(len(x)) - 0.8 * w / np.sqrt(np.outer(d, d)), y).clip(min=0)
    return f / np.maximum(f.sum(axis=1, keepdims=True), 1e-12)


def ilpc_sinkhorn(p, quota):
    u = np.zeros(len(p))
    with np.errstate(invalid="ignore"):
        for _ in range(1000):
            if not np.abs(u - p.sum(axis=1)).max() > 1e-6:
                break
            u = p.sum(axis=1)
            p = p / u[:, None]
            p = p * (quota / p.sum(axis=0))
            if (quota <= 0).any():
                p = np.nan_to_num(p, nan=0.0)
    return p


def ilpc_loss(x, labels, pseudo, epochs):
    """Cross-entropy of each row, averaged over the training of a linear classifier."""
    known, n = class_means(x[: len(labels)], labels), len(x)
    w, x = np.hstack([unit(known), np.zeros((len(known), 1))]), np.hstack([x, np.ones((n, 1))])
    target, speed, loss = np.concatenate([labels, pseudo]), 0.0, 0.0
    for _ in range(epochs):
        p = softmax(x @ w.T)
        loss = loss - np.log(p[np.arange(n), target])
        speed = 0.9 * speed + (p - np.eye(len(w))[target]).T @ x / n + 5e-4 * w
        w = w - 0.1 * speed
    return loss / epochs
