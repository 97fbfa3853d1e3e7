"""Settle a cell: everything that decides its numbers, with nothing left to choose, as a key for the store.

Two runs share a result if and only if they settle a cell in the same way: bank content, recipe, method, chain, every
hyper-parameter, engine, and the sources that can change a number.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sinkshot import __version__, methods, preprocess
from sinkshot.bank import FeatureBank
from sinkshot.engines import ENGINES, Job, pick
from sinkshot.errors import InputError
from sinkshot.evaluate import resolve_job
from sinkshot.methods import bms
from sinkshot.query_sizes import ALPHA
from sinkshot.studies.study import Cell

_NOT_FOLLOWED = {  # lists of others: what they hold is followed where it is used, or shows in a bank's content
    "sinkshot",
    "sinkshot.methods",
    "sinkshot.formats",
    "sinkshot.studies.catalogue",
    "sinkshot.studies.study",
}


@dataclass(frozen=True)
class Settled:
    """A cell whose numbers are decided. `key` is its place in the store; only the number of episodes is not in it."""

    cell: Cell
    preprocess: str
    hyper: tuple[tuple[str, Any], ...]  # all of them, sorted by name
    engine: str
    device: str
    bank_hash: str
    base: str | None  # a digest of what is used of the base classes
    version: str
    effort: float  # of an episode, beside other cells of the method

    @property
    def settings(self) -> str:
        """What a person sets, as canonical JSON."""
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
                "base": self.base,
            }
        )

    @property
    def key(self) -> tuple[str, int, str, str, str]:
        """Settings, seed, bank, engine and version: equal keys, equal numbers."""
        return self.settings, self.cell.recipe.seed, self.bank_hash, self.engine, self.version


def canonical(value: Any) -> str:
    """Write JSON that is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise InputError(f"a hyper-parameter is a number, a text or a list of them; {value!r} was given.")


def settle(
    cell: Cell, bank: FeatureBank, bank_hash: str, base: FeatureBank | None, device: str, elsewhere: bool
) -> Settled:
    """Check a cell on its bank and decide what it leaves open; an InputError says why it cannot be measured.

    `elsewhere` says that other machines will compute, whose devices cannot be looked at from here.
    """
    job, _ = resolve_job(bank, cell.recipe, cell.method, cell.preprocess, base, dict(cell.hyper))
    cell.recipe.draw(bank.labels, 0, 1, bank.class_names)
    engine, device = _engine(job, device, elsewhere)
    return Settled(
        cell=cell,
        preprocess=preprocess.spell(job.steps),
        hyper=tuple(sorted(job.hyper.items())),
        engine=engine,
        device=device,
        bank_hash=bank_hash,
        base=_base_digest(job),
        version=code_version(cell.method),
        effort=_effort(job),
    )


def lacks_base(cell: Cell, bank: FeatureBank) -> bool:
    """Whether a cell can use features of the base classes: those themselves, or a mean that its bank does not hold."""
    method = methods.get(cell.method)
    steps = preprocess.parse(method.preprocess if cell.preprocess is None else cell.preprocess)
    before = [preprocess.spell(steps[:position]) for position, step in enumerate(steps) if step.name == "Mb"]
    return method.features or any(prefix not in bank.base for prefix in before)


def _engine(job: Job, device: str, elsewhere: bool) -> tuple[str, str]:
    """Choose once for the whole cell, so that no part of it is computed in another way."""
    if elsewhere and device not in ("auto", "cpu"):
        names = ("triton", "torch") if device.startswith("cuda") else ("torch",)
        return next(name for name in names if ENGINES[name].takes(job)), device
    chosen = pick("auto", "cpu" if elsewhere else device, job)
    return chosen.name, chosen.device


def _base_digest(job: Job) -> str | None:
    """Digest of the means, or the whole bank, of the base classes that the job uses."""
    means = preprocess.base_mean_of(job.means, job.base)
    used = [job.base.content_hash().encode()] if job.base is not None and job.method.features else []
    for position, step in enumerate(job.steps):
        if step.name == "Mb":
            used.append(means(job.steps[:position]).tobytes())
    return hashlib.sha256(b"".join(used)).hexdigest()[:16] if used else None


def _effort(job: Job) -> float:
    """How much work an episode is, roughly: only the time left is foretold by it."""
    if job.method.function is not bms.bms:
        return float(job.rows)
    epochs = job.hyper["epochs"]
    if not isinstance(epochs, int):
        epochs = 40 if job.recipe.shot > 1 else 0 if job.hyper["prior"] is None else 20
    return float(job.rows**2 * job.recipe.way * (epochs + 5))


# --- the version of the code ----------------------------------------------------------------------------------------


@lru_cache
def code_version(method: str) -> str:
    """Return the package's version and a digest of the sources that can change a number of this method.

    They are found by following imports from the evaluation and from the method. So a new method beside it, or another
    page, leaves results valid; an edit in what computes them does not.
    """
    function = methods.get(method).function
    sources: dict[str, bytes] = {}
    if not function.__module__.startswith("sinkshot."):  # a person's own method
        sources[function.__module__] = Path(inspect.getsourcefile(function) or os.devnull).read_bytes()
    return _version({"sinkshot.studies.random_coordinates", function.__module__}, sources)


@lru_cache
def facts_version() -> str:
    """Return the same for facts about features."""
    return _version({"sinkshot.studies.measures", "sinkshot.studies.random_coordinates"}, {})


def _version(names: set[str], sources: dict[str, bytes]) -> str:
    while names:
        name = names.pop()
        file = _file(name)
        if file is not None and name not in sources:
            sources[name], imported = _read(file)
            names |= imported
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(name.encode() + b"\0" + sources[name].replace(b"\r\n", b"\n") + b"\0")
    return f"{__version__}+{digest.hexdigest()[:12]}"


def _file(module: str) -> Path | None:
    """Return the file of a module of this package; None for a name in a module, or a module of others."""
    package, *rest = module.split(".")
    place = Path(__file__).parents[1].joinpath(*rest)
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.is_file()), None) if package == "sinkshot" and rest else None


@lru_cache
def _read(file: Path) -> tuple[bytes, frozenset[str]]:
    """Return a source, and what it imports from this package anywhere in its code, names in modules among it."""
    source, imported = file.read_bytes(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return source, frozenset(name for name in imported if name.startswith("sinkshot.")) - _NOT_FOLLOWED
