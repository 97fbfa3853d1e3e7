"""Output of the command: results on standard output, everything else on standard error, no tracebacks."""

from __future__ import annotations

import functools
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from sinkshot.cli._exit_codes import FAILED, ending, say
from sinkshot.cli._signals import exit_code
from sinkshot.errors import printable, printable_lines

__all__ = ["FAILED", "exit_code", "guarded", "out", "percent", "print_json", "say"]

P = ParamSpec("P")
R = TypeVar("R")

_WIDE = 240  # columns of a table that goes to a file or a pipe


class _SafeConsole(Console):
    """A console that escapes control characters in names of files and classes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)


def out() -> Console:
    """Return the console for results."""
    return _SafeConsole(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDE)


def print_json(answer: Any) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(answer, indent=2), flush=True)


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Decorate a subcommand: errors become sentences and exit codes, warnings become lines."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with warnings.catch_warnings():
            _tell_log()
            warnings.showwarning = lambda message, *_args, **_kwargs: say(f"warning: {printable(str(message))}")
            try:
                return command(*args, **kwargs)
            except (typer.Exit, typer.BadParameter):
                raise
            except BaseException as error:
                raise typer.Exit(ending(error)) from None

    return run


class _Saying(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(printable(record.getMessage()))


def _tell_log() -> None:
    """Print what the library logs."""
    log = logging.getLogger("sinkshot")
    log.handlers, log.propagate = [_Saying()], False
    log.setLevel(logging.INFO)


def percent(value: float, interval: float | None = None) -> str:
    """Format an accuracy in percent with two digits.

    >>> percent(0.87556, 0.0021)
    '87.56 ± 0.21'
    """
    text = f"{100 * value:.2f}"
    return text if interval is None else f"{text} ± {100 * interval:.2f}"
