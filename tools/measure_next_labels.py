"""Measure the study `next-labels` in many processes, without the packages that reports need.

    python tools/measure_next_labels.py next-labels.json --workers 12
    python tools/make_next_labels_page.py next-labels.json

The numbers are those of `sinkshot reproduce --study next-labels --json`, which computes a table in one process; here
every draw is a job of its own.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from sinkshot import FeatureBank, load
from sinkshot.studies import parse
from sinkshot.studies.label_curves import Floats, collected, curves_of_draw
from sinkshot.studies.measures import settings

BANKS = Path(__file__).parent.parent / "data" / "banks"


@cache
def bank_of(name: str) -> FeatureBank:
    """Load a bank once in each process."""
    return load(BANKS / f"{name}.safetensors")


def measure(job: tuple[str, dict[str, Any], int]) -> dict[str, Floats]:
    """Measure all strategies on one draw."""
    bank, options, number = job
    with threadpool_limits(1):
        return curves_of_draw(bank_of(bank), number, **options)


def main() -> None:
    """Measure, and write the answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--draws", type=int, help="fewer or more than in the study")
    given = parser.parse_args()
    sheets, jobs = [], []
    for sheet in parse.find("next-labels").sheets:
        measured = sheet.measure
        assert measured is not None
        options = settings(measured.kind, dict(measured.options))
        draws = given.draws or options["draws"]
        del options["draws"]
        bank = f"{measured.bank.data_set}_{measured.bank.backbones[0]}_{measured.bank.split}"
        sheets.append((sheet.label, options, draws))
        jobs += [(bank, options, number) for number in range(draws)]
    with ProcessPoolExecutor(given.workers) as workers:
        found = iter(list(workers.map(measure, jobs, chunksize=4)))
    curves = [
        {"study": "next-labels", "sheet": label, **collected([next(found) for _ in range(draws)], **options)}
        for label, options, draws in sheets
    ]
    given.answers.write_text(json.dumps({"label_curves": curves}))


if __name__ == "__main__":
    main()
