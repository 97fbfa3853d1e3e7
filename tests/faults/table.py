"""One table, as data: the commands, the faults, and what must hold after each command under each fault.

`tests/faults/test_faults.py` runs a part of it in every run of the tests and all of it in `make test-long`;
`tools/make_faults_page.py` runs all of it and writes `docs/faults.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LATE = 0.6  # of the time that a command takes undisturbed: when a signal comes


@dataclass(frozen=True)
class Command:
    """A command on tiny inputs, and what it leaves in its folder."""

    words: tuple[str, ...]
    makes: tuple[str, ...] = ()  # files that must be the same bytes after a fault, but for times
    keeps: tuple[str, ...] = ()  # patterns of files in which unfinished work is kept, and taken up again
    prints: bool = True  # whether what it prints is its result, and the same each time but for times
    torch: bool = False


@dataclass(frozen=True)
class Fault:
    """Something outside that happens to a process."""

    what: str  # in words, for the page
    codes: frozenset[int]  # exit codes that are right
    redirect: str = ""  # of a shell
    limits: dict[str, int] = field(default_factory=dict)  # of `resource`, by name
    environment: dict[str, str | None] = field(default_factory=dict)  # None: not set
    send: str = ""  # a signal, when most of the work is done
    read_only: bool = False
    unheard: bool = False  # standard error cannot be read
    folder: str = "home"


_FEW = ("--way", "4", "--query", "5", "--episodes", "20")

COMMANDS = {
    "eval": Command(
        ("eval", "bank.npz", "--method", "ncm", "--way", "4", "--query", "5", "--episodes", "20", "--json")
    ),
    "info": Command(("info", "bank.npz", "--json")),
    "convert": Command(("convert", "bank.npz", "new.safetensors"), makes=("new.safetensors",)),
    "methods": Command(("methods", "--json")),
    "demo": Command(("demo", "--episodes", "5", "--out", "page.html"), makes=("page.html",), prints=False),
    "tune": Command(
        ("tune", "bank.npz", "--method", "matching", "--grid", "temperature=0.1,1", *_FEW, "--json"),
    ),
    "reproduce": Command(
        ("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "report", "--workers", "2"),
        makes=("report/cells.csv", "report/tables.tex", "report/index.html"),
        keeps=("report/results.sqlite*", "report/*"),
        prints=False,
    ),
    "compare": Command(("compare", "ncm", "kmeans", "--out", "earlier", "--json"), keeps=("earlier/results.sqlite-*",)),
    "label": Command(
        ("label", "items.csv", "--out", "labels", "--json"),
        makes=("labels/labels.csv", "labels/summary.json", "labels/report.html", "labels/probabilities.parquet"),
    ),
    "train": Command(
        ("train", "images", "--recipe", "toy.toml", "--out", "run", "--device", "cpu", "--deterministic", "--resume"),
        makes=("run/last.safetensors",),
        keeps=("run/*",),
        prints=False,
        torch=True,
    ),
    "extract": Command(
        ("extract", "images", "--weights", "net.safetensors", "--out", "features.safetensors", "--device", "cpu"),
        makes=("features.safetensors",),
        keeps=("features.safetensors.part*",),
        prints=False,
        torch=True,
    ),
}

_ANY = frozenset({0, 1, 2})

FAULTS = {
    "killed": Fault("SIGKILL in the middle", frozenset({0, -9}), send="SIGKILL"),
    "terminated": Fault("SIGTERM in the middle", frozenset({0, 143, -15}), send="SIGTERM"),
    "full-disk": Fault(
        "no file may grow beyond 2,000 bytes",
        _ANY,
        limits={"RLIMIT_FSIZE": 2000},
        environment={"PYTHONDONTWRITEBYTECODE": "1"},  # Python would keep truncated bytecode, which fails ever after
    ),
    "full-output": Fault("standard output is a full device", frozenset({1}), redirect=">/dev/full"),
    "read-only": Fault("the working folder is read-only", frozenset({0, 2}), read_only=True),
    "no-stdin": Fault("standard input is closed", frozenset({0}), redirect="<&-"),
    "no-stdout": Fault("standard output is closed", frozenset({2}), redirect=">&-"),
    "no-stderr": Fault("standard error is closed", frozenset({0}), redirect="2>&-", unheard=True),
    "reader-gone": Fault("nobody reads standard output", frozenset({0, 1}), redirect="| true"),
    "few-files": Fault("8 open files at most", _ANY, limits={"RLIMIT_NOFILE": 8}),
    "little-memory": Fault("1.2 GB of address space", _ANY, limits={"RLIMIT_AS": 1_200_000_000}),
    "no-home": Fault("HOME is not set", frozenset({0}), environment={"HOME": None, "XDG_CACHE_HOME": None}),
    "wrong-home": Fault("HOME names no folder", frozenset({0}), environment={"HOME": "/nowhere/at/all"}),
    "ascii": Fault(
        "a C locale without UTF-8, in a folder with accents",
        frozenset({0}),
        environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
        folder="été ☃",
    ),
}

DIAGONAL = (
    ("convert", "killed"),
    ("eval", "terminated"),
    ("convert", "full-disk"),
    ("info", "full-output"),
    ("convert", "read-only"),
    ("tune", "no-stdin"),
    ("methods", "no-stdout"),
    ("eval", "no-stderr"),
    ("info", "reader-gone"),
    ("compare", "few-files"),
    ("eval", "little-memory"),
    ("eval", "no-home"),
    ("info", "wrong-home"),
    ("convert", "ascii"),
)
"""Each fault once, with a command that is soon done."""
