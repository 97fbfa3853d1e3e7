"""Methods from outside the package: files that the user names, and packages with the entry point `sinkshot.methods`.

A plugin is a Python file that calls `sinkshot.register`. It runs with all rights of the user, so nothing is searched
for: a file runs only if it is named (`--plugin FILE.py`), and an entry point only of a package that is installed. The
source travels with the work to other processes and machines, so that all of them run the same.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import traceback
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from sinkshot.errors import InputError
from sinkshot.methods.registry import METHODS

ENTRY_POINTS = "sinkshot.methods"


@dataclass(frozen=True)
class Plugin:
    """The source of a plugin, and the file that it was read from."""

    file: str
    source: str

    @property
    def module(self) -> str:
        """The name of its module; another source has another."""
        return f"sinkshot_plugin_{hashlib.sha256(self.source.encode()).hexdigest()[:16]}"


_LOADED: dict[str, Plugin] = {}  # by module


def load_file(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Run a plugin and return the names of the methods that it registers; one that has run does not run again.

    Parameters
    ----------
    path : path
        A Python file.
    """
    file = Path(os.fsdecode(path))
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"{file} is not a Python file; --plugin takes a file that registers methods, such as own.py.")
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the plugin {file}: {error}.") from error
    return load(Plugin(str(file.resolve()), source))


def load(plugin: Plugin) -> tuple[str, ...]:
    """Run the source of a plugin unless it has run in this process; return the names of its methods."""
    if plugin.module not in _LOADED:
        _forget(plugin.file)
        before = dict(METHODS)
        module = ModuleType(plugin.module)
        module.__file__ = plugin.file
        sys.modules[plugin.module] = module
        try:
            exec(compile(plugin.source, plugin.file, "exec"), module.__dict__)
        except BaseException as error:
            METHODS.clear()
            METHODS.update(before)
            del sys.modules[plugin.module]
            if not isinstance(error, Exception):
                raise
            raise InputError(f"the plugin {plugin.file} failed{_line(error, plugin.file)}: {error}") from error
        if len(METHODS) == len(before):
            raise InputError(
                f"the plugin {plugin.file} registers no method; decorate a function with @sinkshot.register."
            )
        lines = plugin.source.splitlines(keepends=True)
        linecache.cache[plugin.file] = (len(plugin.source), None, lines, plugin.file)
        _LOADED[plugin.module] = plugin
    return tuple(name for name, method in METHODS.items() if method.function.__module__ == plugin.module)


def _forget(file: str) -> None:
    """Remove the methods of an earlier version of a plugin: a worker of a cluster outlives an edit."""
    for module in [module for module, plugin in _LOADED.items() if plugin.file == file]:
        for name in [name for name, method in METHODS.items() if method.function.__module__ == module]:
            del METHODS[name]
        del _LOADED[module], sys.modules[module]


def _line(error: Exception, file: str) -> str:
    """Return the line of a plugin in which an error happened, and its kind unless it is a sentence of ours."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    kind = "" if isinstance(error, InputError) else f" with {type(error).__name__}"
    return kind + (f" in line {line}" if line else "")


def plugin_of(method: str) -> Plugin | None:
    """Return the plugin that registered a method; None for one of this package or of an installed one."""
    found = METHODS.get(method)
    return None if found is None else _LOADED.get(found.function.__module__)


@cache
def load_entry_points() -> tuple[str, ...]:
    """Import the entry points `sinkshot.methods` of installed packages, once; return the names of new methods."""
    before = set(METHODS)
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist is not None else "a package"
            raise InputError(
                f"the entry point {point.name} ({ENTRY_POINTS}) of {package} failed: {type(error).__name__}: {error}. "
                "Repair or uninstall that package."
            ) from error
    return tuple(name for name in METHODS if name not in before)
