"""The loss of 100 seeded steps of a tiny detector, compared with the stored curve.

A change that means to alter the numbers writes the curve anew and says so:
``python tests/golden/test_detect_curve.py``

The first steps are compared tightly, and they show a change of network, assignment, losses, schedule or update rule.
Later ones cannot be: two threads in place of one, or 1e-7 on the initial weights, flip near-ties of the assignment and
move the curve by several per cent. Bytes are compared within one process, by the tests of the step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from lucid_yolo.models.network import Network
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.structures import Batch
from lucid_yolo.tasks import DetectTask

CURVE = Path(__file__).with_name("detect_curve.json")
RUN = RunLength(batches_per_epoch=25, num_epochs=4)
SIZE_PX, NUM_IMAGES, NUM_CLASSES = 64, 4, 3
SCHEDULE = ScheduleConfig(lr0=1e-3)
TOLERANCES = ((8, 1e-3), (100, 0.2))  # (first steps, relative)


def draw_batch() -> Batch:
    """Four grey images, each with three bright rectangles of the colour of their class."""
    rng = np.random.default_rng(0)
    batch = Batch.allocate(NUM_IMAGES, (SIZE_PX, SIZE_PX), 64)
    for image in range(NUM_IMAGES):
        for g in range(3):
            x, y = (int(v) for v in rng.integers(0, 36, 2))
            width, height = (int(v) for v in rng.integers(10, 28, 2))
            label = int(rng.integers(NUM_CLASSES))
            batch.images[image, label, y : y + height, x : x + width] = 230
            batch.targets.boxes_xyxy_px[image, g] = torch.tensor([x, y, x + width, y + height], dtype=torch.float32)
            batch.targets.labels[image, g] = label
            batch.targets.is_padded[image, g] = False
    return batch


def train() -> list[float]:
    """Return the loss of every step, on one thread."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    task = DetectTask(NUM_CLASSES)
    state = TrainState(Network("n", task.stems).train())
    step = TrainStep(state, task, build_schedule(SCHEDULE, RUN), StepConfig((SIZE_PX, SIZE_PX)))
    batch = draw_batch()
    losses = [step.run(batch)[0] for _ in range(RUN.num_updates)]
    return torch.stack(losses).tolist()


@pytest.fixture
def same_threads_after() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.mark.usefixtures("same_threads_after")
def test_curve_is_the_stored_one() -> None:
    losses = np.array(train())
    expected = np.array(json.loads(CURVE.read_text()))
    assert losses.shape == expected.shape == (100,)
    assert expected[-1] < 0.5 * expected[0], "the stored run learns"
    for num_steps, tolerance in TOLERANCES:
        np.testing.assert_allclose(losses[:num_steps], expected[:num_steps], rtol=tolerance)


if __name__ == "__main__":
    CURVE.write_text(json.dumps([round(loss, 6) for loss in train()], indent=0) + "\n")
    sys.stdout.write(f"wrote {CURVE}\n")
