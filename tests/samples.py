"""An untrained checkpoint that finds something, and a small COCO data set, for tests of whole commands."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image

from lucid_yolo.models.blocks import BatchNorm2d
from lucid_yolo.models.head import OutputConv
from lucid_yolo.models.network import Network
from lucid_yolo.models.scales import Variant
from lucid_yolo.runtime.checkpoint_file import ModelMeta, write_checkpoint
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.structures import ClassMap

IMAGE_SIZE_PX = 64
CLASS_MAP = ClassMap(("Zelle [red]", "bus", "собака"), (3, 7, 90))
SIZES = [(48, 80), (100, 31), (64, 64), (90, 120), (7, 33)]


def write_untrained(
    path: Path,
    class_map: ClassMap = CLASS_MAP,
    class_std: float = 0.15,
    box_std: float = 0.05,
    images: torch.Tensor | None = None,
    variant: Variant = "n",
) -> Path:
    """Write a checkpoint that gives varied detections; none with ``class_std`` 0.

    ``images`` set the normalisation; noise of 8 x 8 patches without them.
    """
    torch.manual_seed(0)
    meta = ModelMeta("detect", variant, class_map, IMAGE_SIZE_PX)
    network = Network(meta.variant, meta.build_task().stems)
    for module in network.modules():
        if isinstance(module, BatchNorm2d):
            module.register_forward_pre_hook(_take_statistics)
        elif isinstance(module, OutputConv):
            torch.nn.init.normal_(module.weight, std=box_std if module.out_channels == 4 else class_std)
    if images is None:
        images = torch.rand(8, 3, 8, 8).repeat_interleave(8, 2).repeat_interleave(8, 3)
    with torch.no_grad():
        network.eval()(images)
    train_state = TrainState(network).state_dict()
    state_dict = {f"network.{name}": value for name, value in network.state_dict().items()}
    section = {"meta": meta.to_dict(), "train_state": train_state}
    write_checkpoint({"state_dict": state_dict, "lucid_yolo": section}, path)
    return path


def _take_statistics(module: BatchNorm2d, inputs: tuple[torch.Tensor]) -> None:
    """Normalise by the batch at hand, so that the layers after it see numbers of common size."""
    module.running_mean.copy_(inputs[0].mean((0, 2, 3)))
    module.running_var.copy_(inputs[0].var((0, 2, 3)))


def write_pictures(folder: Path, rng: np.random.Generator) -> list[Path]:
    """Write one PNG of coloured patches per entry of ``SIZES``."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, (height, width) in enumerate(SIZES):
        patches = rng.integers(0, 256, (height // 6 + 1, width // 6 + 1, 3), dtype=np.uint8)
        pixels = patches.repeat(6, axis=0).repeat(6, axis=1)[:height, :width]
        paths.append(folder / f"p{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def write_video(path: Path, frames_rgb: list[np.ndarray], fps: float = 25.0) -> Path:
    """Write a video whose suffix chooses the codec: avi or mp4."""
    codec = {"avi": "MJPG", "mp4": "mp4v"}[path.suffix[1:]]
    height, width = frames_rgb[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*codec), fps, (width, height))
    assert writer.isOpened()
    for frame in frames_rgb:
        writer.write(frame[:, :, ::-1].copy())
    writer.release()
    return path


def write_coco(root: Path, rng: np.random.Generator) -> Path:
    """Write pictures and a COCO JSON for split val whose image ids are no file names; return the JSON."""
    paths = write_pictures(root / "images" / "val", rng)
    images, annotations = [], []
    for number, (path, (height, width)) in enumerate(zip(paths, SIZES, strict=True)):
        image_id = 1000 + 7 * number
        images.append({"id": image_id, "file_name": path.name, "height": height, "width": width})
        for category_id in CLASS_MAP.source_ids[:2]:
            box = [0.0, 0.0, width / 2, height / 2]
            annotation = {"id": len(annotations) + 1, "image_id": image_id, "category_id": category_id, "bbox": box}
            annotations.append(annotation | {"area": box[2] * box[3], "iscrowd": 0})
    categories = [{"id": i, "name": n} for i, n in zip(CLASS_MAP.source_ids, CLASS_MAP.names, strict=True)]
    target = root / "annotations" / "instances_val.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return target
