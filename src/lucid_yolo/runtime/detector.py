"""A trained network ready to run on images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import UInt8
from torch import Tensor

from lucid_yolo.data.host import usable_cores
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.graphs import EagerRunner, ReplayRunner, Runner, side_by_side
from lucid_yolo.kernels.launch import rehearsal
from lucid_yolo.models.head import BRANCHES
from lucid_yolo.models.network import Network, fuse
from lucid_yolo.models.scales import STRIDES
from lucid_yolo.runtime import weights_file
from lucid_yolo.runtime.checkpoint_file import ModelMeta, build_network, read_checkpoint, read_meta
from lucid_yolo.runtime.precision import PrecisionName, forward_context, resolve_precision
from lucid_yolo.structures import Detections, Prediction
from lucid_yolo.tasks.task import Task

_RAW, _DECODED = "raw", "decoded"
_FIELDS = tuple(f.name for f in fields(Detections))


def choose_device(name: str = "auto") -> torch.device:
    """Return the named device; ``auto`` is the GPU where there is one.

    Raises:
        ValueError: This machine or this build of torch has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device: expected auto, cpu or a GPU of this machine, found {name!r} ({reason})") from error


@runtime_checkable
class ImageDetector(Protocol):
    """Finds objects in letterboxed pictures: a network of this package, or an exported file."""

    @property
    def meta(self) -> ModelMeta:
        """What the network is; pictures are letterboxed to its image size."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""

    @property
    def precision(self) -> str:
        """Precision of the forward pass."""

    @property
    def branches(self) -> tuple[str, ...]:
        """Head branches that run."""

    def detect(self, images: UInt8[Tensor, "B 3 H W"]) -> dict[str, Detections]:
        """Return the ranked detections of every branch."""


class Detector:
    """Network, task and decoders for inference. Unless recorded it holds no state, so threads may share it.

    Args:
        network: The network, on its device, in evaluation mode.
        task: Decodes its output.
        meta: What the network is.
        precision: Precision of the forward pass.
        branches: Head branches to run.
    """

    def __init__(
        self,
        network: Network,
        task: Task,
        meta: ModelMeta,
        precision: PrecisionName = "auto",
        branches: Sequence[str] = BRANCHES,
    ) -> None:
        self.network = network.eval()
        self.task = task
        self.meta = meta
        self.branches = tuple(branches)
        self.device = next(network.parameters()).device
        self.precision = resolve_precision(precision, self.device)
        size = meta.image_size_px
        self.points = make_anchor_points((size, size), STRIDES, self.device)
        self._runner: Runner = EagerRunner(self._run)

    @classmethod
    def from_checkpoint(
        cls,
        ckpt_path: str | Path,
        device: str = "auto",
        precision: PrecisionName = "auto",
        branches: Sequence[str] = BRANCHES,
        is_fused: bool = False,
    ) -> Detector:
        """Load the averaged network of a checkpoint.

        Args:
            ckpt_path: Checkpoint file, or weights in a ``.safetensors`` file.
            device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
            precision: Precision of the forward pass.
            branches: Head branches to run.
            is_fused: Fold batch normalisation into the convolutions and drop the other branches.
        """
        chosen = choose_device(device)
        network, meta = read_network(ckpt_path)
        if is_fused:
            network = fuse(network, branches)
        network = network.to(chosen).to(memory_format=torch.channels_last)
        return cls(network, meta.build_task(), meta, precision, branches)

    @torch.inference_mode()
    def predict(self, images: UInt8[Tensor, "B 3 H W"]) -> Prediction:
        """Return the raw output of every branch, stacked on the batch axis."""
        return Prediction(*self._runner(_RAW, images.to(self.device, non_blocking=True)))

    def record(self) -> None:
        """Record the forward pass and the decoding at the first batch of each shape and replay them from then on.

        The recording reads the network's parameters where they lie: values that change in place count.

        Raises:
            RecordingError: There is no CUDA device.
        """
        modules = dict(self.network.named_modules())
        self._runner = ReplayRunner(self._run, list, modules=modules, first_run=partial(rehearsal, usable_cores()))

    def release(self) -> None:
        """Free what recording holds; everything runs eagerly again."""
        self._runner.release()
        self._runner = EagerRunner(self._run)

    @torch.inference_mode()
    def detect(self, images: UInt8[Tensor, "B 3 H W"]) -> dict[str, Detections]:
        """Return the decoded detections of every branch.

        Args:
            images: RGB letterboxed to the network's input size.
        """
        tensors = self._runner(_DECODED, images.to(self.device, non_blocking=True))
        per_branch = zip(*[iter(tensors)] * len(_FIELDS), strict=True)
        return {branch: Detections(*rows) for branch, rows in zip(self.branches, per_branch, strict=True)}

    def _run(self, key: object, images: Tensor) -> tuple[Tensor, ...]:
        """Return the raw output, or the fields of every branch's detections one after another."""
        with forward_context(self.precision, self.device):
            prediction: Prediction = self.network(images.float().mul(1 / 255), self.branches)
        if key == _RAW:
            return prediction.box_ltrb_cell, prediction.class_logit
        rows = zip(split_branches(prediction, len(self.branches)), self.branches, strict=True)
        decoded = side_by_side([partial(self.task.decode, part, self.points, branch) for part, branch in rows])
        return tuple(getattr(detections, name) for detections in decoded for name in _FIELDS)


def read_network(path: str | Path) -> tuple[Network, ModelMeta]:
    """Return the averaged network of a checkpoint or of a ``.safetensors`` file, on the CPU, and what it is.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It was not written by this package.
    """
    if Path(path).suffix.lower() == weights_file.SUFFIX:
        return weights_file.read_weights(path)
    checkpoint = read_checkpoint(path)
    return build_network(checkpoint), read_meta(checkpoint)


def split_branches(prediction: Prediction, num_branches: int) -> list[Prediction]:
    """Return one prediction per branch from a stacked one."""
    boxes = prediction.box_ltrb_cell.chunk(num_branches)
    logits = prediction.class_logit.chunk(num_branches)
    return [Prediction(*rows) for rows in zip(boxes, logits, strict=True)]
