"""Progress of long work on standard error: bars on a terminal, otherwise a line every half a minute or so."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sinkshot.errors import printable

LINE_EVERY = 30.0
"""Seconds between two lines where standard error is not a terminal."""
_SLOW = 2.0  # seconds; a step that takes longer announces the next one


class ProgressReporter:
    """Shows bars on a terminal, and lines elsewhere.

    Parameters
    ----------
    every : float, optional
        Seconds between lines where standard error is not a terminal; None for no lines.
    silent : bool
        Show nothing, for processes whose progress another process reports.
    clock : callable
        Returns seconds.

    Examples
    --------
    >>> with ProgressReporter() as progress:
    ...     bar = progress.bar("reading")
    ...     for number in range(3):
    ...         bar(number + 1, 3)
    """

    def __init__(
        self, every: float | None = None, silent: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every, self._silent, self._clock = None if silent else every, silent, clock
        self._last = clock()
        self._done = threading.Event()
        self._bars: Any = None
        if not silent and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.fields[title]}", markup=False), BarColumn(bar_width=16))
            text = TextColumn("{task.fields[text]}", markup=False)
            self._bars = Progress(*columns, text, _clock(), console=Console(stderr=True), transient=True)
            self._bars.start()

    def bar(self, title: str = "", text: str = "") -> Callable[..., None]:
        """Add a bar; call the result as `bar(done, total)`, or `bar(done, total, text)` with your own text."""
        start, first = self._clock(), None
        if self._bars is not None:
            task = self._bars.add_task("", total=None, title=printable(title), text=printable(text))

        def update(done: int, total: int, text: str | None = None) -> None:
            nonlocal start, first
            now = self._clock()
            if first is None:
                start, first = now, done
            if text is None:
                text = _count(done, total, (done - first) / max(now - start, 1e-9))
            if self._bars is not None:
                self._bars.update(task, completed=done, total=total, text=printable(text))
            elif self._every is not None and now - self._last >= self._every:
                self._last = now
                self.say(f"{title}: {text}" if title else text)

        return update

    def stages(self, total: int) -> Callable[[str], None]:
        """Add a bar of steps; call the result with what each does. How long a step has taken so far is shown, too."""
        number, doing, began = 0, "", self._clock()
        task: Any = None

        def beat() -> None:
            while self._every is not None and not self._done.wait(self._every):
                self.say(f"{doing}, {duration(self._clock() - began)} so far")

        def step(text: str) -> None:
            nonlocal number, doing, began, task
            slow, began = self._clock() - began > _SLOW, self._clock()
            number, doing = number + 1, text
            if self._bars is not None:
                if task is None:
                    task = self._bars.add_task("", total=total, title=f"step {number} of {total}", text="", clock=True)
                self._bars.reset(task, completed=number - 1, title=f"step {number} of {total}", text=printable(text))
            elif self._every is not None and (number == 1 or slow):
                self.say(text)
            if number == 1 and self._bars is None and self._every is not None:
                threading.Thread(target=beat, daemon=True).start()

        return step

    def say(self, message: str) -> None:
        """Print a line that stays."""
        if self._bars is not None:
            self._bars.console.print(printable(message), markup=False, highlight=False)
        elif not self._silent:
            print(printable(message), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bars."""
        self._done.set()
        if self._bars is not None:
            self._bars.stop()

    def __enter__(self) -> ProgressReporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _clock() -> Any:
    """A column with the time of a running step."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Clock(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(duration(task.elapsed or 0) if task.fields.get("clock") else "")

    return Clock()


def _count(done: int, total: int, speed: float) -> str:
    left = f", {duration((total - done) / speed)} left" if speed else ""
    return f"{done:,} of {total:,}{left}"


def duration(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds.

    >>> duration(3725.4), duration(62)
    ('1:02:05', '1:02')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
