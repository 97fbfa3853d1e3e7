"""BMS with rejection: it detects unknown queries better than OSLO, and they harm it less than BMS."""

from __future__ import annotations

import numpy as np
import pytest
from published_code import episodes, golden, probabilities

from sinkshot import METHODS, InputError, Task, open_set
from sinkshot.kernels.neighbours import Neighbours, over
from sinkshot.methods.algebra import rows_of
from sinkshot.methods.bms_open import over_neighbours
from sinkshot.preprocess import apply

KINDS = ("5w1s15q", "5w5s15q")
OSLO = {"5w1s15q": 0.833, "5w5s15q": 0.905}  # AUROC of the public code on square roots of these very features


def judged(method, kind, chain=None, count=200):
    """Accuracy on known queries and mean AUROC over the golden open-set episodes."""
    answers, labels, unknown = probabilities(method, kind, count, file="oslo", chain=chain, dtype="float32")
    known = labels >= 0
    right = (answers.argmax(axis=-1) == labels)[known].mean()
    return right, None if unknown is None else open_set.auroc(unknown, ~known).mean()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_strangers_are_told_from_the_others_better_than_oslo_does(kind):
    accuracy, auroc = judged("bms-open", kind)
    oslo_accuracy, oslo_auroc = judged("oslo", kind, chain="PsMnE")
    assert oslo_auroc == pytest.approx(OSLO[kind], abs=1e-3)
    assert auroc > OSLO[kind] + 0.01
    assert accuracy > oslo_accuracy


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "gain"), [("5w1s15q", 0.08), ("5w5s15q", 0.04)])
def test_strangers_in_the_pool_take_much_less_accuracy_than_from_bms(kind, gain):
    assert judged("bms-open", kind, count=80)[0] > judged("bms", kind, count=80)[0] + gain


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_without_strangers_it_is_above_nearest_class_means_and_rejects_few(kind):
    task, labels = episodes(kind, dtype="float32")
    found, nearest = METHODS["bms-open"](apply(task, "PEMnE")), METHODS["ncm"](apply(task, "PEMnE"))
    right, floor = ((s.probabilities.argmax(axis=-1) == labels).mean() for s in (found, nearest))
    assert right > floor + 0.015
    assert (found.unknown > 0.5).mean() < 0.25


def test_unknown_is_a_probability():
    task, _ = episodes("5w1s15q", slice(4), strangers=golden("oslo", "5w1s15q")["open_rows"])
    unknown = METHODS["bms-open"](apply(task, "PEMnE")).unknown
    assert unknown.shape == (4, 150)
    assert (unknown > 0).all()
    assert (unknown < 1).all()


def test_without_spreading_or_steps_of_regression_it_is_the_algorithm_as_told():
    """One episode, its loops written out."""
    task, _ = episodes("5w1s15q", slice(1), strangers=golden("oslo", "5w1s15q")["open_rows"])
    task = apply(task, "PEMnE")
    found = METHODS["bms-open"](task, spread=0.0, epochs=0, steps=1, passes=7)
    support, query, label = task.support[0], task.query[0], task.labels[0]

    def weights(mass):
        sums = [support[label == k].sum(axis=0) + mass[k] @ query for k in range(5)]
        return np.array([w / np.linalg.norm(w) for w in sums])

    def allocate(cosine, mass, least):
        share = np.exp(8.5 * cosine)
        for _ in range(7):
            share = share / share.sum(axis=0) * mass
            sizes = share.sum(axis=1)
            if not (sizes < least).any():
                return share
            share = np.where((sizes < least)[:, None], share * (least / sizes)[:, None], share)
        return share

    def smallest(share, mass):
        return max(1.0, min(mass[share.argmax(axis=0) == k].sum() for k in range(5)))

    w, of_class, least = weights(np.zeros((5, len(query)))), np.full((5, 1), 0.2), 1.0
    overall = (w @ query.T).sum(axis=0)
    for _ in range(2):
        own = (of_class * (w @ query.T)).sum(axis=0)
        inlier = 1 / (1 + np.exp(-own / 0.05))
        mass = allocate(w @ query.T, inlier, least)
        of_class, least, w = mass / mass.sum(axis=0), smallest(mass, inlier), weights(mass)
    known = 1 / (1 + np.exp(-(overall + own - 0.2) / 0.2))
    mass = allocate(w @ query.T, known, least)
    least, w = smallest(mass, known), weights(mass)
    np.testing.assert_allclose(found.unknown[0], 1 - known, atol=1e-6)
    mass = allocate(w @ query.T, known, least)
    np.testing.assert_allclose(found.probabilities[0].T, mass / mass.sum(axis=0), atol=1e-6)


def test_a_sparse_graph_of_one_task_spreads_as_the_dense_one_of_an_episode():
    task, _ = episodes("5w5s15q", slice(1))
    task = apply(task, "PEMnE")
    evidence = np.random.default_rng(0).normal(size=(1, 1, task.queries))
    graph = Neighbours(np.concatenate([task.support[0], task.query[0]]), 10).graph()
    dense = over_neighbours(rows_of(task), 10, 0.7)(evidence)
    np.testing.assert_allclose(over(graph, task.supports, 0.7)(evidence), dense, atol=1e-6)


def test_a_row_without_neighbours_keeps_its_own_evidence():
    x = np.eye(4)[None]  # nobody is near anybody
    task = Task(x[:, :2], np.array([[0, 1]]), x[:, 2:], 2)
    evidence = np.array([[[0.3, -0.4]]])
    for spreading in (over_neighbours(rows_of(task), 2, 0.5), over(Neighbours(x[0], 2).graph(), 2, 0.5)):
        np.testing.assert_allclose(spreading(evidence), [[[1, 1, 0.3, -0.4]]], atol=1e-6)


def test_a_row_of_zeros_is_nobodys_neighbour_in_either_graph():
    x = np.random.default_rng(0).normal(size=(1, 30, 8))
    x[0, 7] = 0
    task = Task(x[:, :5], np.arange(5)[None], x[:, 5:], 5)
    evidence = np.random.default_rng(1).normal(size=(1, 1, 25))
    dense, near = over_neighbours(rows_of(task), 5, 0.7)(evidence), Neighbours(x[0], 5)
    np.testing.assert_allclose(over(near.graph(), 5, 0.7)(evidence), dense, atol=1e-6)
    assert dense[0, 0, 7] == pytest.approx(evidence[0, 0, 2])
    np.testing.assert_array_equal(near.mean(np.zeros((1, 8)), dense[0, 0], np.array([0.4])), [0.4])


def lone_strangers(dtype):
    """60 tasks of five classes with one support each and a single query, of none of them."""
    task, _ = episodes("5w1s15q", slice(60), strangers=golden("oslo", "5w1s15q")["open_rows"], dtype=dtype)
    return apply(Task(task.support, task.labels, task.query[:, -1:], 5), "PEMnE")


def test_a_stranger_alone_does_not_pull_the_classes_to_itself():
    assert (METHODS["bms-open"](lone_strangers("float64")).unknown > 0.5).mean() > 0.95


def test_extreme_constants_leave_single_precision_finite():
    found = METHODS["bms-open"](lone_strangers("float32"), lambda_inlier=0.002, lam=40.0)
    assert np.isfinite(found.probabilities).all()
    assert np.isfinite(found.unknown).all()


@pytest.mark.parametrize("wrong", [{"spread": 1.0}, {"spread": -0.1}, {"width": 0.0}, {"neighbours": 0}])
def test_hyper_parameters_out_of_range_are_refused(wrong):
    task, _ = episodes("5w1s15q", slice(1))
    with pytest.raises(InputError, match=next(iter(wrong))):
        METHODS["bms-open"](task, **wrong)
