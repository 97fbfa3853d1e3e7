"""One file per method: a function from Task to Scores, and its registration."""

from importlib import import_module
from pkgutil import iter_modules

from sinkshot.methods.registry import GROUPS, METHODS, Method, get, group, register

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")

__all__ = ["GROUPS", "METHODS", "Method", "get", "group", "register"]
