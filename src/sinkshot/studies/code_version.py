"""The version of the code behind a number: the package's version and a digest of the sources that decide it.

The sources are found by following imports from the evaluation and from the method. So a new method, or a change to a
page, leaves stored results valid; an edit in what computes them does not.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from sinkshot import __version__, methods
from sinkshot.methods.plugins import Plugin, plugin_of

_NOT_FOLLOWED = {  # mere lists: what they name is followed where it is used, or is part of a bank's content hash
    "sinkshot",
    "sinkshot.methods",
    "sinkshot.formats",
    "sinkshot.studies.catalogue",
    "sinkshot.studies.study",
}


def code_version(method: str) -> str:
    """Return the version of all code that can change a number of this method."""
    return _of_function(methods.get(method).function, plugin_of(method))


@lru_cache
def _of_function(function: Callable[..., Any], plugin: Plugin | None) -> str:
    sources: dict[str, bytes] = {}
    if plugin is not None:
        sources[plugin.module] = plugin.source.encode()
    elif not function.__module__.startswith("sinkshot."):  # a user's own method
        sources[function.__module__] = Path(inspect.getsourcefile(function) or os.devnull).read_bytes()
    return _version({"sinkshot.studies.random_coordinates", function.__module__}, sources)


@lru_cache
def facts_version() -> str:
    """Return the version of the code that measures facts about features."""
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
    """Return the file of a module of this package; None if it is a name inside a module, or not ours."""
    package, *rest = module.split(".")
    place = Path(__file__).parents[1].joinpath(*rest)
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.is_file()), None) if package == "sinkshot" and rest else None


@lru_cache
def _read(file: Path) -> tuple[bytes, frozenset[str]]:
    """Return a source and everything it imports from this package, at any depth of its code."""
    source, imported = file.read_bytes(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return source, frozenset(name for name in imported if name.startswith("sinkshot.")) - _NOT_FOLLOWED
