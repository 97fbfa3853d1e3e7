"""Engines: how the episodes of an evaluation are computed, and which of them suits a job.

An engine applies the part of the chain that acts on rows alone to the whole bank, once, and then turns chunks of
episodes into accuracies. `numpy` and `torch` run the readable method on gathered features and can do everything;
`numba` and `triton` go from row numbers to answers in fused kernels, where method, chain and size allow it.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sinkshot import open_set, preprocess
from sinkshot.bank import FeatureBank
from sinkshot.episodes import Episodes, Recipe, by_class
from sinkshot.errors import InputError, unknown_name
from sinkshot.methods import Method, bms
from sinkshot.methods._prior import estimate
from sinkshot.task import Array, GramTask, Scores, Task
from sinkshot.threads import ONE_BLAS_THREAD, cores, in_order

STAGES = ("sample", "prepare", "classify")
Judged = tuple[NDArray[np.float64], Mapping[str, NDArray[np.float64]]]
"""Accuracies [r] and, under `open-set`, the measures of `sinkshot.open_set` by name, [r] each."""
_DRAWN_AT_ONCE = 4096  # episodes
_ON_DEVICE_AT_ONCE = 1 << 16
_MOST_ROWS = 600  # of an episode: its Gram matrix should stay in a core's cache
_GRAM_BYTES = 32 << 20  # of Gram matrices at once, where NumPy goes on with them
_WORK = 2_000_000_000  # rows^2 * way * (epochs + 1) of the episodes of one chunk: about a second of two cores
_OUT_OF_RANGE = (
    "the features are too large or too small for float32 under this chain, so the answer is not a number. "
    "Scale them, or let the chain begin with E."
)
_MOST_THREADS = 8  # of the numpy engine: beyond, they wait for the interpreter
_PAYS_FROM = 500  # episodes: below, NumPy is done before a compiler would be


@dataclass(frozen=True)
class Job:
    """What is to be evaluated; everything is settled but the way to compute it."""

    bank: FeatureBank
    episodes: Episodes | Recipe
    method: Method
    hyper: dict[str, Any]
    steps: preprocess.Chain
    base: FeatureBank | None = None
    means: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of base classes, by chain prefix; before `base`'s

    @property
    def recipe(self) -> Recipe:
        """The recipe that the episodes are drawn by."""
        return self.episodes if isinstance(self.episodes, Recipe) else self.episodes.recipe

    @property
    def total(self) -> int:
        """Episodes in all."""
        return self.recipe.episodes if isinstance(self.episodes, Recipe) else len(self.episodes)

    @property
    def rows(self) -> int:
        """Rows in an episode, supports and queries."""
        way, shot, query = self.recipe.way, self.recipe.shot, self.recipe.query
        return way * (shot + (2 if self.recipe.protocol == "open-set" else 1) * query)


def _by_inner_products(job: Job) -> bool:
    """Whether a job can be done on Gram matrices alone, with the digits of float32.

    Fused logistic regression follows the lengths of weights by their changes, which is exact enough for rows of unit
    length; on longer ones digits cancel, so a chain must end in E where there is any.
    """
    ends_in_unit_length = bool(job.steps) and job.steps[-1].name == "E"
    if job.method.function is bms.bms and not ends_in_unit_length and _epochs(job) > 0:
        return False
    return job.method.gram and preprocess.centring(preprocess.split(job.steps)[1]) is not None


def _epochs(job: Job) -> int:
    """Steps of logistic regression in BMS; that there is a prior counts, not which."""
    known = "balanced" if _prior_is(job.hyper, "oracle", "estimated") else job.hyper["prior"]
    return bms.decide(job.recipe.way, job.recipe.way * job.recipe.shot, **{**job.hyper, "prior": known}).epochs


def _prior_is(hyper: Mapping[str, Any], *names: str) -> bool:
    """Whether the method has a prior, and it goes by one of these names."""
    return isinstance(hyper.get("prior"), str) and hyper["prior"] in names


def true_shares(chunk: Episodes) -> NDArray[np.float64]:
    """Shares of the classes among the queries of known classes, [R, way]."""
    counts = (chunk.query_labels[..., None] == np.arange(chunk.recipe.way)).sum(axis=1)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


class Engine:
    """The readable code on NumPy arrays: takes every job, and is what the others are held against."""

    name = "numpy"
    chunk_bytes = 16 << 20  # of features in a chunk: with less, threads spend their time on the interpreter's lock

    def __init__(self, job: Job, device: str) -> None:
        self.job, self.device = job, device
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.zero_rows = 0
        self.row_wise, self.task_wise = preprocess.split(job.steps)
        self.centring = preprocess.centring(self.task_wise)
        self.base_mean = preprocess.base_mean_of(job.means, job.base)
        self.base: FeatureBank | None = None  # behind the row-wise part of the chain, where the method asks for it
        self.lock, self.threads = Lock(), self._threads()

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether this engine can do the job."""
        return True

    @classmethod
    def pays(cls, job: Job) -> bool:
        """Whether "auto" should choose this engine for a job that it takes."""
        return True

    def run(self) -> Iterator[Judged]:
        """Yield accuracies and measures of the open set chunk by chunk."""
        with self._timed("prepare", self.threads):
            rows = self._rows()
            if self.job.method.features and self.job.base is not None:
                self.base = preprocess.base_after(self.job.base, self.row_wise, self.base_mean)
        with self._quiet():
            yield from in_order(lambda chunk: self._judged(rows, chunk), self._chunks(), self.threads)

    def _judged(self, rows: Array, chunk: Episodes) -> Judged:
        """Accuracies and measures of the open set of a chunk."""
        scores = self._scores(rows, chunk)
        with self._timed("classify"):
            return accuracy(scores, chunk), rejection(scores, chunk) if self.job.recipe.protocol == "open-set" else {}

    def _threads(self) -> int:
        """Chunks that are worked on at a time: arrays of an episode's size are no job for threads of their own."""
        return min(_MOST_THREADS, cores())

    def _quiet(self) -> AbstractContextManager[object]:
        """Keep BLAS to one thread: on matrices of an episode's size more of them only wait for each other."""
        return ONE_BLAS_THREAD

    @contextmanager
    def _timed(self, stage: str, threads: int = 1) -> Iterator[None]:
        """Count the seconds inside, in so many threads: of all seconds those of one thread are a share."""
        start = time.perf_counter()
        yield
        with self.lock:
            self.seconds[stage] += (time.perf_counter() - start) * threads / self.threads

    def _array(self, values: NDArray[Any]) -> Array:
        """Bring an array to the engine's library and device."""
        return values

    def _features(self) -> Array:
        return self.job.bank.features

    def _rows(self) -> Array:
        """Apply the part of the chain that acts on rows alone to the whole bank."""
        done = preprocess.run(self._features(), self.row_wise, base_mean=self.base_mean)
        self.zero_rows += done.zero_rows
        return done.x

    def _chunks(self) -> Iterator[Episodes]:
        """Episodes in parts that the engine takes at once, a multiple of the threads where there are few."""
        parts = -(-self.job.total // self._chunk_size())
        size = -(-self.job.total // (-(-parts // self.threads) * self.threads))
        for drawn in self._drawn():
            for begin in range(0, len(drawn), size):
                yield drawn[begin : begin + size]

    def _chunk_size(self) -> int:
        return max(1, self.chunk_bytes // (4 * self.job.rows * self.job.bank.width))

    def _drawn(self) -> Iterator[Episodes]:
        episodes = self.job.episodes
        if isinstance(episodes, Episodes):
            yield episodes
            return
        for first in range(0, episodes.episodes, _DRAWN_AT_ONCE):
            with self._timed("sample", self.threads):
                count = min(_DRAWN_AT_ONCE, episodes.episodes - first)
                drawn = episodes.draw(self.job.bank.labels, first, count, self.job.bank.class_names)
            yield drawn

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        """Gather the rows of a chunk, apply the rest of the chain and run the method."""
        with self._timed("prepare"):
            both = self._array(np.hstack([chunk.support, chunk.query]))  # [R, N]
            supports, labels = chunk.support.shape[1], self._array(chunk.support_labels)
            done = preprocess.run(rows[both], self.task_wise, supports=supports, base_mean=self.base_mean)
            with self.lock:
                self.zero_rows += done.zero_rows
            task = Task(done.x[:, :supports], labels, done.x[:, supports:], self.job.recipe.way, self.base)
        with self._timed("classify"):
            return self.job.method.function(task, **self._hyper(chunk))

    def _fused(self) -> bool:
        """Whether a kernel does all of it: BMS, where the task's rows have one mean or none."""
        return self.job.method.function is bms.bms and self.centring is not None and not self.centring.apart

    def _of_kernel(self) -> tuple[bool, bool]:
        """Whether a kernel centres and normalises Gram matrices; a task's mean goes before its parts', for digits."""
        centre, apart, normalise = self.centring or (False, False, False)
        return centre or apart, normalise and not apart

    def _gram_task(self, matrices: Array, labels: Array) -> GramTask:
        """Make the task of Gram matrices that come from a kernel."""
        if self.centring is not None and self.centring.apart:
            matrices = preprocess.centred_apart(matrices, labels.shape[1], self.centring.normalise)
        return GramTask(matrices, labels, self.job.recipe.way)

    def _hyper(self, chunk: Episodes) -> dict[str, Any]:
        """Hyper-parameters for the episodes of a chunk: an oracle's prior is theirs."""
        hyper = self.job.hyper
        return {**hyper, "prior": true_shares(chunk)} if _prior_is(hyper, "oracle") else hyper


class TorchEngine(Engine):
    """The readable code on torch tensors: any device that torch knows."""

    name = "torch"

    def __init__(self, job: Job, device: str) -> None:
        super().__init__(job, device)
        self.chunk_bytes = 8 << 20 if device == "cpu" else 1 << 30  # a CPU's cache is small

    def _quiet(self) -> AbstractContextManager[object]:
        return nullcontext()

    def _threads(self) -> int:
        return 1  # torch has its own

    def _array(self, values: NDArray[Any]) -> Array:
        import torch

        return torch.from_numpy(np.array(values)).to(self.device)

    def _features(self) -> Array:
        """The bank on the device: it is sent there once, and stays as long as the bank itself."""
        here = _SENT.setdefault(self.job.bank, {})
        if self.device not in here:
            here[self.device] = self._array(self.job.bank.features)
        return here[self.device]


_SENT: WeakKeyDictionary[FeatureBank, dict[str, Array]] = WeakKeyDictionary()


class TritonEngine(TorchEngine):
    """Fused kernels on the GPU, the draw of balanced episodes included."""

    name = "triton"

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether the method needs inner products alone, and the chain and the size allow to make them."""
        if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
            return False
        from sinkshot.kernels import gpu

        way, supports = job.recipe.way, job.recipe.way * job.recipe.shot
        return _by_inner_products(job) and gpu.fits(way, supports, job.rows - supports, job.bank.width)

    def run(self) -> Iterator[Judged]:
        """Yield accuracies [r] chunk by chunk; balanced episodes never leave the device."""
        recipe = self.job.episodes
        same_prior = not _prior_is(self.job.hyper, "oracle", "estimated")
        if not (isinstance(recipe, Recipe) and recipe.protocol == "balanced" and self._fused() and same_prior):
            yield from super().run()
            return
        from sinkshot.kernels import gpu

        with self._timed("prepare"):
            recipe.draw(self.job.bank.labels, 0, 1, self.job.bank.class_names)  # is the recipe possible?
            rows = self._rows()
            order, starts, sizes = (self._array(part) for part in by_class(self.job.bank.labels))
        for first in range(0, recipe.episodes, _ON_DEVICE_AT_ONCE):
            with self._timed("sample"):
                count = min(_ON_DEVICE_AT_ONCE, recipe.episodes - first)
                drawn = gpu.draw_balanced(order, starts, sizes, recipe, first, count)
            with self._timed("classify"):
                right = gpu.accuracy(self._bms(rows, drawn, self.job.hyper), drawn.query_labels)
                result = np.asarray(right.cpu())
            yield result, {}

    def _chunk_size(self) -> int:
        return _DRAWN_AT_ONCE

    def _bms(self, rows: Array, drawn: Any, hyper: dict[str, Any]) -> Array:
        from sinkshot.kernels import gpu

        way, (centre, normalise) = self.job.recipe.way, self._of_kernel()
        settings = bms.decide(way, drawn.support.shape[1], **hyper)
        arrays = (rows, drawn.support, drawn.support_labels, drawn.query)
        return gpu.bms_episodes(*arrays, way=way, centre=centre, normalise=normalise, settings=settings)

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        from sinkshot.kernels import gpu

        names = ("support", "support_labels", "query")
        here = SimpleNamespace(**{name: self._array(getattr(chunk, name)) for name in names})
        hyper = self._hyper(chunk)
        if not self._fused() or _prior_is(hyper, "estimated"):
            with self._timed("prepare"):
                centre, normalise = self._of_kernel()
                both = self._array(np.hstack([chunk.support, chunk.query]))  # [R, N]
                matrices = gpu.gram_matrices(rows, both, centre=centre, normalise=normalise)
                task = self._gram_task(matrices, here.support_labels)
        with self._timed("classify"):
            if not self._fused():
                return self.job.method.function(task, **hyper)
            shares = estimate(task) if _prior_is(hyper, "estimated") else hyper["prior"]
            return Scores(self._bms(rows, here, {**hyper, "prior": shares}))


class NumbaEngine(Engine):
    """Compiled code on the CPU: BMS in one fused pass, other methods of inner products on Gram matrices made by it."""

    name = "numba"

    @classmethod
    def takes(cls, job: Job) -> bool:
        """Whether the method needs inner products alone, and the chain and the size allow to make them."""
        return _by_inner_products(job) and job.rows <= _MOST_ROWS

    @classmethod
    def pays(cls, job: Job) -> bool:
        """Whether the job is long enough to wait for a compiler, should nothing be found on disk."""
        return job.total >= _PAYS_FROM

    def _threads(self) -> int:
        return 1 if self._fused() else super()._threads()  # compiled code has its own

    def _chunk_size(self) -> int:
        """As much as is done in about a second, or as NumPy handles well where it does the rest."""
        job = self.job
        if not self._fused():
            return max(1, min(128, _GRAM_BYTES // (4 * job.rows**2)))
        return max(16, min(1024, _WORK // (job.rows**2 * job.recipe.way * (_epochs(job) + 1))))

    def _rows(self) -> Array:
        from sinkshot.kernels.gram import padded

        rows = padded(super()._rows())
        largest = max(float(rows.max()), -float(rows.min()))
        if not 1e-12 < largest < 1e12:  # their products would leave float32
            raise InputError(_OUT_OF_RANGE)
        return rows

    def _scores(self, rows: Array, chunk: Episodes) -> Scores:
        from sinkshot.kernels import cpu, gram

        way, hyper = self.job.recipe.way, self._hyper(chunk)
        centre, normalise = self._of_kernel()
        if not self._fused() or _prior_is(hyper, "estimated"):
            with self._timed("prepare"):
                both = np.hstack([chunk.support, chunk.query])  # [R, N]
                matrices = gram.gram_matrices(rows, both, centre=centre, normalise=normalise)
                task = self._gram_task(matrices, chunk.support_labels)
        with self._timed("classify"):
            if not self._fused():
                return self.job.method.function(task, **hyper)
            shares = estimate(task) if _prior_is(hyper, "estimated") else hyper["prior"]
            settings = bms.decide(way, chunk.support.shape[1], **{**hyper, "prior": shares})
            arrays = (rows, chunk.support, chunk.support_labels, chunk.query)
            return Scores(cpu.bms_episodes(*arrays, way=way, centre=centre, normalise=normalise, settings=settings))


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Engine, NumbaEngine, TorchEngine, TritonEngine)}
_ON_CPU, _ON_GPU = ("numba", "numpy"), ("triton", "torch")  # by preference


def pick(name: str, device: str, job: Job) -> Engine:
    """Return the engine asked for, or under "auto" the fastest that takes the job on that device."""
    if name != "auto" and name not in ENGINES:
        raise unknown_name("engine", name, ["auto", *ENGINES])
    if device == "auto":
        device = "cuda" if name not in _ON_CPU and _has_gpu() else "cpu"
    if name == "auto" and device not in ("cpu", "cuda") and not device.startswith("cuda:"):
        name = "torch"
    if name == "auto":
        able = [ENGINES[n] for n in (_ON_CPU if device == "cpu" else _ON_GPU) if ENGINES[n].takes(job)]
        name = next(e.name for e in able if e.pays(job))
    elif name == "triton" and importlib.util.find_spec("triton") is None:
        raise InputError("the engine triton needs triton and torch: pip install 'sinkshot[gpu]'.")
    elif not ENGINES[name].takes(job):
        chain = preprocess.spell(job.steps) or "no preprocessing"
        raise InputError(
            f"the engine {name} cannot do {job.method.name} with {chain} on tasks of this kind; leave it to auto."
        )
    if name in _ON_CPU and device != "cpu":
        raise InputError(f"the engine {name} runs on the cpu; the device asked for is {device!r}.")
    if name == "triton" and not device.startswith("cuda"):
        raise InputError(f"the engine triton runs on an NVIDIA GPU (--device cuda); the device is {device!r}.")
    if name not in _ON_CPU:
        _check_torch(device)
    return ENGINES[name](job, device)


def _has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None or importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _check_torch(device: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise InputError("this engine needs torch, which is not installed: pip install 'sinkshot[torch]'.")
    import torch

    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, ImportError) as error:  # NotImplementedError is a RuntimeError
        reason = str(error).split("\n")[0].split(". ")[0].removesuffix(".")  # the rest speaks to makers of torch
        raise InputError(f"torch cannot use the device {device!r} here: {reason}.") from None


def _numpy(array: Array) -> NDArray[Any]:
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu())


def accuracy(scores: Scores, chunk: Episodes) -> NDArray[np.float64]:
    """Share of the queries of known classes that are labelled right, [R]."""
    probabilities = _numpy(scores.probabilities)
    if not np.isfinite(probabilities).all():
        raise InputError(_OUT_OF_RANGE)
    predicted = probabilities.argmax(axis=-1)
    known = chunk.query_labels >= 0
    right = (predicted == chunk.query_labels) & known
    return np.asarray(right.sum(axis=1) / known.sum(axis=1))


def rejection(scores: Scores, chunk: Episodes) -> dict[str, NDArray[np.float64]]:
    """How well unknown queries are told from known ones in each episode, by the measures of `sinkshot.open_set`, [R].

    A method without a score of its own is judged by one minus its largest probability.
    """
    unknown = 1 - _numpy(scores.probabilities).max(axis=-1) if scores.unknown is None else _numpy(scores.unknown)
    return open_set.measures(unknown, chunk.query_labels < 0)
