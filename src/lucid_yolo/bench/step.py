"""Three rates of training: loader alone, computation alone on a resident batch, and both together.

The floor is the network's forward and backward pass alone, replayed as one CUDA graph on a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.bench.compare import sha256_of
from lucid_yolo.bench.device_work import DeviceWork, device_work
from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.data.makers import AugmentDevice
from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.data.train_source import TrainSource, open_train_source
from lucid_yolo.graphs.streams import streams_allowed
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.models.network import Network, use_norm_kernel
from lucid_yolo.models.scales import Variant
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.detector import choose_device
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.precision import PrecisionName, ResolvedPrecision, forward_context, resolve_precision
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.structures import Batch
from lucid_yolo.tasks import DetectTask

OBJECTS_PER_IMAGE = 20
BUSY_PERCENT = 80.0
"""A device that works less than this share of an eager step waits for the host to launch its kernels."""


@dataclass(frozen=True)
class StepBench:
    """What is measured.

    Attributes:
        variant: Scale.
        num_classes: Classes, where no data set says it.
        image_size_px: Side of the square input.
        precision: Precision of the network forward.
        capacity: Padded targets of the resident batch.
        device: Device name, or ``auto``.
        num_steps: Timed steps; the median counts.
        data_root: Data set for the loader and end-to-end rates; None leaves them out.
        num_workers: Loader processes; None for one per core.
        augment_device: Where the loader's images are varied.
        fused_norm: Normalise and activate in kernels of their own, eager and recorded; the floor stays plain.
    """

    variant: Variant = "n"
    num_classes: int = 80
    image_size_px: int = 640
    precision: PrecisionName = "auto"
    capacity: int = 64
    device: str = "auto"
    num_steps: int = 30
    data_root: str | None = None
    num_workers: int | None = None
    augment_device: AugmentDevice = "cpu"
    fused_norm: bool = False


@dataclass(frozen=True)
class StepTiming:
    """Median milliseconds per step at one batch size; None where not measured, as on a CPU all of the recorded step.

    Attributes:
        batch_size: Images per step.
        capacity: Padded targets of the resident batch.
        floor_ms: Network forward and backward alone.
        compute_ms: Complete step on a resident batch, eager, plain operations.
        recorded_ms: Complete step on the same batch, recorded, with the assignment kernel where it can run.
        is_equal: Whether both ended in the same bytes after the same number of steps.
        busy_percent: Share of the eager step in which the device works.
        recorded_busy_percent: The same of the recorded step.
        num_device_operations: Kernels and copies of one replay: the nodes of the graph.
        loader_ms: Making one batch, nothing else running.
        end_to_end_ms: Complete step fed by the loader; recorded where possible.
        images_per_s: From the end-to-end rate, else from the computation alone.
        peak_mib: Device memory reserved for the eager step.
        recorded_peak_mib: The same for the recorded step.
    """

    batch_size: int
    capacity: int
    floor_ms: float | None
    compute_ms: float
    recorded_ms: float | None
    is_equal: bool | None
    busy_percent: float | None
    recorded_busy_percent: float | None
    num_device_operations: float | None
    loader_ms: float | None
    end_to_end_ms: float | None
    images_per_s: float
    peak_mib: float | None
    recorded_peak_mib: float | None

    @property
    def floor_ratio(self) -> float | None:
        """Recorded step over the floor."""
        return self.recorded_ms / self.floor_ms if self.recorded_ms and self.floor_ms else None

    @property
    def gain(self) -> float | None:
        """Eager step over the recorded step."""
        return self.compute_ms / self.recorded_ms if self.recorded_ms else None

    @property
    def verdict(self) -> str:
        """What limits training: the loader, else launching the eager step's kernels, else computing."""
        if self.loader_ms is not None and self.loader_ms > (self.recorded_ms or self.compute_ms):
            return "loader-bound"
        is_idle = self.busy_percent is not None and self.busy_percent < BUSY_PERCENT
        return "launch-bound" if is_idle else "compute-bound"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        derived = {"floor_ratio": self.floor_ratio, "gain": self.gain, "verdict": self.verdict}
        return {**asdict(self), **derived}


@dataclass(frozen=True)
class _Resident:
    """A step timed on one batch that stays on the device."""

    step: TrainStep
    ms: float
    sha256: str
    work: DeviceWork | None
    peak_mib: float | None

    @property
    def busy_percent(self) -> float | None:
        return min(100.0, 100 * self.work.busy_ms / self.ms) if self.work else None


def measure_step(bench: StepBench, batch_size: int, has_floor: bool = False) -> StepTiming:
    """Measure one batch size.

    Args:
        bench: What to measure.
        batch_size: Images per step.
        has_floor: Measure the floor too.
    """
    make_deterministic()
    device = choose_device(bench.device)
    precision = resolve_precision(bench.precision, device)
    loader, source, num_classes = _train_loader(bench, batch_size, device)
    pixels = source.resident if source is not None else None
    task = DetectTask(num_classes)
    batch = synthetic_batch(batch_size, bench.image_size_px, bench.capacity, num_classes).to(device)

    floor_ms = _floor_ms(_network(bench, task, device), batch.images, precision, bench.num_steps) if has_floor else None
    eager = _measure_resident(_step(bench, task, device, pixels), batch, bench.num_steps)
    recorded = None
    if device.type == "cuda":
        kernel_task = DetectTask(num_classes, assignment="auto")
        recorded_step = _step(bench, kernel_task, device, pixels)
        recorded_step.record()
        recorded = _measure_resident(recorded_step, batch, bench.num_steps)
    fastest = recorded or eager
    loader_ms = end_to_end_ms = None
    if loader is not None and source is not None:
        loader_ms, end_to_end_ms = _loader_rates(loader, source, fastest.step, bench)
    timing = StepTiming(
        batch_size,
        bench.capacity,
        floor_ms,
        eager.ms,
        recorded.ms if recorded else None,
        eager.sha256 == recorded.sha256 if recorded else None,
        eager.busy_percent,
        recorded.busy_percent if recorded else None,
        recorded.work.num_operations if recorded and recorded.work else None,
        loader_ms,
        end_to_end_ms,
        1000 * batch_size / (end_to_end_ms or fastest.ms),
        eager.peak_mib,
        recorded.peak_mib if recorded else None,
    )
    fastest.step.release()
    return timing


def _step(bench: StepBench, task: DetectTask, device: torch.device, pixels: Tensor | None) -> TrainStep:
    network = _network(bench, task, device)
    if bench.fused_norm:
        use_norm_kernel(network)
    return TrainStep(
        TrainState(network),
        task,
        build_schedule(ScheduleConfig(), RunLength(1000, 10)),
        StepConfig((bench.image_size_px, bench.image_size_px), resolve_precision(bench.precision, device)),
        source_pixels=pixels,
    )


def _measure_resident(step: TrainStep, batch: Batch, num_steps: int) -> _Resident:
    """Time a step, hash the state it leaves, then profile it."""
    device = step.state.device
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    ms = median_ms(lambda: step.run(batch), device, num_steps)
    peak_mib = torch.cuda.max_memory_reserved(device) / 2**20 if device.type == "cuda" else None
    digest = sha256_of(step.state.tensors())
    return _Resident(step, ms, digest, device_work(lambda: step.run(batch), device), peak_mib)


def _loader_rates(loader: TrainLoader, source: TrainSource, step: TrainStep, bench: StepBench) -> tuple[float, float]:
    """Return milliseconds per batch of the loader alone and of the step that it feeds."""
    device, planner = step.state.device, loader.planner
    for capacity in sorted({planner.plan(index).capacity for index in range(3 * (bench.num_steps + 10))}):
        step.prepare(source.blank(planner.batch_size, bench.image_size_px, capacity).to(device))
    loader_ms = _consume_ms(loader, bench.num_steps, lambda _: None, device)
    end_to_end_ms = _consume_ms(loader, bench.num_steps, lambda batch: step.run(batch.to(device, True)), device)
    loader.close()
    source.close()
    return loader_ms, end_to_end_ms


def synthetic_batch(batch_size: int, image_size_px: int, capacity: int, num_classes: int, seed: int = 0) -> Batch:
    """Return noise images with random boxes."""
    generator = torch.Generator().manual_seed(seed)
    batch = Batch.allocate(batch_size, (image_size_px, image_size_px), capacity)
    batch.images.copy_(torch.randint(0, 256, batch.images.shape, generator=generator, dtype=torch.uint8))
    corner = torch.rand((batch_size, OBJECTS_PER_IMAGE, 2), generator=generator) * image_size_px * 0.8
    side = (0.02 + 0.18 * torch.rand((batch_size, OBJECTS_PER_IMAGE, 2), generator=generator)) * image_size_px
    batch.field("boxes_xyxy_px")[:, :OBJECTS_PER_IMAGE] = torch.cat((corner, corner + side), -1)
    labels = torch.randint(0, num_classes, (batch_size, OBJECTS_PER_IMAGE), generator=generator)
    batch.field("labels")[:, :OBJECTS_PER_IMAGE] = labels
    batch.field("is_padded")[:, :OBJECTS_PER_IMAGE] = False
    return batch


def median_ms(run: Callable[[], object], device: torch.device, num_steps: int) -> float:
    """Return the median time of ``run``, each call waited for, after five calls of warm-up."""
    times = []
    for index in range(num_steps + 5):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if index >= 5:
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def _network(bench: StepBench, task: DetectTask, device: torch.device) -> Network:
    torch.manual_seed(0)
    return Network(bench.variant, task.stems).train().to(device).to(memory_format=torch.channels_last)


def _train_loader(
    bench: StepBench, batch_size: int, device: torch.device
) -> tuple[TrainLoader | None, TrainSource | None, int]:
    if bench.data_root is None:
        return None, None, bench.num_classes
    split = open_split(Path(bench.data_root), "train")
    planner = TrainPlanner(split.records, bench.image_size_px, AugmentPolicy(), batch_size, 0, 1000)
    prepared = PreparedSource(split.records, bench.image_size_px)
    source = open_train_source(split.records, prepared, planner.policy, device, augment_device=bench.augment_device)
    loader = TrainLoader(
        planner,
        source.make,
        num_workers=bench.num_workers,
        pin_memory=device.type == "cuda",
        epoch_prefetch=True,
        attach=source.attach,
    )
    return loader, source, len(split.class_map)


def _floor_ms(network: Network, images: Tensor, precision: ResolvedPrecision, num_steps: int) -> float:
    """Time forward and backward alone; on a GPU as a replayed graph, side by side where a recorded step is."""
    device = images.device
    inputs = images.float().mul(1 / 255)

    def run() -> None:
        for parameter in network.parameters():
            parameter.grad = None
        with forward_context(precision, device):
            prediction = network(inputs)
        loss = prediction.box_ltrb_cell.square().mean() + prediction.class_logit.square().mean()
        loss.backward()

    if device.type != "cuda":
        return median_ms(run, device, num_steps)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    graph = torch.cuda.CUDAGraph()
    with streams_allowed(device):
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
        torch.cuda.current_stream(device).wait_stream(stream)
        with torch.cuda.graph(graph):
            run()
    return median_ms(graph.replay, device, num_steps)


def _consume_ms(
    loader: TrainLoader, num_steps: int, use: Callable[[TrainBatch], object], device: torch.device
) -> float:
    """Return the mean time per batch over ``num_steps`` batches, after as many again of warm-up at most ten.

    The host runs ahead of the device, as in training; both ends wait for it.
    """
    count, start = 0, 0.0
    warmup = min(num_steps, 10)
    while count < warmup + num_steps:
        for batch in loader:
            use(batch)
            count += 1
            if count in (warmup, warmup + num_steps) and device.type == "cuda":
                torch.cuda.synchronize(device)
            if count == warmup:
                start = time.perf_counter()
            if count == warmup + num_steps:
                break
    return 1000 * (time.perf_counter() - start) / num_steps
