"""Images per second of one loader worker: made by it, or only decoded by it for the device to draw.

``python benchmarks/decode_for_device.py DATA``
"""

from __future__ import annotations

import sys
import time
from itertools import count, islice

import torch

from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.device_pixels import StreamedPixels
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.data.makers import BatchMaker, NumberMaker, PixelMaker
from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner
from lucid_yolo.data.sources import PreparedSource

SIZE_PX, BATCH_SIZE, NUM_SKIPPED, NUM_BATCHES = 640, 16, 10, 100


def images_per_s(planner: TrainPlanner, make: BatchMaker) -> float:
    loader = TrainLoader(planner, make, num_workers=1, epoch_prefetch=True)
    batches = (batch for _ in count() for batch in loader)
    for _ in islice(batches, NUM_SKIPPED):
        pass
    start = time.perf_counter()
    for _ in islice(batches, NUM_BATCHES):
        pass
    seconds = time.perf_counter() - start
    loader.close()
    return BATCH_SIZE * NUM_BATCHES / seconds


def main() -> None:
    records, policy = open_split(sys.argv[1], "train").records, AugmentPolicy()
    planner, prepared = TrainPlanner(records, SIZE_PX, policy, BATCH_SIZE, 0, 1000), PreparedSource(records, SIZE_PX)
    makers: dict[str, BatchMaker] = {
        "made": PixelMaker(records, prepared),
        "decoded": NumberMaker(records, StreamedPixels(prepared, torch.device("cpu")).positions, policy),
    }
    for name in (*makers, *makers):
        print(f"{name}: {images_per_s(planner, makers[name]):.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
