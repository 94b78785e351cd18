"""Data of a run: splits, loaders and the position in the training stream."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule, Trainer
from typing_extensions import override

from lucid_yolo.data.cache import CacheKind
from lucid_yolo.data.dataset import DataSplit, SourceFormat, open_split, read_class_map
from lucid_yolo.data.device_pixels import EVAL_SHARE, fits
from lucid_yolo.data.loader import EvalLoader, ResidentEvalLoader, TrainLoader, default_num_workers
from lucid_yolo.data.makers import AugmentDevice
from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner
from lucid_yolo.data.records import SharedRecords
from lucid_yolo.data.sampling import Sampling
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.data.train_source import TrainSource, is_read_once, open_train_source
from lucid_yolo.engine.batch_size import CPU_BATCH_SIZE
from lucid_yolo.kernels.needs import missing_for_kernel
from lucid_yolo.optim.schedule import RunLength
from lucid_yolo.runtime.json_file import write_json
from lucid_yolo.structures import ClassMap, ImageRecord

MAX_LIGHT_WORKERS = 4
"""Loader processes that only copy or only plan; each more takes longer to start than it saves."""

_log = logging.getLogger(__name__)


class DetectorDataModule(LightningDataModule):
    """A data set on disk, planned and loaded for the Trainer.

    Args:
        data_root: Folder or data YAML; formats and classes are found by looking.
        batch_size: Training images per device and batch; ``auto`` for what the device has memory for, 16 on a CPU.
        eval_batch_size: Evaluation images per device and batch; None for ``batch_size``.
        num_workers: Loader processes per device; None for one per core with a GPU, one in all without. Of loaders that
            decode and resize nothing, since images are kept as prepared or varied on the device, at most four.
        augment: How training images are varied.
        sampling: How often images are drawn: ``uniform``, ``balanced`` over classes, or by ``repeat_factor``.
        cache_train_images: Keep the images of a fit that do not lie on the device as uint8, one copy per machine:
            ``none``, ``ram`` or ``disk``.
        cache_prepared_train_images: Keep them after the resize to the network's size; alone it means ``ram``.
        augment_device: Where images are varied: ``cpu``, in the workers, or ``gpu``, in one kernel of the training
            step, from source images that lie on the device if they fit, else in page-locked RAM if they are kept there
            as prepared, else are decoded by the workers for each batch. The same pixels. With ``gpu`` a fit's
            validation images lie on the device too, if they take little of its memory.
        device_hsv: Leave only the colours to the device, where the workers do the rest.
        epoch_prefetch: Begin the next epoch's batches before the validation in between.
        source_format: Label format, where looking is not wanted.
        max_dropped_fraction: Training is refused when a larger share of its label rows had to be dropped.
        seed: Seed of shuffling and augmentation.

    Attributes:
        image_size_px: Side of the network input; set by the module.
        splits: The splits read so far.
        is_batch_size_auto: Whether ``batch_size`` still has to be found; until then it is that of a CPU.
    """

    def __init__(
        self,
        data_root: str,
        batch_size: int | Literal["auto"] = 16,
        eval_batch_size: int | None = None,
        num_workers: int | None = None,
        augment: AugmentPolicy | None = None,
        sampling: Sampling = "uniform",
        cache_train_images: CacheKind = "none",
        cache_prepared_train_images: bool = False,
        augment_device: AugmentDevice = "cpu",
        device_hsv: bool = False,
        epoch_prefetch: bool = True,
        source_format: SourceFormat = "auto",
        max_dropped_fraction: float = 0.01,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.data_root = data_root
        self.is_batch_size_auto = batch_size == "auto"
        self.batch_size: int = CPU_BATCH_SIZE if batch_size == "auto" else batch_size
        self._eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.augment = augment or AugmentPolicy()
        self.sampling = sampling
        self.cache_train_images = cache_train_images
        self.cache_prepared_train_images = cache_prepared_train_images
        self.augment_device, self.device_hsv, self.epoch_prefetch = augment_device, device_hsv, epoch_prefetch
        self.source_format = source_format
        self.max_dropped_fraction = max_dropped_fraction
        self.seed = seed
        self.image_size_px: int | None = None
        self.splits: dict[str, DataSplit] = {}
        self._train_loader: TrainLoader | None = None
        self._train_source: TrainSource | None = None
        self._open_resources: list[TrainLoader | EvalLoader | ResidentEvalLoader | PreparedSource | TrainSource] = []
        self._position = 0

    @property
    def class_map(self) -> ClassMap:
        """Classes of the data set."""
        for split in self.splits.values():
            return split.class_map
        return read_class_map(self.data_root, self.source_format)

    @property
    def eval_batch_size(self) -> int:
        """Evaluation images per device and batch."""
        return self._eval_batch_size or self.batch_size

    def setup(self, stage: str) -> None:
        """Read the splits of a stage and refuse unusable training labels.

        Raises:
            ValueError: Too many rows were dropped, or the training split has no object.
        """
        wanted = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}.get(stage, ())
        for name in wanted:
            if name not in self.splits and (split := self._open(name, is_needed=stage != "fit" or name == "train")):
                self.splits[name] = split
        if stage == "fit":
            self.splits["train"].account.check(self.max_dropped_fraction)
            if "val" not in self.splits:
                self._attached_trainer().limit_val_batches = 0

    def run_length(self, accumulate: int) -> RunLength:
        """Return how long the attached Trainer will train.

        Raises:
            ValueError: Neither epochs nor steps are bounded.
        """
        trainer = self._attached_trainer()
        batches = math.ceil(len(self.splits["train"].records) / (self.batch_size * trainer.world_size))
        limit = trainer.limit_train_batches
        batches = min(limit, batches) if isinstance(limit, int) else max(int(batches * limit), 1)
        epochs = []
        if trainer.max_epochs is not None and trainer.max_epochs > 0:
            epochs.append(trainer.max_epochs)
        if trainer.max_steps > 0:
            epochs.append(math.ceil(trainer.max_steps * accumulate / batches))
        if not epochs:
            raise ValueError("trainer: expected max_epochs or max_steps, found neither; a schedule needs an end")
        return RunLength(batches, min(epochs), accumulate)

    def train_dataloader(self) -> TrainLoader:
        """Return the training loader; it continues from the data position."""
        if self._train_loader is None:
            trainer, source, run = self._attached_trainer(), self.train_source(), self.run_length(1)
            self._train_loader = TrainLoader(
                self.planner(),
                source.make,
                num_workers=self._num_workers(trainer, is_light=source.has_light_workers),
                pin_memory=_is_on_cuda(trainer),
                position=self._position,
                epoch_prefetch=self.epoch_prefetch,
                attach=source.attach,
                batches_per_epoch=run.batches_per_epoch,
                num_batches=run.num_batches,
            )
            self._open_resources.append(self._train_loader)
        return self._train_loader

    def train_source(self) -> TrainSource:
        """Return how this rank's training batches are made.

        Raises:
            ValueError: The device of the run cannot do its part.
        """
        if self._train_source is None:
            trainer, records = self._attached_trainer(), self._shared_records("train")
            device = trainer.strategy.root_device
            for option, is_set in (
                ("augment_device: gpu", self.augment_device == "gpu"),
                ("device_hsv", self.device_hsv),
            ):
                if is_set and (missing := missing_for_kernel(device)):
                    raise ValueError(f"data.{option} cannot be honoured: {missing}")
            uncached = PreparedSource(records, self._image_size_px())
            is_resident = self.augment_device == "gpu" and fits(uncached.num_values, device)
            is_cached = not is_read_once(is_resident, self.cache_train_images, trainer.world_size)
            if not is_cached and (self.cache_train_images != "none" or self.cache_prepared_train_images):
                _log.info("the training images go to %s at once and are not kept in RAM", device)
            self._train_source = open_train_source(
                records,
                self._prepared(records, is_cached) if is_cached else uncached,
                self.augment,
                device,
                self.augment_device,
                self.device_hsv,
                is_resident,
            )
            self._open_resources.append(self._train_source)
        return self._train_source

    def planner(self) -> TrainPlanner:
        """Return the plan of this rank's training batches."""
        trainer, records = self._attached_trainer(), self.splits["train"].records
        run = self.run_length(1)
        batches = math.ceil(len(records) / (self.batch_size * trainer.world_size))
        return TrainPlanner(
            records,
            self._image_size_px(),
            self.augment,
            self.batch_size,
            self.seed,
            math.ceil(run.num_batches / batches),
            world_size=trainer.world_size,
            rank=trainer.global_rank,
            sampling=self.sampling,
        )

    def val_dataloader(self) -> EvalLoader | ResidentEvalLoader | list[Any]:
        """Return the validation loader; empty without a validation split."""
        return self._eval_loader("val") if "val" in self.splits else []

    def test_dataloader(self) -> EvalLoader | ResidentEvalLoader:
        """Return the test loader."""
        return self._eval_loader("test")

    @override
    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copy without waiting: the host stays ahead of the device."""
        return batch.to(device, non_blocking=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the data position: batches handed out since the start of the run."""
        return self._train_loader.state_dict() if self._train_loader else {"position": self._position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved data position."""
        self._position = int(state_dict["position"])
        if self._train_loader is not None:
            self._train_loader.load_state_dict(state_dict)

    @override
    def teardown(self, stage: str) -> None:
        """Stop the loaders' workers, then give up the caches."""
        with ExitStack() as closing:  # the rest is closed too where one cannot be
            for resource in self._open_resources:
                closing.callback(resource.close)
            self._open_resources.clear()
            self._train_source = None
        if self._train_loader is not None:
            self._position, self._train_loader = self._train_loader.position, None

    def write_accounts(self, run_dir: Path) -> None:
        """Write what became of every label row as JSON."""
        accounts = {name: split.account.to_dict() for name, split in self.splits.items()}
        write_json(run_dir / "labels.json", accounts)

    def _open(self, name: str, is_needed: bool) -> DataSplit | None:
        try:
            split = open_split(self.data_root, name, self.source_format)  # type: ignore[arg-type]
        except ValueError:
            if is_needed:
                raise
            _log.warning("%s has no %s split: the run goes without validation", self.data_root, name)
            return None
        _log.info("%s labels, read as %s\n%s", name, split.source_format, split.account.to_table())
        return split

    def _eval_loader(self, name: str) -> EvalLoader | ResidentEvalLoader:
        """Return a split's loader; where the device draws the training images, a fit's validation images stay on it."""
        trainer, records, size = self._attached_trainer(), self._shared_records(name), self._image_size_px()
        ranks = {"world_size": trainer.world_size, "rank": trainer.global_rank}
        device, is_fit = trainer.strategy.root_device, trainer.state.fn == "fit"
        is_whole = isinstance(trainer.limit_val_batches, float) and trainer.limit_val_batches == 1.0
        num_bytes = ResidentEvalLoader.num_bytes(len(records), size, trainer.world_size)
        loader: EvalLoader | ResidentEvalLoader
        if is_fit and is_whole and self.augment_device == "gpu" and fits(num_bytes, device, EVAL_SHARE):
            prepared = self._prepared(records, is_cached=self.cache_train_images == "disk")
            loader = ResidentEvalLoader(records, prepared, self.eval_batch_size, device, **ranks)
            _log.info("%d %s images, %.2f GiB, lie on %s", len(records), name, num_bytes / 2**30, device)
        else:
            prepared = self._prepared(records, is_cached=is_fit)
            loader = EvalLoader(
                records,
                prepared,
                self.eval_batch_size,
                num_workers=self._num_workers(trainer, is_light=prepared.kept is not None),
                pin_memory=_is_on_cuda(trainer),
                **ranks,
            )
        self._open_resources.append(loader)
        return loader

    def _shared_records(self, name: str) -> SharedRecords:
        """Return a split's records in memory that worker processes share."""
        return SharedRecords.of(self.splits[name].records)

    def _prepared(self, records: Sequence[ImageRecord], is_cached: bool) -> PreparedSource:
        prepared = PreparedSource(
            records,
            self._image_size_px(),
            cache=self.cache_train_images if is_cached else "none",
            is_cache_prepared=self.cache_prepared_train_images and is_cached,
        )
        self._open_resources.append(prepared)
        return prepared

    def _num_workers(self, trainer: Trainer, is_light: bool) -> int:
        """Return the loader processes of this rank; few where they decode nothing and resize nothing."""
        if self.num_workers is not None:
            return self.num_workers
        if not _is_on_cuda(trainer):
            return 1  # the training step needs the cores
        workers = default_num_workers(max(trainer.world_size // trainer.num_nodes, 1))
        return min(workers, MAX_LIGHT_WORKERS) if is_light else workers

    def _attached_trainer(self) -> Trainer:
        if self.trainer is None:
            raise RuntimeError("the data module is not attached to a Trainer")
        return self.trainer

    def _image_size_px(self) -> int:
        if self.image_size_px is None:
            raise RuntimeError("the module that is trained says the image size; it has not been configured")
        return self.image_size_px


def detector_data(trainer: Trainer) -> DetectorDataModule:
    """Return the Trainer's data module.

    Raises:
        ValueError: It is of another kind.
    """
    data = trainer.datamodule  # type: ignore[attr-defined]
    if not isinstance(data, DetectorDataModule):
        raise ValueError(f"datamodule: expected DetectorDataModule, found {type(data).__name__}")
    return data


def _is_on_cuda(trainer: Trainer) -> bool:
    return trainer.strategy.root_device.type == "cuda"
