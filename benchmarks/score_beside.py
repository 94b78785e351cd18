"""Time of scoring both heads of a made-up split in one process and in two, and what the second one takes.

``python benchmarks/score_beside.py``
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from evaluate_boxes import make_split

from lucid_yolo.data.account import RowAccount
from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.evaluate import BoxMetrics
from lucid_yolo.models.head import BRANCHES
from lucid_yolo.runtime.evaluation import SplitEvaluator
from lucid_yolo.runtime.scoring import ScoringProcess
from lucid_yolo.structures import ClassMap

SPLITS = {
    "120 images, 6 classes": (120, 6, 7.0, 0.5),
    "500 images, 6 classes": (500, 6, 7.0, 0.5),
    "500 images, 80 classes": (500, 80, 7.0, 0.5),
    "5000 images, 80 classes": (5000, 80, 7.3, 0.1),
}
NUM_RUNS = 9


def timed(evaluator: SplitEvaluator, detections: dict) -> tuple[float, dict[str, BoxMetrics]]:
    start = time.perf_counter()
    metrics = evaluator.compute(detections).metrics
    return (time.perf_counter() - start) * 1e3, metrics


def own_mib(pid: int) -> float:
    """Return the memory that a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def main() -> None:
    ScoringProcess([], ClassMap.from_names([])).close()  # the fork server runs, as in a fit whose loaders have started
    for name, options in SPLITS.items():
        records, rows, class_map = make_split(*options)
        split = DataSplit(tuple(records), class_map, RowAccount(), "coco", Path())
        detections = dict.fromkeys(BRANCHES, rows)
        start = time.perf_counter()
        process = ScoringProcess(split.records, class_map)
        start_ms = (time.perf_counter() - start) * 1e3
        process._connection.poll(60.0)
        alone, beside = SplitEvaluator(split, 640), SplitEvaluator(split, 640, process)
        times = []
        for _ in range(NUM_RUNS):
            (alone_ms, expected), (beside_ms, found) = timed(alone, detections), timed(beside, detections)
            assert repr(found) == repr(expected)
            times.append((alone_ms, beside_ms))
        medians = [statistics.median(column) for column in zip(*times, strict=True)]
        print(
            f"{name}: one process {medians[0]:.0f} ms, two {medians[1]:.0f} ms; start {start_ms:.0f} ms, "
            f"{own_mib(process._process.pid):.0f} MiB"
        )
        process.close()


if __name__ == "__main__":
    main()
