"""BibTeX entries of the works that methods come from.

A method's `reference` names works as "Vinyals et al. 2016"; `references.bib` says how each of its entries is named so.
A reference that names none of them, such as a plugin's, becomes an entry of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

_ENTRY = re.compile(r"^% cited as: (?P<name>.+)\n(?P<entry>@\w+\{(?P<key>[^,]+),.*\})$", re.MULTILINE)


@cache
def entries() -> dict[str, str]:
    """Return the bundled entries by key."""
    return {key: entry for key, _, entry in _all()}


@cache
def _all() -> tuple[tuple[str, str, str], ...]:
    """Return key, name and entry of every work."""
    text = (resources.files("sinkshot") / "methods" / "references.bib").read_text(encoding="utf-8")
    return tuple((found["key"], found["name"], found["entry"]) for found in _ENTRY.finditer(text))


def keys(reference: str) -> tuple[str, ...]:
    """Return the keys of the works that a reference names, in its order.

    >>> keys("Shalam, Korman 2024; Hu, Gripon, Pateux 2021 (PT+MAP)")
    ('shalam2024balanced', 'hu2021leveraging')
    """
    found = [(reference.index(name), key) for key, name, _ in _all() if name in reference]
    return tuple(key for _, key in sorted(found))


def bibliography(wanted: Iterable[str]) -> str:
    """Return the entries with these keys, one field a line, sorted by key, as a .bib file."""
    return "\n\n".join(_spread(entries()[key]) for key in sorted(set(wanted))) + "\n"


def own_entry(name: str, reference: str) -> str:
    """Return an entry for a method whose reference names no known work."""
    safe = re.sub(r"([\\{}#$%&_~^])", r"\\\1", reference)
    return _spread(f"@misc{{{re.sub(r'[^A-Za-z0-9-]', '-', name)}, title = {{{{{name}}}}}, note = {{{safe}}}}}")


def _spread(entry: str) -> str:
    """Write an entry with one field a line."""
    head, _, fields = entry.removesuffix("}").partition(", ")
    lines = re.split(r", (?=\w+ = \{)", fields)
    return "\n".join([f"{head},", *(f"  {line}," for line in lines), "}"])
