"""The page of the benchmarks holds what was measured."""

from __future__ import annotations

import pytest

from sinkshot.report.speed import speed_page


def case(method, shot, engine, rate, **more):
    seconds = {"sample": 0.1, "prepare": 0.2, "classify": 0.7, "total": 1.0}
    about = {"method": method, "shot": shot, "engine": engine, "episodes": 100, "rate": rate, "accuracy": 0.9}
    about["compared"] = 200
    return {**about, "seconds": seconds, "gflops": None, "times_reference": 1.0, "times_published": None, **more}


REPORT = {
    "machine": "a <machine>",
    "sinkshot": "0",
    "matrix_peak_gflops": 160.0,
    "peak_after_gflops": 150.0,
    "cases": [
        case("bms", 1, "numpy", 500.0, gflops=3.0),
        case("bms", 1, "numba", 6543.0, gflops=40.0, times_reference=13.1, times_published=58.9),
        case("ncm", 5, "numpy", 1000.0),
    ],
    "scikit_learn": {"1": {"NearestCentroid": 321.0}},
    "growth": {"way": [(2, 50.0), (5, 180.0)], "width": [(640, 180.0), (3840, 300.0)]},
    "memory": {"numba": {"episodes": 2000, "mebibytes": 222.0, "seconds": 1.0}},
    "million": {"episodes": 1_000_000, "mebibytes": 333.0, "seconds": 200.0},
    "large_task": [{"rows": 50_000, "epochs": 40, "seconds": 4.2}],
}


@pytest.mark.slow
def test_the_page_holds_rates_ratios_growth_and_memory(tmp_path):
    speed_page(REPORT, tmp_path / "speed.html")
    page = (tmp_path / "speed.html").read_text()
    for number in ("6,543", "58.9", "13.1", "321", "222 MiB", "333 MiB", "1,000,000", "50,000", "e = 40"):
        assert number in page
    assert page.count("<svg") >= 4
    assert "over the first 200 episodes, the same for every engine" in page
    assert "0.00015" in page  # seconds a run of BMS, beside the paper's
    assert "the paper says 0.004 s" in page
    assert "a &lt;machine&gt;" in page
    assert "mathdefault" not in page


def test_a_quick_run_has_a_page_too(tmp_path):
    quick = {key: REPORT[key] for key in REPORT if key not in ("growth", "memory", "million", "large_task")}
    speed_page(quick, tmp_path / "speed.html")
    assert "How cost grows" not in (tmp_path / "speed.html").read_text()
