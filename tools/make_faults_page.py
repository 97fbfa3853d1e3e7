"""Run every command under every fault and write the outcome to docs/faults.md.

    python tools/make_faults_page.py [--only COMMAND ...] [--faults FAULT ...]

It takes a few minutes. With --only or --faults, the other cells of the page stay as they are. Exit code 1 means that
something does not hold; the page says what.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "faults"), str(ROOT / "tests" / "backbones")]

from harness import Harness, Run, cannot_be_tried  # noqa: E402
from table import COMMANDS, FAULTS, Fault  # noqa: E402

PAGE = ROOT / "docs" / "faults.md"
HEAD = """# Faults

What happens to a command when the machine under it fails. Each cell below is the exit code of a real process that met
the fault of its row. For each of them it was checked that

- standard error has one sentence where the code is not 0, never a traceback, and never "This is a bug in SinkShot";
- no file is left but results that are whole and the named state in which unfinished work is kept;
- the same command, run again without the fault, gives the same bytes as one that met none, but for times.

Codes: 0 done, 1 failed, 2 refused, 143 ended by SIGTERM after what was finished was kept and said, -9 and -15 ended by
the signal itself (-15: before the command had begun). What the system refuses in the middle of a
write is an error of that file, with its path.

Made by `python tools/make_faults_page.py`; the table itself is `tests/faults/table.py`, and `make test-long` runs it.

"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="commands")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    given = parser.parse_args()
    cells, broken = _read()
    with tempfile.TemporaryDirectory() as scratch:
        harness = Harness(Path(scratch))
        for fault_name in given.faults:
            fault = FAULTS[fault_name]
            for name in given.only:
                begin = f"`{name}`, {fault.what}: "
                broken = [sentence for sentence in broken if not sentence.startswith(begin)]
                cells[name, fault.what] = _cell(harness, name, fault_name, fault, broken)
            print(f"{fault.what}: {' '.join(cells[name, fault.what] for name in given.only)}", flush=True)
            _write(cells, broken)
    for sentence in broken:
        print(sentence)
    sys.exit(1 if broken else 0)


def _read() -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return the cells of the page by command and fault, and the failures."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    names = rows[0][1:] if rows else []
    cells = {(name, row[0]): cell for row in rows[1:] for name, cell in zip(names, row[1:], strict=True)}
    return cells, [line.removeprefix("- ") for line in lines if line.startswith("- `")]


def _write(cells: dict[tuple[str, str], str], broken: list[str]) -> None:
    lines = [f"| fault | {' | '.join(COMMANDS)} |", f"|---|{'---|' * len(COMMANDS)}"]
    for what in (fault.what for fault in FAULTS.values()):
        lines += [f"| {what} | {' | '.join(cells.get((name, what), '') for name in COMMANDS)} |"]
    text = HEAD + "\n".join(lines) + "\n"
    if broken:
        text += "\n## What does not hold\n\n" + "\n".join(f"- {sentence}" for sentence in broken) + "\n"
    PAGE.write_text(text, encoding="utf-8")


def _cell(harness: Harness, name: str, fault_name: str, fault: Fault, broken: list[str]) -> str:
    if reason := cannot_be_tried(fault):
        return f"not tried: {reason}"
    run: Run
    run, wrong = harness.wrong(name, fault_name)
    broken.extend(f"`{name}`, {fault.what}: {' '.join(sentence.split())}" for sentence in wrong)
    return f"**{run.code}**" if wrong else str(run.code)


if __name__ == "__main__":
    main()
