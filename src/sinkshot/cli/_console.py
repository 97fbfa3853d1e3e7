"""How the command talks: results on standard output, everything else on standard error, never a traceback."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from sinkshot.errors import InputError, printable

P = ParamSpec("P")
R = TypeVar("R")

_WIDE = 240  # columns of a table that goes to a file or a pipe

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class _SafeConsole(Console):
    """A console that shows control characters in names of files and classes as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_safe(segment.text), segment.style)


def out() -> Console:
    """Return the console for results."""
    return _SafeConsole(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDE)


def say(message: str) -> None:
    """Tell the person something that is not a result."""
    print(_safe(message), file=sys.stderr, flush=True)


def _safe(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def print_json(answer: Any) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(answer, indent=2))


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors of a subcommand into sentences and exit codes, and warnings into lines."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with warnings.catch_warnings():
            _tell_log()
            warnings.showwarning = lambda message, *_args, **_kwargs: say(f"warning: {printable(str(message))}")
            try:
                return command(*args, **kwargs)
            except (typer.Exit, typer.BadParameter):
                raise
            except InputError as error:
                say(f"error: {error}")
                raise typer.Exit(BAD_INPUT) from None
            except KeyboardInterrupt:
                say("interrupted")
                raise typer.Exit(INTERRUPTED) from None
            except BrokenPipeError:  # the reader of our output has gone
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(FAILED) from None
            except Exception as error:
                if os.environ.get("SINKSHOT_DEBUG"):
                    raise
                say(f"failed: {type(error).__name__}: {printable(str(error))}")
                say("This is not your fault. SINKSHOT_DEBUG=1 shows where it happened; please report it.")
                raise typer.Exit(FAILED) from None

    return run


class _Saying(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(printable(record.getMessage()))


def _tell_log() -> None:
    """Let what the library logs reach the person."""
    log = logging.getLogger("sinkshot")
    log.handlers, log.propagate = [_Saying()], False
    log.setLevel(logging.INFO)


def percent(value: float, interval: float | None = None) -> str:
    """Format an accuracy for people: percent with two digits.

    >>> percent(0.87556, 0.0021)
    '87.56 ± 0.21'
    """
    text = f"{100 * value:.2f}"
    return text if interval is None else f"{text} ± {100 * interval:.2f}"
