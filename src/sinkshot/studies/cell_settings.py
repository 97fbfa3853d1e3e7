"""Settings of cells: which there are, their checks, and how merged settings become a cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args

from sinkshot import methods, preprocess
from sinkshot.episodes import PROTOCOLS, Recipe
from sinkshot.errors import InputError
from sinkshot.methods import bms
from sinkshot.metrics import Metric
from sinkshot.open_set import OPEN_SET
from sinkshot.studies.study import BankKey, Cell
from sinkshot.studies.toml_positions import Path
from sinkshot.studies.toml_schema import NAME, NAMES, TABLE, TEXT, Document, ValueType, integer, one_of, real

BANK: dict[str, ValueType] = {
    "data_set": NAME,
    "backbone": NAME,
    "backbones": NAMES,
    "split": NAME,
    "trained_on": NAME,
    "coordinates": integer(1),
    "selections": integer(1),
}
SETTINGS: dict[str, ValueType] = BANK | {
    "protocol": one_of(tuple(PROTOCOLS)),
    "way": integer(2),
    "shot": integer(1),
    "query": integer(1),
    "episodes": integer(1),
    "most": integer(1),
    "seed": integer(0),
    "alpha": real("above 0", lambda alpha: alpha > 0),
    "ratio": real("of at least 1", lambda ratio: ratio >= 1),
    "method": NAME,
    "method_if_known": NAME,
    "preprocess": TEXT,
    "set": TABLE,
    "metric": one_of(get_args(Metric)),
}

_PLAIN = (bool, int, float, str)
_HYPER = ValueType(
    "a number, a string, true or false, or a list of these",
    lambda value: all(isinstance(v, _PLAIN) for v in (value if isinstance(value, list) else [value])),
)

LocatedSettings = dict[str, tuple[Any, Path]]
"""Each setting with its position in the file. Hyper-parameters are settings called `set.<name>`."""


def collect(
    document: Document, table: Mapping[str, Any], path: Path, known: Mapping[str, ValueType], what: str
) -> LocatedSettings:
    """Check a table and return those of its keys that are settings."""
    document.check(table, path, known, what)
    for one, other in (("backbone", "backbones"), ("method", "method_if_known")):
        if one in table and other in table:
            raise document.error((*path, other), f"give {one} or {other}, not both.")
    found: LocatedSettings = {}
    for key, given in table.items():
        if key not in SETTINGS:
            continue
        where = (*path, key)
        match key:
            case "set":
                for name, value in given.items():
                    if not _HYPER.fits(value):
                        raise document.error((*where, name), f"{name} must be {_HYPER.wanted}.")
                    found[f"set.{name}"] = (frozen(value), (*where, name))
            case "backbone":
                found["backbones"] = ((given,), where)
            case "backbones":
                found["backbones"] = (tuple(given), where)
            case "method_if_known":
                found["method"] = (given if given in methods.METHODS else None, where)
            case _:
                _understood(document, key, given, where)
                found[key] = (given, where)
    return found


def _understood(document: Document, key: str, given: Any, where: Path) -> None:
    """Check that a method is registered and that a preprocessing string is valid."""
    if key == "method" and given not in methods.METHODS:
        advice = "For a method of your own, name its file: --plugin FILE.py."
        raise document.unknown(where, f"there is no method {given!r}", given, sorted(methods.METHODS), advice)
    if key == "preprocess":
        try:
            preprocess.parse(given)
        except InputError as error:
            raise document.error(where, str(error)) from error


def cell(document: Document, settings: LocatedSettings, path: Path) -> Cell | None:
    """Make a cell from settings; None if they name no method."""
    given = {key: setting for key, (setting, _) in settings.items()}
    name = given.get("method")
    if name is None:
        return None
    hyper = {key.removeprefix("set."): v for key, v in given.items() if key.startswith("set.")}
    known = methods.get(name).hyper
    for key in hyper:
        if key not in known:
            where = settings[f"set.{key}"][1]
            raise document.unknown(where, f"{name} has no hyper-parameter {key!r}", key, list(known))
    recipe = Recipe(**{f.name: given[f.name] for f in fields(Recipe) if f.name in given})
    if hyper and methods.get(name).fused == "bms":
        _check_bms(document, settings, methods.get(name).bind(hyper), recipe, path)
    metric = given.get("metric", "accuracy")
    if metric in OPEN_SET and recipe.protocol != "open-set":
        raise document.error(
            settings["metric"][1],
            f'{metric} needs queries of unknown classes; add protocol = "open-set".',
        )
    most = given.get("most", recipe.episodes)
    recipe = replace(recipe, episodes=min(most, recipe.episodes))
    features, chain = bank(document, settings, path), given.get("preprocess")
    return Cell(features, recipe, name, chain, tuple(sorted(hyper.items())), given.get("most"))


def _check_bms(
    document: Document, settings: LocatedSettings, hyper: dict[str, Any], recipe: Recipe, path: Path
) -> None:
    """Check hyper-parameters of BMS; other methods check theirs when they run."""
    known = "balanced" if hyper["prior"] in ("oracle", "estimated") else hyper["prior"]
    try:
        bms.decide(recipe.way, recipe.way * recipe.shot, **{**hyper, "prior": known})
    except InputError as error:
        named = next((f"set.{key}" for key in hyper if f"set.{key}" in settings and key in str(error).split()), None)
        raise document.error(path if named is None else settings[named][1], str(error)) from error


def lacking(settings: LocatedSettings) -> bool:
    """Whether settings have a hyper-parameter that the method does not."""
    known = methods.get(settings["method"][0]).hyper
    return any(key.startswith("set.") and key.removeprefix("set.") not in known for key in settings)


def too_few_shots(settings: LocatedSettings) -> bool:
    """Whether the method needs more supports of each class than the episodes have."""
    name = settings.get("method", (None, ()))[0]
    shot = settings.get("shot", (Recipe().shot, ()))[0]
    return name is not None and bool(methods.get(name).least_shots > shot)


def bank(document: Document, settings: LocatedSettings, path: Path) -> BankKey:
    """Make the key of a bank from settings."""
    given = {key: setting for key, (setting, _) in settings.items()}
    for key, word in (("data_set", "data_set"), ("backbones", "backbone")):
        if key not in given:
            raise document.error(path, f"no {word} is given; name one here, or in [defaults] for all cells.")
    origin = given.get("trained_on")
    return BankKey(
        given["data_set"],
        given["backbones"],
        given.get("split", "novel"),
        None if origin == given["data_set"] else origin,
        given.get("coordinates"),
        given.get("selections", 1),
    )


def frozen(given: Any) -> Any:
    """Turn lists into tuples, so that cells are hashable."""
    return tuple(map(frozen, given)) if isinstance(given, list) else given
