"""The list of public names: everything in `sinkshot.__all__`, and the modules that people import from."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import sinkshot

GROUPS = {
    "Features": ["FeatureBank", "load"],
    "Episodes": ["Recipe", "draw", "Episodes"],
    "Evaluation": ["evaluate", "Result", "compare", "Paired", "tune"],
    "Labelling": ["label", "Labelled"],
    "Classifiers": [],  # estimators, as `sinkshot.estimators` lists them
    "Methods": ["METHODS", "register", "Task", "Scores"],
    "Errors and warnings": ["InputError", "DataWarning"],
}
MODULES = {
    "sinkshot.preprocess": ("Preprocessing chains", ["apply", "parse", "spell", "run", "Prepared", "Step"]),
    "sinkshot.methods": ("The registry of methods", ["Method", "get"]),
    "sinkshot.open_set": ("Open-set measures", ["auroc", "aupr", "fpr_at_tpr"]),
    "sinkshot.calibration": ("Calibration, risk and coverage", ["Confidence"]),
    "sinkshot.tuning": ("What a search returns", ["Tuned", "Candidate"]),
}
DATA = {
    "METHODS": "Every registered method by its name: a dictionary of :class:`~sinkshot.methods.Method`. "
    "The :doc:`pages of the methods </methods/index>` describe them.",
}
HEAD = """\
API reference
=============

What ``import sinkshot`` gives, and modules with further public names. Names that begin with an underscore, and
modules that are not listed here, may change in any release.
"""


def groups() -> dict[str, list[str]]:
    """Return the public names by group; a name that no group claims comes last."""
    estimators = importlib.import_module("sinkshot.estimators").__all__
    classifiers = [name for name in sinkshot.__all__ if name in estimators]
    claimed = {name for names in GROUPS.values() for name in names} | set(classifiers)
    rest = [name for name in sinkshot.__all__ if name not in claimed]
    return {**GROUPS, "Classifiers": classifiers, **({"More": rest} if rest else {})}


def public_names() -> list[str]:
    """Return the full name of everything that the reference describes, data aside."""
    names = [f"sinkshot.{name}" for found in groups().values() for name in found if name not in DATA]
    return names + [f"{module}.{name}" for module, (_, found) in MODULES.items() for name in found]


def write(folder: Path) -> None:
    """Write `index.rst` into a folder, unless it is there already, word for word."""
    folder.mkdir(exist_ok=True)
    parts = [HEAD, *(_section(title, "sinkshot", names) for title, names in groups().items())]
    for module, (title, names) in MODULES.items():
        about = (inspect.getdoc(importlib.import_module(module)) or "").split("\n\n")[0]
        parts.append(_section(title, module, names, f"``{module}``: {' '.join(about.split())}"))
    text, file = "\n".join(parts), folder / "index.rst"
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def _section(title: str, module: str, names: list[str], about: str = "") -> str:
    lines = [title, "-" * len(title), "", *([about, ""] if about else []), f".. currentmodule:: {module}", ""]
    for name in names:
        if name in DATA:
            lines += [f".. py:data:: {name}", "", f"   {DATA[name]}", ""]
    listed = [name for name in names if name not in DATA]
    lines += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
    return "\n".join([*lines, *(f"   {name}" for name in listed), ""])
