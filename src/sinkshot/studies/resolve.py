"""Resolve the cells of studies on the banks at hand: find their features, and decide everything a cell leaves open.

Two runs share a stored result if and only if their cells resolve to the same key: bank content, recipe, method,
preprocessing, every hyper-parameter, engine, and the code that can change a number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sinkshot import methods, preprocess
from sinkshot.bank import FeatureBank
from sinkshot.engines import ENGINES, Job, pick
from sinkshot.engines.fused_kernels import KERNELS
from sinkshot.errors import InputError
from sinkshot.evaluate import resolve_job
from sinkshot.query_sizes import ALPHA
from sinkshot.studies.bank_source import BankSource, find_bank
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.code_version import code_version
from sinkshot.studies.random_coordinates import selected
from sinkshot.studies.study import BankKey, Cell, Study

CellKey = tuple[str, int, str, str, str]
"""Settings, seed, bank content, engine and code version of a cell: equal keys, equal numbers."""


@dataclass(frozen=True)
class ResolvedCell:
    """A cell with all its settings decided, and where its features are."""

    cell: Cell
    bank: BankSource
    base: BankSource | None  # features of the base classes, if it needs them
    base_hash: str | None  # of what it uses of the base classes
    preprocess: str
    hyper: tuple[tuple[str, Any], ...]  # all of them, sorted by name
    engine: str
    device: str
    version: str  # of the code
    effort: float  # of an episode, relative to other cells of the method

    @property
    def episodes(self) -> int:
        """The number of episodes asked for; not part of the key."""
        return self.cell.recipe.episodes

    @property
    def settings(self) -> str:
        """What a user sets, as canonical JSON."""
        recipe = asdict(self.cell.recipe)
        alpha, ratio = float(recipe.pop("alpha")), float(recipe.pop("ratio"))
        del recipe["episodes"], recipe["seed"]
        if recipe["protocol"] == "dirichlet" and alpha != ALPHA:  # older results have no alpha, and it was this one
            recipe["alpha"] = alpha
        if recipe["protocol"] == "long-tail":
            recipe["ratio"] = ratio
        return canonical(
            {
                "bank": asdict(self.cell.bank),
                "recipe": recipe,
                "method": self.cell.method,
                "preprocess": self.preprocess,
                "hyper": dict(self.hyper),
                "base": self.base_hash,
            }
        )

    @property
    def key(self) -> CellKey:
        """Where its numbers are in the store."""
        return self.settings, self.cell.recipe.seed, self.bank.content, self.engine, self.version


def resolve(
    studies: Iterable[Study], catalogue: Catalogue, device: str, on_cluster: bool
) -> tuple[dict[Cell, ResolvedCell], list[str]]:
    """Resolve every cell that can be measured, bank by bank; the sentences say what cannot, and why.

    With `on_cluster`, other machines compute, whose devices cannot be queried from here.
    """
    cells: dict[BankKey, list[Cell]] = {}
    for cell in dict.fromkeys(cell for study in studies for cell in study.cells()):
        cells.setdefault(without_selection(cell.bank), []).append(cell)
    resolved: dict[Cell, ResolvedCell] = {}
    sentences: dict[str, None] = {}  # each once, in order
    for key, of_bank in cells.items():
        try:
            source = find_bank(key, catalogue)
            source.open()
        except InputError as error:
            sentences[str(error)] = None
            continue
        for cell in of_bank:
            try:
                resolved[cell] = _resolve(cell, source, catalogue, device, on_cluster)
            except InputError as error:
                chain = "" if cell.preprocess is None else f" with {cell.preprocess or 'no preprocessing'}"
                sentences[f"{cell.method}{chain} cannot be measured on {cell.bank}: {error}"] = None
    return resolved, list(sentences)


def distinct(cells: Iterable[ResolvedCell]) -> list[ResolvedCell]:
    """Return each key once, with the most episodes that any table asks for."""
    found: dict[CellKey, ResolvedCell] = {}
    for cell in cells:
        known = found.get(cell.key)
        if known is None or known.episodes < cell.episodes:
            found[cell.key] = cell
    return list(found.values())


def without_selection(key: BankKey) -> BankKey:
    """Return the key of the bank that coordinates are selected from."""
    return replace(key, coordinates=None, selections=1)


def base_key(key: BankKey) -> BankKey:
    """Return the key of the base classes' features: of the data set that the backbone was trained on."""
    return BankKey(key.trained_on or key.data_set, key.backbones, "base")


def canonical(value: Any) -> str:
    """Write JSON that is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise InputError(f"a hyper-parameter must be a number, a string or a list of them; {value!r} was given.")


def _resolve(cell: Cell, source: BankSource, catalogue: Catalogue, device: str, on_cluster: bool) -> ResolvedCell:
    """Check a cell on its bank and decide what it leaves open; an InputError says why it cannot be measured."""
    seed = cell.recipe.seed
    bank = selected(source.open(), cell.bank, seed)
    base, no_base = None, ""
    if needs_base(cell, bank):
        try:
            base = find_bank(base_key(cell.bank), catalogue)
        except InputError as error:
            no_base = f" {error}"
    base_bank = None if base is None else selected(base.open(), cell.bank, seed)
    try:
        job, _ = resolve_job(bank, cell.recipe, cell.method, cell.preprocess, base_bank, dict(cell.hyper))
        cell.recipe.draw(bank.labels, 0, 1, bank.class_names)
        engine, device = _engine(job, device, on_cluster)
        base_hash = _base_hash(job)
    except InputError as error:
        raise InputError(f"{error}{no_base}") from None
    return ResolvedCell(
        cell=cell,
        bank=source,
        base=base,
        base_hash=base_hash,
        preprocess=preprocess.spell(job.steps),
        hyper=tuple(sorted(job.hyper.items())),
        engine=engine,
        device=device,
        version=code_version(cell.method),
        effort=_effort(job),
    )


def needs_base(cell: Cell, bank: FeatureBank) -> bool:
    """Whether a cell uses features of the base classes, or a mean of theirs that its bank does not hold."""
    method = methods.get(cell.method)
    if cell.preprocess is None and method.with_base:
        return True
    steps = preprocess.parse(method.preprocess if cell.preprocess is None else cell.preprocess)
    before = [preprocess.spell(steps[:position]) for position, step in enumerate(steps) if step.name == "Mb"]
    features = method.features or preprocess.needs_base_features(steps)
    return features or any(prefix not in bank.base for prefix in before)


def _engine(job: Job, device: str, on_cluster: bool) -> tuple[str, str]:
    """Choose engine and device once for the whole cell, so that all its chunks are computed the same way."""
    if on_cluster and device not in ("auto", "cpu"):
        names = ("triton", "torch") if device.startswith("cuda") else ("torch",)
        return next(name for name in names if ENGINES[name].takes(job)), device
    chosen = pick("auto", "cpu" if on_cluster else device, job)
    return chosen.name, chosen.device


def _base_hash(job: Job) -> str | None:
    """Hash the means of the base classes, or the whole bank of them, that the job uses."""
    statistics = preprocess.base_statistics(job.means, job.base)
    features = job.method.features or preprocess.needs_base_features(job.steps)
    used = [job.base.content_hash().encode()] if job.base is not None and features else []
    for position, step in enumerate(job.steps):
        if step.name == "Mb":
            used.append(statistics.mean(job.steps[:position]).tobytes())
    return hashlib.sha256(b"".join(used)).hexdigest()[:16] if used else None


def _effort(job: Job) -> float:
    """Estimate the work of an episode; used only to predict the remaining time."""
    kernel = KERNELS.get(job.method.fused)
    if kernel is None:
        return float(job.rows)
    return float(job.rows**2 * job.recipe.way * (kernel.products(job) + 4))
