"""Time of scoring one head's detections on made-up splits, the median of several runs, and of 1000 draws of images.

``python benchmarks/evaluate_boxes.py``
"""

from __future__ import annotations

import resource
import statistics
import time

import numpy as np

from lucid_yolo.evaluate import ImageDetections, evaluate_boxes
from lucid_yolo.evaluate.bootstrap import draw_average_precision, draw_images
from lucid_yolo.structures import ClassMap, ImageRecord

SIZE, NUM_DRAWS, NUM_RUNS = 640, 1000, 7
SPLITS = {
    "500 images, 6 classes, 8 objects": (500, 6, 8.0, 0.1),
    "500 images, 6 classes, 7 objects, many found": (500, 6, 7.0, 0.5),
    "500 images, 6 classes, 40 objects": (500, 6, 40.0, 0.8),
    "500 images, 1 class, 8 objects": (500, 1, 8.0, 0.3),
    "500 images, 80 classes, 7 objects": (500, 80, 7.0, 0.5),
    "5000 images, 80 classes, 7.3 objects": (5000, 80, 7.3, 0.1),
}


def random_boxes(rng: np.random.Generator, num: int) -> np.ndarray:
    corner, side = rng.uniform(0, SIZE * 0.8, (num, 2)), np.exp(rng.uniform(np.log(10), np.log(200), (num, 2)))
    return np.concatenate([corner, corner + side], axis=1)


def make_split(
    num_images: int, num_classes: int, objects_per_image: float, share_near_objects: float, num_found: int = 300
) -> tuple[list[ImageRecord], list[ImageDetections], ClassMap]:
    rng = np.random.default_rng(0)
    records, detections = [], []
    for image_id in range(num_images):
        num = int(rng.poisson(objects_per_image))
        boxes, labels = random_boxes(rng, num), rng.integers(0, num_classes, num)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        is_crowd = rng.random(num) < 0.02
        records.append(ImageRecord(f"{image_id}.jpg", image_id, SIZE, SIZE, boxes, labels, is_crowd, area, num))
        found, label = random_boxes(rng, num_found), rng.integers(0, num_classes, num_found)
        if num:
            near, source = rng.random(num_found) < share_near_objects, rng.integers(0, num, num_found)
            found[near] = boxes[source[near]] + rng.normal(0, 3, (near.sum(), 4))
            label[near] = labels[source[near]]
        score = np.sort(rng.random(num_found).astype(np.float32))[::-1]
        detections.append(ImageDetections(image_id, found, score, label))
    return records, detections, ClassMap.from_names([f"class {i}" for i in range(num_classes)])


def main() -> None:
    for name, options in SPLITS.items():
        split = make_split(*options)
        times_s = []
        for _ in range(NUM_RUNS):
            start = time.perf_counter()
            metrics = evaluate_boxes(*split)
            times_s.append(time.perf_counter() - start)
        seconds = statistics.median(times_s)
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{name}: {seconds:.3f} s, peak of the process {peak_mib:.0f} MiB, AP {metrics.map:.12f}")
        start = time.perf_counter()
        draw_average_precision(*split, draw_images(len(split[0]), NUM_DRAWS))
        print(f"  {NUM_DRAWS} draws: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
