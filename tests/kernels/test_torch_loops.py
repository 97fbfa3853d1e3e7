"""Long loops on torch: the same steps as the readable code, as SciPy's optimiser and as scikit-learn's classifier."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

import sinkshot
from sinkshot import METHODS, Recipe, Task
from sinkshot.methods import _tim, adaptive_manifold, distribution_calibration, ilpc
from sinkshot.methods._adam import adam
from sinkshot.methods._manifold import rows_of, start_of
from sinkshot.methods._spectral import by_gram_schmidt
from sinkshot.preprocess import apply

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from sinkshot.kernels import eigh_cuda, torch_graphs  # noqa: E402
from sinkshot.kernels.ilpc_torch import Descent  # noqa: E402
from sinkshot.kernels.lbfgs_torch import minimise  # noqa: E402
from sinkshot.kernels.manifold_torch import Manifold  # noqa: E402
from sinkshot.kernels.torch_graphs import Repeated  # noqa: E402

pytestmark = pytest.mark.slow

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.fixture(scope="module")
def bank():
    return sinkshot.load("cifar-fs_wrn-28-10_novel")


def task_of(bank, chain, **recipe):
    drawn, rows = Recipe(**recipe).draw(bank.labels), bank.features.astype(np.float64)
    task = Task(rows[drawn.support], drawn.support_labels, rows[drawn.query], drawn.recipe.way)
    return apply(task, chain, bank.base)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("times", [1, 19, 23, 64])
def test_a_step_is_taken_as_often_as_asked(device, times):
    count = torch.zeros(3, device=device)

    def step():
        count.add_(1)

    repeated = Repeated(step, count.device, recorded=20)
    repeated(times)
    repeated(times)
    assert count.tolist() == [2.0 * times] * 3


class RefusedGraph:
    """A recording that CUDA ends with an error, after a part of the steps was recorded."""

    def __init__(self, graph):
        del graph

    def __enter__(self):
        raise RuntimeError("operation not permitted when stream is capturing\nCompile with ...")

    def __exit__(self, *_):
        raise AssertionError("it was never entered")


def test_steps_are_taken_one_by_one_where_a_graph_cannot_be_recorded(monkeypatch):
    """CUDA itself is played by stand-ins, since the machines that run the tests have none."""
    stream, set_to = SimpleNamespace(wait_stream=lambda _: None), []
    stands = {"Stream": lambda _: stream, "stream": nullcontext, "current_stream": lambda _: stream}
    stands |= {"CUDAGraph": object, "graph": RefusedGraph, "set_stream": set_to.append}
    for name, stand in stands.items():
        monkeypatch.setattr(torch.cuda, name, stand)
    monkeypatch.setattr(torch_graphs, "_REFUSED", [])
    taken = []
    repeated = Repeated(lambda: taken.append(1), torch.device("cuda"), recorded=20)
    with pytest.warns(RuntimeWarning, match=r"could not record a graph \(operation not permitted"):
        repeated(64)
    assert len(taken) == 64
    assert set_to == [stream]
    repeated(64)  # no second try, and no second warning
    assert len(taken) == 128


class Valleys:
    """Rosenbrock's function of several points, each stretched in its own way."""

    def __init__(self, stretch):
        self.stretch = stretch

    def select(self, rows):
        return Valleys(self.stretch[rows])

    def evaluate(self, x):
        found = [(rosen(s * p), s * rosen_der(s * p)) for s, p in zip(self.stretch.numpy(), x.numpy(), strict=True)]
        return tuple(torch.from_numpy(np.stack(part)) for part in zip(*found, strict=True))


def test_problems_of_a_batch_stop_where_scipy_stops():
    rng = np.random.default_rng(0)
    start, stretch = rng.normal(scale=2, size=(12, 6)), rng.uniform(0.3, 3, size=12)
    problem = Valleys(torch.from_numpy(stretch))
    found = minimise(problem, torch.from_numpy(start), tolerance=1e-3, change=1e-14, most=900).numpy()
    for i, ours in enumerate(found):
        one = problem.select(slice(i, i + 1))

        def both(p, one=one):
            return tuple(part.numpy()[0] for part in one.evaluate(torch.from_numpy(p[None])))

        options = {"gtol": 1e-3, "ftol": 1e-14, "maxls": 50, "maxiter": 900}
        theirs = minimize(both, start[i], jac=True, method="L-BFGS-B", options=options)
        np.testing.assert_allclose(ours, theirs.x, atol=1e-4)
        assert np.abs(both(ours)[1]).max() <= 1e-3


class Recorded(TorchDispatchMode):
    """Notes operations that a CUDA graph cannot hold: questions to the device, and values from the host."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        moved = "_to_copy" in str(function) and (kwargs or {}).get("device") is not None
        if moved or any(name in str(function) for name in ("lift_fresh", "_local_scalar", "nonzero", "linalg_inv")):
            self.found.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["adaptive-manifold", "alpha-tim", "ilpc", "ostim", "sgc", "tim-gd"])
def test_recorded_steps_neither_ask_the_device_nor_take_values_from_the_host(name, bank):
    """A GPU is not needed to see it; each further step must add nothing to what the first ones do."""
    method, counts = METHODS[name], []
    for count in (22, 23):  # of one inverse of the manifold
        drawn = Recipe(episodes=2).draw(bank.labels)
        parts = (bank.features[drawn.support], drawn.support_labels, bank.features[drawn.query])
        task = apply(Task(*(torch.from_numpy(part) for part in parts), 5), method.preprocess, bank.base)
        with Recorded() as seen:
            method.function(task, **{"epochs" if name == "ilpc" else "steps": count})
        counts.append(len(seen.found))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("device", DEVICES)
def test_adam_takes_the_steps_of_the_readable_code(device):
    rng = np.random.default_rng(0)
    start, pull = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    wanted = adam(start, lambda x: x**3 - pull, steps=50, lr=0.01)
    pull = torch.from_numpy(pull).to(device)
    found = adam(torch.from_numpy(start).to(device), lambda x: x**3 - pull, steps=50, lr=0.01)
    np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=1e-10)


@pytest.mark.parametrize("shot", [1, 3])
def test_calibrated_classifiers_are_those_of_scikit_learn(bank, shot):
    base = sinkshot.load("cifar-fs_wrn-28-10_base")
    drawn, rows = Recipe(shot=shot, episodes=3, query=5).draw(bank.labels), bank.features
    found = []
    for array in (np.array, lambda values: torch.from_numpy(np.array(values))):
        parts = (array(rows[drawn.support]), array(drawn.support_labels), array(rows[drawn.query]))
        scores = distribution_calibration.distribution_calibration(Task(*parts, 5, base), samples=60)
        found.append(np.asarray(scores.probabilities))
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_the_classifier_of_ilpc_finds_the_same_losses(bank, device):
    task = task_of(bank, "PsEMnE", episodes=4)
    gram = ilpc._gram(task)
    labelled = np.concatenate([np.eye(5)[task.labels].swapaxes(1, 2), np.zeros((4, 5, task.queries))], axis=-1)
    start = ilpc._start(gram, labelled)
    target = np.eye(5)[start.argmax(axis=1)].swapaxes(1, 2)
    descent = (90, 0.1, 0.9, 5e-4)
    training = Descent(torch.from_numpy(gram).to(device), 5, descent)
    wanted = ilpc._mean_loss(gram, descent, start, target, np.ones(4, dtype=bool))
    for _ in range(2):  # a round leaves nothing behind
        found = training.mean_loss(*(torch.from_numpy(part).to(device) for part in (start, target)))
        np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=2e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("shot", "k", "spread", "alpha"), [(1, 20, 0.8, 1.0), (3, 10, 0.9, 5.0)])
def test_the_manifold_moves_as_in_the_readable_code(bank, shot, k, spread, alpha, device):
    """In float64, in which no rounding chooses other neighbours; 25 steps need a second inverse."""
    x, member, first = start_of(task_of(bank, "PEMnE", shot=shot, episodes=2, query=8))
    settings = _tim.decide((1.0, 10.0, 1.0), alpha, 15.0, 25, 1e-4)
    wanted = adaptive_manifold._descend(rows_of(x, member, first, k, spread), settings)
    x, member, first = (torch.from_numpy(part).to(device) for part in (x, member, first))
    slope = partial(_tim.slope_by_logits, member=member, settings=settings)
    moving = Manifold(x, first, k, spread, settings.temperature, settings.lr, slope)
    np.testing.assert_allclose(moving.descend(25).cpu().numpy(), wanted, atol=1e-10)


def symmetric(count, rows):
    made = torch.randn((count, rows, rows), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return made + made.mT


def test_a_batch_of_eigenvectors_that_cusolver_refuses_is_computed_on_the_cores(monkeypatch):
    """Tensors of the CPU stand in for those of a GPU, whose library does not know them."""
    monkeypatch.setattr(eigh_cuda, "_REFUSED", [])
    given = symmetric(7, 40)
    with pytest.warns(RuntimeWarning, match="the CPU computes them"):
        values, vectors = eigh_cuda.eigh(given)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(given))
    torch.testing.assert_close(vectors @ (values[..., None] * vectors.mT), given)
    eigh_cuda.eigh(given)  # no second try, and no second warning


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("count", "rows"), [(3, 20), (1, 90), (50, 33), (40, 175)])
def test_eigenvectors_of_a_batch_on_a_gpu_are_those_of_the_cpu(count, rows):
    given = symmetric(count, rows)
    values, vectors = (part.cpu() for part in eigh_cuda.eigh(given.cuda()))
    torch.testing.assert_close(values, torch.linalg.eigvalsh(given))
    torch.testing.assert_close(vectors @ (values[..., None] * vectors.mT), given)
    assert not eigh_cuda._REFUSED


def test_columns_made_orthonormal_by_hand_span_what_those_of_qr_span():
    columns = torch.randn((5, 30, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    columns[2, :, 3] = columns[2, :, 0] - 2 * columns[2, :, 1]  # depends on the others
    found, wanted = by_gram_schmidt(columns), torch.linalg.qr(columns)[0]
    wanted[2, :, 3] = 0
    torch.testing.assert_close(found @ found.mT, wanted @ wanted.mT)
