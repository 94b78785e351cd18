import json
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from lucid_yolo.bench.loader import LoaderSpeed, measure_loader
from lucid_yolo.data.plan import AugmentPolicy

STAGES = ["decode", "prepare", "plan", "compose", "warp", "color", "boxes", "collate", "sample"]


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    for folder in ("images/train", "labels/train"):
        (root / folder).mkdir(parents=True)
    for index in range(6):
        image = np.random.default_rng(index).integers(0, 256, (40, 50 + index, 3), np.uint8)
        cv2.imwrite(str(root / f"images/train/{index}.png"), image)
        (root / f"labels/train/{index}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (root / "data.yaml").write_text("train: images/train\nnames: [thing]\n")
    return root


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads(), cv2.getNumThreads()
    yield
    torch.set_num_threads(before[0])
    cv2.setNumThreads(before[1])


def measure(data_root: Path, num_workers: int) -> LoaderSpeed:
    policy = AugmentPolicy(mixup=0.5, cutmix=0.5, perspective=0.1)
    return measure_loader(
        data_root,
        image_size_px=64,
        batch_size=4,
        policy=policy,
        is_cache_prepared=True,
        num_workers=num_workers,
        max_images=5,
        repeats=2,
        batches_per_window=3,
    )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_every_stage_and_the_whole_are_measured(data_root: Path, num_workers: int) -> None:
    speed = measure(data_root, num_workers)
    assert [stage.name for stage in speed.stages] == STAGES
    for stage in speed.stages:
        assert stage.ms_per_image > 0
        assert stage.ms_per_image * stage.images_per_s == pytest.approx(1000)
    assert speed.loader_images_per_s >= speed.loader_median_images_per_s > 0
    assert 1 <= speed.sources_per_sample <= 4
    assert (speed.num_images, speed.num_workers, speed.cache) == (5, num_workers, "ram prepared")
    assert speed.stage("warp").ms_per_image < speed.stage("sample").ms_per_image
    assert json.loads(json.dumps(speed.to_dict()))["policy"]["mixup"] == 0.5
    table = speed.to_markdown()
    assert all(f"| {name} |" in table for name in STAGES)
    assert "cpu" in table
