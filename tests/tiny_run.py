"""A small seeded training run, for the tests that need a whole step."""

import numpy as np
import torch

from lucid_yolo.models.network import Network
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.structures import Batch
from lucid_yolo.tasks import DetectTask

NUM_CLASSES = 3
SIZE_PX = 64


def make_batch(
    seed: int, num_objects: int = 4, *, batch_size: int = 2, capacity: int = 64, num_ignored: int = 0
) -> Batch:
    """Return noise images with ``num_objects`` bright rectangles each, of which the last ones are ignore regions."""
    rng = np.random.default_rng(seed)
    batch = Batch.allocate(batch_size, (SIZE_PX, SIZE_PX), capacity)
    batch.images.copy_(torch.from_numpy(rng.integers(0, 90, (batch_size, 3, SIZE_PX, SIZE_PX), dtype=np.uint8)))
    targets = batch.targets
    batch.sample_index.copy_(torch.arange(batch_size))
    for image in range(batch_size):
        for g in range(num_objects):
            x, y = rng.integers(0, SIZE_PX - 28, 2)
            width, height = rng.integers(6, 28, 2)
            label = int(rng.integers(NUM_CLASSES))
            batch.images[image, label, y : y + height, x : x + width] = 250
            targets.boxes_xyxy_px[image, g] = torch.tensor([x, y, x + width, y + height], dtype=torch.float32)
            targets.labels[image, g] = label
            targets.is_padded[image, g] = False
            targets.is_ignored[image, g] = g >= num_objects - num_ignored
    return batch


def make_network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network("n", DetectTask(NUM_CLASSES).stems).train()


def make_step(
    seed: int = 0,
    schedule: ScheduleConfig | None = None,
    config: StepConfig | None = None,
    network: Network | None = None,
) -> TrainStep:
    """Return the step of a fresh run of 20 updates in 4 epochs; its state is ``step.state``."""
    state = TrainState(network if network is not None else make_network(seed))
    table = build_schedule(schedule or ScheduleConfig(), RunLength(5, 4))
    return TrainStep(state, DetectTask(NUM_CLASSES), table, config or StepConfig((SIZE_PX, SIZE_PX)))


def snapshot(state: TrainState) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in state.tensors().items()}


def assert_same_bytes(
    first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], names: tuple[str, ...] | None = None
) -> None:
    assert first.keys() == second.keys()
    for name in names or tuple(first):
        a, b = (x[name].contiguous().view(torch.uint8) for x in (first, second))
        assert torch.equal(a, b), f"{name} differs"
