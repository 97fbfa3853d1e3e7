"""What all pages share: templates, number formats, and writing the file atomically."""

from __future__ import annotations

import math
import os
import re
from typing import Any

import jinja2
from markupsafe import Markup, escape

from sinkshot.errors import printable_lines
from sinkshot.files import replacing

DASH = "\N{EN DASH}"  # where there is no number


def write_page(path: str | os.PathLike[str], template: str, **content: Any) -> None:
    """Render a template of this folder and write it atomically."""
    html = _environment().get_template(template).render(**content)
    with replacing(path) as temporary:
        temporary.write_bytes(html.encode("utf-8", errors="replace"))  # names may hold undecodable bytes


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sinkshot.report", ""),
        autoescape=True,  # names of banks and classes come from untrusted files
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, number=number, signed=signed, count=count, seconds=seconds, coded=coded)
    return environment


def _shown(value: Any) -> Any:
    """Escape control characters in a string; markup stays as it is."""
    return printable_lines(value) if type(value) is str else value


def coded(text: str) -> Markup:
    """Escape text, and set what stands between backticks as code.

    >>> coded("`robust` counts < 2 rows")
    Markup('<code>robust</code> counts &lt; 2 rows')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(printable_lines(text)))))


def percent(share: float, digits: int = 2) -> str:
    """Format a fraction as percent.

    >>> percent(0.87914)
    '87.91'
    """
    return f"{100 * share:.{digits}f}"


def number(value: float, digits: int = 2) -> str:
    """Format a number with a true minus sign, and none on a zero.

    >>> number(-1.5), number(-0.001)
    ('−1.50', '0.00')
    """
    return f"{value:z.{digits}f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float, digits: int = 2) -> str:
    """Format a difference with its sign; one that rounds to zero has none.

    >>> signed(-0.5), signed(0.001)
    ('−0.50', '0.00')
    """
    return ("+" if round(value, digits) > 0 else "") + number(value, digits)


def count(whole: int) -> str:
    """Format an integer with thousands separators.

    >>> count(12000)
    '12,000'
    """
    return f"{whole:,}"


def seconds(duration: float) -> str:
    """Format seconds to three digits, without decimals from 100 on.

    >>> seconds(0.0417), seconds(3.14159), seconds(123.4)
    ('0.042', '3.14', '123')
    """
    digits = 3 if duration < 0.1 else 2 - math.floor(math.log10(duration))
    return f"{duration:.{min(max(digits, 0), 3)}f}"
