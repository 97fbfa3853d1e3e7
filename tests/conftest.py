"""Fixtures for many tests: array libraries, the bundled bank, small banks with a known shape."""

from __future__ import annotations

import hashlib
import importlib.util
import os

import numpy as np
import pytest
from golden_files import GOLDEN
from hypothesis import settings
from threadpoolctl import threadpool_limits

import sinkshot

pytest_plugins = ("browser",)

# No deadline, since machines stall; and where a change is judged, the same examples for everybody.
settings.register_profile("here", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("here")

# The banks of a checkout are for people; tests bring their own, and the bundled one.
os.environ["SINKSHOT_BANKS"] = ""


SLOW_LIBRARIES = (pytest.param(name, marks=pytest.mark.slow) for name in ("array_api_strict", "jax.numpy"))


@pytest.fixture(params=["numpy", "torch", *SLOW_LIBRARIES])
def xp(request):
    """An array library; a test that takes it runs on each. array_api_strict has nothing but the standard."""
    if request.param == "jax.numpy":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    return pytest.importorskip(request.param)


@pytest.fixture(scope="session", autouse=True)
def one_thread_for_tiny_arrays():
    """More threads would only wait for each other."""
    import scipy.linalg  # noqa: F401  brings a BLAS of its own

    threadpool_limits(1, user_api="blas")
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def one_worker_compiles_a_kernel(tmp_path_factory):
    """Where no compiled code is stored yet, other workers wait for the one that compiles a kernel, and load it."""
    dispatcher = pytest.importorskip("numba.core.dispatcher").Dispatcher
    if "PYTEST_XDIST_WORKER" not in os.environ or importlib.util.find_spec("fcntl") is None:
        yield
        return
    import fcntl

    from numba.core.compiler_lock import global_compiler_lock

    folder, compile_alone, held = tmp_path_factory.getbasetemp().parent, dispatcher.compile, set()

    def compile_in_turn(self, signature):
        name = hashlib.sha256(f"{self.py_func.__module__}.{self.py_func.__qualname__}".encode()).hexdigest()
        with global_compiler_lock, (folder / f"{name}.lock").open("w") as lock:
            if name in held:
                return compile_alone(self, signature)
            fcntl.flock(lock, fcntl.LOCK_EX)  # a kernel waits for its parts alone, so nobody waits in a circle
            held.add(name)
            try:
                return compile_alone(self, signature)
            finally:
                held.remove(name)

    dispatcher.compile = compile_in_turn
    yield
    dispatcher.compile = compile_alone


@pytest.fixture(scope="session")
def check_estimator():
    """scikit-learn's battery of checks, which takes a while to import."""
    from sklearn.utils import estimator_checks

    return estimator_checks.check_estimator


@pytest.fixture(scope="session")
def bundled():
    return sinkshot.load("cifar-fs_wrn-28-10_novel")


@pytest.fixture(scope="session")
def exact():
    """The first feature bank as the published code saw it, float16, not quantised."""
    return sinkshot.load(GOLDEN / "cifar-fs_wrn-28-10_novel_f16.safetensors")


@pytest.fixture(scope="session")
def blobs():
    """Eight well separated classes of 40 rows, non-negative, 24 wide."""
    rng = np.random.default_rng(0)
    centres = rng.gamma(1.0, 1.0, size=(8, 24))
    features = np.abs(np.repeat(centres, 40, axis=0) + 0.2 * rng.normal(size=(320, 24)))
    return sinkshot.FeatureBank.from_arrays(features.astype(np.float32), np.repeat(np.arange(8), 40))
