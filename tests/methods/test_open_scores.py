"""Unknown scores that look at one query at a time: distances, probabilities, ratios, OpenMax, SnaTCHer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import weibull_min
from test_contract import make_task

from sinkshot import METHODS, Episodes, InputError, Recipe, Task, draw, evaluate
from sinkshot.methods.openmax import MOST_SHAPE, fit_weibull, weibull_cdf
from sinkshot.task import GramTask

SHOTS = (2, 3, 4, 5)


def plain(array):
    return np.asarray(array)


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def episodes_of(task):
    """Supports, labels and queries of one episode after another, in NumPy."""
    return zip(plain(task.support), plain(task.labels), plain(task.query), strict=True)


def class_means(support, labels, way):
    return np.array([support[labels == c].mean(axis=0) for c in range(way)])


def inner(task, xp):
    rows = np.concatenate([plain(task.support), plain(task.query)], axis=1)
    return GramTask(xp.asarray(rows @ rows.swapaxes(1, 2)), task.labels, task.way)


# --- nearest class mean ---------------------------------------------------------------------------------------------


def by_hand(score, support, labels, query, way):
    """The score of one query."""
    squares = ((class_means(support, labels, way) - query) ** 2).sum(axis=1)
    if score == "distance":
        return squares.min()
    if score == "max-probability":
        return 1 - softmax(-squares).max()
    lengths = np.sqrt(((support - query) ** 2).sum(axis=1))
    nearest = lengths.argmin()
    return lengths[nearest] / lengths[labels != labels[nearest]].min()


@pytest.mark.parametrize("score", ["distance", "max-probability", "neighbour-ratio"])
def test_scores_of_the_nearest_class_mean_are_those_by_hand(score, xp):
    task = make_task(xp, shots=SHOTS)
    expected = [[by_hand(score, s, t, x, task.way) for x in q] for s, t, q in episodes_of(task)]
    for form in (task, inner(task, xp)):
        np.testing.assert_allclose(plain(METHODS["ncm"](form, score=score).unknown), expected, atol=1e-9)


@pytest.mark.parametrize(("name", "score"), [("max-probability", "max-probability"), ("nn-ratio", "neighbour-ratio")])
def test_a_name_of_a_score_is_ncm_with_it(name, score):
    task = make_task()
    ours, theirs = METHODS[name](task), METHODS["ncm"](task, score=score)
    np.testing.assert_array_equal(ours.unknown, theirs.unknown)
    np.testing.assert_array_equal(ours.probabilities, METHODS["ncm"](task).probabilities)
    assert METHODS[name].open_set
    assert not METHODS["ncm"].open_set


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_query_on_supports_has_a_defined_ratio(xp, dtype):
    rng = np.random.default_rng(0)
    one, two, other = 5 + rng.normal(size=(3, 40))
    support, labels = np.array([[one, two, other, other]]), np.array([[0, 0, 1, 2]], dtype=np.int32)
    query = np.array([[one, other]])  # on a support of one class, and on supports of two
    kind = getattr(xp, dtype)
    task = Task(xp.asarray(support, dtype=kind), xp.asarray(labels), xp.asarray(query, dtype=kind), 3)
    alone, between = plain(METHODS["nn-ratio"](task).unknown)[0]
    assert alone < 1e-2
    assert between == 1.0


def test_rows_that_are_all_zero_have_ratio_one():
    task = Task(np.zeros((1, 3, 4)), np.array([[0, 1, 1]]), np.zeros((1, 2, 4)), 2)
    np.testing.assert_array_equal(METHODS["nn-ratio"](task).unknown, 1.0)


def test_a_score_nobody_knows_and_a_ratio_of_one_class_are_refused():
    with pytest.raises(InputError, match="unknown score of ncm 'entropy'"):
        METHODS["ncm"](make_task(), score="entropy")
    with pytest.raises(InputError, match="needs two classes"):
        METHODS["nn-ratio"](make_task(way=1, shots=(3,)))


# --- OpenMax --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.7, 1.5, 6.0, 15.0])
@pytest.mark.parametrize("count", [3, 8, 40])
def test_the_fit_of_a_weibull_is_that_of_scipy(shape, count, xp):
    rng = np.random.default_rng(count)
    samples = 3.0 * rng.weibull(shape, size=(6, count))
    kept = np.arange(count) < np.array([3, count, count, count, count, count])[:, None]
    found = [plain(part)[:, 0] for part in fit_weibull(xp.asarray(samples), xp.asarray(kept), most=1e4)]
    for i in range(6):
        k, _, scale = weibull_min.fit(samples[i, kept[i]], floc=0)
        np.testing.assert_allclose([found[0][i], found[1][i]], [k, scale], rtol=2e-3)


def test_a_bounded_shape_has_the_scale_that_is_likeliest_with_it():
    samples = np.array([[2.0, 2.1, 2.2, 2.05]])
    shape, scale = fit_weibull(samples, samples > 0, most=4.0)
    assert shape == 4.0
    assert scale[0, 0] == pytest.approx(weibull_min.fit(samples[0], floc=0, f0=4.0)[2], rel=1e-3)


def test_the_weibull_distribution_is_that_of_scipy():
    x = np.array([0.0, 0.1, 1.0, 2.0, 50.0])
    np.testing.assert_allclose(weibull_cdf(x, np.array(3.0), np.array(1.5)), weibull_min.cdf(x, 3.0, scale=1.5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sample", [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0], [1e-30, 1e-30, 1e30]])
def test_samples_without_spread_or_with_zeros_have_a_fit(sample, dtype, xp):
    samples = xp.asarray(np.array([sample]), dtype=getattr(xp, dtype))
    shape, scale = fit_weibull(samples, samples >= 0)
    assert 0 < plain(shape) <= MOST_SHAPE
    assert np.isfinite(plain(scale)).all()
    shares = plain(weibull_cdf(xp.asarray(np.array([[0.0, 2.0, 1e30]]), dtype=getattr(xp, dtype)), shape, scale))
    assert ((shares >= 0) & (shares <= 1)).all()


def openmax_by_hand(support, labels, query, way, tail, alpha, scale):
    """Probabilities and the score of one query, with scipy's Weibull."""
    means = class_means(support, labels, way)
    distances = np.sqrt(((means - query) ** 2).sum(axis=1))
    activation = scale * (query @ query - distances**2)
    revised, removed = activation.copy(), 0.0
    for rank, c in enumerate(np.argsort(-activation)[:alpha]):
        own = support[labels == c]
        apart = [np.linalg.norm(x - np.delete(own, i, axis=0).mean(axis=0)) for i, x in enumerate(own)]
        k, _, size = weibull_min.fit(np.sort(apart)[-tail:], floc=0)
        if k > MOST_SHAPE:
            k, _, size = weibull_min.fit(np.sort(apart)[-tail:], floc=0, f0=MOST_SHAPE)
        weight = 1 - (alpha - rank) / alpha * weibull_min.cdf(distances[c], k, scale=size)
        revised[c] = weight * activation[c] if activation[c] > 0 else activation[c]
        removed += activation[c] - revised[c]
    return softmax(revised), softmax(np.append(revised, removed))[-1]


@pytest.mark.parametrize("hyper", [{"tail": 3, "alpha": 2, "scale": 1.0}, {"tail": 9, "alpha": 4, "scale": 0.1}])
def test_openmax_is_what_its_description_says(hyper):
    task = make_task(shots=(3, 4, 5, 6), episodes=2, queries=5, spread=1.5)
    scores = METHODS["openmax"](task, **hyper)
    expected = [[openmax_by_hand(s, t, x, task.way, **hyper) for x in q] for s, t, q in episodes_of(task)]
    np.testing.assert_allclose(scores.probabilities, [[p for p, _ in one] for one in expected], atol=1e-3)
    np.testing.assert_allclose(scores.unknown, [[u for _, u in one] for one in expected], atol=1e-3)


def test_openmax_survives_supports_that_are_all_alike():
    task = make_task(shots=(2, 2, 2, 2))
    support = np.repeat(task.support[:, ::2], 2, axis=1)
    for dtype in ("float32", "float64"):
        scores = METHODS["openmax"](Task(support.astype(dtype), task.labels, task.query.astype(dtype), task.way))
        assert np.isfinite(scores.unknown).all()
        assert np.isfinite(scores.probabilities).all()


def test_openmax_asks_for_two_supports_of_each_class(bundled):
    words = "openmax needs at least 2 supports per class, but a class has 1"
    with pytest.raises(InputError, match=words):
        METHODS["openmax"](make_task(shots=(2, 1, 2, 2)))
    with pytest.raises(InputError, match=words):
        evaluate(bundled, Recipe("open-set", shot=1, episodes=2), method="openmax")
    drawn = draw(bundled.labels, shot=2, episodes=2)
    fewer = Episodes(drawn.support[:, :9], drawn.support_labels[:, :9], drawn.query, drawn.query_labels, drawn.recipe)
    with pytest.raises(InputError, match=words):
        evaluate(bundled, fewer, method="openmax")


@pytest.mark.parametrize(
    ("name", "least"),
    [("max-probability", 0.83), ("nn-ratio", 0.75), ("openmax", 0.86), ("snatcher", 0.87)],
)
def test_unknown_queries_of_real_features_are_told_apart(name, least, bundled):
    result = evaluate(bundled, Recipe("open-set", shot=5, episodes=60), method=name)
    assert result.auroc > least
    assert result.accuracy > 0.88


# --- SnaTCHer -------------------------------------------------------------------------------------------------------


def with_attention(b):
    alike = b @ b.T / np.sqrt(b.shape[-1])
    return b + np.array([softmax(line) for line in alike]) @ b


def of_unit_length(b):
    b = b - b.mean(axis=0)
    return b / np.linalg.norm(b, axis=1, keepdims=True)


def doubled(b):
    return 2.0 * b


@pytest.mark.parametrize(
    ("transform", "f"), [("attention", with_attention), ("mean", of_unit_length), (doubled, doubled)]
)
def test_snatcher_is_what_its_description_says(transform, f, xp):
    task = make_task(xp, shots=SHOTS)
    scores = METHODS["snatcher"](task, transform=transform, temperature=8.0)
    for r, (support, labels, query) in enumerate(episodes_of(task)):
        b = class_means(support, labels, task.way)
        p = f(b)
        for i, x in enumerate(query):
            logits = -((x - p) ** 2).sum(axis=1) / 8
            np.testing.assert_allclose(plain(scores.probabilities)[r, i], softmax(logits), atol=1e-9)
            snatched = b.copy()
            snatched[logits.argmax()] = x
            assert plain(scores.unknown)[r, i] == pytest.approx(((f(snatched) - p) ** 2).sum() / 8)


def test_snatcher_gives_many_queries_what_it_gives_each_alone():
    rng = np.random.default_rng(0)
    support, labels = rng.normal(size=(40, 16, 512)), np.tile(np.arange(16), (40, 1))
    query = rng.normal(size=(40, 30, 512))  # more than are transformed at once
    together = METHODS["snatcher"](Task(support, labels, query, 16)).unknown
    for i in (0, 29):
        alone = METHODS["snatcher"](Task(support, labels, query[:, i : i + 1], 16)).unknown
        np.testing.assert_allclose(together[:, i : i + 1], alone)


def test_transforms_that_nobody_knows_or_that_change_the_shape_are_refused():
    with pytest.raises(InputError, match="unknown transform of snatcher 'atention'; did you mean 'attention'"):
        METHODS["snatcher"](make_task(), transform="atention")
    with pytest.raises(InputError, match="must keep the shape of the prototypes"):
        METHODS["snatcher"](make_task(), transform=lambda b: b[..., :1])


@pytest.mark.parametrize("transform", ["warp", ["a", "b"], 3])
def test_a_transform_that_is_none_is_refused(transform):
    x = np.eye(4)[None]
    with pytest.raises(InputError, match="transform"):
        METHODS["snatcher"](Task(x[:, :2], np.array([[0, 1]]), x[:, 2:], 2), transform=transform)
