"""Recipes: how a backbone is trained, as TOML, read with errors that name the key.

A recipe is a short file in `backbones/recipes`, or one of your own, that says what differs from the recipe it
`extends`. `modern` (one stage) and `s2m2` (the two stages of Mangla et al. 2020) say everything.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from sinkshot.errors import InputError, number, shown, unknown_name, whole
from sinkshot.foreign import limits, texts

MOST = 1_000_000  # epochs or episodes, beyond which a number is a mistake
GROUPS = 8
"""A batch is drawn as eight groups that never meet but in batch norm, so 1, 2, 4 or 8 processes can share it."""


@dataclass(frozen=True)
class Augment:
    """Random augmentation of each view, on the device."""

    crop: str = "shift"  # shift: a window of the same scale, moved; resized: a window of random area and ratio
    pad: int = 4  # shift: how many pixels the window may hang over, where the image is reflected
    area: tuple[float, float] = (0.35, 1.0)  # resized: share of the image
    ratio: tuple[float, float] = (0.75, 1.3333)  # resized: width over height
    flip: bool = True
    jitter: float = 0.4  # of brightness, contrast and saturation: factors from 1 - jitter to 1 + jitter
    cutout: int = 0  # side in pixels of a square that is blanked

    def __post_init__(self) -> None:
        _one_of("augment.crop", self.crop, ("shift", "resized"))
        whole("augment.pad", self.pad, 0)
        whole("augment.cutout", self.cutout, 0)
        _between("augment.jitter", self.jitter, 0, 1)
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise InputError(f"augment.area must be a range within (0, 1]; {list(self.area)} was given.")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise InputError(f"augment.ratio must be a range of numbers above 0; {list(self.ratio)} was given.")


@dataclass(frozen=True)
class Head:
    """The cosine classifier: logits are a scale times the cosine of features and a class's weights."""

    scale: float = 10.0
    learn: str = "one"  # one scale for all is learnt, one for each class (weight norm), or none

    def __post_init__(self) -> None:
        number("head.scale", self.scale, above=0)
        _one_of("head.learn", self.learn, ("one", "class", "none"))


@dataclass(frozen=True)
class Views:
    """How many views of each image a step sees, by kind; the first part of a group has the fraction."""

    mixed: float = 1.0  # mixed with another image at a random depth
    plain: float = 0.0
    rotated: float = 1.0  # turned by a random multiple of 90 degrees
    four: float = 0.0  # in all four rotations, so 0.25 adds as many images as 1 of the others

    def __post_init__(self) -> None:
        for kind, share in dataclasses.asdict(self).items():
            number(f"views.{kind}", share, above=-1e-9)
        if not sum(dataclasses.asdict(self).values()):
            raise InputError("views: at least one kind must be above 0.")


@dataclass(frozen=True)
class Loss:
    """Weights of the losses: labels of mixed views, labels of the others, and which way a view is turned."""

    mixed: float = 0.5
    label: float = 0.5
    rotation: float = 0.5

    def __post_init__(self) -> None:
        for kind, weight in dataclasses.asdict(self).items():
            number(f"loss.{kind}", weight, above=-1e-9)


@dataclass(frozen=True)
class Stage:
    """One stage of training: a number of epochs with an optimiser, a schedule and its views."""

    epochs: float = 100.0
    batch: int = 256  # images; a step sees each in all its views
    optimiser: str = "sgd"  # sgd: Nesterov momentum; adam
    rate: float = 0.2  # the highest learning rate
    momentum: float = 0.9
    weight_decay: float = 5e-4  # not of biases, batch norms and scales
    schedule: str = "one-cycle"  # linear up, then down to zero; constant
    warm_up: float = 0.1  # share of the steps
    fall: str = "cosine"  # or linear
    alpha: float = 2.0  # lam ~ Beta(alpha, alpha)
    lam: str = "image"  # drawn for each image, or once for the batch
    views: Views = field(default_factory=Views)
    loss: Loss = field(default_factory=Loss)

    def __post_init__(self) -> None:
        _between("epochs", number("epochs", self.epochs, above=0), 0, MOST)
        number("rate", self.rate, above=0)
        number("weight_decay", self.weight_decay, above=-1e-12)
        number("alpha", self.alpha, above=0)
        _between("momentum", self.momentum, 0, 0.9999)
        _between("warm_up", self.warm_up, 0, 1)
        _one_of("optimiser", self.optimiser, ("sgd", "adam"))
        _one_of("schedule", self.schedule, ("one-cycle", "constant"))
        _one_of("fall", self.fall, ("cosine", "linear"))
        _one_of("lam", self.lam, ("image", "batch"))
        _up_to("batch", whole("batch", self.batch, 2 * GROUPS), limits.BATCH.value)
        group = self.batch // GROUPS
        if self.batch % GROUPS:
            raise InputError(
                f"batch must be a multiple of {GROUPS}, so that processes can share it; {self.batch} was given."
            )
        for kind, share in dataclasses.asdict(self.views).items():
            if abs(share * group - round(share * group)) > 1e-6:
                raise InputError(
                    f"views.{kind} = {share:g} of a batch of {self.batch} is not a whole number in each of its "
                    f"{GROUPS} groups; use a batch that is a multiple of {GROUPS} / {share:g}."
                )


@dataclass(frozen=True)
class Validation:
    """Few-shot accuracy on the validation classes, the mean over methods and shots, decides which weights are best."""

    every: float = 10.0  # epochs
    episodes: int = 1000
    methods: tuple[str, ...] = ("bms-star", "ncm")
    shots: tuple[int, ...] = (1, 5)
    preprocess: str = "PEMnE"

    def __post_init__(self) -> None:
        _between("validation.every", number("validation.every", self.every, above=0), 1e-3, MOST)
        _up_to("validation.episodes", whole("validation.episodes", self.episodes, 2), MOST)
        for shot in self.shots:
            _up_to("validation.shots", whole("validation.shots", shot, 1), MOST)
        if not self.methods or not self.shots:
            raise InputError("validation needs at least one method and one shot.")


@dataclass(frozen=True)
class TrainingRecipe:
    """Everything that determines a training run except the images."""

    network: str
    options: dict[str, Any] = field(default_factory=dict)  # of the network, see `networks.build`
    size: int = 32  # pixels the network sees
    stored: int = 32  # pixels that are kept of each image, to crop from
    seed: int = 0
    precision: str = "auto"  # bf16 (with float32 weights) on a GPU and float32 on a CPU; or bf16, float32
    compile: str = "auto"  # on a GPU; or yes, no
    ema: float = 0.0  # decay of an average of the weights, which is then what is validated and kept; 0: none
    seconds: float = 0.0  # if above 0, epochs are scaled so that training takes about as long
    augment: Augment = field(default_factory=Augment)
    head: Head = field(default_factory=Head)
    validation: Validation = field(default_factory=Validation)
    stage: dict[str, Stage] = field(default_factory=dict)  # by name, in order

    def __post_init__(self) -> None:
        _up_to("size", whole("size", self.size, 8), limits.SIDE.value)
        _up_to("stored", whole("stored", self.stored, 8), limits.SIDE.value)
        whole("seed", self.seed, 0)
        number("seconds", self.seconds, above=-1e-9)
        _between("ema", self.ema, 0, 0.999999)
        _one_of("precision", self.precision, ("auto", "bf16", "float32"))
        _one_of("compile", self.compile, ("auto", "yes", "no"))
        if not self.stage:
            raise InputError("a recipe needs at least one [stage.NAME].")
        for name, stage in self.stage.items():
            _must_fit(name, stage.batch * max(self.stored, self.size) ** 2 * 3)
        if self.augment.crop == "shift" and self.augment.pad >= min(self.stored, self.size):
            raise InputError(f"augment.pad = {self.augment.pad} must be smaller than images of {self.stored} pixels.")

    def table(self) -> dict[str, Any]:
        """Return the recipe as plain values, from which `from_table` makes it again."""
        return dataclasses.asdict(self)


def names() -> tuple[str, ...]:
    """Return the names of the recipes that come with the package."""
    return tuple(sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml")))


def read(recipe: str | Path, changes: Mapping[str, Any] | None = None) -> TrainingRecipe:
    """Read a recipe by its name or from a file, with some keys changed (`{"stage.train.epochs": 5}`)."""
    table = _table(recipe, ())
    for path, value in (changes or {}).items():
        _put(table, path, value)
    return from_table(table)


def from_table(table: Mapping[str, Any]) -> TrainingRecipe:
    """Make a recipe from plain values; an unknown key or a value of the wrong kind is named."""
    if "network" not in table:
        raise InputError('the recipe names no network; write, for example, network = "wrn-28-10", or use --network.')
    found: TrainingRecipe = _made(TrainingRecipe, table, "")
    return found


def _folder() -> Any:
    return resources.files("sinkshot.backbones") / "recipes"


def _table(recipe: str | Path, above: tuple[str, ...]) -> dict[str, Any]:
    """Read a recipe's file and lay it over the one that it extends."""
    name = str(recipe)
    if name in above:
        raise InputError(f"the recipe {name!r} extends itself, through {' and '.join(above)}.")
    if name.endswith(".toml"):
        if not Path(name).exists():
            raise InputError(f"there is no recipe file {name}; bundled recipes: {', '.join(names())}.")
        content = _own_file(name)
    elif name in names():
        content = (_folder() / f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise unknown_name("recipe", name, names())
    try:
        table = texts.toml(content)
    except ValueError as error:  # of tomllib, or what goes beyond our limits
        raise InputError(f"the recipe {name} is not valid TOML: {error}") from error
    under = table.pop("extends", None)
    if under is not None and not isinstance(under, str):
        raise InputError(f"the recipe {name} extends {shown(under)}; expected the name of a recipe.")
    if len(above) > limits.DEPTH.value:
        raise InputError(f"the recipe {name} extends too many recipes, one after the other.")
    return table if under is None else _laid(table, _table(under, (*above, name)))


def _own_file(name: str) -> str:
    try:
        return texts.text(name, limits.TOML)
    except InputError as error:
        raise InputError(f"the recipe {name} is not valid TOML: {error}") from error
    except OSError as error:
        raise InputError(f"the recipe {name} cannot be read: {error.strerror or error}.") from error


def _laid(upper: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    """Return `under` with the values of `upper`, table by table."""
    both = dict(under)
    for key, value in upper.items():
        beneath = both.get(key)
        both[key] = _laid(value, beneath) if isinstance(value, Mapping) and isinstance(beneath, Mapping) else value
    return both


def _put(table: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        if not isinstance(table.setdefault(key, {}), dict):
            raise InputError(f"{path}: {key!r} is not a table of the recipe.")
        table = table[key]
    table[last] = value


def _made(kind: type, table: Any, place: str) -> Any:
    """Make a dataclass of `table`, whose place in the recipe is `place`."""
    if not isinstance(table, Mapping):
        raise InputError(f"the recipe's {place or 'whole'} must be a table; {shown(table)} was given.")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in table.items():
        where = f"{place}.{key}" if place else key
        if key not in fields:
            raise unknown_name(f"key of the recipe{f' in [{place}]' if place else ''}", key, fields)
        values[key] = _value(hints[key], value, where)
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"the recipe's [{place}]: {error}" if place.startswith("stage.") else str(error)) from error


def _value(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _made(kind, value, where)  # type: ignore[arg-type]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InputError(f"the recipe's {where} must be a table; {shown(value)} was given.")
        if inner[1] is Any:
            return dict(value)
        return {name: _value(inner[1], entry, f"{where}.{name}") for name, entry in value.items()}
    if origin is tuple:
        fixed = None if inner[-1] is Ellipsis else len(inner)
        if not isinstance(value, list | tuple) or fixed not in (None, len(value)):
            raise InputError(
                f"the recipe's {where} must be a list{f' of {fixed}' if fixed else ''}; {shown(value)} was given."
            )
        return tuple(_value(inner[0], entry, where) for entry in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        word = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}[kind]
        raise InputError(f"the recipe's {where} must be {word}; {shown(value)} was given.")
    return value


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise unknown_name(name, value, known)


def _up_to(name: str, value: int, most: int) -> None:
    if value > most:
        raise InputError(f"{name} is {shown(value)}; {most:,} is the most.")


def _must_fit(stage: str, size: int) -> None:
    """Refuse a batch whose pixels alone take too much memory."""
    most = limits.max_memory() or limits.PIXELS_OF_A_BATCH.value
    if size > most:
        raise InputError(
            f"the recipe's [stage.{stage}]: the pixels of a batch take {limits.amount(size)}, more than "
            f"{limits.amount(most)}; use a smaller batch or size, or allow it with --max-memory."
        )


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}; {shown(value)} was given.")
