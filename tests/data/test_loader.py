import hashlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from lucid_yolo.data.augment.apply import apply_plan
from lucid_yolo.data.cache import CacheKind
from lucid_yolo.data.host import usable_cores
from lucid_yolo.data.loader import EvalLoader, ResidentEvalLoader, TrainLoader, default_num_workers
from lucid_yolo.data.makers import PixelMaker
from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner, letterbox_plan
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.structures import Batch, ImageRecord

# torch warns when it is asked for more workers than there are cores, which is the point of some tests here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SIZE, BATCH = 64, 4
BATCHES_PER_EPOCH = 3  # 11 images
NUM_EPOCHS = 8


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[ImageRecord]:
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    made = []
    for index in range(11):
        height, width = (int(side) for side in rng.integers(20, 90, 2))
        path = folder / f"{index}.png"
        cv2.imwrite(str(path), rng.integers(0, 256, (height, width, 3), np.uint8))
        corners = rng.uniform(0, 1, (index % 4, 2, 2))
        boxes = np.sort(corners, axis=1).reshape(-1, 4) * [width, height, width, height]
        labels = rng.integers(0, 3, len(boxes))
        flags = rng.uniform(size=len(boxes)) < 0.2
        area = np.ones(len(boxes))
        made.append(ImageRecord(str(path), index, height, width, boxes, labels, flags, area, len(boxes)))
    return made


def train_loader(
    records: Sequence[ImageRecord], num_workers: int = 0, seed: int = 0, position: int = 0, **ranks: int
) -> TrainLoader:
    policy = AugmentPolicy(close_mosaic=3, degrees=10.0)
    batch_size = BATCH // ranks.get("world_size", 1)
    planner = TrainPlanner(records, SIZE, policy, batch_size, seed, NUM_EPOCHS, **ranks)
    prepared = PreparedSource(records, SIZE)
    return TrainLoader(planner, PixelMaker(records, prepared), num_workers=num_workers, position=position)


def digest(batch: Batch) -> str:
    return hashlib.sha256(batch.images.numpy().tobytes() + batch.packed.numpy().tobytes()).hexdigest()


def run(loader: TrainLoader, num_batches: int) -> list[str]:
    """Digests of the next batches, over as many epochs as it takes."""
    epochs: Iterable[Batch] = itertools.chain.from_iterable(iter(loader) for _ in itertools.count())
    return [digest(batch) for batch in itertools.islice(epochs, num_batches)]


@pytest.fixture(scope="module")
def reference(records: list[ImageRecord]) -> list[str]:
    return run(train_loader(records), 20)


def test_the_reference_never_repeats(reference: list[str]) -> None:
    assert len(set(reference)) == 20


@pytest.mark.parametrize("num_workers", [1, 4])
def test_worker_count_changes_no_byte(records: list[ImageRecord], reference: list[str], num_workers: int) -> None:
    assert run(train_loader(records, num_workers), 20) == reference


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resume_inside_an_epoch_continues_the_run(
    records: list[ImageRecord], reference: list[str], num_workers: int
) -> None:
    loader = train_loader(records, num_workers, position=7)
    assert run(loader, 13) == reference[7:]
    loader.position = 4
    assert loader.epoch == 1
    assert run(loader, 5) == reference[4:9]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_position_counts_batches_handed_out_not_prefetched(records: list[ImageRecord], num_workers: int) -> None:
    loader = train_loader(records, num_workers)
    assert len(loader) == BATCHES_PER_EPOCH
    iterator = iter(loader)
    assert loader.position == 0
    first = digest(next(iterator))
    assert loader.position == 1
    del iterator
    rest = [digest(batch) for batch in loader]
    assert len(rest) == BATCHES_PER_EPOCH - 1
    assert first not in rest
    assert (loader.position, loader.epoch) == (BATCHES_PER_EPOCH, 1)


def test_closed_workers_start_again_and_stop_quickly(records: list[ImageRecord], reference: list[str]) -> None:
    loader = train_loader(records, 2)
    assert run(loader, 2) == reference[:2]
    start = time.perf_counter()
    loader.close()
    assert time.perf_counter() - start < 4  # torch gives each worker 5 s before it is killed
    assert run(loader, 2) == reference[2:4]


def test_other_seed_other_bytes_from_the_first_batch(records: list[ImageRecord], reference: list[str]) -> None:
    assert run(train_loader(records, seed=1), 1) != reference[:1]


def test_rank_shards_join_to_the_global_batch(records: list[ImageRecord]) -> None:
    whole = train_loader(records)
    shards = [train_loader(records, world_size=2, rank=rank) for rank in range(2)]
    for expected, *parts in zip(whole, *shards, strict=True):
        assert torch.equal(torch.cat([part.images for part in parts]), expected.images)
        assert torch.equal(torch.cat([part.sample_index for part in parts]), expected.sample_index)
        for field in expected.target_fields:
            joined = torch.cat([part.field(field.name) for part in parts])
            assert torch.equal(joined, expected.field(field.name))


def test_batches_are_full_and_have_the_planned_layout(records: list[ImageRecord]) -> None:
    for batch in train_loader(records):
        assert batch.images.shape == (BATCH, 3, SIZE, SIZE)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert (batch.sample_index >= 0).all()
        assert batch.capacity == 64


def test_global_random_state_is_untouched(records: list[ImageRecord]) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1]
    run(train_loader(records, 1), 4)
    list(EvalLoader(records, PreparedSource(records, SIZE), 4, num_workers=0))
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


def test_undecodable_images_met_by_workers_are_listed_here(records: list[ImageRecord], tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"")
    record = records[3]
    damaged = ImageRecord(**{**vars(record), "path": str(broken)})
    images = [*records[:3], damaged, *records[4:]]
    digests = []
    for num_workers in (0, 2):
        prepared = PreparedSource(images, SIZE)
        planner = TrainPlanner(images, SIZE, AugmentPolicy(), BATCH, 0, NUM_EPOCHS)
        digests.append(run(TrainLoader(planner, PixelMaker(images, prepared), num_workers=num_workers), 3))
        assert prepared.undecodable_indices == [3]
    assert digests[0] == digests[1]


def test_a_worker_error_reaches_the_caller(records: list[ImageRecord], tmp_path: Path) -> None:
    missing = ImageRecord(**{**vars(records[0]), "path": str(tmp_path / "gone.png")})
    loader = EvalLoader([missing], PreparedSource([missing], SIZE), 1, num_workers=1)
    message = ""
    try:  # not pytest.raises: the traceback would keep the workers alive, in a cycle
        list(loader)
    except FileNotFoundError as error:
        message = str(error.with_traceback(None))
    assert "gone.png" in message


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_sees_every_image_once_in_one_shape(
    records: list[ImageRecord], num_workers: int, world_size: int
) -> None:
    loaders = [
        EvalLoader(records, PreparedSource(records, SIZE), 4, num_workers=num_workers, world_size=world_size, rank=rank)
        for rank in range(world_size)
    ]
    assert len({len(loader) for loader in loaders}) == 1
    shards = [list(loader) for loader in loaders]
    assert all(len(shard) == len(loaders[0]) for shard in shards)
    ordered = [batch for turn in zip(*shards, strict=True) for batch in turn]
    assert {batch.images.shape for batch in ordered} == {(4, 3, SIZE, SIZE)}
    indices = torch.cat([batch.sample_index for batch in ordered]).tolist()
    assert indices == [*range(11), *[-1] * (len(indices) - 11)]
    assert all(batch.targets.is_padded.all() for batch in ordered)
    assert (torch.cat([batch.images for batch in ordered])[11:] == 114).all()


@pytest.mark.parametrize("rank", [0, 1])
def test_evaluation_batches_that_are_kept_are_those_of_the_loader(records: list[ImageRecord], rank: int) -> None:
    prepared, ranks = PreparedSource(records, SIZE), {"world_size": 2, "rank": rank}
    loader = EvalLoader(records, prepared, 4, num_workers=0, **ranks)
    kept = ResidentEvalLoader(records, prepared, 4, torch.device("cpu"), **ranks)
    assert len(kept) == len(loader)
    for _ in range(2):
        assert [digest(batch) for batch in kept] == [digest(batch) for batch in loader]


def test_evaluation_repeats_and_shows_the_letterboxed_image(records: list[ImageRecord]) -> None:
    prepared = PreparedSource(records, SIZE)
    loader = EvalLoader(records, prepared, 4, num_workers=0)
    assert [digest(batch) for batch in loader] == [digest(batch) for batch in loader]
    x1, y1, x2, y2 = letterbox_plan(0, records[0], SIZE).placements[0].clip_xyxy_px
    first = next(iter(loader)).images[0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(first[y1:y2, x1:x2], prepared(0))


def test_evaluation_images_are_those_of_a_plan_that_changes_nothing(records: list[ImageRecord]) -> None:
    prepared = PreparedSource(records, SIZE)
    images = torch.cat([batch.images for batch in EvalLoader(records, prepared, 4, num_workers=0)])
    for index, record in enumerate(records):
        planned = apply_plan(letterbox_plan(index, record, SIZE), records, prepared).image
        np.testing.assert_array_equal(images[index].permute(1, 2, 0).numpy(), planned)


def test_empty_validation_split_has_no_batches() -> None:
    loader = EvalLoader([], PreparedSource([], SIZE), 4, num_workers=0)
    assert len(loader) == 0
    assert list(loader) == []


EVERYTHING = AugmentPolicy(
    close_mosaic=2, mosaic=0.7, degrees=10.0, shear=3.0, perspective=0.1, flipud=0.3, bgr=0.2, mixup=0.3, cutmix=0.5
)


def stream(
    records: Sequence[ImageRecord],
    *,
    cache: CacheKind = "none",
    is_cache_prepared: bool = False,
    num_workers: int = 0,
    prefetch_batches: int = 2,
    epoch_prefetch: bool = False,
    world_size: int = 1,
    position: int = 0,
    cache_dir: Path | None = None,
) -> list[str]:
    """Digests of the first 50 global batches, or of those from ``position`` on."""
    source = PreparedSource(records, SIZE, cache=cache, is_cache_prepared=is_cache_prepared, cache_dir=cache_dir)
    loaders = [
        TrainLoader(
            TrainPlanner(
                records,
                SIZE,
                EVERYTHING,
                BATCH // world_size,
                3,
                18,
                world_size=world_size,
                rank=rank,
                sampling="balanced",
            ),
            PixelMaker(records, source),
            num_workers=num_workers,
            position=position,
            prefetch_batches=prefetch_batches,
            epoch_prefetch=epoch_prefetch,
        )
        for rank in range(world_size)
    ]
    digests = []
    while loaders[0].position < 50:
        for parts in zip(*loaders, strict=True):
            pieces = [torch.cat([part.images for part in parts]).permute(0, 2, 3, 1)]
            pieces += [torch.cat([part.field(field.name) for part in parts]) for field in parts[0].target_fields]
            raw = b"".join(piece.contiguous().numpy().tobytes() for piece in pieces)
            digests.append(hashlib.sha256(raw).hexdigest())
    source.close()
    return digests[: 50 - position]


@pytest.fixture(scope="module")
def plain_stream(records: list[ImageRecord]) -> list[str]:
    return stream(records)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 3},
        {"num_workers": 2, "prefetch_batches": 5},
        {"num_workers": 2, "epoch_prefetch": True},
        {"num_workers": 0, "epoch_prefetch": True, "position": 3},
        {"world_size": 2},
        {"world_size": 4, "position": 31},
        {"position": 7},
        {"cache": "ram"},
        {"cache": "disk"},
        {"is_cache_prepared": True},
        {"cache": "ram", "num_workers": 2, "world_size": 2},
        {"cache": "disk", "is_cache_prepared": True, "num_workers": 1, "position": 19},
    ],
    ids=str,
)
def test_how_batches_are_made_changes_no_byte(
    records: list[ImageRecord], plain_stream: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    digests = stream(records, cache_dir=tmp_path, **options)
    assert len(set(plain_stream)) == 50
    assert digests == plain_stream[options.get("position", 0) :]


@pytest.mark.parametrize(
    ("length", "begun"),
    [
        ({}, [3 * epoch for epoch in range(NUM_EPOCHS)]),
        ({"num_batches": 6}, [0, 3]),
        ({"batches_per_epoch": 2, "num_batches": 8}, [0, 2, 4, 6]),
    ],
    ids=["the plan's", "fewer epochs", "shorter epochs"],
)
def test_nothing_is_prepared_after_the_last_epoch(
    records: list[ImageRecord], monkeypatch: pytest.MonkeyPatch, length: dict[str, int], begun: list[int]
) -> None:
    found, begin = list[int](), TrainLoader._begin

    def noted(self: TrainLoader) -> Iterator[TrainBatch]:
        found.append(self.position)
        return begin(self)

    monkeypatch.setattr(TrainLoader, "_begin", noted)
    planner = TrainPlanner(records, SIZE, AugmentPolicy(), BATCH, 0, NUM_EPOCHS)
    make = PixelMaker(records, PreparedSource(records, SIZE))
    loader = TrainLoader(planner, make, num_workers=0, epoch_prefetch=True, **length)
    while loader.position < length.get("num_batches", NUM_EPOCHS * BATCHES_PER_EPOCH):
        list(loader)
    assert found == begun


@pytest.mark.parametrize(("batch_size", "rank"), [(0, 0), (4, 1)])
def test_bad_evaluation_argument_is_an_error(records: list[ImageRecord], batch_size: int, rank: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        EvalLoader(records, PreparedSource(records, SIZE), batch_size, rank=rank)


def test_default_worker_count_is_what_this_process_may_use() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else multiprocessing.cpu_count()
    assert default_num_workers() == usable_cores() <= cores
    assert default_num_workers(10**6) == 1
