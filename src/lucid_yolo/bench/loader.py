"""How fast training images are made, stage by stage on one core and as a whole with worker processes."""

from __future__ import annotations

import itertools
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL

from lucid_yolo.data.augment.affine import visible_rectangle, warp_image
from lucid_yolo.data.augment.apply import apply_plan, move_targets, shown_placements
from lucid_yolo.data.augment.canvas import compose
from lucid_yolo.data.augment.color import shift_hsv
from lucid_yolo.data.cache import CacheKind
from lucid_yolo.data.collate import BatchWriter
from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.host import usable_cores
from lucid_yolo.data.image import read_image
from lucid_yolo.data.loader import TrainLoader, default_num_workers, use_one_core
from lucid_yolo.data.makers import PixelMaker
from lucid_yolo.data.plan import AugmentPolicy, BatchPlan, TrainPlanner
from lucid_yolo.data.records import SharedRecords
from lucid_yolo.data.sources import PreparedSource, resize_image
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.structures import Batch, ImageRecord

_NUM_EPOCHS = 10**6  # the end, where images are no longer joined, is never reached


@dataclass(frozen=True)
class StageSpeed:
    """One stage on one core.

    Attributes:
        name: ``decode`` and ``prepare`` count source images, the other stages finished samples.
        ms_per_image: Best of the repeats.
        images_per_s: The same as a rate.
    """

    name: str
    ms_per_image: float
    images_per_s: float


@dataclass(frozen=True)
class LoaderSpeed:
    """What :func:`measure_loader` found.

    Attributes:
        stages: Decode, prepare, plan, compose, warp, color, boxes, collate, and ``sample``: all after prepare at once.
        sources_per_sample: Source images that an average sample shows; without a cache, each of them is decoded.
        loader_images_per_s: Whole loader with its workers, best window.
        loader_median_images_per_s: The same, median window.
        num_workers: Worker processes; 0 for none.
        image_size_px: Side of the network input.
        batch_size: Images per batch.
        cache: Cache kind, with ``prepared`` behind it when images were kept after the resize.
        policy: How images were varied.
        num_images: Images taken from the split.
        machine: Processor, usable cores, load averages before and after, and versions.
    """

    stages: tuple[StageSpeed, ...]
    sources_per_sample: float
    loader_images_per_s: float
    loader_median_images_per_s: float
    num_workers: int
    image_size_px: int
    batch_size: int
    cache: str
    policy: AugmentPolicy
    num_images: int
    machine: dict[str, Any]

    def stage(self, name: str) -> StageSpeed:
        """Return a stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return a table with the settings under it."""
        rows = ["| stage | ms per image | images/s |", "|---|---|---|"]
        rows += [f"| {stage.name} | {stage.ms_per_image:.3f} | {stage.images_per_s:.0f} |" for stage in self.stages]
        workers = f"loader, {self.num_workers} workers"
        best, median = self.loader_images_per_s, self.loader_median_images_per_s
        rows.append(f"| {workers}, best window | {1e3 / best:.3f} | {best:.0f} |")
        rows.append(f"| {workers}, median window | {1e3 / median:.3f} | {median:.0f} |")
        settings = (
            f"{self.image_size_px} px, batch {self.batch_size}, cache {self.cache}, {self.num_images} images, "
            f"{self.sources_per_sample:.2f} source images per sample"
        )
        machine = ", ".join(f"{key} {value}" for key, value in self.machine.items())
        return "\n".join((*rows, "", settings, machine))


def measure_loader(
    data_root: str | Path,
    *,
    image_size_px: int = 640,
    batch_size: int = 16,
    policy: AugmentPolicy | None = None,
    cache: CacheKind = "ram",
    is_cache_prepared: bool = False,
    num_workers: int | None = None,
    max_images: int = 512,
    repeats: int = 5,
    batches_per_window: int = 12,
) -> LoaderSpeed:
    """Measure the training loader on a data set.

    The calling process is set up like a worker: one OpenCV and one torch thread from here on.

    Args:
        data_root: Folder or data YAML with a training split.
        image_size_px: Side of the network input.
        batch_size: Images per batch.
        policy: How images are varied; None for the defaults.
        cache: Where images are kept.
        is_cache_prepared: Keep them after the resize.
        num_workers: Worker processes; None for one per usable core.
        max_images: Images taken from the start of the split.
        repeats: Times each stage is measured; the best counts.
        batches_per_window: Batches of one window of the whole loader.
    """
    use_one_core()
    load_before = _load_average()
    records = open_split(data_root, "train").records[:max_images]
    planner = TrainPlanner(records, image_size_px, policy or AugmentPolicy(), batch_size, 0, _NUM_EPOCHS)
    source = PreparedSource(records, image_size_px, cache=cache, is_cache_prepared=is_cache_prepared)
    workers = default_num_workers() if num_workers is None else num_workers
    plans = [planner.plan(index) for index in range(max(1, 64 // batch_size))]
    try:
        stages = tuple(_stages(records, planner, plans, source, repeats))
        loader = TrainLoader(planner, PixelMaker(records, source), num_workers=workers)
        rates = _loader_rates(loader, 1 + 3 * workers, repeats, batches_per_window)
    finally:
        source.close()
    samples = [sample for plan in plans for sample in plan.samples]
    return LoaderSpeed(
        stages=stages,
        sources_per_sample=sum(len(shown_placements(sample)) for sample in samples) / len(samples),
        loader_images_per_s=max(rates),
        loader_median_images_per_s=float(np.median(rates)),
        num_workers=workers,
        image_size_px=image_size_px,
        batch_size=batch_size,
        cache=f"{cache}{' prepared' if is_cache_prepared else ''}",
        policy=planner.policy,
        num_images=len(records),
        machine=_machine() | {"load before": load_before, "load after": _load_average()},
    )


def _stages(
    records: Sequence[ImageRecord],
    planner: TrainPlanner,
    plans: Sequence[BatchPlan],
    source: PreparedSource,
    repeats: int,
) -> Iterator[StageSpeed]:
    size, shared = planner.image_size_px, SharedRecords(records)
    samples = [sample for plan in plans for sample in plan.samples]
    some = records[:: max(1, len(records) // 64)]
    decoded = [read_image(record.path) for record in some]
    boxes = [letterbox(image.shape[0], image.shape[1], size) for image in decoded]
    yield _timed("decode", some, lambda record: read_image(record.path), repeats)
    pairs = list(zip(decoded, boxes, strict=True))
    yield _timed("prepare", pairs, lambda pair: resize_image(pair[0], pair[1].height_px, pair[1].width_px), repeats)
    yield _timed("plan", range(len(plans)), planner.plan, repeats, planner.batch_size)

    shown = [(sample, shown_placements(sample)) for sample in samples]
    joined = [(s, p, [source(placement.source_index) for placement in p], _visible(s)) for s, p in shown]
    yield _timed("compose", joined, lambda j: compose(j[1], j[2], j[0].canvas_size_px, j[3]), repeats)
    canvases = [(sample, compose(p, images, sample.canvas_size_px)) for sample, p, images, _ in joined[:16]]
    slot = np.empty((size, size, 3), np.uint8)
    yield _timed("warp", canvases, lambda c: warp_image(c[1], c[0].matrix, size, c[0].perspective, slot), repeats)
    warped = [(sample, warp_image(canvas, sample.matrix, size, sample.perspective)) for sample, canvas in canvases]
    yield _timed("color", warped, lambda w: shift_hsv(w[1], w[0].hsv_gains, w[0].is_bgr, slot), repeats)
    yield _timed("boxes", shown, lambda s: move_targets(s[0], s[1], shared), repeats)
    made = [[apply_plan(sample, shared, source) for sample in plan.samples] for plan in plans[:2]]
    capacity = max(plan.capacity for plan in plans)

    def collate(batch: Sequence[Any]) -> Batch:
        writer = BatchWriter(len(batch), size, capacity)
        for position, sample in enumerate(batch):
            writer.write(position, sample)
        return writer.batch

    yield _timed("collate", made, collate, repeats, planner.batch_size)
    yield _timed("sample", samples, lambda sample: apply_plan(sample, shared, source, slot), repeats)


def _visible(sample: Any) -> tuple[int, int, int, int]:
    return visible_rectangle(sample.matrix, sample.perspective, sample.canvas_size_px, sample.output_size_px)


def _timed(
    name: str, items: Sequence[Any], make: Callable[[Any], object], repeats: int, images_per_item: int = 1
) -> StageSpeed:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for item in items:
            make(item)
        best = min(best, time.perf_counter() - start)
    seconds = best / (len(items) * images_per_item)
    return StageSpeed(name, seconds * 1e3, 1 / seconds)


def _loader_rates(loader: TrainLoader, num_skipped: int, num_windows: int, batches_per_window: int) -> list[float]:
    """Return images/s of consecutive windows after some batches that are not counted: the start of the workers."""
    epochs: Iterable[TrainBatch] = itertools.chain.from_iterable(iter(loader) for _ in itertools.count())
    batches, rates = iter(epochs), []
    for _ in range(num_skipped):
        next(batches)
    for _ in range(num_windows):
        start = time.perf_counter()
        num_images = sum(len(next(batches)) for _ in range(batches_per_window))
        rates.append(num_images / (time.perf_counter() - start))
    loader.close()
    return rates


def _machine() -> dict[str, Any]:
    versions = f"Python {platform.python_version()}, OpenCV {cv2.__version__}, Pillow {PIL.__version__}"
    return {"cpu": _cpu_name(), "usable cores": usable_cores(), "versions": versions}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _load_average() -> str:
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
